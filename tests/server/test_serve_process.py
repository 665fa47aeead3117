"""`retinue serve` as a process: killed, stopped, started again; tokens; refusals."""

from __future__ import annotations

import asyncio
import random
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from process import Serving
from watching import Watcher, checksum

from retinue.app import Retinue
from retinue.events import AnyEvent, ModelReplied, RunFinished, RunResumed, encode
from retinue.store.sqlite import SqliteStore
from retinue.testing import FakeProvider, Script, SeenRequest, call

STEPS = 6


def answer(request: SeenRequest) -> Script:
    """A few steps of looking around, the same whenever it is asked."""
    if request.turn == STEPS:
        return Script(text="looked everywhere")
    calls = tuple(call("glob", f"c{request.turn}_{n}", pattern=f"*.{request.turn}{n}") for n in range(3))
    return Script(calls=calls, delay=0.02)


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider(answer) as running:
        yield running


async def ask(serving: Serving, prompt: str = "look around", **headers: str) -> str:
    return (await post(serving, "runs", {"prompt": prompt}, **headers))["run_id"]


async def post(serving: Serving, path: str, body: dict[str, Any], **headers: str) -> Any:
    url = f"{serving.url}/api/v1/{path}"
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as response:
        assert response.status in (200, 201), await response.text()
        return await response.json()


async def get(serving: Serving, path: str, **headers: str) -> tuple[int, Any]:
    url = f"{serving.url}/api/v1/{path}"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as response:
        return response.status, await response.json()


async def stored(serving: Serving, run_id: str) -> list[AnyEvent]:
    store = SqliteStore(serving.db.removeprefix("sqlite://"))
    await store.open()
    try:
        return await store.events(run_id)
    finally:
        await store.close()


async def seen(watcher: Watcher, events: int) -> None:
    async with asyncio.timeout(60):
        while len(watcher.seen) < events:
            await asyncio.sleep(0.005)


