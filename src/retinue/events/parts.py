"""What events carry: words of decisions and messages, the options of a run, the parts of a prompt."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

KNOWLEDGE_FIRST = "knowledge-first"
"""The call that looks a question up before the first step, and the id of the message with what it found."""

INQUIRY = "?"
"""Between the id of a call and that of a question that it asks a person while it runs. What is answered there
is told to the server that asks: a no to that is no rejected call."""

Decision = Literal["approve", "approve_run", "approve_tool", "approve_always", "reject"]
"""What a person says to a question. `approve` is for this call; `approve_run` also for those that the
question's rule covers in the rest of the workflow, `approve_tool` for every further call of the tool in it,
and `approve_always` for those that the rule covers from now on, in this folder."""
FOR_MORE: tuple[Decision, ...] = ("approve_run", "approve_tool", "approve_always")
"""Of those, the ones that are for more than one call."""
BEFORE_RULES: tuple[Decision, ...] = ("approve", "approve_run", "reject")
"""What a question took that was asked before there were rules in questions."""
Sender = Literal["person", "parent", "child", "system"]
Purpose = Literal["work", "final", "summary", "correct"]
About = Literal["", "form", "sources", "empty", "guard", "summary", "knowledge", "files", "instructions"]
"""What a message to the model is for: what is wrong with its answer, the wish for a summary, what was looked
up for it, which files were copied for it, or the instructions of a folder that it works in. Empty for what
somebody says."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """What this very run was given. `settings` are dotted names; `first` is the agent that looks the
    question up before the first step."""

    settings: dict[str, Any] = {}
    yes: bool = False
    strict_sources: bool = False
    first: str | None = None
    tools: dict[str, str] = {}
    """Tools that the command line loaded for it, and from where: whoever resumes it needs them again."""
    client: str = ""
    """Who had another program start it: `mcp`, or of a server with tokens the name and digest of one."""
    metadata: dict[str, str] = {}
    """What the program says of it: a tenant, a user."""
    traceparent: str = ""
    """The span of another program below which the first turn stands, as W3C writes it."""
    drawn_from: str = ""
    """The file that the prompt was taken from: it is private data then, and nobody's own words but `said`."""
    said: str = ""
    guards: tuple[str, ...] = ()
    """The guards of the program that began it: whoever goes on with it needs them too."""
    output: dict[str, Any] | None = None
    """The JSON schema that the first answer of a conversation has to fit; later ones need not."""
    links: tuple[str, ...] = ()
    """The addresses in such a prompt: like the links of a page, they stand somewhere."""
    changed: tuple[str, ...] = ()
    """Fields of its agent that are otherwise for this very run."""
    agents: tuple[str, ...] = ()
    """Agents that the program gave to this very run: whoever resumes it needs them again."""
    approver: bool = False
    """It was given a function of its own that answers its questions."""
    instructions: str = ""
    """What the program told this very run, beside what its agent says."""
    asked: dict[str, str] = {}
    """Of a run under an id of the program's: digests of what it was asked with beside its prompt, each by
    what it is of. Another piece of work under the same id is known by them."""


class PromptPart(Struct, frozen=True, array_like=True):
    """One part of what a model is told at the start, by its title and its length in characters."""

    title: str
    length: int


class Knowledge(Struct, frozen=True, kw_only=True):
    """Who looked a question up before the first step, and what it found, without a frame."""

    run_id: str
    agent: str
    turns: int
    text: str
