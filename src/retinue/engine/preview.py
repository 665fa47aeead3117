"""What a person is shown of a call before they approve it: asked of the tool, which may be anybody's.

Called by `engine.questions`. A preview is a courtesy: it never stops a question, and never makes it wait for
long.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from typing import Any

from retinue.authority.rules import Asked
from retinue.errors import told
from retinue.run import Run
from retinue.threads import in_own_task, in_own_thread
from retinue.tools.base import ShownCall, Tool

SECONDS = 10.0
"""How long a preview may take."""
UNSEEN = "unseen"
"""The digest of what a person was asked about without being shown it."""
LONGEST = 200_000
"""Characters of a preview that are kept, unless it is no longer than what the model wrote."""


async def preview_of(run: Run, tool: Tool, asked: Asked) -> ShownCall:
    """What the tool shows of a call, or why it shows nothing."""
    if tool.preview is None:
        return ShownCall(text="", whole=False)  # what a function does with its arguments stands nowhere
    try:
        async with asyncio.timeout(SECONDS):
            shown: Any = await in_own_thread(tool.preview, dict(asked.arguments), run.files)
            if inspect.isawaitable(shown):
                shown = await in_own_task(shown)
        if isinstance(shown, ShownCall):
            return replace(shown, text=_bounded(shown.text, asked))
        return ShownCall(text=_bounded(str(shown), asked))
    except TimeoutError:
        why = f"the preview of {tool.name} took longer than {SECONDS:g} s"
    except Exception as error:  # whatever it is, the question is asked
        why = told(error)
    return ShownCall(text=f"(no preview: {why})", digest=UNSEEN, whole=False)


def _bounded(text: str, asked: Asked) -> str:
    """All of it, if it is of what the model wrote: nobody approves the end of a command unseen. What else is
    longer says so."""
    written = (len(value) for value in asked.arguments.values() if isinstance(value, str))
    most = max((LONGEST, *written))
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[{len(text) - most:,} more characters of this preview are not shown]"
