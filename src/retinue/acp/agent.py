"""What an editor may ask: initialize, sessions, prompts, cancel, modes and options. Answers over `Retinue`.

One app for each folder that a session is in; all of them share the person's database, so the page and other
terminals see these conversations too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, schema
from acp.interfaces import Client

from retinue.acp.buffers import EditorBuffers
from retinue.acp.choices import modes, options
from retinue.acp.prompting import Block, written
from retinue.acp.servers import McpServer, can_be_used, handed_over
from retinue.acp.session import EditorSession
from retinue.app import Retinue
from retinue.errors import RetinueError
from retinue.run_ids import new_id
from retinue.store.base import RunFilter, RunRow
from retinue.view import words

PAGE = 50
Open = Callable[[Path, Mapping[str, Any]], Retinue]
"""Makes the app of a folder, with these settings."""


class EditorAgent:
    """`open_in` makes the app of a folder, which is opened and closed here."""

    def __init__(self, open_in: Open, version: str) -> None:
        self._open_in = open_in
        self._version = version
        self._apps: dict[tuple[Path, str], Retinue] = {}
        """By folder, and by the servers that the editor handed over."""
        self._opening = asyncio.Lock()
        self._sessions: dict[str, EditorSession] = {}
        self._editor: Client | None = None
        self._files = schema.FileSystemCapabilities()

    def on_connect(self, conn: Client) -> None:
        self._editor = conn

    async def close(self) -> None:
        """The editor is gone: what runs is left as it stands, to be gone on with."""
        for app in self._apps.values():
            await app.leave()
        for session in self._sessions.values():
            await session.close()
        for app in self._apps.values():
            await app.__aexit__(None, None, None)

    # -- the connection --------------------------------------------------------

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **_: Any,
    ) -> schema.InitializeResponse:
        if client_capabilities is not None and client_capabilities.fs is not None:
            self._files = client_capabilities.fs
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_info=schema.Implementation(name="retinue", title="Retinue", version=self._version),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True, image=True, audio=False),
                mcp_capabilities=schema.McpCapabilities(http=can_be_used(), sse=can_be_used()),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:
        return schema.AuthenticateResponse()  # keys are in the environment and the settings

    # -- sessions --------------------------------------------------------------

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[McpServer] | None = None,
        **_: Any,
    ) -> schema.NewSessionResponse:
        session = await self._session(new_id(), cwd, mcp_servers)
        return schema.NewSessionResponse(
            session_id=session.id,
            modes=modes(session.choices),
            config_options=options(session.choices, session.retinue),
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[McpServer] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> schema.LoadSessionResponse:
        session = await self._stored(session_id, cwd, mcp_servers, told=True)
        return schema.LoadSessionResponse(
            modes=modes(session.choices), config_options=options(session.choices, session.retinue)
        )

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[McpServer] | None = None,
        **_: Any,
    ) -> schema.ResumeSessionResponse:
        session = await self._stored(session_id, cwd, mcp_servers, told=False)
        return schema.ResumeSessionResponse(
            modes=modes(session.choices), config_options=options(session.choices, session.retinue)
        )

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[McpServer] | None = None,
        **_: Any,
    ) -> schema.ForkSessionResponse:
        """A copy, made when something is said in it."""
        app = await self._app(cwd)
        await self._row(app, session_id, cwd)
        session = await self._session(new_id(), cwd, mcp_servers)
        session.forks = session_id
        return schema.ForkSessionResponse(
            session_id=session.id,
            modes=modes(session.choices),
            config_options=options(session.choices, session.retinue),
        )

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        cwd = os.path.normpath(cwd) if cwd else None  # noqa: ASYNC240 - no file is read
        app = await self._app(cwd or os.getcwd())
        at, last = (cursor or "/").split("/", 1)
        found: list[RunRow] = []
        before, before_id = (float(at), last) if last else (None, None)
        while len(found) < PAGE:
            rows = await app.runs(
                RunFilter(roots_only=True, before=before, before_id=before_id, limit=PAGE + 1)
            )
            found += [row for row in rows if cwd is None or row.cwd == cwd]
            if not rows.more:
                break
            before, before_id = rows[-1].created_at, rows[-1].run_id
        shown = found[:PAGE]
        more = f"{shown[-1].created_at!r}/{shown[-1].run_id}" if len(found) > PAGE else None
        return schema.ListSessionsResponse(sessions=[_info(row) for row in shown], next_cursor=more)

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.cancel()
            await session.close()
        return schema.CloseSessionResponse()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> schema.SetSessionModeResponse:
        session = self._known(session_id)
        session.choices = session.choices.with_mode(mode_id)
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._known(session_id)
        session.choices = session.choices.with_option(config_id, value, session.retinue)
        return schema.SetSessionConfigOptionResponse(config_options=options(session.choices, session.retinue))

    # -- turns -----------------------------------------------------------------

    async def prompt(self, session_id: str, prompt: Sequence[Block], **_: Any) -> schema.PromptResponse:
        session = self._known(session_id)
        text, attached = written(prompt)
        with _told():
            return await session.prompt(text, attached)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session_id in self._sessions:
            await self._sessions[session_id].cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return None

    # -- inside ----------------------------------------------------------------

    async def _app(self, cwd: str, given: Mapping[str, Any] | None = None) -> Retinue:
        folder = Path(cwd)
        if not folder.is_absolute() or not await asyncio.to_thread(folder.is_dir):
            raise RequestError.invalid_params({"details": f"{cwd} is not the absolute path of a folder"})
        key = (folder, json.dumps(given or {}, sort_keys=True))
        async with self._opening:
            if key not in self._apps:
                with _told():
                    app = self._open_in(folder, given or {})
                    app.buffers = self._buffers()
                    self._apps[key] = await app.__aenter__()
            return self._apps[key]

    def _buffers(self) -> EditorBuffers:
        assert self._editor is not None
        return EditorBuffers(
            self._editor,
            reads=bool(self._files.read_text_file),
            writes=bool(self._files.write_text_file),
        )

    async def _session(self, id: str, cwd: str, servers: Sequence[McpServer] | None) -> EditorSession:
        given, without = handed_over(servers or ())
        app = await self._app(cwd, given)
        assert self._editor is not None
        session = EditorSession(id, app, self._editor, self._buffers())
        if without:
            session.remark = f"MCP servers of the editor that cannot be used here: {', '.join(without)}"
        self._sessions[id] = session
        return session

    async def _stored(
        self, id: str, cwd: str, servers: Sequence[McpServer] | None, *, told: bool
    ) -> EditorSession:
        app = await self._app(cwd)
        await self._row(app, id, cwd)
        if (open_already := self._sessions.pop(id, None)) is not None:
            await open_already.close()
        session = await self._session(id, cwd, servers)
        with _told():
            await session.load(tell=told)
            await session.go_on()
        return session

    async def _row(self, app: Retinue, session_id: str, cwd: str) -> RunRow:
        row = await app.store.run(session_id)
        if row is None or row.parent_id is not None:
            raise RequestError.resource_not_found(session_id)
        if row.cwd and os.path.realpath(row.cwd) != os.path.realpath(cwd):  # noqa: ASYNC240 - no file is read
            raise RequestError.invalid_params(
                {"details": f"the session {session_id} is of {row.cwd}: open it there, not in {cwd}"}
            )
        return row

    def _known(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError.invalid_params(
                {"details": f"the session {session_id} is not open: load or resume it first"}
            )
        return session


@contextlib.contextmanager
def _told() -> Generator[None]:
    """What went wrong, in the words that the terminal has for it."""
    try:
        yield
    except RetinueError as error:
        raise RequestError.internal_error({"details": str(error)}) from error


def _info(row: RunRow) -> schema.SessionInfo:
    at = row.completed_at or row.created_at
    return schema.SessionInfo(
        session_id=row.run_id,
        cwd=row.cwd,
        title=words.one_line(row.label or row.task, 80),
        updated_at=datetime.fromtimestamp(at, UTC).isoformat(),
    )
