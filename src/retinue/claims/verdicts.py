"""One claim held against the texts of the sources it cites: supported, contradicted, not found, or
unchecked.

Called by `claims.report` and by the benchmark. By program alone: what it cannot decide stays `unchecked`,
so that a judge or a person may. Numbers, dates, names, negations, opposites and quotations are compared
one by one with the passage that fits the claim's words best; all that is left is how many of the words
stand there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from math import isclose

from retinue.claims.contrasts import answered, heads, negates, opposed
from retinue.claims.lists import listed
from retinue.claims.names import Name, names
from retinue.claims.passages import SourcePassage, SourceText, stems
from retinue.claims.quantities import Date, Quantity, dates, fits, fits_date, quantities
from retinue.claims.slots import other_words
from retinue.claims.words import TextWord, leaning, words
from retinue.quotations import any_quotations, stands_in
from retinue.types import ClaimDifference, Verdict

SUPPORTED = 0.6
"""Share of a claim's words, rare ones counting more, that must stand in the passage."""
ABSENT = 0.2
"""Below that share a source has nothing on the claim."""
TURNED = 0.35
"""Share from which on a negation or an opposite is looked for: they change no other word."""
MOST_WORK = 8_000_000
"""Steps for one report: some seconds. What would take more stays unchecked."""
LONGEST_CLAIM = 2_000
"""Characters of a sentence without its citations."""
MOST_NUMBERS = 40
"""Numbers of one sentence that are compared; what has more is a table, and stays unchecked."""
LONGEST_LABEL = 80
MUCH = 4
"""Words that a passage has of a claim, beside what it denies, from which on it would have said so too."""
ALIGNED = 0.5
"""Share from which on a passage is about the same thing, so that what differs contradicts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """The verdict on one claim, and the passage it was held against: text `which`, `start` to `end`."""

    verdict: Verdict
    score: float
    which: int = 0
    fit: float = 0.0
    """Share of the claim's words that the passage has, whatever differs."""
    beyond: bool = False
    """Whether it was left out because it would have taken too much work."""
    start: int = 0
    end: int = 0
    differences: tuple[ClaimDifference, ...] = ()


class Work:
    """How much may still be done for one report: places looked at and comparisons made, about.

    It is a bound for reports and pages that nobody wrote to be read; ordinary ones take a hundredth of it.
    """

    def __init__(self, left: int = MOST_WORK) -> None:
        self.left = left

    def take(self, much: int) -> bool:
        """Whether there is so much left; it is taken then."""
        if much > self.left:
            return False
        self.left -= much
        return True


@dataclass(slots=True)
class _Claim:
    text: str
    words: list[TextWord]
    stems: list[str] = field(default_factory=list[str])
    dates: list[Date] = field(default_factory=list[Date])
    numbers: list[Quantity] = field(default_factory=list[Quantity])

    @property
    def unspaced(self) -> bool:
        return any(word.text[0] >= "\u2e80" for word in self.words)


def hold(claim: str, texts: Sequence[SourceText], work: Work | None = None) -> Held:
    """Hold one claim, without its citation marks, against the texts of what it cites. The best counts."""
    work = work or Work()
    if len(claim) > LONGEST_CLAIM or not work.take(len(claim)):
        return BEYOND
    read = _read(claim)
    if not read.stems or not texts:
        return Held(verdict="unchecked", score=0.0)
    if len(read.numbers) + len(read.dates) > MOST_NUMBERS:
        return BEYOND
    found = [_against(read, text, which, work) for which, text in enumerate(texts)]
    best = _best(found, texts)
    left_out = best.verdict == "not_found" and any(held.beyond for held in found)
    return BEYOND if left_out else best


