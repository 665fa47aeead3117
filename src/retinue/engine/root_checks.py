"""What keeps a run from beginning, or from being taken up: errors that say what to give, before it costs."""

from __future__ import annotations

from typing import Any

from retinue.agents.missing import missing_tools
from retinue.agents.places import as_error
from retinue.engine.config import WorkflowConfig
from retinue.engine.tools_shown import useful
from retinue.errors import ConfigError
from retinue.models.base import WHO_HAS, Model, lacking
from retinue.types import AgentSpec, ModelSettings


def check_beginning(config: WorkflowConfig, spec: AgentSpec, given: ModelSettings | None) -> None:
    """Refuse a root that lacks what it would need. `given` are the model settings of the run itself."""
    _check_agents(config, spec)
    check_deps(config, spec)
    _check_settings(config, spec, given)


def _check_agents(config: WorkflowConfig, spec: AgentSpec) -> None:
    """Refuse a root that names an agent to which it could hand on none of what that agent works with."""
    authority = config.root_authority(spec)
    for name in spec.tools or ():
        agent = config.agents.get(name)
        if agent is None or not agent.tools or name == spec.name or useful(config, name, authority, 0):
            continue
        lacks = ", ".join(tool for tool in agent.tools if tool in config.tools)
        if lacks:
            raise ConfigError(
                f"{spec.name} names the agent {name}, which works with {lacks}, and holds none of that "
                "itself: a child holds at most what its parent holds",
                fix=f"add {lacks} to the tools of {spec.name}",
            )


def check_deps(config: WorkflowConfig, spec: AgentSpec) -> None:
    """Refuse a root whose tools, or those it hands on, want what the program did not hand over."""
    if config.deps is not None:
        return
    held = config.root_authority(spec).tools
    for name, tool in config.tools.items():
        if tool.wants not in (None, Any, type(None)) and name in held:
            kind = getattr(tool.wants, "__name__", tool.wants)
            raise ConfigError(
                f"the tool {name!r} works with {kind}, and no deps are given",
                fix="give deps=…, or Retinue(deps_factory=…), which makes them after a restart too",
            )


def check_tools(config: WorkflowConfig, spec: AgentSpec) -> None:
    """Refuse an agent of a file that names a tool which is not there: nobody would see what it lacks."""
    if spec.origin == "code" or spec.lifecycle != "permanent":
        return  # looked over where it was made
    aliases = (alias for tool in config.tools.values() for alias in tool.aliases)
    for finding in missing_tools(spec, {*config.tools, *config.agents, *aliases}, config.withheld):
        if finding.level == "error":
            raise as_error(finding)


def _check_settings(config: WorkflowConfig, spec: AgentSpec, given: ModelSettings | None) -> None:
    """Refuse settings of a program that the model does not have: `given` to the run, of its agent if that
    is the program's, and of the program's agents below it."""
    if not (spec.origin == "code" and spec.model_settings.given) and given is None:
        return _check_below(config, spec)
    model = config.model_of(spec, None)
    check_settings(spec, model, spec.model_settings if spec.origin == "code" else given)
    return _check_below(config, spec)


def _check_below(config: WorkflowConfig, spec: AgentSpec) -> None:
    made = [a for a in config.agents.values() if a.origin == "code" and a.model_settings.given]
    if not made:
        return
    model = config.model_of(spec, None)
    held = config.root_authority(spec).tools
    for agent in made:
        if agent.name in held:
            check_settings(agent, config.model_of(agent, model), agent.model_settings)


def check_settings(spec: AgentSpec, model: Model, settings: ModelSettings | None) -> None:
    """Refuse settings that were made in a program and that this model does not have."""
    if settings is None:
        return
    own = settings.given  # those of a provider's table are told, and refuse nobody
    for name, whose in ((name, whose) for name, whose in lacking(model, settings).items() if name in own):
        raise ConfigError(
            f"{whose} has no {name}, which is set for {spec.name}",
            fix=f"leave it out, or use a model that has it: {WHO_HAS.get(name, 'none is known')}",
        )


def check_headers(spec: AgentSpec) -> None:
    """Refuse an agent of a log whose headers hold nothing that is known."""
    if missing := spec.model_settings.headers.missing():
        raise ConfigError(
            f"{spec.name} was given the headers {', '.join(missing)}, whose values no log keeps",
            fix="give them again: resume(run_id, extra_headers={…}); '${VARIABLE}' as a value is kept",
        )
