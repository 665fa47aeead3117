"""What the delegation tools call: start a child under a parent, wait for it, stop it, speak to it, list it.

The engine's `ChildRunner`. Also what a parent is told when a child ends. Lives as long as its workflow, which
builds and launches the runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from retinue import small_call
from retinue.budget import HeldPlaces
from retinue.builtin_tools import DELEGATION_TOOLS
from retinue.delegate import AGENTS, AskedAgain, ChildInfo, ChildRequest
from retinue.engine.build import build, remember, started
from retinue.engine.concern import handed_on
from retinue.engine.ended import child_ended
from retinue.engine.resources import CODE_RESULT
from retinue.engine.resume import ask_again, check_goes_on, take_up_child
from retinue.engine.tools_shown import MERGES, WRITES, startable, why_useless
from retinue.engine.tree import LiveRun, RunTree
from retinue.errors import Fenced, StoreError, ToolError, in_words, unwind
from retinue.events import ChildStarted, MessageReceived
from retinue.models.providers import providers_of
from retinue.reports import Framed, cut_with_notice, ending_with, frame, length, shown_bytes
from retinue.run import Run
from retinue.run_ids import child_id
from retinue.run_state import RunState
from retinue.threads import briefly
from retinue.types import (
    ENDED,
    HANDED_ON,
    AgentSpec,
    Apart,
    Effort,
    ModelRequest,
    ModelSettings,
    Report,
    SummaryFunction,
    Usage,
    UserMessage,
)

if TYPE_CHECKING:
    from retinue.engine.workflow import Workflow

log = logging.getLogger("retinue")


class Children:
    """The children of every run of a workflow. A parent is named by its run id."""

    def __init__(self, tree: RunTree, workflow: Workflow) -> None:
        self.tree = tree
        self._workflow = workflow
        """A weak reference: tools lead here, and must not keep the workflow that has made them."""
        self._specs: dict[tuple[int, int, Effort, str], tuple[AgentSpec, AgentSpec, AgentSpec]] = {}
        """Specs with an effort, settings of their parent's or a copy of the project that they do not ask for
        by themselves. Each is kept with its parent's, so that their ids stay their own; each is made once,
        since what is worked out for a spec is kept by its id as well."""

    def admit(self, parent_id: str, *, count: int = 1, as_tool: bool = False) -> None:
        parent, policy = self.tree.run(parent_id), self.tree.config.policy
        policy.admit(parent.depth)
        parent.budget.check_children(count, as_tool=as_tool)
        parent.clock.admit_child()

    def hold_places(self, parent_id: str, call_id: str, count: int) -> HeldPlaces | None:
        parent = self.tree.run(parent_id)
        # Begun before a restart: who has a child already must not lose it for one that has not.
        begun = any(child.call_id == call_id for child in parent.state.children.values())
        return None if begun else parent.budget.hold_places(count)

    async def start(self, parent_id: str, request: ChildRequest) -> str:
        parent, config = self.tree.run(parent_id), self.tree.config
        run_id = child_id(parent_id, request.call_id, request.key)
        if run_id in self.tree.live:
            return run_id
        if run_id in parent.state.children:
            await take_up_child(self._workflow, parent, run_id)
            return run_id
        config.policy.admit(parent.depth)
        spec = await self._prompted(self._as_asked(request, parent))
        await config.identify(spec, parent)
        needed = config.turns_needed(spec, parent.depth + 1)
        await self._workflow.isolation.prepare(run_id, spec, parent)
        check_goes_on(parent)
        recorded = config.started_then(parent_id, request.call_id, request.key)
        budget = parent.budget.carve(spec.limits, name=spec.name, turns=needed, recorded=recorded)
        try:
            run, resources = build(
                self._workflow,
                run_id,
                parent,
                spec,
                authority=parent.authority.narrow(spec),
                budget=budget,
                state=RunState(),
                label=request.label,
            )
            # Counted last: a child that cannot be built (its model is not to be had) has not been started.
            if request.places is not None:
                request.places.take()
            parent.budget.admit_child(as_tool=request.as_tool)
            # Before its parent's: where this cannot be written, the parent's log must not have begun it.
            read = handed_on(self.tree, parent, run_id, request.call_id)
            first = started(config, run, request.prompt, call_id=request.call_id, private=read)
        except BaseException:
            budget.release()
            raise
        began = parent.log.stamp(
            ChildStarted,
            child_id=run_id,
            agent=spec.name,
            prompt=request.prompt,
            label=request.label,
            call_id=request.call_id,
            key=request.key,
            reserved=budget.limits,
            background=request.background,
            as_tool=request.as_tool,
        )
        # In line at once and in one transaction: a child is in its parent's log if and only if it exists.
        written = parent.log.commit(began, first)
        self._workflow.launch(run, resources, background=began.background, stored=written)
        await asyncio.shield(written)  # the child waits for it too, and is not to lose it with its parent
        return run_id

    async def _prompted(self, spec: AgentSpec) -> AgentSpec:
        try:
            return await self.tree.config.prompted(spec)
        except Exception as error:  # of the program's own function
            log.warning("the prompt of %s could not be made: %r", spec.name, error)
            raise ToolError(f"{spec.name} cannot be started: its prompt could not be made") from error

    def _as_asked(self, request: ChildRequest, parent: Run) -> AgentSpec:
        """As this delegation wants it, else as the agent itself says; its effort and what else is handed on
        else as its parent works."""
        spec, above = request.spec, parent.spec
        effort = request.effort or spec.asks_with.effort or above.asks_with.effort
        isolation = "worktree" if request.isolation == "worktree" else spec.isolation
        handed = ModelSettings()
        if above.model_settings.given and self._same_provider(spec, parent):
            handed = above.model_settings.only(*HANDED_ON).without({"effort"})
        if (effort, isolation) == (spec.effort, spec.isolation) and not handed.given:
            return spec

        def asked() -> tuple[AgentSpec, AgentSpec, AgentSpec]:
            own = spec.model_settings.over(handed)
            changed = {"effort": effort, "isolation": isolation, "model_settings": own}
            return msgspec.structs.replace(spec, **changed), spec, above

        return remember(self._specs, (id(spec), id(above), effort, isolation), asked)[0]

    def _same_provider(self, spec: AgentSpec, parent: Run) -> bool:
        """Whether a child's models are all of its parent's providers: another one may know other settings,
        and what a header holds is not for it."""
        if self.tree.config.recorded is not None:
            return True
        model = self.tree.config.model_of(spec, parent.model)
        return providers_of(model.name) <= providers_of(parent.model.name)

    async def wait(self, parent_id: str, child_id: str) -> Report:
        """A child's report. The parent lends its slot while it waits."""
        child = self._child(parent_id, child_id)
        if isinstance(child, Report):
            return child
        parent = self.tree.run(parent_id)
        call_id = parent.state.children[child_id].call_id
        self._workflow.questions.started_all(parent, call_id)
        async with self.tree.resting(parent_id, call_id.split("/")[0]):
            await asyncio.wait([child.task])
        if child.task.cancelled():
            raise ToolError(f"the child {child_id} was stopped")
        return child.task.result()

    def _child(self, parent_id: str, child_id: str) -> LiveRun | Report:
        parent = self.tree.run(parent_id)
        if child_id not in parent.state.children:
            known = ", ".join(parent.state.children) or "none"
            raise ToolError(f"there is no child {child_id!r} of yours. Your children: {known}")
        live = self.tree.live.get(child_id)
        if live is not None:
            return live
        past = self.tree.past.get(child_id)
        if past is None or past.report is None:
            raise ToolError(f"the child {child_id} is not running")
        return past.report

    async def cancel_child(self, parent_id: str, child_id: str, reason: str) -> Report:
        child = self._child(parent_id, child_id)
        if isinstance(child, Report):
            return child
        await self.tree.config.cancelling(child_id)
        if not child.task.done():
            self.tree.cancel(child_id, reason, by="parent")
        return await self.wait(parent_id, child_id)

    async def message_child(self, parent_id: str, child_id: str, text: str, call_id: str) -> None:
        child = self._child(parent_id, child_id)
        if isinstance(child, Report) or child.over:
            raise ToolError(f"the child {child_id} has ended and reads no more messages")
        read = handed_on(self.tree, self.tree.run(parent_id), child_id, call_id, text)
        written = child.run.log.write(MessageReceived, text=text, sender="parent", private=read)
        self.tree.spoken_to(child_id)
        await written

    def check_ended(self, parent_id: str, child_id: str) -> None:
        child = self._child(parent_id, child_id)
        if child_id in self.tree.continuing or (isinstance(child, LiveRun) and not child.over):
            raise ToolError(
                f"the child {child_id} is still at work, so it cannot be asked again yet: wait for its "
                "report, or send it a message"
            )

    async def ask_again(self, parent_id: str, child_id: str, asked: AskedAgain) -> None:
        parent = self.tree.run(parent_id)
        began = parent.state.children.get(child_id)
        if began is not None and began.continues and began.call_id == asked.call_id:
            await take_up_child(self._workflow, parent, child_id)  # asked before a restart
            return
        self.check_ended(parent_id, child_id)
        self.tree.config.policy.admit(parent.depth)
        self.tree.continuing.add(child_id)
        try:
            live = self.tree.live.get(child_id)
            if live is not None and not live.task.done():
                await asyncio.wait([live.task])  # its end is written, and it tidies up
            await ask_again(self._workflow, parent, child_id, asked)
        finally:
            self.tree.continuing.discard(child_id)

    async def ask_for_people(self, parent: Run) -> None:
        """Ask the children again that people asked, as the parent's log has it: once each, in the background.

        Where one cannot be asked, whoever started it is told why.
        """
        for message in list(parent.state.asks.values()):
            if message.asks in self.tree.continuing or message.message_id not in parent.state.asks:
                continue  # another word of a person has it asked
            asked = AskedAgain(
                prompt=message.text,
                call_id=message.message_id,
                background=True,
                by_person=True,
                max_turns=message.max_turns,
                rendered=message.rendered,
                images=message.images,
            )
            try:
                await self.ask_again(parent.id, message.asks, asked)
            except (Fenced, StoreError):
                raise
            except Exception as error:
                if parent.is_ending:
                    return  # whoever takes it up asks
                parent.state.asks.pop(message.message_id, None)
                why = f"[{message.asks} could not be asked again: {in_words(error)}]"
                parent.log.write(
                    MessageReceived, text=why, sender="system", message_id=f"{message.message_id} no"
                )
                self.tree.spoken_to(parent.id)
                self._workflow.inbox.deliver_again(message.asks)

    # -- what a parent knows ---------------------------------------------------

    def children(self, parent_id: str) -> list[ChildInfo]:
        rows: list[ChildInfo] = []
        for run_id, began in self.tree.run(parent_id).state.children.items():
            state = self.tree.state(run_id)
            rows.append(
                ChildInfo(
                    child_id=run_id,
                    agent=began.agent,
                    label=began.label,
                    status=state.status if state else "pending",
                    background=began.background,
                    doing=self._doing(run_id, state),
                    private=tuple(state.reads()) if state else (),
                )
            )
        return rows

    def _doing(self, run_id: str, state: RunState | None) -> str:
        if state is None or state.status in ENDED:
            return ""
        # By names of ours: a model calls tools by any name it likes, and its parent reads this.
        live = self.tree.live.get(run_id)
        known = live.run.tools if live else self.tree.config.tools
        names = ", ".join(
            known[called.name].name if called.name in known else "an unknown tool"
            for called in state.begun.values()
        )
        return f"step {state.step}" + (f", running {names}" if names else "")

    def agents(self, parent_id: str) -> list[AgentSpec]:
        run = self.tree.run(parent_id)
        return startable(self.tree.config, run.spec, run.authority, run.path[:-1])

    def why_not(self, parent_id: str, name: str, *, as_tool: bool = False) -> str:
        run, config = self.tree.run(parent_id), self.tree.config
        if name == run.spec.name and not as_tool:
            return "no agent starts itself"
        if name in config.agents and name not in run.authority.tools and not as_tool:
            return f"it is not among the tools of {run.spec.name}"
        return why_useless(config, name, run.authority, run.depth)

    def taken(self, name: str) -> bool:
        return name.casefold() in {known.casefold() for known in self.tree.config.agents}

    def mcp_servers(self, parent_id: str) -> frozenset[str]:
        return self.tree.run(parent_id).authority.mcp_servers

    def tool_names(self, parent_id: str) -> dict[str, str]:
        tools, known = self.tree.run(parent_id).tools.items(), {*self.tree.config.tools, *MERGES}
        return {word: t.name for word, t in tools if t.effect != "delegate" and t.name in known}

    def room(self, call_id: str) -> int:
        return CODE_RESULT if "/" in call_id else self.tree.config.settings.limits.tool_output

    def merging(self, parent_id: str, tools: Iterable[str]) -> tuple[str, ...]:
        mine, known = self.tree.run(parent_id).tools, self.tree.config.tools
        writes = any(known[name].effect in WRITES for name in tools if name in known)
        return tuple(name for name in MERGES if name in mine and writes and self.ways(parent_id))

    def shown(self, parent_id: str) -> tuple[str, ...]:
        run = self.tree.run(parent_id)
        return tuple(spec.name for spec in run.shown if run.tools[spec.name].effect != "delegate")

    def ways(self, parent_id: str) -> tuple[str, ...]:
        run, policy = self.tree.run(parent_id), self.tree.config.policy
        below = run.depth + 1
        if not (policy.offers(below) or policy.offers(below, as_tool=True)):
            return ()
        return tuple(spec.name for spec in run.shown if run.tools[spec.name].effect == "delegate")

    def kept_back(self, parent_id: str) -> tuple[str, ...]:
        ways = self.ways(parent_id)
        if not ways:
            return (AGENTS, *DELEGATION_TOOLS)
        held = {t.name for t in self.tree.run(parent_id).tools.values() if t.effect == "delegate"}
        return tuple(sorted(held.difference(ways)))

    def skills(self, parent_id: str) -> tuple[str, ...]:
        return tuple(skill.name for skill in self.tree.run(parent_id).skills)

    def check_isolation(self, parent_id: str, wanted: Apart | None) -> None:
        if wanted == "worktree" and self._workflow.isolation.source(self.tree.run(parent_id)) is None:
            raise ToolError("isolation is given, and there is no project here to copy: leave it out")

    def made_up(self, child_id: str) -> bool:
        state = self.tree.state(child_id)
        return state is not None and state.started is not None and state.started.spec.lifecycle == "temporary"

    def reported_before(self, child_id: str) -> Report | None:
        state = self.tree.state(child_id)
        return None if state is None else state.reported

    def told(self, parent_id: str, child_id: str, *, when_asked: bool = False) -> bool:
        state = self.tree.run(parent_id).state
        notice, since = state.notices.get(child_id), () if when_asked else state.queued
        return notice is not None and any(m is notice for m in (*state.messages, *since))

    # -- reports ---------------------------------------------------------------

    async def shorten(
        self, parent_id: str, report: Report, *, quoted: bool = False, among: int = 1
    ) -> Framed:
        """What a parent is shown of a report; the whole text goes to its workspace."""
        parent, settings = self.tree.run(parent_id), self.tree.config.settings
        text, most = await self._summary(report), shown_bytes(settings.limits, among)
        if length(text, quoted=quoted) <= most:
            return Framed(text=text)
        shorter, usage = None, Usage()
        if settings.delegation.summary == "model":
            shorter, usage = await _shorter(parent, text, most)
        try:  # last: a parent at work reads nothing that its log does not know it was told
            whole = report.text.encode("utf-8", "replace")
            path = parent.files.save(f"report-{report.run_id}.md", whole)
        except ToolError:
            path, files = f"run {report.run_id}", ()
        else:
            files = (path,)
            await parent.keep(parent, files)
        if shorter is None:
            text = cut_with_notice(text, most, path, quoted=quoted)
        else:
            notice = f"\n\n[summarised; the whole text is in {path}]"
            text = ending_with(notice, shorter, most, quoted=quoted)
        return Framed(text=text, files=files, usage=usage)

    async def _summary(self, report: Report) -> str:
        """What a program's own function makes of a report; without one, its text."""
        spec = self.tree.config.agents.get(report.agent)
        if spec is None or not isinstance(spec.summary, SummaryFunction):
            return report.text
        try:
            said: object = await briefly(spec.summary.call, report)
            if isinstance(said, str):
                return said
            raise TypeError(f"it returned {type(said).__name__}, not text")
        except Exception as error:  # the report is there all the same
            log.warning("the summary function of %s failed, its whole report is told: %r", spec.name, error)
            return report.text

    async def tell(self, parent: Run, report: Report, began: ChildStarted, *, brief: bool = False) -> None:
        """The end of a child, in its parent's log; with its report for a parent that does not wait for it."""
        notice, telling = "", Usage()
        if began.background and parent.cancel_reason is None and not brief:
            framed = await self.shorten(parent.id, report)
            telling = framed.usage
            ended = f"[The background agent {report.agent} ({report.run_id}) has ended: {report.status}.]"
            before = self.reported_before(report.run_id)
            notice = f"{ended}\n{frame(report, framed.text, measured=True, before=before)}"
            then = await self.tree.config.noticed(began)
            if then is not None:
                notice, telling = then.notice, then.telling
        if parent.state.report is not None:
            return  # its own end is written, and nothing comes after that: it is told when it is taken up
        child = self.tree.state(began.child_id)
        parent.log.commit(child_ended(parent.log, began, report, child, notice=notice, telling=telling))


async def _shorter(parent: Run, text: str, most: int) -> tuple[str | None, Usage]:
    """A report in the small model's words, or None if that fails; and what it took."""
    asked = ModelRequest(
        system="You shorten reports. Keep every fact, name, path, number, URL and doubt.",
        messages=(UserMessage(text=f"Shorten this report to at most {most} bytes:\n\n{text}"),),
    )
    with small_call.paying(parent) as paid:
        try:
            return (await small_call.complete(parent, asked, paid)).message.text, paid.usage
        except (Fenced, StoreError):
            raise
        except Exception as error:  # a report that cannot be shortened is still a report
            unwind(error)
            log.warning("a report was cut, since it could not be summarised: %r", error)
            return None, paid.usage
