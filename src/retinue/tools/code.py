"""Code mode: `run_code`, a tool that runs the model's Python with the run's other tools as functions.

The loop makes one per run and hands it `call`, through which every tool that code uses goes: approvals,
budgets, limits and events apply as to any other call. Each inner call has an id derived from the outer one
(`<call id>/1`, `/2`, in the order in which the code makes them), and that order does not depend on timing:
when an interrupted snippet is run again, calls that were finished are answered from the log.

This module runs no tool itself and knows none by name.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import textwrap
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import msgspec

from retinue.course import Course, Telling
from retinue.errors import ToolError
from retinue.sandbox import engine_here
from retinue.sandbox.base import CallResult, CodeRunner, HostFunction, Sandbox, SnippetOutcome
from retinue.settings import CodeSettings
from retinue.tools.base import Tool, ToolContext, ToolResult, tool
from retinue.tools.descriptions import describe
from retinue.tools.mistyped import agent_meant_in, agents_called_in
from retinue.types import Effect, JsonSchema, Source
from retinue.web.framing import frame, holds_frame

NAME = "run_code"

InnerCall = Callable[[str, str, str], Awaitable[ToolResult]]
"""Run a tool on behalf of code: the derived call id, the tool's name, its arguments as JSON."""

Miss = Callable[[Tool, Mapping[str, Any]], None]
"""Is told of a call that code wrote and that cannot be made: the tool and the arguments."""

CalledAt = Callable[[str], float]
"""When a call was made, by the log, in seconds since 1970: what its code reads as the time."""

CourseOf = Callable[[str], Telling]
"""In which order the code of a call is told what it waits for, by the log."""

_SOME_ONLY = "not all tasks were completed: each of .data['results'] says how it ended"
ROLLED_BACK = "[the variables are what they were before this snippet]"

_NOTHING_RAN = "[no line of this snippet ran: it cannot be read as a whole]"

_MOST_DESCRIPTION = 1500
# Characters of arguments, which go into the log, where code could otherwise write without end: of one call
# (the vault's largest value fits), and of all calls of a snippet.
_MOST_ARGUMENTS = 6_000_000
_MOST_TOGETHER = 20_000_000


def code_tool(
    tools: Sequence[Tool],
    call: InnerCall,
    sandbox: CodeRunner,
    settings: CodeSettings,
    *,
    called_at: CalledAt = lambda call_id: time.time(),
    course_of: CourseOf = lambda call_id: _new_course(),
    before: Iterable[ToolResult] = (),
) -> Tool:
    """`run_code` for one run. Whoever opened the sandbox closes it when the run ends.

    `before`: what calls of this run's code have come to already.
    """
    offered = function_names([each for each in tools if each.name != NAME])
    framed = {each.text for each in before if _came_framed(each)}

    async def heard(call_id: str, name: str, arguments: str) -> ToolResult:
        result = await call(call_id, name, arguments)
        if _came_framed(result):
            framed.add(result.text)
        return result

    async def run_code(code: str, context: ToolContext) -> ToolResult:
        """Run a snippet.

        Args:
            code: the Python to run
        """
        missed: list[str] = []

        def miss(target: Tool, given: Mapping[str, Any]) -> None:
            if target.effect == "delegate" and not target.only_looks(_operation(given)):
                missed.extend(target.asked_for(given, context.run_id))

        course = course_of(context.call_id)
        functions = _functions(offered, heard, context.call_id, settings.calls, course.course, miss)
        bare = _bare(code, offered)
        at = called_at(context.call_id)
        outcome = await sandbox.run(
            bare, functions=functions, at=at, seed=_seed(context.call_id, at), course=course
        )
        text = render(outcome, bare)
        for each in outcome.unawaited:
            text += f"\n[{each.name}(...) was called and not awaited, so it did not run: await it]"
            target = offered[each.name]
            miss(target, {**dict(zip(_parameters(target.schema), each.args, strict=False)), **each.kwargs})
        if outcome.unparsed:
            missed += agents_called_in(bare, offered)
            text += f"\n{_NOTHING_RAN}" + "".join(f"\n[{name} was not asked]" for name in missed)
        if outcome.outside or _may_repeat(outcome, framed):
            # The mark is of the log alone, so that the same comes out in a replay; no child knows it.
            text = frame(text, what="output of code", secret=_seed(context.call_id, at).encode())
        missed += filter(None, [agent_meant_in(bare, outcome.undefined, offered)])
        return ToolResult(
            text=text,
            is_error=outcome.error is not None,
            rolled_back=outcome.lost,
            not_started=len(missed),
            wrong=len(missed),
            meant=tuple(missed),
        )

    made = tool(
        name=NAME, description=description(offered, settings), effect="read", timeout=None, private=False
    )
    return made(run_code)


