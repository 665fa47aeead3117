"""What trusting a folder would turn on, shown before a person says yes: for `retinue config trust`.

Two things count that do not count before: settings of its `retinue.toml`, and what its agent files ask for
that needs trust (addresses, what these are sent, how many children there are). MCP servers and files of tools
have a trust of their own, and are named as such. Nothing here changes anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from retinue.agents.fields import TRUSTED
from retinue.agents.loader import content_of, load_agents, with_agents
from retinue.agents.places import upwards
from retinue.masking import masked_text
from retinue.models import providers
from retinue.reading import real_path
from retinue.settings import Settings, trust
from retinue.settings.files import LISTS, find_project_files, read_project_file, read_user_file
from retinue.settings.tables import defaults
from retinue.settings.trusted_folders import NO_CONTENT, TrustedFolders, new_in
from retinue.tool_files import with_tool_files
from retinue.types import ModelSettings

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
HOSTS = ("web.allow_hosts", "server.host")
MODELS = ("model", "small_model")


class TurnedOnBy(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that counts once a folder is trusted: where it stands, and what it says."""

    where: str
    says: str
    new: bool = True
    """Whether it is not what was trusted before."""


class TrustTurnsOn(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    trusted: bool
    """Whether it is, now that this is printed."""
    settings: tuple[TurnedOnBy, ...]
    """All of its settings that count from then on."""
    agents: tuple[TurnedOnBy, ...]
    """What of its agent files counts from then on."""
    addresses: tuple[TurnedOnBy, ...]
    """Where work, questions or pages may go then."""
    variables: tuple[TurnedOnBy, ...]
    """Variables of the environment whose values may be sent then."""
    servers: tuple[TurnedOnBy, ...]
    """MCP servers of the folder. They start only after 'retinue mcp trust'."""


def show(news: TrustTurnsOn, *, trusted: bool, json: bool, quiet: bool) -> None:
    """For a person, or as JSON. `quiet`: to a person, nothing is news."""
    from retinue.view.paint import note, out_json

    if json:
        out_json(msgspec.json.encode(msgspec.structs.replace(news, trusted=trusted)).decode())
        return
    parts = (
        ("settings that count then", news.settings),
        ("what counts then of agent files", news.agents),
        ("addresses that may be talked to then", news.addresses),
        ("variables of yours whose values may be sent then", news.variables),
        ("MCP servers; each starts only after 'retinue mcp trust'", news.servers),
    )
    for title, found in () if quiet else parts:
        if found:
            note(f"{title}:")
        for each in found:
            note(f"  {'' if each.new else '(as before) '}{each.where}: {each.says}")
    if not quiet and not any(found for _, found in parts):
        note("it asks for no more than any folder may have", "dim")


def turned_on(folder: Path) -> TrustTurnsOn:
    """What counts once this folder is trusted and does not count now."""
    found = _left_out(folder)
    fresh = new_in(read_user_file().trusted.content(folder), found, found)
    settings = [TurnedOnBy(where=name, says=_text(value), new=name in fresh) for name, value in found.items()]
    agents = list(_of_agents(folder))
    servers, given = _servers(folder)
    addresses = [
        TurnedOnBy(where=name, says=says) for name, value in found.items() for says in _addresses(name, value)
    ]
    addresses += [each for each in (*agents, *servers) if _ADDRESS.search(each.says)]
    return TrustTurnsOn(
        folder=str(folder),
        trusted=False,
        settings=tuple(settings),
        agents=tuple(agents),
        addresses=tuple(addresses),
        variables=(*_variables(found), *given),
        servers=tuple(servers),
    )


def nearest_to(start: Path) -> Path | None:
    """The nearest folder that has something to be trusted, up to the root of the repository."""
    files = (file.parent for file in find_project_files(start))
    able = (*with_agents(start), *with_tool_files(start), *files)
    return max((Path(real_path(each)) for each in able), key=lambda each: len(each.parts), default=None)


def up_to_nearest(start: Path) -> Iterator[Path]:
    """A folder and those above it, up to the nearest that has something to be trusted; where none has, up to
    the root of the repository. Of a folder that is gone, only itself."""
    if not start.is_dir():
        yield start
        return
    nearest, real = nearest_to(start), Path(real_path(start))
    if nearest is None:
        yield from (real, *upwards(real))
        return
    for each in (real, *real.parents):
        yield each
        if each == nearest:
            return


def _left_out(folder: Path) -> dict[str, Any]:
    """The settings of its own file that a folder which is not trusted may not make."""
    file = next((file for file in find_project_files(folder) if file.parent == folder), None)
    if file is None:
        return {}
    read = read_project_file(file)
    values = {name: value for name, value in read.values.items() if name not in LISTS}
    return {name: values[name] for name in trust.narrowed(values, _now())[1]} if read.own else {}


def _now() -> Mapping[str, Any]:
    return {**defaults(), **read_user_file().values}


def _of_agents(folder: Path) -> Iterator[TurnedOnBy]:
    """What an agent has of its file only where that is trusted, field by field."""
    known = read_user_file().trusted.content(folder) or NO_CONTENT
    before = load_agents(folder, trusted=TrustedFolders()).agents
    for name, loaded in load_agents(
        folder, trusted=TrustedFolders().adding(folder, content_of(folder))
    ).agents.items():
        was = before.get(name)
        if was is None or loaded.asked is None:
            continue
        file, digest = loaded.asked
        for each in TRUSTED:
            value, unasked = getattr(loaded.spec, each), getattr(was.spec, each)
            if isinstance(value, ModelSettings):
                value, unasked = _more(value, was.spec.model_settings), {}
            if value != unasked:
                where = f"{loaded.path}: {each}"
                yield TurnedOnBy(where=where, says=_text(value), new=known.agents.get(file) != digest)


def _more(given: ModelSettings, without: ModelSettings) -> dict[str, Any]:
    return {each: getattr(given, each) for each in given.given if each not in without.given}


def _servers(folder: Path) -> tuple[list[TurnedOnBy], list[TurnedOnBy]]:
    """The MCP servers of the folder, and the variables that they are given."""
    from retinue.mcp.config import of_project

    found = [each for each in of_project(folder) if each.folder == folder]
    servers = [TurnedOnBy(where=f"MCP server {each.name}", says=each.command_line) for each in found]
    given = [TurnedOnBy(where=f"MCP server {each.name}", says=name) for each in found for name in each.needs]
    return servers, given


def _addresses(name: str, value: Any) -> Iterator[str]:
    for text in _texts(value):
        if name in HOSTS:
            yield text
        else:
            yield from (masked_text(each) for each in _ADDRESS.findall(text))


def _variables(found: Mapping[str, Any]) -> Iterator[TurnedOnBy]:
    for name, value in found.items():
        tables = cast("dict[str, dict[str, Any]]", value) if name == "providers" else {}
        for provider, table in tables.items():
            for variable in _texts(table.get("key_env")):
                yield TurnedOnBy(where=f"providers.{provider}.key_env", says=variable)
        if name in MODELS:
            yield from (TurnedOnBy(where=name, says=variable) for variable in _keys(str(value)))
        for text in _texts(value):
            yield from (TurnedOnBy(where=name, says=each) for each in _VARIABLE.findall(text))


def _keys(model: str) -> Iterator[str]:
    """The variables that hold the keys of a model's providers, where these are known ones."""
    for name in sorted(providers.providers_of(model)):
        provider = providers.find(name, settings=Settings(), environ={})
        yield from () if provider is None else provider.key_env


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in cast("Mapping[str, Any]", value).values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            yield from _texts(each)


def _text(value: Any) -> str:
    return masked_text(value if isinstance(value, str) else msgspec.json.encode(value).decode())
