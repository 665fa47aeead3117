"""The private folder of one run, which the model knows as `/home/agent`: made, counted, and deleted.

`Files` (in `workspace`) is what tools are given of it. Its real place never appears in a result, an error
or an event.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import threading
import weakref
from pathlib import Path

from retinue.errors import ToolError
from retinue.jail import Jail

HOME = "/home/agent"
PREFIX = "retinue-ws-"
QUOTA = 256 * 1024 * 1024

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Workspace:
    """A private folder of one run, made at the first write, deleted by `close` and whatever else ends it.

    The folder is locked as long as its owner lives, so `sweep` can tell what a killed process left.
    """

    def __init__(self, *, root: Path | None = None, quota: int = QUOTA) -> None:
        self.quota = quota
        self.folder: Path | None = None
        """The real folder, once there is one. For child processes: never show it."""
        self._root = root
        self._jail: Jail | None = None
        self._used = 0
        self._closed = False
        self._lock = threading.Lock()
        self._remove: weakref.finalize[..., Workspace] | None = None

    @property
    def used(self) -> int:
        return self._used

    def jail(self, *, create: bool = False) -> Jail | None:
        """The jail over the folder. Without `create` there may be none yet."""
        if not create:
            return self._jail
        with self._lock:
            return self._made()

    def write(
        self, path: str, data: bytes, *, fresh: bool = False, expect: os.stat_result | None = None
    ) -> None:
        with self._lock:
            jail = self._made()
            if self._after(jail, path, data) > self.quota:
                self._used = _size(jail)  # commands delete files too
            after = self._after(jail, path, data)
            if after > self.quota:
                raise ToolError(
                    f"{HOME} is full: {self._used:,} of {self.quota:,} bytes are used and this file needs "
                    f"{len(data):,}. Write less, or overwrite a file that is no longer needed."
                )
            with jail.open_write(path, fresh=fresh, expect=expect) as file:
                file.write(data)
            self._used = after

    def recount(self) -> None:
        """Count what is used again, after something else than `write` worked in the folder."""
        with self._lock:
            if self._jail is not None:
                self._used = _size(self._jail)

    def close(self) -> None:
        """Delete the folder and everything in it. May be called twice; never raises."""
        with self._lock:
            self._closed = True
            self._jail = self.folder = None
            if self._remove is not None:
                self._remove()

    def _made(self) -> Jail:
        if self._closed:
            raise ToolError(f"{HOME} is gone: the run it belonged to has ended")
        if self._jail is None:
            import tempfile

            root = self._root or Path(tempfile.gettempdir())
            try:
                root.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.folder, handle = _make(root.resolve())  # one spelling, so that it can be hidden
            except OSError as error:
                raise ToolError(f"{HOME} cannot be made: {os.strerror(error.errno or errno.EIO)}") from None
            self._jail = Jail(handle, refuse_hard_links=True)
            # Runs at garbage collection and at exit too. It is handed the jail, which keeps the lock.
            self._remove = weakref.finalize(self, _remove, self.folder, self._jail, os.getpid())
        return self._jail

    def _after(self, jail: Jail, path: str, data: bytes) -> int:
        try:
            old = jail.stat(path).st_size
        except OSError:
            old = 0
        return self._used - old + len(data)


def sweep(root: Path | None = None) -> int:
    """Delete the workspaces whose owner was killed. Returns how many. Touches nobody else's."""
    import tempfile

    swept = 0
    folder = root or Path(tempfile.gettempdir())
    with contextlib.suppress(OSError), Jail(folder) as jail, jail.folder(".") as top:
        for name in os.listdir(top):
            if name.startswith(PREFIX) and _sweep_one(top, name):
                swept += 1
    return swept


def _sweep_one(top: int, name: str) -> bool:
    try:
        fd = os.open(name, _FOLDER, dir_fd=top)
    except OSError:
        return False  # a link, a file, not ours to open, or gone
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700 or not _lock(fd):
            return False
        _empty(fd)
        os.rmdir(name, dir_fd=top)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _make(root: Path) -> tuple[Path, int]:
    """A new locked folder. A sweep may take it between its making and its locking: then another one."""
    for _ in range(100):
        folder = root / (PREFIX + secrets.token_hex(8))
        os.mkdir(folder, 0o700)
        try:
            fd = os.open(folder, _FOLDER)
        except FileNotFoundError:
            continue
        if _lock(fd) and os.path.lexists(folder):
            return folder, fd
        os.close(fd)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(folder: Path, jail: Jail, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child ends: the folder is its parent's
    # What cannot be deleted now is left to a sweep.
    with contextlib.suppress(OSError), jail, jail.held() as top:
        _empty(top)
        os.rmdir(folder)


def _empty(top: int) -> None:
    """Delete all that a folder holds. Folders further down are moved up first, so depth costs nothing."""
    going = True
    while going:
        going = False
        for name in os.listdir(top):
            with contextlib.suppress(OSError):
                if _is_folder(top, name):
                    _flatten(top, name)
                    os.rmdir(name, dir_fd=top)
                else:
                    os.unlink(name, dir_fd=top)
                going = True


def _flatten(top: int, name: str) -> None:
    _unlock(top, name)
    fd = os.open(name, _FOLDER, dir_fd=top)
    try:
        for below in os.listdir(fd):
            if _is_folder(fd, below):
                _unlock(fd, below)
                os.rename(below, secrets.token_hex(16), src_dir_fd=fd, dst_dir_fd=top)
            else:
                os.unlink(below, dir_fd=fd)
    finally:
        os.close(fd)


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _unlock(parent: int, name: str) -> None:
    """Take back the right to look into a folder, without ever following a link."""
    with contextlib.suppress(OSError, AttributeError):  # O_PATH and /proc are Linux's
        fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{fd}", 0o700)
        finally:
            os.close(fd)


def _size(jail: Jail) -> int:
    return sum(entry.size for _, entry in jail.walk())
