"""`retinue mcp login` and `logout`: a person logs in at an MCP server that asks for it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.mcp_servers import Name, named_server, require_start, servers_of

if TYPE_CHECKING:
    from retinue.mcp.config import ServerConfig
    from retinue.mcp.listing import Listing
    from retinue.mcp.servers import AppServers


def _address(server: ServerConfig) -> str:
    from retinue.errors import ConfigError

    url = server.filled(os.environ).url
    if url is None:
        raise ConfigError(f"{server.name} is a program: it is given a login with --env", file=server.origin)
    return url


def forget_login_at(server: ServerConfig) -> bool:
    from retinue.builtin_tools import is_installed

    if server.written.url is None or not is_installed("mcp"):
        return False
    from retinue.mcp.login import forget_login

    return forget_login(_address(server))


def log_in(
    name: Name,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only show the address.")] = False,
    cwd: o.Cwd = None,
) -> int:
    """Log in at a server that asks for it: in your browser, which has to run on this machine.

    What is given is kept in a file that you alone can read, renewed by itself, and sent to that server alone.

    \b
    Examples:
      retinue mcp login issues
    """
    from retinue.errors import ToolError
    from retinue.view.paint import note

    servers = servers_of(cwd)
    server = named_server(servers, name)
    require_start(servers, server)
    url = _address(server)
    try:
        given, listing = asyncio.run(_logged_in(servers, server, url, browser=not no_browser))
    except ToolError as error:
        note(str(error), "red")
        return exits.FAILED
    servers.keep(server, listing)
    if not given:
        note(f"{name} asked for no login; it offers {len(listing.tools)} tools", "yellow")
        return exits.OK
    note(f"you are logged in at {name}; it offers {len(listing.tools)} tools", "green")
    return exits.OK


async def _logged_in(
    servers: AppServers, server: ServerConfig, url: str, *, browser: bool
) -> tuple[bool, Listing]:
    """Whether a login was given, and what the server offers with it."""
    from dataclasses import replace

    import msgspec

    from retinue import settings
    from retinue.mcp.login import kept_login
    from retinue.mcp.login_page import PATIENCE, person_here
    from retinue.mcp.servers import list_server, load_package

    await load_package()
    asked: list[str] = []

    def show(address: str) -> None:
        asked.append(address)
        _show_address(server.name, address, browser=browser)

    patient = msgspec.structs.replace(settings.load().settings.mcp, start_timeout=PATIENCE + 60)
    async with person_here(kept_login(url), show) as person:
        means = replace(servers.means(patient), person=person)
        try:
            listing = await list_server(server, means)
            return bool(asked), listing
        finally:
            await means.commands.close()


def _show_address(name: str, address: str, *, browser: bool) -> None:
    from retinue.view.paint import note
    from retinue.view.words import clean

    note(f"Log in at {name} with your browser:\n{clean(address)}")
    if browser:
        import threading
        import webbrowser

        # some browsers are waited for until they end, and what they bring is heard meanwhile
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def log_out(name: Name, cwd: o.Cwd = None) -> int:
    """Forget the login at a server.

    \b
    Examples:
      retinue mcp logout issues
    """
    from retinue.view.paint import note

    server = named_server(servers_of(cwd), name)
    forgotten = forget_login_at(server)
    note(f"the login at {name} is forgotten" if forgotten else f"there is no login at {name}", "green")
    return exits.OK
