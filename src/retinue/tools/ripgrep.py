"""Asks ripgrep what is in a folder: `grep`, `glob` and `ls` stand on it.

ripgrep starts in a folder that the jail opened and searches `.` there: it is never given a path that came
from a model, because a link given as an argument would be followed. Ignore files count from the jail's
folder down, never those above it. To search a subfolder it starts at the top all the same, so that the
top's ignore files count, and is told by an ignore file of our own to leave out the rest. A folder that is
ignored itself but was asked for by name is searched on its own.

ripgrep opens ignore files by itself, so one that is no regular file of this folder, or huge, would have it
read elsewhere, wait for ever or fill the memory. Where such a file is on the way to the folder that is
searched, no ignore file counts, and it is said; one further down ends the search with an error that names it.

Without ripgrep, `plain_grep.py` takes its place: slower, and blind to ignore files.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from retinue.errors import ToolError
from retinue.jail import Jail
from retinue.programs import find_program
from retinue.tools.process import Ended, Feed, run_child
from retinue.workspace import HOME, Files, shown

SECONDS = 30.0
MEMORY = 2 << 30
"""Bytes of address space: a dozen threads reserve half of it without using it."""
IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
MOST_IGNORED = 1_000_000
"""Bytes of an ignore file."""
MOST_LOOKED_AT = 50_000
MOST_FILES = 300_000
HIDDEN = (".git", ".hg", ".svn", ".jj")
"""Folders of version control: never searched unless asked for by name."""

_FLAGS = (
    "--no-config",
    "--no-ignore-parent",
    "--no-ignore-global",
    "--no-ignore-exclude",
    "--no-ignore-messages",
    "--no-require-git",
    "--hidden",
    "--color=never",
    "--null",
)

Take = Callable[[str, bytes], bool]
"""Takes a path and what was found there; False means that it was enough."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """A folder or a file to search: the path that was asked for, its name in its jail, how it is shown."""

    files: Files
    path: str
    name: str
    display: str
    is_file: bool = False
    alone: bool = False
    """Can only be searched by itself, not from the jail's folder."""
    is_void: bool = False
    """A workspace that nothing was written to."""
    home: bool = False
    """In the workspace, not in the project."""
    unread: str = ""
    """An ignore file that must not be read, for which reason none is."""

    @property
    def notes(self) -> list[str]:
        """What whoever reads a result should know about how it was found."""
        if not self.unread:
            return []
        return [
            f"[{shown(self.unread)} is not a regular file of this folder, or too large: nothing is ignored]"
        ]

    @property
    def top(self) -> str:
        return "" if self.name == "." else f"{self.name}/"

    def below(self, name: str) -> str:
        """A path of the jail as seen from this folder."""
        return name.removeprefix(self.top)

    def show(self, name: str) -> str:
        """A path of the jail as it is shown. Names that are not Unicode lose what cannot be shown."""
        if self.is_file:
            return self.display
        below = os.fsencode(self.below(name)).decode("utf-8", "replace")
        return below if self.display == "." else f"{self.display}/{below}"

    def spellings(self, name: str) -> tuple[str, ...]:
        """The ways in which a rule may write a path of the jail."""
        if self.home:
            return (f"{HOME}/{name}",)
        origin = self.files.origin
        before = () if origin is None else origin.spellings(name)
        return (name, self.show(name), f"{self.files.project}/{name}", *before)

    def holds(self, name: str) -> bool:
        """Whether the jail has this path too: a folder swapped for a link may have led ripgrep out."""
        with contextlib.suppress(ToolError), self.files.at(self.path) as (_, jail):
            jail.stat(name)
            return True
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    ended: Ended
    errors: str


def find_rg(project: Path | None = None) -> str | None:
    """Beside our own programs, or elsewhere, but not in the project."""
    beside = Path(sys.executable).with_name("rg")
    return str(beside) if os.access(beside, os.X_OK) else find_program("rg", project)


