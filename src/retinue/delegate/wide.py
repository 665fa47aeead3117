"""A batch whose result is too long for one: what is shown of its tasks, and where the whole of it is.

Used by `batch`. What is shown is JSON, whatever there is room for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retinue.delegate.children import ChildRunner
from retinue.delegate.results import as_json
from retinue.errors import ToolError
from retinue.reports import Brief, cut
from retinue.tools.base import ToolContext
from retinue.web.framing import REPORT_WARNING

LEADS = (400, 300, 200, 150, 100, 60)
"""Bytes of each report that the aggregated one begins with: as many as there is room for."""
READERS = frozenset({"read", "view", "grep", "bash", "run_code"})
"""Tools by which a run reads a file of its workspace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRow:
    """What is told of one task: its row, and the beginning of its report or why there is none."""

    row: dict[str, Any]
    whole: bool
    """It completed, and lacks nothing."""
    title: str = ""
    words: str | Brief = ""
    beginning: str = ""
    """Those words where there is room for all of them, if they are others then."""

    def section(self, lead: int | None) -> str:
        if lead is None and self.beginning:
            return f"{self.title}\n{self.beginning}"
        if isinstance(self.words, Brief):
            return f"{self.title}\n{self.words.beginning(lead or LEADS[0])}"
        return f"{self.title}\n{self.words if lead is None else cut(self.words, lead)}"

    @property
    def facts(self) -> dict[str, Any]:
        """Its row among many: without the report and what it took, and without what there is not."""
        left_out = ("report", "metrics")
        return {name: value for name, value in self.row.items() if value is not None and name not in left_out}


def fitted(
    runner: ChildRunner, ctx: ToolContext, head: dict[str, Any], parts: Sequence[TaskRow]
) -> tuple[str, tuple[str, ...]]:
    """A result that is not cut, and the file that has the whole of it where there is no room for that.

    Of more tasks than can be shown, those come first that did not complete, and have a row each.
    """
    room, aggregated = runner.room(ctx.call_id), any(part.title for part in parts)
    rows = [part.row for part in parts]
    sections = {"aggregated_report": "\n\n".join(part.section(None) for part in parts)} if aggregated else {}
    whole = as_json({**head, "results": rows, **sections})
    if len(whole) <= room:
        return whole, ()
    where, files = _saved(ctx, whole, runner.shown(ctx.run_id))
    first = sorted(range(len(parts)), key=lambda index: parts[index].whole)

    def made(count: int, told: Sequence[str], *, terse: bool = False) -> str:
        chosen = sorted(first[:count])
        rows = [i for i in chosen if not (terse and aggregated and parts[i].whole)]
        rest = f"{count} of {len(parts)} tasks are shown, in few words; {where}"
        if len(rows) < count:
            rest = f"results has those alone that are not completed or lack something; {rest}"
        body = {**head, "shown": count, "rest": rest}
        body["results"] = [{"task": index + 1, **parts[index].facts} for index in rows]
        if aggregated:
            body["aggregated_report"] = "\n\n".join([*(told[index] for index in chosen), REPORT_WARNING])
        return json.dumps(body, ensure_ascii=False)

    for lead in LEADS:
        text = made(len(parts), [part.section(lead) for part in parts])
        if len(text) <= room:
            return text, files
    few = [part.section(LEADS[-1]) for part in parts]
    count = _largest(len(parts), lambda count: len(made(count, few, terse=True)) <= room)
    return made(count, few, terse=True), files


def _saved(ctx: ToolContext, whole: str, shown: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Where the whole result is, in words for the model, and the file that it is in."""
    fewer = "give fewer tasks at once to read more of each"
    try:
        path = ctx.files.save("parallel_tasks.json", whole.encode("utf-8", "replace"))
    except ToolError:
        return fewer, ()
    if READERS.isdisjoint(shown):
        return f"all of it is in {path}, which you have no tool to read: {fewer}", (path,)
    return f"all of it is in {path}", (path,)


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, where each that is smaller than one that fits does."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    return least
