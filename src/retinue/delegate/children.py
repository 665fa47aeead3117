"""What delegation is built on: the primitive, the policy, and how a child is asked.

`ChildRunner` is the one primitive, start a child under a parent, implemented by the engine. The policy says
who may delegate at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from msgspec import Struct

from retinue.budget import HeldPlaces, Places
from retinue.errors import ConfigError, Refused
from retinue.parameters import shown
from retinue.reports import Framed
from retinue.settings import DelegationSettings
from retinue.tools.schemas import schema_problems
from retinue.types import AgentSpec, Apart, Effort, Image, JsonSchema, Report, Status

GLANCES = frozenset({"check", "list_children"})
"""Operations that only read how things stand at that moment: a replay has what they read then."""
AGENTS = "agents"
"""What lists of tools call all registered agents by."""
AGENT_CALLS = 24
"""Agents that may be called as tools for each message of a person, if nobody set another number."""
SUBAGENT_TURNS, MAX_SUBAGENT_TURNS = 10, 50
SUMMARY = (
    "Now report your findings concisely: what was asked, what you found, what is uncertain. No preamble."
)
PROMPT_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {
        "prompt": {
            "type": "string",
            "minLength": 1,
            "description": "the whole task: the agent sees nothing else",
        }
    },
    "required": ["prompt"],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildRequest:
    """A child to start. `key` tells the children of one call apart."""

    spec: AgentSpec
    prompt: str
    call_id: str
    key: str = ""
    label: str = ""
    effort: Effort = ""
    """How hard its model is to think, if not as hard as its spec says, or else its parent's."""
    isolation: Apart | None = None
    """Works in a copy of the project, also where its spec does not say so."""
    background: bool = False
    as_tool: bool = False
    """An agent that was called by its own name: these are counted apart."""
    places: HeldPlaces | None = None
    """Kept for this child and others of its batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedAgain:
    """Another piece of work for a child that has ended, and the call that gives it."""

    prompt: str
    call_id: str
    label: str = ""
    background: bool = False
    by_person: bool = False
    """A person asks it, and not the model of its parent."""
    max_turns: int | None = None
    """How many answers it has for this, if not those that its agent says."""
    rendered: str = ""
    """What it reads, where that is more than the prompt: with what the person attached."""
    images: tuple[Image, ...] = ()


class ChildInfo(Struct, frozen=True, kw_only=True):
    child_id: str
    agent: str
    label: str
    status: Status
    background: bool
    doing: str = ""
    private: tuple[str, ...] = ()
    """The private data that it has read, by name: what it does may tell of that."""


class ChildRunner(Protocol):
    """What delegation needs of the engine. A parent is named by its run id."""

    def admit(self, parent_id: str, *, count: int = 1, as_tool: bool = False) -> None:
        """Refuses where no such children may be started: by the policy, by their number."""
        ...

    def hold_places(self, parent_id: str, call_id: str, count: int) -> HeldPlaces | None:
        """Keeps places for the children of a call, or refuses all of them. None if it began before."""
        ...

    async def start(self, parent_id: str, request: ChildRequest) -> str:
        """The child's id. Starts nothing twice: the same call finds the child it started before."""
        ...

    async def wait(self, parent_id: str, child_id: str) -> Report: ...

    def check_ended(self, parent_id: str, child_id: str) -> None:
        """Refuses unless this is a child of the parent that has ended and can be asked again."""
        ...

    async def ask_again(self, parent_id: str, child_id: str, asked: AskedAgain) -> None:
        """Give a child that has ended another piece of work. The same call does so once."""
        ...

    def made_up(self, child_id: str) -> bool:
        """Whether a model designed this child, and nobody registered it."""
        ...

    def reported_before(self, child_id: str) -> Report | None:
        """What a child reported of the piece of work before its last one."""
        ...

    async def cancel_child(self, parent_id: str, child_id: str, reason: str) -> Report: ...

    async def message_child(self, parent_id: str, child_id: str, text: str, call_id: str) -> None: ...

    def children(self, parent_id: str) -> list[ChildInfo]: ...

    def agents(self, parent_id: str) -> list[AgentSpec]:
        """The registered agents this parent may delegate to."""
        ...

    def why_not(self, parent_id: str, name: str, *, as_tool: bool = False) -> str:
        """Why this parent may not delegate to an agent that is registered; empty if nothing but a rule is in
        the way, or there is none such."""
        ...

    def taken(self, name: str) -> bool:
        """Whether a registered agent bears this name, so that no temporary one may."""
        ...

    def mcp_servers(self, parent_id: str) -> frozenset[str]: ...

    def tool_names(self, parent_id: str) -> dict[str, str]:
        """What the parent may hand on: the name of each tool by every word it is called by."""
        ...

    def shown(self, parent_id: str) -> tuple[str, ...]:
        """What the parent is shown itself, without the ways to delegate."""
        ...

    def ways(self, parent_id: str) -> tuple[str, ...]:
        """The ways to delegate that a child has which the parent makes up: those that it is offered itself.

        None where the policy lets no child of it delegate.
        """
        ...

    def room(self, call_id: str) -> int:
        """Characters that the result of a call may have before it is cut."""
        ...

    def merging(self, parent_id: str, tools: Iterable[str]) -> tuple[str, ...]:
        """What merges the work of isolated children, for a child with these tools: nothing, if it cannot have
        any or may not write."""
        ...

    def kept_back(self, parent_id: str) -> tuple[str, ...]:
        """The ways to delegate that such a child never has, whatever else it is handed on."""
        ...

    def skills(self, parent_id: str) -> tuple[str, ...]:
        """The skills that the parent is offered: what it may hand on to a child that it makes up."""
        ...

    def check_isolation(self, parent_id: str, wanted: Apart | None) -> None:
        """Refuses where there is no project that a child could have a copy of."""
        ...

    def told(self, parent_id: str, child_id: str, *, when_asked: bool = False) -> bool:
        """Whether the parent has this child's report before it: it came with the notice of its end.

        `when_asked`: its model had it when it was asked for the reply whose calls are at work.
        """
        ...

    async def shorten(
        self, parent_id: str, report: Report, *, quoted: bool = False, among: int = 1
    ) -> Framed:
        """The part of a report its parent is shown, `among` so many in one result.

        `quoted`: it will stand in JSON, which takes room.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Who may delegate, how deep, and how many children there may be for each message of a person."""

    kind: Literal["flat", "nested"]
    max_depth: int
    max_children: int
    agent_calls: int = AGENT_CALLS
    enabled: bool = True

    @classmethod
    def of(cls, settings: DelegationSettings) -> Policy:
        flat = settings.policy == "flat"
        children = settings.max_children if flat else settings.nested_children
        calls = settings.agent_calls
        return cls(
            kind=settings.policy,
            max_depth=2 if flat else settings.max_depth,
            max_children=children,
            agent_calls=calls if calls != "auto" else max(AGENT_CALLS, children) if children else 0,
            enabled=settings.enabled,
        )

    def offers(self, depth: int, *, as_tool: bool = False) -> bool:
        """Whether a run at this depth is shown the delegation tools, or agents as tools."""
        most = self.agent_calls if as_tool else self.max_children
        return self.enabled and depth + 1 < self.max_depth and most > 0

    def admit(self, depth: int) -> None:
        if not self.enabled:
            raise Refused(
                "not started: sub-agents are switched off (delegation.enabled = false). "
                "Do the work yourself.",
                not_run="limit",
            )
        if depth + 1 < self.max_depth:
            return
        if self.kind == "flat":
            raise Refused(
                f"not started: the policy 'flat' lets only the root delegate, and you are at depth {depth}. "
                "Do the work yourself.",
                not_run="limit",
            )
        raise Refused(
            f"not started: the depth limit is {self.max_depth} levels (0 to {self.max_depth - 1}); you are "
            f"at depth {depth}, so the child would be at depth {depth + 1}. Do the work yourself.",
            not_run="limit",
        )

    @property
    def sharers(self) -> int:
        """How many children there may be in all: so many have a share."""
        return self.max_children + self.agent_calls

    @property
    def runs(self) -> int:
        """How many runs of the greatest length a ceiling of `auto` is for.

        The agents that may be called as tools by default are short, and fit in.
        """
        return self.max_children + 1 + max(0, self.agent_calls - AGENT_CALLS)

    def places(self, *, besides: int = 0) -> tuple[Places, ...]:
        """How many children a root and all below it may have; `besides` are not of their own choosing."""
        name = "max_children" if self.kind == "flat" else "nested_children"
        children = f"policy {self.kind}, delegation.{name} = {self.max_children}"
        calls = f"policy {self.kind}, delegation.agent_calls = {self.agent_calls}"
        return (
            Places(most=self.max_children + besides, says=children, counts="delegated"),
            Places(most=self.agent_calls, says=calls, counts="agents"),
        )


