"""A line for a person who waits: what takes longer than a second says that it is at work.

Used by commands that show nothing else meanwhile. At a terminal alone: a program reads nothing of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from retinue.view.paint import note

SOON = 1.0
"""Seconds in which nobody wonders."""


@asynccontextmanager
async def told_when_slow(what: str, seconds: float = SOON) -> AsyncGenerator[None]:
    """Say what is being done, once, if it takes that long."""
    if not sys.stderr.isatty():
        yield
        return
    told = asyncio.get_running_loop().call_later(seconds, note, f"{what} …", "dim")
    try:
        yield
    finally:
        told.cancel()
