"""How a workflow begins or goes on here: started, taken up from its log, copied, played again.

Part of the front door, `app`, over `instance`. What is done with a run that is there is in `app`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import msgspec

from retinue.attachments import Attached
from retinue.authority.flows import said as addresses_in
from retinue.delegate import first_message
from retinue.engine.abandoned import refuse_if_ended, refuse_if_owned
from retinue.engine.approve_function import Approve
from retinue.engine.config import Answering, WorkflowConfig
from retinue.engine.followed import followed
from retinue.engine.fork import beginning, copied_runs, forked
from retinue.engine.keep import copy_kept, drop_kept
from retinue.engine.knowledge import first_agent
from retinue.engine.limit_raised import goes_on, refuse_if_nothing_left
from retinue.engine.naming import rename
from retinue.engine.outbox import Spoken
from retinue.engine.replay import Replayed, replay
from retinue.engine.resume import TakenUpWith, hand_over, read, resume
from retinue.engine.root_checks import check_beginning, check_deps, check_headers
from retinue.engine.take_up import TakeUp
from retinue.engine.tree import RunTree
from retinue.engine.workbooks import copy_workbooks, keep_workbooks, kept_workbooks
from retinue.engine.workflow import Root, Workflow
from retinue.errors import ConfigError, StoreError
from retinue.events import QUEUE, AnyEvent, LiveEvent, RunOptions, RunStarted
from retinue.for_workers import refuse_what_stays_here, to_workers
from retinue.given import check_approve, own_attachments, own_history, workbooks_of
from retinue.map_batch import Prompt
from retinue.parameters import check, check_word, listed, shown, sound_traceparent, texts
from retinue.preparing import Preparing
from retinue.run_ids import new_id
from retinue.run_options import Metadata, RunWith
from retinue.run_parts import GivenToRun, made_text
from retinue.store.base import KeptFile, RunRow, Store
from retinue.threads import undisturbed
from retinue.tools.base import Function, Tool
from retinue.tools.sheets import Workbook
from retinue.types import (
    ENDED,
    AgentSpec,
    Deps,
    Effort,
    Level,
    Limits,
    Message,
    ModelGiven,
    ModelSettings,
    Report,
    models_of,
)

MAX_TURNS = "limits.max_turns"


class Beginnings(Preparing[Deps]):
    """A `Retinue` as far as it begins runs, and takes them up."""

    @property
    def take_up(self) -> TakeUp:
        """What takes up runs that were left behind."""
        if self._take_up is None:
            self._take_up = TakeUp(
                self.store,
                self.owners,
                cwd=str(self.project or ""),
                is_running=self.is_running,
                resume=self.resume,
                cancel=self.cancel,
            )
        return self._take_up

    async def start(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Any] | None = None,
        deps: Deps | None = None,
        run_id: str | None = None,
        label: str = "",
        attachments: Sequence[Attached] = (),
        settings: Mapping[str, Any] | None = None,
        yes: bool | None = None,
        strict_sources: bool = False,
        effort: Effort = "",
        answering: Answering | None = None,
        client: str = "",
        metadata: Metadata | None = None,
        traceparent: str = "",
        drawn_from: str = "",
        said: str = "",
        history: Sequence[Message] = (),
        output_once: bool = False,
        model: ModelGiven | None = None,
        model_settings: ModelSettings | None = None,
        tools: Iterable[Tool | Function] = (),
        agents: Iterable[AgentSpec] = (),
        limits: Limits | None = None,
        approve: Approve | None = None,
        instructions: str | Callable[[Deps], str | Awaitable[str]] | None = None,
    ) -> str:
        """Begin a run and return its id; it goes on by itself. `RunWith` tells of the options; `label` is
        what lists call it.

        With `output` the answer has to be of that type. `deps` is handed to the tools of the run and of its
        children; without it, what `deps_factory` makes.
        `answering` is for this run what it is for the instance; `client` is who had another program start it.
        `history` is what was said before, elsewhere. With `output_once`, only the first answer of a
        conversation has to be of the type.
        """
        _check_ways(yes, settings, answering, approve)
        _check_asking(effort, model_settings)
        check(bool, strict_sources=strict_sources)
        check(str | None, run_id=run_id)
        check(str, label=label, client=client, drawn_from=drawn_from, said=said)
        before = own_history(history)
        tools, agents = listed("tools", tools, "functions or tools"), listed("agents", agents, "AgentSpec")
        parts = self._parts(agent if isinstance(agent, AgentSpec) else None, tools, agents)
        wanted = self._wanted(output)
        plain = self._agent(agent, parts)
        spec, changed = GivenToRun(
            tools=(*tools, *agents),
            limits=limits,
            model=model,
            settings=ModelSettings(effort=effort).over(model_settings or ModelSettings()),
            output=None if output_once else wanted,
        ).made(plain)
        text = first_message(spec, prompt)
        self._refuse_shared(settings or {})
        for_run = self.delegating(spec, settings or {})
        chosen = self._settings_for(for_run)
        options = RunOptions(
            settings=for_run,
            yes=self.yes if yes is None else yes,
            strict_sources=strict_sources,
            first=first_agent(spec, text, chosen),
            tools={**self.tool_files.origins, **parts.origins},
            client=client,
            metadata=texts(metadata or {}),
            traceparent=sound_traceparent(traceparent),
            drawn_from=drawn_from,
            said=said,
            links=tuple(sorted(addresses_in(text))) if drawn_from else (),
            output=wanted if output_once else None,
            changed=changed,
            agents=tuple(each.name for each in parts.agents),
            approver=approve is not None,
            guards=(*self._input_guards, *self._output_guards),
        )
        files = await own_attachments(attachments, self.cwd, self.project)
        workbooks = workbooks_of(files)
        own_id = run_id or new_id()
        await self.services.mcp.prepare(self.services.mcp.reached_by(spec), chosen.mcp)
        await self.services.models.look_up(chosen)
        handed = await self._deps(deps, own_id, spec, options)
        told = await made_text("instructions", instructions, handed)
        options = msgspec.structs.replace(options, instructions=told)
        config = self._config(options, workbooks, answering=answering, approve=approve)
        config = replace(parts.added_to(config), deps=handed)
        check_beginning(config, spec, model_settings)
        spec = await config.prompted(spec)
        if run_id is not None:
            given = RunWith[Deps](
                tools=tools,
                agents=agents,
                settings=settings,
                strict_sources=strict_sources,
                effort=effort,
                model_settings=model_settings,
                instructions=instructions,
            )
            asked = self._asked_by(plain, parts, given, files, deps, prompt=spec.prompt, told=told)
            options = msgspec.structs.replace(options, asked=asked.digests())
            config = replace(config, options=options)
        looked, files, before = await self._let_in(config, spec, own_id, text, files, before)
        if looked is not None and looked.changed:
            text = looked.text
            links = tuple(sorted(addresses_in(text))) if drawn_from else ()
            options = msgspec.structs.replace(options, first=first_agent(spec, text, chosen), links=links)
            config = replace(config, options=options)
            workbooks = workbooks_of(files)
        rendered, images = self._rendered(text, files, chosen, wanted if output_once else None)
        if self.hands_over:
            refuse_what_stays_here(parts, deps=deps, spec=spec)
        root = Root(
            spec=spec,
            prompt=text,
            label=label,
            rendered=rendered,
            images=images,
            history=before,
            guarded=looked,
        )
        begun = self._workflows.under(self.store, own_id, new=run_id is None)
        async with begun:
            await self._begin(config, own_id, root, workbooks)
        return own_id

    async def _begin(
        self, config: WorkflowConfig, root_id: str, root: Root, workbooks: Sequence[Workbook]
    ) -> None:
        """Start the root of a workflow here, or leave it to the workers."""
        async with self._owner() as owner, _kept(self.store, root_id, workbooks):
            workflow = Workflow(replace(config, owner=owner), root_id)
            if self.hands_over:
                to = to_workers(self._settings_for(config.options.settings), config)
                self._follow(config, root_id, await workflow.queue_root(to, root))
            else:
                self._workflows.add(workflow, await workflow.start_root(root))

    @contextlib.asynccontextmanager
    async def _owner(self) -> AsyncGenerator[str]:
        """Who works on what is begun or taken up meanwhile: this instance, or whichever worker is first."""
        if self.hands_over:
            yield QUEUE
            return
        async with self.owners.working() as owner:
            yield owner

    def _follow(self, config: WorkflowConfig, root_id: str, reached: int) -> None:
        """Hear what workers do, from a place in the log on, as if it were done here."""
        following = followed(self.store, root_id, reached, publish=self._listeners.publish, ask=config.ask)
        task = asyncio.create_task(following, name=f"follows {root_id}")
        self._workflows.follow(root_id, task, partial(self.cancel, root_id))

    async def resume(
        self,
        run_id: str,
        *,
        message: str | None = None,
        attachments: Sequence[Attached] = (),
        output: type[Any] | None = None,
        take_over: bool = False,
        yes: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        model: ModelGiven | None = None,
        answering: Answering | None = None,
        deps: Deps | None = None,
        tools: Iterable[Tool | Function] = (),
        agents: Iterable[AgentSpec] = (),
        approve: Approve | None = None,
        extra_headers: Mapping[str, str] | None = None,
        show_past: Callable[[Sequence[AnyEvent]], None] | None = None,
        by_itself: bool = False,
    ) -> str:
        """Take a whole workflow up again where its log ends. Returns the root's id.

        `take_over`: also where another process seems to work on it; that one stops.
        With `message`, a finished conversation goes on: with the root, or with a child of it that has ended,
        if that is named: it is asked again, and the root hears what it found. Without, a run that its turns,
        a budget or its time ended goes on where it stopped, if `settings` give it more. `yes` is as for
        `start`: that a run was started with every approval given does not hold for whoever takes it up.
        `settings` are for this run from here on, over those it was started with (`limits.max_turns` for the
        child, if one is named that has ended); `model` is the root's from here on. `answering`
        is for this run what it is for the instance. `show_past` is handed the log. A workflow of this process
        that has answered and has children at work is told the message, and goes on with what it was given.
        `attachments` and `output` go with the message: the answer to it has to be of that type.

        No log keeps functions, objects and secrets: `tools`, `agents`, `approve` and `model` objects that
        the run itself was given have to be given again, and `extra_headers` are what those of its model
        settings hold. `by_itself`: nobody said so, and what has ended meanwhile stays as it is (`HasEnded`).
        """
        _check_ways(yes, settings, answering, approve)
        check(bool, take_over=take_over, by_itself=by_itself)
        check(str | None, message=message)
        check(Mapping | None, extra_headers=extra_headers)
        tools, agents = listed("tools", tools, "functions or tools"), listed("agents", agents, "AgentSpec")
        parts = self._parts(None, tools, agents)
        headers = ModelSettings(extra_headers=extra_headers or {}).headers.sent
        named, objects = ("", {}) if model is None else models_of(model)
        self._refuse_shared(settings or {})
        given = TakenUpWith(settings=dict(settings or {}), model=self.model_known(named, objects))
        row = await self.outbox.row(run_id)
        if message is None and (attachments or output is not None):
            raise ConfigError("attachments and output go with a message", fix="give message=…")
        child_turns = self._turns_of_child(row, given.settings)
        if message is None and child_turns is not None:
            message = goes_on(await self.store.events(row.root_id, run_id=run_id), child_turns)
        alone = not (settings or attachments or output or self._is_another(row.root_id, given.model))
        if message is not None and alone and self._workflows.has_answered(row.root_id):
            if show_past is not None:
                show_past(await self.store.events(row.root_id))
            if await self.message(run_id, message):
                return row.root_id
            row = await self.outbox.row(run_id)  # it has ended meanwhile, and is taken up
        root_id, asks = row.root_id, "" if message is None else _child_asked(row)
        if asks:  # what is given of turns is for whom it is given to
            given = replace(given, settings={k: v for k, v in given.settings.items() if k != MAX_TURNS})
        files = await own_attachments(attachments, self.cwd, self.project)
        wanted = self._wanted(output)
        async with self._workflows.taking_up(root_id), self._owner() as owner:
            found = await read(self.store, root_id)
            self._refuse_missing(found.began, parts)
            if approve is None and answering is None:
                self._refuse_unanswered(found.began)
            if show_past is not None:
                show_past(found.events)
            options = msgspec.structs.replace(
                found.began.options,
                yes=self.yes if yes is None else yes,
                settings={**found.settings, **given.settings},
            )
            workbooks = [*await kept_workbooks(self.store, root_id), *workbooks_of(files)]
            reached = self.services.mcp.reached_by(found.began.spec)
            await self.services.mcp.prepare(reached, self.settings.mcp)
            await self.services.models.look_up(self.settings)
            config = self._config(options, workbooks, [found.began], answering=answering, approve=approve)
            handed = await self._deps(deps, root_id, found.began.spec, options)
            config = replace(
                parts.added_to(config), owner=owner, deps=handed, headers=headers, models=objects
            )
            check_deps(config, found.began.spec)
            check_headers(config.with_headers(found.began.spec))
            workflow = Workflow(config, root_id)
            may_go_on = partial(
                self._may_go_on,
                workflow.tree,
                untold=run_id if message is None else "",
                take_over=take_over,
                by_itself=by_itself,
            )
            said = None
            if message is not None:
                said = await self._said(config, found.began.spec, root_id, message, files, wanted)
                said = replace(said, asks=asks, max_turns=child_turns if asks else None)
            if self.hands_over:
                refuse_what_stays_here(parts, deps=deps, models=objects, headers=headers)
                to = to_workers(self._settings_for(options.settings), config)
                reached = await hand_over(workflow.tree, found, to, said=said, check=may_go_on, given=given)
                self._follow(config, root_id, reached)
                return root_id
            task = await resume(workflow, found, said=said, yes=options.yes, check=may_go_on, given=given)
            self._workflows.add(workflow, task)
        return root_id

    def _turns_of_child(self, row: RunRow, settings: Mapping[str, Any]) -> int | None:
        """The turns that a child which has ended is given, where it is named itself."""
        named = row.parent_id is not None and row.status in ENDED and MAX_TURNS in settings
        return self._settings_for(settings).limits.max_turns if named else None

    def _refuse_unanswered(self, began: RunStarted) -> None:
        if began.options.approver and self.answering != "ask":
            raise ConfigError(
                "the run was given a function that answers its questions, which is missing now",
                fix='give it again: resume(run_id, approve=…); answering="refuse" goes on without',
            )

    async def _may_go_on(
        self, tree: RunTree, events: Sequence[AnyEvent], *, untold: str, take_over: bool, by_itself: bool
    ) -> None:
        """Refuse to take up what has nothing left to do, or is still worked on elsewhere. `untold` is the run
        that is taken up without a message."""
        if by_itself:
            refuse_if_ended(events, tree.root_id)
        if untold:
            refuse_if_nothing_left(tree, untold)
        if not take_over:
            await refuse_if_owned(self.owners, events, tree.root_id)

    async def resume_abandoned(self) -> list[str]:
        """Take up every workflow of this folder that nobody works on any more. Returns those that go on.

        Once. `take_up.keep()` does so for as long as it runs, as the server does.
        """
        return await self.take_up.all()

    async def fork(
        self,
        run_id: str,
        *,
        at: int | None = None,
        message: str | None = None,
        attachments: Sequence[Attached] = (),
        model: ModelGiven | None = None,
        settings: Mapping[str, Any] | None = None,
        new_run_id: str | None = None,
        tools: Iterable[Tool | Function] = (),
        agents: Iterable[AgentSpec] = (),
        approve: Approve | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> str:
        """Begin a new workflow with the events of another up to the place `at`, and go on from there.

        The old one is untouched. Returns the new root's id, which is `new_run_id` if that is given.
        `message` is said to it then, with the `attachments`, and `model` answers from there on, if it is
        given. `settings`, `tools`, `agents`, `approve` and `extra_headers` are as for `resume`.
        """
        tools, agents = listed("tools", tools, "functions or tools"), listed("agents", agents, "AgentSpec")
        parts = self._parts(None, tools, agents)
        check(int | None, at=at)
        check(str | None, message=message, new_run_id=new_run_id)
        named, objects = (None, {}) if model is None else models_of(model)
        if message is None and attachments:
            raise ConfigError("attachments go with a message", fix="give message=…")
        files = await own_attachments(attachments, self.cwd, self.project)
        root_id = (await self.outbox.row(run_id)).root_id
        events = beginning(await self.store.events(root_id), at, goes_on=message is not None)
        new_root = new_run_id or new_id()
        copies = forked(events, new_root, at=time.time(), model=named)
        began = copies[0]
        if isinstance(began, RunStarted):  # a model or a tool that is missing is told before there is a copy
            self._refuse_missing(began, parts)
            config = replace(self._config(began.options), models=objects)
            parts.added_to(config).model_of(began.spec, None, named or "")
        stored = False

        async def store_copy() -> None:
            nonlocal stored
            await self.store.append(copies)
            stored = True

        try:
            await copy_kept(self.store, root_id, new_root, copied_runs(events, copies))
            until = max(event.at for event in events)
            await copy_workbooks(self.store, root_id, new_root, until=until)
            await undisturbed(store_copy())
            return await self.resume(
                new_root,
                message=message,
                attachments=files,
                take_over=True,
                settings=settings,
                model=model if objects else None,  # a name is in the copy
                tools=tools,
                agents=agents,
                approve=approve,
                extra_headers=extra_headers,
            )
        except BaseException:
            # Nobody was given its id: what is left would be taken up, and paid for, by whoever comes next.
            if not self.is_running(new_root):
                await undisturbed(self._forget(new_root) if stored else drop_kept(self.store, new_root))
            raise

    async def _forget(self, root_id: str) -> None:
        with contextlib.suppress(StoreError):  # why there is no fork is worth more
            await self.store.delete(root_id)

    async def replay(self, run_id: str, *, live_tools: Iterable[str] = ()) -> Replayed:
        """Run a stored workflow again from its record, without network or key, and compare.

        `live_tools` are tools that really run; what they return is compared with the record.
        """
        live_tools = listed("live_tools", live_tools, "names of tools")
        root_id = (await self.outbox.row(run_id)).root_id
        events, kept = await self.store.events(root_id), await self.store.kept(root_id)
        return await self.replay_events(events, live_tools=live_tools, kept=kept)

    async def replay_events(
        self,
        events: Sequence[AnyEvent],
        *,
        live_tools: Iterable[str] = (),
        kept: Iterable[KeptFile] = (),
    ) -> Replayed:
        """The same for `events` that were kept elsewhere, such as a recorded file, and files that were `kept`
        with them; `live_tools` really run."""
        began = next(event for event in events if isinstance(event, RunStarted))
        config = replace(self._config(began.options, begun=events), publish=_nobody)
        return await replay(events, config, live_tools=frozenset(live_tools), kept=kept)

    def is_running(self, root_id: str) -> bool:
        """Whether this process works on that workflow, or is about to. `root_id` is the id of its root."""
        return self._workflows.is_running(root_id)

    def held(self, root_id: str) -> Workflow | None:
        """A workflow that this process works on, by its `root_id`, for a worker."""
        return self._workflows.held(root_id)

    def task_of(self, root_id: str) -> asyncio.Task[Report] | None:
        """The root's task of a workflow, by its `root_id`, that is or was at work in this process."""
        return self._workflows.task(root_id)

    async def message(self, run_id: str, text: str, *, attachments: Sequence[Attached] = ()) -> bool:
        """Tell a run something; it reads it before its next step. False if that is too late: it has ended.

        What is said while nobody works on the run is read when it is taken up again. Spreadsheets are
        attached to a run that is not at work: `resume`.
        """
        check(str, text=text)
        files = await own_attachments(attachments, self.cwd, self.project)
        if workbooks_of(files):
            raise ConfigError(
                "a spreadsheet cannot be attached to a run that is at work",
                fix="when it has ended: resume(run_id, message=…, attachments=…)",
            )
        rendered, images = self._rendered(text, files, self.settings, None)
        return await self.outbox.message(run_id, Spoken(text=text, rendered=rendered, images=images))

    async def cancel(self, run_id: str, reason: str = "cancelled") -> bool:
        """Stop a run and everything below it, wherever it runs. False if it had ended.

        `reason` is for people: it stands in the log and in the report.
        """
        check(str, reason=reason)
        return await self.outbox.cancel(run_id, reason)

    async def rename(self, run_id: str, label: str) -> None:
        """Another name in lists for a workflow that nobody works on: `label`, on one line; empty for none."""
        check(str, label=label)
        await rename(
            self.store,
            self.shown,
            run_id,
            label,
            taking_up=self._workflows.taking_up,
            publish=self._publish,
        )