def _best(found: Sequence[Held], texts: Sequence[SourceText]) -> Held:
    """What several sources say together: one that supports is enough; else the one that fits best speaks, and
    what it lacks may stand in another."""
    supported = [held for held in found if held.verdict == "supported"]
    if supported:
        return max(supported, key=lambda held: held.score)
    best = max(found, key=lambda held: (held.fit, ORDER[held.verdict], -held.which))
    if len(found) == 1 or not best.differences:
        return best
    others = [held for held in found if held is not best and held.fit >= ABSENT]
    left = [
        one
        for one in best.differences
        if not any(_settles(held, texts[held.which], one, best.fit) for held in others)
    ]
    if len(left) == len(best.differences):
        return best
    if left:
        against = best.verdict == "contradicted" and any(one.source for one in left)
        return replace(best, differences=tuple(left), verdict="contradicted" if against else "not_found")
    return replace(best, differences=(), verdict="unchecked", score=best.fit)


def _settles(held: Held, text: SourceText, difference: ClaimDifference, fit: float) -> bool:
    """Whether another source has what the one that fits best lacks, and is about the same thing."""
    if difference.kind not in ("name", "quotation") and held.fit < 0.8 * fit:
        return False
    if difference.kind == "name" and not all(text.has(word.stem) for word in words(difference.claim)):
        return False
    return all((one.kind, one.claim) != (difference.kind, difference.claim) for one in held.differences)


ORDER: dict[Verdict, int] = {"supported": 3, "contradicted": 2, "unchecked": 1, "not_found": 0}
"""Of several sources the best verdict counts."""


BEYOND = Held(verdict="unchecked", score=0.0, beyond=True)


def _read(claim: str) -> _Claim:
    found = words(claim)
    days = dates(claim)
    numbers = quantities(claim, days)
    taken = {at for one in (*days, *numbers) for at in range(one.start, one.end)}
    plain_words = [word for word in found if word.start not in taken and not word.text.isdigit()]
    return _Claim(claim, found, stems(plain_words), days, numbers)


def _against(claim: _Claim, text: SourceText, which: int, work: Work) -> Held:
    if not work.take(text.places(claim.stems)):
        return replace(BEYOND, which=which)
    best = text.best(claim.stems)
    if not best:
        alone = not _foreign(claim, text)
        return Held(verdict="not_found" if alone and text.sentences else "unchecked", score=0.0, which=which)
    top = best[0]
    if not work.take(_comparisons(claim, text, best)):
        return replace(BEYOND, which=which)
    differences = tuple(_differences(claim, text, best))
    start, end = text.excerpt(top)
    score = top.coverage * (0.5 if differences else 1.0)
    verdict = _verdict(claim, text, top, differences)
    return Held(
        verdict=verdict,
        score=score,
        fit=top.coverage,
        which=which,
        start=start,
        end=end,
        differences=differences,
    )


def _comparisons(claim: _Claim, text: SourceText, best: list[SourcePassage]) -> int:
    """About how many things of a claim are compared with how many of its passages."""
    amounts = sum(len(text.amounts(passage, 2).numbers) for passage in best) if claim.numbers else 0
    found = sum(len(text.sentences[at].words) for one in best[:1] for at in range(one.first, one.last + 1))
    return 10 * len(claim.numbers) * amounts + len(claim.words) * found + 1_000 * len(best)


def _verdict(
    claim: _Claim, text: SourceText, top: SourcePassage, differences: tuple[ClaimDifference, ...]
) -> Verdict:
    if _foreign(claim, text):
        return "unchecked"
    if differences:
        against = any(difference.source for difference in differences)
        return "contradicted" if against and _aligned(claim, text, top, differences) else "not_found"
    if top.coverage >= SUPPORTED:
        return "unchecked" if _denies_otherwise(claim, text, top) else "supported"
    return "not_found" if top.coverage < ABSENT else "unchecked"


def _aligned(
    claim: _Claim, text: SourceText, top: SourcePassage, differences: tuple[ClaimDifference, ...]
) -> bool:
    """Whether the passage is about the same thing: what differs is left out of account."""
    differ = {word.stem for one in differences for word in words(one.claim)}
    rest = [word for word in claim.words if word.stem in differ and word.content]
    return _apart_from(rest, claim, text, top) >= ALIGNED


def _denies_otherwise(claim: _Claim, text: SourceText, top: SourcePassage) -> bool:
    """Whether the claim denies something that the passage has no word for: it may say so in others."""
    start, end = text.excerpt(top)
    window = words(text.text[start:end])
    said = {word.stem for word in window}
    return any(
        said.isdisjoint(denies) and not answered(held, text.text[start:end], window)
        for denies, held in heads(claim.text, claim.words)
    )