def scope_of(files: Files, path: str) -> Scope:
    place = files.locate(path)
    if place.home and place.name == "." and files.workspace and files.workspace.jail() is None:
        return Scope(files=files, path=path, name=".", display=place.display, is_void=True, home=True)
    if not stat.S_ISDIR(files.stat(path).st_mode):
        files.open(path).close()  # says so if it is no file either
        return Scope(
            files=files,
            path=path,
            name=place.name,
            display=place.display,
            is_file=True,
            home=place.home,
        )
    with files.at(path) as (_, jail):
        name = jail.real_name(place.name)
        unread = _unread(jail, name or place.name)
    return Scope(
        files=files,
        path=path,
        name=name or place.name,
        display=place.display,
        alone=name is None,
        home=place.home,
        unread=unread,
    )


def _unread(jail: Jail, name: str) -> str:
    """The first ignore file between the jail's folder and this one that ripgrep must not open."""
    names = [part for part in name.split("/") if part != "."]
    for depth in range(len(names) + 1):
        for file in IGNORE_FILES:
            path = "/".join([*names[:depth], file])
            if _is_trap(jail, path):
                return path
    return ""


def _is_trap(jail: Jail, path: str) -> bool:
    try:
        found = jail.stat(path)
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)  # leads out, or in circles
    if stat.S_ISDIR(found.st_mode):
        return False
    return not stat.S_ISREG(found.st_mode) or found.st_size > MOST_IGNORED


def _trap_below(jail: Jail, name: str) -> str:
    """An ignore file below a folder that ripgrep cannot cope with, if it is among the first entries."""
    for path, entry in islice(jail.walk(name), MOST_LOOKED_AT):
        if entry.name in IGNORE_FILES and _is_trap(jail, path):
            return path
    return ""


async def list_files(scope: Scope) -> tuple[list[str], bool]:
    """The files below a folder that are not ignored, as paths in the jail, and whether these are all.

    In no order.
    """
    names: list[str] = []

    def take(name: str, _: bytes) -> bool:
        names.append(name)
        return len(names) < MOST_FILES

    searched = await _search(scope, ("--files",), take, files_only=True)
    if not names and scope.name != ".":
        searched = await _search(scope, ("--files",), take, files_only=True, alone=True)
    ended = searched.ended
    return names, not (ended.timed_out or ended.stopped or ended.code < 0)


async def search_text(scope: Scope, arguments: Sequence[str], take: Take) -> Searched:
    """Run a search for text. `arguments` are ripgrep's; `take` gets a path and the rest of an output line."""
    if scope.is_file:
        return await _search_file(scope, arguments, take)
    found = False

    def taken(name: str, rest: bytes) -> bool:
        nonlocal found
        found = True
        return take(name, rest)

    searched = await _search(scope, arguments, taken)
    if found or searched.ended.code not in (0, 1) or scope.name == "." or await _has_files(scope):
        return searched
    return await _search(scope, arguments, take, alone=True)


async def _has_files(scope: Scope) -> bool:
    found = False

    def take(_name: str, _: bytes) -> bool:
        nonlocal found
        found = True
        return False

    await _search(scope, ("--files",), take, files_only=True)
    return found


