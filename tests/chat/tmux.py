"""A real terminal for the chat: tmux, with a server of its own for each test."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class Tmux:
    """A command in a window of a given size. `text` is the screen with its scrollback."""

    def __init__(self, folder: Path, columns: int = 100, rows: int = 30) -> None:
        self.socket, self.columns, self.rows = str(folder / "tmux.sock"), columns, rows

    async def tmux(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "tmux",
            "-S",
            self.socket,
            "-f",
            "/dev/null",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
            | {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"},
        )
        out, _ = await process.communicate()
        return out.decode("utf-8", "replace")

    async def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items() if name != "TERM")
        line = f"cd {shlex.quote(str(cwd))}; exec env -i TERM=screen-256color {given} {shlex.join(command)}"
        await self.tmux("new-session", "-d", "-x", str(self.columns), "-y", str(self.rows), line)
        await self.tmux("set", "-g", "remain-on-exit", "on")
        await self.tmux("set", "-g", "history-limit", "5000")

    async def text(self) -> str:
        return await self.tmux("capture-pane", "-p", "-J", "-S", "-")

    async def screen(self) -> str:
        """What is on the screen itself, without the scrollback."""
        return await self.tmux("capture-pane", "-p")

    async def type(self, text: str) -> None:
        await self.tmux("send-keys", "-l", "--", text)

    async def press(self, *keys: str) -> None:
        await self.tmux("send-keys", *keys)

    async def say(self, text: str) -> None:
        await self.type(text)
        await self.press("Enter")

    async def pid(self) -> int:
        return int((await self.tmux("display-message", "-p", "#{pane_pid}")).strip())

    async def dead(self) -> bool:
        return (await self.tmux("display-message", "-p", "#{pane_dead}")).strip() == "1"

    async def ended(self, seconds: float = 60) -> None:
        """Wait until the command has ended."""
        async with asyncio.timeout(seconds):
            while not await self.dead():
                await asyncio.sleep(0.05)

    async def until(self, wanted: str | Callable[[str], bool], seconds: float = 60) -> str:
        """Wait until the terminal shows something, or fail with what it shows."""
        holds = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        try:
            async with asyncio.timeout(seconds):
                while not holds(text := await self.text()):
                    await asyncio.sleep(0.05)
                return text
        except TimeoutError:
            raise AssertionError(f"waited for {wanted!r}; the terminal shows:\n{await self.text()}") from None

    async def close(self) -> None:
        await self.tmux("kill-server")
        self.socket += "+"  # it may still be closing when another window is opened
