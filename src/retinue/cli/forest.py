"""A stored workflow as a picture: every run with its time, tokens and cost, and when it ran.

Made from the records of the runs, not from their events, so that it is instant for a workflow of any size.
"""

from __future__ import annotations

from collections.abc import Sequence

from retinue.store.base import RunRow
from retinue.view import words
from retinue.view.paint import Line, cells, fit, width_of
from retinue.view.picture import MARKS

BAR = 24
BAR_FROM_WIDTH = 110


def forest(rows: Sequence[RunRow], top: str, *, width: int, now: float) -> list[Line]:
    """The run `top` and everything below it."""
    children: dict[str, list[RunRow]] = {}
    by_id = {row.run_id: row for row in rows}
    for row in rows:
        if row.parent_id is not None:
            children.setdefault(row.parent_id, []).append(row)
    lines: list[Line] = []
    root = by_id[top]
    span = (root.created_at, max(_end(row, now) for row in rows))

    def draw(row: RunRow, first: str, rest: str) -> None:
        lines.append(_line(row, first, width, now, span))
        below = children.get(row.run_id, [])
        for index, child in enumerate(below):
            final = index == len(below) - 1
            draw(child, rest + ("╰─" if final else "├─"), rest + ("  " if final else "│ "))

    draw(root, "", "")
    return lines


def _end(row: RunRow, now: float) -> float:
    """When it last worked."""
    if row.completed_at is not None or row.began_at is None:
        return row.completed_at or row.created_at
    if row.held_since is not None:
        return row.held_since
    return now if row.duration_ms is None else row.began_at + row.idle + row.waited + row.duration_ms / 1000


def _line(row: RunRow, first: str, width: int, now: float, span: tuple[float, float]) -> Line:
    mark, style = MARKS[row.outcome]
    facts = [words.duration(row.seconds(now))]
    if width >= 60:
        facts.insert(0, words.count(row.turns, "turn"))
        facts.append(f"{words.tokens(row.tree_tokens)} tokens")
    if width >= 70 and row.effort:
        facts.insert(1, words.effort(row.effort))
    if width >= 80:
        facts.append(words.money(row.tree_cost) if row.tree_cost is not None else "$?")
    right = " · ".join(facts)
    left: Line = [
        (first, "dim"),
        (f"{mark} ", style),
        (row.agent, "bold"),
        (f"  {row.run_id}" if width >= 100 else f"  {row.run_id[:8]}", "dim"),
        (f"  {words.one_line(row.label or row.task)}", "dim"),
    ]
    if row.outcome not in (row.status, "completed") or row.denied:
        left.insert(3, (f" {words.outcome(row.outcome, row.denied)}", style))
    if row.parked_until is not None and row.completed_at is None:
        left.insert(-2, (f" limit until {words.at_moment(row.parked_until, now)}", "magenta"))
    if row.error:
        left[-1] = (f"  {words.one_line(row.error)}", "red")
    bar = _bar(row, _end(row, now), span) if width >= BAR_FROM_WIDTH else ""
    room = width - cells(right) - 2 - (len(bar) + 2 if bar else 0)
    left = fit(left, max(12, room))
    gap = max(2, width - width_of(left) - cells(right) - (len(bar) + 2 if bar else 0))
    line = [*left, (" " * gap, ""), (right, "dim")]
    return [*line, ("  ", ""), (bar, style)] if bar else line


def _bar(row: RunRow, end: float, span: tuple[float, float]) -> str:
    """When it ran, within the time of the whole."""
    began, ended = span
    total = max(ended - began, 0.001)
    start = min(BAR - 1, max(0, int((row.created_at - began) / total * BAR)))
    stop = max(start + 1, min(BAR, round((end - began) / total * BAR)))
    return "·" * start + "━" * (stop - start) + "·" * (BAR - stop)
