"""The scripted model plays its script, and fails a test that does not follow it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asking import ask, asked, listen

from retinue import Retinue
from retinue.errors import ModelError
from retinue.testing import ScriptedModel, Step, call, turn
from retinue.types import AssistantMessage, ModelRequest, Reply, TextDelta, ThinkingDelta, Usage, UserMessage


async def test_texts_and_calls_are_played_in_order() -> None:
    with ScriptedModel(["one", call("read", path="a"), [call("a"), call("b")]]) as model:
        assert (await ask(model, asked())).message.text == "one"
        second = await ask(model, asked())
        assert (second.stop, second.message.calls[0].arguments) == ("tool_calls", '{"path": "a"}')
        third = await ask(model, asked())
        assert len({c.id for c in third.message.calls}) == 2
    assert len(model.requests) == 3


async def test_a_missing_step_fails() -> None:
    model = ScriptedModel(["one"])
    await ask(model, asked())
    with pytest.raises(AssertionError, match="no step for this request"):
        await ask(model, asked("again"))


async def test_a_run_that_asked_for_more_than_the_script_has_fails_the_test(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="no step for this request"),
        ScriptedModel([call("ls", path=".")]) as model,
    ):
        async with Retinue(model=model, db="memory:", cwd=tmp_path, environ={}) as retinue:
            await retinue.run("general", "look around")


def test_an_argument_may_have_any_name() -> None:
    made = call("get_order", id="7", name="x")
    assert (made.id, made.name, made.arguments) == ("", "get_order", '{"id": "7", "name": "x"}')
    assert call("get_order", "c1", id="7").id == "c1"


async def test_a_step_left_over_fails() -> None:
    with pytest.raises(AssertionError, match="left over"), ScriptedModel(["one", "two"]) as model:
        await ask(model, asked())


def test_a_failing_test_is_not_hidden_by_what_is_left_over() -> None:
    with pytest.raises(ValueError, match="the real reason"), ScriptedModel(["one"]):
        raise ValueError("the real reason")


async def test_each_conversation_has_its_own_script() -> None:
    model = ScriptedModel(
        {"You review": ["fine"], "You review code": ["very fine"], "plan": ["1."], "": ["rest"]}
    )

    async def said(system: str, text: str) -> str:
        return (
            await ask(model, ModelRequest(system=system, messages=(UserMessage(text=text),)))
        ).message.text

    assert await said("You review code.", "plan this") == "very fine"
    assert await said("You review.", "x") == "fine"
    assert await said("", "plan this") == "1."
    assert await said("", "hello") == "rest"
    model.assert_done()


async def test_a_function_sees_the_request() -> None:
    async def answer(request: ModelRequest) -> str:
        return f"turn {turn(request)}"

    model = ScriptedModel(answer)
    history = (UserMessage(text="a"), AssistantMessage(text="b"), UserMessage(text="c"))
    assert (await ask(model, ModelRequest(system="", messages=history))).message.text == "turn 1"
    assert (await ask(ScriptedModel([lambda r: call(r.system)]), asked())).message.calls[
        0
    ].name == "You read."
    model.assert_done()


async def test_an_error_is_raised_after_what_was_shown() -> None:
    model = ScriptedModel([Step(text="half", error=ModelError("lost", kind="connection"))])
    stream = model.stream(asked())
    assert await anext(stream) == TextDelta("half")
    with pytest.raises(ModelError, match="lost"):
        await anext(stream)


async def test_a_gate_holds_an_answer_back() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([Step(text="late", gate=gate)])
    task = asyncio.create_task(ask(model, asked()))
    while not model.requests:
        await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    assert (await task).message.text == "late"


async def test_a_step_can_say_everything_about_a_reply() -> None:
    used = Usage(input_tokens=1, output_tokens=2, cost=None)
    model = ScriptedModel([Step(text="abcd", thinking="hm", pieces=2, usage=used, stop="length")])
    events = await listen(model, asked())
    assert events[:3] == [ThinkingDelta("hm"), TextDelta("ab"), TextDelta("cd")]
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert (reply.usage, reply.stop, reply.thinking, reply.model) == (used, "length", "hm", "scripted")
    assert await ask(ScriptedModel([reply]), asked()) is reply


async def test_a_script_by_key_may_be_a_function_or_one_step() -> None:
    model = ScriptedModel({"plan": lambda request: f"plan {turn(request)}", "": "hello"})
    assert (await ask(model, asked("plan it"))).message.text == "plan 0"
    assert (await ask(model, asked("plan it"))).message.text == "plan 0"
    assert model.left == {"": 1}
    assert (await ask(model, asked("hi"))).message.text == "hello"
    model.assert_done()


def test_what_is_no_script_is_refused_with_what_to_write() -> None:
    wrong: Any = {"plan": 7}
    with pytest.raises(
        TypeError, match=r"script for 'plan' is 7: give a list of steps, one step, or a function"
    ):
        ScriptedModel(wrong)


async def test_a_step_that_is_none_is_refused_with_what_it_may_be() -> None:
    wrong: Any = [ValueError("bug"), lambda request: 7]
    model = ScriptedModel(wrong)
    for kind in ("ValueError", "int"):
        with pytest.raises(TypeError, match=f"a step of a ScriptedModel is {kind}: write a text, call"):
            await ask(model, asked("go"))
