"""What functions of a program say of a call of its tool: whether it only reads, is harmless, how risky it is.

Called for every call before the rules look at it, since they look several times and never wait. Such a
function runs in a thread of its own and has ten seconds, as the others that a program gives a tool; ours are
called where they are needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from retinue.threads import briefly, ours
from retinue.tools.base import Tool


async def judged(tool: Tool, arguments: dict[str, Any]) -> Tool:
    """The tool for a call with these arguments alone: what it is asked of them, it knows.

    A function that says nothing in time makes no call easier: it does not only read, and is not harmless.
    """
    known: dict[str, Any] = {}
    for name, otherwise in (("reads", False), ("harmless", False), ("risks", "high")):
        function = getattr(tool, name)
        if function is None or ours(function):
            continue
        try:
            said = await briefly(function, arguments)
        except TimeoutError:
            said = otherwise
        known[name] = partial(_said, said)
    return replace(tool, **known) if known else tool


def _said(said: Any, arguments: dict[str, Any]) -> Any:
    return said
