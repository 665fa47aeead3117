"""Runs sealed commands in a world of their own (the fixture `world`), as the tool does."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Literal

from retinue.sandbox.commands.view import CommandPlace, Trials
from retinue.tools.base import ToolContext, ToolResult
from retinue.tools.shell import shell_tools
from retinue.workspace import Files
from retinue.workspace_folder import Workspace

WHY_NOT = Trials().why_not(
    CommandPlace(project=Path(__file__).resolve().parent, workspace=None, writable=True, network=False),
    {**os.environ, "HOME": "/nowhere"},
)
PLANTED = "planted-" + secrets.token_hex(8)


async def run(
    world: Path,
    command: str,
    *,
    sandbox: Literal["off", "closed", "open"] = "closed",
    timeout: float = 60,
    readable: tuple[str, ...] = (),
    guarded: tuple[str, ...] = (),
) -> str:
    (bash,) = shell_tools(hidden=[str(world / "project/runs.db")], guarded=lambda: guarded)
    files = Files(world / "project", Workspace(root=world / "ws"), readable=readable)
    ctx = ToolContext(
        run_id="r1",
        root_id="r1",
        depth=0,
        agent="general",
        call_id="c1",
        files=files,
        progress=lambda text: None,
        denied=lambda what, detail: None,
        sandbox=sandbox,
    )
    try:
        result = await bash.call(bash.parse(json.dumps({"command": command, "timeout": timeout})), ctx)
    finally:
        files.close()
    assert isinstance(result, ToolResult)
    return result.text
