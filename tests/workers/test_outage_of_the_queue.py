"""PostgreSQL away while workers work: what is in flight goes on, and nothing is lost or paid for twice."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from staff import Staff, until

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))

import postgres

from retinue.events import ModelReplied, RunResumed
from retinue.testing import FakeProvider, Script, SeenRequest, call


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server that may be stopped: the one of the session is everybody's."""
    try:
        postgres.programs()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with postgres.throwaway() as server:
        yield server


async def test_runs_in_flight_outlive_an_outage_and_stay_at_their_workers(
    tmp_path: Path, own_server: postgres.Server, provider: FakeProvider
) -> None:
    gate = asyncio.Event()

    def answer(request: SeenRequest) -> Script:
        return Script(text="done") if request.turn else Script(calls=(call("ls"),), gate=gate)

    provider.handler = answer
    staff = Staff(tmp_path, own_server.url("away"), provider)
    try:
        for _ in range(2):
            await staff.worker()
        async with staff.asker() as asker:
            runs = [await asker.start("general", "look") for _ in range(4)]
            await until(lambda: provider.at_once == 4)
            await asyncio.to_thread(postgres.halt, own_server)
            gate.set()
            await until(lambda: provider.served == 4)
            await asyncio.to_thread(postgres.begin, own_server)
            assert {(await asker.wait(run_id)).text for run_id in runs} == {"done"}
            late = await asker.run("general", "look")
            logs = [await asker.store.events(run_id) for run_id in runs]
    finally:
        await staff.dismiss()
    assert late.text == "done"
    assert [sum(isinstance(event, RunResumed) for event in log) for log in logs] == [1] * 4
    assert [sum(isinstance(event, ModelReplied) for event in log) for log in logs] == [2] * 4
    assert provider.served == 2 * 5