async def _search(
    scope: Scope, arguments: Sequence[str], take: Take, *, files_only: bool = False, alone: bool = False
) -> Searched:
    """Search a folder, from the jail's folder or, if `alone`, from itself."""
    if scope.is_void:
        return Searched(ended=Ended(code=1), errors="")

    def taken(piece: bytes) -> bool:
        path, found, rest = piece.partition(b"\0")
        if not path.startswith(b"./") or not (found or files_only):
            return True  # a separator, or a note about a binary file
        name = (scope.top if alone else "") + os.fsdecode(path[2:])
        return take(name, rest) if name.startswith(scope.top) else True

    with scope.files.at(scope.path) as (_, jail):
        alone = alone or scope.alone or "\n" in scope.name
        limits = ["--ignore-file=/dev/stdin"] if scope.top and not alone else []
        hidden = [f"--glob=!{name}" for name in HIDDEN if name not in scope.name.split("/")]
        # Text comes in order, so that what a bound cuts off is always the same; it costs a second thread.
        order = [] if files_only else ["--sort=path"]
        ignoring = ["--no-ignore-dot", "--no-ignore-vcs"] if scope.unread else []
        argv = [
            *_program(scope.files.project),
            *_FLAGS,
            *ignoring,
            *order,
            *hidden,
            *limits,
            *arguments,
            "--",
            ".",
        ]
        feed = _pieces(b"\0" if files_only else b"\n", taken)
        with jail.folder(scope.name if alone else ".") as folder:
            searched = await _run(argv, folder, feed, stdin=_only(scope.top) if limits else b"")
        ended = searched.ended
        if (ended.code < 0 or ended.timed_out) and not ended.stopped:
            await _explain_end(scope, jail, ended)
        return searched


async def _explain_end(scope: Scope, jail: Jail, ended: Ended) -> None:
    """Raises `ToolError` if the search did not end well for a reason that can be named."""
    trap = await asyncio.to_thread(_trap_below, jail, scope.name)
    if trap:
        raise ToolError(
            f"the search had to be stopped: the ignore file {shown(scope.show(trap))} is not a regular file "
            f"of this folder, or larger than {MOST_IGNORED:,} bytes. Remove it, or search another folder."
        )
    if not ended.timed_out:
        raise ToolError(f"the search ended with signal {-ended.code}; search a smaller folder")


async def _search_file(scope: Scope, arguments: Sequence[str], take: Take) -> Searched:
    """Search one file, handed over as an open handle."""

    def taken(piece: bytes) -> bool:
        _, found, rest = piece.partition(b"\0")
        return take(scope.name, rest) if found else True

    argv = [*_program(scope.files.project), *_FLAGS, *arguments, "--", "-"]
    with scope.files.at(scope.path) as (_, jail), jail.open_read(scope.name) as file, jail.held() as folder:
        return await _run(argv, folder, _pieces(b"\n", taken), stdin=file.fileno())


async def _run(argv: list[str], folder: int, feed: Feed, stdin: int | bytes) -> Searched:
    errors = bytearray()

    def complain(data: bytes) -> bool:
        errors.extend(data[: 4000 - len(errors)])
        return True

    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
    try:
        ended = await run_child(
            argv,
            folder=folder,
            env=env,
            feed=feed,
            errors=complain,
            stdin=stdin,
            timeout=SECONDS,
            memory=MEMORY,
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"the search could not be started: {error}") from None
    return Searched(ended=ended, errors=errors.decode("utf-8", "replace"))


def _program(project: Path | None) -> list[str]:
    rg = find_rg(project)
    return [rg] if rg else [sys.executable, "-I", str(Path(__file__).with_name("plain_grep.py"))]


def _pieces(separator: bytes, take: Callable[[bytes], bool]) -> Feed:
    rest = b""

    def feed(data: bytes) -> bool:
        nonlocal rest
        *pieces, rest = (rest + data).split(separator)
        return all(take(piece) for piece in pieces)

    return feed


def _only(top: str) -> bytes:
    """Ignore rules that leave out everything but one folder."""
    rules, prefix = ["/*"], ""
    for part in top.rstrip("/").split("/"):
        prefix += "/" + re.sub(r"([\\*?\[\]{}!# ])", r"\\\1", part)
        rules += [f"!{prefix}", f"{prefix}/*"]
    return "\n".join([*rules[:-1], ""]).encode()


def explain(errors: str) -> str | None:
    """What ripgrep said against a pattern, or None if it complained of something else."""
    for about in ("regex", "glob", "file type"):
        if f"{about} parse error" in errors or f"parsing {about}" in errors or f"in a {about}" in errors:
            return shown(" ".join(errors.removeprefix("rg: ").split()))
    return shown(errors.removeprefix("rg: ").strip()) if "size limit" in errors else None
