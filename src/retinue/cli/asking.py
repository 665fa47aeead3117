"""Waiting approvals, put to the person at the keyboard one after the other.

Fed with the events of the workflow by `driving`. The first answer wins, whoever gives it: a question that
was answered elsewhere meanwhile is taken away, and the person is told. It decides nothing by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Generator
from pathlib import Path
from typing import Any, TypeVar

from retinue.app import Retinue
from retinue.cli.editing import as_text, from_text
from retinue.cli.form import NotThat, form_fields
from retinue.cli.limits import LimitWatch, idle_until
from retinue.cli.own_program import edited, run_program
from retinue.engine.answers import Answer
from retinue.errors import RetinueError, ToolError
from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    LimitPassed,
    LimitReached,
    LiveEvent,
    RunFinished,
    RunResumed,
)
from retinue.view import words
from retinue.view.bell import Bell
from retinue.view.keyboard import Keyboard
from retinue.view.live import View
from retinue.view.paint import columns, note, paint, plain, put, rows, wants_colour
from retinue.view.question import answer_text, content, help_lines, offered, question

T = TypeVar("T")
TOGETHER = 0.1
"""Seconds to wait for questions that come at the same time, so that their number is right."""
_NEWS = ApprovalRequested | ApprovalAnswered | LimitReached | LimitPassed | RunFinished | RunResumed
TOO_SOON = 0.25
"""Seconds in which nobody can have read a question: a key that comes sooner was meant for the last one."""


def terminal_bell(retinue: Retinue) -> Bell:
    """The bell of this terminal, as it is set."""
    set_so = retinue.settings.terminal
    return Bell(set_so.notify, set_so.notify_after, _to_terminal)


def _to_terminal(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text)
        sys.stderr.flush()


class _GoneError(Exception):
    """The question needs no answer from here any more."""


class Asking:
    """`limits` is asked about as well, if it is given: whether a limit of the provider is waited for.
    `bell` calls a person who has turned away."""

    def __init__(
        self,
        retinue: Retinue,
        view: View,
        keyboard: Keyboard,
        limits: LimitWatch | None = None,
        bell: Bell | None = None,
    ) -> None:
        self.retinue, self.view, self.keyboard, self.limits = retinue, view, keyboard, limits
        self.bell = bell or terminal_bell(retinue)
        self._waited_for: set[tuple[str, int]] = set()
        self._news = asyncio.Event()
        self._given: set[str] = set()

    def hear(self, event: LiveEvent) -> None:
        if isinstance(event, _NEWS):
            self._news.set()

    def _pending(self) -> list[ApprovalRequested]:
        return [asked for asked in self.view.tree.approvals.values() if asked.approval_id not in self._given]

    async def run(self) -> None:
        """Ask whatever comes, for as long as the run goes on."""
        while True:
            await self._news.wait()
            self._news.clear()
            if not self._pending() and self._limit() is None:
                continue
            await asyncio.sleep(TOGETHER)
            if asked := self._pending():
                self.bell.needed(f"{asked[0].tool} waits for your answer")
            await self.view.pause()
            try:
                await self._sitting()
                await self._ask_limit()
            finally:
                self.bell.settled()
                self.keyboard.use("keys")
                self.view.go_on()

    async def _sitting(self) -> None:
        """Everything that waits right now, and what comes meanwhile."""
        answered = 0
        while pending := self._pending():
            asked = pending[0]
            try:
                answer = await self._ask(asked, answered + 1, answered + len(pending))
            except _GoneError:
                self._given.add(asked.approval_id)
                by = self.view.tree.answered_by.get(asked.approval_id)
                note(
                    f"  answered elsewhere meanwhile: {answer_text(by)}" if by else "  no longer asked",
                    "yellow",
                )
            else:
                try:
                    await self._give(asked, answer)
                except RetinueError as error:  # the database failed, most likely: say so, and ask no more
                    note(f"  ✗ the answer could not be given: {error}", "red")
            answered += 1

    def _limit(self) -> LimitReached | None:
        """The limit that everything waits for, if the person was not asked about it yet."""
        limit = idle_until(self.view.tree) if self.limits is not None else None
        return None if limit is None or (limit.run_id, limit.seq) in self._waited_for else limit

    async def _ask_limit(self) -> None:
        """Whether to wait for it here. It is gone by itself when its time has come."""
        limit = self._limit()
        if limit is None or self.limits is None:
            return
        self._waited_for.add((limit.run_id, limit.seq))
        note(f"  {words.parked(limit.until, limit.at)}: {words.one_line(limit.reason, 300)}", "yellow")
        self.keyboard.forget()  # before the keys are named: who is quick is heard
        note("  w: wait for it here    l: leave it, and go on later with 'retinue runs resume'", "bold")
        typed = asyncio.ensure_future(self._wait_or_leave())
        try:
            while not typed.done() and idle_until(self.view.tree) is not None:
                self._news.clear()
                news = asyncio.ensure_future(self._news.wait())
                await asyncio.wait({typed, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
            if typed.done() and typed.result():
                await self.limits.leave()
        finally:
            typed.cancel()
            self._news.set()

    async def _wait_or_leave(self) -> bool:
        """Whether to leave it."""
        while (key := (await self.keyboard.key()).lower()) not in ("w", "\n", "\r", ""):
            if key == "l":
                return True
            note("  press w or l", "dim")
        note("  waiting", "dim")
        return False

    async def _give(self, asked: ApprovalRequested, answer: Answer) -> None:
        self._given.add(asked.approval_id)
        what = f"{asked.tool}  {words.arguments(answer.arguments or asked.arguments)}"
        given = await self.retinue.answer(
            asked.approval_id,
            answer.decision,
            reason=answer.reason,
            arguments=answer.arguments,
            by=answer.by,
        )
        for approval_id in given.also:
            self._given.add(approval_id)
        if not given:
            note("  too late: it was answered before", "yellow")
        elif answer.decision == "reject":
            note(f"  ✗ rejected: {what}", "red")
        else:
            note(f"  ✓ approved: {what}", "green")
        if given and answer.decision == "approve_always":
            note(f"  ✓ written down: {words.one_line(asked.rule or '')}, allowed in this folder", "green")
        if given.also:
            note(f"  ✓ approved too: {words.count(len(given.also), 'waiting call')} of {asked.tool}", "green")

    # -- one question ---------------------------------------------------------------------------------------

    async def _ask(self, asked: ApprovalRequested, number: int, total: int) -> Answer:
        width, height = columns(sys.stderr), rows(sys.stderr)
        lines, _ = question(asked, number=number, total=total, width=width, height=height)
        put(lines, sys.stderr)
        self.keyboard.use("keys")
        self.keyboard.forget()
        shown, keys = time.monotonic(), offered(asked)
        while True:
            key = (await self._unless_gone(asked, self.keyboard.key())).lower()
            self.bell.key()
            if key and time.monotonic() - shown < TOO_SOON:
                continue
            answer: Answer | None = None
            match key:
                case "y" if asked.form and asked.form.get("properties"):
                    return await self._fill(asked, asked.form)
                case _ if key in keys:
                    return Answer(decision=keys[key])
                case "n":
                    return await self._reject(asked)
                case "e":
                    answer = await self._edit(asked)
                case "v":
                    await self._page(asked)
                case "":
                    raise _GoneError  # the terminal has closed: someone else may answer
                case "?" | "h":
                    put(help_lines(width), sys.stderr)
                case _:
                    note(f"  press {', '.join(keys)}, n, e or ?", "dim")
            if answer is not None:
                return answer

    async def _unless_gone(self, asked: ApprovalRequested, reading: Awaitable[T]) -> T:
        """What the person types, unless somebody else answers first."""
        typed = asyncio.ensure_future(reading)
        waiting = len(self._pending())
        try:
            while True:
                self._news.clear()
                if asked.approval_id not in self.view.tree.approvals:
                    raise _GoneError
                if len(self._pending()) > waiting:
                    waiting = len(self._pending())
                    note(f"  ({words.count(waiting - 1, 'more question')} waiting behind this one)", "dim")
                news = asyncio.ensure_future(self._news.wait())
                try:
                    await asyncio.wait({typed, news}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
                if typed.done():
                    return typed.result()
        finally:
            typed.cancel()
            self._news.set()  # whatever came meanwhile is looked at again

    async def _line(self, asked: ApprovalRequested, prompt: str) -> str:
        sys.stderr.write(paint([(f"  {prompt} ", "bold")], colour=wants_colour(sys.stderr)))
        sys.stderr.flush()
        return (await self._unless_gone(asked, self.keyboard.line())) or ""

    async def _reject(self, asked: ApprovalRequested) -> Answer:
        return Answer(
            decision="reject", reason=(await self._line(asked, "why (Enter for no reason):")).strip()
        )

    async def _edit(self, asked: ApprovalRequested) -> Answer | None:
        """The call with the person's arguments; None to ask again."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        try:
            if editor:
                edited = from_text(await self._in_editor(editor, as_text(asked.arguments)), asked.arguments)
            else:
                edited = await self._inline(asked)
            tool = self.retinue.tools.get(asked.tool)
            if tool is not None:
                tool.parse(edited)
        except (ToolError, OSError, ValueError) as error:  # `Unusable` is one of values
            note(f"  not usable: {words.one_line(str(error), 300)}", "red")
            return None
        if json.loads(edited) == json.loads(asked.arguments or "{}"):
            note("  nothing was changed: y to approve it as it is", "dim")
            return None
        return Answer(decision="approve", arguments=edited)

    async def _fill(self, asked: ApprovalRequested, form: dict[str, Any]) -> Answer:
        """A question with a form: a line for each field."""
        given: dict[str, Any] = {}
        for field in form_fields(form, asked.arguments):
            while True:
                try:
                    value = field.read(await self._line(asked, field.prompt))
                    break
                except NotThat as error:
                    note(f"  {error}", "red")
            if value is not None:
                given[field.name] = value
        return Answer(decision="approve", arguments=json.dumps(given, ensure_ascii=False))

    async def _inline(self, asked: ApprovalRequested) -> str:
        note("  Enter keeps a value", "dim")
        lines: list[str] = []
        given = json.loads(asked.arguments or "{}")
        for name, value in given.items():
            old = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            typed = await self._line(asked, f"{words.one_line(name, 40)} [{words.one_line(old, 60)}]:")
            lines.append(f"{json.dumps(name)}: {json.dumps(typed if typed else old)}")
        return from_text("\n".join(lines), asked.arguments)

    async def _in_editor(self, editor: str, text: str) -> str:
        with self._terminal():
            return await edited(editor, text, "arguments.yaml", self.retinue.cwd)

    async def _page(self, asked: ApprovalRequested) -> None:
        pager = os.environ.get("PAGER") or "less"
        with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
            path = Path(folder) / f"{asked.tool}.txt"
            path.write_text("\n".join(plain(line) for line in content(asked, 1000)) + "\n", "utf-8")
            try:
                with self._terminal():
                    await run_program(pager, path, self.retinue.cwd)
            except (OSError, ValueError) as error:
                note(f"  cannot start the pager {pager!r}: {words.one_line(str(error), 300)}", "red")

    @contextlib.contextmanager
    def _terminal(self) -> Generator[None]:
        """While a program has the terminal for itself."""
        self.keyboard.restore()
        try:
            yield
        finally:
            self.keyboard.use("keys")
