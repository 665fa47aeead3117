"""Where a run's files live: the project folder it was started in, and its private `/home/agent`.

`Files` is what tools are given: project and workspace behind one door, which speaks only relative and
virtual paths. The real place of a workspace (`workspace_folder`) never appears in a result, an error or an
event. All access goes through `Jail`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Protocol

from retinue.errors import ForbiddenPath, NoHandles, Refused, ToolError
from retinue.jail import Entry, Jail
from retinue.workspace_folder import HOME, Workspace

WEB = f"{HOME}/web"
"""What strangers wrote is saved here, and shown as data by whatever reads it."""
MOST_BYTES = 10 * 1024 * 1024
MOST_SHOWN = 300


class Buffers(Protocol):
    """Who holds files of the project that are not saved yet, such as an editor, which may have several
    workflows."""

    async def text(self, root_id: str, path: Path) -> str | None:
        """What stands in that file, or None if whoever holds files has nothing to say: the disk counts."""
        ...

    async def put(self, root_id: str, path: Path, text: str) -> bool:
        """Write that file, and save it. False if it is not taken: then it is written to the disk."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a path leads: its name in the jail, what to call it, and whether it is in the workspace."""

    name: str
    display: str
    home: bool


def one_spelling(folder: Path) -> Path:
    """A folder as an absolute path, without `..`: that is where the system goes, also behind a link."""
    return Path(os.path.realpath(folder)) if ".." in folder.parts else folder.absolute()


UNKNOWN = "one of more files than were looked at/.env"
"""Stands for a name of a file that was not found among too many: it may be one of secrets, so it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What a project is a copy of: rules about files there hold for the same files here.

    `folders` are the one that it was made of, and those that this one was. `shared`: the other names that a
    file had there by hard links, since in a copy each of them is a file of its own.
    """

    folders: tuple[str, ...]
    shared: Mapping[str, tuple[str, ...]]

    def spellings(self, name: str) -> list[str]:
        """A path of the copy as a rule about the project may write it."""
        return [posixpath.normpath(f"{folder}/{name}") for folder in self.folders]


