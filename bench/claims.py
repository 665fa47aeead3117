"""How well claims are held against their sources by program alone, beside plain word overlap.

    python bench/claims.py [--data FILE.jsonl] [--halves] [--show KIND]

(a) Real systems' claims with the evidence they cited and an expert's verdict (`--data`, ExpertQA's form:
claim, evidence, support): the area under the curve of the support score, and how many supported claims
are called contradicted or not found. (b) Mutations made from supported claims: a digit, a unit, a date, a
name, a negation, an opposite, a quotation, another source. Of those that share at least 60 % of their
content words with the passage: how many are caught. (c) Time per claim.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from retinue.claims.lists import lines_of
from retinue.claims.names import names
from retinue.claims.passages import SourceText, sentences, stems
from retinue.claims.quantities import dates, quantities
from retinue.claims.verdicts import Held, hold
from retinue.claims.words import words

_MARKS = re.compile(r"\s*\[\d+\]|\*\*")
CAUGHT = ("contradicted", "not_found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    claim: str
    evidence: tuple[str, ...]
    support: str
    open: bool

    @property
    def texts(self) -> list[SourceText]:
        return [SourceText(part) for part in self.evidence]


def rows(path: Path) -> list[Row]:
    """Claims whose evidence has a text; an address alone can't be held against anything."""
    found: list[Row] = []
    lines = path.read_text().splitlines()
    mixed = list(range(len(lines)))
    random.Random(1).shuffle(mixed)
    first = set(mixed[::2])
    for at, line in enumerate(lines):
        raw = json.loads(line)
        parts = [part.partition("\n\n")[2].strip() for part in raw["evidence"]]
        kept = tuple(part for part in parts if len(part) > 80)
        if kept:
            found.append(
                Row(
                    claim=_MARKS.sub("", raw["claim"]).strip(),
                    evidence=kept,
                    support=raw["support"],
                    open=at in first,
                )
            )
    return found


def halves(every: list[Row]) -> tuple[list[Row], list[Row]]:
    """The half whose single claims may be looked at while the program is changed, and the other one."""
    return [row for row in every if row.open], [row for row in every if not row.open]


def overlap(row: Row) -> float:
    """Share of the claim's content words in its evidence: the baseline."""
    claim = set(stems(words(row.claim)))
    have = {word.stem for part in row.evidence for word in words(part)}
    return len(claim & have) / max(1, len(claim))


def in_passage(claim: str, texts: list[SourceText]) -> float:
    """Share of the claim's content words in the one passage that has most of them."""
    wanted = set(stems(words(claim)))
    best = 0.0
    for text in texts:
        for passage in text.best(wanted, 3):
            have = {
                word.stem
                for at in range(passage.first, passage.last + 1)
                for word in text.sentences[at].words
            }
            best = max(best, len(wanted & have) / max(1, len(wanted)))
    return best


def area(scored: list[tuple[float, bool]]) -> float:
    """Area under the curve: how often a supported claim is scored above an unsupported one."""
    good = [score for score, yes in scored if yes]
    bad = [score for score, yes in scored if not yes]
    wins = sum((one > other) + 0.5 * (one == other) for one in good for other in bad)
    return wins / (len(good) * len(bad))


# ---- mutations


def digit(claim: str, rnd: random.Random) -> str | None:
    found = [one for one in quantities(claim, dates(claim)) if re.search(r"\d", one.text)]
    if not found:
        return None
    one = rnd.choice(found)
    at = rnd.choice([i for i in range(one.start, one.end) if claim[i].isdigit()])
    new = rnd.choice([d for d in "123456789" if d != claim[at]])
    return claim[:at] + new + claim[at + 1 :]


_OTHER_UNIT = dict(
    pair.split("=")
    for pair in [
        "m=km",
        "km=m",
        "metres=kilometres",
        "meters=kilometers",
        "kilometers=miles",
        "miles=kilometers",
        "feet=metres",
        "kg=g",
        "mg=g",
        "g=kg",
        "percent=million",
        "%=million",
        "years=months",
        "year=month",
        "months=years",
        "days=weeks",
        "hours=minutes",
        "minutes=hours",
        "weeks=days",
        "million=billion",
        "billion=million",
        "inches=feet",
        "°C=°F",
        "°F=°C",
        "thousand=million",
        "mm=cm",
        "cm=mm",
        "seconds=minutes",
        "MHz=GHz",
        "GB=MB",
        "nm=mm",
    ]
)
_UNIT = "|".join(map(re.escape, sorted(_OTHER_UNIT, key=len, reverse=True)))


