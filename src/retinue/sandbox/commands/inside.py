"""The first process of a sealed command: in namespaces of its own, sealed before any other program runs.

Processes, network, mounts, host name and shared memory are its own; it has no power of root and may not make
the calls in `calls`. When it ends, the kernel ends all others in there. Forked by a supervisor (`sealed`),
which it tells how its shell ended and from which it takes orders. There is no way back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import time

from retinue.sandbox.commands import calls, ending, syscalls
from retinue.sandbox.commands.furnish import MOST_PROCESSES, furnish
from retinue.sandbox.commands.guards import CannotSeal
from retinue.sandbox.commands.spawn import spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from retinue.sandbox.commands.guards import Guards

FAILED, NOT_STARTED, RUNS, EXITED, PID, TOO_LARGE = b"F", b"E", b"R", b"X", b"P", b"M"
"""What is told: why it cannot be sealed, an error of the system, that it runs, its code, who it is, and that
it was ended for more memory than it may have."""
LOOKS_AT_MEMORY = 0.2
"""Seconds between two looks."""
ASK_TO_END = b"t"
MOST_IN_A_FILE = 8 * 1024**3
MAKES = (
    *(syscalls.NEW_USER, syscalls.NEW_MOUNTS, syscalls.NEW_PIDS),
    *(syscalls.NEW_IPC, syscalls.NEW_HOST, syscalls.NEW_CGROUP),
)


def say(told: int, kind: bytes, text: str = "") -> None:
    os.write(told, kind + text.encode("utf-8", "surrogateescape").replace(b"\n", b" ")[:1000] + b"\n")


def enter(network: bool) -> None:
    """Leave the namespaces of the host. What is forked next is the first process of the new ones."""
    user, group = os.geteuid(), os.getegid()
    try:
        syscalls.unshare(sum(MAKES) | (0 if network else syscalls.NEW_NETWORK))
    except OSError as error:
        raise CannotSeal(_no_namespaces(error)) from None
    maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
    for name, text in maps:
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _no_namespaces(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "user namespaces are switched off here (user.max_user_namespaces)"
    return f"this system or container lets nobody make user namespaces ({os.strerror(error.errno or 0)})"


def live(
    request: dict[str, Any],
    guards: Guards,
    standard: tuple[int, int, int],
    folder: int,
    orders: int,
    told: int,
) -> NoReturn:
    """The whole life of the first process."""
    try:
        try:
            awake = _sealed_off(request["seal"], guards, folder)
        except (CannotSeal, OSError) as error:
            say(told, FAILED, _explained(error))
            return os._exit(0)
        try:
            shell = spawn(request["argv"], request["env"], standard)
        except OSError as error:
            say(told, NOT_STARTED, str(error.errno or 1))
            return os._exit(0)
        for handle in set(map(int, os.listdir("/proc/self/fd"))) - {orders, told, *awake}:
            with contextlib.suppress(OSError):  # the one that the list was read by
                os.close(handle)
        say(told, RUNS)
        _attend(shell, awake[0], orders, told, request["seal"]["memory"])
    finally:  # whatever went wrong: a supervisor to whom nothing was told takes it for not sealed
        os._exit(0)


def _sealed_off(view: dict[str, Any], guards: Guards, folder: int) -> tuple[int, int]:
    """Returns the two ends by which this process learns of the end of another."""
    awake = ending.wake_on_children()
    waking = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, the kernel ends this one first, and no work of others
    furnish(view, guards, folder)
    guards.forget()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limits = (
        (resource.RLIMIT_NPROC, MOST_PROCESSES),
        (resource.RLIMIT_FSIZE, MOST_IN_A_FILE),
        (resource.RLIMIT_DATA, view["memory"]),  # of one process, what it can write to; not what it reserves
    )
    for what, most in limits:
        now, highest = resource.getrlimit(what)
        if highest == resource.RLIM_INFINITY or highest > most:
            resource.setrlimit(what, (most if now == resource.RLIM_INFINITY else min(now, most), most))
    if not view["network"]:
        syscalls.loopback_up()
    syscalls.give_up_powers()
    syscalls.filter_calls(calls.filter_program(os.uname().machine))
    return awake, waking


def _memory() -> int:
    """Bytes that the processes in here hold together and share with no file, nearly."""
    pages = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/statm", "rb") as file:
                fields = file.read().split()
                pages += int(fields[1]) - int(fields[2])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _explained(error: CannotSeal | OSError) -> str:
    if isinstance(error, CannotSeal):
        return str(error)
    if error.errno in (errno.EPERM, errno.EACCES):
        hint = "a rule of the system forbids it, for example kernel.apparmor_restrict_unprivileged_userns"
        return f"{error.strerror}: {hint}"
    return error.strerror or str(error)


def _attend(shell: int, awake: int, orders: int, told: int, memory: int) -> None:
    """Reap whatever ends; until nothing is left, whoever gives orders is gone, or it has too much memory."""
    poll = select.poll()
    poll.register(awake, select.POLLIN)
    poll.register(orders, select.POLLIN)
    look_again = 0.0
    while True:
        ended, gone = ending.reaped()
        if shell in ended:
            say(told, EXITED, str(ended[shell]))
        if gone:
            return
        if time.monotonic() >= look_again:
            look_again = time.monotonic() + LOOKS_AT_MEMORY
            if _memory() > memory:
                say(told, TOO_LARGE, f"{memory / 1024**3:.1f}")
                return
        ready = {handle for handle, _ in poll.poll(int(LOOKS_AT_MEMORY * 1000))}
        if awake in ready:
            ending.drain(awake)
        if orders in ready:
            if os.read(orders, 1) != ASK_TO_END:
                return
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGTERM)  # everybody in here but this process