def _foreign(claim: _Claim, text: SourceText) -> bool:
    """Whether claim and source are in different languages, as far as that can be told."""
    here, there = leaning(claim.words), leaning(text.sample)
    return bool(here and there) and here != there


# ---- what differs


def _differences(claim: _Claim, text: SourceText, best: list[SourcePassage]) -> list[ClaimDifference]:
    near = [passage for passage in best if passage.coverage >= 0.7 * best[0].coverage]
    return [
        *_quotations(claim, text),
        *_numbers(claim, text, near),
        *_names(claim, text, near),
        *_in_slots(claim, text, near[0]),
        *_turned(claim, text, near[0]),
    ]


def _quotations(claim: _Claim, text: SourceText) -> list[ClaimDifference]:
    found: list[ClaimDifference] = []
    for quotation in any_quotations(claim.text)[:MOST_NUMBERS]:
        if not stands_in(quotation, [text.plain]) and not _quoted_freely(quotation, text):
            found.append(ClaimDifference(kind="quotation", claim=quotation, source=_like(quotation, text)))
    return found


def _quoted_freely(quotation: str, text: SourceText) -> bool:
    """Whether small words alone are left out or put in, or endings changed: never one word for another."""
    wanted = words(quotation)
    if len(wanted) < 3:
        return False
    passages = text.best(stems(wanted), 1)
    if not passages:
        return False
    here = [word.stem for word in wanted]
    there = [
        word for at in range(passages[0].first, passages[0].last + 1) for word in text.sentences[at].words
    ]
    match = SequenceMatcher(None, here, [word.stem for word in there], autojunk=False)
    codes = match.get_opcodes()
    inner = codes[codes[0][0] == "insert" : len(codes) - (codes[-1][0] == "insert")]
    changed = [
        word
        for kind, first, last, low, high in inner
        if kind != "equal"
        for word in (*wanted[first:last], *there[low:high])
    ]
    replaced = any(kind == "replace" for kind, *_ in inner)
    return not replaced and not any(word.content or negates(word) for word in changed)


def _like(quotation: str, text: SourceText) -> str:
    """The words of the source that come nearest to a quotation, if any come near."""
    wanted = words(quotation)
    passages = text.best(stems(wanted) or [word.stem for word in wanted], 1)
    if not passages or passages[0].alone < 0.5:
        return ""
    sentence = text.sentences[passages[0].at]
    match = SequenceMatcher(
        None, [word.stem for word in wanted], [word.stem for word in sentence.words], autojunk=False
    )
    blocks = [block for block in match.get_matching_blocks() if block.size]
    first, last = blocks[0].b - blocks[0].a, blocks[-1].b + blocks[-1].size
    taken = sentence.words[max(0, first) : max(last, first + len(wanted))]
    return text.text[sentence.start + taken[0].start : sentence.start + taken[-1].end] if taken else ""


def _numbers(claim: _Claim, text: SourceText, near: list[SourcePassage]) -> list[ClaimDifference]:
    if not claim.dates and not claim.numbers:
        return []
    around = [text.amounts(passage, 2) for passage in near]
    days = [day for one in around for day in one.dates]
    numbers = [number for one in around for number in one.numbers]
    close = text.amounts(near[0], 0)
    tight = [number for passage in near for number in text.amounts(passage, 0).everything]
    free = [other for other in close.numbers if not any(fits(said, other) for said in claim.numbers)]
    adds = any(word.text.casefold() in _TOTALS for word in claim.words)
    found: list[ClaimDifference] = []
    for day in claim.dates:
        if not any(fits_date(day, other) for other in days):
            other = next(
                (other for other in close.dates if not any(fits_date(said, other) for said in claim.dates)),
                None,
            )
            found.append(ClaimDifference(kind="date", claim=day.text, source=other.text if other else ""))
    years = [float(day.year) for day in days if day.year]
    for number in claim.numbers:
        there = tight if number.small else numbers
        if _stands(number, there) or (not number.dimension and number.value in years):
            continue
        if adds and _adds_up(number, close.numbers):
            continue
        instead = _instead(number, free)
        if number.spelled and not number.dimension and not instead:
            continue  # "the two of them": counted by whoever writes
        found.append(ClaimDifference(kind="number", claim=number.text, source=instead))
    return found


