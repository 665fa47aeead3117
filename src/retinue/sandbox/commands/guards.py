"""What a sealed command must not change in the folders it may write to: whatever makes programs run later.

Hooks and settings of git, and the files that agents take their orders from. A mount makes each of them
read-only, and it needs something to stand on; so where one is missing, a stand-in takes its place while
sealed commands run: an empty folder, or a file that says nothing. Everybody who looks can tell it from a real
one by its date. Sealed commands hold a lock on the folder together; the last one takes the stand-ins away.
What a kill leaves of them does no harm and goes with the next sealed command.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from threading import Thread

from retinue.sandbox.commands import syscalls
from retinue.sandbox.commands.repositories import BEGAN, MOST_STAND_IN, is_bare, is_stand_in

FOLDERS = (".retinue", ".claude", ".agents", ".mcp.json", "retinue.toml")
"""Never made by a command. As folders, since an empty file would be read as one without any settings."""
LEADS = ("modules", "worktrees", "remotes", "branches")
"""Folders of git that lead it to other repositories: `git fetch` runs git in `modules/NAME` for a submodule

that upstream has moved on, also where it is not checked out, with the settings that it finds there.
"""
HELD = ".retinue-sealed"
"""Below `worktrees`: git removes that folder with the last work tree, and must not while it is guarded."""
TEXTS = ("AGENTS.md", "CLAUDE.md")
"""Never changed by a command; it may make one, which shows like every other new file."""
MOST = 65536
MOST_HELPERS = 8


class CannotSeal(Exception):
    """Why not."""


class Guards:
    """The guarded places below some folders. Held until `leave`."""

    def __init__(self) -> None:
        self.pinned: list[str] = []
        """Folders to be made mounts of their own, outer ones first: those cannot be renamed."""
        self.closed: dict[str, None] = {}
        """Read-only from here on, in this order."""
        self.opened: list[str] = []
        """Folders of git beyond the project that its work tree needs, written to like it."""
        self.reopened: list[str] = []
        """Folders below a closed one that stay writable."""
        self.repositories: list[str] = []
        """Those that are guarded, the project included."""
        self.gits: list[str] = []
        """Their folders of git, as far as they have one of their own."""
        self.watch = -1
        """Becomes readable when one of them may have been replaced."""
        self._held: list[tuple[int, list[str]]] = []
        self._areas: list[tuple[str, list[str]]] = []
        self._meant: dict[str, tuple[int, int] | None] = {}

    def guard(self, project: str, nested: list[str], own: list[str], named: list[tuple[str, str]]) -> None:
        """`own`: where Retinue's programs are. `named`: what git's settings name, see `gitsettings`.

        Raises OSError, and `CannotSeal` with why not.
        """
        names = self._hold(project)
        for path in own:
            self._close_below(project, path, names, folder=True)
        for name in FOLDERS:
            self._close(f"{project}/{name}", names, folder=True)
        self._close_texts(project)
        for repository in [project, *(f"{project}/{inner}" for inner in nested)]:
            self._guard_repository(project, repository, names)
        self._guard_bare(project, names)
        for path, kind in named:
            self._close_named(path, kind)
        try:
            self.watch = syscalls.watch(list(dict.fromkeys(os.path.dirname(path) for path in self.closed)))
        except (
            OSError
        ) as error:  # the kernel gives each user a number of them (fs.inotify.max_user_instances)
            raise CannotSeal(f"what is guarded cannot be watched: {error.strerror}") from None
        self._meant = {path: _identity(path) for path in self.closed}

    def replaced(self) -> str:
        """A guarded path that somebody outside has made another file: no mount is on that one."""
        return next((path for path, meant in self._meant.items() if _identity(path) != meant), "")

    def leave(self) -> None:
        """Take the stand-ins away, unless another sealed command needs them."""
        for handle, names in self._held:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _take_away_all(names)
            os.close(handle)
        self._held.clear()

    def forget(self) -> None:
        """In a fork that is not to hold anything: its supervisor does."""
        for handle in (*(held for held, _ in self._held), *filter(lambda watch: watch >= 0, (self.watch,))):
            os.close(handle)
        self._held.clear()

    def _hold(self, folder: str) -> list[str]:
        """Begin to guard a folder. Returns the list of what may be a stand-in there."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        names: list[str] = []
        self._held.append((handle, names))
        self._areas.append((folder, names))
        fcntl.flock(handle, fcntl.LOCK_SH)
        return names

    def _guard_repository(self, project: str, repository: str, names: list[str]) -> None:
        git = f"{repository}/.git"
        kind = _kind(git)
        if repository != project:
            if kind is None and not is_bare(repository):
                return  # gone since it was looked for
            parts = os.path.relpath(repository, project).split("/")
            for count in range(1, len(parts) + 1):
                self._pin("/".join((project, *parts[:count])))
            if kind is None:
                self.repositories.append(repository)
                self._guard_git(repository, names)
                return
            for name in FOLDERS:
                self._close(f"{repository}/{name}", names, folder=True)
            self._close_texts(repository)
        if kind == stat.S_IFDIR and is_stand_in(git):
            kind = None
        self.repositories.append(repository)
        if kind is None:
            self._close(git, names, folder=True)
        elif kind == stat.S_IFDIR:
            self._guard_git(git, names)
            if repository == project:
                self._guard_own(git, names)
        else:
            self._close(git, names, folder=False)
            if repository == project:
                self._guard_work_tree(git)

    def _guard_bare(self, project: str, names: list[str]) -> None:
        """That the project itself does not become a folder of git, which git would take `config` from there.

        It has to hold `refs` and `objects`, or name the place of both. What stands in is a socket: no git
        shows or adds it, no program waits for it, and as a folder it will not do.
        """
        missing = [name for name in ("refs", "objects") if _kind(f"{project}/{name}") != stat.S_IFDIR]
        if missing:
            self._close(f"{project}/{missing[0]}", names, folder=False, nothing=True)
            self._close(f"{project}/commondir", names, folder=False, nothing=True)
        else:
            self._guard_git(project, names)

    def _close_texts(self, repository: str) -> None:
        for name in TEXTS:
            if _kind(f"{repository}/{name}") == stat.S_IFREG:
                self.closed[f"{repository}/{name}"] = None

    def _guard_git(self, git: str, names: list[str]) -> None:
        """A folder of git: its hooks and settings, what it ignores, and whatever could lead git to others."""
        self._pin(git)
        self.gits.append(git)
        self._close(f"{git}/hooks", names, folder=True)
        self._close(f"{git}/info", names, folder=True)
        self._close(f"{git}/config", names, folder=False)
        self._close(f"{git}/config.worktree", names, folder=False)
        self._close(f"{git}/commondir", names, folder=False, text=b".\n")  # where to find it all: here
        for name in LEADS:
            self._close(f"{git}/{name}", names, folder=True)

    def _guard_own(self, git: str, names: list[str]) -> None:
        """More of the project's own: where it takes objects from, and that `worktrees` stays."""
        above = {_kind(f"{git}/objects"), _kind(f"{git}/objects/info")}
        if above <= {None, stat.S_IFDIR}:
            self._close_below(git, f"{git}/objects/info/alternates", names, folder=False)
        # No work tree to git, which passes over it in its lists, and locked, so that it is not cleaned away.
        with contextlib.suppress(OSError):  # where nothing can be made, git does not remove the folder either
            os.makedirs(f"{git}/worktrees/{HELD}", exist_ok=True)
            names.append(f"{git}/worktrees/{HELD}")
            with open(f"{git}/worktrees/{HELD}/locked", "wb"):
                pass

    def _close_named(self, path: str, kind: str) -> None:
        """What the settings of git name, if it lies where commands write to."""
        for top, names in self._areas:
            if not f"{path}/".startswith(f"{top}/") or self._is_closed(path, top):
                continue
            if path not in (top, *self.gits):
                self._close_below(top, path, names, folder=kind != "file")
            elif kind != "git":  # which is guarded by its parts
                raise CannotSeal(
                    f"git would run what lies in {path} itself, where commands write (core.hooksPath)"
                )

    def _is_closed(self, path: str, top: str) -> bool:
        while path not in (top, *self.reopened):
            if path in self.closed:
                return True
            path = os.path.dirname(path)
        return False

    def _guard_work_tree(self, file: str) -> None:
        """A work tree that git keeps elsewhere: opened if what is there says that this is its work tree."""
        git = _after(b"gitdir:", _text(file))
        if not os.path.isabs(git) or os.path.realpath(git) != git:
            return
        back = os.fsdecode(_text(f"{git}/gitdir").strip())
        common = os.path.realpath(os.path.join(git, os.fsdecode(_text(f"{git}/commondir").strip() or b".")))
        if back != file or os.path.dirname(git) != f"{common}/worktrees":
            return
        names = self._hold(common)
        self.opened.append(common)
        self._guard_git(common, names)
        self._guard_own(common, names)
        self.reopened.append(git)
        self.gits.append(git)
        for name in ("commondir", "gitdir", "config.worktree"):
            self._close(f"{git}/{name}", names, folder=False)
        self._close(f"{git}/modules", names, folder=True)  # each work tree has its own

    def _close_below(self, top: str, path: str, names: list[str], *, folder: bool) -> None:
        """Close what lies deeper: the folders on the way stay where they are, or nothing is made there."""
        parts = os.path.relpath(path, top).split("/")
        for count in range(1, len(parts)):
            above = "/".join((top, *parts[:count]))
            if _kind(above) is None:
                path, folder = above, True
                break
            self._pin(above)
        self._close(path, names, folder=folder)

    def _pin(self, folder: str) -> None:
        if _kind(folder) != stat.S_IFDIR:
            raise CannotSeal(f"{folder} is no folder of its own")
        if folder not in self.pinned:
            self.pinned.append(folder)

    def _close(
        self, path: str, names: list[str], *, folder: bool, text: bytes = b"", nothing: bool = False
    ) -> None:
        kind = _kind(path)
        if kind is None:
            try:
                _stand_in(path, folder=folder, text=text, nothing=nothing)
            except FileExistsError:
                pass
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    return  # where nothing can be made, no command makes it
                raise
            kind = _kind(path)
        names.append(path)
        if kind not in (stat.S_IFDIR, stat.S_IFREG, stat.S_IFSOCK):
            raise CannotSeal(f"{path} is a link, and only files and folders can be kept from changing")
        self.closed[path] = None


