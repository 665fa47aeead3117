"""A sentence about lines of a file, and a snippet that is given as theirs, held against these lines.

Called by `claims.report`. Code says things in its own words, so what a sentence has in common with it are the
names and values it gives: a piece of code in backquotes, a number. A text for people is read as a page is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from retinue.claims.passages import SourceText, stems
from retinue.claims.quantities import Quantity, dates, fits, quantities
from retinue.claims.verdicts import ABSENT, SUPPORTED, Held, Work, hold
from retinue.claims.words import words
from retinue.types import ClaimDifference, Verdict

AROUND = 3
"""Lines on both sides of those that are cited: people cite the head of what they mean, or its comment."""
ADRIFT = 10
"""Lines that a place may be off before it is another one."""
MOST_LINES = 2_000
"""Lines of a file around a place that are looked at."""
LONGEST_LINE = 400
"""Characters of a line that are compared with those of another."""
NEAR = 0.6
"""How alike two lines are, at least, if one may stand for the other."""
_PROSE = frozenset(["md", "markdown", "rst", "txt", "adoc", "org", "tex", "html", "htm"])
_QUOTED = re.compile(r"``([^`\n]+)``|``|`([^`\n]+)`")  # two alone: what stood between was a citation
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBERED = re.compile(r"^\s*L?\d{1,6}\s?(?:[:|│→]|\t)\s?")
_GAP = re.compile(r"^\W*(?:\.\.\.|…)\W*$")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)_(?=\d)")
_SCALES = (1.0, 60.0, 3600.0, 24.0, 86400.0, 1000.0, 1e6, 1e9, 1024.0, 1024.0**2, 100.0)
"""By which the same amount is written in other units, or as a share."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines `first` to `last` of a file's `text`, counted from 1."""

    path: str
    text: str
    first: int
    last: int


def hold_lines(claim: str, cited: Lines, work: Work, is_file: Callable[[str], bool]) -> Held:
    """A sentence held against the lines that it cites. `is_file`: whether a piece in backquotes names a file:
    no line has to say what its file is called."""
    rows = cited.text.split("\n")
    if not work.take(len(claim) + min(len(rows), MOST_LINES)) or cited.first > len(rows):
        return Held(verdict="unchecked", score=0.0)
    start, end = _span(rows, cited.first, cited.last, 0)
    wide = _span(rows, cited.first, cited.last, AROUND)
    if _for_people(cited.path):
        return _as_prose(claim, cited.text, wide, work)
    window = cited.text[wide[0] : wide[1]]
    given = [piece for piece in quoted_code(claim) if not is_file(piece)]
    differences = (*_pieces(given, rows, cited), *_values(claim, cited.text[start:end], window))
    score = _share(claim, window)
    verdict = _verdict(claim, given, window, differences, score)
    return Held(
        verdict=verdict,
        score=score * (0.5 if differences else 1.0),
        start=start,
        end=end,
        differences=differences,
    )


def _for_people(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].casefold() in _PROSE if "." in name else name.isupper()


def _span(rows: Sequence[str], first: int, last: int, around: int) -> tuple[int, int]:
    """Where lines begin and end in their text."""
    first, last = max(1, first - around), min(len(rows), last + around)
    start = sum(len(row) + 1 for row in rows[: first - 1])
    return start, start + sum(len(row) + 1 for row in rows[first - 1 : last]) - 1


def _as_prose(claim: str, text: str, span: tuple[int, int], work: Work) -> Held:
    held = hold(claim, [SourceText(text[span[0] : span[1]])], work)
    if held.end:
        return _moved(held, span[0])
    return _moved(held, span[0], span[1] - span[0])


def _moved(held: Held, by: int, end: int | None = None) -> Held:
    return replace(held, start=held.start + by, end=(held.end if end is None else end) + by)


# ---- what a sentence gives of the code


def quoted_code(claim: str) -> list[str]:
    """The pieces of code that a sentence names."""
    found = (match[1] or match[2] or "" for match in _QUOTED.finditer(claim))
    return list(dict.fromkeys(piece.strip() for piece in found if re.search(r"\w\w", piece)))


def _compact(text: str) -> str:
    return "".join(text.split())


def _bare(piece: str) -> str:
    """A piece of code as it stands wherever it is used: `load()` is `load`, `Class.load` ends in `load`."""
    return _compact(piece.removesuffix("()").removesuffix("(…)").removesuffix("(...)"))


def _in(piece: str, text: str) -> bool:
    bare = _bare(piece)
    return bool(bare) and (bare in text or bare.rpartition(".")[2] in text)


