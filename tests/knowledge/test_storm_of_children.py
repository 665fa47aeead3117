"""A real tree: fifty children ask one source at once, and the server counts what reaches it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from retinue.app import Retinue
from retinue.events import ChildStarted, ToolReturned
from retinue.store.memory import MemoryStore
from trees import Cast, agent, told, turn

from .wiring import Reply, Seen, Wire

CHILDREN = 50
HIT = {"query": {"search": [{"title": "T", "snippet": "S"}]}}


def root(request: Any) -> Any:
    if turn(request):
        return "all are back"
    return [("asker", {"prompt": f"topic {number}"}) for number in range(CHILDREN)]


def asker(request: Any) -> Any:
    return "found" if turn(request) else [("wiki_search", {"query": told(request)[0]})]


class Counting:
    """Wikipedia as it counts: how many at a time, how many a minute, and who comes while told to stay away."""

    def __init__(self) -> None:
        self.inside = self.peak = self.early = self.refusals = 0
        self.free_at = 0.0
        self.begun: list[float] = []

    async def __call__(self, _: Seen) -> Reply:
        now = time.monotonic()
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        self.begun.append(now)
        try:
            await asyncio.sleep(0)
            if now < self.free_at:
                self.early += 1
            if len(self.begun) in (10, 11):
                self.refusals += 1
                self.free_at = now + 1
                return Reply(status=429, headers={"Retry-After": "1"})
            return Reply(HIT)
        finally:
            self.inside -= 1


async def test_fifty_real_children_never_exceed_what_a_source_allows(wire: Wire) -> None:
    server = Counting()
    wire.on("/wikipedia/w/api.php", server)
    settings = {
        "knowledge.contact": "ops@example.org",
        "knowledge.base_urls": {"wikipedia": f"{wire.url}/wikipedia"},
        "knowledge.request_timeout": 60,
        "delegation.max_children": CHILDREN,
        "delegation.concurrency": CHILDREN,
        "limits.tool_concurrency": CHILDREN,
    }
    app = Retinue(
        model=Cast({"root": root, "asker": asker}),
        db=MemoryStore(),
        agents=[agent("asker", tools=("wiki_search",))],
        environ={},
        settings=settings,
        yes=True,
    )
    async with app as retinue:
        report = await retinue.run(agent("root"), "ask them all")
        events = await retinue.store.events(report.run_id)
    assert sum(isinstance(e, ChildStarted) for e in events) == CHILDREN
    looked = [e for e in events if isinstance(e, ToolReturned) and e.name == "wiki_search"]
    assert len(looked) == CHILDREN
    assert [e.text for e in looked if e.is_error] == [], "everyone was served, some later"
    assert server.refusals == 2
    assert server.peak <= 3, "the most that may be under way at once"
    assert server.early <= 2, "only what was already under way when the refusal came"
    assert len(server.begun) == CHILDREN + server.refusals
