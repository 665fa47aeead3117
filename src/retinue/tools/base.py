"""What a tool is, and how a plain async function becomes one.

    @tool(effect="read")
    async def population(city: str, year: int = 2026) -> str:
        '''How many people live in a city.

        Args:
            city: its name, in English
            year: of the census
        '''

The schema comes from the signature, the description from the docstring. A parameter annotated with
`ToolContext` is handed in by the loop and hidden from the model. Raise `ToolError` for what the model
should read; anything else it raises becomes a tool result too, never a crash.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_type_hints, overload

from retinue.errors import ToolError
from retinue.types import Effect, JsonSchema, Risk, Source, ToolSpec, Usage
from retinue.workspace import Files

RISK_OF: dict[Effect, Risk] = {
    "read": "low",
    "network": "low",
    "delegate": "medium",
    "write": "medium",
    "spend": "high",
    "execute": "high",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What a tool gives back when text alone is not enough.

    `sources` are pages and files that were really fetched or read; `files` are paths it changed or saved;
    `usage` is what models cost that the tool itself asked.
    """

    text: str
    is_error: bool = False
    sources: tuple[Source, ...] = ()
    files: tuple[str, ...] = ()
    usage: Usage = Usage()


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """What the loop tells a tool about the call it is part of."""

    run_id: str
    root_id: str
    depth: int
    agent: str
    call_id: str
    files: Files
    progress: Callable[[str], None]
    """Show a person what is happening right now."""
    denied: Callable[[str, str], None]
    """Log an attempt at something forbidden: what, detail."""


Call = Callable[[dict[str, Any], ToolContext], Awaitable[str | ToolResult]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool. `repeatable`: running it twice does no harm, so an interrupted call is simply made again.

    `timeout` is in seconds; "default" is the setting, None means the tool bounds its own time. `preview`
    shows a person what a call would do.
    """

    name: str
    description: str
    schema: JsonSchema
    effect: Effect
    call: Call
    parse: Callable[[str], dict[str, Any]]
    repeatable: bool
    timeout: float | Literal["default"] | None = "default"
    risk: Risk = "low"
    preview: Callable[[dict[str, Any], Files], str] | None = None
    harmless: Callable[[dict[str, Any]], bool] | None = None
    """Says of a call that it needs nobody's approval although the tool does: it only looks."""
    aliases: tuple[str, ...] = field(default=())

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, schema=self.schema)


AsyncFunction = Callable[..., Awaitable[str | ToolResult]]


@overload
def tool(function: AsyncFunction) -> Tool: ...


@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "read",
    repeatable: bool | None = None,
    timeout: float | Literal["default"] | None = "default",
    risk: Risk | None = None,
    preview: Callable[[dict[str, Any], Files], str] | None = None,
    harmless: Callable[[dict[str, Any]], bool] | None = None,
    aliases: Iterable[str] = (),
) -> Callable[[AsyncFunction], Tool]: ...


def tool(
    function: AsyncFunction | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "read",
    repeatable: bool | None = None,
    timeout: float | Literal["default"] | None = "default",
    risk: Risk | None = None,
    preview: Callable[[dict[str, Any], Files], str] | None = None,
    harmless: Callable[[dict[str, Any]], bool] | None = None,
    aliases: Iterable[str] = (),
) -> Tool | Callable[[AsyncFunction], Tool]:
    """Make a tool of an async function with type hints and a docstring."""

    def make(function: AsyncFunction) -> Tool:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} must be 'async def' to be a tool")
        text, described = _docstring(function)
        schema, parse, context_name = _signature(function, described)

        async def call(arguments: dict[str, Any], context: ToolContext) -> str | ToolResult:
            if context_name is not None:
                return await function(**arguments, **{context_name: context})
            return await function(**arguments)

        return Tool(
            name=name or function.__name__,
            description=(description or text).strip(),
            schema=schema,
            effect=effect,
            call=call,
            parse=parse,
            repeatable=effect in ("read", "network") if repeatable is None else repeatable,
            timeout=timeout,
            risk=risk or RISK_OF[effect],
            preview=preview,
            harmless=harmless,
            aliases=tuple(aliases),
        )

    return make if function is None else make(function)


