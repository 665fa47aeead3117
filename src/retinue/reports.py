"""Reports on their way up: how much of one a parent is shown, and how it is framed.

A report is data from a child, never instructions. All that a child, its model, its tools or its provider
worded stands in one frame: the text, structured output, errors. The frame is made of the child's run id,
which it is not told, and a mark with that id in it is taken apart, so no report can end its own frame. What
stands beside a frame are facts of ours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from retinue.settings import LimitSettings
from retinue.types import EndedBy, Report, Shortfall, Source, Usage
from retinue.web import framing

_FRAMED = re.compile(r"<report (\w+) agent=[^<>\n]*>(.*?)(?:</report \1>|\Z)", re.DOTALL)
MOST_WHY = 600
"""Bytes of the reason why a report is incomplete."""
MOST_WHY_OF_MANY = 100
"""The same of a report among many."""
MOST_CHECKED = 600
"""Bytes of the citations that hold, and of those that do not."""
LEAST = 256
"""Bytes of a report that its parent is shown however many there are."""
AROUND = 1200
"""Bytes that a row of a batch takes beside the report in it."""
OWN_WORDS: frozenset[EndedBy] = frozenset(
    {"max_turns", "budget", "time", "timeout", "cancelled", "length", "nothing_read"}
)
"""Endings whose reason is worded by us, or by whoever cancelled: nothing of the child is in it."""
IN_REPORT = "why is in the report"


@dataclass(frozen=True, kw_only=True, slots=True)
class Framed:
    """The text a parent is shown, the files that hold the rest, and what a summary cost."""

    text: str
    files: tuple[str, ...] = ()
    usage: Usage = Usage()


@dataclass(frozen=True, kw_only=True, slots=True)
class Brief:
    """A report in its frame, as much of it as there is room for. What it warns of is said once for many."""

    opening: str
    text: str
    closing: str

    def beginning(self, most: int) -> str:
        return "\n".join((self.opening, cut(self.text, most) or "(no text)", self.closing))


def brief(report: Report, text: str, before: Report | None = None) -> Brief:
    """A report of many, of which its parent is shown few words each."""
    why = [f"[incomplete: {cut(report.incomplete, MOST_WHY_OF_MANY)}]"] if report.incomplete else []
    return Brief(
        opening=_opening(report, before),
        text=_without_marks("\n".join([*why, text]), report.run_id),
        closing=f"</report {report.run_id}>",
    )


def frame(report: Report, text: str, *, measured: bool = False, before: Report | None = None) -> str:
    """A child's report as its parent reads it; `measured`: with what it took, where nothing else says so.

    Of a child that was asked again, that is what it took, and went without, since the report `before`.
    """
    lines = [_opening(report, before, metrics(report, before) if measured else {})]
    if report.incomplete:
        why = cut(" ".join(report.incomplete.split()), MOST_WHY)
        lines.append(_without_marks(f"[incomplete: {why}]", report.run_id))
    lines.append(_without_marks(text, report.run_id) or "(no text)")
    lines += _checked(report)
    lines.append(f"</report {report.run_id}>")
    lines.append(framing.REPORT_WARNING)
    return "\n".join(lines)


def _opening(report: Report, before: Report | None, took: Mapping[str, int] = MappingProxyType({})) -> str:
    turns = report.turns - (before.turns if before is not None else 0)
    facts = [f'agent="{attribute(report.agent)}"', f'status="{report.status}"', f'turns="{turns}"']
    facts += [f'{what}="{count}"' for what, count in {**lacks(report, before), **took}.items()]
    return f"<report {report.run_id} {' '.join(facts)}>"


def metrics(report: Report, before: Report | None = None) -> dict[str, int]:
    """What a piece of work took: of a child that was asked again, without what it had done before."""
    usage, then = report.usage, Usage() if before is None else before.usage
    return {
        "duration_ms": report.duration_ms - (0 if before is None else before.duration_ms),
        "tokens_input": usage.input_tokens - then.input_tokens,
        "tokens_output": usage.output_tokens - then.output_tokens,
    }


def digest_of(report: Report) -> str:
    """What a child reported, in few characters: the same for the same answer, whoever gave it and when."""
    said = msgspec.json.encode((report.status, report.ended_by, report.text, report.data), order="sorted")
    return hashlib.sha256(said).hexdigest()[:16]


def shown_bytes(limits: LimitSettings, among: int) -> int:
    """The most that a parent is shown of a report: of many in one result, so much that all have room."""
    if among == 1:
        return limits.report_bytes
    return max(LEAST, min(limits.report_bytes, limits.tool_output // among - AROUND))


def attribute(name: str) -> str:
    """A name that stays inside the quotation marks it is put in."""
    return re.sub(r"[\"<>\s]+", " ", name)[:100]


def _without_marks(text: str, run_id: str) -> str:
    """The text with the marks of its own frame taken apart."""
    text = re.sub(rf"\[(?=\s*checked\s+{re.escape(run_id)})", "(", text, flags=re.IGNORECASE)
    return re.sub(rf"<(?=\s*/?\s*report\s+{re.escape(run_id)})", "‹", text, flags=re.IGNORECASE)


def _checked(report: Report) -> list[str]:
    """Which of its citations hold, in lines that the child cannot write: they name its run."""
    cited = [source for source in report.sources if source.verified]
    held = "; ".join(dict.fromkeys(_place(source) for source in cited))
    flags = "; ".join(" ".join(problem.split()) for problem in report.problems)
    absent = "; ".join(f"“{claim.text}”" for claim in report.claims if claim.verdict == "not_found")
    told = {framing.HELD: held, framing.NOT_HELD: flags, framing.ABSENT: absent}
    return [
        f"[checked {report.run_id}: {what}: {_without_marks(cut(text, MOST_CHECKED), report.run_id)}]"
        for what, text in told.items()
        if text
    ]


def _place(source: Source) -> str:
    if source.url:
        return source.url
    lines = "" if source.lines is None else ":" + "-".join(str(line) for line in dict.fromkeys(source.lines))
    return f"{source.path}{lines}"


def lacks(report: Report, before: Report | None = None) -> dict[str, int]:
    """What a child and those below it went without, by name, where it is anything: a completed child whose
    call was rejected did not do it. Of one that was asked again, in this piece of its work."""
    return msgspec.to_builtins(report.shortfall - (Shortfall() if before is None else before.shortfall))


def beside(report: Report, before: Report | None = None) -> dict[str, Any]:
    """What stands beside the frame about a report that is not whole: no word of the child's."""
    own = report.ended_by in OWN_WORDS
    whys = {"incomplete": report.incomplete, "error": report.error}
    return {
        **{name: (why if own else IN_REPORT) for name, why in whys.items() if why},
        **({"ended_by": report.ended_by} if report.incomplete or report.error else {}),
        **({"shortfall": lacking} if (lacking := lacks(report, before)) else {}),
    }


