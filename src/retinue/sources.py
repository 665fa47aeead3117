"""True sources: what a report cites and quotes, held against what was really fetched and read.

`loop` calls `check` on the last answer of a run. Pure functions over text: nothing is fetched here, and a
report is never changed. What cannot be checked is not accused; what is wrong is named, with a reason.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from retinue.claims.fences import code_blocks, without_blocks
from retinue.claims.places import ReadFiles, places, shown
from retinue.claims.report import NO_CLAIMS, Claims, claims_of
from retinue.quotations import plain, quotations, stands_in
from retinue.types import Claim, Source
from retinue.web.urls import key

ProblemKind = Literal[
    "never_fetched", "never_read", "line_not_read", "line_beyond_end", "quotation_not_found", "contradicted"
]
_OF_SOURCES: tuple[ProblemKind, ...] = ("never_fetched", "never_read", "line_not_read", "line_beyond_end")
Texts = Callable[[Source], str | None] | Mapping[str, str]
"""The whole text of a source, or None if it is gone. A mapping has URLs and paths as its keys."""


log = logging.getLogger("retinue")
_CODE = re.compile(r"`[^`\n]*`")
_URL = re.compile(r"https?://[^\s<>\"`\[\]{}|\\^“”«»。，、；：）」]+", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceProblem:
    """`cited` is the citation or quotation as it stands in the report, `note` says what is wrong with it."""

    kind: ProblemKind
    cited: str
    note: str

    @property
    def text(self) -> str:
        """It in a line, as a report has it."""
        return f"{self.cited}: {self.note}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """`text_sources` are the sources that the text cites, in its order; those never seen are unverified."""

    text_sources: tuple[Source, ...]
    problems: tuple[SourceProblem, ...]
    claims: Claims = NO_CLAIMS

    @property
    def of_sources(self) -> int:
        """How many of the problems, the first, are that a cited source is not verified."""
        return sum(problem.kind in _OF_SOURCES for problem in self.problems)


def check(
    text: str,
    sources: Sequence[Source],
    texts: Texts,
    *,
    known: Iterable[str] = (),
    unreadable: Iterable[str] = (),
    strict: bool = False,
) -> Checked:
    """Hold a report against its sources. `known` are other texts it may quote from, such as its task.

    `unreadable` are addresses that were asked for in vain. A report may name them: nobody made them up.
    `strict`: what it states without a source counts also where nothing was fetched or read at all.
    """
    look_up = _remembered(texts if callable(texts) else _from_mapping(texts))
    blocks = code_blocks(text)
    prose = without_blocks(text, blocks)
    cited: list[Source] = []
    problems: list[SourceProblem] = []
    urls, rest = _urls(prose)
    _check_urls(urls, sources, frozenset(map(key, unreadable)), cited, problems)
    _check_paths(rest, sources, look_up, cited, problems)
    if sources or cited:  # words of nobody's page or file are nobody's to hold against
        _check_quotations(prose, sources, look_up, known, problems)
    try:
        claims = claims_of(prose, sources, look_up, blocks) if sources or strict else NO_CLAIMS
    except Exception as error:  # a report is worth more than what can be said about it
        log.warning("the claims of a report could not be checked: %r", error)
        claims = Claims(fault=type(error).__name__)
    named = {problem.cited for problem in problems}
    problems += [
        _against(claim)
        for claim in claims.claims
        if claim.verdict == "contradicted"
        and not any(_quoted(one.claim) in named for one in claim.differences)
    ]
    return Checked(text_sources=tuple(cited), problems=tuple(problems), claims=claims)


def _quoted(text: str) -> str:
    said = " ".join(text.split())
    return f"“{said if len(said) <= 200 else said[:200] + '…'}”"


def _against(claim: Claim) -> SourceProblem:
    """What a claim says and its source does not, in words for people and models."""
    parts = [
        f"{one.source!r}, not {one.claim!r}" if one.source else f"nothing of {one.claim!r}"
        for one in claim.differences
    ]
    return SourceProblem(
        kind="contradicted", cited=_quoted(claim.text), note=f"{claim.source} says {'; '.join(parts)}"
    )


def with_judged(checked: Checked, claims: Claims) -> Checked:
    """What was found, with claims that a judge has looked at: what it calls contradicted is a problem too."""
    problems = [
        SourceProblem(
            kind="contradicted",
            cited=_quoted(claim.text),
            note=f"{claim.source} says otherwise: {_quoted(claim.passage)} (judged by {claim.judged})",
        )
        for claim in claims.claims
        if claim.judged and claim.verdict == "contradicted"
    ]
    return replace(checked, claims=claims, problems=(*checked.problems, *problems))


def _from_mapping(texts: Mapping[str, str]) -> Callable[[Source], str | None]:
    def look_up(source: Source) -> str | None:
        names = (source.url, source.path, source.saved_as)
        return next((texts[name] for name in names if name is not None and name in texts), None)

    return look_up


def _remembered(look_up: Callable[[Source], str | None]) -> Callable[[Source], str | None]:
    found: dict[tuple[str | None, str | None, str | None], str | None] = {}

    def remember(source: Source) -> str | None:
        name = (source.url, source.path, source.sha256)
        if name not in found:
            found[name] = look_up(source)
        return found[name]

    return remember


# ---- cited pages


def _urls(prose: str) -> tuple[list[str], str]:
    """The cited URLs, and the text with all URLs blanked. One among other code is no citation."""
    found: dict[str, None] = {}
    code = [match.span() for match in _CODE.finditer(prose)]
    blanked: list[str] = []
    at = 0
    inside = iter(code)
    span = next(inside, None)
    for match in _URL.finditer(prose):
        url = trimmed(match[0])
        end = match.start() + len(url)
        blanked += (prose[at : match.start()], " " * len(url))
        at = end
        while span is not None and span[1] <= match.start():
            span = next(inside, None)
        in_code = span is not None and span[0] < match.start()
        whole = span is not None and span[0] + 1 == match.start() and span[1] - 1 == end
        if len(url) > len("https://") and (not in_code or whole):
            found.setdefault(url)
    return list(found), "".join((*blanked, prose[at:]))


def trimmed(url: str) -> str:
    """A URL from running text, without the punctuation that follows it."""
    extra = url.count(")") - url.count("(")
    end = len(url)
    while end:
        last = url[end - 1]
        if last == ")" and extra > 0:
            extra -= 1
        elif last not in ".,;:!?'*_~’”>|":
            break
        end -= 1
    return url[:end]


def _check_urls(
    urls: list[str],
    sources: Sequence[Source],
    unreadable: frozenset[str],
    cited: list[Source],
    problems: list[SourceProblem],
) -> None:
    fetched: dict[str, Source] = {}
    for source in sorted(sources, key=lambda source: source.listed):  # what was read before what was listed
        for url in (source.url, *source.aliases):
            if url:
                fetched.setdefault(key(url), source)
    seen: set[str] = set()
    for url in urls:
        source = fetched.get(key(url))
        name = key(source.url or url) if source else key(url)
        if name in seen:
            continue
        seen.add(name)
        if source is not None:
            cited.append(source)
        elif name in unreadable:
            cited.append(Source(url=url, verified=False, listed=True, note="asked for, and not read"))
        else:
            cited.append(Source(url=url, verified=False, note="never fetched"))
            problems.append(SourceProblem(kind="never_fetched", cited=url, note="cited but never fetched"))


# ---- cited lines of files


def _check_paths(
    prose: str,
    sources: Sequence[Source],
    look_up: Callable[[Source], str | None],
    cited: list[Source],
    problems: list[SourceProblem],
) -> None:
    files = ReadFiles(sources)
    for path, first, last in places(prose, files.means):
        read = files.named(path)
        source, kind, note = _judge_lines(path, first, last, read, look_up)
        cited.append(source)
        if kind is not None:
            problems.append(SourceProblem(kind=kind, cited=shown(path, first, last), note=note))


def _judge_lines(
    path: str, first: int, last: int, read: list[Source], look_up: Callable[[Source], str | None]
) -> tuple[Source, ProblemKind | None, str]:
    lines = (first, last)
    if not read:
        note = "never read"
        return (
            Source(path=path, lines=lines, verified=False, note=note),
            "never_read",
            f"this file was {note}",
        )
    whole = next((source for source in read if source.lines is None or _within(lines, source.lines)), None)
    length = _length(read, look_up)
    if length is not None and last > length:
        note = f"the file has only {length} line{'' if length == 1 else 's'}"
        source = msgspec.structs.replace(read[0], lines=lines, verified=False, note=note)
        return source, "line_beyond_end", note
    if whole is None and not _covered(lines, [source.lines for source in read if source.lines]):
        note = "these lines were never read" if last > first else "this line was never read"
        source = msgspec.structs.replace(read[0], lines=lines, verified=False, note=note)
        return source, "line_not_read", note
    return msgspec.structs.replace(whole or read[0], lines=lines), None, ""


def _within(lines: tuple[int, int], span: tuple[int, int]) -> bool:
    return span[0] <= lines[0] and lines[1] <= span[1]


def _covered(lines: tuple[int, int], spans: list[tuple[int, int]]) -> bool:
    """Whether spans that were read in turn make up the cited lines."""
    at = lines[0]
    for first, last in sorted(spans):
        if first > at:
            break
        at = max(at, last + 1)
    return at > lines[1]


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of lines, those that touch each other as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _length(read: list[Source], look_up: Callable[[Source], str | None]) -> int | None:
    """The number of lines of a file, as far as its text is there and reaches as far as what was read."""
    text = next((text for text in map(look_up, read) if text is not None), None)
    if text is None:
        return None
    length = text.count("\n") + (not text.endswith("\n"))
    return length if all(source.lines is None or source.lines[1] <= length for source in read) else None


# ---- quotations


def _check_quotations(
    prose: str,
    sources: Sequence[Source],
    look_up: Callable[[Source], str | None],
    known: Iterable[str],
    problems: list[SourceProblem],
) -> None:
    found = quotations(prose)
    if not found:
        return
    gone = 0
    texts: list[str] = [plain(text) for text in known]
    for source in sources:
        text = look_up(source)
        gone += text is None
        texts.append(plain(f"{source.title}\n{text or ''}"))
    where = "in anything that was fetched or read"
    if gone:
        where = f"in the texts that are still there ({gone} of {len(sources)} are not)"
    for quotation in found:
        if not stands_in(quotation, texts):
            note = f"quotation not found {where}"
            problems.append(SourceProblem(kind="quotation_not_found", cited=_quoted(quotation), note=note))
