"""`retinue acp`: Retinue as an agent in an editor, over the Agent Client Protocol on stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.app import Retinue

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens, to stderr.")]


def acp(model: o.Model = None, tools: o.Tools = None, db: o.Db = None, verbose: Verbose = False) -> int:
    """Be an agent in an editor that speaks the Agent Client Protocol. Started by the editor.

    A session is a conversation: 'retinue runs list' and the page show it too, and it goes on after a crash.

    \b
    Examples:
      retinue acp
      retinue acp --model openai:gpt-5-mini
    """
    from retinue.cli.process import log_to_stderr

    log_to_stderr("INFO" if verbose else "WARNING", "%(levelname)s %(name)s: %(message)s")
    return asyncio.run(_serve(model, tuple(tools or ()), db))


async def _serve(model: str | None, tools: tuple[str, ...], db: str | None) -> int:
    from importlib.metadata import version

    from acp import run_agent
    from acp.stdio import stdio_streams

    from retinue.acp.agent import EditorAgent
    from retinue.app import Retinue
    from retinue.cli.own_tools import tools_of
    from retinue.cli.process import make_room

    def open_in(folder: Path, settings: Mapping[str, Any]) -> Retinue:
        return Retinue(
            model=model,
            db=db,
            cwd=folder,
            settings=settings,
            tool_files=tools_of(folder, tools),
            answering="ask",
            fallback="offline",
        )

    _keep_stdout_for_the_protocol()
    reader, writer = await stdio_streams(limit=_LONGEST_LINE)
    sys.stdout = sys.stderr
    agent = EditorAgent(open_in, version("retinue"))
    make_room()
    try:
        await run_agent(agent, writer, reader, use_unstable_protocol=True)
    finally:
        await agent.close()
    return exits.OK


_LONGEST_LINE = 50 * 1024 * 1024


def _keep_stdout_for_the_protocol() -> None:
    """Whatever else is written to stdout, by a library or a program that is started, goes to stderr."""
    own = os.dup(sys.stdout.fileno())
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = os.fdopen(own, "w")
