"""Fifty children at once: no source sees more than it allows, each child gets an answer or a clear error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from retinue.tools.knowledge.causes import SourceError
from retinue.web.pacing import Limit

from .wiring import Clock, Reply, Seen, Wire, World

Make = Callable[..., World]
CHILDREN = 50
FEED = """<feed xmlns="http://www.w3.org/2005/Atom" xmlns:o="http://a9.com/-/spec/opensearch/1.1/">
<o:totalResults>1</o:totalResults>
<entry><id>http://arxiv.org/abs/2601.00001v1</id><title>T</title><summary>S</summary></entry></feed>"""
HIT = {"query": {"search": [{"title": "T", "snippet": "S"}]}}


class Guard:
    """A server's own limiter: counts, and answers 429 to whoever comes too early or too many at a time."""

    def __init__(self, reply: Reply, *, gap: float, most: int) -> None:
        self.reply, self.gap, self.most = reply, gap, most
        self.last = -1e9
        self.inside = self.peak = self.refused = self.served = 0

    async def __call__(self, _: Seen) -> Reply:
        now = time.monotonic()
        early, self.last = now - self.last < self.gap, now
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            if early or self.inside > self.most:
                self.refused += 1
                return Reply(status=429, headers={"Retry-After": "1"})
            self.served += 1
            await asyncio.sleep(0)
            return self.reply
        finally:
            self.inside -= 1


async def storm(one: World, tool: str) -> tuple[int, list[SourceError]]:
    async def child(number: int) -> SourceError | None:
        try:
            await one.ask(tool, query=f"topic {number}")
        except SourceError as error:
            return error
        return None

    results = await asyncio.gather(*(child(number) for number in range(CHILDREN)))
    errors = [error for error in results if error is not None]
    return CHILDREN - len(errors), errors


async def test_one_connection_and_strict_gaps_as_counted_by_the_server(world: Make, wire: Wire) -> None:
    gap = 0.02
    guard = Guard(Reply(FEED, type="application/atom+xml"), gap=gap, most=1)
    wire.on("/arxiv", guard)
    one = world(limits={"arxiv": Limit(interval=gap, concurrency=1)}, real_time=True)
    served, errors = await storm(one, "arxiv_search")
    assert (served, errors) == (CHILDREN, [])
    assert (guard.refused, guard.peak, guard.served) == (0, 1, CHILDREN)


async def test_a_few_at_a_time_as_counted_by_the_server(world: Make, wire: Wire) -> None:
    guard = Guard(Reply(HIT), gap=0.0, most=3)
    wire.on("/wikipedia/w/api.php", guard)
    served, errors = await storm(world(limits={"wikimedia": Limit(concurrency=3)}), "wiki_search")
    assert (served, errors) == (CHILDREN, [])
    assert guard.refused == 0
    assert guard.peak <= 3


async def test_with_arxivs_own_limit_who_cannot_be_served_is_told_and_no_one_hangs(
    world: Make, wire: Wire, clock: Clock
) -> None:
    arrivals: list[float] = []

    def count(_: Seen) -> Reply:
        arrivals.append(clock.now)
        return Reply(FEED, type="application/atom+xml")

    wire.on("/arxiv", count)
    served, errors = await storm(world(clock=clock), "arxiv_search")
    assert served == len(arrivals) == 7  # one every 3 s within the 20 s of a call
    assert len(errors) == 43
    assert {error.cause for error in errors} == {"rate_limited"}
    assert all("arXiv is rate limited: another request is allowed in" in str(error) for error in errors)
    assert all(b - a >= 3.0 for a, b in pairwise(arrivals))


async def test_a_storm_of_429_is_waited_out_together(world: Make, wire: Wire, clock: Clock) -> None:
    refusals = 0
    free_at = 0.0
    ignored = 0

    def strict(_: Seen) -> Reply:
        nonlocal refusals, free_at, ignored
        if clock.now < free_at:
            ignored += 1
        if refusals < 2:
            refusals += 1
            free_at = clock.now + 5
            return Reply(status=429, headers={"Retry-After": "5"})
        return Reply(HIT)

    wire.on("/wikipedia/w/api.php", strict)
    served, errors = await storm(world(clock=clock, request_timeout=120), "wiki_search")
    assert (served, errors) == (CHILDREN, [])
    # Requests of the same moment may still be under way when the refusal comes: at most the other two.
    assert ignored <= 2
    assert len(wire.seen) <= CHILDREN + refusals + ignored


async def test_wikidata_is_asked_one_query_at_a_time_and_never_during_a_ban(
    world: Make, wire: Wire, clock: Clock
) -> None:
    inside = peak = refused_then_asked = 0
    banned_until = 0.0

    async def service(seen: Seen) -> Reply:
        nonlocal inside, peak, refused_then_asked, banned_until
        inside += 1
        peak = max(peak, inside)
        await asyncio.sleep(0)
        inside -= 1
        if clock.now < banned_until:
            refused_then_asked += 1
        if "LIMIT 7" in seen.form["query"] and banned_until == 0:
            banned_until = clock.now + 12
            return Reply(status=429, headers={"Retry-After": "12"})
        return Reply({"head": {}, "boolean": True}, type="application/sparql-results+json")

    wire.on("/wikidata_sparql", service)
    one = world(clock=clock, request_timeout=100)
    queries = [one.ask("wikidata_query", sparql=f"ASK {{ ?s ?p ?o }} LIMIT {n}") for n in range(CHILDREN)]
    results = await asyncio.gather(*queries)
    assert len(results) == CHILDREN
    assert peak == 1
    assert refused_then_asked == 0


async def test_a_quota_is_never_overdrawn(world: Make, wire: Wire) -> None:
    wire.on("/nasa/neo/rest/v1/feed", Reply({"element_count": 0, "near_earth_objects": {}}))
    one = world()
    refused = 0
    for day in range(1, 31):
        for month in (9, 11):
            try:
                await one.ask("nasa_neows", start_date=f"2026-{month:02d}-{day:02d}")
            except SourceError as error:
                refused += error.cause == "rate_limited"
    assert len(wire.seen) == 30  # what NASA allows per hour without a key
    assert refused == 30
    with pytest.raises(SourceError, match="NASA_API_KEY"):
        await one.ask("nasa_neows", start_date="2026-10-01")
