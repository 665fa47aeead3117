"""Sums over runs, and two runs side by side."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query

from retinue.engine.shown import rows_below
from retinue.engine.watch import report_of
from retinue.events import ToolCalled
from retinue.server import shapes
from retinue.server.about import Comparison, Side, Stats, TotalsOut
from retinue.server.context import Served, Server, for_role
from retinue.server.runs import Time

router = APIRouter(tags=["stats"])
RunName = Annotated[str, Query(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="a run's id")]


@router.get("/stats", **for_role("watch"))
async def read_stats(
    served: Served,
    by: Literal["agent", "model", "day", "outcome"] = "agent",
    since: Time = None,
    utc_offset: Annotated[float, Query(ge=-86400, le=86400, allow_inf_nan=False)] = 0,
) -> Stats:
    """What runs used, by agent, model, day or outcome. A day's clock is `utc_offset` seconds ahead of UTC."""
    totals = await served.retinue.shown.totals(by, since=since, utc_offset=utc_offset)
    return Stats(by=by, totals=[TotalsOut(**msgspec.structs.asdict(one)) for one in totals])


@router.get("/compare", **for_role("watch"))
async def compare_runs(a: RunName, b: RunName, served: Served) -> Comparison:
    """Two runs side by side: what they used, which tools and agents, and how their reports differ."""
    one, other = await _side(served, a), await _side(served, b)
    before, after = ((side.report.text if side.report else "").splitlines() for side in (one, other))
    diff = "\n".join(difflib.unified_diff(before, after, a, b, lineterm=""))
    return Comparison(a=one, b=other, diff=diff)


async def _side(served: Server, run_id: str) -> Side:
    row = await served.row(run_id)
    rows = rows_below(await served.retinue.shown.tree(row.root_id), run_id)
    inside = {one.run_id for one in rows}
    events = await served.retinue.store.events(row.root_id)
    tools = Counter(
        event.name for event in events if isinstance(event, ToolCalled) and event.run_id in inside
    )
    report = await report_of(served.retinue.store, row)
    return Side(
        run=shapes.run(row),
        total=shapes.total(row),
        report=await shapes.report(report) if report else None,
        tools=dict(tools.most_common()),
        agents=dict(Counter(one.agent for one in rows).most_common()),
    )
