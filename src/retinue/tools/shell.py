"""The tool that runs commands: `bash`.

A command runs in the project, or in the workspace where there is none. With `approvals.sandbox` it is sealed
off from the rest of the machine; without, it has the rights of whoever started Retinue, and a person is
asked. It gets no input, an environment without secrets, and a supervisor that ends whatever it started
(`sandbox.commands`). Nothing outlives the call.

The environment is an allow-list (`sandbox.commands.hide.HARMLESS`): names of secrets cannot be guessed, so
whatever is not known to be harmless stays out. That includes proxies, agents' sockets and cloud profiles.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from retinue.authority.git_commands import run_from
from retinue.errors import NoHandles, ToolError
from retinue.programs import find_program
from retinue.sandbox.commands.hide import harmless
from retinue.sandbox.commands.launch import Commands, NotSealed, SealBroken
from retinue.sandbox.commands.view import CommandPlace, Trials, sealed_environment, view_of
from retinue.threads import to_its_end
from retinue.tools.base import Tool, ToolContext, ToolResult
from retinue.tools.files import file_tool
from retinue.tools.process import Ended, run_command
from retinue.tools.shell_hints import hints
from retinue.workspace import HOME, Files

MOST_SECONDS = 600.0
MOST_SHOWN = 30_000
"""Bytes of output that are kept: half from its beginning, half from its end."""
MOST_PRINTED = 50_000_000
"""Bytes of output after which a command is ended."""


def environment(source: Mapping[str, str]) -> dict[str, str]:
    """What a command is told of our environment; and that nobody is there to page or to be asked."""
    kept = {name: value for name, value in source.items() if harmless(name)}
    return {**kept, "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


async def run_bash(
    command: str,
    ctx: ToolContext,
    timeout: float,
    commands: Commands,
    environ: Mapping[str, str],
    hidden: Sequence[str] = (),
    guarded: Callable[[], Sequence[str]] = tuple,
) -> ToolResult:
    if not command.strip() or "\0" in command:
        raise ToolError(
            "the command is empty" if not command.strip() else "the command holds a NUL character"
        )
    seconds = min(max(timeout, 1.0), MOST_SECONDS, ctx.seconds)
    files = ctx.files
    env = environment(environ)
    with _folder_of(files) as folder:
        seal = None
        if ctx.sandbox != "off":
            seal = await to_its_end(_sealed, files, ctx.sandbox == "open", hidden, guarded, environ)
            env = sealed_environment(env, seal)
        real = "" if seal is not None else _real_home(files, command)
        if files.project is None and real:
            env["HOME"] = real
        output = CommandOutput(MOST_SHOWN, hide=real.encode(), progress=ctx.progress)
        try:
            ended = await run_command(
                commands,
                [*_shell(files.project), _with_real_home(command, real)],
                folder=folder,
                env=env,
                feed=output.feed,
                timeout=seconds,
                seal=seal,
            )
        except NotSealed as error:
            raise ToolError(f"the command was not run, since it cannot be sealed off: {error}") from None
        except SealBroken as error:
            raise ToolError(f"the command was ended: {error}") from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise NoHandles("the command could not be started", untouched=True) from None
            raise ToolError(f"the command could not be started: {os.strerror(error.errno or 0)}") from None
    if (real or seal) and files.workspace is not None:
        await asyncio.to_thread(files.workspace.recount)
    text = output.text()
    told = [] if seal is None else [note for note in (ended.note, *hints(text, seal)) if note]
    notes = "".join(f"[{note}]\n" for note in told)
    return ToolResult(
        text=f"{text}{notes}[{_end(ended, seconds)}]", is_error=ended.timed_out or ended.code != 0
    )


@contextlib.contextmanager
def _folder_of(files: Files) -> Generator[int]:
    """Where a command starts. Until it has started, nothing is done that could not be done again."""
    try:
        with files.folder() as folder:
            yield folder
    except NoHandles as error:
        raise NoHandles(str(error), untouched=True) from None


def _sealed(
    files: Files,
    network: bool,
    hidden: Sequence[str],
    guarded: Callable[[], Sequence[str]],
    environ: Mapping[str, str],
) -> dict[str, Any]:
    if files.workspace is not None:
        files.workspace.jail(create=True)
    return view_of(replace(_place(files, network, hidden), guarded=guarded()), environ)


def _place(files: Files, network: bool, hidden: Sequence[str]) -> CommandPlace:
    return CommandPlace(
        project=files.project,
        workspace=None if files.workspace is None else files.workspace.folder,
        writable=files.writable,
        network=network,
        hidden=hidden,
        readable=files.readable,
    )


def _shell(project: Path | None) -> list[str]:
    found = find_program("bash", project)
    return [found, "--noprofile", "--norc", "-c"] if found else ["/bin/sh", "-c"]


def _end(ended: Ended, seconds: float) -> str:
    if ended.lost:
        left = "may still run" if ended.loose else "was ended"
        return f"outcome unknown: the process that watches over the command is gone; what it left {left}"
    if ended.timed_out:
        left = "may still run" if ended.loose else "were ended"
        return f"timed out after {seconds:.3g} s; the command and all it started {left}"
    if ended.stopped:
        return f"ended: it printed more than {MOST_PRINTED:,} bytes; send long output to a file"
    if ended.code < 0:
        return f"ended by signal {-ended.code} ({signal.Signals(-ended.code).name})"
    return f"exit code {ended.code}"


def _real_home(files: Files, command: str) -> str:
    """Where the workspace really is, if the command can come across it."""
    if files.workspace is None or (files.project is not None and files.project.is_relative_to(HOME)):
        return ""
    if HOME in command:
        files.workspace.jail(create=True)
    return "" if files.workspace.folder is None else str(files.workspace.folder)


_VIRTUAL_HOME = re.compile(rf"(?<![\w./-]){HOME}(?![\w.-])")


def _with_real_home(command: str, real: str) -> str:
    """The virtual home is not there for a command: name it the real one, as its output is named back.

    The command was judged before this: the name that is put in must not be read as anything but a name.
    """
    if not real or _VIRTUAL_HOME.search(command) is None:
        return command
    if re.fullmatch(r"[A-Za-z0-9_./@%+,:=-]+", real):
        return _VIRTUAL_HOME.sub(lambda _: real, command)
    if not re.fullmatch(r"[\w./@%+,:= -]+", real):
        raise ToolError(
            f"this command cannot name {HOME}: it is kept in a folder whose name a shell would not read as a "
            "name. Keep the database of Retinue (db=) where paths are of letters, digits and blanks."
        )
    return _VIRTUAL_HOME.sub(lambda found: _quoted(real, command[: found.start()]), command)


def _quoted(real: str, before: str) -> str:
    """A name with blanks or letters beyond ASCII: as it is within quotes, and else in quotes of its own."""
    inside = ""
    escaped = False
    for sign in before:
        if escaped or (sign == "\\" and inside != "'"):
            escaped = not escaped
        elif sign in "'\"" and inside in ("", sign):
            inside = "" if inside else sign
    return real if inside else f"'{real}'"


class CommandOutput:
    """Keeps the beginning and the end of what a command prints, and never the real place of a workspace."""

    def __init__(
        self, most: int, *, hide: bytes = b"", progress: Callable[[str], None] | None = None
    ) -> None:
        self._half = most // 2
        self._hide = hide
        self._progress = progress
        self._told = 0.0
        self._held = b""
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> bool:
        data = self._held + data
        if self._hide:  # the path may be split between two pieces
            data = data.replace(self._hide, HOME.encode())
            keep = len(data) - len(self._hide) + 1
            data, self._held = data[: max(keep, 0)], data[max(keep, 0) :]
        self._add(data)
        if self._progress is not None and time.monotonic() - self._told > 0.5:
            self._told = time.monotonic()
            line = data.rstrip().rpartition(b"\n")[2]
            self._progress(line[-200:].decode("utf-8", "replace"))
        return self._total < MOST_PRINTED

    def _add(self, data: bytes) -> None:
        self._total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > self._half * 4:
            del self._tail[: -self._half]

    def text(self) -> str:
        self._add(self._held)
        self._held = b""
        tail = self._tail[-self._half :]
        left_out = self._total - len(self._head) - len(tail)
        middle = f"\n[{left_out:,} bytes left out]\n".encode() if left_out else b""
        text = bytes(self._head + middle + tail).decode("utf-8", "replace").replace("\0", "␀")
        return text if not text or text.endswith("\n") else text + "\n"


def preview_bash(arguments: dict[str, Any], files: Files) -> str:
    return str(arguments["command"])


def shell_tools(
    commands: Commands | None = None,
    *,
    hidden: Sequence[str] = (),
    guarded: Callable[[], Sequence[str]] = tuple,
    started_from: Callable[[Path], Sequence[str]] = lambda folder: (),
    environ: Mapping[str, str] | None = None,
) -> list[Tool]:
    """The tool, and what starts its commands: whoever gives that closes it.

    `hidden` are files that no sealed command sees, also not in the project, and `guarded` those that none
    changes. `started_from`: what runs outside of the sandbox from files of a folder. What `environ` names
    counts more than what this process has: a program may serve several people, each with a home of their own.
    """
    starts = commands or Commands()
    trials = Trials()

    def known() -> Mapping[str, str]:
        return os.environ if environ is None else {**os.environ, **environ}

    def unsealed(files: Files, network: bool, again: bool) -> str | None:
        return trials.why_not(_place(files, network, hidden), known(), again=again)

    def ways_out(files: Files) -> Sequence[str]:
        if files.project is None or not files.writable:
            return ()
        return (*started_from(files.project), *run_from(files.project, known()))

    async def bash(command: str, ctx: ToolContext, timeout: float = 60) -> ToolResult:
        """Run a command.

        Args:
            command: for bash
            timeout: seconds after which it is ended, 600 at most
        """
        return await run_bash(command, ctx, timeout, starts, known(), hidden, guarded)

    made = file_tool(bash, effect="execute", timeout=None, preview=preview_bash, private=True)
    return [replace(made, unsealed=unsealed, ways_out=ways_out)]