def unit(claim: str, rnd: random.Random) -> str | None:
    found = list(re.finditer(rf"(?<=\d)(\s?)({_UNIT})(?!\w)", claim))
    if not found:
        return None
    match = rnd.choice(found)
    new = _OTHER_UNIT[match[2]]
    return claim[: match.start(2)] + (f" {new}" if match[2] == "%" else new) + claim[match.end(2) :]


_MONTHS = [line.split()[0].capitalize() for line in lines_of("months.txt")]


def date(claim: str, rnd: random.Random) -> str | None:
    years = list(re.finditer(r"\b(1[5-9]\d\d|20[0-4]\d)\b", claim))
    months = list(re.finditer(r"\b(" + "|".join(_MONTHS) + r")\b(?=\s+\d|,)", claim))
    if not years and not months:
        return None
    match = rnd.choice(years + months)
    if match[0].isdigit():
        new = str(int(match[0]) + rnd.choice([-11, -3, -2, -1, 1, 2, 4, 10]))
    else:
        new = rnd.choice([month for month in _MONTHS if month != match[0]])
    return claim[: match.start()] + new + claim[match.end() :]


class Swap:
    """Another name in the place of one: from the same evidence, or from another claim's."""

    def __init__(self, pool: list[str]) -> None:
        self.pool = pool

    def __call__(self, claim: str, rnd: random.Random) -> str | None:
        found = [name for name in names(claim, words(claim)) if name.sure]
        if not found:
            return None
        name = rnd.choice(found)
        others = [
            other for other in self.pool if not set(other.casefold().split()) & set(claim.casefold().split())
        ]
        return claim[: name.words[0].start] + rnd.choice(others) + claim[name.words[-1].end :]


_BE = re.compile(r"\b(is|are|was|were|can|could|will|would|should|may|must|has been|have been)\b(?! not)")


def negation(claim: str, rnd: random.Random) -> str | None:
    if " not " in claim:
        return claim.replace(" not ", " ", 1)
    found = list(_BE.finditer(claim))
    if not found:
        return None
    match = rnd.choice(found)
    return claim[: match.end()] + " not" + claim[match.end() :]


def opposite(claim: str, rnd: random.Random) -> str | None:
    pairs = [line.split() for line in lines_of("opposites.txt")]
    table = {one: other for pair in pairs for one, other in (pair, pair[::-1])}
    found = [word for word in words(claim) if word.text in table]
    if not found:
        return None
    word = rnd.choice(found)
    return claim[: word.start] + table[word.text] + claim[word.end :]


def quotation(row: Row, rnd: random.Random) -> tuple[str, str] | None:
    """A true quotation of the evidence inside a claim, and the same with one word changed."""
    part = rnd.choice(row.evidence)
    spans = [span for span in sentences(part) if 5 <= len(part[span[0] : span[1]].split()) <= 40]
    if not spans:
        return None
    start, end = rnd.choice(spans)
    said = part[start:end].strip().strip('".“”')
    if '"' in said or "“" in said or "[" in said:
        return None
    length = rnd.randint(4, max(4, min(14, len(said.split()))))
    said = " ".join(said.split()[:length])
    changed = said.split()
    at = rnd.choice([i for i, word in enumerate(changed) if len(word) > 2] or [0])
    changed[at] = rnd.choice(["seldom", "entirely", "purple", "council", "under"])
    return f"The source says “{said}” about this.", f"The source says “{' '.join(changed)}” about this."


Change = Callable[[str, random.Random], str | None]


