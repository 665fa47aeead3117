"""The front door: start runs, watch them, answer, cancel, resume. The only place that constructs things.

    async with Retinue(model="openai:gpt-5-mini") as retinue:
        report = await retinue.run("code-search", "where are retries decided?")
        print(report.text)

        async for event in retinue.stream("general", "plan the change"):
            ...

Terminal, page, API and hosts are all built on this class and on nothing below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

import msgspec

from retinue import context
from retinue.beginnings import Beginnings
from retinue.conversation import Conversation, Turn, Turns, no_agent
from retinue.engine.listeners import next_of
from retinue.engine.watch import report_of, watch
from retinue.errors import AlreadyRunning, ConfigError, RunError, RunIdTaken
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    LiveEvent,
    RunFinished,
    RunStarted,
)
from retinue.fold import fold
from retinue.given import own_history
from retinue.histories import History, whole
from retinue.loop_thread import call_in
from retinue.map_batch import Input, MapBatch, MapWork, Prompt
from retinue.parameters import check, listed, shown, texts
from retinue.run_ids import batch_run_id, new_id
from retinue.run_log import storable
from retinue.run_messages import run_messages
from retinue.run_options import ConversationWith, RunGiven, RunWith, for_many_runs
from retinue.same_work import AskedWith, refuse_other_work
from retinue.store.base import RunFilter, RunRow, RunRows
from retinue.types import ENDED, AgentSpec, Deps, Message, Output, Report, RunMessages, Usage

if TYPE_CHECKING:
    pass

log = logging.getLogger("retinue")


class Retinue(Beginnings[Deps]):
    """One agent with a staff. `Retinue[Deps]` is one whose tools are handed a `Deps`.

    Open it with `async with`. `model` is a name (`"openai:gpt-5-mini"`, `"offline"`) or an object with
    `name` and `stream`, `small_model` the cheap one beside it; without, those of the settings or of a key.
    They win over every setting, of `settings` too; what one run is given wins over them.
    `db` is an address (`sqlite:///path`, `postgresql://…`, `memory:`) or a store. `cwd` is the project's
    folder; with `project=False` nothing of it is read. `tools` and `agents` are yours: functions or what
    `@tool` made, and `AgentSpec`. `settings` are dotted names, above those of files and the environment;
    `environ` is used instead of `os.environ`. `deps_factory` makes what tools are handed, from a `RunInfo`,
    where a run was given none. `tool_files` is for the command line.

    `approve` is asked whatever needs a person; `answering="ask"` waits for answers from elsewhere (the page,
    another process); with neither, what would ask is refused. `yes` approves all that no rule denies or asks
    about. Without a project, nothing of the folder is read: no files, no settings, no agents. Where no model
    is named and the environment has no key, `fallback` is used; without one that is an error.
    `conversations` is for a program that stays, and hears what is said next: there background children
    outlive an answer (`delegation.parent_ends = "leave"`) unless something else is set. With False they never
    do. `input_guards` look at what is said to a run and `output_guards` at what it answers, before anybody
    else does; `observers` are told of every event, and cannot disturb a run.
    """

    @overload
    async def run(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Output],
        messages: bool = False,
        **options: Unpack[RunGiven[Deps]],
    ) -> Report[Output]: ...

    @overload
    async def run(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: None = None,
        messages: bool = False,
        **options: Unpack[RunGiven[Deps]],
    ) -> Report: ...

    async def run(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Any] | None = None,
        messages: bool = False,
        **options: Unpack[RunGiven[Deps]],
    ) -> Report[Any]:
        """Run an agent to its report. With `output` its answer has to be of that type: `report.output`. With
        `messages` it has the conversations of the run and of all below it: `report.messages`."""
        check(bool, messages=messages)
        begun = await self.start(agent, prompt, output=output, **options)
        report = await self.wait(begun, messages=messages)
        return report if output is None else report.of_type(output)

    @overload
    def run_sync(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Output],
        messages: bool = False,
        **options: Unpack[RunGiven[Deps]],
    ) -> Report[Output]: ...

    @overload
    def run_sync(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: None = None,
        messages: bool = False,
        **options: Unpack[RunGiven[Deps]],
    ) -> Report: ...

    def run_sync(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Any] | None = None,
        messages: bool = False,
        **options: Unpack[RunGiven[Deps]],
    ) -> Report[Any]:
        """Run an agent to its report, of type `output` if that is given: for a program that is not async,
        from any number of threads at once.

        Opens before the first run and closes after the last that is under way. Where the instance is open
        already, in the loop of another thread, the run takes place there.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RunError("an event loop runs here already: 'await retinue.run(…)' instead of run_sync")
        loop = self._loop

        async def run() -> Report[Any]:
            kind = cast("Any", output)
            return await self.run(agent, prompt, output=kind, messages=messages, **options)

        if loop is None or loop.is_closed() or self._calls.owns(loop):
            return self._calls.call(run)
        return call_in(loop, run)

    async def ask(
        self,
        prompt: str,
        *,
        deps: Deps | None = None,
        messages: bool = False,
        **options: Unpack[RunWith[Deps]],
    ) -> Report:
        """Run the default agent."""
        agent = self.settings.default_agent
        return await self.run(agent, prompt, deps=deps, messages=messages, **options)

    async def once(
        self,
        run_id: str,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        deps: Deps | None = None,
        messages: bool = False,
        **options: Unpack[RunWith[Deps]],
    ) -> Report:
        """Run an agent to its report under an id of yours, once: a second call gives the same report.

        What has not ended goes on where its log ends, and so does what ended with an error or was cancelled:
        what was paid for is not paid again. A run of another process is waited for. An id that was given to
        something else is refused: to another agent, prompt, `instructions` or `metadata`, to other
        `attachments`, tools or options, or in another folder. For that, files are read and functions called
        again. `model` and limits may be others: whoever goes on chooses them. What is in `deps` nobody can
        compare: put into the id, or into `metadata`, whose they are.
        """
        return await self._once(run_id, agent, prompt, deps, for_many_runs(options), messages=messages)

    async def _once(
        self,
        run_id: str,
        agent: str | AgentSpec,
        prompt: Prompt,
        deps: Deps | None,
        options: RunWith[Deps],
        *,
        messages: bool,
        known: bool = False,
    ) -> Report:
        """`known`: what it is asked with is in its id."""
        while (row := await self.store.run(run_id)) is None:
            try:
                return await self.run(agent, prompt, deps=deps, run_id=run_id, messages=messages, **options)
            except RunIdTaken:  # the same call, here or in another process, was a moment faster
                await self._workflows.begun(run_id)
        await self._workflows.begun(run_id)
        asked = None if known else partial(self._asked, agent, options, deps)
        await self._refuse_other_work(row, agent, prompt, options, asked)
        if self.is_running(run_id):
            return await self.wait(run_id, messages=messages)
        failed = row.status in ENDED and row.status != "completed"
        if failed or (row.completed_at is None and await self.abandoned(run_id)):
            try:
                own = (agent,) if isinstance(agent, AgentSpec) else ()
                settings = options.get("model_settings")
                again = failed and await self._was_never_read(run_id)
                await self.resume(
                    run_id,
                    message=self._first_message(agent, prompt, options) if again else None,
                    attachments=options.get("attachments", ()) if again else (),
                    yes=options.get("yes"),
                    model=options.get("model"),
                    deps=deps,
                    tools=options.get("tools", ()),
                    agents=(*own, *options.get("agents", ())),
                    approve=options.get("approve"),
                    answering=options.get("answering"),
                    extra_headers=None if settings is None else settings.headers.sent,
                )
            except AlreadyRunning:  # as above
                await self._workflows.begun(run_id)
            except RunError:
                now = await self.store.run(run_id)
                if now is None or now.completed_at is not None or await self.abandoned(run_id):
                    raise  # else another process was a moment faster
        return await self.wait(run_id, messages=messages)

    async def _refuse_other_work(
        self,
        row: RunRow,
        agent: str | AgentSpec,
        prompt: Prompt,
        options: RunWith[Deps],
        asked: Callable[[], Awaitable[AskedWith]] | None,
    ) -> None:
        began = (await self.store.events(row.root_id, run_id=row.run_id, limit=1))[0]
        told = options.get("instructions") or ""
        if isinstance(began, RunStarted):
            refuse_other_work(
                began,
                agent=agent.name if isinstance(agent, AgentSpec) else agent,
                prompt=storable(self._first_message(agent, prompt, options)),
                metadata=texts(options.get("metadata") or {}),
                instructions=None if callable(told) else storable(told),
                asked=(await asked()).digests() if asked and began.options.asked else None,
            )

    async def _was_never_read(self, run_id: str) -> bool:
        """Whether a guard failed at the prompt of a run: its log does not have it."""
        stopped = fold(await self.store.events(run_id, run_id=run_id)).stopped
        return stopped is not None and stopped.failed and stopped.side == "input" and not stopped.about

    def map(
        self,
        agent: str | AgentSpec,
        inputs: Iterable[Input] | AsyncIterable[Input],
        *,
        name: str = "",
        key: Callable[[Input], str] | None = None,
        prompt: Callable[[Input], str | Mapping[str, Any]] | None = None,
        concurrency: int = 10,
        ordered: bool = False,
        redo: bool = True,
        deps: Deps | None = None,
        messages: bool = False,
        **options: Unpack[RunWith[Deps]],
    ) -> MapBatch[Input]:
        """Run an agent on each of many `inputs`, `concurrency` at once: `async for item in retinue.map(…)`.

        Each input is a run of its own. Its id follows from `name` (the agent's, if it is not given), the
        agent with its prompt, its tools and its model, the folder, the `metadata`, `instructions`,
        `attachments` and other options of the runs, the input's `key` and what is asked: the same batch,
        started again after a crash or by another process, does only what is missing. What functions do and
        what `deps` hold is not known, nor what a tool holds that is no plain value: then give `metadata` that
        say whose they are, or a `name` or `key` that does. What ended before and lacks something (`refused`,
        `rejected`, `incomplete`) is done anew in a run of its own; with `redo=False` its report is given
        again. Another `name` does all of it anew. `prompt` makes the
        prompt of an input; without it the input is the prompt. Items come as they end, or with `ordered` as
        the inputs came.
        `options` are those of `start`, for each run.
        """
        title = agent.name if isinstance(agent, AgentSpec) else agent
        options = for_many_runs(options)
        said = bool(name or key or options.get("metadata"))
        if deps is not None and not said:
            raise ConfigError(
                "a stored report of a batch cannot be known by the deps that it was made with",
                fix="say whose they are: metadata={'tenant': …}; or give a name, if all may share them",
            )

        async def work(run_id: str, label: str, asked: str | Mapping[str, Any]) -> MapWork:
            each = options.copy()
            if not self._has_input_guards(agent):  # they may hide what the input says
                each.setdefault("label", label)
            if redo:
                run_id = await self._next_try(run_id)
            before = await self.store.run(run_id)
            if not redo and before is not None and before.outcome == "refused":
                report = await self.wait(run_id, messages=messages)
            else:
                report = await self._once(run_id, agent, asked, deps, each, messages=messages, known=True)
            return await self._since(before, report)

        return MapBatch(
            work,
            inputs,
            name=name or title,
            scope=partial(self._work, agent, options, deps, said=said),
            key=key,
            prompt=prompt,
            concurrency=concurrency,
            ordered=ordered,
        )

    async def _since(self, before: RunRow | None, report: Report) -> MapWork:
        """What was used now for a run of a batch: what its row had before, an earlier start has used."""
        if before is None:
            return MapWork(report=report, usage=report.usage)
        now = await self.store.run(report.run_id)
        if before.completed_at is not None and now is not None and now.completed_at == before.completed_at:
            return MapWork(report=report, usage=Usage(), from_before=True)
        usage = report.usage - before.tree_usage
        cached = min(usage.cached_tokens, usage.input_tokens)  # of those before, nobody knows which they were
        return MapWork(report=report, usage=msgspec.structs.replace(usage, cached_tokens=cached))

    def _has_input_guards(self, agent: str | AgentSpec) -> bool:
        spec = self.services.specs.get(agent) if isinstance(agent, str) else agent
        return bool(self._input_guards or spec is None or spec.input_guards)

    async def _next_try(self, run_id: str) -> str:
        """The run of a batch that is to give the report: the first one that does not lack something."""
        tried, first = 0, run_id
        while (row := await self.store.run(run_id)) is not None and not self.is_running(run_id):
            if row.outcome not in ("refused", "rejected", "incomplete"):
                break
            tried += 1
            run_id = batch_run_id(first, "again", "", "", tried)
        return run_id

    async def stream(
        self,
        agent: str | AgentSpec,
        prompt: Prompt,
        *,
        output: type[Any] | None = None,
        **options: Unpack[RunGiven[Deps]],
    ) -> AsyncGenerator[LiveEvent]:
        """Run an agent and yield every event of its tree as it happens. Ends with the root's `RunFinished`,
        whose report is of type `output` if that is given.

        Leaving the loop early cancels the run.
        """
        options["run_id"] = run_id = options.get("run_id") or new_id()
        begin = partial(self.start, agent, prompt, output=output, **options)
        async with contextlib.aclosing(self._turn(run_id, begin)) as events:
            async for event in events:
                yield event

    async def _turn(self, run_id: str, begin: Callable[[], Awaitable[object]]) -> AsyncGenerator[LiveEvent]:
        """Every event of a workflow, from when it begins or goes on to its next answer."""
        answered = False
        queue = self._listeners.listen(run_id)
        try:
            await begin()
            task = self._workflows.task(run_id)
            while task is not None and not (task.done() and queue.empty()):
                event = await next_of(queue, task)
                if event is None:
                    continue
                answered = isinstance(event, RunFinished) and event.run_id == run_id
                yield event
                if answered:
                    return
            await self.wait(run_id)  # it died without an end: whoever listens is told why
        finally:
            self._listeners.leave(run_id, queue)
            if not answered:  # else its children may still be at work
                await self._workflows.leave_alone(run_id, "nobody listens any more")

    def conversation(
        self,
        agent: str | AgentSpec | None = None,
        *,
        run_id: str | None = None,
        history: History | Sequence[Message] = (),
        deps: Deps | None = None,
        **options: Unpack[ConversationWith[Deps]],
    ) -> Conversation:
        """A conversation: a new one with an agent (the default one, if none is named), or an earlier one by
        its `run_id`. `history` is what was said before, elsewhere. The options are those of `start`; of one
        that is taken up, those of `resume` count: `deps`, `settings`, `yes`, `answering`, `model`, `tools`,
        `agents`, `approve`, and the headers of `model_settings`.
        """
        check(str | None, run_id=run_id)
        options["tools"] = listed("tools", options.get("tools", ()), "functions or tools")  # for every turn
        options["agents"] = listed("agents", options.get("agents", ()), "AgentSpec")
        own_id, spec = run_id or new_id(), agent or ("" if run_id else self.settings.default_agent)
        before = own_history(history.messages if isinstance(history, History) else history)

        async def begin(turn: Turn) -> None:
            if await self.store.run(own_id) is not None:
                headers = options.get("model_settings")
                await self.resume(
                    own_id,
                    message=turn.text,
                    attachments=turn.attachments,
                    output=turn.output,
                    deps=deps,
                    settings=options.get("settings") if run_id else None,  # else its log has them
                    yes=options.get("yes"),
                    model=options.get("model"),
                    tools=options.get("tools", ()),
                    agents=((spec,) if isinstance(spec, AgentSpec) else ()) + (*options.get("agents", ()),),
                    approve=options.get("approve"),
                    answering=options.get("answering"),
                    extra_headers=None if headers is None else headers.headers.sent,
                )
                return
            if not spec:
                raise no_agent(own_id)
            await self.start(
                spec,
                turn.text,
                run_id=own_id,
                attachments=turn.attachments,
                output=turn.output,
                output_once=True,
                history=whole(before),
                deps=deps,
                **options,
            )

        async def log() -> Sequence[AnyEvent]:
            return await self.store.events(own_id, run_id=own_id)

        async def cancel(reason: str) -> bool:
            return await self.store.run(own_id) is not None and await self.cancel(own_id, reason)

        return Conversation(
            own_id,
            Turns(
                begin=begin,
                wait=partial(self.wait, own_id),
                stream=lambda turn: self._turn(own_id, partial(begin, turn)),
                log=log,
                cancel=cancel,
                queue=self._queues.setdefault(own_id, asyncio.Lock()),
            ),
        )

    async def sections(self, run_id: str) -> list[context.Section]:
        """What the model of a run that was just started is told, part by part."""
        row = await self.outbox.row(run_id)
        began = (await self.store.events(row.root_id, run_id=run_id, limit=1))[0]
        if not isinstance(began, RunStarted):
            raise RunError(f"the log of {run_id} has no beginning", run_id=run_id)
        live = self._workflows.live(row.root_id, run_id)
        if live is None:
            known = [self.tools[name].spec for name in began.tools if name in self.tools]
            return context.sections(began, known, self.settings.context)
        if not live.over:
            await live.resources.open()
        found = context.sections(began, live.run.shown, live.run.context)
        return [*found, *context.reminders(live.run)]

    async def wait(self, run_id: str, *, messages: bool = False) -> Report:
        """The report of a run, once it has one: of a conversation that goes on, that of the turn under way.

        With `messages` it has the conversations of the run and of all below it: `report.messages`. Cancelling
        the last wait cancels a run of this process.
        """
        report = await self._report(run_id)
        return report.with_messages(await self.messages_of(run_id)) if messages else report

    async def messages_of(self, run_id: str) -> tuple[RunMessages, ...]:
        """The conversations of a run and of all below it, whole, as far as they have come."""
        row = await self.outbox.row(run_id)
        return run_messages(await self.store.events(row.root_id), run_id)

    async def _report(self, run_id: str) -> Report:
        if self._workflows.is_running(run_id) and (report := await self._workflows.wait(run_id)) is not None:
            return report
        if (report := await report_of(self.store, await self.outbox.row(run_id))) is not None:
            return report
        await self._workflows.wait(run_id)  # raises what it died of, if it was here
        async with contextlib.aclosing(self.watch(run_id)) as events:
            async for event in events:
                if isinstance(event, RunFinished) and event.run_id == run_id:
                    report = await report_of(self.store, await self.outbox.row(run_id))
                    if report is not None:  # else it has gone on since
                        return report
        raise RunError(f"{run_id} has no report", run_id=run_id)

    async def watch(self, run_id: str, *, after: int = 0) -> AsyncGenerator[LiveEvent]:
        """A workflow's events from a cursor on: what is stored first, then what happens. Ends with the root.

        `after` is the `pos` of the last event that was seen; 0 for all.
        A conversation is followed to the end of its last turn, and what nobody works on until it has one.
        Text as it arrives rides along for runs of this process.
        """
        check(int, after=after)
        root_id = (await self.outbox.row(run_id)).root_id
        task = partial(self._workflows.task, root_id)
        async with contextlib.aclosing(watch(self.store, self._listeners, root_id, task, after)) as events:
            async for event in events:
                yield event

    def hear(self, hear: Callable[[LiveEvent], None]) -> Callable[[], None]:
        """Call `hear` with whatever happens in any workflow of this process. Returns how to stop that."""
        return self._listeners.hear(hear)

    async def abandoned(self, root_id: str) -> bool:
        """Whether a workflow, by its `root_id`, is unfinished and nobody seems to work on it any more."""
        return await self.outbox.abandoned(root_id)

    async def approvals(self) -> list[ApprovalRequested]:
        """Every question that waits for an answer."""
        return await self.store.waiting()

    async def runs(self, which: RunFilter | None = None) -> RunRows:
        """Runs, newest first: as many as the filter's `limit` says. `more` on the list tells of others.

        What nobody works on any more is `interrupted`.
        """
        if which is None:
            which = RunFilter()
        elif not isinstance(cast("Any", which), RunFilter):
            raise TypeError(f"which is {shown(which)}: give a RunFilter")
        rows = await self.shown.runs(msgspec.structs.replace(which, limit=which.limit + 1))
        found = RunRows(rows[: which.limit], more=len(rows) > which.limit)
        if found.more and which.limit == RunFilter().limit:
            log.warning(
                "runs() returned the newest %d runs, and there are more: give RunFilter(limit=…), or page "
                "with before= and before_id= of the last row",
                which.limit,
            )
        return found
