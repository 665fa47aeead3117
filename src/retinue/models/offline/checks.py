"""The checks of the code review, run over the lines of a file that were read.

`checklist` holds the patterns; here is what needs more than one: long functions, blocking calls in async
code, text built in loops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from retinue.models.offline.checklist import CHECKS, PYTHON, ChecklistItem, Focus, Severity
from retinue.models.offline.mask import comments, mask

LONG_FUNCTION = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewRemark:
    path: str
    line: int
    what: str
    mend: str
    severity: Severity
    focus: Focus
    code: str


def review(path: str, lines: dict[int, str], focus: str) -> list[ReviewRemark]:
    """What the checks find in the lines of a file that were read."""
    suffix = path.rsplit(".", 1)[-1].lower() if "." in path else ""
    first = min(lines, default=1)
    text = "\n".join(lines.get(number, "") for number in range(first, max(lines, default=0) + 1))
    sheet = _Sheet(
        path=path,
        suffix=suffix,
        first=first,
        raw=text.split("\n"),
        code=mask(text, suffix).split("\n"),
        comment=comments(text, suffix),
    )
    found = [remark for check in CHECKS for remark in _run(check, sheet)]
    if suffix in PYTHON:
        found += [*_long(sheet), *_blocking(sheet), *_piecewise(sheet)]
    return _once([remark for remark in found if focus in ("all", "", remark.focus)])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sheet:
    """A file to check, in its three forms."""

    path: str
    suffix: str
    first: int
    raw: list[str]
    code: list[str]
    comment: dict[int, str]

    def remark(self, index: int, what: str, mend: str, severity: Severity, focus: Focus) -> ReviewRemark:
        code = self.raw[index].strip()[:120] if index < len(self.raw) else ""
        line = self.first + index
        return ReviewRemark(
            path=self.path, line=line, what=what, mend=mend, severity=severity, focus=focus, code=code
        )


def _run(check: ChecklistItem, sheet: _Sheet) -> Iterator[ReviewRemark]:
    if check.languages and sheet.suffix not in check.languages:
        return
    pattern = re.compile(check.pattern)
    if check.where == "comment":
        rows = [sheet.comment.get(number, "") for number in range(1, len(sheet.raw) + 1)]
    else:
        rows = sheet.raw if check.where == "raw" else sheet.code
    for index, row in enumerate(rows):
        if not row.strip():
            continue
        if check.span > 1:
            found = pattern.match("\n".join(rows[index : index + check.span]))
        else:
            found = pattern.search(row)
        if found and not (check.unless and re.search(check.unless, sheet.raw[index])):
            yield sheet.remark(index, check.what, check.mend, check.severity, check.focus)


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _body(rows: list[str], index: int) -> Iterator[int]:
    """The rows of a block that begins here. Python alone: there the indent tells the end."""
    indent = _indent(rows[index])
    for later in range(index + 1, min(len(rows), index + 2000)):
        row = rows[later]
        if row.strip() and _indent(row) <= indent and not row.lstrip().startswith((")", "]")):
            return
        if row.strip():
            yield later


def _long(sheet: _Sheet) -> Iterator[ReviewRemark]:
    """Functions that are too long to take in at once."""
    for index, row in enumerate(sheet.code):
        match = re.match(r"[ \t]*(?:async +)?def +(\w+)", row)
        if match:
            length = max(_body(sheet.code, index), default=index) - index + 1
            if length > LONG_FUNCTION:
                said = f"`{match[1]}` has {length} lines"
                yield sheet.remark(index, said, "split it: it has more than one job", "low", "style")


_BLOCKING = re.compile(
    r"(?<![\w.])(?:time\.sleep|requests\.(?:get|post|put|delete)|subprocess\.(?:run|call|check_output)) *\("
)


def _blocking(sheet: _Sheet) -> Iterator[ReviewRemark]:
    """Calls in async functions that hold everyone up; not in functions defined inside them."""
    for index, row in enumerate(sheet.code):
        if not re.match(r"[ \t]*async +def +\w+", row):
            continue
        inner = 0
        for number in _body(sheet.code, index):
            here = sheet.code[number]
            if inner and _indent(here) <= inner:
                inner = 0
            if re.match(r"[ \t]*(?:async +)?def +\w+", here):
                inner = inner or _indent(here)
            elif not inner and _BLOCKING.search(here):
                mend = "use the async form, or `asyncio.to_thread`"
                yield sheet.remark(number, "blocks the event loop", mend, "medium", "performance")


def _piecewise(sheet: _Sheet) -> Iterator[ReviewRemark]:
    for index, row in enumerate(sheet.code):
        if not re.match(r"[ \t]*(?:for|while) +\S", row):
            continue
        for number in _body(sheet.code, index):
            if re.match(r"[ \t]*\w+ *\+= *(?:f?[\"']|str\()", sheet.code[number]):
                what = "text is put together piece by piece in a loop"
                mend = "collect the pieces in a list and join them once"
                yield sheet.remark(number, what, mend, "low", "performance")


_ORDER: dict[Severity, int] = {"high": 0, "medium": 1, "low": 2}


def _once(remarks: list[ReviewRemark]) -> list[ReviewRemark]:
    seen: dict[tuple[str, int, str], ReviewRemark] = {}
    for remark in remarks:
        seen.setdefault((remark.path, remark.line, remark.what), remark)
    return sorted(seen.values(), key=lambda one: (_ORDER[one.severity], one.path, one.line))


def names_of(focus: str) -> list[str]:
    """What is checked for under a focus, in a few words."""
    named: dict[str, str] = {check.what: check.focus for check in CHECKS}
    named |= {"blocks the event loop": "performance", "a very long function": "style"}
    return [what for what, belongs in named.items() if focus in ("all", "", belongs)]