def framed_in(text: str) -> dict[str, str]:
    """What stands in the frames of a text, by the run that wrote it."""
    return {match[1]: framing.unreported(match[2]) for match in _FRAMED.finditer(text)}


def verified(report: Report) -> tuple[Source, ...]:
    """What a parent may cite because its child has really fetched or read it."""
    return (*(source for source in report.sources if source.verified), *report.read)


def handed_up(report: Report) -> tuple[Source, ...]:
    """What a parent learns of addresses and files: what it may cite, and what its child found unreadable."""
    return (
        *verified(report),
        *(source for source in report.sources if source.listed and not source.verified),
    )


def cut(text: str, most: int) -> str:
    """At most `most` bytes of UTF-8, ending at a line or a sentence where there is one in the last half."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    head = data[: max(0, most)].decode("utf-8", "ignore")
    half = len(head) // 2
    line = head.rfind("\n", half)
    if line > 0:
        return head[:line].rstrip()
    sentences = [match.end() for match in re.finditer(r"[.!?…。](?=\s)", head) if match.end() > half]
    if sentences:
        return head[: sentences[-1]]
    space = head.rfind(" ", half)
    return head[:space].rstrip() if space > 0 else head


def length(text: str, *, quoted: bool = False) -> int:
    """Bytes of a text; `quoted`: as it stands in JSON, where line breaks and quotation marks take two."""
    written = json.dumps(text, ensure_ascii=False)[1:-1] if quoted else text
    return len(written.encode("utf-8", "replace"))


def cut_with_notice(text: str, most: int, where: str, *, quoted: bool = False) -> str:
    """The beginning of a report that is too long, with a notice of where the rest is, in `most` bytes."""
    if length(text, quoted=quoted) <= most:
        return text
    notice = f"\n\n[report cut: the whole text of {length(text)} bytes is in {where}]"
    return ending_with(notice, text, most, quoted=quoted)


def ending_with(notice: str, text: str, most: int, *, quoted: bool = False) -> str:
    """As much of a text as there is room for beside a notice at its end, in `most` bytes."""
    room = most - length(notice, quoted=quoted)
    short = text if length(text, quoted=quoted) <= room else cut(text, room)
    while short and length(short, quoted=quoted) > room:
        short = cut(short, length(short) - (length(short, quoted=quoted) - room))
    return short + notice
