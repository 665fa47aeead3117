"""An agent that calls the file tools in a project, for their tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from retinue.tools.base import ShownCall, ToolContext, ToolResult
from retinue.tools.files import file_tools
from retinue.workspace import Files

TOOLS = {tool.name: tool for tool in file_tools()}


class Agent:
    """Calls tools as the loop does."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.ctx = ToolContext(
            run_id="r1",
            root_id="r1",
            depth=0,
            agent="general",
            call_id="c1",
            files=files,
            progress=lambda text: None,
            denied=lambda what, detail: None,
        )

    async def __call__(self, name: str, **arguments: Any) -> str:
        return (await self.result(name, **arguments)).text

    async def result(self, name: str, **arguments: Any) -> ToolResult:
        tool = TOOLS[name]
        result = await tool.call(tool.parse(json.dumps(arguments)), self.ctx)
        return result if isinstance(result, ToolResult) else ToolResult(text=result)

    def preview(self, name: str, **arguments: Any) -> str:
        tool = TOOLS[name]
        assert tool.preview is not None
        shown = tool.preview(tool.parse(json.dumps(arguments)), self.files)
        assert isinstance(shown, ShownCall)
        return shown.text


def trap(path: Path, kind: str) -> None:
    """A file that a program should not simply open and read."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 30)
    else:
        path.symlink_to(
            {"endless": "/dev/zero", "outside": "../outside/secret.py", "circle": path.name}[kind]
        )