def _stands(number: Quantity, there: list[Quantity]) -> bool:
    """Whether a number stands in the source, and with it what it counts: not "type 3" for "type 2"."""
    fitting = [other for other in there if fits(number, other)]
    if not fitting:
        return False
    exact = [other for other in fitting if other.dimension == number.dimension]
    other_unit = [
        other
        for other in there
        if number.dimension and other.dimension not in ("", number.dimension) and other.bare == number.bare
    ]
    if not exact and other_unit:
        return False
    if number.before and not number.dimension:
        beside = [other for other in there if other.before == number.before]
        return not beside or any(fits(number, other) for other in beside)
    return True


_TOTALS = frozenset(listed("totals.txt"))


def _adds_up(number: Quantity, others: list[Quantity]) -> bool:
    """Whether a number is the sum of two of the passage, or of all that are of its kind."""
    values = [other.value for other in others if other.dimension == number.dimension][:MOST_NUMBERS]
    sums = (one + other for at, one in enumerate(values) for other in values[at + 1 :])
    return any(isclose(number.value, each) for each in (sum(values), *sums))


def _instead(number: Quantity, free: list[Quantity]) -> str:
    """The number of the passage that stands where the claim has another one; `free` are those it lacks."""
    alike = [other for other in free if other.dimension == number.dimension and other.year == number.year]
    if number.spelled and not number.dimension:
        alike = [other for other in alike if other.behind and other.behind == number.behind]
    near = [other for other in alike if other.behind == number.behind or other.before == number.before]
    return (near or alike)[0].text if alike else ""


def _names(claim: _Claim, text: SourceText, near: list[SourcePassage]) -> list[ClaimDifference]:
    found: list[ClaimDifference] = []
    around = {one for passage in near for one in text.stems_near(passage, 3)}
    top = near[0]
    others = _other_names(text, top, {word.stem for word in claim.words})
    for name in names(claim.text, claim.words):
        counted = name.words[1:] if name.begins and len(name.words) > 1 and not name.acronym else name.words
        missing = [word for word in counted if word.stem not in around and word.stem not in text.title]
        if not missing or _labels(claim.text, name) or _stands_for(claim.text, name):
            continue
        absent = any(not text.has(word.stem) for word in missing)
        if name.sure and absent:
            instead = others[:1] if len(missing) == len(counted) else _instead_of(name, missing, text, top)
            whole = len(missing) == len(counted)
            if instead or (whole and _apart_from(missing, claim, text, top) >= ALIGNED):
                found.append(
                    ClaimDifference(kind="name", claim=name.text, source=instead[0] if instead else "")
                )
        elif others and top.alone >= 0.75 and (name.sure or others[0] == _subject(text, top)):
            found.append(ClaimDifference(kind="name", claim=name.text, source=others[0]))
    return found


def _labels(sentence: str, name: Name) -> bool:
    """Whether a name stands in the few words before a colon that only say what the sentence is about."""
    label = sentence[: sentence.find(":")] if ":" in sentence[:LONGEST_LABEL] else ""
    return name.begins and name.words[-1].end <= len(label)


def _stands_for(sentence: str, name: Name) -> bool:
    """Whether it is the short form, in brackets, of the words before it."""
    first = name.words[0]
    if len(name.words) > 1 or sentence[max(0, first.start - 1) : first.start] != "(":
        return False
    letters = [char.casefold() for char in first.text if char.isupper()]
    before = [word.text[0].casefold() for word in words(sentence[: first.start])]
    return len(letters) > 1 and letters == before[-len(letters) :]


def _instead_of(name: Name, missing: list[TextWord], text: SourceText, top: SourcePassage) -> list[str]:
    """Names of the passage that have a part of this one, and something else for the rest."""
    lacks = {word.stem for word in missing}
    kept = {word.stem for word in name.words} - lacks
    passage = (other for at in range(top.first, top.last + 1) for other in _names_in(text, at))
    return [
        other.text
        for other in passage
        if (have := {word.stem for word in other.words}) & kept
        and have - kept
        and len(have) == len(name.words)
    ]


