"""What the log keeps of a tool call in one word: what it does to the world, why it did not run."""

from __future__ import annotations

from typing import Literal

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
