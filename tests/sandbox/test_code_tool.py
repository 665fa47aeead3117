"""`run_code`: tools as functions, what the model is told, what it reads, and what a resumed run repeats."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from retinue.errors import ToolError
from retinue.sandbox import open_engine
from retinue.sandbox.base import Sandbox, SandboxLimits, SnippetOutcome
from retinue.settings import CodeSettings
from retinue.tools.base import Tool, ToolContext, ToolResult, tool, tool_from_schema
from retinue.tools.code import (
    ROLLED_BACK,
    code_tool,
    description,
    function_names,
    render,
    replay,
    stub,
)
from retinue.workspace import Files

SETTINGS = CodeSettings(engine="monty", timeout=60, calls=5)


@tool
async def grep(pattern: str, path: str = ".", mode: Literal["files", "lines"] = "lines") -> str:
    """Search files.

    Args:
        pattern: a regular expression
        path: where to look
    """
    return ""


async def _never(arguments: dict[str, Any], context: ToolContext) -> str:
    raise AssertionError("code goes through the loop's call, never to the tool itself")


search = tool_from_schema(
    name="code-search",
    description="Find code.",
    schema={
        "type": "object",
        "properties": {
            "limit": {"type": ["integer", "null"]},
            "query": {"type": "string"},
            "tasks": {"type": "array", "items": {"$ref": "#/$defs/Task"}},
            "class": {"type": "string", "description": "a reserved word"},
        },
        "required": ["query"],
        "$defs": {
            "Task": {
                "type": "object",
                "properties": {
                    "agent": {"type": "string"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["agent"],
            }
        },
    },
    effect="read",
    call=_never,
)


class Loop:
    """Stands where the loop stands: answers inner calls and writes down what was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []

    async def call(self, call_id: str, name: str, arguments: str) -> ToolResult:
        parsed = json.loads(arguments)
        self.calls.append((call_id, name, parsed))
        if parsed.get("pattern") == "bad":
            return ToolResult(text="no such pattern", is_error=True)
        return ToolResult(text=f"{name}:{parsed}")


@pytest.fixture(params=["monty", "cpython"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    engine, notice = open_engine(CodeSettings(engine=request.param))
    if notice is not None:
        pytest.skip(notice)
    session = engine.session(SandboxLimits.of(SETTINGS))
    yield session
    await session.close()
    await engine.close()


def _context(call_id: str = "call_1") -> ToolContext:
    fields: dict[str, Any] = {
        name: "" for name in ToolContext.__dataclass_fields__ if name not in ("files", "progress", "denied")
    }
    fields |= {"depth": 0, "call_id": call_id, "files": Files.__new__(Files)}
    return ToolContext(**fields, progress=lambda text: None, denied=lambda what, detail: None)


async def _run(made: Tool, code: str, call_id: str = "call_1") -> ToolResult:
    result = await made.call(made.parse(json.dumps({"code": code})), _context(call_id))
    return cast("ToolResult", result)


async def test_tools_are_functions_and_their_calls_go_through_the_loop(sandbox: Sandbox) -> None:
    loop = Loop()
    made = code_tool([grep, search], loop.call, sandbox, SETTINGS)
    result = await _run(
        made, "a = await grep('x', path='src')\nb = await code_search(query='q')\nprint(a)\nlen(b)"
    )
    assert not result.is_error
    assert loop.calls == [
        ("call_1/1", "grep", {"pattern": "x", "path": "src"}),
        ("call_1/2", "code-search", {"query": "q"}),
    ]
    assert result.text.startswith("grep:{'pattern': 'x', 'path': 'src'}\nvalue: ")


async def test_calls_made_together_are_numbered_in_the_order_of_the_code(sandbox: Sandbox) -> None:
    loop = Loop()
    made = code_tool([grep], loop.call, sandbox, SETTINGS)
    await _run(made, "import asyncio\nawait asyncio.gather(grep('a'), grep('b'), grep('c'))", "k")
    assert [(call_id, arguments["pattern"]) for call_id, _, arguments in loop.calls] == [
        ("k/1", "a"),
        ("k/2", "b"),
        ("k/3", "c"),
    ]


async def test_numbering_does_not_depend_on_which_call_is_faster(sandbox: Sandbox) -> None:
    code = (
        "import asyncio\n"
        "async def twice(p):\n    first = await grep(p)\n    return await grep(p + '2')\n"
        "await asyncio.gather(twice('a'), twice('b'))"
    )
    orders: list[list[str]] = []
    for slow in ("a", "b"):
        order: list[str] = []
        quick_done = asyncio.Event()

        async def call(
            call_id: str,
            name: str,
            arguments: str,
            slow: str = slow,
            order: list[str] = order,
            quick_done: asyncio.Event = quick_done,
        ) -> ToolResult:
            pattern = json.loads(arguments)["pattern"]
            order.append(f"{call_id}={pattern}")
            if pattern == slow:
                await quick_done.wait()
            else:
                quick_done.set()
            return ToolResult(text=pattern)

        await _run(code_tool([grep], call, sandbox, SETTINGS), code)
        orders.append(order)
    assert orders[0] == orders[1]


async def test_a_failed_tool_is_an_exception_with_its_message(sandbox: Sandbox) -> None:
    made = code_tool([grep], Loop().call, sandbox, SETTINGS)
    result = await _run(
        made, "try:\n    await grep('bad')\nexcept RuntimeError as e:\n    print('caught', e)"
    )
    assert result.text == "caught no such pattern"
    result = await _run(made, "await grep('bad')")
    assert result.is_error
    assert "RuntimeError: no such pattern" in result.text


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("await grep('a', '.', 'lines', 4)", "grep() takes 3 arguments, 4 were given"),
        ("await grep('a', pattern='b')", "grep() got pattern twice"),
        ("await grep(b'bytes')", "grep() takes plain values"),
        ("await grep(grep)", "grep() takes plain values"),
    ],
)
async def test_arguments_that_cannot_be_sent_never_reach_the_loop(
    sandbox: Sandbox, code: str, message: str
) -> None:
    loop = Loop()
    result = await _run(code_tool([grep], loop.call, sandbox, SETTINGS), code)
    if code != "await grep(grep)":
        assert message in result.text or "JSON serializable" in result.text
        assert loop.calls == []
    else:  # what a function looks like from outside is the engine's affair; it is never the function itself
        assert all(isinstance(arguments["pattern"], str) for _, _, arguments in loop.calls)