def _in_slots(claim: _Claim, text: SourceText, top: SourcePassage) -> list[ClaimDifference]:
    """The same for scripts that have no capital letters."""
    if not claim.unspaced:
        return []
    found: list[ClaimDifference] = []
    for at in range(top.first, top.last + 1):
        sentence = text.text[text.sentences[at].start : text.sentences[at].end]
        found += [
            ClaimDifference(kind="name", claim=one, source=other)
            for one, other in other_words(claim.text, sentence)
            if one not in text.text
        ]
    return found


def _apart_from(missing: list[TextWord], claim: _Claim, text: SourceText, top: SourcePassage) -> float:
    """How much of the rest of a claim its passage has."""
    total = sum(map(text.weight, set(claim.stems)))
    absent = {word.stem for word in missing} & set(claim.stems) - text.stems_near(top, 0)
    lost = sum(map(text.weight, absent))
    return top.coverage * total / max(total - lost, 1e-9)


def _other_names(text: SourceText, top: SourcePassage, said: set[str]) -> list[str]:
    """Names in the passage that the claim does not have."""
    return [
        name.text
        for at in (top.at, *(other for other in range(top.first, top.last + 1) if other != top.at))
        for name in _names_in(text, at)
        if name.sure and not any(word.stem in said for word in name.words)
    ]


def _subject(text: SourceText, top: SourcePassage) -> str:
    first = next(iter(_names_in(text, top.at)), None)
    return first.text if first is not None and first.begins else ""


def _names_in(text: SourceText, at: int) -> list[Name]:
    sentence = text.sentences[at]
    return names(text.text[sentence.start : sentence.end], sentence.words)


def _turned(claim: _Claim, text: SourceText, top: SourcePassage) -> list[ClaimDifference]:
    """A negation on one side alone, or an opposite."""
    if top.coverage < TURNED:
        return []
    start, end = text.excerpt(top)
    own = text.text[start:end]
    window = words(own)
    found = [
        ClaimDifference(kind="opposite", claim=one.text, source=other.text)
        for one, other in opposed(claim.words, window)
    ]
    one = _denied_here_alone(claim, own, window) or _denied_there_alone(claim, text, top)
    return [*found, one] if one else found


def _denied_here_alone(claim: _Claim, own: str, window: Sequence[TextWord]) -> ClaimDifference | None:
    """The claim says "not" where its source does not."""
    there = {word.stem for word in window}
    content = frozenset(word.stem for word in claim.words if word.content)
    for denies, held in heads(claim.text, claim.words):
        if answered(held, own, window, content - held):
            continue
        common = content & there - held
        if not there.isdisjoint(denies) or there.isdisjoint(held) or len(common) >= MUCH:
            word = next(word for word in claim.words if word.stem in denies)
            other = next((other for other in window if other.stem in denies), None)
            return ClaimDifference(
                kind="negation", claim=f"not {word.text}", source=other.text if other else ""
            )
    return None


def _denied_there_alone(claim: _Claim, text: SourceText, top: SourcePassage) -> ClaimDifference | None:
    """The source says "not" where the claim does not, in the very sentence that fits it."""
    if top.alone < SUPPORTED:
        return None
    sentence = text.sentences[top.at]
    own = text.text[sentence.start : sentence.end]
    claimed = {word.stem for word in claim.words if word.content}
    there = list(heads(own, sentence.words))
    if len(there) <= sum(map(negates, claim.words)):
        return None  # both deny something; what, they may say in other words
    for _, held in there:
        one = next((word.stem for word in claim.words if word.stem in held & claimed), None)
        if one and not answered(held, claim.text, claim.words):
            return ClaimDifference(
                kind="negation", claim=_said(claim.words, one), source=f"not {_said(sentence.words, one)}"
            )
    return None


def _said(found: Sequence[TextWord], one: str) -> str:
    return next((word.text for word in found if word.stem == one), one)