def _new_course() -> Telling:
    course = Course()
    return Telling(course, course.wake)


def _operation(given: Mapping[str, Any]) -> str:
    return json.dumps({"operation": given.get("operation")}, default=str)


def _came_framed(result: ToolResult) -> bool:
    return result.fields is not None or holds_frame(result.text)


def _may_repeat(outcome: SnippetOutcome, framed: Collection[str]) -> bool:
    """Whether an output may hold others' words without the frame in which they came: code that was once
    given some may have cut them out in any way. Whole results have their own, and numbers say nothing."""
    if not framed:
        return False
    error = _KIND_OF_ERROR.sub("", outcome.error or "")
    for said in filter(None, (outcome.stdout, outcome.value, error)):
        for text in sorted(framed, key=len, reverse=True):
            said = said.replace(text, " ").replace(repr(text), " ")
        if any(sign.isalpha() for sign in _NO_WORDS.sub(" ", said)):
            return True
    return False


_KIND_OF_ERROR = re.compile(r"^[\w.]+(?::\s*|$)")
_NO_WORDS = re.compile(r"\b(?:True|False|None|nan|inf|completed|error|cancelled)\b|\d[eE][+-]?\d")
"""What code prints of results that is ours, `status` among it."""


async def replay(
    sandbox: Sandbox,
    tools: Sequence[Tool],
    finished: Sequence[tuple[str, str, float]],
    results: Mapping[str, ToolResult],
    settings: CodeSettings,
    courses: Mapping[str, Course] = MappingProxyType({}),
) -> None:
    """Bring a fresh sandbox to where a log left off, without making a single call.

    `finished` are the call ids and code of snippets that have a result and were not rolled back, in order,
    and when they were called; `results` are those of their inner calls, `courses` how these reached them.
    """
    offered = function_names([each for each in tools if each.name != NAME])

    async def answer(call_id: str, name: str, arguments: str) -> ToolResult:
        if call_id not in results:
            raise ToolError(f"{name} was not called before the interruption")
        return results[call_id]

    for call_id, code, at in finished:
        known = courses.get(call_id) or Course()
        functions = _functions(offered, answer, call_id, settings.calls, known)
        course = Telling(known, known.wake, played=True)
        seed = _seed(call_id, at)
        await sandbox.run(_bare(code, offered), functions=functions, at=at, seed=seed, course=course)


def _seed(call_id: str, at: float) -> str:
    """Of the log alone, and another one for every call: some models number theirs from 0 in each run."""
    return f"{call_id} {at!r}"


def _functions(
    offered: Mapping[str, Tool],
    call: InnerCall,
    call_id: str,
    most: int,
    course: Course,
    miss: Miss | None = None,
) -> dict[str, HostFunction]:
    """`miss` is told of calls that were not made."""
    made = passed = 0

    def function(name: str, target: Tool) -> HostFunction:
        parameters = list(_parameters(target.schema))

        async def run(*args: Any, **kwargs: Any) -> CallResult:
            try:
                derived, arguments = number(*args, **kwargs)
            except ToolError:
                if miss is not None:
                    miss(target, {**dict(zip(parameters, args, strict=False)), **kwargs})
                raise
            result = as_data(await call(derived, target.name, arguments), target.effect)
            return replace(result, took=course.took.get(int(derived.rpartition("/")[2]), 0.0))

        def number(*args: Any, **kwargs: Any) -> tuple[str, str]:
            nonlocal made, passed
            if made >= most:
                raise ToolError(
                    f"this snippet has made {made} tool calls, the most allowed; "
                    "continue in another snippet, the variables are kept"
                )
            made += 1
            derived = f"{call_id}/{made}"
            arguments = _as_json(name, parameters, args, kwargs)
            passed += len(arguments)
            if passed > _MOST_TOGETHER:
                raise ToolError(
                    f"the calls of this snippet were given {passed:,} characters of arguments, at most "
                    f"{_MOST_TOGETHER:,} are taken; continue in another snippet, the variables are kept"
                )
            return derived, arguments

        return run

    return {name: function(name, target) for name, target in offered.items()}


