"""Twenty questions, three levels deep, answered in random order by another process: each reaches its child."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import killing

from retinue.events import now
from retinue.store.base import Signal
from retinue.store.connect import connect
from retinue.tools.base import tool
from trees import Stage, agent, results, told, turn


async def _answer_all(url: str, root_id: str, count: int) -> None:
    store = connect(url)
    await store.open()
    while len(asked := await store.waiting(root_id)) < count:
        await asyncio.sleep(0.02)
    random.Random(11).shuffle(asked)
    for question in asked:
        path = json.loads(question.arguments)["path"]
        said = {"decision": "reject", "reason": f"no {path}"} if int(path) % 2 else {"decision": "approve"}
        signal = Signal(
            root_id=root_id,
            run_id=question.run_id,
            kind="answer",
            key=question.approval_id,
            body=json.dumps(said),
            at=now(),
        )
        assert await store.send(signal)
    await store.close()


def answer_all(url: str, root_id: str, count: int) -> None:
    asyncio.run(_answer_all(url, root_id, count))


async def test_every_answer_from_another_process_reaches_exactly_its_child(
    durable_url: str, tmp_path: Path
) -> None:
    done: list[str] = []

    @tool(effect="write")
    async def change(path: str) -> str:
        """Change a file."""
        done.append(path)
        return f"changed {path}"

    def play(request: Any) -> Any:
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        task = told(request)[0]
        if me == "leaf":
            return (
                [("change", {"path": task})]
                if turn(request) == 0
                else f"leaf {task}: {results(request)[0].text}"
            )
        if turn(request):
            return " | ".join(json.loads(m.text)["report"] for m in results(request))
        below, count = ("mid", 4) if me == "root" else ("leaf", 5)
        here = "" if me == "root" else task
        return [
            ("parallel_tasks", {"tasks": [{"agent_id": below, "prompt": f"{here}{n}"} for n in range(count)]})
        ]

    store = connect(durable_url)
    await store.open()
    stage = Stage(
        {"root": play, "mid": play, "leaf": play},
        agents=[agent("mid"), agent("leaf")],
        tools=[change],
        answering="ask",
        store=store,
        delegation__policy="nested",
        delegation__concurrency=3,
        limits__report_bytes=100_000,
    )
    task = await stage.start()
    person = killing.context.Process(target=answer_all, args=(durable_url, stage.root_id, 20))
    await asyncio.to_thread(person.start)
    async with asyncio.timeout(60):
        report = await task
    await asyncio.to_thread(person.join, 60)
    assert person.exitcode == 0
    for n in range(4):
        for m in range(5):
            path = f"{n}{m}"
            said = (
                f"the person rejected this call of change: no {path}" if int(path) % 2 else f"changed {path}"
            )
            assert f"leaf {path}: {said}" in report.text
    assert sorted(done) == sorted(f"{n}{m}" for n in range(4) for m in range(5) if int(f"{n}{m}") % 2 == 0)
    await store.close()
