"""What a function's parameters are to a model: a JSON schema, and a reader of the arguments it writes.

Called by `base` for every tool. Everything is derived from the function at hand: its own hints, its own
defaults, its own docstring. Two functions written in one place may differ in all of them, so no function is
ever known by where it was written. Making a schema takes about a millisecond, so equal ones are made once;
`_Content` says what equal is.

A parameter that a `functools.partial` has bound is the program's: no model sees or sets it.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from retinue.errors import ToolError
from retinue.types import JsonSchema

Function = Callable[..., Any]
Parse = Callable[[str], dict[str, Any]]
REMEMBERED = 1024
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """`context` is the parameter that the loop hands in; `by_position` are those that have no other way."""

    schema: JsonSchema
    parse: Parse
    context: str | None = None
    by_position: tuple[str, ...] = ()
    wants: Any = None
    """The type of what a program hands its tools, by the hint `ToolContext[TYPE]`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parameter:
    name: str
    hint: Any
    default: Any
    about: str | None


def signature_of(function: Function, name: str, context: type) -> tuple[str, Signature]:
    """The description of a tool of this name, and its signature. `context`: what the loop hands in.

    Raises `TypeError` for a function that cannot be a tool, and says why.
    """
    key = _own_key(function, name)
    if key is None:
        text, described = _docstring(function)
        return text, _signature(function, name, described, context)
    if key not in _own:
        text, described = _docstring(function)
        _own[key] = text, _signature(function, name, described, context)
    return _own[key]


_own: dict[tuple[Any, ...], tuple[str, Signature]] = {}
"""Of the tools of this package, which are made anew for every run: as many as are written."""


def _own_key(function: Function, name: str) -> tuple[Any, ...] | None:
    """All that the signature of one of our own functions depends on; None for everybody else's.

    In this package a hint names a type of its module, which is the same one for good.
    """
    if not isinstance(function, types.FunctionType):
        return None
    if not str(function.__globals__.get("__name__")).startswith("retinue."):
        return None
    values = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    hints = tuple(function.__annotations__.items())
    if hasattr(function, "__wrapped__") or not all(type(hint) is str for _, hint in hints):
        return None
    try:
        plain = tuple(_plain_value(value) for value in values)
    except _NotPlain:
        return None
    return (function.__code__, name, function.__doc__, plain, hints)


def _docstring(function: Function) -> tuple[str, dict[str, str]]:
    """The description, and what it says of each parameter under `Args:`."""
    called = _called(function)
    doc = inspect.getdoc(called) or inspect.getdoc(getattr(called, "__self__", called)) or ""
    text, _, rest = doc.partition("\nArgs:\n")
    described: dict[str, str] = {}
    if rest:
        block = textwrap.dedent(re.split(r"\n(?=\S)", rest, maxsplit=1)[0])
        for match in re.finditer(r"(?m)^(\w+):[ ]*((?:.*)(?:\n[ ]+.*)*)", block):
            described[match[1]] = " ".join(match[2].split())
    return text, described


