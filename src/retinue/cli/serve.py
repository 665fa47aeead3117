"""`retinue serve`: the page and the API.

Loopback needs no token, since whoever is at the machine is its owner, unless some were made before; any other
address does. Tokens are shown once, when they are made.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
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


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What the command was told."""

    host: str | None
    port: int | None
    grants: tuple[str, ...]
    without_tokens: bool
    names: tuple[str, ...]
    browser: bool
    resume: bool
    model: str | None
    tools: tuple[str, ...]
    cwd: Path | None
    db: str | None


def serve(
    host: Host = None,
    port: Port = None,
    token: Grants = None,
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="NAME", help="Take a token away, then end.")
    ] = None,
    without_tokens: WithoutTokens = False,
    allow_host: Names = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="Leave runs alone that a dead process left behind.")
    ] = False,
    model: o.Model = None,
    tools: o.Tools = None,
    cwd: o.Cwd = None,
    db: o.Db = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log nothing but trouble.")] = False,
) -> int:
    """Serve the page and the API, for this folder, until it is told to stop.

    Without tokens only this machine can use it, and everybody on it. Once tokens were made they are asked
    for, also by a later start that names none. Runs that were going on when it stopped go on when it starts.

    \b
    Examples:
      retinue serve --open
      retinue serve --host 0.0.0.0 --token alice:approve --token screen:watch
      RETINUE_SERVER_TOKEN=… retinue serve --host 0.0.0.0 --allow-host agents.example.org
      retinue serve --revoke alice
    """
    if revoke is not None:
        return _revoke(revoke)
    from retinue.cli.process import log_to_stderr

    log_to_stderr("WARNING" if quiet else "INFO", "%(asctime)s %(message)s")
    for name in ("httpx", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns of every request that is no HTTP: whoever sends many of them would fill the log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    serving = Serving(
        host=host,
        port=port,
        grants=tuple(token or ()),
        without_tokens=without_tokens,
        names=tuple(allow_host or ()),
        browser=browser,
        resume=not no_resume,
        model=model,
        tools=tuple(tools or ()),
        cwd=cwd,
        db=db,
    )
    return asyncio.run(_serve(serving))


async def _serve(serving: Serving) -> int:
    from retinue.app import Retinue
    from retinue.cli.ask import OFFLINE
    from retinue.cli.foreground import warn
    from retinue.cli.own_tools import tools_of
    from retinue.cli.process import make_room
    from retinue.server.app import create_app
    from retinue.server.serving import bind
    from retinue.server.serving import serve as run_server
    from retinue.server.tokens import session_file
    from retinue.view.paint import note

    async with Retinue(
        model=serving.model,
        db=serving.db,
        cwd=serving.cwd,
        tool_files=tools_of(serving.cwd, serving.tools),
        answering="ask",
        fallback="offline",
        conversations=True,
    ) as retinue:
        warn(retinue, quiet=False)
        if retinue.model_name == "offline":
            note(OFFLINE, "yellow")
        host = serving.host or retinue.settings.server.host
        port = retinue.settings.server.port if serving.port is None else serving.port
        with bind(host, port) as listening:  # before a token is made: it is shown once
            tokens, reread = tokens_for(
                host, serving.grants, serving.names, without_tokens=serving.without_tokens
            )
            sessions = session_file() if reread is not None else None
            app = create_app(retinue, tokens=tokens, hosts=serving.names, reread=reread, sessions=sessions)
            make_room()
            await run_server(
                retinue,
                app,
                listening=listening,
                resume=serving.resume,
                ready=lambda url: _ready(url, str(retinue.cwd), serving.browser),
            )
    return exits.OK


def tokens_for(
    host: str, grants: Sequence[str], names: Sequence[str], *, without_tokens: bool = False
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


def _ready(url: str, folder: str, browser: bool) -> None:
    from retinue.view.paint import note

    here = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    note(f"{folder} is served at {here}/", "green")
    if here != url:
        note("and at every other address of this machine", "green")
    if browser:
        import webbrowser

        webbrowser.open(here)


def _revoke(name: str) -> int:
    from retinue.server import sessions, tokens
    from retinue.view.paint import note

    tokens.revoke(tokens.token_file(), name)
    sessions.forget(tokens.session_file(), [name])
    note(f"the token of {name} is gone, also from a server that runs", "green")
    if not tokens.read(tokens.token_file()):
        note("! no token is left: the next start on loopback asks for none, unless it is given one", "yellow")
    return exits.OK
