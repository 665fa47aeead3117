"""How a workflow begins or goes on here: started, taken up from its log, copied, played again.

Part of the front door, `app`, over `instance`. What is done with a run that is there is in `app`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import msgspec

from retinue.attachments import Attached, Attachment, render
from retinue.authority.flows import said as addresses_in
from retinue.context import FORM
from retinue.delegate import first_message
from retinue.engine.abandoned import refuse_if_ended, refuse_if_owned
from retinue.engine.approve_function import Approve
from retinue.engine.config import Answering, WorkflowConfig, check_headers
from retinue.engine.followed import followed
from retinue.engine.fork import beginning, copied_runs, forked
from retinue.engine.keep import copy_kept, drop_kept
from retinue.engine.knowledge import first_agent
from retinue.engine.limit_raised import goes_on, refuse_if_nothing_left
from retinue.engine.naming import rename
from retinue.engine.outbox import Spoken
from retinue.engine.replay import Replayed, replay
from retinue.engine.resume import SaidByPerson, TakenUpWith, hand_over, read, resume
from retinue.engine.run_guards import front_door
from retinue.engine.take_up import TakeUp
from retinue.engine.workbooks import copy_workbooks, keep_workbooks, kept_workbooks
from retinue.engine.workflow import Root, Workflow
from retinue.errors import ConfigError, StoreError
from retinue.events import (
    QUEUE,
    AnyEvent,
    LiveEvent,
    RunOptions,
    RunStarted,
)
from retinue.for_workers import refuse_what_stays_here, to_workers
from retinue.given import check_agent, check_approve, own_attachments, own_history, workbooks_of
from retinue.guards import Looked
from retinue.instance import Instance
from retinue.map_batch import Prompt
from retinue.models.base import Model
from retinue.parameters import check, check_word, listed, shown, sound_traceparent, texts
from retinue.run import new_id, storable
from retinue.run_options import Metadata, RunWith
from retinue.run_parts import THIS_RUN, GivenToRun, RunParts, made_text, parts_of, refuse_missing
from retinue.same_work import AskedWith
from retinue.settings import Settings
from retinue.store.base import RunRow, Store
from retinue.threads import undisturbed
from retinue.tools.base import Function, Tool
from retinue.tools.sheets import Workbook
from retinue.types import (
    ENDED,
    AgentSpec,
    Deps,
    Effort,
    GivenObjects,
    Image,
    JsonSchema,
    Level,
    Limits,
    Message,
    ModelGiven,
    ModelSettings,
    Report,
    TypedSchema,
    models_of,
    schema_of,
)

MAX_TURNS = "limits.max_turns"


class Beginnings(Instance[Deps]):
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
        check(bool, strict_sources=strict_sources)
        check(str | None, run_id=run_id)
        check(str, label=label, client=client, drawn_from=drawn_from, said=said)
        if not isinstance(cast("Any", model_settings), ModelSettings | None):
            raise TypeError(f"model_settings is {shown(model_settings)}: write ModelSettings(…)")
        if effort:
            check_word("effort", effort, Level)
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
        handed = await self._deps(deps, own_id, spec, options)
        told = await made_text("instructions", instructions, handed)
        options = msgspec.structs.replace(options, instructions=told)
        config = self._config(options, workbooks, answering=answering, approve=approve)
        config = replace(parts.added_to(config), deps=handed)
        config.check_agents(spec)
        config.check_deps(spec)
        config.check_settings(spec, model_settings)
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
        begun = self._workflows.under(self.store, own_id, new=run_id is None)
        async with begun, self._owner() as owner, _kept(self.store, own_id, workbooks):
            workflow = Workflow(replace(config, owner=owner), own_id)
            root = Root(
                spec=spec,
                prompt=text,
                label=label,
                rendered=rendered,
                images=images,
                history=before,
                guarded=looked,
            )
            if self.hands_over:
                self._follow(config, own_id, await workflow.queue_root(to_workers(chosen, config), root))
            else:
                self._workflows.add(workflow, await workflow.start_root(root))
        return own_id

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

    async def _let_in(
        self,
        config: WorkflowConfig,
        spec: AgentSpec,
        root_id: str,
        text: str,
        files: list[Attachment],
        history: tuple[Message, ...] = (),
    ) -> tuple[Looked | None, list[Attachment], tuple[Message, ...]]:
        """What guards say to all that a model reads of a question: its text, each attachment, what was said
        before elsewhere; and these as the guards let them pass. Neither is left where a guard stops one."""
        looked = await front_door(config, spec, root_id, text)
        if looked is None:
            return None, files, history
        said, passed = list(looked.said), list[Attachment | Message]()
        for each in (*files, *history):
            found = await front_door(config, spec, root_id, each.text) if each.text else None
            if found is not None and found.changed and not found.stops:
                if isinstance(each, Attachment) and each.workbook is not None:  # tools read it as it is
                    found = replace(found, said=tuple(replace(one, decision="stop") for one in found.said))
                elif isinstance(each, Attachment):
                    each = replace(each, text=found.text)
                else:
                    each = msgspec.structs.replace(each, text=found.text)
            said += found.said if found is not None else ()
            passed.append(each)
        looked = replace(looked, said=tuple(said))
        if looked.stops:
            return looked, [], ()
        attached = [each for each in passed if isinstance(each, Attachment)]
        return looked, attached, tuple(each for each in passed if not isinstance(each, Attachment))

    def _wanted(self, output: type[Any] | None) -> JsonSchema | None:
        """The JSON schema of a type that an answer is to be of. The type is known by it from here on."""
        if output is None:
            return None
        schema = schema_of(output)
        if isinstance(schema, TypedSchema):
            self._kinds = [schema, *(kind for kind in self._kinds if kind != schema)]
        return schema

    def _rendered(
        self, text: str, files: Sequence[Attachment], settings: Settings, wanted: JsonSchema | None
    ) -> tuple[str, tuple[Image, ...]]:
        """What the model reads of a question, if that is more than its text, and the pictures beside it."""
        attached, images = render(files, most=settings.context.attachment_tokens * 4)
        form = "" if wanted is None else FORM + json.dumps(wanted, ensure_ascii=False)
        more = [part for part in (attached, form) if part]
        return "\n\n".join((text, *more)) if more else "", images

    def _agent(self, agent: str | AgentSpec, parts: RunParts) -> AgentSpec:
        """The agent that is to run, by its name or as it was given."""
        if isinstance(agent, str):
            own = {each.name: each for each in parts.agents}
            return own[agent] if agent in own else self.services.agent(agent)
        if not isinstance(cast("Any", agent), AgentSpec):
            raise TypeError(f"agent is {shown(agent)}: give the name of an agent, or an AgentSpec")
        own_names = {each.name for each in (*self._own_tools, *parts.tools)}
        known = {*self.tools, *self.services.specs, *own_names, *(each.name for each in parts.agents)}
        check_agent(agent, known, own_names, lambda: ())
        return agent

    def _first_message(self, agent: str | AgentSpec, prompt: Prompt, options: RunWith[Deps]) -> str:
        """What an agent is asked with a prompt."""
        tools = listed("tools", options.get("tools", ()), "functions or tools")
        agents = listed("agents", options.get("agents", ()), "AgentSpec")
        parts = self._parts(agent if isinstance(agent, AgentSpec) else None, tools, agents)
        return first_message(self._agent(agent, parts), prompt)

    async def _work(
        self, agent: str | AgentSpec, options: RunWith[Deps], deps: Deps | None, *, said: bool
    ) -> str:
        """What the work of a batch is known by, beside its inputs: who does it, for whom, with what.

        `said`: the program says whose it is, by metadata, a name or a key.
        """
        asked = await self._asked(agent, options, deps)
        unknown = sorted(name for name, held in asked.held.items() if held is None)
        if unknown and not said:
            raise ConfigError(
                f"a stored report of a batch cannot be known by what these tools hold: {', '.join(unknown)}",
                fix="say whose it is: metadata={'tenant': …}; or give a name, if all may share the reports",
            )
        model = ""
        with contextlib.suppress(ConfigError):  # each run will say so
            model = self.services.models.main(self._settings_for(options.get("settings") or {})).name
        return asked.digest(texts(options.get("metadata") or {}), model)

    async def _asked(self, agent: str | AgentSpec, options: RunWith[Deps], deps: Deps | None) -> AskedWith:
        """What a run is asked with that is given these."""
        tools = listed("tools", options.get("tools", ()), "functions or tools")
        agents = listed("agents", options.get("agents", ()), "AgentSpec")
        parts = self._parts(agent if isinstance(agent, AgentSpec) else None, tools, agents)
        spec = self._agent(agent, parts)
        told, prompt = options.get("instructions"), _prompt_function(spec)
        if self._is_known(deps):
            told = await made_text("instructions", told, deps)
            prompt = await made_text("prompt", prompt, deps)
        files = await own_attachments(options.get("attachments", ()), self.cwd, self.project)
        return self._asked_with(spec, parts, options, files, prompt, told)

    def _asked_by(
        self,
        spec: AgentSpec,
        parts: RunParts,
        given: RunWith[Deps],
        files: Sequence[Attachment],
        deps: Deps | None,
        *,
        prompt: str,
        told: str,
    ) -> AskedWith:
        """The same for a run that begins, whose `prompt` and `told` are made."""
        function = _prompt_function(spec)
        if not self._is_known(deps):
            return self._asked_with(spec, parts, given, files, function, given.get("instructions"))
        return self._asked_with(spec, parts, given, files, storable(prompt) if function else "", told)

    def _is_known(self, deps: Deps | None) -> bool:
        """Whether it is known what functions of the deps make: else each run has its own, by its metadata."""
        return deps is not None or self._deps_factory is None

    def _asked_with(
        self,
        spec: AgentSpec,
        parts: RunParts,
        given: RunWith[Deps],
        files: Sequence[Attachment],
        prompt: object,
        told: object,
    ) -> AskedWith:
        own = {**self.services.specs, **{each.name: each for each in parts.agents}}
        team, todo = dict[str, AgentSpec](), list(spec.tools or ())
        while todo:
            each = own.get(todo.pop())
            if each is not None and each.origin == "code" and each.name not in (spec.name, *team):
                team[each.name] = each
                todo += each.tools or ()
        return AskedWith(
            folder=str(self.project or ""),
            spec=spec,
            team=[team[name] for name in sorted(team)],
            prompt=prompt,
            told=told,
            given=given,
            files=files,
            held={
                each.name: each.holds
                for each in (*self._own_tools, *parts.tools)
                if each.holds != () and not each.ours
            },
        )

    def _parts(self, spec: AgentSpec | None, tools: Sequence[Any], agents: Sequence[Any]) -> RunParts:
        if spec is None and not tools and not agents:
            return RunParts()
        return parts_of(
            spec, tools, agents, own=self._own_tools, known=self.services.specs, others=self.tools.keys()
        )

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
        child = message is not None and row.parent_id is not None and row.status in ENDED
        root_id, asks = row.root_id, run_id if child else ""
        if asks:  # what is given of turns is for whom it is given to
            given = replace(given, settings={k: v for k, v in given.settings.items() if k != MAX_TURNS})
        if asks and row.parent_id != root_id:
            raise ConfigError(
                f"{run_id} was started by {row.parent_id}, which has ended as well",
                fix=f"speak to {row.parent_id} or to {root_id}",
            )

        files = await own_attachments(attachments, self.cwd, self.project)
        wanted = self._wanted(output)

        async def may_go_on(events: Sequence[AnyEvent]) -> None:
            if by_itself:
                refuse_if_ended(events, root_id)
            if message is None:
                refuse_if_nothing_left(workflow.tree, run_id)
            if not take_over:
                await refuse_if_owned(self.owners, events, root_id)

        async with self._workflows.taking_up(root_id), self._owner() as owner:
            found = await read(self.store, root_id)
            self._refuse_missing(found.began, parts)
            asked = approve is not None or answering is not None or self.answering == "ask"
            if found.began.options.approver and not asked:
                raise ConfigError(
                    "the run was given a function that answers its questions, which is missing now",
                    fix='give it again: resume(run_id, approve=…); answering="refuse" goes on without',
                )
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
            config = self._config(options, workbooks, [found.began], answering=answering, approve=approve)
            handed = await self._deps(deps, root_id, found.began.spec, options)
            config = replace(
                parts.added_to(config), owner=owner, deps=handed, headers=headers, models=objects
            )
            config.check_deps(found.began.spec)
            check_headers(config.with_headers(found.began.spec))
            workflow = Workflow(config, root_id)
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

    async def _said(
        self,
        config: WorkflowConfig,
        spec: AgentSpec,
        root_id: str,
        message: str,
        files: list[Attachment],
        wanted: JsonSchema | None,
    ) -> SaidByPerson:
        """A message to a workflow that is taken up, as its guards let it pass."""
        looked, files, _ = await self._let_in(config, spec, root_id, message, files)
        text = message if looked is None else looked.text
        settings = self._settings_for(config.options.settings)
        rendered, images = self._rendered(text, files, settings, wanted)
        return SaidByPerson(
            text=storable(text),
            rendered=storable(rendered),
            images=images,
            output=wanted,
            guarded=looked,
            workbooks=workbooks_of(files),
        )

    def _refuse_missing(self, began: RunStarted, parts: RunParts | None = None) -> None:
        """Refuse to take up a run whose own tools, agents or guards are not here now."""
        given = parts or RunParts()
        known = {*self.tools, *given.origins}
        for name in began.options.guards:
            if name not in (*self._input_guards, *self._output_guards):
                raise ConfigError(
                    f"the run was begun under the guard {name!r}, which is missing here",
                    fix="give it to Retinue(input_guards=…) or Retinue(output_guards=…) again",
                )
        for name, origin in began.options.tools.items():
            if name in known:
                continue
            why = self.tool_files.withheld.get(name)
            again = f"give '{origin}' again" if origin.startswith("--tools") else f"it was in {origin}"
            if origin == THIS_RUN:
                again = f"give it again: resume(run_id, tools=[{name}])"
            raise ConfigError(
                f"the run was started with the tool {name!r}, which is missing now"
                + (f": {why}" if why else ""),
                fix=again,
            )
        refuse_missing(began.options.agents, {*self.services.specs, *(each.name for each in given.agents)})

    def model_known(self, model: str, objects: Mapping[str, Model] | None = None) -> str:
        """The full name of a model that a run is given, or an error that says what is wrong with it.
        `objects` are models of the program, by their names."""
        return self.services.models.of(self.settings, model, None, objects or {}).name if model else ""

    def _is_another(self, root_id: str, model: str) -> bool:
        """Whether a model that a workflow is given is not the one that its root is at work with here."""
        live = self._workflows.live(root_id, root_id)
        return bool(model) and (live is None or live.run.model.name != model)

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
        new_run_id: str | None = None,
        tools: Iterable[Tool | Function] = (),
        agents: Iterable[AgentSpec] = (),
        approve: Approve | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> str:
        """Begin a new workflow with the events of another up to the place `at`, and go on from there.

        The old one is untouched. Returns the new root's id, which is `new_run_id` if that is given.
        `message` is said to it then, with the `attachments`, and `model` answers from there on, if it is
        given. `tools`, `agents`, `approve` and `extra_headers` are as for `resume`.
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
        return await self.replay_events(await self.store.events(root_id), live_tools=live_tools)

    async def replay_events(self, events: Sequence[AnyEvent], *, live_tools: Iterable[str] = ()) -> Replayed:
        """The same for `events` that were kept elsewhere, such as a recorded file; `live_tools` really
        run."""
        began = next(event for event in events if isinstance(event, RunStarted))
        config = replace(self._config(began.options, begun=events), publish=_nobody)
        return await replay(events, config, live_tools=frozenset(live_tools))

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


def _prompt_function(spec: AgentSpec) -> object:
    """What makes the prompt of an agent, if a function of the program does."""
    return spec.given.prompt if isinstance(spec.given, GivenObjects) else None
