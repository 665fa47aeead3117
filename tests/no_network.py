"""Keeps the tests on this machine: a connection or a look-up that would leave it fails the test, and is not made.

`conftest` turns it on. Python itself is asked (an audit hook), so it does not matter which library dials, or in which
thread. What other programs do that a test starts, this cannot see: `scripts/offline.py` takes the network away from them.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from typing import Any

attempts: list[str] = []
_on: list[bool] = []


class LeavesTheMachine(OSError):
    """Raised where a test would have left the machine."""


def turn_on() -> None:
    """For the whole process, and for good: hooks cannot be taken away again."""
    if not _on:
        _on.append(True)
        sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        if isinstance(address, tuple) and not _is_here(str(address[0])):
            _refuse(f"{event} to {address[0]}, port {address[1]}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        _look_up(arguments[0])


def _look_up(host: object) -> None:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
    name = name.lower().removesuffix(".")
    if name.endswith(".invalid"):  # nobody has such a name, and no resolver may ask for one
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    if not _is_here(name) and not _is_address(name):
        _refuse(f"a look-up of the name {name!r}")


def _is_here(host: str) -> bool:
    if host in ("", "localhost") or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _refuse(what: str) -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "no test").partition(" ")[0]
    attempts.append(f"{what}, in {test}")
    raise LeavesTheMachine(f"{test}: tests stay on this machine, and this would leave it: {what}")