def as_data(result: ToolResult, effect: Effect) -> CallResult:
    """A result as code has it: what the model would read, with fields.

    A batch that some children failed in is no exception, and no success either.
    """
    failed, report = result.is_error, result.fields
    fields: dict[str, Any] = {"success": not failed, "is_error": failed}
    if report is not None:
        fields |= {**msgspec.to_builtins(report), "sources": [_source(each) for each in report.sources]}
        return CallResult(text=result.text, fields=fields, failed=failed, outside=True)
    fields |= {"status": "error" if failed else "completed", "error": result.text if failed else None}
    fields |= {"incomplete": None, "child_id": None, "metrics": {}, "data": _parsed(result.text)}
    if effect == "delegate" and not failed and _lacks_some(fields["data"]):
        fields |= {"success": False, "is_error": True, "status": "error", "error": _SOME_ONLY}
    fields["sources"] = [_source(each) for each in result.sources]
    return CallResult(text=result.text, fields=fields, failed=failed)


def _lacks_some(data: Any) -> bool:
    return isinstance(data, dict) and cast("dict[str, Any]", data).get("success") is False


def _source(source: Source) -> dict[str, Any]:
    said = {"url": source.url, "path": source.path, "title": source.title, "lines": source.lines}
    return {name: value for name, value in said.items() if value} | {"verified": source.verified}


def _parsed(text: str) -> Any:
    """What a result says in JSON, if that is an object or a list."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _as_json(name: str, parameters: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if len(args) > len(parameters):
        raise ToolError(f"{name}() takes {len(parameters)} arguments, {len(args)} were given")
    arguments = dict(zip(parameters, args, strict=False))
    twice = sorted(arguments.keys() & kwargs.keys())
    if twice:
        raise ToolError(f"{name}() got {', '.join(twice)} twice")
    try:
        written = json.dumps({**arguments, **kwargs}, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"{name}() takes plain values (text, numbers, lists, dicts): {error}") from None
    if len(written) > _MOST_ARGUMENTS:
        raise ToolError(
            f"{name}() was given {len(written):,} characters of arguments, at most {_MOST_ARGUMENTS:,} are "
            "taken; pass less at a time"
        )
    return written


def render(outcome: SnippetOutcome, code: str = "") -> str:
    """What the model reads."""
    parts: list[str] = []
    if outcome.stdout:
        parts.append(outcome.stdout.rstrip("\n"))
    if outcome.cut:
        parts.append(f"[{outcome.cut} more characters were printed and cut; print less]")
    if outcome.value is not None:
        parts.append(f"value: {outcome.value}")
        if re.search(r"<coroutine (external_future|object )", outcome.value):
            parts.append("[this is a call that was not awaited: write `await name(...)`]")
    if outcome.error is not None:
        parts.append(outcome.trace if outcome.error in outcome.trace else f"error: {outcome.error}")
        if outcome.error.startswith("ModuleNotFoundError"):
            parts.append("[your tools are already there as functions: do not import them]")
        if outcome.lost:
            parts.append(ROLLED_BACK)
    return "\n".join(parts) or _silent(code)


def _silent(code: str) -> str:
    """Why a snippet had nothing to say. Models like to define a function and leave it at that."""
    try:
        last = ast.parse(code).body[-1:]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        last = []
    if last and isinstance(last[0], ast.FunctionDef | ast.AsyncFunctionDef):
        call = f"{'await ' if isinstance(last[0], ast.AsyncFunctionDef) else ''}{last[0].name}(...)"
        return f"[nothing ran: the code only defines {last[0].name}. Call it in the last line: `{call}`]"
    return "[nothing was printed and the last line has no value]"


def description(offered: Mapping[str, Tool], settings: CodeSettings) -> str:
    """What the model is told about `run_code`: how it works, what this engine lacks, the functions."""
    limits = (
        f"Limits of one snippet: {settings.timeout:g} s of computing, {settings.memory_mb} MB, "
        f"{settings.output} characters of output, {settings.calls} tool calls."
    )
    stubs = "\n\n".join(stub(name, each) for name, each in offered.items()) or "# no tools"
    engine = describe(f"run_code_{engine_here(settings)[0]}")
    return f"{describe('run_code')}\n\n{engine}\n\n{limits}\n\n```python\n{stubs}\n```"


def function_names(tools: Sequence[Tool]) -> dict[str, Tool]:
    """A Python name for each tool: `code-search` becomes `code_search`."""
    named: dict[str, Tool] = {}
    for each in tools:
        base = re.sub(r"\W", "_", each.name, flags=re.ASCII)
        if not base or base[0].isdigit() or keyword.iskeyword(base):
            base = f"tool_{base}"
        name, number = base, 2
        while name in named:
            name, number = f"{base}_{number}", number + 1
        named[name] = each
    return named


def stub(name: str, of: Tool) -> str:
    """A tool as the head of an async function, with what it says of itself and its parameters."""
    signature: list[str] = []
    notes: list[str] = []
    for parameter, (schema, required) in _parameters(of.schema).items():
        kind = python_type(schema, of.schema)
        default = "" if required else f" = {schema.get('default')!r}"
        if parameter.isidentifier() and not keyword.iskeyword(parameter):
            signature.append(f"{parameter}: {kind}{default}")
        else:
            notes.append(f"pass {parameter!r} ({kind}) as **{{{parameter!r}: ...}}")
        if schema.get("description"):
            notes.append(f"{parameter}: {' '.join(str(schema['description']).split())}")
    text = of.description.strip()
    if len(text) > _MOST_DESCRIPTION:
        text = text[:_MOST_DESCRIPTION].rsplit(" ", 1)[0] + " …"
    body = "\n".join([text.replace('"""', "'''"), *notes])
    return f"async def {name}({', '.join(signature)}) -> Result:\n" + textwrap.indent(f'"""{body}"""', "    ")


