"""The root that a sealed command sees: made of mounts, from a view (`view`) and guards (`guards`).

Everything outside is reached by where it really is, below the old root, until that is let go. What a command
could have put a link to is opened part by part, and no link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from retinue.sandbox.commands import syscalls
from retinue.sandbox.commands.guards import CannotSeal
from retinue.sandbox.commands.opening import opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from retinue.sandbox.commands.guards import Guards

BASE, OLD, EMPTY = "/tmp", "/.old", "/.empty"  # noqa: S108  what is mounted over it there, nobody else sees
EMPTY_FOLDER = "/.empty-folder"
DEVICES = ("null", "zero", "full", "random", "urandom")
SCRATCH = "mode=700,size=512m,nr_inodes=100k"
"""Of the home and of shared memory, which are gone with the command."""
MOST_COPIED = 262_144
PIDS_OF_ITS_OWN = (6, 14)
"""The version of Linux since which every process namespace has a highest number of its own."""
MOST_PROCESSES = 2048
_PLAIN = syscalls.NO_SETUID | syscalls.NO_DEVICES


def furnish(view: dict[str, Any], guards: Guards, folder: int) -> None:
    """Build it and go in, to the working folder. `folder` is a handle of that one, as Retinue opened it."""
    syscalls.mount("", "/", flags=syscalls.RECURSIVE | syscalls.PRIVATE)
    syscalls.mount("tmpfs", BASE, "tmpfs", _PLAIN, "mode=755,size=16m")
    os.mkdir(BASE + OLD)
    syscalls.enter_root(BASE, BASE + OLD)
    os.close(os.open(EMPTY, os.O_CREAT | os.O_WRONLY, 0o444))
    os.mkdir(EMPTY_FOLDER, 0o555)
    for path, text in view["links"]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(text, path)
    _processes()
    _devices()
    _rooms(view)
    for source, target in view["readable"]:
        if not _copied(source, target):
            _bind(source, target, read_only=True)
    for path, text in view["ways"]:
        with contextlib.suppress(FileExistsError, NotADirectoryError):  # something of that name is there
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(text, path)
    if view["work"] is not None:
        _bind(view["work"], view["work_at"], read_only=False)
        _temp(view)
    if view["project"] is not None:
        _bind(view["project"], view["project"], read_only=not view["writable"])
    _check_same(view["cwd"], folder)
    _guard(guards)
    for path in view["hidden"]:
        with contextlib.suppress(FileNotFoundError):
            _over(path, EMPTY_FOLDER if os.path.isdir(path) else EMPTY)
    syscalls.unmount(OLD)
    os.rmdir(OLD)
    syscalls.harden("/", read_only=True, recursive=False)
    os.chdir(view["cwd"])


def _processes() -> None:
    os.mkdir("/proc")
    try:
        syscalls.mount("proc", "/proc", "proc", _PLAIN | syscalls.NO_PROGRAMS)
    except OSError as error:
        if error.errno == errno.EPERM:
            raise CannotSeal(
                "this container hides parts of /proc, so that no command gets one of its own"
            ) from None
        raise
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
    if version >= PIDS_OF_ITS_OWN:  # before, this would be the number for the whole machine
        with contextlib.suppress(OSError), open("/proc/sys/kernel/pid_max", "w") as file:
            file.write(str(MOST_PROCESSES))
    syscalls.harden("/proc", read_only=True)


def _devices() -> None:
    os.mkdir("/dev")
    for name in DEVICES:
        os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        syscalls.mount(f"{OLD}/dev/{name}", f"/dev/{name}", flags=syscalls.BIND)
        syscalls.harden(f"/dev/{name}", read_only=False, devices=True)
    for name, text in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{text}", f"/dev/{name}")
    os.mkdir("/dev/shm")  # noqa: S108  a mount of its own
    syscalls.mount("tmpfs", "/dev/shm", "tmpfs", _PLAIN, SCRATCH)  # noqa: S108
    with contextlib.suppress(OSError):  # terminals of its own, where the kernel gives them
        os.mkdir("/dev/pts")
        syscalls.mount("devpts", "/dev/pts", "devpts", syscalls.NO_SETUID, "newinstance,ptmxmode=0666")
        os.symlink("pts/ptmx", "/dev/ptmx")


def _rooms(view: dict[str, Any]) -> None:
    """The home, with nothing but who the person is to git, and a temp folder."""
    for room in dict.fromkeys(("/tmp", view["home"])):  # noqa: S108
        os.makedirs(room, exist_ok=True)
        syscalls.mount("tmpfs", room, "tmpfs", _PLAIN, SCRATCH)
    with open(f"{view['home']}/.gitconfig", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(view["identity"])
    os.makedirs("/run", exist_ok=True)
    os.makedirs("/var", exist_ok=True)
    if f"{view['project'] or ''}/".startswith("/var/tmp/"):  # noqa: S108  a link would be in its way
        os.makedirs("/var/tmp", exist_ok=True)  # noqa: S108
        syscalls.mount("tmpfs", "/var/tmp", "tmpfs", _PLAIN, SCRATCH)  # noqa: S108
        return
    with contextlib.suppress(FileExistsError):  # the home is there
        os.symlink("/tmp", "/var/tmp")  # noqa: S108


def _temp(view: dict[str, Any]) -> None:
    """The temp folder is one of the workspace, so that it lasts as long as the run: unless the project

    or the home is below it, whose way in no command may prepare.
    """
    if not view["temp_lasts"]:
        return
    place = os.path.join(view["work_at"], "tmp")
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700)
    inner = opened(place)
    try:
        if not stat.S_ISDIR(os.fstat(inner).st_mode):
            raise CannotSeal("/home/agent/tmp is no folder: a command has put something else there")
        syscalls.mount(f"/proc/self/fd/{inner}", "/tmp", flags=syscalls.BIND)  # noqa: S108
    finally:
        os.close(inner)
    syscalls.harden("/tmp", read_only=False)  # noqa: S108


def _copied(source: str, target: str) -> bool:
    """A small file of the system is copied: a mount of its own takes far longer, and longest at the end."""
    if not source.startswith("/etc/") or not os.path.isfile(OLD + source):
        return False
    handle = os.open(OLD + source, os.O_RDONLY)
    try:
        data = os.read(handle, MOST_COPIED + 1)
    finally:
        os.close(handle)
    if len(data) > MOST_COPIED:
        return False
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "xb") as file:
        file.write(data)
    return True


def _bind(source: str, target: str, *, read_only: bool) -> None:
    old = OLD + source
    if os.path.isdir(old):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(old):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    else:
        return  # gone since it was looked for: there is less to be seen
    syscalls.mount(old, target, flags=syscalls.BIND | syscalls.RECURSIVE)
    syscalls.harden(target, read_only=read_only)


def _check_same(path: str, folder: int) -> None:
    """That the folder of that name is the one Retinue has opened: it may have been moved meanwhile."""
    found, meant = os.stat(path), os.fstat(folder)
    if (found.st_dev, found.st_ino) != (meant.st_dev, meant.st_ino):
        raise CannotSeal(f"{path} is another folder by now")


def _guard(guards: Guards) -> None:
    for path in guards.opened:
        _bind(path, path, read_only=False)
    for path in guards.pinned:
        _over(path, path, read_only=False)
    later = tuple(f"{path}/" for path in guards.reopened)
    for path in guards.closed:
        if not path.startswith(later):
            _over(path, path)
    for path in guards.reopened:
        _bind(path, path, read_only=False)
    for path in guards.closed:
        if path.startswith(later):
            _over(path, path)


def _over(path: str, source: str, *, read_only: bool = True) -> None:
    """Mount something over what is there, or that over itself."""
    place = opened(path)
    try:
        given = source if source in (EMPTY, EMPTY_FOLDER) else f"/proc/self/fd/{place}"
        syscalls.mount(given, f"/proc/self/fd/{place}", flags=syscalls.BIND | syscalls.RECURSIVE)
    finally:
        os.close(place)
    mounted = opened(path)
    try:
        syscalls.harden(mounted, read_only=read_only)
    finally:
        os.close(mounted)
