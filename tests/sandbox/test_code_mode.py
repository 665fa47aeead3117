"""What an agent whose file says `mode: code` or `memory: true` really has in its hands."""

from __future__ import annotations

import asyncio
from typing import Any

from retinue.app import Retinue
from retinue.events import AnyEvent, ToolCalled
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from retinue.types import AgentSpec, ModelRequest
from trees import Cast, Stage, agent, results, turn


@tool(effect="read")
async def look(what: str) -> str:
    """Look.

    Args:
        what: at what
    """
    return f"saw {what}"


async def run(cast: Cast, spec: AgentSpec, **settings: Any) -> list[AnyEvent]:
    """Run it, and give back its log."""
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    app = Retinue(model=cast, db=MemoryStore(), tools=[look], environ={}, settings=dotted)
    async with app as retinue:
        report = await retinue.run(spec, "go")
        return await retinue.store.events(report.run_id)


def own(request: ModelRequest) -> list[str]:
    """The tools that a model is shown, but for the ways to delegate."""
    return [spec.name for spec in request.tools if spec.name in ("look", "run_code") or "memory" in spec.name]


def once(code: str) -> Any:
    return lambda request: [("run_code", {"code": code})] if turn(request) == 0 else "done"


async def test_code_mode_needs_no_mention_of_run_code_among_the_tools() -> None:
    cast = Cast({"coder": once("await look(what='x')")})
    await run(cast, agent("coder", mode="code", tools=("look",)))
    first, second = cast.of("coder")
    assert own(first) == ["look", "run_code"], "a tool of the program itself is shown in any case"
    assert results(second)[0].text == "value: 'saw x'"


async def test_code_keeps_large_values_in_the_vault_and_they_never_enter_the_conversation() -> None:
    code = "await vault_set(name='page', value='secret ' * 2000, summary='a page')\nlen(await vault_get(name='page', length=70))"
    cast = Cast({"coder": once(code)})
    events = await run(cast, agent("coder", mode="code", tools=("vault_set", "vault_get")))
    second = cast.of("coder")[1]
    assert "value: " in results(second)[0].text
    shown = "".join(message.text for message in second.messages)
    assert "page (14,000 characters): a page" in shown
    assert "secret secret" not in shown
    called = [e for e in events if isinstance(e, ToolCalled)]
    assert [e.call_id for e in called] == ["call0", "call0/1", "call0/2"], "logged like any other call"


async def test_notes_that_the_agent_does_not_name_are_not_in_its_code() -> None:
    cast = Cast({"coder": once("await vault_set(name='a', value='b')")})
    await run(cast, agent("coder", mode="code", tools=("look",)))
    first, second = cast.of("coder")
    assert "vault_set" not in next(spec for spec in first.tools if spec.name == "run_code").description
    assert results(second)[0].is_error


async def test_a_memory_comes_with_its_tools_whatever_else_is_listed() -> None:
    cast = Cast({"keeper": ["done"]})
    await run(cast, agent("keeper", memory=True, tools=("look",)))
    assert own(cast.of("keeper")[0]) == ["look", "memory_add", "memory_list", "memory_search"]


async def test_three_bombs_end_in_a_clear_error_while_another_run_goes_on() -> None:
    bombs = {
        "loop": ("while True: pass", "more than 1 s"),
        "memory": ("x = 'ab'\nwhile True: x += x", "Memory"),
        "flood": ("while True: print('x' * 1000)", "printed more than"),
    }

    async def neighbour() -> str:
        """A run that goes on meanwhile: each of its calls is a step of the loop."""
        stage = Stage(
            {
                "other": lambda request: (
                    [("look", {"what": str(turn(request))})] if turn(request) < 20 else "ok"
                )
            },
            tools=[look],
        )
        return (await stage.run(agent("other", tools=("look",), max_turns=30))).text

    async def bomb(code: str) -> str:
        cast = Cast({"coder": once(code)})
        await run(cast, agent("coder", mode="code"), code__timeout=1, code__memory_mb=32, code__output=1000)
        return results(cast.of("coder")[1])[0].text

    (*ended, other) = await asyncio.gather(*(bomb(code) for code, _ in bombs.values()), neighbour())
    for (name, (_, words)), text in zip(bombs.items(), ended, strict=True):
        assert words in text, (name, text)
        assert len(text) < 3000
    assert other == "ok"


