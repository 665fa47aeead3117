"""`retinue config`: every setting, where its value came from, and changing it.

Values are checked before anything is written, and what else stands in the file stays as it is, comments
included. Keys of providers are no settings: they come from the environment alone.
"""

from __future__ import annotations

import contextlib
import json as json_format
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.settings import LoadedSettings
    from retinue.settings.toml_file import TomlFile

app = new_group(
    "Every setting, where its value came from, and changing it.",
    (
        "config list limits",
        "config get model",
        "config set limits.max_cost 2.50",
        "config trust",
    ),
)

LONGEST_VALUE = 32
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A setting, e.g. limits.max_turns.", show_default=False)
]
Project = Annotated[
    bool, typer.Option("--project", help="In this project's retinue.toml, not in your own file.")
]


def _loaded(cwd: Path | None) -> LoadedSettings:
    from retinue import settings

    return settings.load(cwd=(cwd or Path()).absolute())


def _loaded_if_possible(cwd: Path | None) -> LoadedSettings:
    """What is set, or the defaults where a file is broken: `set` must be able to mend it."""
    from retinue import settings
    from retinue.errors import ConfigError

    try:
        return _loaded(cwd)
    except ConfigError:
        return settings.LoadedSettings(settings=settings.Settings())


@app.command("list")
def list_settings(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One setting or section.", show_default=False)
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    cwd: o.Cwd = None,
    json: o.Json = False,
) -> int:
    """List every setting, its value and where it came from; with a name, also what it may be.

    \b
    Examples:
      retinue config list
      retinue config list limits
      retinue config list --changed
    """
    from retinue import settings
    from retinue.view.paint import cut, note, out_json
    from retinue.view.table import TableColumn, print_table

    loaded = _loaded(cwd)
    values = settings.values_of(loaded.settings)
    rows: list[Any] = []
    # One long value must not push the other columns off the screen; `get` and a name show it whole.
    most = LONGEST_VALUE if name is None and sys.stdout.isatty() else sys.maxsize
    wanted = _named(name) if name is not None else list(settings.declared())
    for each in wanted:
        field = settings.declared()[each]
        origin = loaded.origins.get(each, "default")
        if changed and origin == "default":
            continue
        if json:
            facts = {"name": each, "value": values.get(each), "origin": origin}
            facts |= {"allowed": field.in_words(), "about": field.says.about}
            out_json(json_format.dumps(facts, ensure_ascii=False))
            continue
        style = "dim" if origin == "default" else "bold"
        rows.append(
            [
                (each, style),
                (cut(_shown(values.get(each)), most), style),
                (_short(origin), "dim"),
                *([(field.in_words().replace("`", ""), "")] if name is not None else []),
                (field.says.about, "dim"),
            ]
        )
    if rows:
        heads = (
            TableColumn(title="SETTING"),
            TableColumn(title="VALUE"),
            TableColumn(title="FROM", rank=1),
            *([TableColumn(title="MAY BE")] if name is not None else []),
            TableColumn(title="ABOUT", flexible=True, rank=2),
        )
        print_table(heads, rows, sys.stdout)
    for warning in loaded.warnings:
        note(f"! {warning}", "yellow")
    return exits.OK


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json_format.dumps(value, ensure_ascii=False)


def _short(origin: str) -> str:
    home = str(Path.home())
    return "~" + origin.removeprefix(home) if origin.startswith(home + os.sep) else origin


@app.command("get")
def get_setting(name: Name, cwd: o.Cwd = None) -> int:
    """Print the value of one setting, or those of a section.

    \b
    Examples:
      retinue config get model
      retinue config get limits
    """
    from retinue import settings
    from retinue.view.paint import note, out

    wanted = _named(name)
    loaded = _loaded(cwd)
    values = settings.values_of(loaded.settings)
    if wanted != [name]:
        for each in wanted:
            out(f"{each} = {_shown(values.get(each))}")
        return exits.OK
    out(_shown(values.get(name)))
    note(f"from {loaded.origins.get(name, 'the default')}", "dim")
    return exits.OK


