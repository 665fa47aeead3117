"""How a tool replaces a file of the project: what was there is recorded first, and nobody writes in between.

Called by `write` and `edit`. Who records is the engine (`Changes`); a tool that is called without one records
nothing, and is still alone with its file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from retinue.errors import ToolError
from retinue.threads import to_its_end
from retinue.types import FileChange, FileState
from retinue.workspace import MOST_BYTES, Files

INLINE = 256 * 1024
"""Bytes that are handled at once; more is handled in a thread, so that nobody waits."""
ATTEMPTS = 5

P = ParamSpec("P")
R = TypeVar("R")


class Changes(Protocol):
    """What records the changes of one call."""

    def alone(self, path: str) -> AbstractAsyncContextManager[None]:
        """Until the end of the block no other run of this workflow replaces that file by a tool."""
        ...

    async def about_to(self, changes: tuple[FileChange, ...], before: bytes | None, after: bytes) -> None:
        """Record what is going to be changed, and what was there. Done when it is durable."""
        ...

    def void(self, changes: tuple[FileChange, ...]) -> None:
        """It did not come to these changes."""
        ...

    def changed_since(self, path: str, sha256: str) -> str | None:
        """Who has changed a file that this run saw otherwise, in words; None if this is what it saw."""
        ...


class Unrecorded:
    """Changes that nobody records: of tools that are called by themselves."""

    def alone(self, path: str) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def about_to(self, changes: tuple[FileChange, ...], before: bytes | None, after: bytes) -> None:
        return None

    def void(self, changes: tuple[FileChange, ...]) -> None:
        return None

    def changed_since(self, path: str, sha256: str) -> str | None:
        return None


UNRECORDED = Unrecorded()


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundFile:
    """A file as it was found: `data` None if it is too large to be read, or not ours to read."""

    stat: os.stat_result
    data: bytes | None
    state: FileState


async def replace_file(
    files: Files, changes: Changes, path: str, make: Callable[[FoundFile | None], bytes]
) -> tuple[str, FoundFile | None, bytes]:
    """Put what `make` makes of a file in its place. Returns how it is called, what it was and what it is."""
    place = files.locate(path)
    async with changes.alone(place.display):
        for _ in range(ATTEMPTS):
            found = await unhurried(_length(files, path), _found, files, path)
            held = await files.unsaved(path)
            if found is not None and held is not None:
                found = _as_held(found, held)
            if found is not None and not place.home:
                _refuse_stale(place.display, found, changes)
            data = make(found)
            planned = () if place.home else _planned(files, path, found, data)
            written: list[str] = []
            try:
                if planned:
                    await changes.about_to(planned, found.data if found else None, data)
                if await _handed(files, path, data, planned):
                    written.append(place.display)
                else:
                    await unhurried(len(data), _write, files, path, data, found, written)
                return written[0], found, data
            except BaseException as error:
                if not written:  # who is cancelled may have written
                    changes.void(planned)
                if not isinstance(error, ToolError) or _number(error) != errno.ESTALE:
                    raise
    raise ToolError(f"{place.display} is being changed all the time by somebody else; try again later")


def _write(files: Files, path: str, data: bytes, found: FoundFile | None, written: list[str]) -> None:
    """Write, and say so there: whoever waits may be cancelled and not see what comes back."""
    written.append(files.write(path, data, expect=found.stat if found else None))


async def _handed(files: Files, path: str, data: bytes, planned: tuple[FileChange, ...]) -> bool:
    """Whether somebody who holds the file has written it. What needs a folder to be made is written here."""
    return bool(planned) and files.has_folder(path) and await files.put(path, data)


def _as_held(found: FoundFile, held: bytes) -> FoundFile:
    """A file as somebody holds it who has not saved it yet: that is what is changed, and what is put back."""
    digest = hashlib.sha256(held).hexdigest()
    state = msgspec.structs.replace(found.state, size=len(held), sha256=digest)
    return replace(found, data=held, state=state)


def _refuse_stale(display: str, found: FoundFile, changes: Changes) -> None:
    who = changes.changed_since(display, found.state.sha256)
    if who is not None:
        raise ToolError(
            f"{display} was changed since you read it, by {who}. Nothing was written: read it again, "
            "and change what is there now."
        )


def _number(error: ToolError) -> int | None:
    return getattr(error.__cause__, "errno", None)


def _length(files: Files, path: str) -> int:
    try:
        return files.stat(path).st_size
    except ToolError:
        return 0


def _found(files: Files, path: str) -> FoundFile | None:
    """What is there now. What cannot be read is refused when it is written, in words of its own."""
    try:
        file = files.open(path)
    except ToolError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        return FoundFile(stat=files.stat(path), data=None, state=FileState(kind="file", kept=False))
    with file:
        there = os.fstat(file.fileno())
        data = file.read(MOST_BYTES + 1)
        digest = hashlib.sha256(data)
        while len(data) > MOST_BYTES and (more := file.read(1 << 20)):
            digest.update(more)
    whole = data if len(data) <= MOST_BYTES else None
    state = FileState(
        kind="file",
        mode=stat.S_IMODE(there.st_mode),
        size=there.st_size,
        sha256=digest.hexdigest(),
        kept=whole is not None,
    )
    return FoundFile(stat=there, data=whole, state=state)


def _planned(files: Files, path: str, found: FoundFile | None, data: bytes) -> tuple[FileChange, ...]:
    """The change of the file, after those of the folders that are made for it."""
    name = files.locate(path).name
    made: list[FileChange] = []
    folder = posixpath.dirname(name)
    while folder and not files.exists(f"./{folder}"):
        made.append(FileChange(path=folder, after=FileState(kind="folder")))
        folder = posixpath.dirname(folder)
    after = FileState(
        kind="file",
        mode=found.state.mode if found else None,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    before = found.state if found else FileState()
    return (*reversed(made), FileChange(path=name, before=before, after=after))


async def unhurried(length: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function, in a thread if it has much to do, and to its end even if who waits is cancelled."""
    return function(*args, **kwargs) if length <= INLINE else await to_its_end(function, *args, **kwargs)
