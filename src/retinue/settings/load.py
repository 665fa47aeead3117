"""Reads every source of settings and merges them.

Later wins: defaults, the user's `config.toml`, the project's `retinue.toml`, `RETINUE_*` in the environment,
flags.

A project file comes with the repository, so it is not trusted: it may narrow what agents do, and what would
widen it counts only in a folder that the user trusts (`retinue config trust`). `trust` says which is which.
One further up in the same repository counts for what it narrows.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue.errors import ConfigError
from retinue.masking import masked
from retinue.reading import MOST_SETTINGS, read_own, text_of
from retinue.settings import trust
from retinue.settings.files import (
    CONFIG_VARIABLE,
    LISTS,
    find_project_files,
    flatten,
    named_and_absent,
    read_project_file,
    read_user_file,
    user_file,
)
from retinue.settings.kept_rules import KEPT
from retinue.settings.tables import Settings, declared, defaults, tables
from retinue.settings.trusted_folders import TrustedFolders, TrustState, new_in

MOST_MISTAKES = 5
VARIABLES = "RETINUE_"
ALLOW = "approvals.allow"

OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "RETINUE_COMPLETE", "RETINUE_DEBUG", "RETINUE_SERVER_TOKEN"})
"""Variables of ours that are no settings."""


@dataclass(frozen=True, kw_only=True)
class LoadedSettings:
    """Settings, where each value that is not a default came from, and what was left out and why."""

    settings: Settings
    origins: dict[str, str] = field(default_factory=dict[str, str])
    """In words, all places of a value that comes from several."""
    places: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The same, place by place."""
    warnings: tuple[str, ...] = ()
    trusted: TrustedFolders = field(default_factory=TrustedFolders)
    """The folders that the user trusts."""


def load(
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    project: bool = True,
) -> LoadedSettings:
    """Read every source and merge. `flags` are dotted names to values; no `project`, no `retinue.toml`."""
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    values: dict[str, Any] = {}
    places: dict[str, tuple[str, ...]] = {}
    warnings: list[str] = []

    def add(found: Mapping[str, Any], *origin: str) -> None:
        for name, value in found.items():
            values[name] = value
            places[name] = origin

    if absent := named_and_absent():
        raise ConfigError(
            f"{CONFIG_VARIABLE} names {absent}, which is not there: none of your rules would count",
            fix=f"name the file that you mean, or {os.devnull} for none; 'retinue config set' makes one",
        )
    user = read_user_file()
    trusted = user.trusted
    add(user.values, str(user_file()))
    files = [*find_project_files(cwd)][::-1] if project else []
    for file in files:
        read = read_project_file(file)
        found = {name: value for name, value in read.values.items() if name not in LISTS}
        nearest, both = file == files[-1], dict[str, tuple[str, ...]]()
        state = trusted.settings(file.parent, read.digest)
        if not (nearest and read.own and state == "trusted"):
            new = new_in(trusted.content(file.parent), found, found)
            found, left_out = trust.narrowed(found, {**defaults(), **values})
            if nearest and left_out:
                warnings.append(_left_out(file, left_out, state, [each for each in left_out if each in new]))
            both = {name: (*places[name], str(file)) for name in trust.adding() & places.keys()}
        if not nearest:  # a file further down takes no rule and no limit away, and all else is for it to say
            found = {name: found[name] for name in found.keys() & trust.narrowing()}
        add(found, str(file))
        places.update((name, origin) for name, origin in both.items() if name in found)
    if project and (kept := user.kept.of_folder(cwd)):
        before = places.get(ALLOW, ())
        add({ALLOW: [*values.get(ALLOW, ()), *kept]}, *before, f"{KEPT} in {user_file()}")
    add(_from_environment(environ), "environment")
    warnings += _unknown_variables(environ)
    add(flags or {}, "flag")
    origins = {name: " and ".join(origin) for name, origin in places.items()}
    settings = build(values, origins)
    warnings += _without_effect(settings)
    return LoadedSettings(
        settings=settings,
        origins=origins,
        places=places,
        warnings=tuple(warnings),
        trusted=trusted,
    )


def _left_out(project: Path, names: Sequence[str], state: TrustState, new: Sequence[str]) -> str:
    folder = project.parent
    match state:
        case "replaced":
            why = f"; the folder that you trusted was another one, which was at {folder} before"
        case "changed":
            what = f"new or changed: {', '.join(new)}" if new else "none of these, but others"
            why = f"; the file has changed since you trusted it ({what})"
        case "of the folder alone":
            why = "; you trusted the folder, and trust is now of what its file says"
        case "trusted" | "unknown":
            why = ""
    return (
        f"{project}: {', '.join(names)} ignored, since a repository may narrow and not widen{why}; "
        f"'retinue config trust {shlex.quote(str(folder))}' if you wrote or read this file"
    )


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, setting in declared().items():
        raw = environ.get(setting.variable)
        if raw is not None and raw != "":
            found[name] = setting.parse(raw)
    return found


