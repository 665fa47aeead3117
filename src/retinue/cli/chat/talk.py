"""What is typed in a chat, and what becomes of it: a message, a command of the chat, a command of the shell.

Between the conversation (`session`), what is shown of it (`view`) and whoever draws (`Stage`: the screen, or
plain lines). Errors of a message are said and end nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from retinue.cli.chat.carrying import Carrying, mentioned
from retinue.cli.chat.own_shell import run_shell
from retinue.cli.chat.pasting import Entered
from retinue.cli.chat.session import ChatSession, EarlierMessage, Wanted
from retinue.errors import ConfigError, RetinueError
from retinue.view import words
from retinue.view.paint import Line, columns, wrap

if TYPE_CHECKING:
    from retinue.attachments import Attachment
    from retinue.cli.chat.view import ChatView
    from retinue.store.base import RunRow

MOST_OUTPUT = 20_000
"""Characters of a shell command's output that go along with the next message."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A message as it is handed on."""

    text: str
    attachments: Sequence[Attachment]
    wanted: Wanted


class Stage(Protocol):
    """Where a chat is shown."""

    def lines(self, lines: list[Line]) -> None: ...

    def leave(self, code: int) -> None: ...

    async def with_terminal(self, work: Callable[[], Awaitable[Any]]) -> Any: ...


