"""What the log keeps of a tool call in few words: what it does to the world, why it did not run or asks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Effect = Literal["read", "write", "execute", "network", "spend", "delegate"]
Risk = Literal["low", "medium", "high"]
ALL_EFFECTS: frozenset[Effect] = frozenset({"read", "write", "execute", "network", "spend", "delegate"})
NotRun = Literal[
    "",  # it ran
    "unknown_tool",
    "bad_arguments",
    "denied",  # by a rule
    "forbidden",  # to every such run: a private address, what robots.txt keeps, a project that is only read
    "rejected",  # by a person, or by a program's function that failed
    "unattended",  # a person would have to be asked, and nobody is there
    "repeated",  # it failed with the very same arguments before
    "limit",  # of children, depth or budget
    "time",  # what is left of it is kept to sum up
    "outcome_unknown",  # the process stopped while it ran
    "no_handles",  # nothing could be opened for it, for as long as it could wait
]
"""Why a tool did not run. Who reads a log decides by this and never by what the result says."""
AddressFrom = Literal[
    "",  # the call dials no address, or its run had read nothing private
    "said",  # it stands in what a person said
    "found",  # in the result of a search
    "link",  # on a page that was fetched
    "composed",  # nowhere: a model put it together, and a person or a rule let it
]
"""Where the address came from that was dialled by a run which had read private data."""


class Uncovered(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first part of a command that no allow rule means, where there are rules for commands."""

    part: str = ""
    """As it is written: a simple command. Empty if the command cannot be taken apart: then `why` says why."""
    word: str = ""
    """The word in it that `rule` does not mean, all of the part otherwise."""
    rule: str = ""
    why: str = ""

    def __str__(self) -> str:
        if not self.part:
            return f"no rule for commands counts, since it cannot be taken apart: {self.why}"
        if not self.word:
            return f"no rule covers `{self.part}`"
        return f"the rule '{self.rule}' does not cover `{self.word}` in `{self.part}`"
