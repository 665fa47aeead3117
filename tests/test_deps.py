"""What a program hands its tools, what it says of a run, and the types its reports are of."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from retinue import AgentSpec, ConfigError, Retinue, RunFilter, ToolContext, threads, tool
from retinue.events import ToolReturned
from retinue.run_options import RunInfo
from retinue.testing import ScriptedModel, call
from retinue.types import ModelRequest, UserMessage


@dataclass
class Shop:
    tenant: str
    orders: dict[str, str] = field(default_factory=dict[str, str])


@tool
async def order(ctx: ToolContext[Shop], number: str) -> str:
    """The state of an order."""
    await asyncio.sleep(0)
    return f"{ctx.deps.tenant} {ctx.metadata.get('tenant', '-')}: {ctx.deps.orders.get(number, 'unknown')}"


CLERK = AgentSpec(name="clerk", description="Looks orders up.", prompt="You are the clerk.", tools=("order",))
BOSS = AgentSpec(name="boss", description="answers", prompt="You are the boss.", tools=("clerk", "order"))


def play(request: ModelRequest) -> Any:
    """The boss asks the clerk, the clerk the tool; each says what it was told."""
    said = [message for message in request.messages if not isinstance(message, UserMessage)]
    if said:
        return str(getattr(request.messages[-1], "text", ""))
    return call("clerk", prompt="7") if "the boss" in request.system else call("order", number="7")


def opened(**options: Any) -> Retinue[Shop]:
    given: dict[str, Any] = {"model": ScriptedModel(play), "tools": [order], "agents": [BOSS, CLERK]}
    return Retinue[Shop](**{"db": "memory:", "environ": {}, **given, **options})


async def test_a_hundred_tenants_at_once_see_their_own_deps_also_in_children(tmp_path: Path) -> None:
    async with opened(cwd=tmp_path) as retinue:

        async def one(number: int) -> str:
            shop = Shop(f"t{number}", {"7": f"order of t{number}"})
            metadata = {"tenant": f"t{number}"}
            return (await retinue.run("boss", "7?", deps=shop, metadata=metadata)).text

        texts = await asyncio.gather(*(one(number) for number in range(100)))
        for number, text in enumerate(texts):
            assert f"t{number} t{number}: order of t{number}" in text
        rows = await retinue.runs(RunFilter(metadata={"tenant": "t42"}))
        assert [row.metadata for row in rows] == [{"tenant": "t42"}]


async def test_a_run_that_lacks_its_deps_does_not_begin(tmp_path: Path) -> None:
    async with opened(cwd=tmp_path) as retinue:
        with pytest.raises(ConfigError, match="the tool 'order' works with Shop, and no deps are given"):
            await retinue.run("clerk", "7?")
        assert await retinue.runs() == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_after_a_restart_a_factory_makes_the_deps_again(tmp_path: Path, is_async: bool) -> None:
    made: list[RunInfo] = []

    def factory(run: RunInfo) -> Any:
        made.append(run)
        shop = Shop(run.metadata["tenant"], {"7": "sent"})
        return asyncio.sleep(0, shop) if is_async else shop

    db = f"sqlite:///{tmp_path / 'r.db'}"
    async with opened(cwd=tmp_path, db=db) as retinue:
        first = await retinue.run("clerk", "7?", deps=Shop("acme"), metadata={"tenant": "acme", "vip": True})
    assert "acme acme: unknown" in first.text
    again = ScriptedModel([call("order", number="7"), "looked"])
    async with opened(cwd=tmp_path, db=db, model=again, deps_factory=factory) as retinue:
        await retinue.wait(await retinue.resume(first.run_id, message="and now?"))
        told = [event async for event in retinue.watch(first.run_id)]
        results = [event.text for event in told if isinstance(event, ToolReturned)]
        assert results[-1] == "acme acme: sent"
        assert await retinue.runs(RunFilter(metadata={"vip": "true"})) != []
        assert await retinue.runs(RunFilter(metadata={"vip": "True"})) == []
    assert made == [RunInfo(run_id=first.run_id, agent="clerk", metadata={"tenant": "acme", "vip": "true"})]


@pytest.mark.parametrize(
    ("metadata", "error", "said"),
    [
        ({"a b": "x"}, ValueError, "the key 'a b'"),
        ({"a": ["x"]}, TypeError, "give a text, a number, True or False"),
        ({"a": "x" * 5000}, ValueError, "5,001 bytes, of 4,096 at most"),
    ],
)
async def test_metadata_is_small_and_of_texts(
    tmp_path: Path, metadata: Any, error: type[Exception], said: str
) -> None:
    async with opened(cwd=tmp_path) as retinue:
        with pytest.raises(error, match=said):
            await retinue.run("clerk", "7?", deps=Shop("x"), metadata=metadata)


class Booking(BaseModel):
    room: str
    day: date

    @field_validator("room")
    @classmethod
    def _exists(cls, room: str) -> str:
        if room not in ("red", "blue"):
            raise ValueError(f"there is no room {room!r}: red or blue")
        return room


DESK = AgentSpec(name="desk", description="books", prompt="You book rooms.", tools=())


async def test_an_output_is_of_its_type_and_what_the_type_itself_refuses_goes_back(tmp_path: Path) -> None:
    seen: list[str] = []
    answers = iter([{"room": "green", "day": "2026-11-17"}, {"room": "red", "day": "2026-11-17"}])

    def booking(request: ModelRequest) -> str:
        seen.append(str(getattr(request.messages[-1], "text", "")))
        return json.dumps(next(answers))

    async with Retinue(model=ScriptedModel(booking), db="memory:", cwd=tmp_path, environ={}) as retinue:
        report = await retinue.run(DESK, "book", output=Booking)
    assert report.output == Booking(room="red", day=date(2026, 11, 17))
    assert report.output is report.output
    assert "there is no room 'green': red or blue" in seen[1]


async def test_an_output_that_is_not_there_says_why(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: "no JSON")
    async with Retinue(model=model, db="memory:", cwd=tmp_path, environ={}) as retinue:
        report = await retinue.run(DESK, "book", output=Booking)
    assert report.outcome == "incomplete"
    with pytest.raises(ValueError, match="desk gave no data: the answer could not be corrected"):
        _ = report.output


async def test_a_type_given_to_an_agent_holds_for_it_as_a_child_too(tmp_path: Path) -> None:
    desk = AgentSpec(
        name="desk", description="books", prompt="You are the desk.", tools=(), output_schema=Booking
    )
    lead = AgentSpec(name="lead", description="leads", prompt="You are the lead.", tools=("desk",))
    answers = iter([{"room": "green", "day": "2026-11-17"}, {"room": "blue", "day": "2026-11-17"}])

    def both(request: ModelRequest) -> Any:
        if "the desk" in request.system:
            return json.dumps(next(answers))
        return (
            call("desk", prompt="book")
            if len(request.messages) == 1
            else str(getattr(request.messages[-1], "text", ""))
        )

    async with Retinue(
        model=ScriptedModel(both), db="memory:", cwd=tmp_path, environ={}, agents=[lead, desk]
    ) as retinue:
        report = await retinue.run("lead", "book")
    assert '"blue"' in report.text
    assert '"green"' not in report.text


def exits(_: object) -> str:
    raise SystemExit(3)


async def exits_later(_: object) -> str:
    await asyncio.sleep(0)
    raise SystemExit(3)


async def cancels(_: object) -> str:
    raise asyncio.CancelledError


@pytest.mark.parametrize("function", [exits, exits_later, cancels])
@pytest.mark.parametrize("way", ["instructions", "prompt", "deps_factory"])
async def test_what_a_function_of_the_program_raises_ends_no_program(
    tmp_path: Path, way: str, function: Any
) -> None:
    agent = AgentSpec(name="a", description="d", prompt=function if way == "prompt" else "P", tools=())
    given: dict[str, Any] = {"deps_factory": function} if way == "deps_factory" else {}
    more: dict[str, Any] = {"instructions": function} if way == "instructions" else {}
    async with opened(cwd=tmp_path, model=ScriptedModel(["x"]), agents=[agent], **given) as retinue:
        with pytest.raises(RuntimeError) as raised:
            await retinue.run("a", "go", **more)
    assert (type(raised.value).__name__, str(raised.value)) in (("SystemExit", "3"), ("CancelledError", ""))


async def test_a_factory_that_takes_no_cancellation_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "GRACE", 0.01)
    begun, end = asyncio.Event(), asyncio.Event()

    async def factory(info: RunInfo) -> Shop:
        begun.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        return Shop("late")

    async with opened(cwd=tmp_path, deps_factory=factory) as retinue:
        run = asyncio.create_task(retinue.run("boss", "7?"))
        await begun.wait()
        run.cancel()
        done, _ = await asyncio.wait({run}, timeout=20)
        end.set()
        assert done, "who cancels does not wait for the factory"
        assert run.cancelled()
