"""`retinue serve`: the page and the API.

Loopback needs no token, since whoever is at the machine is its owner, unless some were made before; any other
address does. Tokens are shown once, when they are made.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.service import (
    Grants,
    Host,
    ListenOptions,
    Names,
    Port,
    Quiet,
    ServiceOptions,
    WithoutTokens,
    log_service,
)


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
    quiet: Quiet = False,
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
    log_service("WARNING" if quiet else "INFO", ("httpx", "asyncio"), "WARNING")
    # It warns of every request that is no HTTP: whoever sends many of them would fill the log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    service = ServiceOptions(model=model, tools=tools, cwd=cwd, db=db)
    listen = ListenOptions(
        host=host, port=port, token=token, without_tokens=without_tokens, allow_host=allow_host
    )
    return asyncio.run(_serve(service, listen, browser=browser, resume=not no_resume))


async def _serve(service: ServiceOptions, listen: ListenOptions, *, browser: bool, resume: bool) -> int:
    from retinue.cli.ask import OFFLINE
    from retinue.cli.process import make_room
    from retinue.server.serving import serve as run_server
    from retinue.view.paint import note

    async with service.opened(answering="ask", conversations=True) as retinue:
        if retinue.model_name == "offline":
            note(OFFLINE, "yellow")
        with listen.bind(retinue) as listening:
            app = listen.app(retinue)
            make_room()
            await run_server(
                retinue,
                app,
                listening=listening,
                resume=resume,
                ready=lambda url: _ready(url, str(retinue.cwd), browser),
            )
    return exits.OK


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