def _without_effect(settings: Settings) -> list[str]:
    """A warning for what somebody has set and does nothing beside another setting."""
    if settings.approvals.auto != "sandboxed" or settings.approvals.sandbox != "off":
        return []
    return [
        'approvals.auto = "sandboxed" does nothing while approvals.sandbox is "off": every command asks; '
        "'retinue config set approvals.sandbox project' switches the sandbox on"
    ]


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A warning for each that is no setting. No error: it may be meant for another version."""
    known = {setting.variable for setting in declared().values()} | OTHER_VARIABLES
    return [
        f"{name} in the environment is no setting and does nothing"
        + (f"; {hint}" if (hint := similar_setting(name, known)) else "")
        for name in environ
        if name.startswith(VARIABLES) and name not in known
    ]


def build(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    """Settings of dotted names to values. Raises a `ConfigError` with every mistake and its place."""
    made: dict[str, dict[str, Any]] = {}
    found: list[ConfigError] = []
    for name, value in flatten(values).items():  # a program may give a whole table
        setting = declared().get(name)
        if setting is None:
            found.append(_unknown(name, origins))
            continue
        try:
            table, _, key = name.rpartition(".")
            made.setdefault(table, {})[key] = setting.convert(value)
        except ValueError as error:
            found.append(
                ConfigError(
                    f"{name} = {masked(value)!r}: {error}",
                    **_place(name, origins),
                    fix=f"'retinue config list {name}' shows what is allowed",
                )
            )
    if found:
        some = found[:MOST_MISTAKES]
        raise some[0] if len(some) == 1 else ConfigError("; ".join(str(one) for one in some))
    whole: dict[str, Any] = made.pop("", {})
    for name, given in made.items():
        whole[name] = tables()[name](**given)
    return Settings(**whole)


def _unknown(name: str, origins: Mapping[str, str]) -> ConfigError:
    if name in tables():
        return ConfigError(f"{name} is a table of settings", **_place(name, origins), fix=f"write [{name}]")
    return ConfigError(
        f"unknown setting '{name}'",
        **_place(name, origins),
        fix=similar_setting(name, declared()) or "'retinue config list' shows every setting",
    )


def _place(name: str, origins: Mapping[str, str]) -> dict[str, Any]:
    """The file and the line that set it, or its variable. Of a flag or an argument, the name says enough."""
    origin = origins.get(name)
    if origin == "environment":
        origin = declared()[name].variable
    elif origin == "flag":
        origin = None
    return {"file": origin, "line": _line_of(name, origin) if origin else None}


def place_of(loaded: LoadedSettings, name: str, item: str) -> dict[str, Any]:
    """The file and the line with this item of a list, in the project's file if there are two; no file for
    what a program or a flag gave."""
    origin = loaded.origins.get(name, "flag")
    for file in reversed(loaded.places.get(name, (origin,))):
        place = _place(name, {name: file})
        lines = _lines_of(file) if place["line"] else []
        holding = [
            n for n, text in enumerate(lines, 1) if n >= place["line"] and json.dumps(item)[1:-1] in text
        ]
        if holding or file == origin:
            return {**place, "line": holding[0] if holding else place["line"]}
    return {"file": origin, "line": None}


def _lines_of(file: str) -> list[str]:
    try:
        return text_of(read_own(file, MOST_SETTINGS), file).splitlines()
    except OSError:
        return []


def _line_of(name: str, file: str) -> int | None:
    """The line of a file that sets this, written as `key = …` below `[table]` or as `table.key = …`."""
    lines = _lines_of(file)
    table = ""
    for number, text in enumerate(lines, 1):
        if head := re.match(r"\s*\[\s*([\w.-]+)\s*\]", text):
            table = f"{head[1]}."
        elif (key := re.match(r"\s*([\w.-]+)\s*=", text)) and f"{table}{key[1]}" == name:
            return number
    return None


def similar(name: str, known: Iterable[str]) -> str:
    """A question after the name that was probably meant, or nothing."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean '{near[0]}'?" if near else ""


def similar_setting(name: str, known: Iterable[str]) -> str:
    """The same for a setting or its variable: what all of them begin with makes none of them near."""
    names = list(known)
    if name.startswith(VARIABLES):
        bare = {each.removeprefix(VARIABLES): each for each in names}
        near = [bare[each] for each in difflib.get_close_matches(name.removeprefix(VARIABLES), bare, 1)]
    else:
        near = _near_settings(name, names)
    return f"did you mean '{near[0]}'?" if near else ""


def _near_settings(name: str, names: Sequence[str]) -> list[str]:
    table, dot, key = name.rpartition(".")
    tables = {each.rpartition(".")[0] for each in names} - {""}
    if dot and table in tables:
        keys = {each.rpartition(".")[2]: each for each in names if each.rpartition(".")[0] == table}
        return [keys[each] for each in difflib.get_close_matches(key, keys, 1)]
    if dot:
        return difflib.get_close_matches(name, names, 1, 0.75)
    whole = [each for each in names if "." not in each]
    if near := difflib.get_close_matches(name, [*whole, *sorted(tables)], 1, 0.75):
        return near
    return [each for each in names if difflib.get_close_matches(name, [each.rpartition(".")[2]], 1, 0.75)][:1]
