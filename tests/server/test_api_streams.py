"""Streams: nothing lost, nothing twice, in order; read once for all; slow and gone clients cost nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from api import Api, serving
from watching import Watcher, checksum

from pg import postgres_url  # noqa: F401  # a fixture
from retinue.events import AnyEvent, encode
from retinue.server.hub import MOST_ENTRIES, PAGE, Hub
from retinue.testing import ScriptedModel, Step, call
from retinue.tools.base import tool
from retinue.types import AssistantMessage, ModelRequest


@tool(effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


def busy(steps: int, calls: int = 40) -> Any:
    """A model that asks for many tools, so many times: two events for each call and two for each step."""

    def answer(request: ModelRequest) -> Any:
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if turn == steps:
            return "done"
        return [call("look", what=f"{turn}.{n}") for n in range(calls)]

    return ScriptedModel(answer)


PLENTY = {"limits.max_turns": 10_000, "limits.timeout": 600.0, "context.max_tokens": 100_000_000}


async def watched(api: Api, run_id: str, count: int, seed: int, longest: int) -> list[Watcher]:
    """So many watchers, each to the end of the run."""
    dice = random.Random(seed)
    url = f"{api.url}/api/v1/runs/{run_id}/stream"
    watchers = [Watcher(url, random.Random(dice.random()), longest) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for watcher in watchers:
            group.create_task(watcher.watch())
    return watchers


def assert_complete(watchers: Sequence[Watcher], events: Sequence[AnyEvent]) -> None:
    expected = [(event.pos, checksum(encode(event))) for event in events]
    assert [pos for pos, _ in expected] == list(range(1, len(expected) + 1))
    for watcher in watchers:
        assert watcher.seen == expected


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
async def test_watchers_that_lose_their_connection_miss_nothing(
    folder: Path, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    dbs = {"memory": lambda: "memory:", "sqlite": lambda: f"sqlite://{tmp_path}/log.db"}
    db = dbs[kind]() if kind in dbs else request.getfixturevalue("postgres_url")
    async with serving(busy(12), folder, db=db, tools=[look], settings=PLENTY) as api:
        run_id = await api.ask()
        watchers = await watched(api, run_id, 8, seed=len(kind), longest=150)
        assert_complete(watchers, await api.retinue.store.events(run_id))
        assert sum(watcher.connections for watcher in watchers) > 40


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_ten_thousand_events_reach_fifty_watchers(folder: Path, tmp_path: Path) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    async with serving(busy(122), folder, db=db, tools=[look], settings=PLENTY) as api:
        began = time.perf_counter()
        run_id = await api.ask()
        watchers = await watched(api, run_id, 50, seed=7, longest=1500)
        took = time.perf_counter() - began
        events = await api.retinue.store.events(run_id)
        assert len(events) >= 10_000
        assert_complete(watchers, events)
        sent = len(events) * len(watchers)
        reconnects = sum(watcher.connections for watcher in watchers) - len(watchers)
        print(
            f"\n{len(events)} events to {len(watchers)} watchers, {reconnects} reconnects: {took:.1f} s, "
            f"{sent / took:,.0f} events/s, {api.server.hub.pages.reads} page reads"
        )


async def test_a_finished_run_is_read_once_for_all_who_watch_it(folder: Path, tmp_path: Path) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    async with serving(busy(25), folder, db=db, tools=[look], settings=PLENTY) as api:
        run_id = await api.ask()
        events = await api.ended(run_id)
        api.server.hub.pages.reads = 0
        watchers = await watched(api, run_id, 20, seed=3, longest=10**9)
        assert all(len(watcher.seen) == len(events) for watcher in watchers)
        assert len(events) > 10 * PAGE
        assert api.server.hub.pages.reads <= len(events) // PAGE + 1


async def test_a_run_of_another_process_is_followed_through_the_store(folder: Path, tmp_path: Path) -> None:
    """Two servers on one database: the one that does not run it shows it all the same."""
    db = f"sqlite://{tmp_path}/log.db"
    gate = asyncio.Event()
    model = ScriptedModel([Step(calls=(call("look", what="x"),), gate=gate), "done"])
    async with (
        serving(model, folder, db=db, tools=[look]) as runs,
        serving(busy(0), folder, db=db, resume=False) as shows,
    ):
        run_id = await runs.ask()
        following = asyncio.create_task(shows.ended(run_id))
        while run_id not in shows.server.hub.channels:
            await asyncio.sleep(0.01)
        gate.set()
        assert await following == await runs.ended(run_id)


async def test_watchers_on_both_sides_of_a_resume_see_one_stream(folder: Path) -> None:
    async with serving(ScriptedModel(["one", "two", "three"]), folder) as api:
        run_id = await api.ask()
        stream = api.stream(f"runs/{run_id}/stream")
        seen: list[int] = []
        ends = 0
        async with asyncio.timeout(60):
            async for told in stream:
                if told.id is not None:
                    seen.append(told.id)
                if told.data["type"] == "run_finished":
                    ends += 1
                    if ends == 3:
                        break
                    await api.post(f"runs/{run_id}/message", {"text": "go on"})
        await stream.aclose()
        assert seen == list(range(1, len(seen) + 1))


async def test_a_cursor_is_taken_from_the_header_before_the_address(folder: Path) -> None:
    async with serving(ScriptedModel(["done"]), folder) as api:
        run_id = await api.ask()
        await api.ended(run_id)
        path = f"runs/{run_id}/stream?until=end"
        assert [told.id for told in await api.follow(f"{path}&after=2")] == [3, 4]
        assert [told.id for told in await api.follow(f"{path}&after=1", last=3)] == [4]
        assert await api.follow(f"{path}&after=4") == []
        assert await api.follow(f"{path}&after=999") == []
        wrong = await api("GET", path, headers={"Last-Event-ID": "x"})
        assert (wrong.status, wrong.code) == (422, "invalid")


async def test_a_quiet_stream_says_that_it_is_still_there(folder: Path) -> None:
    gate = asyncio.Event()
    async with serving(ScriptedModel([Step(text="x", gate=gate)]), folder, heartbeat=0.05) as api:
        run_id = await api.ask()
        async with api.session.get(f"{api.url}/api/v1/runs/{run_id}/stream") as response:
            async with asyncio.timeout(60):
                async for line in response.content:
                    if line.startswith(b": still here"):
                        break
        gate.set()


async def test_a_client_that_goes_before_the_first_byte_leaves_no_stream_behind(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        at_once = asyncio.Event()

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await at_once.wait()  # its window is full, and then it is gone

        path = "/api/v1/stream"
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost:1")],
            "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 5),
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
        }
        for _ in range(3):
            await api.app(scope, receive, send)
        assert api.server.streams["person"] == 0


async def test_who_watches_the_news_for_one_snapshot_is_forgotten(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        news = api.server.news
        looking = "news of all runs"
        for _ in range(3):
            watching = news.watch()
            assert b"snapshot" in await anext(watching)
            assert looking in {task.get_name() for task in asyncio.all_tasks()}
            await watching.aclose()
        async with asyncio.timeout(60):
            while looking in {task.get_name() for task in asyncio.all_tasks()}:
                await asyncio.sleep(0.01)


async def test_streams_that_nobody_watches_are_forgotten(folder: Path) -> None:
    gate = asyncio.Event()
    async with serving(ScriptedModel([Step(text="x", gate=gate)]), folder) as api:
        run_id = await api.ask()
        streams = [api.stream(f"runs/{run_id}/stream") for _ in range(5)]
        for stream in streams:
            await anext(stream)
        assert len(api.server.hub.channels) == 1
        for stream in streams:
            await stream.aclose()
        async with asyncio.timeout(60):
            while api.server.hub.channels or api.server.streams["person"]:
                await asyncio.sleep(0.01)
        gate.set()


async def test_a_channel_holds_a_bounded_number_of_events(folder: Path) -> None:
    async with serving(busy(60), folder, tools=[look], settings=PLENTY) as api:
        run_id = await api.ask()
        stream = api.stream(f"runs/{run_id}/stream")
        await anext(stream)
        channel = api.server.hub.channels[run_id]
        async with asyncio.timeout(60):
            while (row := await api.retinue.store.run(run_id)) is None or row.completed_at is None:
                await asyncio.sleep(0.05)
        assert channel.last > 2 * MOST_ENTRIES
        assert channel.held <= MOST_ENTRIES
        await stream.aclose()


async def test_the_news_begin_with_a_snapshot_and_tell_what_changes(folder: Path) -> None:
    @tool(effect="write")
    async def mark(what: str) -> str:
        """Leave a mark."""
        return "marked"

    gate = asyncio.Event()
    model = ScriptedModel([Step(calls=(call("mark", what="x"),), gate=gate), "done"])
    async with serving(model, folder, tools=[mark]) as api:
        stream = api.stream("stream")
        async with asyncio.timeout(60):
            first = await anext(stream)
            assert first.data == {"type": "snapshot", "running": [], "waiting": []}
            run_id = await api.ask()
            told: list[dict[str, Any]] = []

            async def until(kind: str, change: str) -> dict[str, Any]:
                while True:
                    news = (await anext(stream)).data
                    told.append(news)
                    if (news["type"], news.get("change")) == (kind, change):
                        return news

            assert (await until("run", "started"))["run"]["run_id"] == run_id
            gate.set()
            asked = (await until("approval", "asked"))["approval"]
            assert (asked["tool"], asked["run_id"]) == ("mark", run_id)
            counts = (await anext(stream)).data
            assert counts == {"type": "counts", "running": 1, "waiting": 1}
            second = await api.follow("stream", until=lambda one: True)
            assert [one["approval_id"] for one in second[0].data["waiting"]] == [asked["approval_id"]]
            await api.post(f"approvals/{asked['approval_id']}", {"decision": "approve"})
            await until("run", "ended")
            assert {"type": "approval", "change": "answered", "approval_id": asked["approval_id"]} in told
        await stream.aclose()


async def test_the_news_tell_of_other_processes_too(folder: Path, tmp_path: Path) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    async with (
        serving(ScriptedModel(["done"]), folder, db=db) as runs,
        serving(busy(0), folder, db=db) as shows,
    ):
        stream = shows.stream("stream")
        async with asyncio.timeout(60):
            assert (await anext(stream)).data["type"] == "snapshot"
            run_id = await runs.ask()
            async for told in stream:
                if told.data["type"] == "run" and told.data["run"]["status"] == "completed":
                    assert told.data["run"]["run_id"] == run_id
                    break
        await stream.aclose()


async def test_a_ring_is_entered_at_the_next_event_or_not_at_all(folder: Path) -> None:
    """Whatever a watcher has seen: it gets the next event from the ring, or reads the log."""
    async with serving(busy(30), folder, tools=[look], settings=PLENTY) as api:
        run_id = await api.ask()
        last = len(await api.ended(run_id))
        hub: Hub = api.server.hub
        stream = api.stream(f"runs/{run_id}/stream?after={last}")
        waiting = asyncio.ensure_future(anext(stream))
        async with asyncio.timeout(60):
            while run_id not in hub.channels or not hub.channels[run_id].opened.done():
                await asyncio.sleep(0.01)
        channel = hub.channels[run_id]
        for cursor in range(last):
            number = channel.enter(cursor)
            if number is None:
                assert cursor < last // PAGE * PAGE
            else:
                entries = channel.since(number)
                assert entries
                assert next(entry.pos for entry in entries if entry.pos) == cursor + 1
        waiting.cancel()
