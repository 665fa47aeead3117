"""An answer with what its sources do not bear out marked in its own place.

Called where an answer is shown: at a terminal and in exports. The report itself is never changed.
"""

from __future__ import annotations

from retinue.types import Claim, Report
from retinue.view import words


def marked_text(report: Report) -> str:
    """The text of a report, with a mark behind each sentence that its source contradicts or does not have,
    and behind those without a source where each was to have one."""
    if report.format != "markdown":
        return report.text
    marks = [(claim.end, _mark(claim)) for claim in report.claims]
    if report.ended_by == "correction":
        marks += [(end, "[no source]") for _, end in report.uncited_at]
    text = report.text
    for end, mark in sorted(marks, reverse=True):
        if mark and end <= len(text):
            head = text[:end].rstrip()
            gap = "\n\n" if head.endswith(("```", "~~~")) else " "
            text = f"{head}{gap}**{mark}**{text[len(head) :]}"
    return text


def _mark(claim: Claim) -> str:
    by = f", judged by {claim.judged}" if claim.judged else ""
    if claim.verdict == "contradicted":
        there = next((one.source for one in claim.differences if one.source), "")
        return (
            f"[✗ its source says {words.one_line(there, 80)}{by}]"
            if there
            else f"[✗ its source says otherwise{by}]"
        )
    return f"[? not in its source{by}]" if claim.verdict == "not_found" else ""
