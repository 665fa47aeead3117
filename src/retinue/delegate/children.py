"""What delegation is built on: the primitive, the policy, and how a child is asked.

`Staff` is the one primitive, start a child under a parent, implemented by the engine. The policy says who may
delegate at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from msgspec import Struct

from retinue.errors import Refused
from retinue.reports import Framed
from retinue.settings import DelegationSettings
from retinue.types import AgentSpec, JsonSchema, Report, Status

GLANCES = frozenset({"check", "list_children"})
"""Operations that only read how things stand at that moment: a replay has what they read then."""
AGENTS = "agents"
"""What lists of tools call all registered agents by."""
MAX_SUBAGENT_TURNS = 50
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
    background: bool = False


class ChildInfo(Struct, frozen=True, kw_only=True):
    child_id: str
    agent: str
    label: str
    status: Status
    background: bool
    doing: str = ""


class ChildRunner(Protocol):
    """What delegation needs of the engine. A parent is named by its run id."""

    def admit(self, parent_id: str, *, counted: bool = True) -> None:
        """Refuses where no child may be started: the policy, and if `counted` the number of children."""
        ...

    async def start(self, parent_id: str, request: ChildRequest) -> str:
        """The child's id. Starts nothing twice: the same call finds the child it started before."""
        ...

    async def wait(self, parent_id: str, child_id: str) -> Report: ...

    async def cancel_child(self, parent_id: str, child_id: str, reason: str) -> Report: ...

    async def message_child(self, parent_id: str, child_id: str, text: str) -> None: ...

    def children(self, parent_id: str) -> list[ChildInfo]: ...

    def agents(self, parent_id: str) -> list[AgentSpec]:
        """The registered agents this parent may delegate to."""
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

    def told(self, parent_id: str, child_id: str) -> bool:
        """Whether the parent has this child's report before it: it came with the notice of its end."""
        ...

    async def shorten(self, parent_id: str, report: Report, *, quoted: bool = False) -> Framed:
        """The part of a report its parent is shown. `quoted`: it will stand in JSON, which takes room."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Who may delegate, how deep, and how many children a workflow may have."""

    kind: Literal["flat", "nested"]
    max_depth: int
    max_children: int
    enabled: bool = True

    @classmethod
    def of(cls, settings: DelegationSettings) -> Policy:
        if settings.policy == "flat":
            return cls(kind="flat", max_depth=2, max_children=settings.max_children, enabled=settings.enabled)
        return cls(
            kind="nested",
            max_depth=settings.max_depth,
            max_children=settings.nested_children,
            enabled=settings.enabled,
        )

    def offers(self, depth: int) -> bool:
        """Whether a run at this depth is shown the delegation tools."""
        return self.enabled and depth + 1 < self.max_depth and self.max_children > 0

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
        """How many children one parent is expected to have: a fair share is reckoned by it."""
        levels = max(1, self.max_depth - 1)
        return max(1, round(self.max_children ** (1 / levels)))

    @property
    def children_limit(self) -> str:
        name = "max_children" if self.kind == "flat" else "nested_children"
        return f"policy {self.kind}, delegation.{name} = {self.max_children}"


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


def arguments_for(spec: AgentSpec, prompt: str) -> dict[str, Any]:
    """A plain prompt as the arguments of an agent's input schema: it fills the first required field."""
    schema = spec.input_schema or PROMPT_SCHEMA
    required: list[str] = schema.get("required") or list(schema.get("properties", {})) or ["prompt"]
    return {required[0]: prompt}