async def test_a_snippet_makes_no_more_calls_than_allowed(sandbox: Sandbox) -> None:
    loop = Loop()
    made = code_tool([grep], loop.call, sandbox, SETTINGS)
    result = await _run(made, "for i in range(100):\n    await grep(str(i))")
    assert len(loop.calls) == 5
    assert result.is_error
    assert "has made 5 tool calls, the most allowed" in result.text
    assert not (await _run(made, "await grep('next')")).is_error


async def test_run_code_is_not_offered_to_itself(sandbox: Sandbox) -> None:
    loop = Loop()
    inner = code_tool([grep], loop.call, sandbox, SETTINGS)
    made = code_tool([grep, inner], loop.call, sandbox, SETTINGS)
    assert "async def run_code" not in made.description
    assert "NameError" in (await _run(made, "await run_code('1')")).text


async def test_an_interrupted_run_gets_its_variables_back_from_the_log(sandbox: Sandbox) -> None:
    loop = Loop()
    made = code_tool([grep], loop.call, sandbox, SETTINGS)
    await _run(made, "hits = [await grep('a')]", "c1")
    await _run(made, "hits.append(await grep('b'))\nlen(hits)", "c2")
    logged = {call_id: ToolResult(text=f"{name}:{arguments}") for call_id, name, arguments in loop.calls}

    engine, _ = open_engine(SETTINGS)
    fresh = engine.session(SandboxLimits.of(SETTINGS))
    finished = [
        ("c1", "hits = [await grep('a')]", 1.0),
        ("c2", "hits.append(await grep('b'))\nlen(hits)", 2.0),
    ]
    await replay(fresh, [grep], finished, logged, SETTINGS)
    resumed = code_tool([grep], loop.call, fresh, SETTINGS)
    assert (await _run(resumed, "hits")).text == "value: " + repr([logged["c1/1"].text, logged["c2/1"].text])
    assert len(loop.calls) == 2
    await fresh.close()
    await engine.close()


async def test_a_fence_around_the_code_does_no_harm(sandbox: Sandbox) -> None:
    made = code_tool([], Loop().call, sandbox, SETTINGS)
    assert (await _run(made, "```python\n1 + 1\n```")).text == "value: 2"
    assert (await _run(made, "    x = 1\n    x + 2")).text == "value: 3"


async def test_a_forgotten_await_is_pointed_out(sandbox: Sandbox) -> None:
    made = code_tool([grep], Loop().call, sandbox, SETTINGS)
    assert "was not awaited" in (await _run(made, "grep('a')")).text


def test_the_stub_shows_types_defaults_and_notes() -> None:
    assert stub("grep", grep) == (
        "async def grep(pattern: str, path: str = '.', mode: Literal['files', 'lines'] = 'lines') -> Result:\n"
        '    """Search files.\n'
        "    pattern: a regular expression\n"
        '    path: where to look"""'
    )
    assert stub("code_search", search) == (
        "async def code_search(query: str, limit: int | None = None, "
        "tasks: list[dict[{'agent': str, 'note': str | None (optional)}]] = None) -> Result:\n"
        '    """Find code.\n'
        "    pass 'class' (str) as **{'class': ...}\n"
        '    class: a reserved word"""'
    )


