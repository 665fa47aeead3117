"""What `retinue map` gives back: a line or a row for each input as it ends, and a bar meanwhile."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from retinue.map_batch import MapItem
    from retinue.types import Report

COLUMNS = ("index", "key", "run_id", "outcome", "text", "error", "from_before")


class Results:
    """A file of results, or standard output: CSV by its ending, else JSON lines. Each as soon as it ended."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: TextIO | None = None
        self._rows: Any = None

    def __enter__(self) -> Results:
        if self.path is None:
            return self
        self._file = self.path.open("w", encoding="utf-8", newline="")
        if self.path.suffix.lower() == ".csv":
            self._rows = csv.writer(self._file)
            self._rows.writerow(COLUMNS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, item: MapItem[Any]) -> None:
        found = told(item)
        if self._rows is not None and self._file is not None:
            self._rows.writerow([found[name] for name in COLUMNS])
            self._file.flush()
        elif self._file is not None:
            self._file.write(json.dumps(found, ensure_ascii=False) + "\n")
            self._file.flush()
        else:
            from retinue.view.paint import out_json

            out_json(json.dumps(found, ensure_ascii=False))


def told(item: MapItem[Any]) -> dict[str, Any]:
    """One result, as it is written down."""
    report = item.report
    found = {"index": item.index, "key": item.key, "run_id": item.run_id, "input": dict(item.input)}
    if report is None:
        return {
            **found,
            "outcome": "error",
            "text": "",
            "data": None,
            "error": str(item.error),
            "usage": None,
            "from_before": False,
        }
    return {
        **found,
        "outcome": report.outcome,
        "text": report.text,
        "data": report.data,
        "error": "; ".join(filter(None, (report.error or report.incomplete, _lacks(report)))) or None,
        "usage": report.usage.to_dict(),
        "from_before": item.from_before,
    }


def _lacks(report: Report) -> str | None:
    """What a report went without, in words."""
    lacks = report.shortfall
    said = [
        f"{how}: {count}"
        for how, count in (
            ("calls that a person rejected", lacks.rejected),
            ("calls that nobody was there to approve (--yes or a rule allows them)", lacks.refused),
            ("children that were not started", lacks.not_started),
            ("children that failed", lacks.failed),
            ("children whose report is incomplete", lacks.incomplete),
        )
        if count
    ]
    return "; ".join(said) if said and report.outcome != "completed" else None


@contextmanager
def progress(size: int, *, quiet: bool) -> Generator[Callable[[int, int], None]]:
    """A bar where there is a screen; elsewhere nothing, the summary says it."""
    from retinue.view.paint import is_screen

    if quiet or not is_screen(sys.stderr):
        yield lambda done, failed: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size, failed="")

        def shown(done: int, failed: int) -> None:
            bar.update(task, completed=done, failed=f"{failed} failed" if failed else "")

        yield shown
