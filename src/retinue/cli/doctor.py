"""`retinue doctor`: looks everything over and says how to fix what is wrong."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.cli.checks import Check
    from retinue.settings import LoadedSettings

MARKS = {"ok": ("✓", "green"), "note": ("•", "yellow"), "problem": ("✗", "bold red")}


def doctor(
    cwd: o.Cwd = None,
    db: o.Db = None,
    model: o.Model = None,
    salvage_to: Annotated[
        Path | None,
        typer.Option(
            "--salvage-to", metavar="FILE", help="Copy what is readable of a damaged database there."
        ),
    ] = None,
    json: o.Json = False,
) -> int:
    """Look over models, keys, database, agents, tools and settings, and say how to fix what is wrong.

    Exits with 1 if something is broken. No key is ever shown.

    \b
    Examples:
      retinue doctor
      retinue doctor --model ollama:qwen3
      retinue doctor --salvage-to saved.db
    """
    from retinue import settings
    from retinue.cli.checks import Check
    from retinue.errors import ConfigError
    from retinue.rules_given import check_rules

    folder = (cwd or Path()).absolute()
    flags = {name: value for name, value in {"db": db, "model": model}.items() if value is not None}
    broken: list[Check] = []
    try:
        loaded = settings.load(cwd=folder, flags=flags)
        check_rules(loaded)
    except ConfigError as error:
        # The rest is worth looking at all the same, with the defaults.
        broken = [Check(group="settings", name="broken", state="problem", text=str(error))]
        loaded = settings.LoadedSettings(settings=settings.build(flags, dict.fromkeys(flags, "flag")))
    if salvage_to is not None:
        return _salvage(loaded, salvage_to)
    found = asyncio.run(_looked_over(loaded, folder))
    if broken:  # the defaults that stand in for them are nobody's settings
        found = [check for check in found if check.group != "settings"]
    checks = [*broken, *found]
    if json:
        _print_json(checks)
    else:
        _print(checks)
    return exits.FAILED if any(check.state == "problem" for check in checks) else exits.OK


async def _looked_over(loaded: LoadedSettings, folder: Path) -> list[Check]:
    from retinue.cli.checks import everything
    from retinue.view.patience import told_when_slow

    async with told_when_slow("looking everything over"):
        return await everything(loaded, folder)


def _print_json(checks: list[Check]) -> None:
    import json as json_format
    from dataclasses import asdict

    for check in checks:
        from retinue.view.paint import out_json

        out_json(json_format.dumps(asdict(check), ensure_ascii=False))


def _print(checks: list[Check]) -> None:
    from retinue.view.paint import Line, columns, put, wrap
    from retinue.view.words import clean

    width = columns(sys.stdout) if sys.stdout.isatty() else 10_000
    lines: list[Line] = []
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            lines += [*([[("", "")]] if lines else []), [(group, "bold")]]
        mark, style = MARKS[check.state]
        name = f"{check.name}  "
        first, *rest = wrap(clean(check.text), max(20, width - 4 - len(name)))
        lines.append([(f"  {mark} ", style), (name, ""), (first, "dim" if check.state == "ok" else style)])
        lines += [[(" " * (4 + len(name)) + piece, "dim")] for piece in rest]
        if check.fix:
            lines += [[("    → ", "cyan"), (piece, "cyan")] for piece in wrap(check.fix, max(20, width - 6))]
    put(lines, sys.stdout)


def _salvage(loaded: Any, target: Path) -> int:
    from retinue.cli.checks import sqlite_path
    from retinue.errors import ConfigError
    from retinue.store.connect import default_url
    from retinue.store.salvage import salvage
    from retinue.view.paint import note

    path = sqlite_path(loaded.settings.db or default_url())
    if path is None:
        raise ConfigError("only an SQLite database can be salvaged", fix="use the backups of your server")
    saved = salvage(path, target)
    note(
        f"saved {saved.runs} runs with {saved.events} events to {saved.to}; {path} is left as it is", "green"
    )
    if saved.incomplete:
        note(f"! with gaps, readable but not resumable: {', '.join(saved.incomplete[:10])}", "yellow")
    note(f"use it with: export RETINUE_DB=sqlite://{target.absolute()}", "dim")
    return exits.OK
