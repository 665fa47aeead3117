"""The tools that a host sees: every agent, `ask`; for clients without tasks `start`, `result`, `cancel`.

Called by `server` for `tools/list` and `tools/call`. Whatever goes wrong with a call is its result, with what
to do about it; an error of the protocol is for what is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    Tool,
    ToolAnnotations,
)

from retinue.delegate import PROMPT_SCHEMA
from retinue.errors import ConfigError, RetinueError
from retinue.events import ApprovalRequested
from retinue.mcp_server.account import FIELDS, REQUIRED, failure, result_of, unfinished
from retinue.mcp_server.caller import Abilities, Caller, Context, abilities_of, caller_of
from retinue.mcp_server.forms import FormAnswer, answer_of, form_message, form_request, form_schema
from retinue.mcp_server.hosted import Followed, HostedRuns
from retinue.mcp_server.tasks import created
from retinue.types import AgentSpec

MOST_WAIT = 50
"""Seconds that `result` waits at most: many clients give a call up after 60."""
WAIT = 30
HELPERS = ("ask", "start", "result", "cancel")
LOOKING = frozenset({"read", "network"})

Called = CallToolResult | InputRequiredResult | dict[str, Any]


class AgentTools:
    def __init__(self, hosted: HostedRuns) -> None:
        self._hosted = hosted

    @property
    def _specs(self) -> Mapping[str, AgentSpec]:
        return self._hosted.retinue.services.specs

    def _name(self, helper: str) -> str:
        """What one of our own tools is called: an agent of the same name keeps it."""
        return f"retinue_{helper}" if helper in self._specs else helper

    # -- tools/list

    async def list_tools(self, ctx: Context) -> ListToolsResult:
        await self._hosted.retinue.reread_agents()
        tools = [self._of_agent(spec) for spec in self._specs.values()]
        tools.append(self._ask())
        if not abilities_of(ctx).tasks:
            tools += self._for_long_work()
        return ListToolsResult(tools=tools)

    def _of_agent(self, spec: AgentSpec) -> Tool:
        return Tool(
            name=spec.name,
            title=f"{spec.icon} {spec.name}".strip(),
            description=spec.description,
            input_schema=spec.input_schema or PROMPT_SCHEMA,
            output_schema=output_schema(spec.output_schema),
            annotations=ToolAnnotations(read_only_hint=self._only_looks(spec), open_world_hint=True),
        )

    def _only_looks(self, spec: AgentSpec) -> bool:
        known = self._hosted.retinue.tools
        held = [known.get(name) for name in spec.tools or ()]
        return bool(held) and all(tool is not None and tool.effect in LOOKING for tool in held)

    def _ask(self) -> Tool:
        return Tool(
            name=self._name("ask"),
            description="Ask the default agent, which delegates to the others as it needs. For work that "
            "belongs to one of them, call that one.",
            input_schema=PROMPT_SCHEMA,
            output_schema=output_schema(None),
        )

    def _for_long_work(self) -> list[Tool]:
        run_id = {"type": "string", "description": "what start returned"}
        result, start = self._name("result"), self._name("start")
        agent = {"type": "string", "description": "an agent by name; the default agent if left out"}
        return [
            Tool(
                name=start,
                description=f"Start an agent on long work and return its run_id at once; '{result}' gives "
                "its report. For what may take longer than this program waits for a call.",
                input_schema={
                    "type": "object",
                    "properties": {
                        "agent": agent,
                        "prompt": {"type": "string", "description": "the whole task"},
                        "arguments": {
                            "type": "object",
                            "description": "instead of prompt: the agent's own arguments by name",
                        },
                    },
                    "additionalProperties": False,
                },
                output_schema=output_schema(None),
            ),
            Tool(
                name=result,
                description=f"The report of a run that '{start}' began, or how it stands: waits for its end, "
                f"at most wait seconds. Call it again while the run goes on.",
                input_schema={
                    "type": "object",
                    "properties": {
                        "run_id": run_id,
                        "wait": {"type": "number", "minimum": 0, "maximum": MOST_WAIT, "default": WAIT},
                    },
                    "required": ["run_id"],
                    "additionalProperties": False,
                },
                output_schema=output_schema(None),
                annotations=ToolAnnotations(read_only_hint=True),
            ),
            Tool(
                name=self._name("cancel"),
                description=f"Stop a run that '{start}' began, and everything below it.",
                input_schema={
                    "type": "object",
                    "properties": {"run_id": run_id},
                    "required": ["run_id"],
                    "additionalProperties": False,
                },
            ),
        ]

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        spec = self._specs.get(name)
        return (spec.input_schema or PROMPT_SCHEMA) if spec is not None else None

    # -- tools/call

    async def call(self, ctx: Context, params: CallToolRequestParams) -> Called:
        try:
            return await self._call(ctx, params)
        except (RetinueError, TypeError, ValueError) as error:
            return failure(str(error))

    async def _call(self, ctx: Context, params: CallToolRequestParams) -> Called:
        caller, abilities, given = caller_of(ctx), abilities_of(ctx), params.arguments or {}
        if params.request_state is not None:
            return await self._go_on(ctx, params, params.request_state)
        helper = next((each for each in HELPERS if self._name(each) == params.name), None)
        match helper:
            case "start":
                return await self._start(caller, abilities, given)
            case "result":
                return await self._result(ctx, _text(given, "run_id"), _wait(given))
            case "cancel":
                return await self._cancel(caller, _text(given, "run_id"))
            case "ask":
                agent, prompt = self._hosted.retinue.settings.default_agent, _text(given, "prompt")
                run_id = await self._hosted.start(caller, abilities, agent, prompt)
            case _:
                run_id = await self._hosted.start(caller, abilities, params.name, given)
        if abilities.tasks:
            return await created(self._hosted, run_id)
        async with self._hosted.dropped(run_id):
            return self._told(caller, run_id, await self._follow(ctx, run_id))

    async def _start(self, caller: Caller, abilities: Abilities, given: Mapping[str, Any]) -> CallToolResult:
        agent = given.get("agent") or self._hosted.retinue.settings.default_agent
        asked = [given[name] for name in ("prompt", "arguments") if given.get(name) is not None]
        if not isinstance(agent, str) or len(asked) != 1:
            raise ConfigError(
                f"{self._name('start')} takes one of prompt and arguments",
                fix='give {"agent": "NAME", "prompt": "the whole task"}',
            )
        run_id = await self._hosted.start(caller, abilities, agent, asked[0])
        then = f"Call '{self._name('result')}' with run_id {run_id!r} for its report."
        return unfinished(run_id, await self._hosted.account(run_id), then)

    async def _result(self, ctx: Context, run_id: str, seconds: float) -> Called:
        caller, abilities = caller_of(ctx), abilities_of(ctx)
        row = await self._hosted.find(caller, run_id)
        await self._hosted.take_up(row, caller, abilities)
        return self._told(caller, run_id, await self._follow(ctx, run_id, seconds=seconds, from_now=True))

    async def _cancel(self, caller: Caller, run_id: str) -> CallToolResult:
        row = await self._hosted.find(caller, run_id)
        await self._hosted.cancel(row.run_id, f"cancelled by {caller.name}")
        account = await self._hosted.account(run_id)
        if account.report is not None:
            return result_of(account, account.report)
        return unfinished(run_id, account, "It was told to stop, and keeps what it has found so far.")

    async def _go_on(self, ctx: Context, params: CallToolRequestParams, run_id: str) -> Called:
        """The same call once more, with what a person said to the questions that it stopped at."""
        caller, abilities = caller_of(ctx), abilities_of(ctx)
        row = await self._hosted.find(caller, run_id)
        asked = (await self._hosted.account(run_id)).story.approvals
        answered: set[str] = set()
        for key, response in (params.input_responses or {}).items():
            if key in asked and isinstance(response, ElicitResult) and caller.may_answer:
                await self._hosted.answer(caller, key, answer_of(asked[key], caller, response))
                answered.add(key)
        await self._hosted.take_up(row, caller, abilities)
        waits = params.name == self._name("result")
        seconds = _wait(params.arguments or {}) if waits else None
        follow = partial(
            self._follow, ctx, run_id, answered=frozenset(answered), seconds=seconds, from_now=True
        )
        if waits:
            return self._told(caller, run_id, await follow())
        async with self._hosted.dropped(run_id):
            return self._told(caller, run_id, await follow())

    async def _follow(
        self,
        ctx: Context,
        run_id: str,
        *,
        answered: frozenset[str] = frozenset(),
        seconds: float | None = None,
        from_now: bool = False,
    ) -> Followed:
        abilities, caller = abilities_of(ctx), caller_of(ctx)
        forms = abilities.forms and caller.may_answer
        return await self._hosted.follow(
            run_id,
            tell=partial(_tell, ctx),
            ask=partial(self._elicit, ctx, caller) if forms and not abilities.modern else None,
            stops_at_questions=forms and abilities.modern,
            answered=answered,
            seconds=seconds,
            from_now=from_now,
        )

    async def _elicit(self, ctx: Context, caller: Caller, asked: ApprovalRequested) -> None:
        """Put a question to the person at a host of an older revision, which can be asked at any time."""
        try:
            form = form_schema(asked, caller)
            said = await ctx.session.elicit_form(form_message(asked), form, ctx.request_id)
            answer = answer_of(asked, caller, said)
        except MCPError as error:
            answer = FormAnswer(decision="reject", reason=f"the host could not ask: {error}")
        await self._hosted.answer(caller, asked.approval_id, answer)

    def _told(self, caller: Caller, run_id: str, followed: Followed) -> Called:
        if followed.report is not None:
            return result_of(followed.account, followed.report)
        if followed.questions:
            requests = {asked.approval_id: form_request(asked, caller) for asked in followed.questions}
            return InputRequiredResult(input_requests=dict(requests), request_state=run_id)
        again = f"Call '{self._name('result')}' with run_id {run_id!r} again."
        if followed.left:
            stopped = f"The server stops; nothing is lost, and the run goes on when it is asked for. {again}"
            told = unfinished(run_id, followed.account, stopped)
            return told.model_copy(update={"is_error": True})
        return unfinished(run_id, followed.account, again)


async def _tell(ctx: Context, count: float, line: str) -> None:
    await ctx.session.report_progress(count, None, line)


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if isinstance(value, str) and value.strip():
        return value
    raise ConfigError(f"{name} is missing or is no text", fix=f'give {{"{name}": "…"}}')


def _wait(given: Mapping[str, Any]) -> float:
    value = given.get("wait", WAIT)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_WAIT:
        raise ConfigError(f"wait is {value!r}", fix=f"give a number of seconds from 0 to {MOST_WAIT}")
    return float(value)


def output_schema(own: Any) -> dict[str, Any]:
    """What a tool of ours returns as fields; `data` is what the agent's own schema says."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(FIELDS), "required": list(REQUIRED)}
    if isinstance(own, dict):
        data = dict(cast("dict[str, Any]", own))
        for shared in ("$defs", "definitions"):  # what it refers to from the root has to be there
            if shared in data:
                schema[shared] = data.pop(shared)
        schema["properties"]["data"] = data
    return schema