def _check_asking(effort: Effort, model_settings: ModelSettings | None) -> None:
    """The same of how the models of a run are to be asked."""
    if not isinstance(cast("Any", model_settings), ModelSettings | None):
        raise TypeError(f"model_settings is {shown(model_settings)}: write ModelSettings(…)")
    if effort:
        check_word("effort", effort, Level)


def _child_asked(row: RunRow) -> str:
    """The child that a message to this run asks again: one that has ended, of the root. Else empty."""
    if row.parent_id is None or row.status not in ENDED:
        return ""
    if row.parent_id != row.root_id:
        raise ConfigError(
            f"{row.run_id} was started by {row.parent_id}, which has ended as well",
            fix=f"speak to {row.parent_id} or to {row.root_id}",
        )
    return row.run_id


def _check_ways(
    yes: bool | None,
    settings: Mapping[str, Any] | None,
    answering: Answering | None,
    approve: Approve | None,
) -> None:
    """What a program says of how a run that begins or goes on is to work, held against what may be said."""
    check(bool | None, yes=yes)
    check(Mapping | None, settings=settings)
    check_approve(approve)
    if answering is not None:
        check_word("answering", answering, Answering)


@contextlib.asynccontextmanager
async def _kept(store: Store, root_id: str, workbooks: Sequence[Workbook]) -> AsyncGenerator[None]:
    """While a workflow is being begun that has these: they are kept if and only if it is."""
    if workbooks:
        await keep_workbooks(store, root_id, workbooks)
    try:
        yield
    except BaseException:
        if workbooks:
            await drop_kept(store, root_id)
        raise


def _nobody(event: LiveEvent) -> None:
    """Nobody watches a replay."""