def _parameters(schema: JsonSchema) -> dict[str, tuple[JsonSchema, bool]]:
    """The parameters in the order of a signature: what is required comes first."""
    properties = cast("dict[str, Any]", schema.get("properties") or {})
    required = set(cast("list[str]", schema.get("required") or []))
    ordered = sorted(properties, key=lambda name: name not in required)
    return {
        name: (
            cast("JsonSchema", properties[name] if isinstance(properties[name], dict) else {}),
            name in required,
        )
        for name in ordered
    }


_SIMPLE = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list",
    "object": "dict",
}


def python_type(schema: JsonSchema, root: JsonSchema, depth: int = 0) -> str:
    """A JSON schema as a Python type, as precise as is readable; `Any` where it says nothing."""
    if depth > 4:
        return "Any"
    if "$ref" in schema:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = cast("dict[str, Any]", target).get(part, {}) if isinstance(target, dict) else {}
        return python_type(cast("JsonSchema", target or {}), root, depth + 1)
    if "enum" in schema or "const" in schema:
        values = cast("list[Any]", schema.get("enum") or [schema.get("const")])
        return f"Literal[{', '.join(repr(value) for value in values)}]"
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        kinds = [python_type(option, root, depth + 1) for option in cast("list[JsonSchema]", options)]
        return " | ".join(dict.fromkeys(kinds))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_SIMPLE.get(str(each), "Any") for each in cast("list[Any]", kind))
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list[{python_type(schema['items'], root, depth + 1)}]"
    if kind == "object" and schema.get("properties"):
        fields = [
            f"{name!r}: {python_type(inner, root, depth + 1)}" + ("" if required else " (optional)")
            for name, (inner, required) in _parameters(schema).items()
        ]
        return f"dict[{{{', '.join(fields)}}}]"
    return _SIMPLE.get(str(kind), "Any")


_IMPORT = re.compile(r"(?m)^([ \t]*)from (?:tools|functions) import ([\w, \t]+)$")


def _bare(code: str, offered: Mapping[str, Tool]) -> str:
    """Without the fence that models like to put around code, and without imports of what is there anyway."""

    def needless(match: re.Match[str]) -> str:
        names = {name.strip() for name in match[2].split(",")}
        return f"{match[1]}pass" if names <= offered.keys() else match[0]

    fenced = re.fullmatch(r"\s*```[\w+-]*[ \t]*\n(.*?)\n?```\s*", code, flags=re.DOTALL)
    return _IMPORT.sub(needless, textwrap.dedent(fenced[1] if fenced else code))
