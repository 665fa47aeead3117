"""Which calls of the system a sealed command may not make, as a program for seccomp.

A list of what is forbidden: commands are any programs there are, so what they need cannot be listed. What it
forbids would make namespaces or mounts, load code into the kernel, look beyond the seal or is a part of the
kernel with a history of holes that everyday programs do without. Calls newer than this list do not exist.
"""

from __future__ import annotations

import errno
import struct

ARCHES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
NEWEST = 471
"""The first number of a call that was not looked at."""

FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    "_sysctl": (156, None),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
}
_CLONE, _CLONE3 = (56, 220), 435
_SOCKET, _SOCKETPAIR, _IOCTL = (41, 198), (53, 199), (16, 29)
_NAMESPACES = 0x7E020000
"""Every CLONE_NEW… of clone."""
_TYPE_TEXT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: type into a terminal as if somebody sat there."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET = 1, 5

_NUMBER, _ARCH, _FIRST, _SECOND, _THIRD, _FOURTH = 0, 4, 16, 24, 32, 40
_SETS_MODE = (
    *((90, None, _SECOND), (91, 52, _SECOND), (268, 53, _THIRD), (452, 452, _THIRD)),  # chmod and its kin
    *((85, None, _SECOND), (133, None, _SECOND), (259, 33, _THIRD)),  # creat, mknod, mknodat
)
_OPENS = ((2, None, _SECOND, _THIRD), (257, 56, _THIRD, _FOURTH))
"""open and openat: where their flags and the mode of a new file are."""
_OPENAT2 = 437
_CREATES = 0x40 | 0x400000
_SET_USER = 0o4000
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def filter_program(machine: str) -> bytes:
    """The filter as BPF. A call of another architecture ends the process."""
    arch, column = ARCHES[machine]
    program = [_load(_ARCH), _op(0x15, 1, 0, arch), _give(_KILL), _load(_NUMBER)]
    if machine == "x86_64":
        program += [_op(0x35, 0, 1, 0x40000000), _give(_KILL)]  # the x32 twins of every call
    program += [_op(0x35, 0, 1, NEWEST), _refuse(errno.ENOSYS)]
    program += [*_when(_CLONE3, [_refuse(errno.ENOSYS)])]  # its flags lie in memory; libraries then use clone
    for numbers in FORBIDDEN.values():
        number = numbers[column]
        if number is not None:
            program += _when(number, [_refuse()])
    program += _when(_CLONE[column], [_load(_FIRST), _op(0x45, 0, 1, _NAMESPACES), _refuse(), _allow()])
    program += _when(_IOCTL[column], [_load(_SECOND), *_refused_if(_TYPE_TEXT), _allow()])
    program += _no_set_user(column)
    program += _when(_SOCKET[column], _socket())
    program += _when(_SOCKETPAIR[column], _socketpair())
    return b"".join([*program, _allow()])


def _no_set_user(column: int) -> list[bytes]:
    """No file that runs with the rights of its owner: it stays in the project, where anybody may run it."""
    program = _when(_OPENAT2, [_refuse(errno.ENOSYS)])  # its mode lies in memory; libraries then use openat
    refused = [_op(0x45, 0, 1, _SET_USER), _refuse(), _allow()]
    for *numbers, mode in _SETS_MODE:
        if (number := numbers[column]) is not None:
            program += _when(number, [_load(mode), *refused])
    for *numbers, flags, mode in _OPENS:
        if (number := numbers[column]) is not None:
            made = [_load(flags), _op(0x45, 1, 0, _CREATES), _allow(), _load(mode), *refused]
            program += _when(number, made)
    return program


def _socket() -> list[bytes]:
    """The internet, and questions about its interfaces. No Unix sockets: those of the host are a way out,

    and whether one belongs to the host cannot be told here. Pairs are not meant: they lead nowhere.
    """
    route = [_load(_THIRD), _op(0x15, 0, 1, 0), _allow(), _refuse()]
    return [
        _load(_FIRST),
        *(part for family in (_INET, _INET6) for part in (_op(0x15, 0, 1, family), _allow())),
        *(_op(0x15, 0, len(route), _NETLINK), *route),
        _refuse(),
    ]


def _socketpair() -> list[bytes]:
    """Those that stay connected to each other: one of datagrams can be sent from to any address."""
    kinds = [part for kind in (_STREAM, _SEQPACKET) for part in (_op(0x15, 0, 1, kind), _allow())]
    of_unix = [_load(_SECOND), _op(0x54, 0, 0, 0xF), *kinds, _refuse()]
    return [_load(_FIRST), _op(0x15, 0, len(of_unix), _UNIX), *of_unix, _refuse()]


def _when(number: int, then: list[bytes]) -> list[bytes]:
    """`then` ends by itself, or goes on with the number of the call lost."""
    return [_op(0x15, 0, len(then), number), *then]


def _refused_if(values: tuple[int, ...]) -> list[bytes]:
    return [part for value in values for part in (_op(0x15, 0, 1, value), _refuse())]


def _op(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _load(offset: int) -> bytes:
    return _op(0x20, 0, 0, offset)


def _give(value: int) -> bytes:
    return _op(0x06, 0, 0, value)


def _allow() -> bytes:
    return _give(_ALLOW)


def _refuse(number: int = errno.EPERM) -> bytes:
    return _give(_ERRNO | number)
