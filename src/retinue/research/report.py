"""The report of a piece of research: what an agent wrote, held against the pages it cites, with what only a
program can be trusted to add: its sources by number, contradictions between them, what was not found.

Called by the tool that writes it. Text in, text out: nothing is read or saved here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from retinue.claims.passages import SourceText
from retinue.claims.report import Claims, claims_of
from retinue.claims.verdicts import Work, hold
from retinue.research.contradictions import Contradiction, PageSays
from retinue.research.pages import SourceTable
from retinue.types import Claim, PlanQuestion, ResearchPlan, Source

Confidence = Literal["high", "medium", "low"]
DOUBT = "⚠"
"""Stands behind a sentence that does not hold against what it cites."""
SECOND_PAGES = 12
"""Pages beside its own that a claim is held against."""
MOST_DIFFERENCES = 15
_MARK = re.compile(r"\[\^?(\d{1,3})\]")
_OWN_SOURCES = re.compile(r"(?i)#{1,6}[ \t]*(?:sources|references|bibliography)[ \t:]*$")
_ANY_HEADING = re.compile(r"(#{1,6})[ \t]*\S")
_HEADING = re.compile(r"^#[ \t]+\S", re.MULTILINE)
_STATEMENT_ENDS = ".!?。！？…"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedClaim:
    """A claim, and what other pages than the one it cites say to it."""

    claim: Claim
    confirmed: tuple[int, ...] = ()
    denied: tuple[int, ...] = ()

    @property
    def doubtful(self) -> bool:
        return self.claim.verdict in ("contradicted", "not_found")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedReport:
    """`text` is the whole report as it is read and kept; `unknown` are numbers that stand for nothing."""

    text: str
    claims: tuple[CheckedClaim, ...]
    uncited: tuple[str, ...]
    unknown: tuple[int, ...]
    confidence: Confidence

    @property
    def doubtful(self) -> list[CheckedClaim]:
        return [each for each in self.claims if each.doubtful]


def written(title: str, body: str, table: SourceTable, plan: ResearchPlan | None) -> CheckedReport:
    """The report of this body, in which [n] stands for page n of the table."""
    body = _without_own_sources(body).strip()
    cited = sorted({int(match[1]) for match in _MARK.finditer(body)})
    unknown = tuple(number for number in cited if not 0 < number <= len(table.pages))
    known = [number for number in cited if number not in unknown]
    sources = "\n".join(table.line(number) for number in known)
    held = _held(f"{body}\n\n{sources}", table)
    claims = tuple(_beside(claim, table) for claim in held.claims)
    confidence = confidence_of(claims, held.uncited)
    head = "" if _HEADING.match(body) else f"# {' '.join(title.split())}\n\n"
    marked = _marked(body, [each.claim for each in claims if each.doubtful])
    parts = [
        f"{head}{marked}",
        _confidence(confidence, claims, held.uncited),
        _contradictions(table, table.differences),
        _not_found(plan),
        f"## Sources\n\n{sources}" if sources else "## Sources: none is cited",
        _others(table, known),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return CheckedReport(
        text=text, claims=claims, uncited=held.uncited, unknown=unknown, confidence=confidence
    )


def _without_own_sources(body: str) -> str:
    """A list of sources that the writer made is left out: the program makes it, and it is true. What comes
    behind it under a heading of its own stays."""
    kept: list[str] = []
    left_out = 0
    for line in body.split("\n"):
        heading = _ANY_HEADING.match(line)
        if heading is not None and (not left_out or len(heading[1]) <= left_out):
            left_out = len(heading[1]) if _OWN_SOURCES.match(line) else 0
        if not left_out:
            kept.append(line)
    return "\n".join(kept)


def _others(table: SourceTable, cited: Sequence[int]) -> str:
    """What was read beside that: in a block of code, since it stands for nothing in the text."""
    others = [number for number in range(1, len(table.pages) + 1) if number not in cited]
    lines = "\n".join(table.line(number) for number in others)
    return f"### Read, and not cited\n\n```text\n{lines}\n```" if others else ""


def _held(text: str, table: SourceTable) -> Claims:
    texts = {page.key: page.text for page in table.pages}
    sources = [page.source for page in table.pages]

    def look_up(source: Source) -> str | None:
        return texts.get(source.url or source.path or "")

    return claims_of(text, sources, look_up)


def _beside(claim: Claim, table: SourceTable) -> CheckedClaim:
    """The claim against other pages: whether a second one says so, or says something else."""
    own = {table.number(url) for url in claim.cites}
    work = Work(400_000)
    confirmed: list[int] = []
    denied: list[int] = []
    others = [number for number in range(1, len(table.pages) + 1) if number not in own]
    for number in others[:SECOND_PAGES] if claim.verdict != "unchecked" else ():
        page = table.pages[number - 1]
        verdict = hold(claim.text, [SourceText(page.text, page.title)], work).verdict
        if verdict == "supported":
            confirmed.append(number)
    said = {claim.passage, claim.text}
    for each in table.differences:
        for one, other in ((each.one, each.other), (each.other, each.one)):
            if table.number(one.key) in own and any(one.sentence in text for text in said if text):
                number = table.number(other.key)
                denied += [number] if number is not None and number not in denied else []
    return CheckedClaim(claim=claim, confirmed=tuple(confirmed), denied=tuple(denied))


def confidence_of(claims: Sequence[CheckedClaim], uncited: Sequence[str]) -> Confidence:
    """By figures alone: what is supported, what has a second source, what is contradicted."""
    if not claims or any(each.claim.verdict == "contradicted" for each in claims):
        return "low"
    supported = sum(each.claim.verdict == "supported" for each in claims)
    second = sum(bool(each.confirmed) for each in claims)
    share = supported / (len(claims) + len(uncited))
    if share < 0.6:
        return "low"
    settled = not any(each.denied or each.doubtful for each in claims)
    return "high" if share >= 0.9 and settled and second * 2 >= len(claims) else "medium"


def _confidence(confidence: Confidence, claims: Sequence[CheckedClaim], uncited: Sequence[str]) -> str:
    supported = sum(each.claim.verdict == "supported" for each in claims)
    second = sum(bool(each.confirmed) for each in claims)
    facts = [f"{supported} of {len(claims)} claims are supported by what they cite"]
    facts += [f"{second} by a second source"] if second else []
    facts += [f"{len(uncited)} statements cite nothing"] if uncited else []
    doubts = sum(each.doubtful for each in claims)
    facts += [f"{doubts} do not hold ({DOUBT})"] if doubts else []
    return f"## Confidence: {confidence} ({', '.join(facts)})"


def _marked(body: str, doubtful: Sequence[Claim]) -> str:
    for claim in sorted(doubtful, key=lambda claim: -claim.end):
        if claim.end <= len(body):
            end = len(body[: claim.end].rstrip())
            body = f"{body[:end]} {DOUBT}{body[end:]}"
    return body


def _contradictions(table: SourceTable, differences: Sequence[Contradiction]) -> str:
    if not differences:
        return ""
    lines: list[str] = []
    for each in differences[:MOST_DIFFERENCES]:
        lines.append(f"- {_said(table, each.one)}\n- {_said(table, each.other)}\n")
    more = len(differences) - MOST_DIFFERENCES
    told = f"\n\n### And {more} more" if more > 0 else ""
    return "## Where the sources contradict one another\n\n" + "\n".join(lines) + told


def _said(table: SourceTable, side: PageSays) -> str:
    sentence = side.sentence.replace("“", "‘").replace("”", "’")
    ends = "" if sentence.endswith(tuple(_STATEMENT_ENDS)) else "."
    return f"“{sentence}{ends}” [{table.number(side.key)}]"


def _not_found(plan: ResearchPlan | None) -> str:
    open_: list[PlanQuestion] = [each for each in plan.questions if each.status != "answered"] if plan else []
    if not open_:
        return ""
    lines = [f"- {each.text}" for each in open_]
    return "## What was not found, or is left open\n\n" + "\n".join(lines)
