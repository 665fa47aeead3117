"""The files that an editor holds: what stands in its buffers is what a run reads, and it writes through them.

Given to an app whose editor offers this. The jail and the rules come first: what a run may not open on the
disk is never asked for here.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from acp import RequestError
from acp.interfaces import Client

log = logging.getLogger("retinue.acp")

PATIENCE = 10.0
"""Seconds that an editor has for a file. One that does not answer is not asked in vain for ever."""


class EditorBuffers:
    """Of all sessions of one editor: the session is the workflow."""

    def __init__(self, editor: Client, *, reads: bool, writes: bool) -> None:
        self._editor = editor
        self._reads = reads
        self._writes = writes

    async def text(self, root_id: str, path: Path) -> str | None:
        """What stands in the editor, or None if it has nothing to say about this file."""
        if not self._reads:
            return None
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self._editor.read_text_file(session_id=root_id, path=str(path))
        except (RequestError, ConnectionError, TimeoutError) as error:
            log.debug("the editor does not give %s: %r", path, error)
            return None
        return found.content

    async def put(self, root_id: str, path: Path, text: str) -> bool:
        """Write through the editor. False if it does not take it: then the disk is written to."""
        if not self._writes:
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                await self._editor.write_text_file(session_id=root_id, path=str(path), content=text)
        except (RequestError, ConnectionError, TimeoutError) as error:
            log.warning("the editor did not write %s: %r", path, error)
            return False
        return True