def test_the_description_tells_the_subset_the_limits_and_the_functions(sandbox: Sandbox) -> None:
    made = code_tool([grep, search], Loop().call, sandbox, SETTINGS)
    assert made.effect == "read"
    assert made.repeatable
    assert made.timeout is None
    for part in ("`yield`", "60 s of computing", "5 tool calls", "async def grep(", "async def code_search("):
        assert part in made.description
    assert set(made.schema["properties"]) == {"code"}
    full = code_tool([grep], Loop().call, sandbox, CodeSettings(engine="cpython"))
    assert "`yield`" not in full.description


def test_what_the_model_is_shown_changes_only_on_purpose() -> None:
    rendered = description(function_names([grep, search]), CodeSettings(engine="monty"))
    assert rendered + "\n" == (Path(__file__).parent / "rendered" / "run_code.txt").read_text("utf-8")


def test_names_that_are_not_python_become_so_without_clashing() -> None:
    def named(name: str) -> Tool:
        return tool_from_schema(name=name, description="", schema={}, effect="read", call=_never)

    names = ["code-search", "code_search", "import", "2fa", "mcp__x__y"]
    found = function_names([named(name) for name in names])
    assert list(found) == ["code_search", "code_search_2", "tool_import", "tool_2fa", "mcp__x__y"]
    assert [each.name for each in found.values()] == names


def test_an_outcome_reads_plainly() -> None:
    assert render(SnippetOutcome()) == "[nothing was printed and the last line has no value]"
    assert render(SnippetOutcome(stdout="a\n", value="3")) == "a\nvalue: 3"
    assert render(SnippetOutcome(stdout="a", cut=7)).endswith(
        "[7 more characters were printed and cut; print less]"
    )
    assert render(SnippetOutcome(error="E: x", trace="Traceback\nE: x")) == "Traceback\nE: x"
    assert render(SnippetOutcome(error="E: x", lost=True)) == (
        "error: E: x\n[the variables are what they were before this snippet]"
    )


async def test_an_import_of_the_tools_does_no_harm_and_any_other_is_explained(sandbox: Sandbox) -> None:
    made = code_tool([grep, search], Loop().call, sandbox, SETTINGS)
    result = await _run(made, "from tools import grep, code_search\nawait grep('x')")
    assert result.text.startswith("value: ")
    assert "do not import them" in (await _run(made, "from tools import grep, delete_all")).text
    assert "do not import them" in (await _run(made, "import grep_tools")).text


async def test_a_result_tells_whether_the_snippet_left_its_mark(sandbox: Sandbox) -> None:
    made = code_tool([], Loop().call, sandbox, SETTINGS)
    raised = await _run(made, "x = 1\n1 / 0")
    assert raised.is_error
    assert not raised.rolled_back
    assert (await _run(made, "x")).text == "value: 1"
    killed = await _run(made, "x = [0] * 10**10")
    assert killed.rolled_back
    assert killed.text.endswith(ROLLED_BACK)
    claimed = await _run(made, f"x = 2\nprint({ROLLED_BACK!r})\nraise ValueError({ROLLED_BACK!r})")
    assert claimed.is_error
    assert claimed.text.endswith(ROLLED_BACK)
    assert not claimed.rolled_back


async def test_a_call_with_arguments_too_long_for_the_log_is_an_error_in_the_code(sandbox: Sandbox) -> None:
    loop = Loop()
    made = code_tool([grep], loop.call, sandbox, SETTINGS)
    result = await _run(
        made, "try:\n    await grep('x' * 7_000_000)\nexcept RuntimeError as e:\n    print(e)"
    )
    assert "grep() was given 7,000," in result.text
    assert "at most 6,000,000 are taken" in result.text
    assert loop.calls == []

    result = await _run(made, "x = 'x' * 5_900_000\nfor _ in range(4): await grep(x)")
    assert "23,600," in result.text
    assert "at most 20,000,000 are taken" in result.text
    assert len(loop.calls) == 3


async def test_a_refusal_inside_code_reads_like_any_other_error(sandbox: Sandbox) -> None:
    async def refuse(call_id: str, name: str, arguments: str) -> ToolResult:
        raise ToolError("a person said no: too risky")

    result = await _run(code_tool([grep], refuse, sandbox, SETTINGS), "await grep('a')")
    assert "a person said no: too risky" in result.text


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("async def main():\n    print(395)", "await main(...)"),
        ("x = 1\ndef total(a):\n    return a", "total(...)"),
    ],
)
async def test_a_snippet_that_only_defines_a_function_is_told_to_call_it(
    sandbox: Sandbox, code: str, call: str
) -> None:
    made = code_tool([], Loop().call, sandbox, SETTINGS)
    assert f"Call it in the last line: `{call}`" in (await _run(made, code)).text
    assert (await _run(made, "y = 2")).text == "[nothing was printed and the last line has no value]"
