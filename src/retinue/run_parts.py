"""What a program gives one run beside what its instance has: tools, agents, limits, other ways to be asked.

Called by `beginnings`. A run is only ever given more by the program itself: whatever is below its root still
holds at most what its parent holds, and its limits are the lower of two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from retinue.engine.config import WorkflowConfig, least
from retinue.errors import ConfigError
from retinue.given import check_agent, check_limits, own_tools, with_inner
from retinue.parameters import shown
from retinue.run_log import storable
from retinue.threads import briefly
from retinue.tools.base import Tool
from retinue.types import AgentSpec, JsonSchema, Limits, ModelSettings, ToolNames, TypedSchema

THIS_RUN = "run(tools=…)"
"""Where a tool is from that was given to one run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunParts:
    """Tools and agents of one run."""

    tools: tuple[Tool, ...] = ()
    agents: tuple[AgentSpec, ...] = ()

    @property
    def origins(self) -> dict[str, str]:
        return {tool.name: THIS_RUN for tool in self.tools}

    def added_to(self, config: WorkflowConfig) -> WorkflowConfig:
        """What the runs of a workflow are built from, with these."""
        if not self.tools and not self.agents:
            return config
        names = {each.name for each in (*self.tools, *self.agents)}
        kinds = [spec.output_schema for spec in self.agents if isinstance(spec.output_schema, TypedSchema)]
        return replace(
            config,
            tools={**config.tools, **{tool.name: tool for tool in self.tools}},
            agents={**config.agents, **{spec.name: spec for spec in self.agents}},
            attached=config.attached | {tool.name for tool in self.tools},
            own=None if config.own is None else config.own | names,
            lent=config.lent | {name for spec in self.agents for name in spec.tools or ()},
            kinds=(*kinds, *config.kinds),
        )


def parts_of(
    spec: AgentSpec | None,
    tools: object,
    agents: object,
    *,
    own: Collection[Tool],
    known: Mapping[str, AgentSpec],
    others: Collection[str],
) -> RunParts:
    """What one run is given, looked over. `spec` is its agent, if the program gave that itself: what that was
    given comes with it. `own` and `known` are tools and agents of the instance, `others` every other name."""
    team = with_inner(agents)
    inner = () if spec is None else with_inner([spec])[1:]
    taken = {tool.name for tool in own}
    explicit = own_tools(tools)
    for tool in explicit:
        if tool.name in taken:
            raise ConfigError(
                f"a tool {tool.name!r} is given to this run, and Retinue(tools=…) has one",
                fix="give it once, or another name: '@tool(name=…)'",
            )
    names = {tool.name for tool in explicit} | taken
    of_agent = own_tools((), (*team, *inner) if spec is None else (*team, spec, *inner))
    made = (*explicit, *(tool for tool in of_agent if tool.name not in names))
    fresh: dict[str, AgentSpec] = {}
    for each in (*team, *inner):
        before = fresh.get(each.name, known.get(each.name))
        if before is None or (each in team and before.origin != "code"):
            fresh[each.name] = each
        elif before is not each and before != each and each in team:
            raise ConfigError(f"two agents are named {each.name!r}", fix="give one of them another name")
    tool_names = {tool.name for tool in made} | taken
    everything = {*others, *known, *fresh, *tool_names}
    for each in fresh.values():
        check_agent(each, everything, tool_names, lambda: ())
    return RunParts(tools=made, agents=tuple(fresh.values()))


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenToRun:
    """What is otherwise in the agent of one run."""

    tools: tuple[Any, ...] = ()
    limits: Limits | None = None
    model: Any = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    output: JsonSchema | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast("Any", self.limits), Limits | None):
            raise TypeError(f"limits is {shown(self.limits)}: write Limits(…)")
        if self.limits is not None:
            check_limits(self.limits)

    def made(self, spec: AgentSpec) -> tuple[AgentSpec, tuple[str, ...]]:
        """The agent with these, and which of its fields are others now."""
        changed: dict[str, Any] = {}
        if self.limits is not None:
            changed["limits"] = lower(spec.limits, self.limits)
        if self.model is not None:
            changed["model"] = self.model
        if self.output is not None:
            changed |= {"output_schema": self.output, "output_format": "json"}
        if self.tools and spec.tools is not None:
            changed |= _with_tools(spec, self.tools)
        made = msgspec.structs.replace(spec, **changed) if changed else spec
        made = made.asked_with(self.settings)
        names = made.__struct_fields__
        return made, tuple(n for n in names if n != "given" and getattr(made, n) is not getattr(spec, n))


def _with_tools(spec: AgentSpec, more: tuple[Any, ...]) -> dict[str, Any]:
    """The tools of an agent and these, held and shown. What agents among them hold is held for them."""
    added = AgentSpec(name=spec.name, description="", prompt="", tools=more)
    before, fresh = spec.tools or (), added.tools or ()
    held = ToolNames(dict.fromkeys((*before, *fresh)))
    for each in (before, fresh):
        held.given = (*held.given, *(each.given if isinstance(each, ToolNames) else ()))
    if spec.shown is None and added.shown is None:
        return {"tools": held}
    own = before if spec.shown is None else spec.shown
    return {"tools": held, "shown": tuple(dict.fromkeys((*own, *(added.shown or fresh))))}


def lower(one: Limits, other: Limits) -> Limits:
    """The lower of each two limits."""
    return Limits(
        **{name: least(getattr(one, name), getattr(other, name)) for name in Limits.__struct_fields__}
    )


async def made_text(what: str, given: object, deps: object) -> str:
    """A text, or what the program's function of the deps makes of it."""
    said: object = given
    if callable(given):
        said = await briefly(cast("Callable[[object], object]", given), deps)
    if said is not None and not isinstance(said, str):
        raise TypeError(
            f"{what} is {type(said).__name__}: give text, or a function of the deps that returns it"
        )
    return storable(said or "")


def refuse_missing(given: Collection[str], known: Collection[str]) -> None:
    """Refuse to take up a run that was given agents which are not here now."""
    for name in given:
        if name not in known:
            raise ConfigError(
                f"the run was given the agent {name!r}, which is missing now",
                fix=f"give it again: resume(run_id, agents=[{name.replace('-', '_')}, …])",
            )
