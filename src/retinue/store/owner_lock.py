"""The lock that whoever works on runs holds on a file: free the moment its process is gone, however it went.

One file for all who work on the runs of a database, and one byte of it for each, chosen by its id: nothing is
left behind to tidy up, and no process id, host name or clock is asked. The lock belongs to the open file, so
two parts of one program are told apart, and it ends with the process, also with one that nobody has waited
for yet.

A lock says nothing about a file that another machine sees, or that is seen through another file system. So a
`place` names the kernel's boot and the file's own numbers: only who sees the very same file in the very same
kernel goes by the lock. Whatever does not work here (no such locks, no rights, no file handles) makes an
owner without a lock, of whom the heartbeat in the store tells. Called by `engine.owners`, in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import tempfile
import threading
import weakref
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_FLOCK = "@hhqqi0q"
"""`struct flock`: type, whence, start, length, process."""


@dataclass(frozen=True, kw_only=True)
class LockFile:
    """A file to lock. Made with the rights of the file that it is `like`, else for this user alone."""

    path: Path
    like: Path | None = None

    @classmethod
    def of_this_user(cls) -> LockFile | None:
        """For a database that is no file: all of this user's programs on this machine share it."""
        if not hasattr(os, "geteuid"):
            return None
        return cls(path=Path(tempfile.gettempdir()) / f"retinue-owners-{os.geteuid()}")

    def open(self) -> int:
        """Raises `OSError` if it is not ours to use."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with contextlib.suppress(FileExistsError):
            return self._made(flags | os.O_CREAT | os.O_EXCL)
        fd = os.open(self.path, flags)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or (self.like is None and found.st_uid != os.geteuid()):
            os.close(fd)
            raise PermissionError(errno.EPERM, "it is not a file of this user", str(self.path))
        return fd

    def _made(self, flags: int) -> int:
        fd = os.open(self.path, flags, 0o600)
        if self.like is not None:
            with contextlib.suppress(OSError):  # others do without it then
                model = os.stat(self.like)
                os.fchmod(fd, stat.S_IMODE(model.st_mode) & 0o666)
                if os.geteuid() == 0:
                    os.fchown(fd, model.st_uid, model.st_gid)
        return fd


class OwnerLock:
    """An open file of locks: takes one for an owner of this process, and looks at those of others."""

    def __init__(self, file: LockFile | None) -> None:
        self._file = file if fcntl is not None and hasattr(fcntl, "F_OFD_SETLK") else None
        self._fd: int | None = None
        self._using = threading.RLock()
        """Several threads look at once, and a number that was closed may be another file's already."""
        self.place = ""
        """Which file this is, for whoever sees the same one; empty where there is none."""

    def open(self) -> None:
        """Open the file if there is one to be had. Tried again with every call until it works."""
        boot = _boot()
        with self._using, contextlib.suppress(OSError):
            if self._fd is not None or self._file is None or not boot:
                return
            self._fd = self._file.open()
            found = os.fstat(self._fd)
            self.place = f"{boot}:{found.st_dev}:{found.st_ino}"
            _inherited.add(self)
            _register()

    def take(self, owner: str) -> str:
        """Lock for this owner. Returns the place, empty if that could not be done."""
        with self._using:
            self.open()
            if self._fd is None or fcntl is None:
                return ""
            try:
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK, owner))
            except OSError:
                return ""
            return self.place

    def is_held(self, owner: str, place: str) -> bool | None:
        """Whether somebody else holds the lock of this owner; None if that cannot be seen from here."""
        with self._using:
            self.open()
            if self._fd is None or fcntl is None or not place or place != self.place:
                return None
            try:
                found = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK, owner))
            except OSError:
                return None
        return struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK

    def close(self) -> None:
        """Give up every lock."""
        with self._using:
            fd, self._fd, self.place = self._fd, None, ""
            if fd is not None:
                _inherited.discard(self)
                os.close(fd)

    def close_inherited(self) -> None:
        """In a fork, where no other thread goes on that may have been using it."""
        self._using = threading.RLock()
        self.close()


def _lock(kind: int, owner: str) -> bytes:
    byte = int.from_bytes(sha256(owner.encode()).digest()[:8], "big") >> 2
    return struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0)


def _boot() -> str:
    """What tells this running kernel from every other, the same in all its containers and namespaces."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


# A fork shares the open file, and would go on holding the lock of a parent that is gone.
_inherited: weakref.WeakSet[OwnerLock] = weakref.WeakSet()
_registered: list[bool] = []


def _register() -> None:
    if not _registered:
        _registered.append(True)
        os.register_at_fork(after_in_child=_close_inherited)


def _close_inherited() -> None:
    for lock in list(_inherited):
        lock.close_inherited()
