"""Pictures that come by the clipboard: a pasted or dropped path of one, or the picture itself.

A terminal hands over text alone, so the picture itself is asked of the desktop by the program that is there:
`wl-paste`, `xclip` or `pngpaste`. Used by the screen of the chat.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from retinue.programs import find_program

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
        if data.startswith(PNG) and len(data) <= MOST_BYTES:
            return await asyncio.to_thread(_saved, data, folder)
    return None


async def _printed(command: list[str]) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return b""
    try:
        async with asyncio.timeout(SECONDS):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return b""
    return out if process.returncode == 0 else b""


def _saved(data: bytes, folder: Path) -> Path:
    path = folder / f"clipboard-{len(list(folder.iterdir())) + 1}.png"
    path.write_bytes(data)
    return path
