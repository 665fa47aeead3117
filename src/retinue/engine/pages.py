"""What a run and those below it have really read, page by page: from their logs, and files kept with these.

Called for the tools of research and when a report is held against its sources: a parent is told what its
children say of a page, and what counts is what the page says. Nothing is fetched, and what is read is
bounded.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from contextlib import suppress

from retinue.builtin_tools import DELEGATION_TOOLS
from retinue.errors import ToolError
from retinue.events import AnyEvent, ChildStarted, ToolCalled, ToolReturned
from retinue.research.pages import FetchedPage
from retinue.run import Run
from retinue.store.base import KeptFile, Store
from retinue.types import Source
from retinue.web.framing import unframed
from retinue.workspace import Files

MOST_RUNS = 500
MOST_PAGES = 400
MOST_FILE = 2_000_000
MOST_TEXT = 20_000_000


async def pages_below(store: Store, root_id: str, run_id: str, files: Files | None) -> list[FetchedPage]:
    """The pages and files that a run and all below it have read, in the order of their first reading."""
    logs = await _logs(store, root_id, run_id)
    calls = {(e.run_id, e.call_id): e for e in logs if isinstance(e, ToolCalled)}
    found: dict[str, FetchedPage] = {}
    size = 0
    kept = _Kept(store, root_id)
    for event in sorted(
        (e for e in logs if isinstance(e, ToolReturned) and not e.children),
        key=lambda e: (e.pos or 1 << 62, e.seq),
    ):
        called = calls.get((event.run_id, event.call_id))
        if event.is_error or called is None or called.effect == "delegate":
            continue
        for source in event.sources:
            name = source.url or source.path
            if not name or source.listed or not source.verified or len(found) >= MOST_PAGES:
                continue
            text = await _text(source, event, kept, files)
            if text and size + len(text) <= MOST_TEXT:
                size += len(text)
                before = found.get(name)
                found[name] = (
                    _page(source, name, text, event.private) if before is None else before.with_more(text)
                )
    return list(found.values())


def _page(source: Source, name: str, text: str, private: tuple[str, ...]) -> FetchedPage:
    return FetchedPage(
        key=name,
        text=text,
        title=source.title,
        source=source,
        aliases=(name, *source.aliases),
        private=private,
    )


async def _logs(store: Store, root_id: str, run_id: str) -> list[AnyEvent]:
    """The events of a run and of all below it."""
    left, seen = [run_id], dict[str, None]()
    found: list[AnyEvent] = []
    while left and len(seen) < MOST_RUNS:
        each = left.pop(0)
        if each in seen:
            continue
        seen[each] = None
        log = await store.events(root_id, run_id=each)
        found += log
        left += [event.child_id for event in log if isinstance(event, ChildStarted)]
    return found


class _Kept:
    """The files that are kept with the runs of a workflow, read when the first is asked for."""

    def __init__(self, store: Store, root_id: str) -> None:
        self._store, self._root_id = store, root_id
        self._files: Mapping[tuple[str, str], KeptFile] | None = None

    async def text(self, run_id: str, path: str) -> str | None:
        if self._files is None:
            kept = await self._store.kept(self._root_id)  # the oldest version of each first
            self._files = {(file.run_id, file.path): file for file in kept}
        file = self._files.get((run_id, path))
        if file is None:
            return None
        with suppress(zlib.error):
            return (await asyncio.to_thread(zlib.decompress, file.data)).decode("utf-8", "replace")
        return None


async def _text(source: Source, event: ToolReturned, kept: _Kept, files: Files | None) -> str | None:
    if source.saved_as:
        saved = await kept.text(event.run_id, source.saved_as)
        if saved is not None:
            return saved
    if source.url:
        return unframed(event.text)
    with suppress(ToolError):
        if files is not None and source.path and not files.locate(source.path).home:
            data = await asyncio.to_thread(files.read_bytes, source.path, MOST_FILE)
            return data.decode("utf-8", "replace")
    return None


def left_in_words(run: Run) -> str:
    """What a run may still use, for a model that plans its next round."""
    said: list[str] = []
    if any(tool.name in DELEGATION_TOOLS for tool in run.shown):
        said.append(f"{run.budget.places_left()} sub-agents")
    else:
        said.append("no sub-agents: look into the questions yourself")
    cost = run.budget.left("cost")
    said += [] if cost is None else [f"${cost:.2f}"]
    if run.spec.max_turns is not None:
        said.append(f"{max(0, run.spec.max_turns - run.state.work_turns)} turns")
    return f"Left: {', '.join(said)}."