def tool_from_schema(
    *,
    name: str,
    description: str,
    schema: JsonSchema,
    effect: Effect,
    call: Call,
    repeatable: bool = False,
    timeout: float | Literal["default"] | None = "default",
    risk: Risk | None = None,
) -> Tool:
    """A tool whose arguments are described by a JSON schema (agents, MCP servers)."""

    def parse(raw: str) -> dict[str, Any]:
        arguments = parse_object(raw)
        problems = schema_problems(arguments, schema)
        if problems:
            raise ToolError(f"invalid arguments for {name}: " + "; ".join(problems))
        return arguments

    return Tool(
        name=name,
        description=description,
        schema=schema,
        effect=effect,
        call=call,
        parse=parse,
        repeatable=repeatable,
        timeout=timeout,
        risk=risk or RISK_OF[effect],
    )


def parse_object(raw: str) -> dict[str, Any]:
    """The arguments a model wrote, as an object, or a `ToolError` that says what is wrong with them."""
    if not raw.strip():
        return {}
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


def schema_problems(value: Any, schema: Mapping[str, Any], most: int = 5) -> list[str]:
    """What keeps a value from fitting a JSON schema, in words a model can act on."""
    from jsonschema import Draft202012Validator  # heavy: only where a schema is really checked

    errors = Draft202012Validator(dict(schema)).iter_errors(value)  # pyright: ignore[reportUnknownMemberType]
    problems: list[str] = []
    for error in errors:
        where = ".".join(str(part) for part in error.absolute_path)
        problems.append(f"{where}: {error.message}" if where else error.message)
        if len(problems) == most:
            break
    return problems


def _docstring(function: AsyncFunction) -> tuple[str, dict[str, str]]:
    """The description, and what it says of each parameter under `Args:`."""
    doc = inspect.getdoc(function) or ""
    text, _, rest = doc.partition("\nArgs:\n")
    described: dict[str, str] = {}
    if rest:
        block = textwrap.dedent(re.split(r"\n(?=\S)", rest, maxsplit=1)[0])
        for match in re.finditer(r"(?m)^(\w+):[ ]*((?:.*)(?:\n[ ]+.*)*)", block):
            described[match[1]] = " ".join(match[2].split())
    return text, described


Signature = tuple[JsonSchema, Callable[[str], dict[str, Any]], str | None]
_signatures: dict[object, Signature] = {}


def _signature(function: AsyncFunction, described: dict[str, str]) -> Signature:
    """The schema, the parser and the name of the context parameter. Made once per written function.

    Tools that close over something are defined anew for every workflow, and schemas are slow to make.
    """
    code = getattr(function, "__code__", None)
    key = (code, repr(getattr(function, "__annotations__", "")), repr(getattr(function, "__defaults__", "")))
    if code is None or key not in _signatures:
        _signatures[key] = _inspect_signature(function, described)
    return _signatures[key]


def _inspect_signature(function: AsyncFunction, described: dict[str, str]) -> Signature:
    from pydantic import ConfigDict, Field, ValidationError, create_model
    from pydantic.fields import FieldInfo

    hints = get_type_hints(function, include_extras=True)
    context_name: str | None = None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in hints:
            raise TypeError(f"{function.__qualname__}: parameter {parameter.name!r} needs a type hint")
        hint = hints[parameter.name]
        if hint is ToolContext:
            context_name = parameter.name
            continue
        default: Any = ... if parameter.default is parameter.empty else parameter.default
        if isinstance(default, FieldInfo):
            fields[parameter.name] = (hint, default)
        else:
            fields[parameter.name] = (hint, Field(default, description=described.get(parameter.name)))
    model = create_model(
        function.__name__, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields
    )
    names = tuple(fields)

    def parse(raw: str) -> dict[str, Any]:
        try:
            checked = model.model_validate(parse_object(raw))
        except ValidationError as error:
            parts = [
                f"{'.'.join(str(p) for p in e['loc']) or 'arguments'}: {e['msg']}" for e in error.errors()
            ]
            raise ToolError(f"invalid arguments for {function.__name__}: " + "; ".join(parts)) from None
        return {name: getattr(checked, name) for name in names}

    return _tidy(model.model_json_schema()), parse, context_name


def _tidy(schema: Any) -> Any:
    """Drop the generated titles: they only cost tokens."""
    if isinstance(schema, dict):
        items = cast("dict[str, Any]", schema).items()
        return {k: _tidy(v) for k, v in items if not (k == "title" and isinstance(v, str))}
    if isinstance(schema, list):
        return [_tidy(item) for item in cast("list[Any]", schema)]
    return schema
