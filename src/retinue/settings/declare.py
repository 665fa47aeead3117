"""What a setting says about itself: the one place where its type, bounds, meaning and trust are declared.

A setting is a field of a table (`tables`), annotated with `Says`. Files, environment, command line, page,
docs and the rules of trust all read it from here through `Setting`; none keeps a list of its own.
"""

from __future__ import annotations

import contextlib
import json
import math
import tomllib
import types
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from retinue.errors import ConfigError
from retinue.types import seconds_of

CHAIN = {"chain": True}
"""What the type of a setting is marked with that names one thing, or several with commas or as a list."""
SECONDS = {"unit": "seconds"}
"""What the type of a setting is marked with whose numbers are seconds."""
Trust = Literal["trusted", "adds", "shorter", "ceiling", "switch", "free"]
"""What a value may do that comes from somebody who is not trusted. `trusted`: it does not count, whatever it
is. `adds`: a list that comes on top. `shorter`: a list of which a part may be taken. `ceiling`: a limit that
may be lower. `switch`: values from narrow to wide, in the order of the type. `free`: it counts."""


@dataclass(frozen=True, slots=True)
class Says:
    """What a setting is for, and who may set it where."""

    about: str
    trust: Trust
    auto: float | tuple[str, ...] | None = None
    """What `auto` comes to where it comes to least: anything up to here is narrower for certain."""
    approver: bool = False
    """Whoever may approve calls may change it on the page; else an admin."""
    per_run: bool = False
    """It may be given for one run."""
    any_client: bool = False
    """Either value is as good to a client: given for one run, it widens nothing."""
    restart: bool = False
    """A change counts after a restart of the server."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A table of settings, as people are shown it. `docs` is Markdown for the reference."""

    title: str
    about: str
    docs: str


class SettingsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of settings. Whoever makes one in code is told of a wrong value at once."""

    group: ClassVar[Group]

    def __post_init__(self) -> None:
        known = fields(type(self))
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name not in known:
                msgspec.structs.force_setattr(self, name, self._table(name, value))
            elif value is not known[name].default:
                try:
                    fitting = known[name].convert(value)
                except ValueError as error:
                    raise ConfigError(f"{type(self).__name__}.{name} = {value!r}: {error}") from None
                msgspec.structs.force_setattr(self, name, fitting)

    def _table(self, name: str, value: Any) -> SettingsTable:
        """A table inside this one, which may be given as a dictionary."""
        usual: SettingsTable = _defaults(type(self))[name]
        kind = type(usual)
        if isinstance(value, kind):
            return value
        try:
            return kind(**value)
        except TypeError as error:
            raise ConfigError(f"{type(self).__name__}.{name} = {value!r}: {error}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One setting. `type` has its bounds."""

    name: str
    type: Any
    default: Any
    says: Says

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return "RETINUE_" + self.name.replace(".", "_").upper()

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types it may be of, without their bounds."""
        bare = _bare(self.type)
        return tuple(map(_bare, get_args(bare))) if _is_union(bare) else (bare,)

    @property
    def seconds(self) -> bool:
        """Whether its numbers are seconds, so that text may give them another unit."""
        return SECONDS in _extras(self.type)

    def _words(self) -> tuple[Any, ...]:
        """The words it may be instead of a list, a number or whatever else it is."""
        literals = (get_args(kind) for kind in self.kinds if get_origin(kind) is Literal)
        return tuple(word for words in literals for word in words)

    def choices(self) -> tuple[str, ...]:
        """What may be written for it, as far as that is a matter of a few words."""
        switch = ("true", "false") if bool in self.kinds else ()
        return (*switch, *map(str, self._words()))

    def _has(self, container: type[Any]) -> bool:
        return any(get_origin(kind) is container for kind in self.kinds)

    def convert(self, value: Any) -> Any:
        """The value as it is used. Raises `ValueError` that says what it must be."""
        found = self._converted(value)
        if isinstance(found, float) and not math.isfinite(found):
            raise ValueError(f"must be {self.in_words()}, and finite")
        return found

    def _converted(self, value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"must be {self.in_words()}")
        if isinstance(value, list) and value in ([word] for word in self._words()):
            value = cast("list[Any]", value)[
                0
            ]  # a word in the place of a list, from where only lists are written
        if isinstance(value, list | tuple) and CHAIN in _extras(self.type):
            several = cast("list[Any]", value)
            if several and all(isinstance(each, str) for each in several):
                return self.convert(",".join(several))
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            detail = f": {error}" if self._has(dict) else ""
        with contextlib.suppress(msgspec.ValidationError):
            if isinstance(value, str):  # a number or a switch in quotes
                return msgspec.convert(value, self.type, strict=False)
        with contextlib.suppress(ValueError):  # what does not fit is one too
            if isinstance(value, str) and self.seconds:
                return msgspec.convert(seconds_of(value, self.name), self.type)
        units = ", or like 30s, 10m or 2h" if self.seconds else ""
        raise ValueError(f"must be {self.in_words()}{units}{detail}")

    def parse(self, text: str) -> Any:
        """A value written as text: TOML or JSON where it is that, commas for lists, else the text itself."""
        kinds = self.kinds
        if text.lower() == "none" and type(None) in kinds:
            return None
        if self._has(tuple) and not text.lstrip().startswith("["):
            return [part.strip() for part in text.split(",") if part.strip()]
        if str in kinds:
            return text
        with contextlib.suppress(tomllib.TOMLDecodeError):
            return tomllib.loads(f"value = {text}")["value"]
        with contextlib.suppress(ValueError):
            return json.loads(text)
        return text

    def in_words(self) -> str:
        """Its type and bounds: `whole number ≥ 1`, `'flat' or 'nested'`."""
        return _in_words(self.type)

    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        return json.loads(msgspec.json.encode(msgspec.json.schema(self.type)))  # lists, and no tuples


def fields(table: type[Struct]) -> dict[str, Setting]:
    """The settings of one table, by their names in it. Tables inside a table are none."""
    found = _fields.get(table)
    if found is None:
        found = _fields[table] = {
            name: Setting(name=name, type=_unsaid(hint), default=defaults.get(name, REQUIRED), says=says)
            for defaults in (_defaults(table),)
            for name, hint in get_type_hints(table, include_extras=True).items()
            if (says := _says(hint)) is not None
        }
    return found


_fields: dict[type[Struct], dict[str, Setting]] = {}
REQUIRED: Any = msgspec.NODEFAULT


@lru_cache
def _defaults(table: type[Struct]) -> dict[str, Any]:
    return {
        one.name: one.default_factory() if one.default_factory is not msgspec.NODEFAULT else one.default
        for one in msgspec.structs.fields(table)
    }


def _says(hint: Any) -> Says | None:
    return next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Says)), None)


def _unsaid(hint: Any) -> Any:
    """The type with its bounds alone."""
    made: Any = get_args(hint)[0]
    for bound in hint.__metadata__:
        if isinstance(bound, Meta):
            made = Annotated[made, bound]
    return made


def _extras(hint: Any) -> list[Any]:
    """The marks of a type and of those that it is made of."""
    own = [one.extra for one in getattr(hint, "__metadata__", ()) if isinstance(one, Meta)]
    bare = _bare(hint)
    inside = [bare] if bare is not hint else list(get_args(bare)) if _is_union(bare) else []
    return own + [extra for part in inside for extra in _extras(part)]


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def _is_union(hint: Any) -> bool:
    origin = get_origin(hint)
    return (
        isinstance(hint, types.UnionType)
        or getattr(origin, "__name__", "") == "Union"
        or str(origin) == ("typing.Union")
    )


def _in_words(hint: Any) -> str:
    bounds = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Meta)]
    hint = _bare(hint)
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        said = " or ".join(f"`{one}`" for one in arguments)
    elif get_origin(hint) is tuple:
        said = f"list of {_in_words(arguments[0])}"
    elif get_origin(hint) is dict or (isinstance(hint, type) and issubclass(hint, Struct)):
        said = "table"
    elif _is_union(hint):
        said = " or ".join(map(_in_words, arguments))
    else:
        said = _WORDS[hint]
    for bound in bounds:
        low = (
            f" ≥ {bound.ge:g}" if bound.ge is not None else f" > {bound.gt:g}" if bound.gt is not None else ""
        )
        said += low + (f", ≤ {bound.le:g}" if bound.le is not None else "")
    return said


_WORDS = cast(
    "dict[Any, str]",
    {type(None): "none", str: "text", bool: "true or false", int: "whole number", float: "number"},
)
