"""Opens paths beneath one folder and nowhere else, however they are spelled and whatever moves meanwhile.

`workspace` builds on it. A path is never checked first and opened later: every access starts at a handle
of the folder, so there is nothing to race. Reading follows links that stay inside; changing anything
never follows a link. Only regular files are opened.

Failures are plain `OSError`s that name the path as it was given, never a real one:

    EXDEV   the path leaves the folder
    ELOOP   it goes through a link where links are not followed, or through too many of them
    EMLINK  the file has hard links, so it may be somebody else's as well
    EINVAL  not a regular file, or not a path at all
    ESTALE  the file changed since it was read
    EBADF   the jail is closed
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import struct
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal

Method = Literal["openat2", "walk"]
Kind = Literal["file", "folder", "link", "other"]

MOST_LINKS = 40
MOST_RETRIES = 200

_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_PATH: int = getattr(os, "O_PATH", 0)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOOK = (_PATH or os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC
_STEP = _LOOK | os.O_DIRECTORY | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# Between looking whether a file is still the one that was read and replacing it, no other thread of this
# process may replace it. It takes microseconds, so one lock is enough for all jails.
_REPLACING = threading.Lock()


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One name in a folder."""

    name: str
    kind: Kind
    size: int
    links: int = 1
    file: tuple[int, int] = (0, 0)
    """Its device and its number there: what hard links have in common."""


