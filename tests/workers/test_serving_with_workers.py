"""A server whose runs are done by workers: its API is the same, and questions are answered at it."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import aiohttp
from staff import Staff, until
from test_parked_workflows import SOON, writes

from retinue.testing import FakeProvider


async def test_an_approval_answered_at_the_server_wakes_a_parked_run_at_a_worker(
    staff: Staff, provider: FakeProvider
) -> None:
    provider.handler = writes
    await staff.worker(environ=SOON)
    log = staff.home / "serve.log"
    with log.open("wb") as file:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "retinue", "serve", "--port", "0"),
            cwd=staff.folder,
            env=staff.environ | {"RETINUE_ENGINE": "workers"},
            stdout=file,
            stderr=file,
        )
    staff.workers.append(server)
    await until(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()))
    found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
    assert found is not None
    async with aiohttp.ClientSession(found[0]) as session:

        async def get(path: str) -> Any:
            async with session.get(f"/api/v1{path}") as answer:
                return await answer.json()

        async def has_outcome(run_id: str, outcome: str) -> None:
            while (await get(f"/runs/{run_id}"))["run"]["outcome"] != outcome:
                await asyncio.sleep(0.05)

        async with session.post("/api/v1/runs", json={"agent": "general", "prompt": "write it"}) as begun:
            run_id = (await begun.json())["run_id"]
        await has_outcome(run_id, "waiting")
        while not any(
            event["type"] == "run_queued" and event["parked"] for event in await _events(get, run_id)
        ):
            await asyncio.sleep(0.05)
        asked = (await get("/approvals"))["approvals"][0]["approval_id"]
        async with session.post(f"/api/v1/approvals/{asked}", json={"decision": "approve"}) as answered:
            assert answered.status == 200
        await has_outcome(run_id, "completed")
    assert (staff.folder / "a.txt").read_text() == "a"
    assert provider.served == 2


async def _events(get: Any, run_id: str) -> list[dict[str, Any]]:
    return (await get(f"/runs/{run_id}/events"))["events"]
