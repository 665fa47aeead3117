"""What a source found, and how it is shown: compact text the model can cite, one source per item.

Called by every source. Anyone may have written what a source holds, so it is never shown without its frame.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.authority.flows import canonical
from retinue.errors import ToolError
from retinue.masking import without_login
from retinue.tools.base import Tool, ToolResult, tool
from retinue.tools.knowledge.clean import cut
from retinue.tools.knowledge.wire import SourceResponse
from retinue.types import Source
from retinue.web.framing import frame

if TYPE_CHECKING:
    from retinue.tools.knowledge.client import KnowledgeClient

TEXT = 1500
LONGEST = 8000


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One thing found. `extra` are further facts by name, in the order they are shown.

    `also` are other addresses of the same thing, which a report may cite as well: a paper's DOI, its PDF.
    `listed`: it was found, and nothing of it was read: a name, a line about it, a record of it is no reading.
    """

    title: str
    text: str = ""
    url: str | None = None
    date: str | None = None
    extra: tuple[tuple[str, str], ...] = ()
    also: tuple[str, ...] = ()
    listed: bool = False

    def __post_init__(self) -> None:
        """Addresses are made from the operator's, and that may have a password in it: it is never cited."""
        if self.url is not None:
            object.__setattr__(self, "url", without_login(self.url))


def facts(**named: object) -> tuple[tuple[str, str], ...]:
    """Facts that are there, as `Item.extra`; underscores in names become spaces."""
    found = ((name.replace("_", " "), str(value).strip()) for name, value in named.items() if value)
    return tuple((name, value) for name, value in found if value)


def result(
    head: str,
    items: Sequence[Item],
    answer: SourceResponse,
    *,
    said: Sequence[str] = (),
    notes: Sequence[str] = (),
    most: int = TEXT,
) -> ToolResult:
    """The tool result: a line on what was asked, numbered items, notes on what is missing or partial.

    `said` are remarks in the words of the source, `notes` are our own.
    """
    blocks = [_block(number, item, most) for number, item in enumerate(items, 1)] + list(said)
    return ToolResult(
        text=framed(head if not answer.cached else f"{head} (cached)", "\n\n".join(blocks), notes),
        sources=sources(items, answer),
        found=tuple(canonical(url for item in items for url in (item.url, *item.also) if url)),
    )


def framed(head: str, body: str, notes: Sequence[str]) -> str:
    """What strangers wrote stands between marks; what we say about it stands outside them."""
    shown = [frame(body, what="lookup results")] if body else []
    return "\n\n".join([head, *shown, *(f"Note: {note}" for note in notes)])


def sources(items: Sequence[Item], answer: SourceResponse) -> tuple[Source, ...]:
    """One per item that has an address, each address once. The digest is that of the answer they came in."""
    found: dict[str, Source] = {}
    digest = hashlib.sha256(answer.body).hexdigest()
    for item in items:
        # What was read is not only listed because it stands in a list as well.
        if item.url and (item.url not in found or (found[item.url].listed and not item.listed)):
            found[item.url] = Source(
                url=item.url,
                title=item.title,
                fetched_at=answer.fetched_at,
                status=answer.status,
                sha256=digest,
                aliases=tuple(url for url in item.also if url),
                listed=item.listed,
            )
    return tuple(found.values())


def _block(number: int, item: Item, most: int) -> str:
    lines = [f"[{number}] {item.title}" + (f" ({item.date})" if item.date else "")]
    if item.url:
        lines.append(item.url)
    lines += [f"{name}: {value}" for name, value in item.extra]
    if item.text:
        lines.append(cut(item.text, most))
    return "\n".join(lines)


def make_tool(
    knowledge: KnowledgeClient, function: Callable[..., Awaitable[ToolResult]], *, needs: str = ""
) -> Tool:
    """A tool of a source. What the model reads of it stands in the `.md` file of its name."""
    name = function.__name__
    function.__doc__ = Path(__file__).with_name(f"{name}.md").read_text("utf-8")
    made = tool(name=name, effect="network", out="nowhere", timeout=knowledge.settings.request_timeout + 5)(
        function
    )
    made = replace(made, parse=_sendable(made.parse))
    if not needs or knowledge.key(needs):
        return made
    from retinue.tools.knowledge.sources import SOURCES

    missing = f"Not usable now: {SOURCES[needs].key} is not set in the environment."
    return replace(made, description=f"{made.description}\n\n{missing}")


def _sendable(parse: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    """Arguments that can go into an address: not endless, and without halves of characters."""

    def checked(raw: str) -> dict[str, Any]:
        arguments = parse(raw)
        for name, value in arguments.items():
            if isinstance(value, str):
                if len(value) > LONGEST:
                    raise ToolError(f"{name} has {len(value):,} characters: the limit is {LONGEST:,}")
                arguments[name] = value.encode("utf-8", "replace").decode()
        return arguments

    return checked
