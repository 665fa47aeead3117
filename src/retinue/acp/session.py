"""One conversation in an editor: what is asked goes to its run, what happens comes back, questions are put.

Made by `agent`. What the editor is sent comes in the order of the log, from one task. When the editor goes,
the run is left as it stands: whoever loads the session goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from acp import RequestError, schema
from acp.interfaces import Client

from retinue.acp import permission
from retinue.acp.buffers import EditorBuffers
from retinue.acp.calls import path_of
from retinue.acp.choices import Choices
from retinue.acp.updates import SessionUpdates, Update, note
from retinue.app import Retinue
from retinue.attachments import Attachment
from retinue.errors import RetinueError, ToolError, Withdrawn
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    LiveEvent,
    RunFinished,
)
from retinue.types import EndedBy, Report
from retinue.workspace import Files

log = logging.getLogger("retinue.acp")

BY = "editor"
_STOPPED: dict[EndedBy, schema.StopReason] = {
    "max_turns": "max_turn_requests",
    "budget": "max_turn_requests",
    "length": "max_tokens",
    "refusal": "refusal",
}


class EditorSession:
    def __init__(
        self,
        id: str,
        retinue: Retinue,
        editor: Client,
        buffers: EditorBuffers,
        *,
        choices: Choices | None = None,
    ) -> None:
        self.id = id
        self.retinue = retinue
        self.choices = choices or Choices()
        self.forks: str | None = None
        """The conversation that this one is to be a copy of, until something is said in it."""
        self.remark = ""
        """What the person should know, said with the first answer."""
        self._editor = editor
        self._buffers = buffers
        self._updates = SessionUpdates(str(retinue.cwd))
        self._project = Files(retinue.project, workspace=None, writable=False)
        self._queue: asyncio.Queue[LiveEvent | asyncio.Future[None]] = asyncio.Queue()
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._reached = 0
        self._cancelled = False
        self._watching: asyncio.Task[None] | None = None
        self._stop_hearing = retinue.hear(self._hear)
        self._telling = asyncio.create_task(self._tell_all(), name=f"acp session {id}")

    # -- from the editor -------------------------------------------------------

    async def prompt(self, text: str, attached: Sequence[Attachment]) -> schema.PromptResponse:
        """Say something, and stay until it is answered."""
        self._cancelled = False
        self._updates.own[text] += 1
        if self.remark:
            await self._send([note(self.remark)])
            self.remark = ""
        await self._say(text, attached)
        self.choices = replace(self.choices, begun=True)
        try:
            # An editor that goes while it waits cancels nothing: the run is left, and can be gone on with.
            waiting = asyncio.ensure_future(self.retinue.wait(self.id))
            waiting.add_done_callback(lambda task: task.cancelled() or task.exception())
            report = await asyncio.shield(waiting)
        except Withdrawn:
            return schema.PromptResponse(stop_reason="cancelled")
        await self._told()
        return _response(report, cancelled=self._cancelled)

    async def _say(self, text: str, attached: Sequence[Attachment]) -> None:
        given = self.choices.settings(self.retinue)
        model = self.choices.model or None
        if self.forks is not None:
            await self.retinue.fork(
                self.forks, message=text, attachments=attached, model=model, new_run_id=self.id
            )
            self.forks = None
        elif not self.choices.begun:
            if model is not None:
                given["model"] = model
            await self.retinue.start(
                self.choices.agent or self.retinue.settings.default_agent,
                text,
                run_id=self.id,
                attachments=attached,
                settings=given,
                yes=self.choices.yes,
                effort=self.choices.effort,
            )
        elif not await self.retinue.message(self.id, text, attachments=attached):
            await self.retinue.resume(  # nothing is under way: another turn
                self.id,
                message=text,
                attachments=attached,
                settings=given,
                model=model,
                yes=self.choices.yes,
            )

    async def cancel(self) -> None:
        self._cancelled = True
        for question in self._questions.values():
            question.cancel()
        with contextlib.suppress(RetinueError):  # there may be nothing to cancel
            await self.retinue.cancel(self.id, "cancelled in the editor")

    async def load(self, *, tell: bool) -> None:
        """Read all that was said and done, and tell the editor, if it has not seen it."""
        past = SessionUpdates(str(self.retinue.cwd), past=True)
        for event in await self.retinue.store.events(self.id):
            updates = past.of(event)
            if tell:
                await self._send(updates)
            self._reached = event.pos
        past.past, self._updates = False, past
        self.choices = replace(self.choices, begun=True)

    async def go_on(self) -> None:
        """Take up what nobody works on, with whatever it asks; else follow it if another process does."""
        if self.retinue.is_running(self.id):
            return self._ask_again()
        if await self.retinue.abandoned(self.id):
            await self.retinue.resume(
                self.id, settings=self.choices.settings(self.retinue), yes=self.choices.yes
            )
            return self._ask_again()
        row = await self.retinue.shown.run(self.id)
        if row is not None and row.completed_at is None:
            self._ask_again()
            self._watching = asyncio.create_task(self._watch(), name=f"acp watches {self.id}")
        return None

    def _ask_again(self) -> None:
        """What was asked before the editor came is asked here too."""
        for asked in tuple(self._updates.story.approvals.values()):
            self._ask(asked)

    async def close(self) -> None:
        self._stop_hearing()
        tasks = [self._telling, *self._questions.values(), *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._project.close()

    # -- to the editor ---------------------------------------------------------

    def _hear(self, event: LiveEvent) -> None:
        if event.root_id == self.id:
            self._queue.put_nowait(event)

    async def _watch(self) -> None:
        """Events of a run that another process works on. Its text comes whole."""
        async with contextlib.aclosing(self.retinue.watch(self.id, after=self._reached)) as events:
            async for event in events:
                self._queue.put_nowait(event)

    async def _told(self) -> None:
        """Until the editor was sent all that has happened so far."""
        reached = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(reached)
        await reached

    async def _tell_all(self) -> None:
        while True:
            item = await self._queue.get()
            if isinstance(item, asyncio.Future):
                if not item.done():
                    item.set_result(None)
                continue
            try:
                for event in await self._in_order(item):
                    await self._send(self._updates.of(event))
                    self._react(event)
            except ConnectionError:
                return
            except Exception:  # what cannot be shown must not keep the rest from being shown
                log.exception("an event of %s could not be told to the editor", self.id)

    async def _in_order(self, event: LiveEvent) -> list[LiveEvent]:
        """An event with those before it that nobody published here: of a fork, or of another process."""
        if not isinstance(event, Event):
            return [event]
        if event.pos <= self._reached:
            return []
        missed: list[AnyEvent] = []
        if event.pos > self._reached + 1:
            missed = await self.retinue.store.events(
                self.id, after=self._reached, limit=event.pos - self._reached - 1
            )
        self._reached = event.pos
        return [*missed, event]

    async def _send(self, updates: Sequence[Update]) -> None:
        for update in updates:
            await self._editor.session_update(session_id=self.id, update=update)

    def _react(self, event: LiveEvent) -> None:
        if isinstance(event, ApprovalRequested):
            self._ask(event)
        elif isinstance(event, ApprovalAnswered):
            self._withdraw(event.approval_id)
        elif isinstance(event, RunFinished):
            for approval_id in set(self._questions) - set(self._updates.story.approvals):
                self._withdraw(approval_id)

    # -- questions -------------------------------------------------------------

    def _ask(self, asked: ApprovalRequested) -> None:
        if asked.approval_id not in self._questions:
            task = asyncio.create_task(self._put(asked), name=f"acp question {asked.approval_id}")
            self._questions[asked.approval_id] = task

    def _withdraw(self, approval_id: str) -> None:
        task = self._questions.pop(approval_id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _put(self, asked: ApprovalRequested) -> None:
        """Ask the editor, and hand on what the person says. Who cancels the turn answers nothing."""
        known = self._updates.call_id(asked.run_id, asked.call_id) or f"{asked.run_id}/{asked.call_id}"
        before = await self._before(asked)
        shown = await asyncio.to_thread(permission.shown, asked, known, self._project, before)
        try:
            response = await self._editor.request_permission(
                session_id=self.id, tool_call=shown, options=permission.options(asked)
            )
        except (RequestError, ConnectionError) as error:
            log.warning("the editor did not answer a question, which still waits: %s", error)
            return
        decision = permission.decision_of(response, asked)
        if decision is None and self._cancelled:
            return
        with contextlib.suppress(RetinueError):  # it may have ended, or been answered elsewhere
            await self.retinue.answer(asked.approval_id, decision or "reject", by=BY)

    async def _before(self, asked: ApprovalRequested) -> str | None:
        """What the editor has of the file that a call would replace."""
        path = path_of(permission.arguments_of(asked), str(self.retinue.cwd))
        with contextlib.suppress(ToolError):  # it leads out of the project
            if path is not None and asked.tool == "write" and self._project.on_disk(path) is not None:
                return await self._buffers.text(self.id, Path(path))
        return None


def _response(report: Report, *, cancelled: bool) -> schema.PromptResponse:
    stop: schema.StopReason = _STOPPED.get(report.ended_by, "end_turn")
    if cancelled or report.status == "cancelled":
        stop = "cancelled"
    used = report.usage
    return schema.PromptResponse(
        stop_reason=stop,
        usage=schema.Usage(
            total_tokens=used.total_tokens,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cached_read_tokens=used.cached_tokens or None,
        ),
    )
