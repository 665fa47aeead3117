"""What was read for a piece of research, numbered: what [1] stands for in its report.

Called by the tools of research. The numbers follow the order in which pages were first read, so that a page
keeps its number however many come later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from retinue.research.contradictions import Contradiction, ReadPage, contradictions
from retinue.types import Source
from retinue.web.urls import key as same_address


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedPage:
    """A page or a file as it was read. `key` is its address or its path."""

    key: str
    text: str
    title: str
    source: Source
    aliases: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    """The private data that it is, by name."""

    def with_more(self, text: str) -> FetchedPage:
        """It once more, read again or another part of it."""
        return self if text in self.text else replace(self, text=f"{self.text}\n\n{text}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceTable:
    """The pages by their numbers, from 1, and where they contradict one another."""

    pages: tuple[FetchedPage, ...]
    differences: tuple[Contradiction, ...] = ()

    @property
    def private(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for page in self.pages for name in page.private))

    def number(self, key: str) -> int | None:
        """The number of what was read under this address or path."""
        wanted = same_address(key)
        for at, page in enumerate(self.pages, start=1):
            if wanted in map(same_address, page.aliases):
                return at
        return None

    def line(self, number: int) -> str:
        page = self.pages[number - 1]
        title = " ".join(page.title.split())[:150]
        return f"[{number}] {title + '. ' if title else ''}{page.key}"


class KeptTable:
    """The table of what a run has read, made anew only when it has read more."""

    def __init__(self) -> None:
        self._last: SourceTable | None = None

    async def of(self, pages: Sequence[FetchedPage]) -> SourceTable:
        """In a thread: to look for contradictions takes seconds where much was read."""
        if self._last is None or self._last.pages != tuple(pages):
            self._last = await asyncio.to_thread(table_of, pages)
        return self._last


def table_of(pages: Sequence[FetchedPage]) -> SourceTable:
    read = [ReadPage(key=page.key, text=page.text, title=page.title) for page in pages]
    return SourceTable(pages=tuple(pages), differences=contradictions(read))