class Talk:
    def __init__(self, session: ChatSession, view: ChatView, stage: Stage) -> None:
        self.session, self.view, self.stage = session, view, stage
        self.carrying = Carrying(session.retinue)
        self.listed: Sequence[RunRow] = ()
        """The conversations that /resume listed last."""
        self.told: Sequence[EarlierMessage] = ()
        """The messages that /rewind listed last."""
        self.doing: tuple[str, float] | None = None
        """The command that is at work, and since when."""
        self.turn = asyncio.Lock()
        """Held while something is on its way to the conversation: what moves it waits for that."""

    # -- as a Talker -----------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self.session.working

    @property
    def project(self) -> Path:
        return self.session.retinue.cwd

    def live(self, width: int, height: int, tick: int) -> list[Line]:
        return self.view.live(width=width, height=height, tick=tick)

    async def stop(self) -> bool:
        async with self.turn:  # what is on its way is stopped when it has come
            return self.busy and await self.session.stop()

    async def typed(self, entry: Entered | str) -> None:
        """A line or more, as the person sent it. Only what they typed themselves is read for commands."""
        entry = entry if isinstance(entry, Entered) else Entered(entry)
        own = entry.own.strip()
        with self._errors_said():
            if re.match(r"/[a-z]*(\s|$)", own):
                await self._slash(Entered(entry.strip(), own))
            elif own.startswith("!"):
                await self.shell(Entered(entry.strip()[1:].strip(), own))
            else:
                await self.say(entry)

    async def attach(self, path: Path) -> None:
        """A file for the next message."""
        with self._errors_said():
            await self.carrying.add(path)
            self.tell(f"{path.name} goes along with your next message", style="dim")

    @contextlib.contextmanager
    def _errors_said(self) -> Generator[None]:
        try:
            yield
        except (RetinueError, OSError, ValueError) as error:
            self.say_error(str(error))

    async def _slash(self, line: Entered) -> None:
        """A command of the chat. One that takes longer than a moment is told in the status line."""
        from retinue.cli.chat.slash import run_slash

        self.doing = (line.split()[0], time.monotonic())
        try:
            await run_slash(self, line)
        finally:
            self.doing = None

    @property
    def slow(self) -> str:
        """What the person waits for beside an answer, with its seconds; empty if it is nothing or new."""
        since = time.monotonic() - self.doing[1] if self.doing else 0.0
        return f"{self.doing[0]} {since:.0f} s" if self.doing and since >= 1 else ""

    def say_error(self, text: str) -> None:
        pieces = wrap(words.clean(text), columns() - 4)
        self.stage.lines(
            [[("  ✗ " if not at else "    ", "red"), (line, "red")] for at, line in enumerate(pieces)]
        )

    def tell(self, *lines: str, style: str = "") -> None:
        self.stage.lines([[(f"  {words.clean(line)}", style)] for line in lines])

    # -- messages --------------------------------------------------------------------------------------------

    async def say(self, entry: Entered) -> None:
        def note(carried: str) -> str:
            return f"{carried}  (read before the next step)" if self.busy else carried

        async with self.sending(entry, note) as sent:
            await self.session.say(sent.text, sent.attachments, wanted=sent.wanted)

    async def rewind(self, number: int, said: EarlierMessage, entry: Entered) -> None:
        """Say something else in the place of a message."""
        async with self.sending(entry, lambda carried: f"{carried}  (in place of message {number})") as sent:
            await self.session.rewind(
                said, sent.text, sent.attachments, wanted=sent.wanted, shown=self.view.counted
            )

    @contextlib.asynccontextmanager
    async def sending(self, entry: Entered, note: Callable[[str], str]) -> AsyncGenerator[Sent]:
        """A message with all that goes with it, as it is at this moment; its turn comes when those before it
        are there. What goes along is back in the list if it is not sent."""
        wanted, taken = self.session.wanted(), self.carrying.take()
        try:
            async with self.turn:
                carried = await self.carrying.read(taken)
                carried += await mentioned(self.session.retinue, entry, taken)
                names = ", ".join(each.name for each in carried)
                self.view.said(entry.rstrip(), note(f"  [{names}]" if names else ""))
                yield Sent(text=self._for_agent(entry), attachments=carried, wanted=wanted)
        except BaseException:
            self.carrying.put_back(taken)
            raise

    def _for_agent(self, entry: Entered) -> str:
        """`@agent …` has that agent do it."""
        match = re.match(r"@([\w.-]+)\s+(?=\S)", entry.own)
        if match is None or match[1] not in self.session.retinue.agents.agents:
            return entry.rstrip()
        rest = entry[match.end() :].rstrip()
        return f"Have the agent {match[1]} do this, and tell me what it found:\n\n{rest}"

    # -- the person's own commands ---------------------------------------------------------------------------

    async def shell(self, command: Entered) -> None:
        """Run by the person, in their shell, unasked. The next message carries its output."""
        if command.pasted:
            raise ConfigError(
                "a folded paste is not run", fix="type the command, or run it in another terminal"
            )
        if not command:
            self.tell("!COMMAND runs it in your shell; its output goes along with your next message")
            return
        printed = await self.stage.with_terminal(lambda: run_shell(command, self.project, MOST_OUTPUT))
        name = words.one_line(f"output of {command}", 60).replace("/", "_")
        self.carrying.printed(f"{name}.txt", f"I ran: {command}\nIt printed:\n{words.clean(printed)}\n")

    # -- the status line -------------------------------------------------------------------------------------

    def status(self, width: int) -> Line:
        """Model, how full its context is, cost, and what waits for the person."""
        session = self.session
        root = session.root
        running = root is not None and (self.busy or not session.model)
        parts = [root.model if root is not None and running else session.model or _default(session)]
        if session.effort:
            parts.append(words.effort(session.effort))
        if session.planning:
            parts.append("plan: reads only")
        if root is not None:
            if width >= 60 and (share := self.context_share()) is not None:
                parts.append(f"context {share:.0%}")
            usage = root.usage
            if usage.cost:
                parts.append(words.money(usage.cost))
            elif usage.total_tokens:
                parts.append(f"{words.tokens(usage.total_tokens)} tokens")
        left = " · ".join(parts)
        waiting = len(session.story.approvals)
        if self.slow:
            return [(self.slow, "bold"), (f" · {left}", "dim")]
        if waiting:
            return [(f"{words.count(waiting, 'question')} for you", "bold yellow"), (f" · {left}", "dim")]
        keys = "Esc stops" if self.busy else "/help"
        carries = len(self.carrying.things)
        more = f" · {carries} attached" if carries else ""
        return [(f"{left}{more} · {keys}", "dim")]

    def context_share(self) -> float | None:
        """How much of the history that a model is shown is used: by what the last request sent."""
        root = self.session.root
        last = self.view.last_sent
        most = self.session.retinue.settings.context.max_tokens
        return min(1.0, last / most) if root is not None and last else None


def _default(session: ChatSession) -> str:
    return session.retinue.model_name
