"""A thousand children may wait for their models at once."""

from __future__ import annotations

import asyncio
import resource

from asking import ask, asked, one_shot

from retinue.models.http import Client
from retinue.testing import FakeProvider, Script


async def test_a_thousand_calls_wait_at_the_same_time(client: Client) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    gate = asyncio.Event()
    async with FakeProvider(lambda seen: Script(text=seen.asked, gate=gate)) as server:
        model = one_shot("openai", server, client)
        tasks = [asyncio.create_task(ask(model, asked(f"number {i}"))) for i in range(1000)]
        async with asyncio.timeout(60):
            while server.at_once < 1000:
                await asyncio.sleep(0.01)
        gate.set()
        replies = await asyncio.gather(*tasks)
    assert [r.message.text for r in replies] == [f"number {i}" for i in range(1000)]
