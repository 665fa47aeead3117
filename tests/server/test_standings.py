"""How runs stand is sent: told when it changes, of the runs that changed, and never worked out from a log."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
from api import Told, serving

from retinue.app import Retinue
from retinue.errors import ModelError
from retinue.events import AnyEvent, ModelReplied, RunStarted, StepStarted, ToolReturned
from retinue.server.hub import HEARTBEAT, with_outcomes
from retinue.server.standings import Standings
from retinue.store.memory import MemoryStore
from retinue.story import Story
from retinue.testing import ScriptedModel, Step, call
from retinue.tools.base import tool
from retinue.types import AgentSpec, AssistantMessage, Usage
from trees import Stage, agent

MOMENT = ("at", "worked", "waited")
SPEC = AgentSpec(name="part", description="a part", prompt="Do it.")


@tool(effect="write")
async def mark(what: str) -> str:
    """Leave a mark."""
    return "marked"


def over(told: Told) -> bool:
    return told.data["type"] == "standing" and told.data["ended"] is not None


async def test_a_stream_tells_how_a_run_stands_when_that_changes_and_only_then(folder: Path) -> None:
    gates = [asyncio.Event() for _ in range(2)]
    model = ScriptedModel(
        [Step(calls=(call("mark", what="x"),), gate=gates[0]), Step(text="done", gate=gates[1])]
    )
    async with serving(model, folder, tools=[mark]) as api:
        run_id = await api.ask()
        outcomes: list[str] = []

        def enough(told: Told) -> bool:
            if told.data["type"] == "approval_requested":
                task = api.post(f"approvals/{told.data['approval_id']}", {"decision": "reject"})
                answering.append(asyncio.ensure_future(task))
            if told.data["type"] == "standing":
                outcomes.append(told.data["outcome"])
                if outcomes[-1] == "running":
                    gates["waiting" in outcomes].set()
            return over(told)

        answering: list[asyncio.Future[Any]] = []
        told = await api.follow(f"runs/{run_id}/stream?standing=true", until=enough)
        await asyncio.gather(*answering)
        frames = [one.data for one in told if one.data["type"] == "standing"]
        assert list(dict.fromkeys(outcomes)) == ["running", "waiting", "rejected"]
        assert all(one.id is None for one in told if one.data["type"] == "standing")
        facts = [{name: value for name, value in one.items() if name not in MOMENT} for one in frames]
        assert all(one != other for one, other in itertools.pairwise(facts))
        assert frames[-1]["total"]["tool_calls"] == frames[-1]["tool_calls"] == 0
        found = await api.get(f"runs/{run_id}/events?standing=true")
        assert [{**one, "at": 0} for one in found["standing"]] == [{**frames[-1], "at": 0}]
        assert frames[-1]["shortfall"]["rejected"] == 1
        plain = await api.follow(f"runs/{run_id}/stream?until=end")
        assert {one.data["type"] for one in plain if one.id is None} == set()


async def test_who_has_seen_all_is_told_nothing_and_who_has_not_of_what_it_missed(folder: Path) -> None:
    async with serving(ScriptedModel(["done"]), folder) as api:
        run_id = await api.ask()
        last = len(await api.ended(run_id))
        hub = api.server.hub
        hub.heartbeat = 0.01

        async def first(after: int) -> bytes:
            said = b""
            async for chunk, _ in hub.watch(run_id, after=after, standing=True):
                if chunk == HEARTBEAT:
                    break
                said += chunk
            return said

        async with asyncio.timeout(60):
            assert await first(last) == b""
            assert (await first(last - 1)).count(b'"type":"standing"') == 1
            assert b"standings of" not in {task.get_name().encode() for task in asyncio.all_tasks()}


def event(kind: Any, run_id: str, seq: int, **fields: Any) -> Any:
    root = run_id == "r"
    place = {"run_id": run_id, "root_id": "r", "parent_id": None if root else "r", "depth": int(not root)}
    return kind(**place, seq=seq, at=float(seq), **fields)


async def test_of_a_thousand_runs_only_those_are_told_that_moved(tmp_path: Path) -> None:
    async with Retinue(db="memory:", cwd=tmp_path, environ={}, model="offline") as retinue:
        runs = ["r", *(f"c{n}" for n in range(1000))]
        await retinue.store.append([event(RunStarted, one, 1, spec=SPEC, prompt="go") for one in runs])
        told: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        standings = Standings(
            retinue, "r", lambda run_id, data: told.put_nowait((run_id, json.loads(data[len("data: ") :])))
        )
        await standings.opened
        assert len(standings.frames(None, None).split(b"\n\n")) == 1 + len(runs)
        assert standings.frames({"c7"}, None).count(b'"run_id":') == 2
        assert standings.frames({"c7"}, "c7").count(b'"run_id":') == 1
        usage = Usage(input_tokens=5, output_tokens=2, cost=0.5)
        moves = [
            event(StepStarted, "c7", 2, step=1, model="m"),
            event(StepStarted, "c7", 3, step=2, model="m"),
            event(
                ModelReplied,
                "c7",
                4,
                step=2,
                model="m",
                message=AssistantMessage(text="x"),
                usage=usage,
                stop="end",
            ),
        ]
        await retinue.store.append(moves)
        for one in moves:
            standings.touch(one)
        async with asyncio.timeout(60):
            heard = dict([await told.get(), await told.get()])
        assert heard["c7"]["outcome"] == "running"
        assert heard["c7"]["input_tokens"] == heard["r"]["total"]["input_tokens"] == 5
        assert heard["r"]["input_tokens"] == 0
        begins = event(StepStarted, "c8", 2, step=1, model="m")
        await retinue.store.append([begins])
        standings.touch(moves[-1])  # nothing is new there
        standings.touch(begins)
        async with asyncio.timeout(60):
            assert (await told.get())[0] == "c8"
        assert told.empty()
        standings.close()


def bare(log: list[AnyEvent]) -> list[AnyEvent]:
    """As earlier versions wrote it."""
    return [msgspec.structs.replace(one, outcome="") if isinstance(one, ToolReturned) else one for one in log]


async def test_calls_of_a_stored_log_end_as_those_of_today() -> None:
    batches = (("fine", "fine"), ("fine", "broken"), ("fine", "nobody"))
    calls: list[Any] = [
        ("parallel_tasks", {"tasks": [{"agent_id": name, "prompt": "x"} for name in batch]})
        for batch in batches
    ]
    stage = Stage(
        {"root": [[*calls, ("mark", {"what": "x"})], "done"], "fine": ["fine"]}
        | {"broken": [ModelError("bad", kind="invalid")]},
        agents=[agent("fine"), agent("broken")],
        tools=[mark],
        delegation__tools=["parallel_tasks"],
        delegation__max_children=9,
    )
    await stage.run()
    log = await stage.log()
    ends = [one.outcome for one in log if isinstance(one, ToolReturned)]
    assert sorted(ends) == ["completed", "error", "incomplete", "refused"]
    story = Story()
    assert [one.outcome for one in map(story.apply, bare(log)) if isinstance(one, ToolReturned)] == ends
    store = MemoryStore()
    await store.append([msgspec.structs.replace(one, pos=0) for one in bare(log)])
    # A page may begin after what its calls waited for.
    first = next(n for n, one in enumerate(log) if isinstance(one, ToolReturned))
    page = await store.events(stage.root_id, after=first)
    told = await with_outcomes(store, stage.root_id, page)
    assert [one.outcome for one in told if isinstance(one, ToolReturned)] == ends
