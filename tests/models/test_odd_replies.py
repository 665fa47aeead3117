"""Replies that no sound provider sends: read as far as they can be, paid for once, and never the end of a run.

Over real sockets, in every wire format, into a real database, with the run taken up again afterwards.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import MODEL_OF, WIRES

from retinue.app import Retinue
from retinue.events import ModelReplied, ToolReturned
from retinue.fold import fold
from retinue.testing import FakeProvider, Script, call
from retinue.tools.base import tool
from retinue.types import AgentSpec, ToolCall, Usage
from retinue.view import words
from retinue.view.question import shown_arguments

pytestmark = pytest.mark.parametrize("wire", WIRES)

HALF = rb"\ud83d"
ROOT = AgentSpec(name="root", description="the root", prompt="You look.", tools=("look",))


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def opened(wire: str, server: FakeProvider, folder: Path, **settings: Any) -> Retinue:
    if wire == "responses":
        own = {"wire": "responses", "base_url": server.openai_url, "key_env": ["OPENAI_API_KEY"]}
        settings["providers"] = {"responses": own}
    return Retinue(
        model=f"{wire}:{MODEL_OF[wire]}",
        db=f"sqlite://{folder}/log.db",
        cwd=folder,
        environ={**server.environ(), "HOME": str(folder)},
        tools=[look],
        settings=settings,
    )


async def played(wire: str, server: FakeProvider, folder: Path, odd: Script) -> list[ModelReplied]:
    """The odd reply, what follows it, and a second question after a restart: each is paid for once."""
    server.add(odd)
    if odd.calls:
        server.reply("looked")
    async with asyncio.timeout(60):
        async with opened(wire, server, folder) as retinue:
            report = await retinue.run(ROOT, "go")
            assert (report.status, report.error) == ("completed", None)
        assert server.pending == 0
        assert server.served == 1 + bool(odd.calls), "nothing was asked for again"
        server.reply("went on")
        async with opened(wire, server, folder) as retinue:
            await retinue.resume(report.run_id, message="and then?")
            again = await retinue.wait(report.run_id)
            assert (again.status, again.text) == ("completed", "went on")
            events = await retinue.store.events(report.run_id)
    assert fold(events).report == again
    assert not server.rejected, "what was odd is not sent back in a form that nobody takes"
    return [event for event in events if isinstance(event, ModelReplied)]


_COUNT = re.compile(rb'("[A-Za-z_]*[tT]oken[A-Za-z_]*":)\d+')


def counting(value: bytes) -> Callable[[bytes], bytes]:
    """Every count of tokens is this instead."""
    return lambda event: _COUNT.sub(rb"\g<1>" + value, event)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(str(2**63).encode(), id="2^63"),
        pytest.param(b"1" + b"0" * 5000, id="5001 digits"),
        b"-5",
        b"1.5",
        b"1e3",
        b"1e999",
        b'"12"',
        b"NaN",
        b"-Infinity",
        b"true",
        b'{"text":1}',
        b"[1]",
    ],
)
async def test_a_count_that_is_none_is_an_unknown_one(
    wire: str, value: bytes, server: FakeProvider, tmp_path: Path
) -> None:
    odd = Script(calls=(call("look", what="it"),), rewrite=counting(value))
    replies = await played(wire, server, tmp_path, odd)
    assert replies[0].usage == Usage(cost=None)
    assert replies[1].usage.input_tokens > 0


@pytest.mark.parametrize("value", [b'"a lot"', b"7", b"[]", b"[1]", b"true", b"NaN"])
async def test_a_usage_that_is_none_is_an_unknown_one(
    wire: str, value: bytes, server: FakeProvider, tmp_path: Path
) -> None:
    usage = re.compile(rb'("usage(?:Metadata)?":)(\{(?:[^{}]|\{[^{}]*\})*\})')
    odd = Script(calls=(call("look", what="it"),), rewrite=lambda event: usage.sub(rb"\g<1>" + value, event))
    replies = await played(wire, server, tmp_path, odd)
    assert replies[0].usage == Usage(cost=None)


async def test_no_usage_at_all_is_nothing_counted(wire: str, server: FakeProvider, tmp_path: Path) -> None:
    usage = re.compile(rb'("usage(?:Metadata)?":)(\{(?:[^{}]|\{[^{}]*\})*\})')
    odd = Script(text="fine", rewrite=lambda event: usage.sub(rb"\g<1>null", event))
    assert (await played(wire, server, tmp_path, odd))[0].usage == Usage(cost=None)


async def test_a_limit_of_money_stops_at_an_answer_that_does_not_say_what_it_used(
    wire: str, server: FakeProvider, tmp_path: Path
) -> None:
    usage = re.compile(rb'("usage(?:Metadata)?":)(\{(?:[^{}]|\{[^{}]*\})*\})')
    server.add(
        Script(calls=(call("look", what="it"),), rewrite=lambda event: usage.sub(rb"\g<1>null", event)),
        Script(text="paid for beyond the limit"),
    )
    prices = {f"{wire}:{MODEL_OF[wire]}": {"input": 1.0, "output": 2.0}}
    async with opened(wire, server, tmp_path, prices=prices) as retinue:
        report = await retinue.run(ROOT, "go", settings={"limits.max_cost": 0.5})
    assert report.ended_by == "budget"
    assert "did not say what its answer used" in (report.incomplete or "")
    assert (server.served, report.usage.cost) == (1, None)


@pytest.mark.parametrize("half", [HALF, rb"\ude00", rb"\ud83dA", rb"\ud83d\ud83d", b"\xed\xa0\xbd", b"\xff"])
async def test_half_a_character_stands_anywhere_in_a_reply(
    wire: str, half: bytes, server: FakeProvider, tmp_path: Path
) -> None:
    calls = (
        call("look", "call_1HALF", what="one HALF"),
        call("look", "call_2", what="two TWICE"),
        call("lookHALF", "call_3", what="three"),
    )
    twice = (
        half.replace(b"\\u", b"\\\\u") if wire != "gemini" else half
    )  # its arguments are no text in a text

    def rewrite(event: bytes) -> bytes:
        return event.replace(b"HALF", half).replace(b"TWICE", twice)

    odd = Script(thinking="so HALF it is", text="this HALF too", calls=calls, pieces=1, rewrite=rewrite)
    reply = (await played(wire, server, tmp_path, odd))[0]
    assert reply.message.text.startswith("this ")
    assert reply.message.text.endswith(" too")
    if wire != "responses":
        assert reply.thinking.startswith("so ")
    assert [each.name[:4] for each in reply.message.calls] == ["look"] * 3


_BESIDE = re.compile(rb'"(?:model|modelVersion|finish_reason|stop_reason|finishReason|status|role|object)":"')


async def test_half_a_character_in_a_field_beside_the_answer_does_no_harm(
    wire: str, server: FakeProvider, tmp_path: Path
) -> None:
    odd = Script(text="fine", rewrite=lambda event: _BESIDE.sub(lambda found: found[0] + HALF, event))
    assert (await played(wire, server, tmp_path, odd))[0].message.text == "fine"


@pytest.mark.parametrize("depth", [150, 1_100, 20_000])
async def test_arguments_that_are_nested_too_deep_are_a_mistake_that_the_model_reads(
    wire: str, server: FakeProvider, tmp_path: Path, depth: int
) -> None:
    if wire == "gemini" and depth > 500:
        pytest.skip("they come as an object there, and the fake provider itself cannot write them")
    arguments = '{"what": ' + "[" * depth + "]" * depth + "}"
    await played(wire, server, tmp_path, Script(calls=(ToolCall(id="c1", name="look", arguments=arguments),)))
    async with opened(wire, server, tmp_path) as retinue:
        (row,) = await retinue.runs()
        (told,) = [e for e in await retinue.store.events(row.run_id) if isinstance(e, ToolReturned)]
        assert told.is_error
        assert "levels deep" in told.text
    assert shown_arguments(arguments)
    assert words.arguments(arguments)