class Files:
    """All file access of a run. Relative paths start at the project, or at `/home/agent` without one.

    `writable` is about the project: a run may always write to its own workspace. `readable` are folders
    elsewhere that a sealed command may see beside them; no path of a tool leads there. `protected` are names
    at the top of the project that no tool writes to. `origin`: what it is a copy of.
    """

    def __init__(
        self,
        project: Path | None,
        workspace: Workspace | None,
        writable: bool = True,
        readable: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
        origin: Origin | None = None,
        buffers: Buffers | None = None,
        root_id: str = "",
    ) -> None:
        self.project = None if project is None else Path(os.path.abspath(project))
        self.workspace = workspace
        self.writable = writable
        self.readable = readable
        self.protected = protected
        self.origin = origin
        self._buffers = buffers
        self._root_id = root_id
        self._project_jail: Jail | None = None
        self._opening = threading.Lock()
        self._closed = False

    @property
    def cwd(self) -> str:
        """The working folder, as the model is told."""
        return HOME if self.project is None else str(self.project)

    def close(self) -> None:
        """The run has ended: its workspace goes, and its handle of the project. May be called twice."""
        if self.workspace is not None:
            self.workspace.close()
        with self._opening:
            self._closed = True
            if self._project_jail is not None:
                self._project_jail.close()

    def locate(self, path: str) -> Place:
        """Where a path leads, by its words alone: what is really opened is the jail's to decide."""
        if not path:
            raise ToolError("the path is empty; '.' is the working folder")
        if "\0" in path or not _is_unicode(path):
            raise ForbiddenPath(f"forbidden request: {shown(path)} is not a path")
        whole = HOME + path[1:] if path == "~" or path.startswith("~/") else path
        whole = "/" + posixpath.normpath(posixpath.join(self.cwd, whole)).lstrip("/")
        root = max((root for root in self._roots if _within(whole, root)), key=len, default=None)
        if root is None:
            raise self._outside(path, home=self.project is None)
        name = posixpath.relpath(whole, root)
        if root == HOME and self.workspace is not None:
            return Place(name=name, display=HOME if name == "." else f"{HOME}/{name}", home=True)
        return Place(name=name, display=name, home=False)

    def display(self, path: str) -> str:
        """The one way to write this path: relative to the project, or below `/home/agent`."""
        return self.locate(path).display

    def open(self, path: str) -> BinaryIO:
        """A regular file, to read."""
        with self.at(path) as (place, jail):
            return jail.open_read(place.name)

    def read_bytes(self, path: str, most: int = MOST_BYTES) -> bytes:
        with self.open(path) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ToolError(
                f"{self.display(path)} is larger than the {most:,} bytes that can be read at once"
            )
        return data

    @property
    def held_elsewhere(self) -> bool:
        """Whether anybody may hold files of the project that are not saved yet."""
        return self._buffers is not None

    def on_disk(self, path: str) -> Path | None:
        """Where a file of the project is for others than us, if that is in the project really."""
        place = self.locate(path)
        if place.home or self.project is None:
            return None
        whole = self.project / place.name
        inside = _within(os.path.realpath(whole), os.path.realpath(self.project))
        return whole if inside else None

    async def unsaved(self, path: str) -> bytes | None:
        """What stands in a file of the project for whoever holds it, where that is not what the disk has."""
        whole = self.on_disk(path) if self._buffers is not None else None
        if whole is None or self._buffers is None:
            return None
        text = await self._buffers.text(self._root_id, whole)
        if text is None:
            return None
        held = text.encode("utf-8", "replace")
        try:
            there = self.read_bytes(path)
        except ToolError:
            return held
        # Editors show every line ending as one.
        return None if held in (there, there.replace(b"\r\n", b"\n")) else held

    def has_folder(self, path: str) -> bool:
        """Whether the folder that a file is in is there, or is to be."""
        return self.exists(posixpath.dirname(self.locate(path).name) or ".")

    async def put(self, path: str, data: bytes) -> bool:
        """Hand a file of the project to whoever holds it. False if that is nobody, or it is no text."""
        whole = self.on_disk(path) if self._buffers is not None and self.writable else None
        if whole is None or self._buffers is None:
            return False
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return False
        return await self._buffers.put(self._root_id, whole, text)

    def stat(self, path: str) -> os.stat_result:
        with self.at(path) as (place, jail):
            return jail.stat(place.name)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return False
            raise
        return True

    def list(self, path: str = ".") -> list[Entry]:
        """What a folder holds. A workspace that nothing was written to is empty, not missing."""
        place = self.locate(path)
        if place.home and place.name == "." and self.workspace and self.workspace.jail() is None:
            return []
        with self.at(path) as (place, jail):
            return jail.listdir(place.name)

    def write(self, path: str, data: bytes, *, expect: os.stat_result | None = None) -> str:
        """Create or replace a file at once, and return how to call it. `expect`: as in `Jail.open_write`."""
        place = self.locate(path)
        if not place.home and not self.writable:
            raise Refused(f"{place.display} cannot be written: this run may only read the project")
        if not place.home and place.name.split("/")[0] in self.protected:
            raise Refused(
                f"{place.display} cannot be written: it ties this copy of the project to its branch"
            )
        with self.at(path, create=True) as (place, jail):
            if place.home and self.workspace is not None:
                self.workspace.write(place.name, data, expect=expect)
            else:
                with jail.open_write(place.name, expect=expect) as file:
                    file.write(data)
        return place.display

    def save(self, name: str, data: bytes, folder: str = HOME) -> str:
        """Keep something in the workspace under a new name like this one; returns its virtual path."""
        if self.workspace is None:
            raise ToolError("this run has no workspace to save to")
        stem, suffix = os.path.splitext(re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-."))
        stem, suffix = stem[:80] or "file", suffix[:20]
        for number in range(1, 10_000):
            path = f"{folder}/{stem}{suffix if number == 1 else f'-{number}{suffix}'}"
            with (
                contextlib.suppress(FileExistsError),
                self.at(path, create=True, let=errno.EEXIST) as (place, _),
            ):
                self.workspace.write(place.name, data, fresh=True)
                return path
        raise ToolError(f"{folder} has too many files called {stem}{suffix}; save under another name")

    @contextmanager
    def folder(self, path: str = ".") -> Generator[int]:
        """A handle of a folder, for a child process to start in."""
        with self.at(path, create=True) as (place, jail), jail.folder(place.name) as fd:
            yield fd

    @contextmanager
    def at(self, path: str, *, create: bool = False, let: int = 0) -> Generator[tuple[Place, Jail]]:
        """The place and the jail of a path. What goes wrong there is told in words the model can use."""
        place = self.locate(path)
        try:
            yield place, self.jail(place, create=create)
        except OSError as error:
            if let and error.errno == let:
                raise
            raise self._explained(error, place, path) from error

    def jail(self, place: Place, *, create: bool = False) -> Jail:
        if not place.home:
            return self._opened()
        jail = None if self.workspace is None else self.workspace.jail(create=create)
        if jail is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place.display)
        return jail

    def _opened(self) -> Jail:
        """The jail over the project, made at its first use. A tool's thread may come after the end."""
        if self.project is None:
            raise AssertionError("a place outside the workspace without a project")
        with self._opening:
            if self._closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if self._project_jail is None:
                self._project_jail = Jail(self.project)
            return self._project_jail

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        """Every spelling of the folders a path may be in."""
        project = () if self.project is None else (str(self.project), os.path.realpath(self.project))
        return (*project, HOME) if self.workspace is not None else project

    def _outside(self, path: str, *, home: bool) -> ForbiddenPath:
        where = f"the workspace {HOME}" if home else "the project"
        return ForbiddenPath(f"forbidden request: {shown(path)} is outside {where}")

    def _explained(self, error: OSError, place: Place, path: str) -> ToolError:
        if error.errno == errno.EXDEV:
            return self._outside(path, home=place.home)
        name = shown(place.display)
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return NoHandles(f"{name}: {os.strerror(error.errno)}")
        text = _EXPLAINED.get(error.errno or 0)
        if text is None:
            return ToolError(f"{name}: {os.strerror(error.errno or errno.EIO)}")
        return ToolError(text.format(name))


_EXPLAINED = {
    errno.ENOENT: "there is no file or folder {}",
    errno.ENOTDIR: "{}: a part of this path is a file, not a folder",
    errno.EISDIR: "{} is a folder; ls shows what it holds",
    errno.EACCES: "{}: permission denied",
    errno.EPERM: "{}: permission denied",
    errno.ELOOP: "{} goes through a link; name the file or folder it leads to instead",
    errno.EMLINK: "{} is refused: it has hard links, so it may be a file of another place as well",
    errno.EINVAL: "{} is refused: it is not a regular file but a device, a pipe or a socket",
    errno.ENAMETOOLONG: "{}: the path is too long (255 bytes a name, 4,095 in all)",
    errno.EBADF: "{} cannot be opened any more: the run it belonged to has ended",
    errno.ESTALE: "{} was changed by somebody else meanwhile; read it again",
}


def shown(path: str) -> str:
    """A path as it can stand in a message: one line, not endless, nothing that a terminal would act on."""
    text = path if path.isprintable() else ascii(path)[1:-1]
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(path):,} characters)"


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
