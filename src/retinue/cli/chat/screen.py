"""The chat on a terminal: an input line, a few living lines above it, a status line below; the rest scrolls.

Inline, never the alternate screen: what was said stays in the terminal's own scrollback. prompt_toolkit draws
and reads keys; what is typed goes to `Talk`. Printing goes through one queue, so that the lines that live are
taken away and drawn again once for all that is printed together.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput

from retinue.cli.chat.history import ChatHistory
from retinue.cli.chat.pasting import Entered, Pastes
from retinue.cli.chat.pictures import clipboard_picture, pasted_picture
from retinue.cli.own_program import edited, own_editor
from retinue.errors import RetinueError
from retinue.view.paint import Line, columns, cut, fit, paint, wants_colour

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

BUSY_FRAME = 0.125
"""Seconds between two drawings while something is at work."""
MOST_INPUT = 10
MENU = 7
QUIET = 1.0
"""Seconds without a key after which a question may take the keyboard."""


class Talker(Protocol):
    """Who is handed what is typed."""

    async def typed(self, entry: Entered) -> None: ...

    async def attach(self, path: Path) -> None:
        """A file for the next message."""
        ...

    def say_error(self, text: str) -> None: ...

    async def stop(self) -> bool:
        """Stop the turn. False where none is under way."""
        ...

    def live(self, width: int, height: int, tick: int) -> list[Line]: ...

    def status(self, width: int) -> Line: ...

    @property
    def busy(self) -> bool: ...

    @property
    def doing(self) -> tuple[str, float] | None:
        """The command of the chat that is at work, and since when."""
        ...

    @property
    def project(self) -> Path:
        """The folder that agents work in: no program of it is started."""
        ...


class ChatScreen:
    def __init__(self, talker: Talker, *, completer: Completer, history: Path | None) -> None:
        self.talker = talker
        self._pastes = Pastes()
        self._tick = 0
        self._leaving = 0.0
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._printing = asyncio.Event()
        self._printing.set()
        self._held: contextlib.AbstractAsyncContextManager[Any] | None = None
        self._open_question = asyncio.Event()
        self._hint = ""
        self._pictures: tempfile.TemporaryDirectory[str] | None = None
        """Pictures of the clipboard, until the chat ends."""
        self.buffer = Buffer(
            completer=ThreadedCompleter(completer),
            complete_while_typing=True,
            history=ChatHistory(history, self._pastes) if history is not None else InMemoryHistory(),
            multiline=True,
        )
        self.app: Application[int] = Application(
            layout=self._layout(),
            key_bindings=self._keys(),
            full_screen=False,
            erase_when_done=True,
            mouse_support=False,
            min_redraw_interval=0.03,
        )
        self.app.ttimeoutlen = 0.05
        self.app.timeoutlen = 0.25

    # -- drawing ---------------------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        prompt = BeforeInput([("bold fg:ansicyan", "› ")])
        field = Window(
            BufferControl(self.buffer, input_processors=[prompt]),
            height=self._input_height,
            wrap_lines=True,
            dont_extend_height=True,
        )
        live = ConditionalContainer(
            Window(FormattedTextControl(self._live_text), wrap_lines=False, dont_extend_height=True),
            filter=Condition(lambda: self.talker.busy),
        )
        body = HSplit(
            [
                live,
                Window(height=1, char="─", style="fg:ansibrightblack"),
                field,
                Window(FormattedTextControl(self._status_text), height=1, wrap_lines=False),
                # room for the menu, which lies over it
                ConditionalContainer(Window(height=MENU), filter=Condition(self._completing)),
            ]
        )
        menu = Float(xcursor=True, ycursor=True, content=CompletionsMenu(max_height=MENU, scroll_offset=1))
        return Layout(FloatContainer(body, floats=[menu]), focused_element=field)

    def _completing(self) -> bool:
        state = self.buffer.complete_state
        return state is not None and len(state.completions) > 1

    def _input_height(self) -> Dimension:
        return Dimension(min=1, max=MOST_INPUT)

    def _live_text(self) -> StyleAndTextTuples:
        width, height = self._size()
        lines = self.talker.live(width, max(2, height // 2), self._tick)
        return styled([fit(line, width) for line in lines])

    def _status_text(self) -> StyleAndTextTuples:
        width, _ = self._size()
        line: Line = [(cut(self._hint, width), "yellow")] if self._hint else self.talker.status(width)
        return styled([fit(line, width)])

    def _size(self) -> tuple[int, int]:
        size = self.app.output.get_size()
        return max(20, size.columns - 1), size.rows

    # -- keys ------------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        empty = Condition(lambda: not self.buffer.text)
        keys.add("enter")(self._enter)
        keys.add("escape", "enter")(self._new_line)
        keys.add("c-j")(self._new_line)
        keys.add("escape")(self._escape)
        keys.add("c-c")(self._interrupt)
        keys.add("c-d", filter=empty)(self._leave)
        keys.add("c-x", "c-e")(self._edit)
        keys.add("c-o")(self._open)
        keys.add("c-v")(self._picture)
        keys.add("up")(self._up)
        keys.add("down")(self._down)
        keys.add(Keys.BracketedPaste)(self._paste)
        return keys

    def _new_line(self, event: KeyPressEvent) -> None:
        self.buffer.insert_text("\n")

    def _edit(self, event: KeyPressEvent) -> None:
        self._spawn(self._edited())

    async def _edited(self) -> None:
        """The line in the person's editor, with the pastes in it whole."""
        line, project = self.buffer.text, self.talker.project
        editor = own_editor(project)
        if editor is None:
            self.talker.say_error("no editor is here: set VISUAL or EDITOR")
            return
        try:
            text = str(self._pastes.unfolded(line))
            changed = await self.with_terminal(lambda: edited(editor, text, "message.md", project))
        except (RetinueError, OSError, ValueError) as error:
            self.talker.say_error(f"{editor}: {error}")
            return
        if not text.endswith("\n"):
            changed = changed.removesuffix("\n")  # editors put one at the end
        if changed != text:
            text = self._pastes.refolded(changed, line)
            self.buffer.document = Document(text, len(text))

    def _leave(self, event: KeyPressEvent) -> None:
        self.app.exit(result=0)

    def _open(self, event: KeyPressEvent) -> None:
        self._open_question.set()

    def _up(self, event: KeyPressEvent) -> None:
        self.buffer.auto_up()

    def _down(self, event: KeyPressEvent) -> None:
        self.buffer.auto_down()

    def _enter(self, event: KeyPressEvent) -> None:
        buffer = self.buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.apply_completion(state.current_completion)
            return
        if (
            buffer.document.char_before_cursor == "\\" and buffer.document.is_cursor_at_the_end
        ):  # where no other key makes a new line
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        try:
            entry = self._pastes.unfolded(buffer.text)
        except RetinueError as error:
            self.talker.say_error(str(error))
            return
        if not entry.strip():
            return
        buffer.history.append_string(buffer.text)
        buffer.reset()
        self._hint = ""
        self._spawn(self.talker.typed(entry))

    def _paste(self, event: KeyPressEvent) -> None:
        if (picture := pasted_picture(event.data)) is not None:
            self._spawn(self.talker.attach(picture))
            return
        self.buffer.insert_text(self._pastes.folded(event.data))

    def _picture(self, event: KeyPressEvent) -> None:
        self._spawn(self._attach_picture())

    async def _attach_picture(self) -> None:
        self._hint = "looking into the clipboard …"
        self.app.invalidate()
        if self._pictures is None:
            self._pictures = tempfile.TemporaryDirectory(prefix="retinue-")
        picture = await clipboard_picture(self.talker.project, Path(self._pictures.name))
        self._hint = ""
        if picture is not None:
            await self.talker.attach(picture)
            return
        await self._say_hint("no picture in the clipboard (it is read with wl-paste, xclip or pngpaste)")

    def _escape(self, event: KeyPressEvent) -> None:
        self.buffer.cancel_completion()
        self._spawn(self.talker.stop())

    def _interrupt(self, event: KeyPressEvent) -> None:
        if self.buffer.text:
            self.buffer.reset()
            return
        now = time.monotonic()
        if self.talker.busy and now - self._leaving > 2:
            self._leaving = now
            self._hint = "stopping; Ctrl-C again leaves"
            self._spawn(self.talker.stop())
        elif now - self._leaving > 2:
            self._leaving = now
            self._spawn(self._say_hint("Ctrl-C again, or Ctrl-D, leaves"))
        else:
            self.app.exit(result=130)

    async def _say_hint(self, text: str) -> None:
        self._hint = text
        self.app.invalidate()
        await asyncio.sleep(2)
        self._hint = ""
        self.app.invalidate()

    def _spawn(self, work: Awaitable[Any]) -> None:
        self.app.create_background_task(_awaited(work))

    def on_key(self, heard: Callable[[], None]) -> None:
        """Whoever wants to know that the person is there."""

        def pressed(_: object) -> None:
            heard()

        self.app.key_processor.before_key_press += pressed

    # -- printing above --------------------------------------------------------------------------------------

    def print(self, text: str) -> None:
        """Text with its escape codes, above the lines that live. It stays there."""
        self._queue.put_nowait(text)

    def lines(self, lines: list[Line]) -> None:
        width, colour = columns(sys.stdout), wants_colour(sys.stdout)
        self.print("".join(paint(fit(line, width), colour=colour) + "\n" for line in lines))

    async def _printer(self) -> None:
        while True:
            text = await self._queue.get()
            while not self._queue.empty():
                text += self._queue.get_nowait()
            await self._printing.wait()
            async with in_terminal():
                sys.stdout.write(text)
                sys.stdout.flush()
            self._hint = ""

    async def drain(self) -> None:
        """Print what is queued, at the end."""
        text = ""
        while not self._queue.empty():
            text += self._queue.get_nowait()
        sys.stdout.write(text)
        sys.stdout.flush()

    # -- questions -------------------------------------------------------------------------------------------

    async def hold(self) -> None:
        """Give the terminal to a question, once the person is not typing something else."""
        self._open_question.clear()
        while self.buffer.text and not self._open_question.is_set():
            self._hint = "a question waits for you: Ctrl-O opens it"
            self.app.invalidate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._open_question.wait(), QUIET)
        self._hint = ""
        self._printing.clear()
        self._held = in_terminal()
        with set_app(self.app):  # whoever asks is no task of the application
            await self._held.__aenter__()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: self._spawn(self.talker.stop()))

    def release(self) -> None:
        held, self._held = self._held, None
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        if held is not None:
            self._spawn(self._back(held))

    async def _back(self, held: contextlib.AbstractAsyncContextManager[Any]) -> None:
        await held.__aexit__(None, None, None)
        self._printing.set()

    async def with_terminal(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Something that needs the terminal for itself: a program of the person's."""
        async with in_terminal():
            return await work()

    # -- living ----------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Until the person leaves. Returns the exit code."""

        def before() -> None:
            self.app.create_background_task(self._printer())
            self.app.create_background_task(self._frames())

        try:
            code = await self.app.run_async(pre_run=before, handle_sigint=False)
        finally:
            if self._pictures is not None:
                self._pictures.cleanup()
        await self.drain()
        return code or 0

    async def _frames(self) -> None:
        was = False
        while True:
            await asyncio.sleep(BUSY_FRAME)
            busy = self.talker.busy or self.talker.doing is not None
            if busy or was:
                self._tick += 1
                self.app.invalidate()
            was = busy


async def _awaited(work: Awaitable[Any]) -> None:
    await work


_STYLES = {"dim": "fg:ansibrightblack", "reverse": "reverse", "bold": "bold", "italic": "italic"}


def styled(lines: list[Line]) -> StyleAndTextTuples:
    """Lines as prompt_toolkit draws them."""
    found: StyleAndTextTuples = []
    for index, line in enumerate(lines):
        if index:
            found.append(("", "\n"))
        for text, style in line:
            parts = [_STYLES.get(word, f"fg:ansi{word}") for word in style.split()]
            found.append((" ".join(parts), text))
    return found