def real(every: list[Row], show: str) -> list[Row]:
    """(a) and (c). Returns the supported claims that mutations are made from."""
    began = time.process_time()
    held = [(row, hold(row.claim, row.texts)) for row in every]
    spent = (time.process_time() - began) / len(every) * 1000
    decided = [(row, one) for row, one in held if row.support != "Partial"]
    ours = area([(one.score, row.support == "Complete") for row, one in decided])
    plain = area([(overlap(row), row.support == "Complete") for row, _ in decided])
    print(f"{len(every)} claims with a text to hold them against; {spent:.2f} ms of CPU each")
    print(f"area under the curve: {ours:.3f}; plain word overlap: {plain:.3f}")
    yes, no = ([pair for pair in held if pair[0].support == kind] for kind in ("Complete", "Incomplete"))
    for verdict in ("supported", "contradicted", "not_found", "unchecked"):
        share = [sum(one.verdict == verdict for _, one in part) / len(part) for part in (yes, no)]
        print(f"  {verdict:13} {share[0]:6.1%} of the supported, {share[1]:6.1%} of the unsupported")
    base = [(row, one) for row, one in yes if in_passage(row.claim, row.texts) >= 0.6]
    wrong = [(row, one) for row, one in base if one.verdict in CAUGHT]
    share = len(wrong) / len(base)
    print(f"supported, with 60 % of their words in one passage: {len(base)}; false alarms {share:.1%}")
    if show == "false":
        for row, one in wrong:
            print("  ", one.verdict, one.differences, "|", row.claim, "|", row.evidence[one.which])
    return [row for row, _ in base]


def mutations(base: list[Row], every: list[Row], rnd: random.Random, show: str) -> None:
    """(b)."""
    pool = [name.text for row in every for name in names(row.claim, words(row.claim)) if name.sure]
    kinds: dict[str, Change] = {
        "number": digit,
        "unit": unit,
        "date": date,
        "name": Swap(pool),
        "negation": negation,
        "opposite": opposite,
    }
    for kind, change in kinds.items():
        tried = list(_mutated(base, change, rnd, 3))
        _print_caught(kind, [one for *_, one in tried])
        for row, mutated, one in tried if show == kind else ():
            if one.verdict not in CAUGHT:
                print("     ", one.verdict, "|", mutated, "|", row.claim, "|", row.evidence[one.which])
    pairs = [(row, pair) for row in every if (pair := quotation(row, rnd))]
    _print_caught("quotation", [hold(false, row.texts) for row, (_, false) in pairs])
    true = [hold(true, row.texts) for row, (true, _) in pairs]
    wrong = sum(any(each.kind == "quotation" for each in one.differences) for one in true)
    print(f"             {wrong} of {len(true)} true quotations called wrong")
    _print_caught("source", [hold(row.claim, rnd.choice(every).texts) for row in base])


def _mutated(
    base: list[Row], change: Change, rnd: random.Random, rounds: int
) -> Iterator[tuple[Row, str, Held]]:
    for row in base:
        for _ in range(rounds):
            mutated = change(row.claim, rnd)
            if mutated and mutated != row.claim:
                yield row, mutated, hold(mutated, row.texts)


def _print_caught(kind: str, tried: list[Held]) -> None:
    caught = sum(one.verdict in CAUGHT for one in tried)
    missed = sum(one.verdict == "supported" for one in tried)
    share = caught / max(1, len(tried))
    print(f"  {kind:10} {caught} of {len(tried)} caught ({share:.1%}), {missed} called supported")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    beside = Path(__file__).parent.parent.parent / "shared" / "claims" / "expertqa_val.jsonl"
    parser.add_argument("--data", type=Path, default=beside)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--halves",
        action="store_true",
        help="print both halves too; single claims of the second were not looked at",
    )
    parser.add_argument("--show", default="", help="false, or a kind of mutation: print what went wrong")
    given = parser.parse_args()
    if not given.data.exists():
        sys.exit(f"{given.data} is not there; name a file of claims with --data")
    every = rows(given.data)
    mutations(real(every, given.show), every, random.Random(given.seed), given.show)
    for name, half in zip(("first", "second"), halves(every), strict=True) if given.halves else ():
        print(f"\nthe {name} half")
        mutations(real(half, ""), half, random.Random(given.seed), "")


if __name__ == "__main__":
    main()
