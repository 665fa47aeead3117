"""Rows in columns: fitted to the terminal, or whole and plain where the output is read by a program.

On a terminal the flexible column gives way first, then columns are left out, the least important first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from retinue.view.paint import Line, Span, cells, columns, cut, put

GAP = 2
LEAST_FLEXIBLE = 16


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """`rank`: columns with a higher one are left out first; 0 always stays. One column may be `flexible`."""

    title: str
    right: bool = False
    flexible: bool = False
    rank: int = 0


def print_table(heads: Sequence[TableColumn], rows: Sequence[Sequence[Span]], stream: TextIO) -> None:
    room = columns(stream) if stream.isatty() else None
    put(table(heads, rows, room), stream)


def table(heads: Sequence[TableColumn], rows: Sequence[Sequence[Span]], room: int | None) -> list[Line]:
    """The lines of a table in at most `room` columns; None is as wide as it takes."""
    natural = [
        max(cells(head.title), *(cells(row[index][0]) for row in rows)) if rows else cells(head.title)
        for index, head in enumerate(heads)
    ]
    shown = _shown(heads, natural, room)
    widths = {index: natural[index] for index in shown}
    if room is not None:
        over = sum(widths.values()) + GAP * (len(shown) - 1) - room
        for index in shown:
            if heads[index].flexible and over > 0:
                widths[index] = max(1, widths[index] - over)
    lines = [_line([(heads[index].title, "dim") for index in shown], heads, widths)]
    return lines + [_line([row[index] for index in shown], heads, widths) for row in rows]


def _shown(heads: Sequence[TableColumn], natural: list[int], room: int | None) -> list[int]:
    """Which columns there is room for."""
    shown = list(range(len(heads)))

    def least() -> int:
        return sum(
            min(natural[index], LEAST_FLEXIBLE) if heads[index].flexible else natural[index]
            for index in shown
        ) + GAP * (len(shown) - 1)

    while room is not None and least() > room:
        worst = max(shown, key=lambda index: heads[index].rank)
        if heads[worst].rank == 0:
            break
        shown.remove(worst)
    return shown


def _line(spans: list[Span], heads: Sequence[TableColumn], widths: dict[int, int]) -> Line:
    line: Line = []
    for position, ((text, style), (index, width)) in enumerate(zip(spans, widths.items(), strict=True)):
        text = cut(text, width)
        pad = " " * (width - cells(text))
        last = position == len(spans) - 1
        line.append((pad, "") if heads[index].right else (text, style))
        line.append((text, style) if heads[index].right else ("" if last else pad, ""))
        if not last:
            line.append((" " * GAP, ""))
    return line
