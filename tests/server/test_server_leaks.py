"""A server holds no more after many runs, watchers and refusals than before them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path

import pytest
from api import Api, serving

from leaving import alive, handles, uncollected
from retinue.engine.workflow import Workflow
from retinue.run import Run
from retinue.server.hub import Channel
from retinue.testing import ScriptedModel, call
from retinue.testing.scripted import Answer, turn
from retinue.types import ModelRequest

TIMES = 3


def play(request: ModelRequest) -> Answer:
    said = str(request.messages)
    if "write" in said and turn(request) == 0:
        return call("write", path="b.txt", content="x")
    return [call("read", path="a.txt"), call("ls")] if turn(request) == 0 else "fine"


async def one_of_each(api: Api) -> None:
    """Runs, questions, refusals, and watchers that go in the middle or stay to the end."""
    run_id = await api.ask("look")
    await api.follow(f"runs/{run_id}/stream", until=lambda _: True)
    await api.follow("stream", until=lambda _: True)
    await api.ended(run_id)
    await api.post(f"runs/{run_id}/message", {"text": "and then?"})
    await api.ended(run_id)
    asked = await api.ask("write")
    waiting = await api.follow(
        f"runs/{asked}/stream", until=lambda told: told.data["type"] == "approval_requested"
    )
    await api.post(f"approvals/{waiting[-1].data['approval_id']}", {"decision": "reject"})
    await api.ended(asked)
    assert (await api("GET", "runs/nobody/report")).status == 404
    assert (await api("POST", "runs", {"agent": "nobody", "prompt": "x"})).status == 422
    assert (await api("POST", "runs", data=b"no json", headers={"X-Retinue": "1"})).status == 422
    await api.get(f"runs/{run_id}/transcript")
    await api.get(f"runs/{run_id}/export?format=html")


@pytest.mark.timeout(120)
async def test_a_server_is_after_many_runs_what_it_was_before_them(folder: Path, tmp_path: Path) -> None:
    (folder / "a.txt").write_text("a line\n")
    model = ScriptedModel(play)
    gc.collect()
    others = alive(Run, Workflow, Channel)  # of other tests in this process
    async with serving(model, folder, db=f"sqlite://{tmp_path}/log.db") as api:
        await one_of_each(api)
        with uncollected() as found:
            before = handles()
            for _ in range(TIMES):
                await one_of_each(api)
                model.requests.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(20):  # connections that were left are closed a moment later
                    while (
                        handles() > before
                        or api.server.hub.channels
                        or alive(Run, Workflow, Channel) > others  # an end is in the log before its task ends
                    ):
                        await asyncio.sleep(0.01)
            assert handles() <= before
            assert api.server.hub.channels == {}
            assert +api.server.streams == {}
            assert alive(Run, Workflow, Channel) <= others
            assert found() == {}
