"""The plan of a long piece of research: its questions, and what became of each."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

QuestionStatus = Literal["open", "answered", "not_found"]


class PlanQuestion(Struct, frozen=True, kw_only=True):
    """`finding` is what was found, in a line, or why nothing was."""

    number: int
    text: str
    status: QuestionStatus = "open"
    finding: str = ""


class ResearchPlan(Struct, frozen=True, kw_only=True):
    """Never changed: each call that changes it makes the next one, and the log has them all."""

    questions: tuple[PlanQuestion, ...] = ()
    by_person: bool = False
    """Whether a person has looked at it, and agreed or changed it."""
    round: int = 1
    """How often questions were set or added."""
