"""`Retinue` opened for a command that looks at runs or changes them, and the run a person means.

A run is named by its id, by the beginning of one, or by `last`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from retinue.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.attachments import Attachment
    from retinue.cli.run_flags import RunFlags
    from retinue.events import AnyEvent
    from retinue.store.base import RunRow, Store
    from retinue.tool_files import CodePlace, ToolFiles
    from retinue.view.live import View

T = TypeVar("T")


class ResumedWith(TypedDict, total=False):
    """What a command says of a workflow that it takes up."""

    message: str | None
    attachments: Sequence[Attachment]
    take_over: bool
    settings: Mapping[str, Any]
    model: str | None
    yes: bool


PAGE = 500
LEAST_OF_ID = 2
"""Characters of an id by which a run may be meant."""
MOST_PAGES = 40
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def with_retinue(
    db: str | None,
    work: Callable[[Retinue], Awaitable[T]],
    cwd: Path | None = None,
    tool_files: ToolFiles | None = None,
) -> T:
    """Open, do the work, close."""

    async def main() -> T:
        async with opened(db, cwd, tool_files) as retinue:
            return await work(retinue)

    return asyncio.run(main())


@asynccontextmanager
async def opened(
    db: str | None, cwd: Path | None = None, tool_files: ToolFiles | None = None
) -> AsyncGenerator[Retinue]:
    from retinue.app import Retinue

    refuse_absent(db)
    async with Retinue(db=db, cwd=cwd, tool_files=tool_files, answering="ask", fallback="offline") as retinue:
        yield retinue


@asynccontextmanager
async def opened_for_many(flags: RunFlags, code: Sequence[CodePlace] = ()) -> AsyncGenerator[Retinue]:
    """For many runs at once, with nobody to ask. `code`: where other code than tools was loaded from."""
    from retinue.app import Retinue
    from retinue.cli.foreground import warn
    from retinue.cli.own_tools import tools_of

    loaded = tools_of(flags.cwd, tuple(flags.tools or ()), quiet=flags.quiet, ask=False)
    async with Retinue(
        model=flags.models,
        small_model=flags.small_model,
        db=flags.db,
        cwd=flags.cwd,
        tool_files=loaded.beside(code),
        yes=flags.yes,
        fallback="offline",
    ) as retinue:
        warn(retinue, quiet=flags.quiet)
        yield retinue


def refuse_absent(db: str | None) -> None:
    """Whoever looks at a database that was named does not mean to make one."""
    from retinue.cli.checks import sqlite_path

    named = "--db" if db else "RETINUE_DB"
    db = db or os.environ.get("RETINUE_DB")
    path = sqlite_path(db) if db else None
    is_word = path is not None and db == path.name and "." not in path.name
    if path is not None and not is_word and not path.exists():
        raise StoreError(f"there is no database {path}: look at {named}. The first 'retinue ask' makes one")


async def rows_of_folder(retinue: Retinue, limit: int, *, but: str = "") -> list[RunRow]:
    """Workflows that worked in the folder of this one, newest first."""
    from retinue.store.base import RunFilter

    rows = await retinue.runs(RunFilter(roots_only=True, limit=PAGE))
    return [row for row in rows if row.run_id != but and same_folder(row.cwd, retinue.cwd)][:limit]


def same_folder(folder: str, other: Path) -> bool:
    return bool(folder) and os.path.realpath(folder) == os.path.realpath(other)


async def resumed(retinue: Retinue, view: View, run_id: str, **given: Unpack[ResumedWith]) -> tuple[str, int]:
    """Take a workflow up and show the view its past. Returns the id of its root and the place it knows."""
    known = 0

    def show_past(past: Sequence[AnyEvent]) -> None:
        nonlocal known
        known = past[-1].pos
        for event in past:
            view.tree.apply(event)

    return await retinue.resume(run_id, show_past=show_past, **given), known


async def find_run(retinue: Retinue, text: str) -> RunRow:
    """The run a person means, as it is shown."""
    stored = await stored_row(retinue.store, text)
    return await retinue.shown.run(stored.run_id) or stored


async def stored_row(store: Store, text: str) -> RunRow:
    """The run a person means, as it is stored."""
    from retinue.store.base import RunFilter

    if text == "last":
        newest = await store.runs(RunFilter(roots_only=True, limit=1))
        if not newest:
            raise ConfigError("there are no runs yet", fix="'retinue ask \"…\"' makes the first")
        return newest[0]
    row = await store.run(text)
    if row is not None:
        return row
    found = await beginning_with(store, text) if len(text) >= LEAST_OF_ID else []
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(row.run_id for row in found[:3])
        raise ConfigError(f"{text!r} is the beginning of several runs: {some}, …", fix="write more of the id")
    if len(text) < LEAST_OF_ID:
        raise ConfigError(
            f"{text!r} is too short for the beginning of a run's id",
            fix=f"write at least {LEAST_OF_ID} characters of one that 'retinue runs list' shows, or 'last'",
        )
    raise ConfigError(f"there is no run {text!r}", fix="'retinue runs list' shows them")


async def beginning_with(store: Store, beginning: str) -> list[RunRow]:
    """Runs whose id begins so: a few, which is enough to know that it is not clear."""
    since, before = _span(beginning)
    found = await _scan(store, beginning, since, before)
    # The clock may have been wrong, or the id is a child's: those say nothing about their time.
    return found or (await _scan(store, beginning, None, None) if since is not None else [])


async def _scan(store: Store, beginning: str, since: float | None, before: float | None) -> list[RunRow]:
    from retinue.store.base import RunFilter

    found: list[RunRow] = []
    last: RunRow | None = None
    for _ in range(MOST_PAGES):
        rows = await store.runs(
            RunFilter(
                since=since,
                before=last.created_at if last else before,
                before_id=last.run_id if last else None,
                roots_only=beginning.startswith("r"),
                limit=PAGE,
            )
        )
        found.extend(row for row in rows if row.run_id.startswith(beginning))
        if len(rows) < PAGE or len(found) > 1:
            break
        last = rows[-1]
    return found[:3]


def _span(beginning: str) -> tuple[float | None, float | None]:
    """When runs with such ids were created: the id of a root begins with its time."""
    digits = beginning[1:10]
    if not beginning.startswith("r") or any(digit not in _DIGITS for digit in digits):
        return None, None

    def moment(filler: str) -> float:
        value = 0
        for digit in digits.ljust(9, filler):
            value = value * 32 + _DIGITS.index(digit)
        return value / 1000

    # The first event is written a moment after the id was made.
    return moment("0") - 5, moment("z") + 600
