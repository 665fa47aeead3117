"""What a session keeps, what it gives back, and how it calls the host."""

from __future__ import annotations

import asyncio

import pytest

from retinue.errors import BudgetExhausted, ToolError
from retinue.sandbox import monty, monty_workers, open_engine
from retinue.sandbox.base import GONE, MAX_CODE, Engine, SandboxLimits
from retinue.settings import CodeSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = SandboxLimits(seconds=60)


async def double(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


async def test_variables_live_from_snippet_to_snippet(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    assert (await sandbox.run("x = 20\ndef f(n): return n + x", functions={})).error is None
    assert (await sandbox.run("x += 1\nf(21)", functions={})).value == "42"
    await sandbox.close()


async def test_sessions_do_not_see_each_other(engine: Engine) -> None:
    one, other = engine.session(LIMITS), engine.session(LIMITS)
    await one.run("secret = 1", functions={})
    outcome = await other.run("secret", functions={})
    assert outcome.error is not None
    assert "NameError" in outcome.error
    await one.close()
    await other.close()


async def test_output_value_and_error_come_back(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    outcome = await sandbox.run("print('hé')\nprint('b', 'c')\n[1, 'é']  # the value", functions={})
    assert (outcome.stdout, outcome.value, outcome.error) == ("hé\nb c\n", "[1, 'é']", None)
    outcome = await sandbox.run("x = 7\nprint('partly')\ndef f():\n    return 1 / 0\nf()", functions={})
    assert outcome.stdout == "partly\n"
    assert outcome.error == "ZeroDivisionError: division by zero"
    assert "line 4, in f" in outcome.trace
    assert "return 1 / 0" in outcome.trace
    assert "line 5, in <module>" in outcome.trace
    assert (await sandbox.run("x", functions={})).value == "7"
    await sandbox.close()


async def test_none_is_no_value(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    assert (await sandbox.run("None", functions={})).value is None
    assert (await sandbox.run("x = 1", functions={})).value is None
    assert (await sandbox.run("", functions={})).error is None
    await sandbox.close()


async def test_a_syntax_error_says_where(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    outcome = await sandbox.run("x = 1\ny = = 2", functions={})
    assert outcome.error is not None
    assert outcome.error.startswith("SyntaxError")
    assert "line 2" in outcome.trace
    await sandbox.close()


async def test_host_functions_are_awaited_alone_and_together(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    code = (
        "import asyncio\na = await double(1)\n"
        "b = await asyncio.gather(*[double(i) for i in range(4)])\n(a, b)"
    )
    outcome = await sandbox.run(code, functions={"double": double})
    assert (outcome.value, outcome.calls) == ("(2, [0, 2, 4, 6])", 5)
    outcome = await sandbox.run("f = double\nawait f(x=4)", functions={"double": double})
    assert outcome.value == "8"
    await sandbox.close()


async def test_a_program_that_ends_as_models_like_to_end_them_runs(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    code = "import asyncio\nasync def main():\n    return await double(21)\n\nprint(asyncio.run(main()))"
    outcome = await sandbox.run(code, functions={"double": double})
    assert (outcome.stdout, outcome.error) == ("42\n", None)
    await sandbox.close()


async def test_calls_made_together_overlap(engine: Engine) -> None:
    running = 0
    all_running = asyncio.Event()

    async def meet() -> str:
        nonlocal running
        running += 1
        if running == 3:
            all_running.set()
        await all_running.wait()
        return "met"

    sandbox = engine.session(LIMITS)
    code = "import asyncio\nawait asyncio.gather(meet(), meet(), meet())"
    outcome = await asyncio.wait_for(sandbox.run(code, functions={"meet": meet}), 60)
    assert outcome.value == "['met', 'met', 'met']"
    await sandbox.close()


async def test_results_arrive_in_the_order_of_the_calls_whatever_their_timing(engine: Engine) -> None:
    later_done = asyncio.Event()

    async def first() -> str:
        await later_done.wait()
        return "first"

    async def second() -> str:
        later_done.set()
        return "second"

    code = (
        "import asyncio\nseen = []\n"
        "async def note(call):\n    seen.append(await call())\n"
        "await asyncio.gather(note(first), note(second))\nseen"
    )
    sandbox = engine.session(LIMITS)
    outcome = await sandbox.run(code, functions={"first": first, "second": second})
    assert outcome.value == "['first', 'second']"
    await sandbox.close()


async def test_a_tool_error_is_an_exception_that_code_can_catch(engine: Engine) -> None:
    async def fails() -> str:
        raise ToolError("no such page")

    sandbox = engine.session(LIMITS)
    code = "try:\n    await fails()\nexcept RuntimeError as e:\n    caught = str(e)\ncaught"
    assert (await sandbox.run(code, functions={"fails": fails})).value == "'no such page'"
    outcome = await sandbox.run("await fails()", functions={"fails": fails})
    assert outcome.error == "RuntimeError: no such page"
    await sandbox.close()


async def test_wrong_arguments_are_an_error_in_the_code(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    outcome = await sandbox.run("await double(1, 2, 3)", functions={"double": double})
    assert outcome.error is not None
    assert outcome.error.startswith("TypeError")
    assert "double() takes 1 positional argument" in outcome.error
    await sandbox.close()


async def test_what_ends_a_run_goes_through_the_code_untouched(engine: Engine) -> None:
    async def spend() -> str:
        raise BudgetExhausted("nothing left")

    sandbox = engine.session(LIMITS)
    code = "try:\n    await spend()\nexcept BaseException:\n    pass\nprint('went on')"
    with pytest.raises(BudgetExhausted):
        await sandbox.run(code, functions={"spend": spend})
    assert (await sandbox.run("1", functions={})).value == "1"
    await sandbox.close()


async def test_a_call_that_was_not_waited_for_still_ends(engine: Engine) -> None:
    ended: list[str] = []

    async def write(text: str) -> str:
        await asyncio.sleep(0.01)
        ended.append(text)
        return "done"

    sandbox = engine.session(LIMITS)
    code = "import asyncio\ntask = asyncio.ensure_future(write('a'))\nawait write('b')\n1 / 0"
    if engine.name == "monty":
        code = "task = write('a')\nawait write('b')\n1 / 0"
    outcome = await sandbox.run(code, functions={"write": write})
    assert outcome.error is not None
    assert sorted(ended) == ["a", "b"]
    await sandbox.close()


async def test_time_spent_in_host_functions_is_free(engine: Engine) -> None:
    async def slow() -> str:
        await asyncio.sleep(1.5)
        return "slept"

    sandbox = engine.session(SandboxLimits(seconds=1))
    assert (await sandbox.run("await slow()", functions={"slow": slow})).value == "'slept'"
    await sandbox.close()


async def test_cancelling_a_run_stops_the_code_at_once(engine: Engine) -> None:
    called = asyncio.Event()

    async def begin() -> None:
        called.set()

    sandbox = engine.session(SandboxLimits(seconds=3600))
    task = asyncio.create_task(sandbox.run("await begin()\nwhile True: pass", functions={"begin": begin}))
    await called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert (await sandbox.run("2", functions={})).value == "2"
    await sandbox.close()


async def test_cancelling_while_the_host_works_cancels_the_host_function(engine: Engine) -> None:
    called, cancelled = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    sandbox = engine.session(LIMITS)
    task = asyncio.create_task(sandbox.run("await wait()", functions={"wait": wait}))
    await called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()
    await sandbox.close()


async def test_a_dump_goes_on_in_another_engine(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    await sandbox.run(
        "total = 0\ndef add(n):\n    global total\n    total += n\n    return total", functions={}
    )
    await sandbox.run("seen = await double(4)\nadd(seen)", functions={"double": double})
    state = await sandbox.dump()
    await sandbox.close()

    other, _ = open_engine(CodeSettings(engine="monty" if engine.name == "monty" else "cpython"))
    resumed = other.session(LIMITS)
    await resumed.load(state)
    assert (await resumed.run("add(seen + 26)", functions={})).value == "42"
    await resumed.close()
    await other.close()


async def test_a_dump_that_cannot_be_used_is_said_once_and_does_no_other_harm(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    await sandbox.load(b"\x00 this is no dump")
    outcome = await sandbox.run("print('ran')", functions={})
    assert outcome.error == GONE
    assert outcome.stdout == ""
    assert (await sandbox.run("6 * 7", functions={})).value == "42"
    await sandbox.close()


async def test_a_killed_snippet_leaves_the_variables_as_they_were(engine: Engine) -> None:
    sandbox = engine.session(SandboxLimits(seconds=1))
    await sandbox.run("x = 1", functions={})
    outcome = await sandbox.run("x = 2\nwhile True: pass", functions={})
    assert outcome.lost
    assert (await sandbox.run("x", functions={})).value == "1"
    await sandbox.close()


async def test_output_beyond_the_limit_is_cut_and_counted(engine: Engine) -> None:
    sandbox = engine.session(SandboxLimits(output=100))
    outcome = await sandbox.run("print('a' * 500)\n'b' * 500", functions={})
    assert outcome.stdout == "a" * 100
    assert outcome.cut == 401
    assert outcome.value is not None
    assert outcome.value.endswith(" …")
    assert len(outcome.value) < 110
    await sandbox.close()


async def test_code_that_is_too_long_is_refused_with_its_length(engine: Engine) -> None:
    sandbox = engine.session(LIMITS)
    outcome = await sandbox.run("#" * (MAX_CODE + 1), functions={})
    assert outcome.error is not None
    assert str(MAX_CODE) in outcome.error
    await sandbox.close()


async def test_a_session_goes_on_after_a_call_that_nobody_waited_for(engine: Engine) -> None:
    """Its answer comes when the snippet has ended and is no new snippet."""
    sandbox = engine.session(LIMITS)

    async def late() -> str:
        await asyncio.sleep(0.05)
        return "late"

    code = "import asyncio\ntask = asyncio.ensure_future(late())\nawait asyncio.sleep(0)\n1"
    if engine.name == "monty":
        code = "task = late()\n1"
    assert (await sandbox.run(code, functions={"late": late})).value == "1"
    assert (await sandbox.run("1 + 1", functions={"late": late})).value == "2"
    await sandbox.close()


async def test_snippets_that_wait_for_the_host_leave_the_workers_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when every parent waits for a child agent whose own code needs a worker."""
    monkeypatch.setattr(monty_workers, "_WORKERS", 2)
    engine = monty.MontyEngine()
    inside: list[int] = []
    everyone, go = asyncio.Event(), asyncio.Event()

    async def meet(number: int) -> str:
        inside.append(number)
        if len(inside) == 5:
            everyone.set()
        await go.wait()
        return "x" * number

    sessions = [engine.session(LIMITS) for _ in range(5)]
    code = "kept = [{0}]\nprint('before')\ngot = await meet({0})\nprint('after')\n(kept, got)"
    runs = [
        asyncio.create_task(each.run(code.format(number), functions={"meet": meet}))
        for number, each in enumerate(sessions)
    ]
    async with asyncio.timeout(60):
        await everyone.wait()
        assert (await engine.session(LIMITS).run("1 + 1", functions={})).value == "2"
        go.set()
        outcomes = await asyncio.gather(*runs)
        assert [each.value for each in outcomes] == [f"([{n}], {'x' * n!r})" for n in range(5)]
        assert [each.stdout for each in outcomes] == ["before\nafter\n"] * 5
        assert (await sessions[3].run("got + '!'", functions={})).value == "'xxx!'"
    await engine.close()


async def test_a_snippet_cancelled_in_a_long_wait_gives_its_place_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(monty_workers, "_WORKERS", 1)
    engine = monty.MontyEngine()
    began = asyncio.Event()

    async def never() -> None:
        began.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        for _ in range(3):
            began.clear()
            running = asyncio.create_task(
                engine.session(LIMITS).run("await never()", functions={"never": never})
            )
            await began.wait()
            assert (await engine.session(LIMITS).run("1 + 1", functions={})).value == "2"
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert (await engine.session(LIMITS).run("1 + 1", functions={})).value == "2"
    await engine.close()


async def test_a_long_wait_does_not_give_the_code_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monty, "_PATIENCE", 0.01)
    engine = monty.MontyEngine()

    async def pause() -> str:
        await asyncio.sleep(0.1)
        return ""

    sandbox = engine.session(SandboxLimits(seconds=1))
    work = "x = 0\nfor i in range(1000):\n    await pause()\n    for j in range(200_000): x += j"
    outcome = await sandbox.run(work, functions={"pause": pause})
    assert outcome.lost
    assert 1 <= outcome.calls < 1000
    await engine.close()
