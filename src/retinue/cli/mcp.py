"""`retinue mcp`: which MCP servers there are and which are trusted; and Retinue as one (`mcp_serve`)."""

from __future__ import annotations

import asyncio
import json as json_format
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.mcp_login import forget_login_at, log_in, log_out
from retinue.cli.mcp_serve import mcp_serve
from retinue.cli.mcp_servers import Name, named_server, require_start, servers_of
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.mcp.config import ServerConfig
    from retinue.mcp.listing import Listing
    from retinue.mcp.servers import AppServers

app = new_group(
    "MCP servers: programs and addresses whose tools agents use; and Retinue as one.",
    (
        "mcp list",
        "mcp add time -- uvx mcp-server-time",
        "mcp trust time",
        "mcp serve --cwd ~/code/shop",
    ),
)
app.command("serve")(mcp_serve)
app.command("login")(log_in)
app.command("logout")(log_out)
STYLES = {"trusted": "green", "yours": "green", "started": "yellow", "new": "red", "changed": "red"}


@app.command("list")
def list_servers(cwd: o.Cwd = None, json: o.Json = False) -> int:
    """List the MCP servers of this folder and your own, and whether they may start.

    \b
    Examples:
      retinue mcp list
      retinue mcp list --json | jq -r .name
    """
    from retinue.view.paint import note, out_json
    from retinue.view.table import TableColumn, print_table

    servers = servers_of(cwd)
    found = servers.status()
    if json:
        for each in found:
            out_json(json_format.dumps(asdict(each), ensure_ascii=False))
    elif found:
        heads = (
            TableColumn(title="SERVER"),
            TableColumn(title="TRUST"),
            TableColumn(title="STATE", rank=1),
            TableColumn(title="TOOLS", rank=2),
            TableColumn(title="WHAT STARTS", flexible=True),
        )
        rows = [
            [
                (each.name, "bold"),
                (each.trust, STYLES[each.trust]),
                (each.state, ""),
                (str(len(each.tools)), ""),
                (each.command, ""),
            ]
            for each in found
        ]
        print_table(heads, rows, sys.stdout)
    elif not servers.configured.problems:
        note("no MCP servers here: 'retinue mcp add' writes one, and .mcp.json is read", "dim")
    for each in servers.waiting:
        note(f"! {each.name} of {each.origin} does not start: 'retinue mcp trust {each.name}'", "yellow")
    for problem in servers.configured.problems:
        note(problem, "red")
    return exits.USAGE if servers.configured.problems else exits.OK


@app.command("add")
def add_server(
    name: Name,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND ARGS]", help="The program that is the server.", show_default=False
        ),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="The address of a server instead.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=VALUE]", help="A variable it gets; without a value, yours."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME: VALUE", help="A header; ${NAME} is a variable of yours."),
    ] = None,
    project: Annotated[
        bool, typer.Option("--project", help="Write it to .mcp.json of this folder, for everybody.")
    ] = False,
    cwd: o.Cwd = None,
) -> int:
    """Add an MCP server: to your own settings, or with --project to .mcp.json of the folder.

    \b
    Examples:
      retinue mcp add time -- uvx mcp-server-time
      retinue mcp add github --url https://example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
    """
    from retinue.errors import ConfigError
    from retinue.view.paint import note

    if (not command) == (url is None):
        raise ConfigError(
            "give a command after '--', or --url", fix="retinue mcp add time -- uvx mcp-server-time"
        )
    written: dict[str, Any] = {}
    if command:
        written = {"command": command[0], "args": command[1:]}
    if url is not None:
        written = {"type": "http", "url": url}
    if env:
        pairs = (each.partition("=") for each in env)
        written["env"] = {key: value if sign else f"${{{key}}}" for key, sign, value in pairs}
    if header:
        written["headers"] = {
            key.strip(): value.strip() for key, _, value in (each.partition(":") for each in header)
        }
    where = _write(name, written, project=project, cwd=cwd)
    note(f"{name} is in {where}; 'retinue mcp test {name}' tries it", "green")
    return exits.OK


def _write(name: str, written: dict[str, Any] | None, *, project: bool, cwd: Path | None) -> Path:
    """Write a server down, or with None take it out. Raises `ConfigError` if it is not there."""
    from retinue.errors import ConfigError
    from retinue.mcp.config import PROJECT_FILE, SETTING, read_json_file, write_json_file
    from retinue.settings.toml_file import changing_own

    missing = ConfigError(f"there is no MCP server {name!r} there", fix="'retinue mcp list' shows them")
    if project:
        path = (cwd or Path()).absolute() / PROJECT_FILE
        whole = read_json_file(path)
        if written is None:
            if whole["mcpServers"].pop(name, None) is None:
                raise missing
        else:
            whole["mcpServers"][name] = written
        write_json_file(path, whole)
        return path
    with changing_own() as file:
        if written is None:
            if not file.remove(f"{SETTING}.{name}"):
                raise missing
        else:
            file.put(f"{SETTING}.{name}", written)
    return file.path


@app.command("remove")
def remove_server(
    name: Name,
    project: Annotated[bool, typer.Option("--project", help="From .mcp.json of this folder.")] = False,
    cwd: o.Cwd = None,
) -> int:
    """Take an MCP server out of your settings, or with --project out of .mcp.json; and what was trusted.

    \b
    Examples:
      retinue mcp remove time
    """
    from retinue.view.paint import note

    servers = servers_of(cwd)
    known = servers.servers.get(name)
    where = _write(name, None, project=project, cwd=cwd)
    if known is not None:
        servers.trust.forget(known)
        forget_login_at(known)
    note(f"{name} is no longer in {where}", "green")
    return exits.OK


