"""Opens what a command could have put a link in the way of."""

from __future__ import annotations

import os
import stat

from retinue.sandbox.commands.guards import CannotSeal


def opened(path: str) -> int:
    """A handle of a path, none of whose parts is a link."""
    at = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for part in path.strip("/").split("/"):
        try:
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = inner
        if stat.S_ISLNK(os.fstat(at).st_mode):
            os.close(at)
            raise CannotSeal(f"{path} leads through a link")
    return at
