"""How runs end, and what they lack then: words that the log keeps, one for each fact."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

Status = Literal["pending", "running", "waiting", "completed", "error", "cancelled"]
EndedBy = Literal[
    "",  # a log from before this was kept
    "answer",
    "max_turns",
    "circle",
    "delegating",  # a child did nothing but pass its work on
    "budget",
    "time",  # was nearly up: it was told to sum up
    "timeout",
    "cancelled",
    "refusal",  # of the model: it will not answer, or says that it cannot
    "length",  # of the model's output
    "correction",  # the answer could not be corrected
    "nothing_read",
    "guard",  # of the program stopped it
    "error",
]
"""What ended a run."""
Outcome = Literal[
    "pending",
    "running",
    "waiting",
    "interrupted",
    "completed",
    "incomplete",
    "refused",
    "rejected",
    "error",
    "cancelled",
]
"""How a run stands, for people: its status, unless that would promise too much. `interrupted` is a run
whose process is gone; the last of these that apply to a completed run is what is shown of it."""
ENDED: frozenset[Status] = frozenset({"completed", "error", "cancelled"})


class Shortfall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run and everything below it went without since a person last spoke to it.

    `rejected` counts calls that a person rejected, `denied` calls that a rule denied, `refused` calls that
    nobody was there to approve, `not_started` children that were asked for and that a limit or a mistake kept
    from starting, `failed` children that ended without a report of their own accord, `incomplete`
    children whose report says that it is.
    """

    rejected: int = 0
    refused: int = 0
    not_started: int = 0
    failed: int = 0
    incomplete: int = 0
    denied: int = 0

    def __add__(self, other: Shortfall) -> Shortfall:
        return Shortfall(
            rejected=self.rejected + other.rejected,
            refused=self.refused + other.refused,
            not_started=self.not_started + other.not_started,
            failed=self.failed + other.failed,
            incomplete=self.incomplete + other.incomplete,
            denied=self.denied + other.denied,
        )

    def __sub__(self, other: Shortfall) -> Shortfall:
        mine, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        return Shortfall(**{name: count - theirs[name] for name, count in mine.items()})


def ended_as(status: Status, lacks: Shortfall, ended_by: EndedBy = "") -> Outcome:
    """The one word for how something ended that lacks this, itself included if it is not whole.

    A model that will not or cannot answer did not fail: whoever asks it again hears the same.
    """
    if ended_by == "refusal":
        return "refused"
    if status != "completed":
        return status
    if lacks.rejected:
        return "rejected"
    if lacks.refused:
        return "refused"
    return "incomplete" if lacks.not_started or lacks.failed or lacks.incomplete else "completed"


_WORST: tuple[Outcome, ...] = ("error", "cancelled", "rejected", "refused", "incomplete")


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Of several that have ended, the one that most is missing from."""
    found = set(outcomes)
    for outcome in _WORST:
        if outcome in found:
            return outcome
    return "completed"