def prompt_of(spec: AgentSpec, arguments: dict[str, Any]) -> str:
    """What a child is asked, from the arguments of its tool."""
    given = {name: value for name, value in arguments.items() if value not in (None, "")}
    if len(given) == 1:
        only = next(iter(given.values()))
        return only if isinstance(only, str) else json.dumps(only, ensure_ascii=False)
    lines = [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in given.items()
    ]
    return "\n".join(lines)


def first_message(spec: AgentSpec, prompt: str | Mapping[str, Any]) -> str:
    """What a run is asked: a text as it is, or arguments that fit the agent's input schema."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ConfigError("the prompt is empty", fix="say what the agent should do")
        return prompt
    if not isinstance(cast("Any", prompt), Mapping):
        raise TypeError(f"prompt is {shown(prompt)}: give text, or the arguments of {spec.name} by name")
    problems = schema_problems(dict(prompt), spec.input_schema or PROMPT_SCHEMA)
    if problems:
        raise ConfigError(f"{spec.name} cannot use these arguments: {'; '.join(problems)}")
    return prompt_of(spec, dict(prompt))


def arguments_for(spec: AgentSpec, prompt: str) -> dict[str, Any]:
    """A plain prompt as the arguments of an agent's input schema: it fills the first required field."""
    schema = spec.input_schema or PROMPT_SCHEMA
    required: list[str] = schema.get("required") or list(schema.get("properties", {})) or ["prompt"]
    return {required[0]: prompt}
