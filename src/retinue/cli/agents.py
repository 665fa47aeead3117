"""`retinue agents`: what agents there are, what they are, and new ones."""

from __future__ import annotations

import errno
import json as json_format
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.definitions import print_definitions, print_findings, print_head
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.agents import Catalogue, Finding
    from retinue.agents.loader import LoadedAgent
    from retinue.app import Retinue
    from retinue.types import AgentSpec
    from retinue.view.paint import Span

app = new_group(
    "The agents there are, and your own.",
    (
        "agents list",
        "agents show code-review",
        "agents new release-notes",
        "agents check .retinue/agents",
    ),
)


def _catalogue(cwd: Path | None) -> Catalogue:
    from retinue.agents import load_agents
    from retinue.kept_files import kept_here
    from retinue.settings.files import read_user_file

    trusted, here = read_user_file().trusted, (cwd or Path()).absolute()
    return load_agents(here, trusted=trusted, kept=kept_here(here))


@app.command("list")
def list_agents(cwd: o.Cwd = None, json: o.Json = False) -> int:
    """List the agents of this folder, your own, and the built-in ones.

    \b
    Examples:
      retinue agents list
      retinue agents list --json | jq -r .name
    """
    from retinue.view.paint import out_json
    from retinue.view.table import TableColumn
    from retinue.view.words import one_line

    catalogue = _catalogue(cwd)
    problems = _unusable((cwd or Path()).absolute(), catalogue)
    unusable = {problem.file: problem for problem in reversed(problems)}
    if json:
        for loaded in catalogue.agents.values():
            found = unusable.get(str(loaded.path))
            facts = _facts(loaded) | {"problem": found and str(found)}
            out_json(json_format.dumps(facts, ensure_ascii=False))
        return exits.OK
    heads = (
        TableColumn(title="AGENT"),
        TableColumn(title="FROM", rank=2),
        TableColumn(title="TURNS", right=True, rank=1),
        TableColumn(title="WHEN TO USE IT", flexible=True),
    )
    rows = [
        [
            _name(loaded, unusable=str(loaded.path) in unusable),
            (loaded.scope, "dim"),
            (str(loaded.spec.max_turns or ""), "dim"),
            (one_line(loaded.spec.description), ""),
        ]
        for loaded in catalogue.agents.values()
    ]
    return print_definitions(heads, rows, problems)


def _name(loaded: LoadedAgent, *, unusable: bool) -> Span:
    from retinue.view.words import one_line

    icon = "✗ " if unusable else one_line(loaded.spec.icon, 4) or "  "
    return f"{icon} {loaded.spec.name}", "red" if unusable else "bold"


def _unusable(folder: Path, catalogue: Catalogue) -> list[Finding]:
    """Files whose agents cannot begin here, as a run finds it; as far as the settings can be read."""
    from retinue.cli.opening import with_retinue
    from retinue.cli.own_tools import tools_of
    from retinue.errors import RetinueError

    async def found(retinue: Retinue) -> list[Finding]:
        return retinue.unusable_agents()

    try:
        return with_retinue("memory:", found, folder, tools_of(folder, looking=True))
    except RetinueError:  # it is said by whatever needs them
        return list(catalogue.problems)


@app.command("show")
def show_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    cwd: o.Cwd = None,
    json: o.Json = False,
) -> int:
    """Show one agent: where it comes from, its fields and its system prompt.

    \b
    Examples:
      retinue agents show code-search
      retinue agents show code-review --json | jq -r .prompt
      retinue agents new my-review --from code-review     (a copy to start from)
    """
    from retinue.agents import render
    from retinue.view.paint import out, out_json

    loaded = _catalogue(cwd).get(name)
    if json:
        facts = _facts(loaded) | {"prompt": loaded.spec.prompt}
        out_json(json_format.dumps(facts, ensure_ascii=False, indent=2))
        return exits.OK
    print_head(loaded.scope, loaded.path, loaded.notes)
    text = render(loaded.spec).rstrip("\n")
    out(text)
    return exits.OK


def _facts(loaded: LoadedAgent) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(loaded.spec)
    del facts["prompt"]
    return facts | {"scope": loaded.scope, "path": str(loaded.path)}


