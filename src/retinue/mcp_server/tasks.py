"""Tasks, the extension of the revision 2026-07-28: `tasks/get`, `tasks/update`, `tasks/cancel`.

A task is a run and its id the run's. Its state is read from the log, so it outlives this process: whoever
asks for a task whose process is gone has it taken up. `failed` is for a run that cannot be taken up; one that
ended with an error has completed, with a result that says so.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ElicitResult,
    InputResponses,
    RequestParams,
)

from retinue.errors import ConfigError, RetinueError
from retinue.mcp_server.account import RunAccount, result_of, standing_line
from retinue.mcp_server.caller import TASKS, Abilities, Caller, Context, abilities_of, caller_of
from retinue.mcp_server.forms import answer_of, form_request
from retinue.mcp_server.hosted import HostedRuns
from retinue.store.base import RunRow

POLL_MS = 1000


class TaskParams(RequestParams):
    task_id: str


class TaskUpdateParams(TaskParams):
    input_responses: InputResponses


class RunTasks:
    def __init__(self, hosted: HostedRuns) -> None:
        self._hosted = hosted

    def install(self, server: Server[Any]) -> None:
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, self.get)
        server.add_request_handler("tasks/update", TaskUpdateParams, self.update)
        server.add_request_handler("tasks/cancel", TaskParams, self.cancel)

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        caller, abilities, row = await self._reach(ctx, params.task_id)
        try:
            await self._hosted.take_up(row, caller, abilities)
        except RetinueError as error:
            account = await self._hosted.account(row.run_id)
            if account.report is None:
                why = f"{row.run_id} cannot be taken up: {error}"
                return {
                    **_facts(row.run_id, account, "failed", why),
                    "error": {"code": INTERNAL_ERROR, "message": why},
                }
        return detailed(row.run_id, await self._hosted.account(row.run_id), caller, abilities)

    async def update(self, ctx: Context, params: TaskUpdateParams) -> dict[str, Any]:
        """What is said to questions that do not wait is ignored, as the extension asks."""
        caller, _, row = await self._reach(ctx, params.task_id)
        asked = dict((await self._hosted.account(row.run_id)).story.approvals)
        for key, response in params.input_responses.items():
            if key in asked and isinstance(response, ElicitResult):
                if not caller.may_answer:
                    raise MCPError(
                        INVALID_PARAMS, f"{caller.name} may not answer: it has the role {caller.role}"
                    )
                await self._hosted.answer(caller, key, answer_of(asked[key], caller, response))
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        caller, _, row = await self._reach(ctx, params.task_id)
        await self._hosted.cancel(row.run_id, f"cancelled by {caller.name}")
        return {}

    async def _reach(self, ctx: Context, task_id: str) -> tuple[Caller, Abilities, RunRow]:
        caller, abilities = caller_of(ctx), abilities_of(ctx)
        if not abilities.tasks:
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"this needs the extension {TASKS}; without it, the tools start and result do the same",
                {"requiredCapabilities": {"extensions": {TASKS: {}}}},
            )
        try:
            return caller, abilities, await self._hosted.find(caller, task_id)
        except ConfigError as error:
            raise MCPError(INVALID_PARAMS, f"task not found: {error}") from None


async def created(hosted: HostedRuns, run_id: str) -> dict[str, Any]:
    """The handle that stands for a result. The run is in the log by now, so a task of this id is found."""
    account = await hosted.account(run_id)
    return {**_facts(run_id, account, "working", standing_line(account)), "resultType": "task"}


def detailed(run_id: str, account: RunAccount, caller: Caller, abilities: Abilities) -> dict[str, Any]:
    """A task with what its status has: a result, questions."""
    report = account.report
    if report is not None:
        if report.status == "cancelled":
            return _facts(run_id, account, "cancelled", report.error or report.incomplete or "cancelled")
        result = result_of(account, report).model_dump(by_alias=True, mode="json", exclude_none=True)
        return {**_facts(run_id, account, "completed", report.outcome), "result": result}
    waiting = account.story.approvals
    if waiting and abilities.forms and caller.may_answer:
        requests = {
            key: form_request(asked, caller).model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, asked in waiting.items()
        }
        return {
            **_facts(run_id, account, "input_required", standing_line(account)),
            "inputRequests": requests,
        }
    return _facts(run_id, account, "working", standing_line(account))


def _facts(run_id: str, account: RunAccount, status: str, message: str) -> dict[str, Any]:
    root = account.story.root
    began = root.began if root is not None else 0.0
    return {
        "taskId": run_id,
        "status": status,
        "statusMessage": message,
        "createdAt": _moment(began),
        "lastUpdatedAt": _moment(max(began, account.story.last_at)),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
