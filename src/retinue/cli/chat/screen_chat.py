"""A chat on the screen: the parts put together, from the first drawing to the last.

Called by the command alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.cli.asking import Asking, terminal_bell
from retinue.cli.chat.completion import ChatCompleter
from retinue.cli.chat.opening import open_conversation
from retinue.cli.chat.screen import ChatScreen
from retinue.cli.chat.session import ChatGiven, ChatSession
from retinue.cli.chat.talk import Talk
from retinue.cli.chat.view import ChatView
from retinue.events import LiveEvent, RunFinished
from retinue.view.keyboard import Keyboard
from retinue.view.paint import Line, columns, wants_colour
from retinue.view.words import clean

if TYPE_CHECKING:
    from retinue.app import Retinue

WIDEST = 110


class _Stage:
    """What `Talk` is shown on."""

    def __init__(self) -> None:
        self.screen: ChatScreen | None = None

    def lines(self, lines: list[Line]) -> None:
        if self.screen is not None:
            self.screen.lines(lines)

    def markdown(self, text: str) -> None:
        if self.screen is not None and text.strip():
            self.screen.print("\n" + rendered(text).strip("\n") + "\n")

    def leave(self, code: int) -> None:
        if self.screen is not None:
            self.screen.app.exit(result=code)

    async def with_terminal(self, work: Callable[[], Awaitable[Any]]) -> Any:
        assert self.screen is not None
        return await self.screen.with_terminal(work)

    async def hold(self) -> None:
        assert self.screen is not None
        await self.screen.hold()

    def release(self) -> None:
        assert self.screen is not None
        self.screen.release()


async def screen_chat(retinue: Retinue, given: ChatGiven, resume: str, *, history: Path | None) -> int:
    """Talk until the person leaves. What is at work then is stopped, and goes on with the next message.

    Questions are put where the rest is drawn, also where stderr goes to a file.
    """
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(sys.stdout):
        return await _talked(retinue, given, resume, history)


async def _talked(retinue: Retinue, given: ChatGiven, resume: str, history: Path | None) -> int:
    stage, completer = _Stage(), ChatCompleter()
    view = ChatView(markdown=stage.markdown, lines=stage.lines, hold=stage.hold, release=stage.release)
    asking: list[Asking] = []

    bell = terminal_bell(retinue)

    def heard(event: LiveEvent) -> None:
        view.show(event)
        if isinstance(event, RunFinished) and event.depth == 0:
            bell.ended("the answer is there")
        for each in asking:
            each.hear(event)

    session = ChatSession(retinue, given, heard)
    view.session = session
    talk = completer.talk = Talk(session, view, stage)
    stage.screen = ChatScreen(talk, completer=completer, history=history)
    stage.screen.on_key(bell.key)
    keyboard = Keyboard.open()
    asks: asyncio.Task[None] | None = None
    if keyboard is not None:
        asking.append(Asking(retinue, view, keyboard, bell=bell))
        asks = asyncio.create_task(asking[0].run(), name="questions in the chat")
    try:
        await open_conversation(talk, resume)
        return await stage.screen.run()
    finally:
        if asks is not None:
            asks.cancel()
            await asyncio.wait([asks])
        session.close()
        if keyboard is not None:
            keyboard.close()


def rendered(text: str) -> str:
    """Markdown as a terminal shows it. Links are written out: they may show something else."""
    from rich.console import Console
    from rich.markdown import Markdown

    drawn = io.StringIO()
    colour = wants_colour(sys.stdout)
    console = Console(
        file=drawn, width=min(columns(sys.stdout), WIDEST), no_color=not colour, force_terminal=colour
    )
    console.print(Markdown(clean(text), hyperlinks=False, code_theme="ansi_dark", justify="left"))
    return drawn.getvalue()