async def test_a_killed_servers_run_goes_on_and_its_watcher_misses_nothing(
    tmp_path: Path, provider: FakeProvider
) -> None:
    async with Serving(tmp_path, provider) as serving:
        await serving.start()
        run_id = await ask(serving)
        watcher = Watcher(f"{serving.url}/api/v1/runs/{run_id}/stream", random.Random(1), longest=10**9)
        watching = asyncio.create_task(watcher.watch())
        await seen(watcher, 12)
        await serving.end(signal.SIGKILL)
        before = provider.served
        await serving.start()
        async with asyncio.timeout(60):
            await watching
        events = await stored(serving, run_id)
        assert watcher.seen == [(event.pos, checksum(encode(event))) for event in events]
        assert [event.pos for event in events] == list(range(1, len(events) + 1))
        assert watcher.connections > 1
        assert sum(isinstance(event, RunResumed) for event in events) == 1
        assert isinstance(events[-1], RunFinished)
        assert events[-1].report.text == "looked everywhere"
        replies = sum(isinstance(event, ModelReplied) for event in events)
        assert replies == STEPS + 1
        # The one call that was under way when it died may have been paid for twice, no other.
        assert replies <= provider.served <= replies + 1
        assert provider.served > before


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_server_killed_at_any_moment_loses_nothing(tmp_path: Path, provider: FakeProvider) -> None:
    dice = random.Random(5)
    async with Serving(tmp_path, provider) as serving:
        for _ in range(4):
            await serving.start()
            run_id = await ask(serving)
            url = f"{serving.url}/api/v1/runs/{run_id}/stream"
            watchers = [Watcher(url, random.Random(n), longest=20) for n in range(5)]
            watching = asyncio.gather(*(watcher.watch() for watcher in watchers))
            for _ in range(2):
                await seen(watchers[0], min(len(watchers[0].seen) + dice.randint(1, 12), 30))
                await serving.end(signal.SIGKILL)
                await serving.start()
            async with asyncio.timeout(60):
                await watching
            expected = [(event.pos, checksum(encode(event))) for event in await stored(serving, run_id)]
            for watcher in watchers:
                assert watcher.seen == expected
            await serving.end(signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
async def test_a_stopped_server_leaves_its_run_to_the_next(
    tmp_path: Path, provider: FakeProvider, number: signal.Signals
) -> None:
    async with Serving(tmp_path, provider) as serving:
        await serving.start()
        run_id = await ask(serving)
        watcher = Watcher(f"{serving.url}/api/v1/runs/{run_id}/stream", random.Random(1), longest=10**9)
        watching = asyncio.create_task(watcher.watch())
        await seen(watcher, 12)
        assert await serving.end(number) == 0
        left = await stored(serving, run_id)
        assert not {"cancel_requested", "run_finished", "error_raised"} & {_kind(event) for event in left}
        await serving.start()
        async with asyncio.timeout(60):
            await watching
        events = await stored(serving, run_id)
        assert events[: len(left)] == left
        assert _kind(events[len(left)]) == "run_resumed"
        assert watcher.seen == [(event.pos, checksum(encode(event))) for event in events]
        assert not any("Traceback" in line for line in serving.said), serving.said


def _kind(event: AnyEvent) -> str:
    return str(type(event).__struct_config__.tag)


@pytest.mark.slow
async def test_no_resume_leaves_runs_alone_and_a_cancel_then_ends_them(
    tmp_path: Path, provider: FakeProvider
) -> None:
    async with Serving(tmp_path, provider) as serving:
        await serving.start()
        run_id = await ask(serving)
        watcher = Watcher(f"{serving.url}/api/v1/runs/{run_id}/stream", random.Random(1))
        watching = asyncio.create_task(watcher.watch())
        await seen(watcher, 8)
        await serving.end(signal.SIGKILL)
        left = await stored(serving, run_id)
        await serving.start("--no-resume")
        _, detail = await get(serving, f"runs/{run_id}")
        assert (detail["run"]["status"], detail["owner"]["here"]) == ("running", False)
        assert await stored(serving, run_id) == left
        assert (await post(serving, f"runs/{run_id}/cancel", {}))["cancelled"] is True
        async with asyncio.timeout(60):
            await watching
        _, report = await get(serving, f"runs/{run_id}/report")
        assert report["status"] == "cancelled"


@pytest.mark.slow
async def test_what_was_cancelled_while_nothing_ran_ends_at_the_next_start(
    tmp_path: Path, provider: FakeProvider
) -> None:
    async with Serving(tmp_path, provider) as serving:
        await serving.start()
        run_id = await ask(serving)
        watcher = Watcher(f"{serving.url}/api/v1/runs/{run_id}/stream", random.Random(1))
        watching = asyncio.create_task(watcher.watch())
        await seen(watcher, 8)
        await serving.end(signal.SIGKILL)
        async with Retinue(model="offline", db=serving.db, cwd=serving.folder, environ={}) as another:
            assert await another.cancel(run_id, "not needed any more")
        await serving.start()
        async with asyncio.timeout(60):
            await watching
        _, report = await get(serving, f"runs/{run_id}/report")
        assert report["status"] == "cancelled"


@pytest.mark.slow
async def test_a_token_is_shown_once_kept_as_a_digest_and_revoked(tmp_path: Path) -> None:
    async with Serving(tmp_path, None, "--model", "offline") as serving:
        await serving.start("--token", "alice:watch")
        (secret,) = serving.tokens.values()
        file = tmp_path / "config" / "retinue" / "server-tokens.json"
        assert secret not in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert (await get(serving, "me"))[0] == 401
        bearer = {"Authorization": f"Bearer {secret}"}
        assert (await get(serving, "me", **bearer))[1]["role"] == "watch"
        assert not any(secret in line for line in serving.said if "shown this once" not in line)
        await serving.end(signal.SIGTERM)
        await serving.start("--token", "alice:watch")
        assert serving.tokens == {}
        assert (await get(serving, "me", **bearer))[0] == 200
        process = await asyncio.create_subprocess_exec(
            *(*_command(), "serve", "--revoke", "alice"), env=serving.env, cwd=serving.folder
        )
        assert await process.wait() == 0
        async with asyncio.timeout(60):  # the server that runs hears of it within a second
            while (await get(serving, "me", **bearer))[0] != 401:
                pass
        assert (await get(serving, "me"))[0] == 401, "without its last token it lets nobody in"
        await serving.end(signal.SIGTERM)
        await serving.start("--token", "bob:ask")
        assert (await get(serving, "me", **bearer))[0] == 401


@pytest.mark.slow
async def test_tokens_that_were_made_count_at_a_later_start_that_names_none(tmp_path: Path) -> None:
    async with Serving(tmp_path, None, "--model", "offline") as serving:
        await serving.start()
        assert any("everybody on this machine may come in" in line for line in serving.said)
        assert (await get(serving, "me"))[1]["role"] == "admin"
        await serving.end(signal.SIGTERM)
        await serving.start("--token", "screen:watch")
        (secret,) = serving.tokens.values()
        await serving.end(signal.SIGTERM)
        await serving.start()
        assert any("nobody comes in without a token; tokens: screen (watch)" in line for line in serving.said)
        assert (await get(serving, "me"))[0] == 401
        assert (await get(serving, "me", Authorization="Bearer nonsense"))[0] == 401
        assert (await get(serving, "me", Authorization=f"Bearer {secret}"))[1]["role"] == "watch"
        await serving.end(signal.SIGTERM)
        await serving.start("--without-tokens")
        assert (await get(serving, "me"))[1]["role"] == "admin"


@pytest.mark.slow
async def test_the_server_is_not_well_when_its_database_is_gone(tmp_path: Path) -> None:
    async with Serving(tmp_path, None, "--model", "offline") as serving:
        await serving.start()
        assert await get(serving, "health") == (200, {"status": "ok"})
        for file in tmp_path.glob("log.db*"):
            file.unlink()
        status, said = await get(serving, "health")
        assert (status, said["error"]["code"]) == (503, "store_failed")
        assert serving.db not in str(said)


@pytest.mark.slow
async def test_another_address_than_loopback_needs_a_token(tmp_path: Path) -> None:
    async with Serving(tmp_path, None, "--model", "offline", "--host", "0.0.0.0") as serving:
        await serving.start()
        assert (await get(serving, "me"))[0] == 401
        bearer = {"Authorization": f"Bearer {serving.tokens['owner']}"}
        _, me = await get(serving, "me", **bearer)
        assert (me["name"], me["role"], me["open"]) == ("owner", "admin", False)


@pytest.mark.slow
async def test_a_token_can_be_set_from_outside(tmp_path: Path) -> None:
    async with Serving(tmp_path, None, "--model", "offline") as serving:
        serving.env["RETINUE_SERVER_TOKEN"] = "from-the-environment-0123"
        await serving.start()
        assert (await get(serving, "me"))[0] == 401
        bearer = {"Authorization": "Bearer from-the-environment-0123"}
        assert (await get(serving, "me", **bearer))[1]["role"] == "admin"
        assert not any("from-the-environment" in line for line in serving.said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--token", "alice"), "NAME:ROLE"),
        (("--token", "alice:king"), "watch, ask, approve, admin"),
        (("--host", "203.0.113.1", "--token", "a:ask"), "cannot listen"),
        (("--host", "300.1.1.1"), "cannot listen"),
        (("--host", "0.0.0.0", "--without-tokens"), "for loopback alone"),
        (("--revoke", "nobody"), "no token of 'nobody'"),
    ],
)
async def test_a_mistake_is_one_line_and_a_code(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    serving = Serving(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *(*_command(), "serve", "--db", "memory:", "--port", "0", "--model", "offline", *options),
        env=serving.env,
        cwd=serving.folder,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert says in err.decode().splitlines()[-1]
    assert b"shown this once" not in err, "no token is made for a server that does not start"


def _command() -> tuple[str, ...]:
    return (sys.executable, "-m", "retinue")
