"""Builds runs: a spec and a place in the tree become a `Run` with its model, tools, authority and files.

The same for a root, a child and a run that is taken up again. Used by the workflow alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from retinue import context
from retinue.approvals import Authority
from retinue.budget import Budget, Clock
from retinue.delegate import ChildRunner, agent_tool, delegation_tools
from retinue.engine.config import WorkflowConfig, review
from retinue.engine.resources import RunResources
from retinue.errors import Refused
from retinue.events import AnyEvent, RunStarted
from retinue.fold import RunState
from retinue.models.base import Model, identify
from retinue.run import Gate, Judge, Run, RunLog, SystemPrompt, storable
from retinue.tools.base import Tool
from retinue.types import AgentSpec, Effect, ToolSpec
from retinue.workspace import Files, Workspace


class Builder:
    """`logs` are those of a tree that is taken up again: what a run has to itself is rebuilt from them."""

    def __init__(
        self,
        config: WorkflowConfig,
        root_id: str,
        runner: ChildRunner,
        *,
        gate: Gate,
        judge: Judge,
        linger: Callable[[Run], Awaitable[bool]],
        dismiss: Callable[[Run, str], Awaitable[None]],
        keep: Callable[[Run, Sequence[str]], Awaitable[None]],
    ) -> None:
        self.config = config
        self.root_id = root_id
        self.logs: dict[str, list[AnyEvent]] = {}
        self.resources: dict[str, RunResources] = {}
        self._runner = runner
        self._gate = gate
        self._judge = judge
        self._linger = linger
        self._dismiss = dismiss
        self._keep = keep
        self._host = socket.gethostname()
        # The spec is kept so that its id stays its own.
        self._equipped: dict[
            tuple[int, frozenset[str], frozenset[Effect], int],
            tuple[AgentSpec, dict[str, Tool], tuple[ToolSpec, ...]],
        ] = {}

    @cached_property
    def tools(self) -> dict[str, Tool]:
        """Every tool there is in this workflow, delegation included."""
        made = [
            *delegation_tools(self._runner),
            *(agent_tool(s, self._runner) for s in self.config.agents.values()),
        ]
        return {
            **self.config.tools,
            **{tool.name: self._if_offered(self.config.staged(tool)) for tool in made},
        }

    def _if_offered(self, tool: Tool) -> Tool:
        """A way to delegate that the settings do not offer is refused, whoever names it.

        By `admit`: a call that had begun before the settings changed still gets its child's report.
        """
        if self.config.offers(tool.name):
            return tool
        ways = ", ".join(self.config.settings.delegation.tools) or "none"

        def refuse(arguments: dict[str, Any], run_id: str) -> None:
            raise Refused(
                f"not run: {tool.name} is not among the ways to delegate here (delegation.tools: {ways}). "
                "Use one that you are offered, or do the work yourself.",
                not_run="limit",
            )

        return replace(tool, admit=refuse)

    async def identify(self, spec: AgentSpec, parent: Run | None) -> None:
        """Have the model of a run that is about to be built known by its full name."""
        if self.config.recorded is None:
            await identify(self.config.model(spec.model, parent.model if parent else None))

    def build(
        self,
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
    ) -> Run:
        config, depth = self.config, 0 if parent is None else parent.depth + 1
        played = config.recorded(run_id, spec) if config.recorded else None
        if played is not None:
            model, system = played.model, played.system
        model = model or config.model(spec.model, parent.model if parent else None)
        held, shown = self._equipment(spec, authority, depth)
        resources = RunResources(config, spec, self.logs.get(run_id, ()))
        own = {t.name: t for t in resources.tools(held, authority) if authority.permits(t.name, t.effect)}
        if own:
            held = {**held, **own}
            shown += tuple(t.spec for t in own.values() if config.shows(t, spec, authority, depth))
        run = Run(
            id=run_id,
            root_id=self.root_id,
            parent_id=parent.id if parent else None,
            depth=depth,
            spec=spec,
            path=(*parent.path, spec.name) if parent else (spec.name,),
            label=label,
            system=self._system(spec, authority, depth) if system is None else system,
            model=model,
            tools=held,
            shown=shown,
            authority=authority,
            budget=budget,
            clock=self._clock(spec, budget, parent, used),
            files=self._files(authority),
            log=self._log(run_id, parent, state),
            gate=self._gate,
            judge=self._judge,
            limits=config.settings.limits,
            context=config.settings.context,
            max_turns=config.max_turns(spec, depth),
            review=partial(review, strict_sources=config.strict_sources),
            linger=self._linger,
            dismiss=self._dismiss,
            keep=self._keep,
            small=lambda: config.small(model),
            notes=resources.notes.summary,
            corrections=config.settings.delegation.corrections,
            recorded_ms=played.duration_ms if played is not None else None,
        )
        resources.run = run
        self.resources[run_id] = resources
        return run

    def _clock(self, spec: AgentSpec, budget: Budget, parent: Run | None, used: float) -> Clock:
        above = parent.clock if parent else None
        return Clock(self.config.seconds(spec, budget.limits, above, used), parent=above, used=used)

    def _files(self, authority: Authority) -> Files:
        settings = self.config.settings.workspace
        root = Path(settings.root) if settings.root else None
        workspace = Workspace(quota=settings.quota_mb * 1_000_000, root=root)
        project = self.config.project if authority.project else None
        return Files(project=project, workspace=workspace, writable=authority.writable)

    def _log(self, run_id: str, parent: Run | None, state: RunState) -> RunLog:
        return RunLog(
            run_id=run_id,
            root_id=self.root_id,
            parent_id=parent.id if parent else None,
            depth=parent.depth + 1 if parent else 0,
            append=self.config.store.append,
            publish=self.config.publish,
            state=state,
        )

    def _equipment(
        self, spec: AgentSpec, authority: Authority, depth: int
    ) -> tuple[dict[str, Tool], tuple[ToolSpec, ...]]:
        """The tools that a run holds, by name and alias, and those that it is shown.

        Worked out once for all children of one kind: a parent may start a thousand of them.
        """
        key = (id(spec), authority.tools, authority.effects, depth)
        if key not in self._equipped:
            held = {n: t for n, t in self.tools.items() if authority.permits(n, t.effect)}
            shown = tuple(t.spec for t in held.values() if self.config.shows(t, spec, authority, depth))
            same = {name: tool for tool in held.values() for name in tool.same}
            aliases = {alias: tool for tool in held.values() for alias in tool.aliases}
            self._equipped[key] = (spec, {**same, **aliases, **held}, shown)
        return self._equipped[key][1:]

    def _system(self, spec: AgentSpec, authority: Authority, depth: int) -> SystemPrompt:
        confined = self.config.project is not None and not authority.project
        return context.system_prompt(
            spec,
            cwd=self.config.project.name if self.config.project and not confined else "",
            workspace=True,
            confined=confined,
            # A program says by itself what its agents are told.
            instructions=self.config.instructions
            if depth == 0 and not confined and spec.origin != "code"
            else "",
            fragments=self.config.fragments if depth == 0 else (),
        )

    def started(self, run: Run, prompt: str, *, private: Iterable[str] = (), **more: Any) -> RunStarted:
        """`private` is what had been read by whoever wrote the prompt."""
        remembered = (f"the memory of {run.spec.name}",) if run.spec.memory else ()
        return run.log.stamp(
            RunStarted,
            spec=run.spec,
            prompt=storable(prompt),
            system=run.system.text,
            parts=run.system.parts,
            label=run.label,
            model=run.model.name,
            limits=run.budget.limits,
            tools=tuple(spec.name for spec in run.shown),
            cwd=str(self.config.project or ""),
            host=self._host,
            pid=os.getpid(),
            owner=self.config.owner,
            private=(*private, *remembered),
            **more,
        )