@app.command("set")
def set_setting(
    name: Name,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="Text, a number, true, a,b,c or TOML.", show_default=False)
    ],
    project: Project = False,
    add: Annotated[bool, typer.Option("--add", help="One more in a list, beside what is there.")] = False,
    cwd: o.Cwd = None,
) -> int:
    """Set a setting for good, in your own config.toml or in the project's retinue.toml.

    \b
    Examples:
      retinue config set model openai:gpt-6.1-sol
      retinue config set limits.max_cost 2.50
      retinue config set limits.max_turns 10 --project
      retinue config set approvals.allow "bash(git status*),bash(git diff*)"
      retinue config set approvals.allow "bash(make test)" --add
    """
    from retinue import settings
    from retinue.agents import load_agents
    from retinue.cli import values
    from retinue.errors import ConfigError
    from retinue.values_given import check_value
    from retinue.view.paint import note

    _check_name(name)
    parsed = settings.declared()[name].parse(value)
    now = _loaded_if_possible(cwd)
    here = (cwd or Path()).absolute()
    check_value(name, parsed, now.settings, lambda agent: load_agents(here).get(agent))
    with _changing(project, cwd) as file:
        if project and parsed is not None and _is_ignored(name, parsed, file.path.parent):
            raise ConfigError(
                f"{name} = {_shown(parsed)} would be ignored in {file.path}: a repository may not set it, "
                "or only to allow less",
                fix="leave out --project; or write another setting there, then 'retinue config trust'",
            )
        before = file.values().get(name)
        if add:
            parsed = _one_more(name, before, parsed)
        _put(file, name, parsed)
    note(f"{name} = {_shown(parsed)} in {file.path}", "green")
    if isinstance(before, list) and before and not add and before != parsed:
        note(f"! before it was {_shown(before)}; --add keeps what is there", "yellow")
    if name in ("approvals.allow", "approvals.ask", "approvals.deny"):
        for tool in values.unknown_tools(parsed or ()):
            meant = values.meant(tool)
            note(f"! no built-in tool is called {tool!r}" + (f"; {meant}" if meant else ""), "yellow")
    if name == "approvals.auto_risk" and parsed == "high":
        from retinue.cli.checks import ALWAYS_YES

        note(f"! {ALWAYS_YES}", "yellow")
    _say_if_hidden(name, file.path, cwd)
    return exits.OK


def _put(file: TomlFile, name: str, value: Any) -> None:
    """Set it there, or with None take it out. Raises if what the file then says cannot be read."""
    from retinue import settings
    from retinue.errors import ConfigError

    if value is None:
        file.remove(name)
        return
    there = {key: each for key, each in file.values().items() if key not in settings.LISTS}
    try:
        settings.build(
            {**there, name: value}, dict.fromkeys(there, str(file.path)) | {name: "the command line"}
        )
    except ConfigError as error:
        if error.file != "the command line":
            raise  # the file has other mistakes, and says where
        raise ConfigError(error.message, fix=f"'retinue config get {name}' shows the present value") from None
    file.put(name, value)


@app.command("unset")
def unset_setting(name: Name, project: Project = False, cwd: o.Cwd = None) -> int:
    """Take a setting out of the file again, so that the default or another file counts.

    \b
    Examples:
      retinue config unset model
    """
    from retinue.view.paint import note

    _check_name(name)
    with _changing(project, cwd) as file:
        there = file.remove(name)
    if there:
        note(f"{name} is not set in {file.path} any more", "green")
    else:
        note(f"{name} was not set in {file.path}", "dim")
    return exits.OK


@app.command("trust")
def trust_folder(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The folder; without, this one.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print what it would turn on as JSON; without --yes, only that.")
    ] = False,
) -> int:
    """Let the retinue.toml and the agent files of a folder do everything, because you wrote or read them.

    First it says what that turns on: settings, addresses, variables of the environment, and what of it is
    as you trusted it before. At a terminal it then asks.

    Otherwise what came with a repository may only narrow what agents do. It is this one folder that is
    trusted, as it is now: what changes later, by a pull or otherwise, does not count until it is trusted
    again; none inside it, none that takes its place. Of a folder that has neither, the nearest above that
    has, up to the root of the repository. 'retinue config untrust' takes it back.

    \b
    Examples:
      retinue config trust
      retinue config trust ~/work/shop
      retinue config trust --json
    """
    from retinue import settings
    from retinue.agents.loader import content_of
    from retinue.cli.trusting import show, turned_on
    from retinue.errors import ConfigError
    from retinue.settings.toml_file import change_trust
    from retinue.view.paint import note

    nearest = _to_trust(folder)
    content = content_of(nearest)
    already = settings.read_user_file().trusted.content(nearest) == content
    news = turned_on(nearest)
    if content_of(nearest) != content:
        raise ConfigError(f"{nearest} was changed while it was read", fix="try again")
    show(news, trusted=already or (json and yes), json=json, quiet=already)
    if already:
        note(f"{nearest} is trusted already", "dim")
        return exits.OK
    if (json and not yes) or not (yes or _agreed(nearest)):
        note(f"{nearest} is not trusted; --yes does that", "dim")
        return exits.OK
    change_trust(lambda trusted: trusted.adding(nearest, content))
    note(f"{nearest} is trusted as it is now; {settings.user_file()} says so", "green")
    return exits.OK


@app.command("untrust")
def untrust_folder(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The folder; without, this one.", show_default=False)
    ] = None,
) -> int:
    """Trust a folder no more: its settings only narrow again. Its tools and servers keep their own trust.

    Of a folder that has nothing to be trusted, the nearest above that has or is, up to the root of the
    repository: the one that 'retinue config trust' would trust.

    \b
    Examples:
      retinue config untrust
      retinue config untrust ~/work/shop
    """
    from retinue.cli.trusting import up_to_nearest
    from retinue.settings.toml_file import change_trust
    from retinue.view.paint import note

    start = (folder or Path()).absolute()
    for each in up_to_nearest(start):
        if change_trust(lambda trusted, each=each: trusted.without(each)):
            note(f"{each} is not trusted any more", "green")
            return exits.OK
    note(f"{start} was not trusted", "dim")
    return exits.OK


