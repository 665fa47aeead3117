"""A host: the official client, of either era of the protocol, with `retinue mcp serve` as its child."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from mcp import Client, StdioServerParameters
from mcp.client.extension import ClientExtension, ResultClaim
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, Request, RequestParams, Result

from retinue.app import Retinue
from retinue.mcp_server.hosted import HostedRuns
from retinue.mcp_server.server import create_server
from retinue.testing import FakeProvider, ScriptedModel

ERAS = ("legacy", "2026-07-28")
TASKS = "io.modelcontextprotocol/tasks"
KEPT = ("PATH", "LANG", "LC_ALL", "COVERAGE_PROCESS_START")
Filled = Callable[[Any, ElicitRequestParams], Awaitable[ElicitResult]]


def filling(said: list[str], decision: str, **more: Any) -> Filled:
    """A person at the host who answers every form like this. `said` is what they were asked."""

    async def fill(context: Any, params: ElicitRequestParams) -> ElicitResult:
        said.append(params.message)
        return ElicitResult(action="accept", content={"decision": decision, **more})

    return fill


class World:
    """A folder with its own settings and database, where a host starts servers."""

    def __init__(self, home: Path, provider: FakeProvider | None = None) -> None:
        self.home, self.folder = home, home / "project"
        self.folder.mkdir(exist_ok=True)
        self.db = f"sqlite://{home}/log.db"
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "TMPDIR": str(home)}
        if provider is not None:
            self.env |= provider.environ() | {"RETINUE_MODEL": "openai:fake-model"}

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "retinue", "mcp", "serve", "--cwd", str(self.folder), "--db", self.db]

    @property
    def parameters(self) -> StdioServerParameters:
        args = ["-c", f'echo $$ > "{self.home}/pid"; exec "$@"', "sh", *self.command]
        return StdioServerParameters(command="sh", args=args, env=self.env)

    def kill(self) -> None:
        """kill -9 of the server that was started last."""
        os.kill(int((self.home / "pid").read_text()), signal.SIGKILL)

    def host(self, era: str, **more: Any) -> Client:
        return Client(self.parameters, mode=era, **more)


@asynccontextmanager
async def in_process(
    folder: Path, model: ScriptedModel, era: str, *, db: str = "memory:", agents: Any = (), **more: Any
) -> AsyncGenerator[tuple[Client, Retinue]]:
    """The same server without a process: what is asked of it, and how it answers, is the same."""
    options = {name: more.pop(name) for name in ("tools", "settings") if name in more}
    waits = more.pop("waits", False)
    async with (
        Retinue(model=model, cwd=folder, db=db, agents=agents, **options) as retinue,
        Client(create_server(HostedRuns(retinue, waits=waits)), mode=era, **more) as client,
    ):
        yield client, retinue


class TaskHandle(Result):
    """What a server answers instead of a result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class WithTasks(ClientExtension):
    """The official client with tasks: handles are kept, whoever has them asks for the rest."""

    identifier = TASKS

    def claims(self) -> list[ResultClaim[TaskHandle]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._never)]

    async def _never(self, handle: TaskHandle, context: Any) -> CallToolResult:
        raise AssertionError("the test follows its tasks itself")


class TaskState(Result):
    """What `tasks/get` answers."""

    task_id: str
    status: str
    status_message: str | None = None
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class TaskCall(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(Request[TaskCall, str]):
    name_param = "taskId"


async def task(client: Client, method: str, task_id: str, **more: Any) -> TaskState:
    """A request of the extension."""
    request = TaskRequest(method=method, params=TaskCall(task_id=task_id, **more))
    kind = TaskState if method == "tasks/get" else Result
    return await client.session.send_request(request, kind)  # pyright: ignore[reportReturnType]