class Jail:
    """One folder, open until `close`. Whoever makes a jail closes it.

    A thread may still be at work here when it is closed, on behalf of a call that nobody waits for any more.
    The handle then stays until that thread is done: a number that was given back is soon another file's, and
    a path would be looked up beneath that. `refuse_hard_links` is for folders where an agent could have made
    the links itself.
    """

    def __init__(
        self, folder: Path | int, *, method: Method | None = None, refuse_hard_links: bool = False
    ) -> None:
        self._fd = folder if isinstance(folder, int) else os.open(folder, _FOLDER)
        self._users = 0
        self._closed = False
        self._lock = threading.Lock()
        self._forgotten = weakref.finalize(self, _close_forgotten, self._fd)
        self._forgotten.atexit = False
        self.method: Method = method or ("openat2" if _openat2() else "walk")
        self.refuse_hard_links = refuse_hard_links

    def __enter__(self) -> Jail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the handle back, now or as soon as nobody works with it. The second time does nothing."""
        with self._lock:
            self._closed = True
            last = self._users == 0
        if last:
            self._give_back()

    @contextmanager
    def held(self) -> Generator[int]:
        """The folder's own handle, open at least until the end of this block. EBADF once it is closed."""
        with self._lock:
            if self._closed:
                raise _failed(errno.EBADF, ".")
            self._users += 1
        try:
            yield self._fd
        finally:
            with self._lock:
                self._users -= 1
                last = self._closed and self._users == 0
            if last:
                self._give_back()

    def _give_back(self) -> None:
        if self._forgotten.detach() is not None:
            os.close(self._fd)

    def open_read(self, path: str, *, follow: bool = True) -> BinaryIO:
        """A regular file. Without `follow` no link is followed on the way, not even one that stays inside."""
        try:
            fd = self._open(path, _READ) if follow else self._open_unlinked(path)
        except OSError as error:
            raise (_failed(errno.EINVAL, path) if error.errno == errno.ENXIO else error) from None
        try:
            self._require_regular(os.fstat(fd), path, hard_links=not self.refuse_hard_links)
            return open(fd, "rb")
        except BaseException:
            os.close(fd)
            raise

    def stat(self, path: str) -> os.stat_result:
        fd = self._open(path, _LOOK)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    @contextmanager
    def folder(self, path: str) -> Generator[int]:
        """A handle of a folder, for a child process to start in."""
        fd = self._open(path, _FOLDER)
        try:
            yield fd
        finally:
            os.close(fd)

    def real_name(self, path: str) -> str | None:
        """Where in here a folder really is, links followed; None if that cannot be told. A hint, no check."""
        with self.held() as top_fd, self.folder(path) as fd:
            try:
                top, real = (os.readlink(f"/proc/self/fd/{handle}") for handle in (top_fd, fd))
            except OSError:
                return None
        name = os.path.relpath(real, top)
        return None if name == ".." or name.startswith("../") else name

    def listdir(self, path: str = ".") -> list[Entry]:
        """What a folder holds, sorted by name."""
        with self.folder(path) as fd, os.scandir(fd) as found:
            entries = [entry for item in found if (entry := _entry(item)) is not None]
        return sorted(entries, key=lambda entry: entry.name)

    def walk(self, path: str = ".") -> Iterator[tuple[str, Entry]]:
        """Everything below a folder but other folders. Links are named, not followed."""
        folders = [path]
        while folders:
            here = folders.pop()
            try:
                entries = self.listdir(here)
            except OSError:
                continue  # gone meanwhile, or not ours to read
            for entry in entries:
                below = entry.name if here == "." else f"{here}/{entry.name}"
                if entry.kind == "folder":
                    folders.append(below)
                else:
                    yield below, entry

    @contextmanager
    def open_write(
        self, path: str, *, fresh: bool = False, expect: os.stat_result | None = None
    ) -> Generator[BinaryIO]:
        """A file to write into, which takes the place of `path` at once when all went well.

        Missing folders are made, the old file's mode and owner are kept. `fresh`: there must be no such
        file yet. `expect`: the file as it was read; if it is another one by now, ESTALE.
        """
        with self._parent(path, create=True) as (parent, name):
            old = self._replaceable(parent, name, path)
            if old is not None and fresh:
                raise _failed(errno.EEXIST, path)
            temp = name if fresh else f".retinue-{secrets.token_hex(8)}"
            # What replaces a file that others may not read must at no time be readable to them.
            fd = os.open(temp, _CREATE, 0o666 if old is None else 0o600, dir_fd=parent)
            try:
                with open(fd, "wb") as file:
                    yield file
                    file.flush()
                    if old is not None:
                        _keep_owner_and_mode(fd, old)
                if not fresh:
                    with _REPLACING:
                        if expect is not None and not _same(self._replaceable(parent, name, path), expect):
                            raise _failed(errno.ESTALE, path)
                        os.replace(temp, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temp, dir_fd=parent)
                raise

    def mkdir(self, path: str) -> None:
        """Make a folder and the missing ones above it. One that exists is fine."""
        os.close(self._descend(path, _names(path), create=True))

    def unlink(self, path: str) -> None:
        with self._parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        with self._parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)

    def symlink(self, target: str, path: str) -> None:
        """Make a link. Where it leads is not followed here, nor by whatever changes something later."""
        with self._parent(path, create=True) as (parent, name):
            os.symlink(target, name, dir_fd=parent)

    def chmod(self, path: str, mode: int) -> None:
        """Change the rights of a file or folder, never those of what a link leads to."""
        with self._parent(path) as (parent, name):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            try:
                os.fchmod(fd, mode)
            finally:
                os.close(fd)

    def put(self, path: str, data: bytes, mode: int) -> None:
        """Put a file in the place of whatever file or link is there, at once, with these rights."""
        with self._parent(path, create=True) as (parent, name):
            temp = f".retinue-{secrets.token_hex(8)}"
            fd = os.open(temp, _CREATE, 0o600, dir_fd=parent)
            try:
                with open(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fchmod(fd, mode)
                os.replace(temp, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temp, dir_fd=parent)
                raise

    def rename(self, old: str, new: str) -> None:
        with self._parent(old) as (source, name), self._parent(new, create=True) as (target, new_name):
            os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)

    def _open(self, path: str, flags: int) -> int:
        raw = _encode(path)
        openat2 = _openat2() if self.method == "openat2" else None
        with self.held() as top:
            return self._walk(top, path, raw, flags) if openat2 is None else openat2(top, raw, flags)

    def _open_unlinked(self, path: str) -> int:
        with self._parent(path) as (parent, name):
            return os.open(name, _READ | os.O_NOFOLLOW, dir_fd=parent)

    def _walk(self, top: int, path: str, raw: bytes, flags: int) -> int:
        """What RESOLVE_BENEATH does, one name at a time. `..` goes back to a handle that was passed."""
        if raw.endswith((b"/", b"/.")):
            flags |= os.O_DIRECTORY
        ahead = _ahead(raw, path)
        passed: list[int] = []
        links = 0
        try:
            while ahead:
                name = ahead.pop()
                if name == b"..":
                    if not passed:
                        raise _failed(errno.EXDEV, path)
                    os.close(passed.pop())
                    continue
                here = passed[-1] if passed else top
                fd, target = _step(here, name, _STEP if ahead else flags, path)
                if target is not None:
                    links += 1
                    if links > MOST_LINKS:
                        raise _failed(errno.ELOOP, path)
                    ahead += _ahead(target, path)
                elif ahead:
                    passed.append(fd)
                else:
                    return fd
            return os.open(".", flags, dir_fd=passed[-1] if passed else top)
        finally:
            for fd in passed:
                os.close(fd)

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Generator[tuple[int, str]]:
        """A handle of the folder that holds the last name of a path, for whatever changes that name."""
        names = _names(path)
        if not names:
            raise _failed(errno.EISDIR, path)
        parent = self._descend(path, names[:-1], create=create)
        try:
            yield parent, names[-1]
        except OSError as error:
            raise (error if error.filename == path else _failed(error.errno or errno.EIO, path)) from None
        finally:
            os.close(parent)

    def _descend(self, path: str, names: list[str], *, create: bool) -> int:
        with self.held() as top:
            here = os.dup(top)
        for name in names:
            above = here
            try:
                try:
                    here = os.open(name, _STEP, dir_fd=above)
                except FileNotFoundError:
                    if not create:
                        raise
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=above)
                    here = os.open(name, _STEP, dir_fd=above)
            except OSError as error:
                if _link_target(above, name) is not None:
                    raise self._link(path) from None
                raise _failed(error.errno or errno.EIO, path) from None
            finally:
                os.close(above)
        return here

    def _replaceable(self, parent: int, name: str, path: str) -> os.stat_result | None:
        """The file that a write would replace, if it is one that may be replaced."""
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(found.st_mode):
            raise self._link(path)
        self._require_regular(found, path, hard_links=False)
        if not os.access(name, os.W_OK, dir_fd=parent, effective_ids=True):
            raise _failed(errno.EACCES, path)  # a rename would not have asked
        return found

    def _require_regular(self, found: os.stat_result, path: str, *, hard_links: bool) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise _failed(errno.EISDIR, path)
        if not stat.S_ISREG(found.st_mode):
            raise _failed(errno.EINVAL, path)
        if found.st_nlink > 1 and not hard_links:
            raise _failed(errno.EMLINK, path)

    def _link(self, path: str) -> OSError:
        """What to say of a link in the way: that it leads out, if it does. Decides words, not access."""
        try:
            self.stat(path)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return error
        return _failed(errno.ELOOP, path)


