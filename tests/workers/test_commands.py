"""Workers from the command line: who asks there sees the same as without them."""

from __future__ import annotations

import asyncio
import json
import re
import sys

import aiohttp
from staff import Staff, until

from retinue.testing import FakeProvider


async def retinue(staff: Staff, *arguments: str, **environ: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retinue", *arguments),
        cwd=staff.folder,
        env=staff.environ | environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_ask_shows_the_answer_and_the_events_of_a_run_that_a_worker_does(
    staff: Staff, provider: FakeProvider
) -> None:
    provider.reply(text="It is about bees.")
    provider.reply(text="And hives.")
    await staff.worker()
    code, out, err = await retinue(staff, "ask", "what is it about?", RETINUE_ENGINE="workers")
    assert (code, out.strip()) == (0, "It is about bees."), err
    assert "waits for a worker" in err
    code, out, err = await retinue(staff, "ask", "what else?", "--events", RETINUE_ENGINE="workers")
    assert code == 0, err
    assert "no worker serves" not in err
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert kinds[:3] == ["run_started", "run_queued", "run_resumed"]
    assert kinds[-1] == "run_finished"


async def test_who_asks_is_told_that_no_worker_serves_the_folder(
    staff: Staff, provider: FakeProvider
) -> None:
    provider.reply(text="It is about bees.")
    asking = asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retinue", "ask", "what is it about?"),
        cwd=staff.folder,
        env=staff.environ | {"RETINUE_ENGINE": "workers"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    process = await asking
    assert process.stderr is not None
    told = (await process.stderr.readline()).decode()
    assert f"no worker serves the queue 'default' in {staff.folder}" in told
    await staff.worker()
    out, _ = await process.communicate()
    assert (process.returncode, out.decode().strip()) == (0, "It is about bees.")


async def test_a_worker_without_postgresql_says_what_it_needs(staff: Staff) -> None:
    code, _, err = await retinue(staff, "worker", "--db", "memory:")
    assert code == 2
    assert "a worker needs a PostgreSQL database" in err


async def asked(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_workers_are_listed_tell_their_health_and_end_when_they_are_drained(
    staff: Staff, provider: FakeProvider
) -> None:
    gate = asyncio.Event()
    provider.reply(text="It is about bees.", gate=gate)
    process = await staff.worker("--health", "0", "--slots", "7")
    found = re.search(r"http://127\.0\.0\.1:\d+", staff.said(0))
    assert found is not None
    async with staff.asker() as asker:
        run_id = await asker.start("general", "what is it about?")
        await until(lambda: provider.at_once)
        while (await asked(found[0] + "/readyz"))[0] != 200:
            await asyncio.sleep(0.05)
        assert await asked(found[0] + "/healthz") == (200, "ok\n")
        metrics = (await asked(found[0] + "/metrics"))[1].splitlines()
        for line in ("retinue_worker_slots 7", 'retinue_queue_at_work{queue="default"} 1'):
            assert line in metrics
        listed: list[dict[str, object]] = []
        while not listed or not listed[0]["at_work"]:
            code, out, err = await retinue(staff, "workers", "list", "--json")
            assert code == 0, err
            listed = json.loads(out)["workers"]
        assert (listed[0]["pid"], listed[0]["slots"], listed[0]["state"]) == (process.pid, 7, "working")
        code, _, err = await retinue(staff, "workers", "drain", str(listed[0]["owner"])[:8])
        assert code == 0, err
        gate.set()
        assert await process.wait() == 0
        assert (await asker.shown.run(run_id)) is not None
    code, out, err = await retinue(staff, "workers", "list")
    assert (code, out) == (0, ""), err
    assert "there are no workers" in err