@app.command("check")
def check_agents(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Files or folders; without, everything that is found here."),
    ] = None,
    cwd: o.Cwd = None,
) -> int:
    """Look agent files over and say what is wrong, unknown here, or likely not meant.

    \b
    Examples:
      retinue agents check
      retinue agents check .claude/agents/reviewer.md
    """
    from retinue.agents import field_uses
    from retinue.view.paint import note
    from retinue.view.words import clean

    folder = (cwd or Path()).absolute()
    looked_at = list(paths or ()) or own_files(folder)
    findings = findings_of(looked_at, folder)
    code = print_findings(findings, checked=len(looked_at))
    broken = {finding.file for finding in findings if finding.level == "error"}
    for each in field_uses(looked_at):
        if each.file in broken:
            continue  # of a file that cannot be used, nothing is
        note(clean(f"{each.file}: used: {', '.join(each.used) or 'nothing'}"), "dim")
        for name, why in each.unused.items():
            note(clean(f"  not used: {name}: {why}"), "dim")
    return code


def _lacks(folder: Path) -> Callable[[AgentSpec], Mapping[str, str]]:
    """Which settings of an agent its model does not have, as things are set here."""
    from retinue.assembly import Models
    from retinue.errors import ConfigError
    from retinue.models.base import lacking
    from retinue.settings import load

    settings = load(cwd=folder).settings
    models = Models(settings, environ=os.environ, given=None, given_small=None)

    def lacks(spec: AgentSpec) -> Mapping[str, str]:
        try:
            return lacking(models.of(settings, spec.model, None), spec.asks_with)
        except ConfigError:
            return {}  # a model that cannot be had is told when it is asked

    return lacks


def own_files(folder: Path) -> list[Path]:
    """The agent files a person can change: those of the project and of the home folder."""
    from retinue.agents.loader import files_in, places

    problems: list[Finding] = []
    return [
        file for place in places(folder) if place.scope != "builtin" for file in files_in(place, problems)
    ]


def findings_of(looked_at: list[Path], folder: Path) -> list[Finding]:
    """With what a run here could have, and why it could not have the rest."""
    from retinue.agents import check
    from retinue.cli.opening import with_retinue
    from retinue.cli.own_tools import tools_of
    from retinue.delegate import Policy

    own = tools_of(folder, looking=True)

    async def found(retinue: Retinue) -> list[Finding]:
        aliases = {alias for tool in retinue.tools.values() for alias in tool.aliases}
        return check(
            looked_at,
            known_tools={*retinue.tools, *aliases, *retinue.agents.agents},
            withheld=own.withheld,
            lacks=_lacks(folder),
            missing=partial(retinue.services.missing_for, retinue.settings),
            agents=retinue.agents.agents,
            nested=Policy.of(retinue.settings.delegation).offers(1, as_tool=True),
        )

    return with_retinue("memory:", found, folder, own)


def _write(path: Path, text: str, *, base: Path | None) -> None:
    """Write a file. In a project nothing outside it is written, whatever links came with it."""
    from retinue.errors import ConfigError
    from retinue.jail import Jail

    try:
        if base is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            return
        with Jail(base) as jail, jail.open_write(str(path.relative_to(base))) as file:
            file.write(text.encode())
    except OSError as error:
        why = "a link is in the way" if error.errno in (errno.ELOOP, errno.EXDEV) else error.strerror
        raise ConfigError(f"cannot be written: {why}", file=str(path)) from None


@app.command("new")
def new_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    user: Annotated[
        bool, typer.Option("--user", help="For you, in every project, instead of this project.")
    ] = False,
    source: Annotated[
        str | None, typer.Option("--from", metavar="AGENT", help="Begin with a copy of this agent.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    cwd: o.Cwd = None,
) -> int:
    """Write a commented agent file to start from, or a copy of another agent.

    \b
    Examples:
      retinue agents new release-notes
      retinue agents new proof-reader --user
      retinue agents new my-review --from code-review
    """
    from retinue.agents import new_agent_text
    from retinue.errors import ConfigError
    from retinue.view.paint import note, out

    catalogue = _catalogue(cwd)
    text = new_agent_text(name, catalogue.get(source).spec if source else None)
    base = Path.home() if user else (cwd or Path()).absolute()
    path = base / ".retinue" / "agents" / f"{name}.md"
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already", fix="edit it, or overwrite it with --force")
    _write(path, text, base=None if user else base)
    out(str(path))
    hidden = catalogue.agents.get(name)
    if hidden is not None and hidden.path != path:
        note(f"! from now on it replaces the {hidden.scope} agent '{name}' here", "yellow")
    note(f"edit it, then: retinue agents check {path} && retinue run {name} …", "dim")
    return exits.OK