def _close_forgotten(fd: int) -> None:
    """For whoever forgot: the collector comes late, and under load so late that the handles run out."""
    os.close(fd)
    warnings.warn("a Jail was never closed", ResourceWarning, stacklevel=1)


def _failed(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _encode(path: str) -> bytes:
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise _failed(errno.EINVAL, path) from None
    if b"\0" in raw:
        raise _failed(errno.EINVAL, path)
    if not raw:
        raise _failed(errno.ENOENT, path)
    return raw


def _names(path: str) -> list[str]:
    """The names of a path that is going to be changed. Such a path never goes up."""
    _encode(path)
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names:
        raise _failed(errno.EXDEV, path)
    return names


def _ahead(raw: bytes, path: str) -> list[bytes]:
    """The names of a path or a link's target, next one last."""
    if raw.startswith(b"/"):
        raise _failed(errno.EXDEV, path)
    return [name for name in reversed(raw.split(b"/")) if name not in (b"", b".")]


def _step(here: int, name: bytes, flags: int, path: str) -> tuple[int, bytes | None]:
    """Open one name without following it: its handle, or the target if it is a link."""
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=here)
    except OSError as error:
        target = _link_target(here, name) if error.errno in (errno.ELOOP, errno.ENOTDIR) else None
        if target is None:
            raise _failed(error.errno or errno.EIO, path) from None
        return -1, target
    if not flags & _PATH or not stat.S_ISLNK(os.fstat(fd).st_mode):
        return fd, None
    os.close(fd)  # O_PATH opens a link itself
    target = _link_target(here, name)
    if target is None:
        raise _failed(errno.EAGAIN, path)  # it was a link a moment ago
    return -1, target


def _link_target(here: int, name: str | bytes) -> bytes | None:
    try:
        return os.readlink(os.fsencode(name), dir_fd=here)
    except OSError:
        return None


def _entry(item: os.DirEntry[str]) -> Entry | None:
    try:
        found = item.stat(follow_symlinks=False)
    except OSError:
        return None  # gone meanwhile
    return Entry(
        name=item.name,
        kind=_KINDS.get(stat.S_IFMT(found.st_mode), "other"),
        size=found.st_size,
        links=found.st_nlink,
        file=(found.st_dev, found.st_ino),
    )


def _keep_owner_and_mode(fd: int, old: os.stat_result) -> None:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


def _same(now: os.stat_result | None, then: os.stat_result) -> bool:
    return now is not None and (now.st_ino, now.st_mtime_ns, now.st_size) == (
        then.st_ino,
        then.st_mtime_ns,
        then.st_size,
    )


@cache
def _openat2() -> Callable[[int, bytes, int], int] | None:
    """openat2 with RESOLVE_BENEATH, or None where the kernel (or a container's filter) has none."""
    import ctypes  # heavy: only where files are really opened

    if sys.platform != "linux":
        return None
    number, no_magic_links, beneath = 437, 0x02, 0x08
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    syscall.restype = ctypes.c_long
    syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]

    def openat2(folder: int, path: bytes, flags: int) -> int:
        how = struct.pack("=QQQ", flags, 0, beneath | no_magic_links)
        for _ in range(MOST_RETRIES):
            fd: int = syscall(number, folder, path, how, len(how))
            if fd >= 0:
                return fd
            failure = ctypes.get_errno()
            # EAGAIN: something was renamed while `..` was resolved, and the kernel would not guess
            if failure not in (errno.EAGAIN, errno.EINTR):
                raise _failed(failure, os.fsdecode(path))
        raise _failed(errno.EAGAIN, os.fsdecode(path))

    here = os.open("/", _LOOK | os.O_DIRECTORY)
    try:
        os.close(openat2(here, b".", _LOOK | os.O_DIRECTORY))
    except OSError:
        return None
    finally:
        os.close(here)
    return openat2