def _pieces(given: Sequence[str], rows: Sequence[str], cited: Lines) -> list[ClaimDifference]:
    """Pieces that stand elsewhere in the file, or nowhere, where none stands in the cited lines."""
    near = _compact("".join(rows[max(0, cited.first - 1 - ADRIFT) : cited.last + ADRIFT]))
    if not given or any(_in(piece, near) for piece in given):
        return []
    first = max(0, cited.first - MOST_LINES // 2)
    found: list[ClaimDifference] = []
    for piece in given:
        where = (
            first + at
            for at, row in enumerate(rows[first : first + MOST_LINES], 1)
            if _in(piece, _compact(row))
        )
        line = next(where, None)
        found.append(ClaimDifference(kind="code", claim=piece, source=f"line {line}" if line else ""))
    return found


def _numbers_of(text: str) -> list[Quantity]:
    text = _BETWEEN_DIGITS.sub("", text)
    return [one for one in quantities(text, []) if not one.spelled]


def _values(claim: str, own: str, window: str) -> list[ClaimDifference]:
    """Numbers that the cited lines have otherwise."""
    said = _QUOTED.sub(" ", claim)
    wanted = [one for one in quantities(said, dates(said)) if not one.spelled and not one.year]
    there, own_numbers = _numbers_of(window), _numbers_of(own)
    found: list[ClaimDifference] = []
    for number in wanted:
        if any(fits(number, other) or _scaled(number, other) for other in there):
            continue
        free = [other for other in own_numbers if not any(fits(one, other) for one in wanted)]
        found.append(ClaimDifference(kind="number", claim=number.text, source=free[0].text if free else ""))
    return found


def _scaled(number: Quantity, other: Quantity) -> bool:
    """Whether two numbers may be one amount in other units."""
    if not number.bare or not other.bare:
        return False
    share = max(number.bare, other.bare) / min(number.bare, other.bare)
    return any(abs(share - scale) < 1e-6 * scale for scale in _SCALES)


def _share(claim: str, window: str) -> float:
    """Share of the sentence's words that stand in the code, names there taken apart."""
    wanted = set(stems(words(_CAMEL.sub(" ", _QUOTED.sub(" ", claim)))))
    have = {word.stem for word in words(_CAMEL.sub(" ", window))}
    return len(wanted & have) / len(wanted) if wanted else 0.0


def _verdict(
    claim: str, given: Sequence[str], window: str, differences: Sequence[ClaimDifference], share: float
) -> Verdict:
    close = _compact(window)
    named = sum(_in(piece, close) for piece in given)
    if any(one.kind == "code" for one in differences):
        return "not_found"
    if differences:
        about = named > 0 or share >= ABSENT
        return "contradicted" if about and any(one.source for one in differences) else "unchecked"
    has_numbers = any(not one.spelled for one in quantities(_QUOTED.sub(" ", claim), []))
    held = (given and named == len(given)) or (has_numbers and (named or share >= ABSENT))
    return "supported" if held or share >= SUPPORTED else "unchecked"


# ---- snippets


def hold_snippet(body: str, cited: Lines, work: Work, *, given: bool) -> Held:
    """A block of code that stands under a place. `given`: it is said to be what stands there; else it may as
    well be what should, and accuses nobody."""
    if not work.take(len(body) + len(cited.text)):
        return Held(verdict="unchecked", score=0.0)
    rows = _Rows(cited.text.split("\n"))
    wanted = _Rows([line for line in body.split("\n") if _row(line) and not _GAP.match(line)])
    if not wanted.lines or len(wanted.lines) > MOST_LINES:
        return Held(verdict="unchecked", score=0.0)
    last = max(cited.last, cited.first + len(wanted.lines) - 1)
    start, end = _span(rows.lines, cited.first, last, 0)
    near = rows.part(cited.first - 1 - ADRIFT, cited.last + len(wanted.lines) + ADRIFT)
    if _in_order(wanted, near):
        return Held(verdict="supported", score=1.0, start=start, end=end)
    if not given:
        return Held(verdict="unchecked", score=0.0, start=start, end=end)
    difference, score = _unlike(wanted, near, rows, work)
    verdict: Verdict = "contradicted" if score >= 0.5 and difference.source else "not_found"
    return Held(verdict=verdict, score=0.5 * score, start=start, end=end, differences=(difference,))


def _row(line: str) -> str:
    return _compact(_NUMBERED.sub("", line))


class _Rows:
    """Lines, and each as it is compared: made once, since a line may be as long as a file."""

    def __init__(self, lines: Sequence[str], bare: Sequence[str] | None = None) -> None:
        self.lines = lines
        self.bare = [_row(line) for line in lines] if bare is None else bare

    def part(self, first: int, last: int) -> _Rows:
        first = max(0, first)
        return _Rows(self.lines[first:last], self.bare[first:last])


def _in_order(wanted: _Rows, there: _Rows) -> bool:
    rest = iter(there.bare)
    return all(any(line == other for other in rest) for line in wanted.bare)


def _unlike(wanted: _Rows, there: _Rows, every: _Rows, work: Work) -> tuple[ClaimDifference, float]:
    """The first line that is not there, and what is there instead; and how many of them are there."""
    if _in_order(wanted, every):
        line = every.bare.index(wanted.bare[0]) + 1
        return ClaimDifference(kind="code", claim=wanted.lines[0].strip()[:200], source=f"line {line}"), 0.0
    have = frozenset(there.bare)
    score = sum(line in have for line in wanted.bare) / len(wanted.bare)
    absent = next((at for at, line in enumerate(wanted.bare) if line not in have), 0)
    like, likeness = _most_like(wanted.bare[absent], there, work)
    near = likeness >= NEAR
    score = max(score, 0.5 if near and len(wanted.bare) == 1 else 0.0)
    instead = like.strip()[:200] if near else ""
    return ClaimDifference(kind="code", claim=wanted.lines[absent].strip()[:200], source=instead), score


def _most_like(bare: str, there: _Rows, work: Work) -> tuple[str, float]:
    """The line that is most like this one, of those that can be compared with what work is left."""
    bare = bare[:LONGEST_LINE]
    compared = SequenceMatcher(None, "", bare, autojunk=False)
    best, likeness = "", 0.0
    for line, whole in zip(there.lines, there.bare, strict=True):
        other = whole[:LONGEST_LINE]
        compared.set_seq1(other)
        if compared.real_quick_ratio() < NEAR:
            continue
        if not work.take(len(bare) * len(other)):
            break
        if (ratio := compared.ratio()) > likeness:
            best, likeness = line, ratio
    return best, likeness
