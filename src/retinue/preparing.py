"""What a run that begins or goes on is made of: its agent, its parts, what it is asked, what it is known by.

Between `beginnings`, which says when, and `instance`. Begins nothing by itself.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from retinue.attachments import Attachment, render
from retinue.context import FORM
from retinue.delegate import first_message
from retinue.engine.config import WorkflowConfig
from retinue.engine.resume import SaidByPerson
from retinue.engine.run_guards import front_door
from retinue.errors import ConfigError
from retinue.events import RunStarted
from retinue.given import check_agent, own_attachments, workbooks_of
from retinue.guards import Looked
from retinue.instance import Instance
from retinue.map_batch import Prompt
from retinue.models.base import Model
from retinue.parameters import listed, shown, texts
from retinue.run_log import storable
from retinue.run_options import RunWith
from retinue.run_parts import THIS_RUN, RunParts, made_text, parts_of, refuse_missing
from retinue.same_work import AskedWith
from retinue.settings import Settings
from retinue.types import AgentSpec, Deps, GivenObjects, Image, JsonSchema, Message, TypedSchema, schema_of


class Preparing(Instance[Deps]):
    """A `Retinue` as far as it makes ready what its runs begin with."""

    def _parts(self, spec: AgentSpec | None, tools: Sequence[Any], agents: Sequence[Any]) -> RunParts:
        if spec is None and not tools and not agents:
            return RunParts()
        return parts_of(
            spec, tools, agents, own=self._own_tools, known=self.services.specs, others=self.tools.keys()
        )

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

    def _wanted(self, output: type[Any] | None) -> JsonSchema | None:
        """The JSON schema of a type that an answer is to be of. The type is known by it from here on."""
        if output is None:
            return None
        schema = schema_of(output)
        if isinstance(schema, TypedSchema):
            self._kinds = [schema, *(kind for kind in self._kinds if kind != schema)]
        return schema

    def model_known(self, model: str, objects: Mapping[str, Model] | None = None) -> str:
        """The full name of a model that a run is given, or an error that says what is wrong with it.
        `objects` are models of the program, by their names."""
        return self.services.models.of(self.settings, model, None, objects or {}).name if model else ""

    def _is_another(self, root_id: str, model: str) -> bool:
        """Whether a model that a workflow is given is not the one that its root is at work with here."""
        live = self._workflows.live(root_id, root_id)
        return bool(model) and (live is None or live.run.model.name != model)

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

    def _rendered(
        self, text: str, files: Sequence[Attachment], settings: Settings, wanted: JsonSchema | None
    ) -> tuple[str, tuple[Image, ...]]:
        """What the model reads of a question, if that is more than its text, and the pictures beside it."""
        attached, images = render(files, most=settings.context.attachment_tokens * 4)
        form = "" if wanted is None else FORM + json.dumps(wanted, ensure_ascii=False)
        more = [part for part in (attached, form) if part]
        return "\n\n".join((text, *more)) if more else "", images

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


def _prompt_function(spec: AgentSpec) -> object:
    """What makes the prompt of an agent, if a function of the program does."""
    return spec.given.prompt if isinstance(spec.given, GivenObjects) else None