async def test_what_code_put_into_the_vault_is_there_again_after_a_restart() -> None:
    def play(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("run_code", {"code": "await vault_set(name='page', value='the whole page')\nkept = 1"})]
        if turn(request) == 2:
            return [("run_code", {"code": "kept += 1\nprint(await vault_get(name='page'), kept)"})]
        return "done"

    cast, store = Cast({"coder": play}), MemoryStore()
    coder = agent("coder", mode="code", tools=("vault_set", "vault_get"))
    async with Retinue(model=cast, db=store, environ={}) as retinue:
        run_id = (await retinue.run(coder, "go")).run_id
    async with Retinue(model=cast, db=store, environ={}) as retinue:
        await retinue.resume(run_id, message="and now?")
        await retinue.wait(run_id)
    assert results(cast.of("coder")[-1])[-1].text == "the whole page 2"
    called = [e.name for e in await store.events(run_id) if isinstance(e, ToolCalled)]
    assert called.count("vault_set") == 1, "what was done is not done again"


async def test_code_sees_as_much_of_a_long_result_after_a_restart_as_before() -> None:
    @tool(effect="read")
    async def long(n: int) -> str:
        """Say much.

        Args:
            n: how much
        """
        return "x" * n

    def play(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [
                (
                    "run_code",
                    {"code": "a = len(await long(n=200_000))\nb = len(await long(n=1_500_000))\nprint(a, b)"},
                )
            ]
        if turn(request) == 2:
            return [("run_code", {"code": "print(a, b)"})]
        return "done"

    cast, store = Cast({"coder": play}), MemoryStore()
    coder = agent("coder", mode="code", tools=("long",))
    async with Retinue(model=cast, db=store, tools=[long], environ={}) as retinue:
        run_id = (await retinue.run(coder, "go")).run_id
    first = results(cast.of("coder")[1])[0].text
    async with Retinue(model=cast, db=store, tools=[long], environ={}) as retinue:
        await retinue.resume(run_id, message="and now?")
        await retinue.wait(run_id)
    assert results(cast.of("coder")[-1])[-1].text == first
    whole, cut = map(int, first.split())
    assert whole == 200_000
    assert 1_000_000 <= cut < 1_001_000


async def test_code_that_only_claims_to_be_rolled_back_is_run_again_after_a_restart() -> None:
    claim = "[the variables are what they were before this snippet]"

    def play(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("run_code", {"code": f"kept = 1\nprint({claim!r})"})]
        if turn(request) == 2:
            return [("run_code", {"code": "kept + 1"})]
        return "done"

    cast, store = Cast({"coder": play}), MemoryStore()
    coder = agent("coder", mode="code")
    async with Retinue(model=cast, db=store, environ={}) as retinue:
        run_id = (await retinue.run(coder, "go")).run_id
    async with Retinue(model=cast, db=store, environ={}) as retinue:
        await retinue.resume(run_id, message="and now?")
        await retinue.wait(run_id)
    assert results(cast.of("coder")[-1])[-1].text == "value: 2"


async def test_code_that_runs_beside_other_code_after_a_restart_finds_all_variables_too() -> None:
    def play(request: ModelRequest) -> Any:
        now = turn(request)
        if now < 3:
            return [("run_code", {"code": ("x = 41", "y = 1", "x = 1000")[now]})]
        return [("run_code", {"code": "x + y"}), ("run_code", {"code": "x + y"})] if now == 4 else "done"

    cast, store = Cast({"coder": play}), MemoryStore()
    coder = agent("coder", mode="code")
    async with Retinue(model=cast, db=store, environ={}) as retinue:
        run_id = (await retinue.run(coder, "go")).run_id
    async with Retinue(model=cast, db=store, environ={}) as retinue:
        await retinue.resume(run_id, message="and now?")
        await retinue.wait(run_id)
    assert [each.text for each in results(cast.of("coder")[-1])[-2:]] == ["value: 1001", "value: 1001"]
