"""`retinue chat`, and `retinue` alone on a terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retinue.cli.run_flags import RunFlags, with_run_flags

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.cli.chat.session import ChatGiven

_NOT_HERE = (
    "json",
    "messages",
    "events",
    "quiet",
    "sources",
    "show_prompt",
    "wait_approvals",
    "wait_limits",
    "attach",
)


@dataclass(frozen=True, kw_only=True)
class ChatAsked:
    """What the command was told."""

    given: ChatGiven
    flags: RunFlags
    resume: str = ""
    plain: bool = False


@with_run_flags(but=_NOT_HERE)
def chat(
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Another agent than the default one.")
    ] = None,
    resume: Annotated[
        str,
        typer.Option("--resume", metavar="RUN", help="Go on with an earlier conversation: an id, or last."),
    ] = "",
    continue_: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the last conversation of this folder.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines only, nothing is redrawn: for screen readers and logs.")
    ] = False,
    *,
    flags: RunFlags,
) -> int:
    """Talk with an agent and its staff, in the terminal.

    Type /help there for what can be typed. Everything is in the log: leave when you like, and go on later.

    \b
    Examples:
      retinue chat
      retinue chat --continue
      retinue chat --agent planner --model anthropic:claude-sonnet-5-5
      retinue chat --resume last --plain
    """
    from retinue.cli.chat.session import ChatGiven
    from retinue.errors import ConfigError

    given = ChatGiven(
        agent=agent,
        model=flags.models,
        effort=flags.effort or "",
        label=flags.label,
        settings=flags.settings,
        strict_sources=flags.strict_sources,
    )
    if (continue_ or resume) and (flags.effort or flags.strict_sources or flags.label):
        raise ConfigError(
            "--effort, --strict-sources and --label are for a conversation that begins", fix="leave them out"
        )
    asked = ChatAsked(given=given, flags=flags, resume="here" if continue_ else resume, plain=plain)
    return asyncio.run(_chat(asked))


async def _chat(asked: ChatAsked) -> int:
    from retinue.app import Retinue
    from retinue.cli.foreground import warn
    from retinue.cli.mcp import ask_about_servers
    from retinue.cli.own_tools import tools_of
    from retinue.cli.process import make_room
    from retinue.errors import ConfigError

    if not sys.stdin.isatty() and not asked.plain:
        raise ConfigError(
            "a chat needs a terminal", fix='retinue ask "…", or --plain to take lines from a pipe'
        )
    make_room()
    flags = asked.flags
    chosen = flags.models or await _first_model(asked)
    loaded = tools_of(flags.cwd, tuple(flags.tools or ()), ask=True)
    ask_about_servers(flags.cwd, quiet=False, ask=True)
    async with Retinue(
        model=chosen,
        small_model=flags.small_model,
        db=flags.db,
        cwd=flags.cwd,
        tool_files=loaded,
        answering="ask" if sys.stdin.isatty() else "refuse",
        yes=flags.yes,
        fallback="offline",
        conversations=True,
    ) as retinue:
        warn(retinue, quiet=False)
        _welcome(retinue, asked)
        return await _shown(retinue, asked)


async def _first_model(asked: ChatAsked) -> str | None:
    """What a person chooses who starts the chat for the first time."""
    from retinue.cli.first_hour import first_hour
    from retinue.settings import load

    return await first_hour(load(cwd=(asked.flags.cwd or Path()).absolute()))


def _welcome(retinue: Retinue, asked: ChatAsked) -> None:
    from retinue.cli.ask import OFFLINE
    from retinue.view.paint import note

    agent = asked.given.agent or retinue.settings.default_agent
    retinue.agents.get(agent)  # an unknown one is said before anything is drawn
    note(f"Retinue · {agent} · {retinue.model_name} · {retinue.cwd}", "bold")
    note("Ask something. /help shows what else can be typed; Ctrl-D leaves.", "dim")
    if retinue.model_name == "offline":
        note(OFFLINE, "yellow")


async def _shown(retinue: Retinue, asked: ChatAsked) -> int:
    from retinue.builtin_tools import is_installed
    from retinue.cli.extras import install
    from retinue.view.paint import note

    if not asked.plain and not is_installed("chat"):
        note(f"! in plain lines, since prompt-toolkit is not there: {install('chat')}", "yellow")
    if asked.plain or not is_installed("chat") or not _fits_a_chat():
        from retinue.cli.chat.plain import plain_chat

        return await plain_chat(retinue, asked.given, asked.resume)
    from retinue.cli.chat.history import history_file
    from retinue.cli.chat.screen_chat import screen_chat

    return await screen_chat(retinue, asked.given, asked.resume, history=history_file())


def _fits_a_chat() -> bool:
    """Whether there is a terminal here that a chat can be drawn on."""
    from retinue.view.paint import columns, rows

    return (
        sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "") not in ("", "dumb")
        and columns(sys.stdout) >= 20
        and rows(sys.stdout) >= 6
    )
