"""A service of your own: FastAPI with agents behind it, that can be restarted while they work.

    uvicorn service:app        # POST /questions {"text": "…"}, GET /questions/ID, GET /questions/ID/events
    python service.py          # the demonstration below: asks, stops the service at work, starts another

A question that is under way when the service is told to stop is left as it is, and the next start goes on
with it: what was paid for is not paid again. A scripted model plays the agent; leave out `model=` for the one
that you have set.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from retinue import AgentSpec, Report, Retinue, RunFilter
from retinue.events import encode
from retinue.testing import ScriptedModel, call, turn
from retinue.types import ModelRequest, ToolCall

DB = os.environ.get("SERVICE_DB", f"sqlite:///{Path('service.db').absolute()}")


async def look_up(topic: str) -> str:
    """Look a topic up. This takes a moment."""
    await asyncio.sleep(1)
    return f"{topic}: it is well known"


CLERK = AgentSpec(name="clerk", description="Answers.", prompt="You look things up.", tools=[look_up])


def play(request: ModelRequest) -> str | ToolCall:
    """What a real model would say: it looks the question up, then it answers."""
    return call("look_up", topic="bees") if turn(request) == 0 else "Bees are well known."


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with Retinue(model=ScriptedModel(play), agents=[CLERK], db=DB) as retinue:
        app.state.retinue = retinue
        keeping = asyncio.create_task(retinue.take_up.keep())  # what an earlier process left goes on here
        yield
        keeping.cancel()
        await retinue.leave()  # what is under way is left to the next one


app = FastAPI(lifespan=lifespan)


class Question(BaseModel):
    text: str
    tenant: str = ""


class State(BaseModel):
    id: str
    outcome: str
    answer: str = ""
    cost: float | None = None


@app.post("/questions")
async def ask(question: Question) -> State:
    retinue: Retinue = app.state.retinue
    run_id = await retinue.start("clerk", question.text, metadata={"tenant": question.tenant})
    return State(id=run_id, outcome="running")


@app.get("/questions/{run_id}")
async def look(run_id: str) -> State:
    retinue: Retinue = app.state.retinue
    rows = await retinue.runs(RunFilter(among=(run_id,)))
    if not rows:
        raise HTTPException(404)
    if rows[0].completed_at is None:
        return State(id=run_id, outcome=rows[0].outcome)
    report: Report = await retinue.wait(run_id)
    return State(id=run_id, outcome=report.outcome, answer=report.text, cost=report.usage.cost)


@app.get("/questions/{run_id}/events")
async def follow(run_id: str, after: int = 0) -> StreamingResponse:
    retinue: Retinue = app.state.retinue

    async def lines() -> AsyncGenerator[bytes]:
        async for event in retinue.watch(run_id, after=after):
            yield encode(event) + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def started(port: int, db: str) -> subprocess.Popen[bytes]:
    """The service in a process of its own, once it answers."""
    command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port), "--log-level", "error"]
    folder = Path(__file__).parent
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, "SERVICE_DB": db})
    while process.poll() is None:
        with socket.socket() as trying:
            if trying.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    raise SystemExit("the service did not start")


def request(url: str, body: dict[str, str] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 # of this machine
    with urllib.request.urlopen(asked) as answer:  # noqa: S310
        return json.load(answer)


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/questions"
    with tempfile.TemporaryDirectory() as folder:
        db = f"sqlite:///{folder}/service.db"
        first = started(port, db)
        question = request(address, {"text": "What of bees?", "tenant": "acme"})
        print("asked:", question["outcome"])
        first.send_signal(signal.SIGTERM)
        first.wait()
        second = started(port, db)
        while (state := request(f"{address}/{question['id']}"))["outcome"] in ("running", "interrupted"):
            time.sleep(0.05)
        print("after a restart:", state["outcome"], state["answer"])
        second.send_signal(signal.SIGTERM)
        second.wait()


if __name__ == "__main__":
    main()
