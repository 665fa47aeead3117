"""A chat in plain lines: nothing is drawn twice, nothing moves. For screen readers, pipes and old terminals.

A line is a message; what happens is told in lines as `retinue ask` does in a pipe. Commands are read where
lines are typed: who fills a pipe is not known. Questions are asked at the keyboard where there is one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from retinue.cli.chat.opening import open_conversation
from retinue.cli.chat.pasting import Entered
from retinue.cli.chat.session import ChatGiven, ChatSession
from retinue.cli.chat.talk import Talk
from retinue.cli.chat.view import ChatView
from retinue.events import LiveEvent
from retinue.view.paint import Line, put
from retinue.view.words import clean

if TYPE_CHECKING:
    from retinue.app import Retinue


class _PlainStage:
    def __init__(self) -> None:
        self.code: int | None = None

    def lines(self, lines: list[Line]) -> None:
        put(lines, sys.stderr)

    def markdown(self, text: str) -> None:
        sys.stdout.write(clean(text).rstrip("\n") + "\n\n")
        sys.stdout.flush()

    def leave(self, code: int) -> None:
        self.code = code

    async def with_terminal(self, work: Callable[[], Awaitable[Any]]) -> Any:
        return await work()

    async def hold(self) -> None:
        return None

    def release(self) -> None:
        return None


async def plain_chat(retinue: Retinue, given: ChatGiven, resume: str) -> int:
    from retinue.cli.asking import Asking
    from retinue.cli.driving import open_keyboard

    stage = _PlainStage()
    view = ChatView(markdown=stage.markdown, lines=stage.lines, hold=stage.hold, release=stage.release)
    keyboard = open_keyboard()
    asking: list[Asking] = []

    def heard(event: LiveEvent) -> None:
        view.show(event)
        for each in asking:
            each.hear(event)

    session = ChatSession(retinue, given, heard)
    view.session = session
    talk = Talk(session, view, stage)
    asks: asyncio.Task[None] | None = None
    if keyboard is not None:
        keyboard.restore()
        asking.append(Asking(retinue, view, keyboard))
        asks = asyncio.create_task(asking[0].run(), name="questions in the chat")
    typed = sys.stdin.isatty()
    try:
        await open_conversation(talk, resume)
        while stage.code is None and (line := await _line()) is not None:
            if line.strip():
                await talk.typed(Entered(line) if typed else Entered.words(line))
                await _turn(session)
        return stage.code or 0
    finally:
        if asks is not None:
            asks.cancel()
            await asyncio.wait([asks])
        session.close()
        if keyboard is not None:
            keyboard.close()


async def _turn(session: ChatSession) -> None:
    """To the end of the turn; Ctrl-C ends it."""
    if not session.working:
        return
    import signal

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: asyncio.ensure_future(session.stop()))
    try:
        await session.wait()
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _line() -> str | None:
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = await asyncio.to_thread(sys.stdin.readline)
    return line if line else None
