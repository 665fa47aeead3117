"""A process that exchanges two names as fast as it can, for whoever must not be fooled by it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
a, b = (os.fsencode(p) for p in sys.argv[1:])
print("ready", flush=True)
while os.getppid() == int(os.environ["PARENT"]):
    for _ in range(1000):
        libc.renameat2(-100, a, -100, b, 2)
"""


@contextlib.contextmanager
def swapping(a: Path, b: Path) -> Iterator[None]:
    child = subprocess.Popen(
        [sys.executable, "-c", SWAP, str(a), str(b)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PARENT": str(os.getpid())},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield
    finally:
        child.kill()
        child.communicate()
