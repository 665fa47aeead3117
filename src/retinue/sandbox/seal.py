"""Locks the process it is called in: no files, no network, no processes, no way back. Linux only.

Three locks on top of each other: a Landlock ruleset that allows nothing, a seccomp filter that lets through
only the calls an interpreter needs to compute and to talk over its two pipes, and resource limits. Called in
the child of the cpython engine before any code that is not ours; `missing` also by the host, which chooses
the engine. Imports nothing of Retinue: the child loads this file by its path.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_PDEATHSIG, PR_GET_SECCOMP, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 21, 22, 38
SECCOMP_MODE_FILTER = 2
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446
LANDLOCK_VERSION = 1

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
PROT_EXEC = 4

# The arguments of a system call as seccomp sees them.
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

_ARCHES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Numbers on x86-64 and aarch64; None where there is no such call. Nothing here takes a path, opens anything,
# starts anything or asks about another process.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "poll": (7, None),
    "ppoll": (271, 73),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "brk": (12, 214),
    "madvise": (28, 233),
    "futex": (202, 98),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "sched_yield": (24, 124),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "getrandom": (318, 278),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
_READ, _WRITE = (0, 63), (1, 64)
_MMAP, _MPROTECT = (9, 222), (10, 226)


def missing() -> str | None:
    """What this machine lacks, in words, or None."""
    if not sys.platform.startswith("linux"):
        return f"it needs Linux, this is {sys.platform}"
    if platform.machine() not in _ARCHES:
        return f"it knows x86_64 and aarch64, this is {platform.machine()}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0:
        return "the kernel has no seccomp"
    if landlock_version() < 1:
        return "the kernel has no Landlock"
    return None


def landlock_version() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_VERSION))


def seal(memory: int, cpu_seconds: int) -> None:
    """No way back from here. Raises OSError if any lock does not close.

    `memory` is on top of what the process already has; `cpu_seconds` is for its whole life.
    """
    import resource  # not there on every system

    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    parent = os.getppid()
    _drop_root()
    die_with_parent()  # again: a change of user clears it
    if os.getppid() != parent:
        os._exit(0)  # it died in between, and nobody would tell this process any more
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _landlock(libc)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    for what in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(what, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    _seccomp(libc)


def die_with_parent() -> None:
    _check(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0), "parent death signal")


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _drop_root() -> None:
    if os.getuid() != 0:
        return
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    except OSError as error:
        # A container may hold root without the right to change users; the other locks do not depend on it.
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise


def _landlock(libc: ctypes.CDLL) -> None:
    """Handle every access that this kernel knows, and allow none."""
    version = _check(landlock_version(), "Landlock")
    files = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        files |= (1 << bit) if version >= since else 0
    fields = [files]
    if version >= 4:
        fields.append(0b11)  # bind and connect TCP
    if version >= 6:
        fields.append(0b11)  # abstract Unix sockets, signals
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = _check(
        libc.syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0),
        "Landlock ruleset",
    )
    _check(libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "Landlock restriction")
    os.close(ruleset)


def _seccomp(libc: ctypes.CDLL) -> None:
    program = filter_program(platform.machine())

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    described = Program(len(program) // 8, program)
    _check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0), "seccomp")


def filter_program(machine: str) -> bytes:
    """The filter as BPF: what is not named is refused with EPERM, another architecture kills the process."""
    arch, column = _ARCHES[machine]
    program = [_load(_ARCH), _skip_if_equal(arch, 1), _return(KILL), _load(_NUMBER)]
    if machine == "x86_64":
        program += [_skip_unless_at_least(0x40000000, 1), _return(KILL)]  # the x32 twins of every call
    for numbers in _CALLS.values():
        number = numbers[column]
        if number is not None:
            program += [_next_unless_equal(number, 1), _return(ALLOW)]
    for number, descriptor in ((_READ[column], 0), (_WRITE[column], 1)):
        inside = [_load(_ARGUMENTS), _next_unless_equal(descriptor, 1), _return(ALLOW), _refuse()]
        program += [_next_unless_equal(number, len(inside)), *inside]
    for number in (_MMAP[column], _MPROTECT[column]):
        inside = [_load(_ARGUMENTS + 16), _next_unless_any(PROT_EXEC, 1), _refuse(), _return(ALLOW)]
        program += [_next_unless_equal(number, len(inside)), *inside]
    return b"".join([*program, _refuse()])


def _instruction(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _load(offset: int) -> bytes:
    return _instruction(0x20, 0, 0, offset)


def _return(value: int) -> bytes:
    return _instruction(0x06, 0, 0, value)


def _refuse() -> bytes:
    return _return(ERRNO | errno.EPERM)


def _skip_if_equal(value: int, count: int) -> bytes:
    return _instruction(0x15, count, 0, value)


def _next_unless_equal(value: int, count: int) -> bytes:
    return _instruction(0x15, 0, count, value)


def _skip_unless_at_least(value: int, count: int) -> bytes:
    return _instruction(0x35, 0, count, value)


def _next_unless_any(bits: int, count: int) -> bytes:
    return _instruction(0x45, 0, count, bits)