def _called(function: Function) -> Function:
    """What is called in the end: the function of a partial, the method of an object that can be called."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    is_object = not inspect.isroutine(function) and not hasattr(function, "__wrapped__")
    return function.__call__ if is_object else function


def _without_bound(function: Function) -> tuple[Function, frozenset[str]]:
    """What a model may fill in: a function with all that any partial around it has bound, and the names.

    Partials stay one in another where they carry attributes, and `__wrapped__` leads past what they bind.
    """

    def is_partial(each: Any) -> bool:
        return isinstance(each, partial)

    inner: Any = inspect.unwrap(function, stop=is_partial)
    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while isinstance(inner, partial):
        one = cast("partial[Any]", inner)
        args, keywords = (*one.args, *args), {**one.keywords, **keywords}
        inner = inspect.unwrap(one.func, stop=is_partial)
    return (partial(inner, *args, **keywords) if args or keywords else inner), frozenset(keywords)


def _signature(function: Function, name: str, described: Mapping[str, str], context: type) -> Signature:
    function, bound = _without_bound(function)
    hints = _hints(_called(function), name)
    parameters: list[_Parameter] = []
    context_name: str | None = None
    by_position: list[str] = []
    wants: Any = None
    for each in inspect.signature(cast("Any", function)).parameters.values():
        if each.name in bound:
            continue
        if each.name not in hints:
            raise TypeError(f"{name}: parameter {each.name!r} needs a type hint to be a tool's")
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise TypeError(f"{name}: '{each}' cannot be a tool's: a model names what it fills in")
        if each.kind == each.POSITIONAL_ONLY:
            by_position.append(each.name)
        if hints[each.name] is context or get_origin(hints[each.name]) is context:
            context_name = each.name
            wants = next(iter(get_args(hints[each.name])), None)
            continue
        about = described.get(each.name)
        parameters.append(
            _Parameter(name=each.name, hint=hints[each.name], default=each.default, about=about)
        )
    schema, parse = _schema_and_parser(name, tuple(parameters))
    return Signature(
        schema=schema, parse=parse, context=context_name, by_position=tuple(by_position), wants=wants
    )


def _hints(function: Function, name: str) -> dict[str, Any]:
    """Every hint, resolved where the function was written: in its module, and in what it closes over."""
    inner = inspect.unwrap(function)
    around: dict[str, Any] = {}
    variables = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    for variable, cell in zip(variables, getattr(inner, "__closure__", None) or (), strict=False):
        try:
            around[variable] = cell.cell_contents
        except ValueError:
            continue  # not set yet
    try:
        return get_type_hints(function, localns=around or None, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{name}: a type hint cannot be resolved ({error}): name a type of the module, "
            "or write the hint without quotes and without 'from __future__ import annotations'"
        ) from None


# ── equal ones are made once ────────────────────────────────────────────────────────────────────────────


class _NotPlain(Exception):
    """Something that may look equal to another and be another."""


class _Content:
    """A tool's name and parameters, but for the values of their defaults. Equal are those whose schemas and
    readers are."""

    __slots__ = ("key", "name", "parameters")

    def __init__(self, name: str, parameters: tuple[_Parameter, ...]) -> None:
        self.name = name
        self.key = (
            name,
            tuple((p.name, _plain_hint(p.hint), p.default is _EMPTY, p.about) for p in parameters),
        )
        self.parameters = tuple(p if p.default is _EMPTY else replace(p, default=None) for p in parameters)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self.key == other.key


class _Same:
    """Equal to nothing but itself, whatever its class thinks of that."""

    __slots__ = ("it",)

    def __init__(self, it: object) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it


_HOLDERS = frozenset({Union, types.UnionType, list, dict, tuple, set, frozenset})


def _plain_hint(hint: Any) -> Any:
    """A hint of types alone. A class is known by itself, not by its name."""
    origin = get_origin(hint)
    if origin is Literal:
        return (Literal, *map(_plain_value, get_args(hint)))
    if origin is not None and origin in _HOLDERS:
        return (origin, *map(_plain_hint, get_args(hint)))
    if hint is Any or hint is ... or hint is None or (origin is None and isinstance(hint, type)):
        return _Same(hint)
    raise _NotPlain


def _plain_value(value: Any) -> tuple[str, Any]:
    """With its type, since 1 equals True; and as it is written, since 0.0 equals -0.0."""
    if type(value) not in (str, int, float, bool, type(None)):
        raise _NotPlain
    return type(value).__name__, repr(value)


def _schema_and_parser(name: str, parameters: tuple[_Parameter, ...]) -> tuple[JsonSchema, Parse]:
    defaults = {each.name: each.default for each in parameters if each.default is not _EMPTY}
    try:
        for value in defaults.values():
            _plain_value(value)
        schema, validate = _remembered(_Content(name, parameters))
    except _NotPlain:
        schema, validate = _made(name, parameters)
        return schema, lambda raw: validate(raw)[0]
    schema = _tidy(schema)  # a copy: whoever changes theirs must not change another's
    for each, value in defaults.items():
        schema["properties"][each]["default"] = value

    def parse(raw: str) -> dict[str, Any]:
        found, given = validate(raw)
        return {each: value if each in given else defaults.get(each, value) for each, value in found.items()}

    return schema, parse


Validate = Callable[[str], tuple[dict[str, Any], set[str]]]
"""The arguments with the defaults of those that are missing, and the names of those that were given."""


@lru_cache(maxsize=REMEMBERED)
def _remembered(content: _Content) -> tuple[JsonSchema, Validate]:
    return _made(content.name, content.parameters)


def _made(name: str, parameters: Sequence[_Parameter]) -> tuple[JsonSchema, Validate]:
    from pydantic import ConfigDict, Field, ValidationError, create_model
    from pydantic.fields import FieldInfo

    fields: dict[str, Any] = {}
    for each in parameters:
        default: Any = ... if each.default is _EMPTY else each.default
        described = default if isinstance(default, FieldInfo) else Field(default, description=each.about)
        fields[each.name] = (each.hint, described)
    model = create_model(name, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
    names = tuple(fields)

    def validate(raw: str) -> tuple[dict[str, Any], set[str]]:
        try:
            checked = model.model_validate(parse_object(raw))
        except ValidationError as error:
            parts = [
                f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg'].removeprefix('Value error, ')}"
                for e in error.errors()
            ]
            raise ToolError(f"invalid arguments for {name}: " + "; ".join(parts)) from None
        return {each: getattr(checked, each) for each in names}, checked.model_fields_set

    return _tidy(model.model_json_schema()), validate


def _tidy(schema: Any) -> Any:
    """Drop the generated titles: they only cost tokens."""
    if isinstance(schema, dict):
        items = cast("dict[str, Any]", schema).items()
        return {k: _tidy(v) for k, v in items if not (k == "title" and isinstance(v, str))}
    if isinstance(schema, list):
        return [_tidy(item) for item in cast("list[Any]", schema)]
    return schema


MOST_LEVELS = 100
"""How deep arguments may be nested: what reads them, shows them or checks them may go down by itself."""
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def is_deeper(raw: str, most: int) -> bool:
    """Whether a text in JSON is nested deeper than this, found without going down itself."""
    if raw.count("[") + raw.count("{") <= most:
        return False
    level = 0
    for sign in re.findall(r"[\[\]{}]", _STRINGS.sub("", raw)):
        level += 1 if sign in "[{" else -1
        if level > most:
            return True
    return False


def parse_object(raw: str) -> dict[str, Any]:
    """The arguments a model wrote, as an object, or a `ToolError` that says what is wrong with them."""
    if not raw.strip():
        return {}
    if is_deeper(raw, MOST_LEVELS):
        raise ToolError(
            f"the arguments are nested too deep: more than {MOST_LEVELS} levels deep. Send one flat object."
        )
    try:
        value: Any = json.loads(raw)
    except json.JSONDecodeError as error:
        raise ToolError(
            f"the arguments are not valid JSON ({error.msg} at character {error.pos}): {raw[:200]!r}. "
            "Send one JSON object."
        ) from None
    if not isinstance(value, dict):
        raise ToolError(f"the arguments must be one JSON object, not {type(value).__name__}")
    return cast("dict[str, Any]", value)
