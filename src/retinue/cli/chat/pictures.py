"""Pictures that come by the clipboard: a pasted or dropped path of one, or the picture itself.

A terminal hands over text alone, so the picture itself is asked of the desktop by the program that is there:
`wl-paste`, `xclip` or `pngpaste`. Used by the screen of the chat.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
from pathlib import Path
from urllib.parse import unquote, urlsplit

from retinue.programs import find_program
from retinue.threads import undisturbed

KINDS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
PROGRAMS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
SECONDS = 5.0
MOST_BYTES = 20_000_000
PNG = b"\x89PNG\r\n\x1a\n"


def pasted_picture(text: str) -> Path | None:
    """The picture whose path was pasted: as it is, quoted, with backslashes, or as a file:// address."""
    word = text.strip()
    if not word or "\n" in word or len(word) > 4096:
        return None
    if word.startswith("file://"):
        word = unquote(urlsplit(word).path)
    elif re.match(r"""["']|.*\\ """, word):
        try:
            [word] = shlex.split(word)
        except ValueError:
            return None
    path = Path(word).expanduser()
    try:
        there = path.is_absolute() and path.suffix.lower() in KINDS and path.is_file()
    except OSError:
        return None
    return path if there else None


async def clipboard_picture(cwd: Path, folder: Path) -> Path | None:
    """The picture in the clipboard as a file of that folder; None if there is none. No program of the project
    is started for it."""
    for name, *arguments in PROGRAMS:
        program = find_program(name, cwd)
        if program is None:
            continue
        data = await _printed([program, *arguments])
        if data.startswith(PNG):
            return await asyncio.to_thread(_saved, data, folder)
    return None


async def _printed(command: list[str]) -> bytes:
    """Nothing where it fails, takes too long, or prints more than a picture may have. It does not outlive
    whoever waits."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    )
    printed = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            process = await asyncio.shield(starting)
            assert process.stdout is not None
            while len(printed) <= MOST_BYTES and (chunk := await process.stdout.read(1 << 18)):
                printed += chunk
            failed = len(printed) > MOST_BYTES or await process.wait() != 0
    except (OSError, TimeoutError):
        return b""
    finally:
        await undisturbed(_end(starting))
    return b"" if failed else bytes(printed)


async def _end(starting: asyncio.Future[asyncio.subprocess.Process]) -> None:
    """End a program with what it started, also one that is only about to be there."""
    with contextlib.suppress(OSError):  # it was not there to be started
        process = await starting
        assert process.stdout is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        while await process.stdout.read(1 << 18):  # its end is only told when its output has been read
            pass
        await process.wait()


def _saved(data: bytes, folder: Path) -> Path:
    path = folder / f"clipboard-{len(list(folder.iterdir())) + 1}.png"
    path.write_bytes(data)
    return path
