"""An editor: the protocol package's own client, with `retinue acp` as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, schema, text_block
from acp.client import ClientSideConnection

from retinue.testing import FakeProvider

BOSS = """---
name: boss
description: does everything
tools: [clerk, read, write, edit, todo]
---
You are the boss.
"""
CLERK = """---
name: clerk
description: Use for looking.
tools: [read]
---
You are the clerk.
"""
Answering = Callable[[schema.ToolCallUpdate, list[schema.PermissionOption]], str | None]


class Editor:
    """What the agent said. `answer` chooses an option for a question; `held` are unsaved buffers by path."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]] = []
        self.answer: Answering = lambda call, options: "approve"
        self.held: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.heard = asyncio.Condition()
        self.answering = asyncio.Event()
        self.answering.set()

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        async with self.heard:
            self.updates.append(update)
            self.heard.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        async with self.heard:
            self.asked.append((tool_call, options))
            self.heard.notify_all()
        await self.answering.wait()
        chosen = self.answer(tool_call, options)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen)
        )

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> schema.ReadTextFileResponse:
        if path in self.held:
            return schema.ReadTextFileResponse(content=self.held[path])
        if not os.path.exists(path):
            raise RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=Path(path).read_text())

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.written[path] = content
        self.held.pop(path, None)
        Path(path).write_text(content)

    async def until(self, found: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self.heard:
            await self.heard.wait_for(found)

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(each.content.text for each in self.updates if each.session_update == kind)

    def calls(self) -> dict[str, Any]:
        """Tool calls by id, as they were announced."""
        return {each.tool_call_id: each for each in self.updates if each.session_update == "tool_call"}

    def last(self, id: str) -> str | None:
        """The last status of a tool call."""
        said = [each for each in self.updates if getattr(each, "tool_call_id", "") == id]
        return next((each.status for each in reversed(said) if each.status), None)


class Desk:
    """A project with a boss and a clerk, and an environment of its own."""

    def __init__(self, home: Path, provider: FakeProvider) -> None:
        self.folder = home / "project"
        agents = self.folder / ".retinue" / "agents"
        agents.mkdir(parents=True)
        (agents / "boss.md").write_text(BOSS)
        (agents / "clerk.md").write_text(CLERK)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.env = kept | {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "TMPDIR": str(home),
            "OPENAI_BASE_URL": provider.openai_url,
            "OPENAI_API_KEY": "test-key",
            "RETINUE_MODEL": "openai:fake-model",
            "RETINUE_DEFAULT_AGENT": "boss",
            "RETINUE_DB": f"sqlite:///{home}/runs.db",
        }

    @contextlib.asynccontextmanager
    async def open(
        self, editor: Editor, *, buffers: bool = False
    ) -> AsyncIterator[tuple[ClientSideConnection, asyncio.subprocess.Process]]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "retinue", "acp"),
            cwd=self.folder,
            env=self.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=10_000_000,
        )
        assert process.stdin is not None
        agent = connect_to_agent(editor, process.stdin, process.stdout, use_unstable_protocol=True)  # pyright: ignore[reportArgumentType]
        try:
            async with asyncio.timeout(90):
                capabilities = schema.ClientCapabilities(
                    fs=schema.FileSystemCapabilities(read_text_file=buffers, write_text_file=buffers)
                )
                await agent.initialize(PROTOCOL_VERSION, client_capabilities=capabilities)
                yield agent, process
        finally:
            await agent.close()
            if process.returncode is None:
                process.stdin.close()
                async with asyncio.timeout(30):
                    await process.wait()


def said(text: str) -> list[Any]:
    return [text_block(text)]
