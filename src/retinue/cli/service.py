"""What `serve`, `mcp serve` and `worker` have in common, which stay until they are told to stop.

What they log, how `Retinue` is opened for them, where they listen and who is let in there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from socket import socket

    from fastapi import FastAPI

    from retinue.app import Retinue
    from retinue.server.security import Role, Token
    from retinue.server.tokens import TokenChanges

Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDR", help="Listen there; else 127.0.0.1 (server.host).")
]
Port = Annotated[
    int | None,
    typer.Option("--port", "-p", metavar="N", min=0, max=65535, help="Else 8484 (server.port); 0: any."),
]
Grants = Annotated[
    list[str] | None,
    typer.Option(
        "--token",
        metavar="NAME:ROLE",
        help="Ask for tokens, and make one for NAME: watch, ask, approve or admin; repeatable.",
    ),
]
WithoutTokens = Annotated[
    bool,
    typer.Option(
        "--without-tokens", help="On loopback, let in everybody as admin although there are tokens."
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A name this server goes by; repeatable."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log nothing but trouble.")]


def log_service(level: str, libraries: Sequence[str], at_least: str) -> None:
    """Log to stderr with the time of day, and of these libraries nothing below that other level."""
    from retinue.cli.process import log_to_stderr

    log_to_stderr(level, "%(asctime)s %(message)s")
    for name in libraries:
        logging.getLogger(name).setLevel(at_least)


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """What each of these commands can be told."""

    model: str | None
    tools: Sequence[str] | None
    cwd: Path | None
    db: str | None

    @asynccontextmanager
    async def opened(self, **more: Any) -> AsyncGenerator[Retinue]:
        """`more` is said to the `Retinue` besides."""
        from retinue.app import Retinue
        from retinue.cli.foreground import warn
        from retinue.cli.own_tools import tools_of

        async with Retinue(
            model=self.model,
            db=self.db,
            cwd=self.cwd,
            tool_files=tools_of(self.cwd, tuple(self.tools or ())),
            fallback="offline",
            **more,
        ) as retinue:
            warn(retinue, quiet=False)
            yield retinue


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Where a server was told to listen, and whom to let in."""

    host: str | None
    port: int | None
    token: Sequence[str] | None
    without_tokens: bool
    allow_host: Sequence[str] | None

    def _host(self, retinue: Retinue) -> str:
        return self.host or retinue.settings.server.host

    def bind(self, retinue: Retinue) -> socket:
        """Call it before `app`: a token is shown once, when it is made."""
        from retinue.server.serving import bind

        port = retinue.settings.server.port if self.port is None else self.port
        return bind(self._host(retinue), port)

    def app(self, retinue: Retinue, **more: Any) -> FastAPI:
        """The API and the page, which ask for the tokens that there are then; `more` is for `create_app`."""
        from retinue.server.app import create_app
        from retinue.server.tokens import session_file

        names = tuple(self.allow_host or ())
        tokens, reread = _tokens_for(
            self._host(retinue), tuple(self.token or ()), names, without_tokens=self.without_tokens
        )
        sessions = session_file() if reread is not None else None
        return create_app(retinue, tokens=tokens, hosts=names, reread=reread, sessions=sessions, **more)


def _tokens_for(
    host: str, grants: Sequence[str], names: Sequence[str], *, without_tokens: bool
) -> tuple[list[Token], TokenChanges | None]:
    """The tokens it asks for, none on loopback unless there are some; and what becomes of them."""
    from retinue.errors import ConfigError
    from retinue.server import tokens
    from retinue.server.security import parse_grant
    from retinue.server.serving import is_loopback
    from retinue.view.paint import note

    given = tokens.from_environment(os.environ)
    path = tokens.token_file()
    if without_tokens and (given or grants or names or not is_loopback(host)):
        raise ConfigError(
            f"--without-tokens is for loopback alone, not {host}, and goes with no token and no --allow-host",
            fix=f"leave it out, or --token, --allow-host and {tokens.VARIABLE}",
        )
    stored = {} if without_tokens else tokens.read(path)
    if is_loopback(host) and not (given or grants or names or stored):
        note("no token is asked for: everybody on this machine may come in, as admin", "dim")
        return [], None
    wanted: list[tuple[str, Role]] = [parse_grant(grant) for grant in grants]
    if not wanted and not given and not stored:
        wanted = [("owner", "admin")]
    for name, secret in tokens.grant(path, wanted).items():
        note(f"the token of {name}, shown this once: {secret}", "bold")
    changes = tokens.TokenChanges(path, given)
    kept = tokens.read(path)
    shown = ", ".join(f"{token.name} ({token.role})" for token in (*kept.values(), *given))
    note(f"nobody comes in without a token; tokens: {shown}", "dim")
    return [*kept.values(), *given], changes
