"""Keeps the keys in our environment from commands: by where the kernel shows them, `/proc/PID/environ`.

That file is a window on the memory in which the kernel put the environment when the program was started. What
the program does to its variables later does not show there. So the values are copied elsewhere, `environ`
is pointed to the copies, and the first place is overwritten. `os.environ`, `getenv` and the environment
that children inherit stay as they are.

This holds whoever looks, root included. It does not hold for whoever may read all of our memory (root, or the
same user where the kernel lets one process trace another), nor for the processes above us: a terminal or an
init that was started with the same variables shows them. A sealed command sees none of these processes.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes  # slow to load: only where commands really run

HARMLESS = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "JAVA_HOME", "GOPATH", "GOROOT"),
        *("CARGO_HOME", "RUSTUP_HOME", "NVM_DIR", "RBENV_ROOT", "DOTNET_ROOT"),
    }
)
"""The variables that commands are given, and `LC_*`. Names of secrets cannot be guessed: no others are."""
MOST = 32 * 1024 * 1024
PR_SET_DUMPABLE = 4

_lock = threading.Lock()
_copies: list[ctypes.Array[ctypes.c_char]] = []
"""What `environ` points to: kept as long as this process lives."""


def harmless(name: str) -> bool:
    return name in HARMLESS or name.startswith("LC_")


def hide_environment() -> None:
    """Overwrite the values of all variables but the harmless ones where others can see them. Linux only."""
    if sys.platform != "linux":
        return
    with _lock:
        place = _shown()
        if place is not None:
            start, end = place
            _copy_values(start, end)
            _overwrite(start, end)


def refuse_to_be_read() -> None:
    """Let no other process of this user read our memory or trace us. For a process that is ours alone:

    it leaves no core dumps and takes no debugger. Root may read it all the same.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _shown() -> tuple[int, int] | None:
    """Where the memory lies that the kernel shows as our environment."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[47]), int(fields[48])
    except (OSError, IndexError, ValueError):
        return None
    return (start, end) if 0 < start < end <= start + MOST else None


def _copy_values(start: int, end: int) -> None:
    """Point every variable that lies in there to a copy: one store each, so no reader finds half of one."""
    import ctypes

    variables = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    index = 0
    while variables and variables[index]:
        address = int(variables[index])
        if start <= address < end:
            raw = ctypes.string_at(address)
            if not harmless(os.fsdecode(raw.partition(b"=")[0])):
                copy = ctypes.create_string_buffer(raw)
                _copies.append(copy)
                variables[index] = ctypes.addressof(copy)
        index += 1


def _overwrite(start: int, end: int) -> None:
    import ctypes

    at = start
    for raw in ctypes.string_at(start, end - start).split(b"\0"):
        name, separator, value = raw.partition(b"=")
        if separator and not harmless(os.fsdecode(name)):
            ctypes.memset(at + len(name) + 1, 0, len(value))
        at += len(raw) + 1
