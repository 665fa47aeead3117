"""What tests of runs and trees share: scripted models by agent, and a workflow over any store."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from retinue.approvals import Rules
from retinue.engine.config import WorkflowConfig
from retinue.engine.resume import SaidByPerson, read, resume
from retinue.engine.workflow import Root, Workflow
from retinue.events import AnyEvent, LiveEvent
from retinue.models.base import Model
from retinue.run_ids import new_id
from retinue.settings import ApprovalSettings, Settings, build
from retinue.store.base import Store
from retinue.store.memory import MemoryStore
from retinue.tools.base import Tool
from retinue.types import (
    AgentSpec,
    AssistantMessage,
    ModelEvent,
    ModelRequest,
    Reply,
    Report,
    TextDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

Say = str | Sequence[tuple[str, Mapping[str, Any] | str]] | Reply | Exception
Play = Callable[[ModelRequest], Say | Awaitable[Say]]


def reply(text: str = "", calls: Sequence[tuple[str, Mapping[str, Any] | str]] = (), **usage: Any) -> Reply:
    made = tuple(
        ToolCall(id=f"call{n}", name=name, arguments=a if isinstance(a, str) else json.dumps(a))
        for n, (name, a) in enumerate(calls)
    )
    return Reply(
        message=AssistantMessage(text=text, calls=made),
        usage=Usage(**{"input_tokens": 10, "output_tokens": 5, "cost": 0.001, **usage}),
        stop="tool_calls" if made else "end",
        model="cast",
    )


class Cast:
    """A model that plays every agent: the first line of the system prompt says which part to play.

    A part is a list of replies in order (shared by all runs of that agent only if `turn` picks them), or a
    function of the request. The turn of a run is the number of its own assistant messages.
    """

    name = "cast:test"

    def __init__(self, parts: Mapping[str, Play | Sequence[Say]]) -> None:
        self.parts = parts
        self.requests: list[tuple[str, ModelRequest]] = []

    def of(self, agent: str) -> list[ModelRequest]:
        return [request for name, request in self.requests if name == agent]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        agent = request.system.split("\n", 1)[0].removeprefix("PLAY ").strip()
        self.requests.append((agent, request))
        part = self.parts[agent]
        if callable(part):
            said = part(request)
            if isinstance(said, Awaitable):
                said = await said
        else:
            said = part[turn(request)]
        if isinstance(said, Exception):
            raise said
        await asyncio.sleep(0)
        final = said if isinstance(said, Reply) else reply(said) if isinstance(said, str) else reply("", said)
        if final.message.text:
            yield TextDelta(final.message.text)
        yield final


async def never() -> NoReturn:
    """Wait for what does not happen: only being cancelled ends it."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


def turn(request: ModelRequest) -> int:
    return sum(isinstance(m, AssistantMessage) for m in request.messages)


def results(request: ModelRequest) -> list[ToolMessage]:
    return [m for m in request.messages if isinstance(m, ToolMessage)]


def told(request: ModelRequest) -> list[str]:
    return [m.text for m in request.messages if isinstance(m, UserMessage)]


def agent(name: str, **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"the agent {name}", prompt=f"PLAY {name}", **fields)


def settings_with(**dotted: Any) -> Settings:
    values = {name.replace("__", "."): value for name, value in dotted.items()}
    return build(values, {})


class Stage:
    """One workflow of a cast over a store."""

    def __init__(
        self,
        parts: Mapping[str, Play | Sequence[Say]] | Model,
        *,
        agents: Sequence[AgentSpec] = (),
        tools: Sequence[Tool] = (),
        store: Store | None = None,
        project: Path | None = None,
        root_id: str | None = None,
        yes: bool = False,
        answering: Any = "refuse",
        **dotted: Any,
    ) -> None:
        self.model: Any = Cast(parts) if isinstance(parts, Mapping) else parts
        self.settings = settings_with(**dotted)
        self.store: Store = store or MemoryStore()
        self.live: list[LiveEvent] = []
        self.config = WorkflowConfig(
            settings=self.settings,
            store=self.store,
            agents={spec.name: spec for spec in agents},
            tools={tool.name: tool for tool in tools},
            model=lambda name, parent, known: known.get(name, self.model),
            small=lambda model: self.model,
            project=project,
            publish=self.live.append,
            rules=Rules.of(self.settings.approvals, allow_all=yes),
            environ=os.environ,
            answering=answering,
        )
        self.root_id = root_id or new_id()
        self.workflow = Workflow(self.config, self.root_id)

    async def start(self, spec: AgentSpec | None = None, prompt: str = "go") -> asyncio.Task[Report]:
        return await self.workflow.start_root(Root(spec=spec or agent("root"), prompt=prompt))

    async def run(self, spec: AgentSpec | None = None, prompt: str = "go") -> Report:
        return await (await self.start(spec, prompt))

    async def resume(self, message: str | None = None) -> asyncio.Task[Report]:
        said = None if message is None else SaidByPerson(text=message)
        return await resume(self.workflow, await read(self.store, self.root_id), said=said)

    async def log(self, run_id: str | None = None) -> list[AnyEvent]:
        return await self.store.events(self.root_id, run_id=run_id)


__all__ = [
    "ApprovalSettings",
    "Cast",
    "Stage",
    "agent",
    "never",
    "reply",
    "results",
    "settings_with",
    "told",
    "turn",
]
