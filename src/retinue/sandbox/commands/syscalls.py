"""The calls of Linux that a seal is made of and that Python has no names for. Each raises OSError."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

NEW_MOUNTS, NEW_CGROUP, NEW_HOST, NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000

NO_SETUID, NO_DEVICES, NO_PROGRAMS, BIND, RECURSIVE, PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
DETACH = 2

_NAMES_CHANGE = 0x40 | 0x80 | 0x100 | 0x200
"""IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE."""
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_MOUNT_SETATTR, _CAPSET = 442, {"x86_64": 126, "aarch64": 91}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_READ_ONLY, _ATTR_NO_SETUID, _ATTR_NO_DEVICES = 1, 2, 4
_SECURE_FOR_GOOD = 0b11101111
"""No power by being root, none kept or gained by changing users, and no way to change that."""
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 4, 22, 24
_PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 28, 38, 47

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def watch(folders: list[str]) -> int:
    """A handle that becomes readable when something in these folders gets or loses its name."""
    handle = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    _check(handle, "a watch")
    for folder in folders:
        _check(_libc.inotify_add_watch(handle, os.fsencode(folder), _NAMES_CHANGE), f"watching {folder}")
    return handle


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "a namespace")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    given = [os.fsencode(text) if text else None for text in (source, target, kind)]
    _check(_libc.mount(*given, ctypes.c_ulong(flags), os.fsencode(data) or None), f"mounting {target}")


def harden(target: str | int, *, read_only: bool, recursive: bool = True, devices: bool = False) -> None:
    """What is mounted there: no program of it gains rights, and perhaps nothing of it can be written."""
    wanted = _ATTR_NO_SETUID | (_READ_ONLY if read_only else 0) | (0 if devices else _ATTR_NO_DEVICES)
    attributes = struct.pack("4Q", wanted, 0, 0, 0)
    folder, path = (target, b"") if isinstance(target, int) else (_AT_FDCWD, os.fsencode(target))
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _check(
        _libc.syscall(_MOUNT_SETATTR, folder, path, flags, attributes, ctypes.c_size_t(len(attributes))),
        f"making {target} read-only",
    )


def enter_root(folder: str, old: str) -> None:
    _check(
        _libc.syscall(_PIVOT_ROOT[os.uname().machine], os.fsencode(folder), os.fsencode(old)), "a new root"
    )
    os.chdir("/")


def unmount(folder: str) -> None:
    _check(_libc.umount2(os.fsencode(folder), DETACH), f"leaving {folder}")


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 1))  # SIOCSIFFLAGS: IFF_UP


def give_up_powers() -> None:
    """No capability is left, and none can be had again, whatever program runs."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0), "capabilities")
    for number in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # this kernel knows no more
    _check(_libc.prctl(_PR_SET_SECUREBITS, _SECURE_FOR_GOOD, 0, 0, 0), "capabilities")
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _check(_libc.syscall(_CAPSET[os.uname().machine], header, none), "capabilities")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "keeping out of sight")


def filter_calls(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    described = Program(len(program) // 8, program)
    _check(_libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(described), 0, 0), "seccomp")
