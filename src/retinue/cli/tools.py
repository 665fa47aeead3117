"""`retinue tools`: what agents can use."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.tool_files import ToolFile, ToolFiles
    from retinue.tools.base import Tool

app = new_group(
    "The tools that agents can use.",
    (
        "tools list",
        "tools show web_fetch",
        "tools trust",
    ),
)
STYLES = {"low": "green", "medium": "yellow", "high": "red"}


def _tools(cwd: Any, named: list[str] | None) -> tuple[dict[str, Tool], ToolFiles]:
    """Every tool that some run can have: those of the app, of a run, of a parent, of what is attached.

    And the files that those of the person's own came from.
    """
    from retinue.cli.opening import with_retinue
    from retinue.cli.own_tools import tools_of

    own = tools_of(cwd, named or (), looking=True)

    async def found(retinue: Retinue) -> dict[str, Tool]:
        return {tool.name: tool for tool in (*retinue.tools.values(), *_of_runs(retinue))}

    return with_retinue("memory:", found, cwd, own), own


def _of_runs(retinue: Retinue) -> list[Tool]:
    """The tools that are made for a run, made for none: they are only looked at."""
    from retinue.builtin_tools import is_installed
    from retinue.delegate import agent_tool, delegation_tools
    from retinue.engine.isolation import merge_tool
    from retinue.mcp.search import search_tool
    from retinue.research.tools import research_tools
    from retinue.tools.notes import Notes, notes_tools
    from retinue.tools.sheets import Workbook, sheet_tools
    from retinue.tools.skills import skill_tool

    nobody: Any = None
    found = [
        *notes_tools(Notes(None)),
        *sheet_tools([Workbook(name="", sheets=())]),
        skill_tool(tuple(retinue.services.skill_files.catalogue.skills.values())),
        *research_tools(nobody),
        *delegation_tools(nobody),
        merge_tool(nobody, nobody),
        search_tool(()),
    ]
    if is_installed("code"):
        from retinue.tools.code import code_tool

        found.append(code_tool(list(retinue.tools.values()), nobody, nobody, retinue.settings.code))
    broken = {finding.file for finding in retinue.unusable_agents()}
    usable = (each.spec for each in retinue.agents.agents.values() if each.spec.origin not in broken)
    return [*found, *(agent_tool(spec, nobody) for spec in usable)]


def _offered(name: str, origins: Mapping[str, str]) -> str:
    """What makes a run have this tool."""
    from retinue.builtin_tools import BUILT_IN, CODE

    if name in origins:
        return f"yours, from {origins[name]}: offered to every agent whose 'tools' have it, or that has none"
    if name not in BUILT_IN:
        return "an agent: offered to agents that may delegate, with 'agents' in delegation.tools"
    if name == CODE:
        return "offered to an agent with 'mode: code', or one that names it in 'tools'"
    match BUILT_IN[name].holder:
        case "parent":
            return "offered to agents that may delegate, if delegation.tools has it"
        case "skills":
            return "offered where there are skills: to a root, and to a child whose 'skills' name some"
        case "servers":
            return "offered where MCP servers have more tools than mcp.search_above"
        case "prompt":
            return "offered where a spreadsheet is attached, with sheets.enabled"
        case _ if BUILT_IN[name].on_request:
            return "offered to an agent that names it in 'tools'"
        case _:
            return "offered to every agent whose 'tools' have it, or that has no 'tools'"


@app.command("list")
def list_tools(named: o.Tools = None, cwd: o.Cwd = None, json: o.Json = False) -> int:
    """List every tool, what it does to the world, and how risky a call is.

    \b
    Examples:
      retinue tools list
      retinue tools list --json | jq -r 'select(.effect == "read") | .name'
    """
    from retinue.view.paint import out_json
    from retinue.view.table import TableColumn, print_table
    from retinue.view.words import one_line

    tools, own = _tools(cwd, named)
    code = exits.USAGE if own.broken else exits.OK
    if json:
        for tool in tools.values():
            out_json(json_format.dumps(_facts(tool, own.origins), ensure_ascii=False))
        return code
    heads = (
        TableColumn(title="TOOL"),
        TableColumn(title="EFFECT", rank=1),
        TableColumn(title="RISK", rank=2),
        TableColumn(title="WHAT IT DOES", flexible=True),
    )
    rows = [
        [
            (tool.name, "bold"),
            (tool.effect, ""),
            (tool.risk, STYLES[tool.risk]),
            (one_line(tool.description.partition("\n")[0]), ""),
        ]
        for tool in tools.values()
    ]
    print_table(heads, rows, sys.stdout)
    return code


@app.command("show")
def show_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    named: o.Tools = None,
    cwd: o.Cwd = None,
    json: o.Json = False,
) -> int:
    """Show one tool as a model sees it: description and arguments.

    \b
    Examples:
      retinue tools show grep
      retinue tools show bash --json
    """
    from retinue.errors import ConfigError
    from retinue.view.paint import out, out_json, put

    tools, own = _tools(cwd, named)
    by_alias = {alias: tool for tool in tools.values() for alias in tool.aliases}
    tool = tools.get(name) or by_alias.get(name)
    if tool is None:
        near = get_close_matches(name.lower(), tools, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "'retinue tools list' shows them"
        raise ConfigError(f"there is no tool {name!r}", fix=hint)
    if json:
        out_json(json_format.dumps(_facts(tool, own.origins), ensure_ascii=False, indent=2))
        return exits.OK
    put(
        [[(tool.name, "bold"), (f"  {tool.effect}, risk ", "dim"), (tool.risk, STYLES[tool.risk])]],
        sys.stdout,
    )
    out(_offered(tool.name, own.origins))
    if tool.aliases:
        out(f"also called {', '.join(tool.aliases)}")
    out(f"\n{tool.description.strip()}\n")
    for line in _arguments(tool):
        out(line)
    return exits.OK


def _broken(file: ToolFile) -> str:
    from retinue.errors import ConfigError

    try:
        file.compiled()
    except ConfigError as error:
        return str(error)
    return ""


@app.command("trust")
def trust_tools(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files of tools; without, all that are new or have changed."),
    ] = None,
    cwd: o.Cwd = None,
) -> int:
    """Let files of .retinue/tools be loaded as they are now, because you wrote or read them.

    Their code runs with all of your rights. One that is changed later asks again. Nothing else of a project
    is trusted by this.

    \b
    Examples:
      retinue tools trust
      retinue tools trust .retinue/tools/census.py
    """
    import os

    from retinue.errors import ConfigError
    from retinue.kept_files import kept_here
    from retinue.settings.files import read_user_file
    from retinue.tool_files import FOLDER, find_tool_files, trust_file
    from retinue.view.paint import note

    folder = (cwd or Path()).absolute()
    found = find_tool_files(folder, read_user_file().trusted, kept=kept_here(folder))
    named = {os.path.realpath(folder / file): file for file in files or ()}
    known = {os.path.realpath(file.path) for file in found}
    for path, file in named.items():
        if path not in known:
            raise ConfigError(f"{file} is no file of tools", fix=f"they are in {FOLDER}, here or at home")
    chosen = [file for file in found if not named or os.path.realpath(file.path) in named]
    code = exits.OK
    for file in chosen:
        if file.state == "trusted":
            note(f"{file.path} is trusted already", "dim")
        elif why := _broken(file):
            note(f"! {why}", "red")
            code = exits.USAGE
        else:
            trust_file(file)
            note(f"{file.path} is trusted as it is now: {', '.join(file.names) or 'no tools'}", "green")
    if not chosen:
        note(f"there are no files in {FOLDER}, here or at home", "dim")
    return code


def _arguments(tool: Tool) -> list[str]:
    """The arguments, one each: name, type, whether it must be given, what it is."""
    required = set(tool.schema.get("required", ()))
    lines = ["Arguments"]
    for name, field in tool.schema.get("properties", {}).items():
        kind = field.get("type") or " or ".join(
            str(one.get("type", "?")) for one in field.get("anyOf", ({},))
        )
        default = "" if name in required else f", default {json_format.dumps(field.get('default'))}"
        said = f": {field['description']}" if field.get("description") else ""
        lines.append(f"  {name} ({kind}{default}){said}")
    return lines if len(lines) > 1 else ["No arguments"]


def _facts(tool: Tool, origins: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "effect": tool.effect,
        "risk": tool.risk,
        "repeatable": tool.repeatable,
        "aliases": list(tool.aliases),
        "offered": _offered(tool.name, origins),
        "schema": tool.schema,
    }
