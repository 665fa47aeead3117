"""Seals off nothing worth it, to find out whether that works here. Run by `view` in a bare interpreter."""

from __future__ import annotations

import marshal
import os
import sys
import time

from retinue.sandbox.commands import ending
from retinue.sandbox.commands.guards import CannotSeal
from retinue.sandbox.commands.sealed import Sealed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """Print why it does not work, or nothing. The view comes in by stdin."""
    view: dict[str, Any] = marshal.loads(sys.stdin.buffer.read())  # noqa: S302  from Retinue, and nobody else
    null = os.open(os.devnull, os.O_RDWR)
    awake = ending.wake_on_children()
    request: dict[str, Any] = {"argv": ["/bin/sh", "-c", "exit 7"], "env": {}, "seal": view}
    try:
        body = Sealed(request, (null, null, null), os.open(".", os.O_RDONLY | os.O_DIRECTORY))
    except (CannotSeal, OSError) as error:
        sys.stdout.write(str(error))
        return
    os.set_blocking(awake, True)
    until = time.monotonic() + 20
    while not body.look() and time.monotonic() < until:
        os.read(awake, 4096)
    body.kill()
    body.leave()
    if body.code != 7:
        sys.stdout.write(f"a sealed shell ended with {body.code}")
