"""Builds runs: a spec and a place in the tree become a `Run` with its model, tools, authority and files.

The same for a root, a child and a run that is taken up again. Called by the workflow, its children and
resume. Starts nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retinue import context
from retinue.approvals import Authority, Rules
from retinue.budget import Budget
from retinue.builtin_tools import DELEGATION_TOOLS
from retinue.clock import Clock
from retinue.delegate import ChildRunner, agent_tool, delegation_tools
from retinue.delegate.offering import offered
from retinue.engine.config import WorkflowConfig
from retinue.engine.inquiries import inquire
from retinue.engine.judge import judge_claims
from retinue.engine.pages import pages_below
from retinue.engine.parking import park, wait_out
from retinue.engine.report_check import review
from retinue.engine.resources import RunResources, memory_of
from retinue.engine.root_checks import check_tools
from retinue.engine.run_guards import guards_of
from retinue.engine.sampling import sample
from retinue.engine.tools_shown import of_another, offers, shows, startable
from retinue.engine.tree import RunTree
from retinue.errors import Refused
from retinue.events import RunStarted
from retinue.instructions import NestedInstructions
from retinue.mcp.search import search_tool
from retinue.mcp.tools import server_of
from retinue.models.base import Model, lacking
from retinue.run import Run, SystemPrompt, always_over, no_guidance, not_recorded
from retinue.run_log import RunLog, storable
from retinue.run_state import RunState
from retinue.skills import Skill
from retinue.tools.base import Tool
from retinue.tools.skills import listed, skill_tool
from retinue.types import AgentSpec, Effect, EndedBy, ToolSpec
from retinue.web.framing import frame
from retinue.workspace import Files
from retinue.workspace_folder import Workspace

if TYPE_CHECKING:
    from retinue.engine.workflow import Workflow


KINDS = 64
"""So many kinds of runs are remembered: every child that a model makes up is one of its own."""

Key = TypeVar("Key")
Kind = TypeVar("Kind")


def remember(known: dict[Key, Kind], key: Key, worked_out: Callable[[], Kind]) -> Kind:
    """What is known for a key, or is worked out now; what was not asked for the longest is forgotten."""
    known[key] = found = known.pop(key) if key in known else worked_out()
    if len(known) > KINDS:
        del known[next(iter(known))]
    return found


class Toolbox:
    """Which tools a run of a workflow holds, and which it is shown."""

    def __init__(self, config: WorkflowConfig, runner: ChildRunner) -> None:
        self.config, self._runner = config, runner
        # The spec is kept so that its id stays its own.
        self._known: dict[
            tuple[int, frozenset[str], frozenset[Effect], Rules, tuple[str, ...]],
            tuple[AgentSpec, dict[str, Tool], tuple[ToolSpec, ...]],
        ] = {}
        self._version = self.version

    @property
    def version(self) -> int:
        """Another number: MCP servers offer other tools."""
        return 0 if self.config.servers is None else self.config.servers.version

    @cached_property
    def _own(self) -> dict[str, Tool]:
        """The ways to delegate."""
        config = self.config
        made = [
            *delegation_tools(self._runner),
            *(agent_tool(spec, self._runner) for spec in config.agents.values()),
        ]
        return {tool.name: self._if_offered(config.staged(tool)) for tool in made}

    @property
    def _all(self) -> dict[str, Tool]:
        """Every tool there is in this workflow, delegation included."""
        config = self.config
        tools = config.tools
        if self.version:
            tools = {name: tool for name, tool in tools.items() if not server_of(name)}
            tools |= {} if config.servers is None else config.servers.tools
        return {**tools, **self._own}

    def _if_offered(self, tool: Tool) -> Tool:
        """A way to delegate that the settings do not offer is refused, whoever names it.

        By `admit`: a call that had begun before the settings changed still gets its child's report.
        """
        if offers(self.config, tool.name):
            return tool
        ways = ", ".join(self.config.settings.delegation.ways) or "none"

        def refuse(arguments: dict[str, Any], run_id: str) -> None:
            raise Refused(
                f"not run: {tool.name} is not among the ways to delegate here (delegation.tools: {ways}). "
                "Use one that you are offered, or do the work yourself.",
                not_run="limit",
            )

        return replace(tool, admit=refuse)

    def withheld(self, depth: int, name: str) -> Tool | None:
        """The way to delegate of this name, for who does not hold it. At the last level nobody holds one:
        whoever calls one there is told why."""
        tool = self._all.get(name)
        if tool is None or tool.effect != "delegate":
            return None
        self.config.policy.admit(depth)
        return tool

    def of(
        self, spec: AgentSpec, authority: Authority, above: tuple[str, ...]
    ) -> tuple[dict[str, Tool], tuple[ToolSpec, ...]]:
        """The tools that a run holds, by name and alias, and those that it is shown, below those `above`.

        Worked out once for all children of one kind: a parent may start a thousand of them.
        """
        if self._version != self.version:
            self._version = self.version
            self._known.clear()
        tools = authority.tools | authority.open_servers
        key = (id(spec), tools, authority.effects, authority.rules, above)
        return remember(self._known, key, partial(self._worked_out, spec, authority, above))[1:]

    def _worked_out(
        self, spec: AgentSpec, authority: Authority, above: tuple[str, ...]
    ) -> tuple[AgentSpec, dict[str, Tool], tuple[ToolSpec, ...]]:
        depth = len(above)
        held = {n: t for n, t in self._all.items() if authority.permits(n, t.effect)}
        shown = [t.spec for t in held.values() if shows(self.config, t, spec, authority, depth)]
        agents = startable(self.config, spec, authority, above)
        named = {each.name for each in shown}
        as_tools = all(agent.name in named for agent in agents)
        shown = tuple(
            offered(each, agents, described=as_tools) if each.name in DELEGATION_TOOLS else each
            for each in shown
        )
        same = {name: tool for tool in held.values() for name in tool.same}
        aliases = {alias: tool for tool in held.values() for alias in tool.aliases}
        return spec, {**same, **aliases, **held}, shown


class Offer:
    """What one run is offered, and when that has to be worked out again."""

    def __init__(
        self,
        toolbox: Toolbox,
        resources: RunResources,
        more: Sequence[Tool],
        spec: AgentSpec,
        authority: Authority,
        above: tuple[str, ...],
    ) -> None:
        self._toolbox, self._resources, self._more = toolbox, resources, more
        self._spec, self._authority, self._above = spec, authority, above
        self._known: tuple[int, int] = (-1, -1)
        self._own: dict[str, Tool] | None = None

    def now(self, state: RunState) -> tuple[dict[str, Tool], tuple[ToolSpec, ...]]:
        """The tools that the run holds, by name and alias, and those that it is shown."""
        self._known = (self._toolbox.version, len(state.shows))
        spec, authority, depth = self._spec, self._authority, len(self._above)
        held, shown = self._toolbox.of(spec, authority, self._above)
        if self._own is None:
            made = [*self._resources.tools(held, authority), *self._more]
            self._own = {t.name: t for t in made if authority.permits(t.name, t.effect)}
        if self._own:
            held = {**held, **self._own}
            config, own = self._toolbox.config, self._own.values()
            shown += tuple(t.spec for t in own if shows(config, t, spec, authority, depth))
        return self._searched(held, shown, state)

    def _searched(
        self, held: dict[str, Tool], shown: tuple[ToolSpec, ...], state: RunState
    ) -> tuple[dict[str, Tool], tuple[ToolSpec, ...]]:
        """Of many tools of MCP servers, those that were found, and what finds the others."""
        of_servers = [each for each in shown if server_of(each.name)]
        if len(of_servers) <= self._toolbox.config.settings.mcp.search_above:
            return held, shown
        found = search_tool(of_servers)
        kept = [each for each in shown if not server_of(each.name) or each.name in state.shows]
        return {**held, found.name: found}, (*kept, found.spec)

    def refresh(self, run: Run) -> None:
        if self._known != (self._toolbox.version, len(run.state.shows)):
            run.tools, run.shown = self.now(run.state)


def build(
    workflow: Workflow,
    run_id: str,
    parent: Run | None,
    spec: AgentSpec,
    *,
    authority: Authority,
    budget: Budget,
    state: RunState,
    label: str,
    system: SystemPrompt | None = None,
    model: Model | None = None,
    used: float = 0.0,
) -> tuple[Run, RunResources]:
    """A run, and what it has to itself. Neither keeps the workflow."""
    tree, questions, config = workflow.tree, workflow.questions, workflow.tree.config
    depth = 0 if parent is None else parent.depth + 1
    played = config.recorded(run_id, spec) if config.recorded else None
    if played is not None:
        model, system = played.model, played.system
    model = model or config.model_of(spec, parent.model if parent else None)
    if system is None:
        check_tools(config, spec)
    # A run that is taken up goes on without a skill that is gone since; a new one does not begin.
    above = parent.skills if parent is not None and spec.lifecycle == "temporary" else None
    skills = config.skills(spec, authority, depth, complete=system is None, above=above)
    skill = played.skill if played is not None else skill_tool(skills) if skills else None
    resources = RunResources(config, spec, tree.logs.get(run_id, ()), skill, played)
    path = parent.path if parent is not None else ()
    offer = Offer(workflow.toolbox, resources, workflow.isolation.tools(), spec, authority, path)
    held, shown = offer.now(state)
    # A replay plays time back as well: no clock of today ends anything in it.
    seconds = config.seconds(spec, budget.limits, root=parent is None) if played is None else None
    patience = config.patience(spec, budget.limits, root=parent is None) if played is None else None
    clock = Clock(seconds, parent=parent.clock if parent else None, used=used, patience=patience)
    run = Run(
        id=run_id,
        root_id=tree.root_id,
        parent_id=parent.id if parent else None,
        depth=depth,
        spec=spec,
        path=(*path, spec.name),
        label=label,
        system=_system(config, spec, authority, depth, skills, held) if system is None else system,
        model=model,
        tools=held,
        shown=shown,
        skills=skills,
        authority=authority,
        budget=budget,
        clock=clock,
        files=_files(tree, authority, skills, workflow.isolation.folder(run_id, spec, parent)),
        log=_log(config, run_id, tree.root_id, parent, state),
        gate=questions.gate,
        in_line=questions.order.in_line,
        judge=questions.judge,
        limits=config.settings.limits,
        context=config.settings.context,
        max_turns=config.max_turns(spec, depth),
        review=partial(review, strict_sources=config.strict_sources, kinds=config.kinds),
        linger=tree.linger,
        left=tree.left,
        leaves=config.parent_ends(depth) == "leave",
        dismiss=tree.dismiss,
        unheard=tree.unheard,
        short=played.short.get if played is not None else lambda step: _short(clock, budget),
        recorder=workflow.recorder,
        park=partial(park, tree),
        wait_out=partial(wait_out, tree),
        closing=workflow.isolation.closing if played is None else played.closing,
        keep=workflow.kept.keep,
        small=lambda: (played.small if played is not None else None) or config.small(model),
        judge_claims=partial(judge_claims, _judge(config, model), config.judged),
        summaries=played.summaries if played is not None else None,
        notes=resources.notes.summary,
        withheld=partial(workflow.toolbox.withheld, depth),
        returned=questions.started_all,
        inquire=partial(inquire, questions),
        sample=partial(sample, questions),
        refresh=offer.refresh,
        pages_below=partial(_pages_below, config),
        guidance=_guidance(config, spec, authority, depth) if played is None else played.guidance,
        corrections=config.settings.delegation.corrections,
        deps=config.deps,
        guards=guards_of(config, spec) if played is None else played.guards,
        metadata=config.options.metadata,
        due=played.due if played is not None else partial(workflow.tree.due, run_id),
        call_due=played.call_due if played is not None else partial(workflow.tree.due, run_id),
        answer_due=played.answer_due if played is not None else always_over,
        brings=played.brings if played is not None else not_recorded,
        in_copy=workflow.isolation.copies(spec, parent),
        recorded_ms=played.duration_ms if played is not None else None,
        recorded_cuts=list(played.cuts) if played is not None else None,
    )
    return run, resources


def _short(clock: Clock, budget: Budget) -> tuple[EndedBy, str] | None:
    """Why a run has to sum up now, as a fact and in words."""
    if (late := clock.short()) is not None:
        return "time", late
    if (poor := budget.short()) is not None:
        return "budget", poor
    return None


async def _pages_below(config: WorkflowConfig, run: Run) -> dict[str, str]:
    pages = await pages_below(config.store, run.root_id, run.id, None)
    return {name: page.text for page in pages for name in page.aliases}


def _judge(config: WorkflowConfig, model: Model) -> Callable[[], Model] | None:
    """Who decides on claims, if anyone does. In a replay it says what was said then."""
    wanted = config.settings.sources.judge
    if wanted == "off" and config.judged is None:
        return None
    if wanted in ("off", "small"):
        return lambda: config.small(model)
    return lambda: config.model(wanted, model, {})


def _files(tree: RunTree, authority: Authority, skills: tuple[Skill, ...], project: Path | None) -> Files:
    config = tree.config
    settings = config.settings.workspace
    root = Path(settings.root) if settings.root else None
    workspace = Workspace(quota=settings.quota_mb * 1_000_000, root=root)
    return Files(
        project=project if authority.project else None,
        workspace=workspace,
        writable=authority.writable,
        readable=tuple(str(skill.folder) for skill in skills if skill.scope == "user"),
        protected=() if project == config.project else (".git",),
        origin=None if config.worktrees is None else config.worktrees.origin(project),
        # Of a copy of the project nobody holds anything.
        buffers=config.buffers if project == config.project else None,
        root_id=tree.root_id,
    )


def _log(config: WorkflowConfig, run_id: str, root_id: str, parent: Run | None, state: RunState) -> RunLog:
    return RunLog(
        run_id=run_id,
        root_id=root_id,
        parent_id=parent.id if parent else None,
        depth=parent.depth + 1 if parent else 0,
        append=config.store.append,
        publish=config.publish,
        state=state,
    )


def _instructed(spec: AgentSpec, authority: Authority, depth: int) -> bool:
    """Whether a run is shown the project's instructions: its agent says so, or it is the main agent.

    A program says by itself what its agents are told, and who sees its workspace alone works on no project.
    """
    wanted = spec.instructions if spec.instructions is not None else depth == 0 and spec.origin != "code"
    return wanted and authority.project


def _guidance(
    config: WorkflowConfig, spec: AgentSpec, authority: Authority, depth: int
) -> Callable[[str], tuple[str, str] | None]:
    if config.project is None or not config.settings.context.instructions:
        return no_guidance
    if not _instructed(spec, authority, depth):
        return no_guidance
    return NestedInstructions(config.project, authority.rules).nearest


def _system(
    config: WorkflowConfig,
    spec: AgentSpec,
    authority: Authority,
    depth: int,
    skills: tuple[Skill, ...],
    held: Mapping[str, Tool],
) -> SystemPrompt:
    confined = config.project is not None and not authority.project
    return context.system_prompt(
        spec,
        cwd="" if confined else _folder_name(config),
        workspace=True,
        confined=confined,
        # A program says by itself what its agents are told.
        instructions=config.instructions if _instructed(spec, authority, depth) else "",
        fragments=config.fragments if depth == 0 else (),
        skills=listed(skills, config.settings.context.skill_tokens * 4),
        servers=_of_servers(config, spec, held),
    )


def _folder_name(config: WorkflowConfig) -> str:
    if config.folder_name is not None:
        return config.folder_name
    return config.project.name if config.project else ""


def _of_servers(config: WorkflowConfig, spec: AgentSpec, held: Mapping[str, Tool]) -> str:
    """What the servers say whose tools a run holds: their words, and no orders of ours."""
    if config.servers is None:
        return ""
    names = dict.fromkeys(server_of(n) for n in held if server_of(n) and not of_another(config, n, spec))
    found = config.servers.instructions(names)
    return "\n\n".join(frame(text, what=f"MCP server {name} on its tools") for name, text in found.items())


def started(
    config: WorkflowConfig, run: Run, prompt: str, *, private: Iterable[str] = (), **more: Any
) -> RunStarted:
    """The first event of a run. `private` is what had been read by whoever wrote the prompt."""
    remembered = (memory_of(run.spec),) if run.spec.memory else ()
    return run.log.stamp(
        RunStarted,
        spec=run.spec,
        prompt=storable(prompt),
        system=run.system.text,
        parts=run.system.parts,
        label=run.label,
        model=run.model.name,
        unmet=dict(lacking(run.model, run.spec.asks_with)),
        limits=run.budget.limits,
        tools=tuple(spec.name for spec in run.shown),
        cwd=str(config.project or ""),
        host=socket.gethostname(),
        pid=os.getpid(),
        owner=config.owner,
        private=(*private, *remembered),
        **more,
    )
