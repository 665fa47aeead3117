#!/usr/bin/env python3
"""Run a command on a network that has nothing but this machine: scripts/offline.py COMMAND [ARGUMENT…]

`scripts/test.sh` runs the tests so, with everything they start: no command, no browser and no server of
theirs can reach another machine. It needs Linux and the right to make a network namespace. Where it may not,
it says so and runs the command as it is; the tests' own guard (`tests/no_network.py`) then holds for Python
in the test processes alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
SET_FLAGS = 0x8914  # SIOCSIFFLAGS
UP_AND_RUNNING = 0x1 | 0x40


def leave_the_network() -> None:
    """An OSError where that is not allowed or not possible."""
    try:
        unshare = ctypes.CDLL(None, use_errno=True).unshare
    except AttributeError:
        raise OSError("this system has no network namespaces") from None
    if unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket() as anything:
        fcntl.ioctl(anything, SET_FLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(str(__doc__))
    try:
        leave_the_network()
    except OSError as error:
        print(f"offline: not sealed from the network: {error}", file=sys.stderr)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
