"""What `retinue agents` and `retinue skills` print alike: a list, the head of one, what a check found."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.cli import exits

if TYPE_CHECKING:
    from retinue.agents import Finding
    from retinue.view.paint import Span
    from retinue.view.table import TableColumn


def print_definitions(
    heads: Sequence[TableColumn], rows: Sequence[Sequence[Span]], problems: Sequence[Finding]
) -> int:
    """A table, where there are rows, and below it what could not be used."""
    from retinue.view.paint import note
    from retinue.view.table import print_table

    if rows:
        print_table(heads, rows, sys.stdout)
    for problem in problems:
        note(str(problem), "red")
    return exits.USAGE if problems else exits.OK


def print_head(scope: str, path: Path, notes: Iterable[Finding]) -> None:
    """Whose a definition is, where it lies, and what a reader of it should know."""
    from retinue.view.paint import note

    note(f"{scope}: {path}", "dim")
    for finding in notes:
        note(str(finding), "yellow")


def print_findings(findings: list[Finding], *, checked: int) -> int:
    from retinue.view.paint import note, put

    styles = {"error": "red", "warning": "yellow", "note": "dim"}
    for finding in findings:
        put([[(str(finding), styles[finding.level])]], sys.stdout) if not sys.stdout.isatty() else _folded(
            str(finding), styles[finding.level]
        )
    errors = sum(finding.level == "error" for finding in findings)
    if not findings:
        note("nothing to check here" if not checked else "all good", "green")
    return exits.USAGE if errors else exits.OK


def _folded(text: str, style: str) -> None:
    from retinue.view.paint import columns, put, wrap

    first, *rest = wrap(text, columns(sys.stdout) - 2)
    put([[(first, style)], *([("  " + piece, style)] for piece in rest)], sys.stdout)
