"""What a person is shown of a call before they approve it: asked of the tool, which may be anybody's.

Called by the inbox. A preview is a courtesy: it never stops a question, and never makes it wait for long.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from retinue.approvals import Asked
from retinue.errors import told
from retinue.run import Run
from retinue.threads import in_own_thread
from retinue.tools.base import Tool

SECONDS = 10.0
"""How long a preview may take."""
LONGEST = 20_000


async def preview_of(run: Run, tool: Tool, asked: Asked) -> str:
    """What the tool shows of a call, or why it shows nothing."""
    if tool.preview is None:
        return ""
    try:
        async with asyncio.timeout(SECONDS):
            shown: Any = await in_own_thread(tool.preview, dict(asked.arguments), run.files)
            if inspect.isawaitable(shown):
                shown = await shown
        return str(shown)[:LONGEST]
    except TimeoutError:
        return f"(no preview: the preview of {tool.name} took longer than {SECONDS:g} s)"
    except Exception as error:  # whatever it is, the question is asked
        return f"(no preview: {told(error)})"
