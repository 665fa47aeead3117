"""What is typed in a chat, and what becomes of it: a message, a command of the chat, a command of the shell.

Between the conversation (`session`), what is shown of it (`view`) and whoever draws (`Stage`: the screen, or
plain lines). Errors of a message are said and end nothing.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from retinue.cli.chat.session import ChatSession, EarlierMessage
from retinue.errors import RetinueError
from retinue.view import words
from retinue.view.paint import Line, columns, wrap

if TYPE_CHECKING:
    from retinue.attachments import Attachment
    from retinue.cli.chat.view import ChatView
    from retinue.store.base import RunRow

MOST_OUTPUT = 20_000
"""Characters of a shell command's output that go along with the next message."""
LAST_WORDS = 0.3
"""Seconds in which a command that has ended may still be heard: what it left behind may hold its output."""
MENTION = re.compile(r"(?<!\S)@(\S+)")


class Stage(Protocol):
    """Where a chat is shown."""

    def lines(self, lines: list[Line]) -> None: ...

    def leave(self, code: int) -> None: ...

    async def with_terminal(self, work: Callable[[], Awaitable[Any]]) -> Any: ...


class Talk:
    def __init__(self, session: ChatSession, view: ChatView, stage: Stage) -> None:
        self.session, self.view, self.stage = session, view, stage
        self.attached: list[Path] = []
        self.output: list[tuple[str, str]] = []
        """What commands of the person's printed, by a name for it, for the next message."""
        self.listed: Sequence[RunRow] = ()
        """The conversations that /resume listed last."""
        self.told: Sequence[EarlierMessage] = ()
        """The messages that /rewind listed last."""
        self.doing: tuple[str, float] | None = None
        """The command that is at work, and since when."""
        self._turn = asyncio.Lock()

    # -- as a Talker -----------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self.session.working

    @property
    def asked(self) -> bool:
        return bool(self.session.story.approvals)

    def live(self, width: int, height: int, tick: int) -> list[Line]:
        return self.view.live(width=width, height=height, tick=tick)

    async def stop(self) -> bool:
        return self.busy and await self.session.stop()

    async def typed(self, text: str) -> None:
        """A line or more, as the person sent it."""
        word = text.strip()
        try:
            if re.match(r"/[a-z]*(\s|$)", word):
                await self._slash(word)
            elif word.startswith("!"):
                await self.shell(word[1:].strip())
            else:
                await self.say(text.rstrip())
        except (RetinueError, OSError, ValueError) as error:
            self.say_error(str(error))

    async def _slash(self, line: str) -> None:
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

    async def say(self, text: str) -> None:
        async with self._turn:
            attachments = await self._attachments(text)
            message = self._for_agent(text)
            names = [attached.name for attached in attachments]
            note = f"  [{', '.join(names)}]" if names else ""
            at_work = self.busy
            self.view.said(text, f"{note}  (read before the next step)" if at_work else note)
            await self.session.say(message, attachments)
            self.attached, self.output = [], []

    async def _attachments(self, text: str) -> list[Attachment]:
        """What was attached, and the files that the message names with an @."""
        from retinue.attachments import attach, attach_bytes

        project = self.session.retinue.cwd
        named = [match[1].rstrip(".,;:!?)") for match in MENTION.finditer(text)]
        mentioned = await asyncio.to_thread(lambda: [p for p in map(project.joinpath, named) if p.is_file()])
        paths = [*self.attached, *mentioned]
        files = [await attach(path, project=project) for path in dict.fromkeys(paths)]
        # Attached, not said: nobody wrote it, it may be private, and it vouches for no address.
        return [*files, *[await attach_bytes(name, text.encode()) for name, text in self.output]]

    def _for_agent(self, text: str) -> str:
        """`@agent …` has that agent do it."""
        match = re.match(r"@([\w.-]+)\s+(?=\S)", text)
        if match is None or match[1] not in self.session.retinue.agents.agents:
            return text
        rest = text[match.end() :]
        return f"Have the agent {match[1]} do this, and tell me what it found:\n\n{rest}"

    # -- the person's own commands ---------------------------------------------------------------------------

    async def shell(self, command: str) -> None:
        """Run by the person, in their shell, unasked. The next message carries its output."""
        if not command:
            self.tell("!COMMAND runs it in your shell; its output goes along with your next message")
            return
        printed = await self.stage.with_terminal(lambda: _run_shell(command, self.session.retinue.cwd))
        kept = printed if len(printed) <= MOST_OUTPUT else f"{printed[:MOST_OUTPUT]}\n[cut here]"
        name = words.one_line(f"output of {command}", 60).replace("/", "_")
        self.output.append((f"{name}.txt", f"I ran: {command}\nIt printed:\n{kept}\n"))

    # -- the status line -------------------------------------------------------------------------------------

    def status(self, width: int) -> Line:
        """Model, how full its context is, cost, and what waits for the person."""
        session = self.session
        root = session.root
        parts = [root.model if root is not None and not session.model else session.model or _default(session)]
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
        carries = len(self.attached) + len(self.output)
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


async def _run_shell(command: str, folder: Path) -> str:
    """What it printed until it ended; Ctrl-C is for it, and what it leaves in the background goes on."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    reading, writing = os.pipe()  # of our own: asyncio would wait for whoever else holds it
    try:
        process = await asyncio.create_subprocess_exec(
            shell, "-c", command, cwd=folder, stdout=writing, stderr=writing
        )
    finally:
        os.close(writing)
    printed: list[bytes] = []
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> None:
        chunk = os.read(reading, 65536)
        if not chunk:
            loop.remove_reader(reading)
            over.set()
            return
        os.write(1, words.clean(decoder.decode(chunk)).encode())  # files may be a stranger's
        if sum(map(len, printed)) < 4 * MOST_OUTPUT:
            printed.append(chunk)

    loop.add_reader(reading, read)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        await process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), LAST_WORDS)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_reader(reading)
        os.close(reading)
    return b"".join(printed).decode("utf-8", "replace").rstrip("\n")