def _kind(path: str) -> int | None:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _stand_in(path: str, *, folder: bool, text: bytes, nothing: bool) -> None:
    if folder:
        os.mkdir(path, 0o755)
    elif nothing:
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            os.write(handle, text)
        finally:
            os.close(handle)
    os.utime(path, (BEGAN, BEGAN), follow_symlinks=False)


def _take_away_all(names: list[str]) -> None:
    """Several at once: to remove a folder can take milliseconds, all of them waiting for the kernel."""
    ahead = list(names)

    def take() -> None:
        while ahead:
            with contextlib.suppress(OSError, IndexError):  # another has taken the last one
                _take_away(ahead.pop())

    helpers = [Thread(target=take) for _ in range(min(MOST_HELPERS, len(names) // 4))]
    for helper in helpers:
        with contextlib.suppress(RuntimeError):  # no room for another
            helper.start()
    take()
    for helper in helpers:
        if helper.ident is not None:
            helper.join()


def _take_away(path: str) -> None:
    if os.path.basename(path) == HELD:
        os.unlink(f"{path}/locked")
        os.rmdir(path)
        os.rmdir(os.path.dirname(path))  # as git does with the last one
    if not is_stand_in(path):
        return
    if _kind(path) == stat.S_IFDIR:
        os.rmdir(path)
    elif os.lstat(path).st_size <= MOST_STAND_IN:
        os.unlink(path)


def _text(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(handle, MOST) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)


def _after(mark: bytes, text: bytes) -> str:
    return os.fsdecode(text[len(mark) :].strip()) if text.startswith(mark) else ""