def _listed(servers: AppServers, server: ServerConfig) -> Listing:
    """Start a server now and see what it offers."""
    from retinue import settings
    from retinue.builtin_tools import is_installed
    from retinue.errors import ConfigError
    from retinue.mcp.servers import INSTALL, list_server

    if not is_installed("mcp"):
        raise ConfigError("the extra for MCP servers is not installed", fix=INSTALL)
    means = servers.means(settings.load().settings.mcp)

    async def look() -> Listing:
        try:
            return await list_server(server, means)
        finally:
            await means.commands.close()

    listing = asyncio.run(look())
    servers.keep(server, listing)
    return listing


@app.command("test")
def try_server(name: Name, cwd: o.Cwd = None, json: o.Json = False) -> int:
    """Start a server, or reach it, and show what it offers.

    \b
    Examples:
      retinue mcp test time
    """
    import msgspec

    from retinue.errors import ToolError
    from retinue.view.paint import note, out, out_json
    from retinue.view.words import one_line

    servers = servers_of(cwd)
    server = named_server(servers, name)
    require_start(servers, server)
    try:
        listing = _listed(servers, server)
    except ToolError as error:
        note(str(error), "red")
        return exits.FAILED
    if json:
        out_json(msgspec.json.encode(listing).decode())
        return exits.OK
    out(f"{listing.title or name}, protocol {listing.protocol}: {len(listing.tools)} tools")
    for tool in listing.tools:
        hint = tool.annotations
        reads = "reads" if hint is not None and hint.read_only else "asks" if hint is None else "changes"
        changed = ", not the one that you trusted" if servers.trust.changed(server, tool) else ""
        out(f"  {tool.name} ({reads}{changed}): {one_line(tool.description)[:100]}")
    if listing.resources:
        out("  and resources")
    for prompt in listing.prompts:
        out(f"  prompt {prompt.name}({', '.join(prompt.arguments)})")
    return exits.OK


@app.command("trust")
def trust_server(
    name: Name,
    start_only: Annotated[
        bool, typer.Option("--start-only", help="Let it start; every call of it asks.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="What it returns is nothing of yours: no private data.")
    ] = False,
    cwd: o.Cwd = None,
) -> int:
    """Let a server start as it is written now, and believe what it says of its tools as they are now.

    A server that is a program runs with all of your rights. One whose command, or whose tools, change later
    asks again. What it returns counts as private data, unless you say with --public that it is none.

    \b
    Examples:
      retinue mcp trust time --public
      retinue mcp trust mail
      retinue mcp trust mail --start-only
    """
    from retinue.errors import ConfigError, ToolError
    from retinue.mcp.tools import unasked
    from retinue.view.paint import note

    if start_only and public:
        raise ConfigError("--public is for a server that you trust", fix="leave --start-only out")
    servers = servers_of(cwd)
    server = named_server(servers, name)
    note(f"{name} of {server.origin}: {server.command_line}")
    if server.needs:
        note(f"it is given {', '.join(server.needs)}")
    digest = server.sha256
    servers.trust.add(server, None, digest)
    if start_only:
        note(f"{name} may start; every call of it asks", "green")
        return exits.OK
    try:
        listing = _listed(servers, server)
    except ToolError as error:
        note(f"it may start, and could not be listed: {error}", "yellow")
        return exits.FAILED
    servers.trust.add(server, listing.tools, digest, public=public)
    note(f"{name} is trusted, with its {len(listing.tools)} tools as they are now", "green")
    always, before = unasked(server, listing, servers.trust)
    note(f"without asking: {', '.join(always) or 'none'}", "dim")
    if before:
        note(f"without asking until private data was read: {', '.join(before)}", "dim")
    kept = "no private data, as you said" if public else "private data; --public says that it is none"
    note(f"what it returns counts as {kept}", "dim")
    return exits.OK


def ask_about_servers(cwd: Path | None, *, quiet: bool, ask: bool) -> None:
    """Before a run: ask the person at the terminal about servers of this folder that are new or changed."""
    from retinue.mcp.config import of_project
    from retinue.mcp.trust import Trust
    from retinue.view.paint import note

    found = list(of_project((cwd or Path()).absolute()))
    if not found:
        return
    trust = Trust()
    here = ask and sys.stdin.isatty() and sys.stderr.isatty()
    for server in found:
        if trust.may_start(server):
            continue
        digest = server.sha256  # of what the person can read now, and not of what is there once they agree
        if here and _agrees(server, changed=trust.state(server) == "changed"):
            trust.add(server, None, digest)
        elif not quiet:
            note(
                f"! the MCP server {server.name} does not start: 'retinue mcp trust {server.name}'", "yellow"
            )


def _agrees(server: ServerConfig, *, changed: bool) -> bool:
    from retinue.cli.typed_line import agreed

    what = "has changed since you trusted it" if changed else "is new"
    given = f" It is given {', '.join(server.needs)}." if server.needs else ""
    return agreed(
        f"The MCP server {server.name} of {server.origin} {what}: {server.command_line}.{given}\n"
        "It runs with all of your rights; each call of it asks you. Let it start from now on?"
    )
