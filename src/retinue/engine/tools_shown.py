"""Which tools a run is shown of those that it holds, and which agents it may start.

By its agent, its authority, its depth and the settings. Called while a run is built, and when one delegates.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from retinue.approvals import Authority
from retinue.authority.rules import Asked
from retinue.builtin_tools import CODE, DELEGATION_TOOLS, ON_REQUEST, SKILL
from retinue.delegate import AGENTS
from retinue.engine.config import WorkflowConfig
from retinue.mcp.tools import server_of
from retinue.tools.base import Tool
from retinue.types import AgentSpec

MERGES = frozenset({"merge_child"})
WRITES = frozenset({"write", "execute"})


def shows(config: WorkflowConfig, tool: Tool, spec: AgentSpec, authority: Authority, depth: int) -> bool:
    """Whether a run is shown a tool that it holds."""
    if tool.effect != "delegate":
        if tool.name in config.attached and depth == 0 and not _chosen(config, tool.name, spec):
            return True
        if _only_lent(config, tool.name, spec, depth):
            return False
        if spec.mode == "code":
            return tool.name == CODE  # everything else is a function in its code
        if tool.name == SKILL:
            return True
        if tool.name in MERGES and _isolates(config, authority, depth):
            return True
        if of_another(config, tool.name, spec):
            return False
        if spec.shown is not None:
            return any(fnmatchcase(tool.name, each) for each in spec.shown)
        return tool.name not in ON_REQUEST or any(names(spec, w) for w in (tool.name, *tool.aliases))
    as_tool = tool.name not in DELEGATION_TOOLS
    if not config.policy.offers(depth, as_tool=as_tool) or not offers(config, tool.name):
        return False
    if not as_tool:
        return True
    usable = tool.name != spec.name and tool.name not in config.unusable
    return usable and useful(config, tool.name, authority, depth)


def startable(
    config: WorkflowConfig, spec: AgentSpec, authority: Authority, above: tuple[str, ...]
) -> list[AgentSpec]:
    """The registered agents that a run below those `above` may start by name: no rule denies them."""
    return [
        agent
        for agent in config.agents.values()
        if agent.name in authority.tools
        and agent.name != spec.name
        and agent.name not in config.unusable
        and authority.rules.judge(agent_call(agent.name, spec.name, above)).action != "deny"
        and useful(config, agent.name, authority, len(above))
    ]


def why_useless(config: WorkflowConfig, agent: str, authority: Authority, depth: int) -> str:
    """Why a registered agent cannot begin, or would hold none of its tools as a child of such a run; empty if
    it would."""
    if why := config.unusable.get(agent):
        return f"it cannot be used here: {why}"
    spec = config.agents.get(agent)
    if spec is None or useful(config, agent, authority, depth):
        return ""
    others = [each for each in config.agents if each in authority.narrow(spec).tools]
    if not others:
        return f"it would have none of its tools ({', '.join(spec.tools or ())}), which you have not"
    if config.policy.offers(depth + 1, as_tool=True) and offers(config, AGENTS):
        limit = "these would have none of their tools: it has to name those as well"
    elif config.policy.enabled and config.policy.kind == "flat":
        limit = "the policy 'flat' lets only the root delegate (delegation.policy = \"nested\" lets it)"
    else:
        limit = "nothing is delegated from there (delegation.max_depth, delegation.tools)"
    return f"all it would have are agents ({', '.join(others)}), and {limit}. Ask those yourself"


def useful(config: WorkflowConfig, agent: str, authority: Authority, depth: int) -> bool:
    """Whether an agent would hold any of its tools as a child of a run with this authority at that depth.

    Another agent is one of them where it may be delegated to from there, and is of use itself.
    """
    level, seen = {agent: authority}, set[str]()
    while level:
        below: dict[str, Authority] = {}
        for name, parent in level.items():
            spec = config.agents.get(name)
            if spec is None:
                continue
            held = parent.narrow(spec)
            if not spec.tools or any(tool in held.tools for tool in config.tools):
                return True
            below |= {each: held for each in config.agents if each in held.tools}
        seen |= level.keys()
        depth += 1
        if not (config.policy.offers(depth, as_tool=True) and offers(config, AGENTS)):
            return False
        level = {name: held for name, held in below.items() if name not in seen}
    return False


def offers(config: WorkflowConfig, way: str) -> bool:
    """Whether the settings offer this way to delegate: a delegation tool, or an agent as a tool."""
    return (way if way in DELEGATION_TOOLS else AGENTS) in config.settings.delegation.ways


def of_another(config: WorkflowConfig, name: str, spec: AgentSpec) -> bool:
    """Whether a tool is of a server that another agent's file defines for itself."""
    server = server_of(name)
    if not server or config.servers is None:
        return False
    agent = config.servers.of_agents.get(server, "")
    return bool(agent) and agent != spec.name and server not in (spec.mcp_servers or ())


def _isolates(config: WorkflowConfig, authority: Authority, depth: int) -> bool:
    """Whether a run may have children that work in copies of the project, and may merge what they did."""
    if config.project is None or not authority.writable or not authority.project:
        return False
    if config.policy.offers(depth, as_tool=True) and any(spec.isolation for spec in config.agents.values()):
        return True
    if not any(
        config.tools[name].effect in WRITES for name in authority.tools - MERGES if name in config.tools
    ):
        return False  # no child of it could write either
    return config.policy.offers(depth) and any(
        offers(config, way) and way in authority.tools for way in DELEGATION_TOOLS
    )


def _chosen(config: WorkflowConfig, name: str, spec: AgentSpec) -> bool:
    """Whether a program's agent itself says which of the program's tools it is shown; those over what is
    attached are none of them."""
    own = name in (config.own or ()) and not name.startswith("sheet_")
    return spec.origin == "code" and spec.shown is not None and own


def _only_lent(config: WorkflowConfig, name: str, spec: AgentSpec, depth: int) -> bool:
    """Whether a program's agent that names no tools holds this one for another agent alone."""
    unnamed = depth == 0 and spec.tools is None and spec.origin == "code"
    return unnamed and config.own is not None and name in config.lent - config.own


def agent_call(agent: str, caller: str, above: tuple[str, ...]) -> Asked:
    """The call of a registered agent, as rules see it."""
    return Asked(tool=agent, effect="delegate", risk="low", agent=caller, above=above, arguments={})


def names(spec: AgentSpec, tool: str) -> bool:
    """Whether an agent asks for a tool by name, or for a memory and so for the tools over it."""
    return tool in (spec.tools or ()) or (spec.memory and tool.startswith("memory_"))