def _agreed(folder: Path) -> bool:
    """What the person at the terminal says. Where there is none, the command itself was the word."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    from retinue.cli.typed_line import agreed

    return agreed(f"Trust {folder}?")


def _to_trust(folder: Path | None) -> Path:
    from retinue.cli.trusting import nearest_to
    from retinue.errors import ConfigError

    start = (folder or Path()).absolute()
    if not start.is_dir():
        raise ConfigError(f"there is no folder {start}")
    nearest = nearest_to(start)
    if nearest is None:
        raise ConfigError(
            f"there is no retinue.toml, no agent file and no file of tools in {start} or above it",
            fix="write one first",
        )
    return nearest


@app.command("path")
def show_paths(cwd: o.Cwd = None) -> int:
    """Print where the settings are: your own file, and the project's if there is one.

    \b
    Examples:
      $EDITOR "$(retinue config path | head -1)"
    """
    from retinue import settings
    from retinue.view.paint import note, out

    user = settings.user_file()
    out(str(user))
    if not user.is_file():
        note("not there yet: 'retinue config set' writes it", "dim")
    project = settings.find_project_file((cwd or Path()).absolute())
    if project is not None:
        out(str(project))
    return exits.OK


def _one_more(name: str, before: Any, parsed: Any) -> list[Any]:
    from retinue.errors import ConfigError

    if not isinstance(parsed, list):
        raise ConfigError(f"{name} is no list: there is nothing to add to", fix="leave out --add")
    there = cast("list[Any]", before) if isinstance(before, list) else []
    return [*there, *(one for one in cast("list[Any]", parsed) if one not in there)]


def _named(name: str) -> list[str]:
    """The setting of this name, or all of the section."""
    from retinue import settings

    section = [one for one in settings.declared() if one.startswith(f"{name}.")]
    if not section:
        _check_name(name)
    return section or [name]


def _check_name(name: str) -> None:
    from retinue import settings
    from retinue.errors import ConfigError

    known = settings.declared()
    if name in known:
        return
    if "key" in name.lower() or "token" in name.lower() or "secret" in name.lower():
        raise ConfigError(
            f"{name!r} is no setting: keys are never written to a file",
            fix="set them in the environment, e.g. export OPENAI_API_KEY=…",
        )
    hint = settings.similar_setting(name, known) or "'retinue config list' shows them all"
    raise ConfigError(f"there is no setting {name!r}", fix=hint)


@contextlib.contextmanager
def _changing(project: bool, cwd: Path | None) -> Generator[TomlFile]:
    """The file to change, saved in the end."""
    from retinue import settings
    from retinue.settings.files import PROJECT_FILE
    from retinue.settings.toml_file import TomlFile, changing_own

    if not project:
        with changing_own() as file:
            yield file
        return
    folder = (cwd or Path()).absolute()
    file = TomlFile(settings.find_project_file(folder) or folder / PROJECT_FILE, of_repository=True)
    yield file
    _save(file)


def _is_ignored(name: str, value: Any, folder: Path) -> bool:
    """Whether this would not count in the `retinue.toml` of a folder, since the user does not trust it."""
    from retinue import settings
    from retinue.settings import trust

    mine = settings.read_user_file()
    now = {**settings.values_of(settings.Settings()), **mine.values}
    return not _believed(folder) and bool(trust.narrowed({name: value}, now)[1])


def _believed(folder: Path) -> bool:
    """Whether the `retinue.toml` of a folder is the one that was trusted, or none both times."""
    from retinue import settings
    from retinue.settings.files import PROJECT_FILE, read_project_file

    file = folder / PROJECT_FILE
    digest = read_project_file(file).digest if os.path.lexists(file) else ""
    return settings.read_user_file().trusted.settings(folder, digest) == "trusted"


def _save(file: TomlFile) -> None:
    """What the person changes by a command in a file that they trust is trusted too."""
    from retinue.agents.loader import content_of
    from retinue.settings.files import PROJECT_FILE
    from retinue.settings.toml_file import change_trust

    folder = file.path.parent
    believed = file.path.name == PROJECT_FILE and _believed(folder)
    file.save()
    if believed:
        now = content_of(folder)
        change_trust(lambda trusted: trusted.saying(folder, now))


def _say_if_hidden(name: str, written: Path, cwd: Path | None) -> None:
    """A value that something stronger hides, or that is not trusted, is worth a word."""
    from retinue.errors import ConfigError
    from retinue.view.paint import note

    try:
        loaded = _loaded(cwd)
    except ConfigError as error:
        note(f"! {error}", "yellow")
        return
    for warning in loaded.warnings:
        if name in warning:
            note(f"! {warning}", "yellow")
    origin = loaded.origins.get(name)
    if origin not in (None, str(written)):
        note(f"! here and now another value counts, from {origin}", "yellow")
