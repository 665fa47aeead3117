"""Reading runs: the list, one run, its tree, events, stream, report, transcript and export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from retinue.engine.shown import rows_below, told_with_log
from retinue.engine.watch import report_of
from retinue.events import AnyEvent, RunStarted, encode
from retinue.server import markdown, shapes, sse, transcript
from retinue.server.context import RunId, Served, Server, Who, for_role
from retinue.server.errors import ApiError
from retinue.server.fields import Pair, Word
from retinue.server.hub import stored, with_outcomes
from retinue.server.models import (
    Conversations,
    Owner,
    ReportOut,
    RunDetail,
    RunMessagesOut,
    RunPage,
    RunTranscript,
    Tree,
    UnmergedOut,
)
from retinue.server.schema import EVENT_PAGE
from retinue.server.standings import as_json
from retinue.store.base import RunFilter, RunRow
from retinue.story import with_facts
from retinue.types import Outcome, Status

router = APIRouter(tags=["runs"])
Place = Annotated[int, Query(ge=0, le=2**53, description="the place of the last event already seen")]
Time = Annotated[float | None, Query(ge=-1e11, le=1e12, allow_inf_nan=False)]


@router.get("/runs", **for_role("watch"))
async def list_runs(
    served: Served,
    status: Status | None = None,
    outcome: Annotated[Outcome | None, Query(description="how it stands, as it is shown")] = None,
    agent: Annotated[Word | None, Query()] = None,
    root_id: Annotated[Word | None, Query(description="runs of this workflow")] = None,
    parent_id: Annotated[Word | None, Query(description="children of this run")] = None,
    children: Annotated[bool, Query(description="children too, not only what people started")] = False,
    since: Time = None,
    min_cost: Annotated[float | None, Query(ge=0, le=1e9, allow_inf_nan=False)] = None,
    text: Annotated[Word | None, Query(description="in the task or the summary")] = None,
    metadata: Annotated[
        list[Pair], Query(description="`key=value` that it was started with; all of several")
    ] = [],  # noqa: B006  # nobody changes it
    totals: Annotated[bool, Query(deprecated=True, description="they are always given now")] = True,
    cursor: Annotated[str | None, Query(max_length=100, description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> RunPage:
    """Runs, newest first, in pages."""
    before, before_id = _read_cursor(cursor) if cursor else (None, None)
    which = RunFilter(
        status=status,
        outcome=outcome,
        agent=agent,
        root_id=root_id,
        parent_id=parent_id,
        roots_only=not (children or root_id or parent_id),
        since=since,
        before=before,
        before_id=before_id,
        min_cost=min_cost,
        text=text,
        metadata=dict(pair.split("=", 1) for pair in metadata),
        limit=limit,
    )
    rows = await served.retinue.shown.runs(which)
    shown = [shapes.run(row) for row in rows]
    last = rows[-1] if len(rows) == limit else None
    return RunPage(runs=shown, next=f"{last.created_at!r}~{last.run_id}" if last else None)


def _read_cursor(cursor: str) -> tuple[float, str]:
    moment, _, run_id = cursor.partition("~")
    try:
        created = float(moment)
    except ValueError:
        created = float("nan")
    if not 0 <= created <= 1e12 or not run_id or "\0" in run_id:
        raise ApiError(422, "invalid", "this cursor was not given out here", fix="begin without one")
    return created, run_id


async def _below(served: Server, row: RunRow) -> list[RunRow]:
    return rows_below(await served.retinue.shown.tree(row.root_id), row.run_id)


@router.get("/runs/{run_id}", **for_role("watch"))
async def read_run(run_id: RunId, served: Served) -> RunDetail:
    """One run: what it was asked, what it may use, what it used so far."""
    row = await served.row(run_id)
    began = await started(served, row)
    root = began if row.parent_id is None else await started(served, await served.row(row.root_id))
    return RunDetail(
        run=shapes.run(row),
        total=shapes.total(row),
        prompt=began.prompt,
        prompt_html=await markdown.render(began.prompt),
        system=began.system,
        tools=list(began.tools),
        icon=began.spec.icon,
        description=began.spec.description,
        forked_from=began.forked_from,
        attached_images=len(began.images),
        options=shapes.plain(root.options),
        limits=shapes.plain(began.limits),
        owner=await owner(served, root),
        cursor=await served.retinue.store.count(row.root_id),
        unmerged=[
            UnmergedOut.model_validate(copy, from_attributes=True)
            for copy in await served.retinue.changes.not_in_project(
                row.run_id, served.retinue.services.worktrees
            )
        ],
    )


async def started(served: Server, row: RunRow) -> RunStarted:
    first = await served.retinue.store.events(row.root_id, run_id=row.run_id, limit=1)
    if not first or not isinstance(first[0], RunStarted):
        raise ApiError(404, "not_found", f"the log of {row.run_id} has no beginning")
    return first[0]


async def owner(served: Server, root: RunStarted) -> Owner:
    """Who worked on a workflow last: the newest of what its root says."""
    taken = await served.retinue.store.taken(root.root_id) or root
    return Owner(host=taken.host, pid=taken.pid, here=served.retinue.is_running(root.root_id))


@router.get("/runs/{run_id}/tree", **for_role("watch"))
async def read_tree(run_id: RunId, served: Served) -> Tree:
    """A run and everything below it."""
    row = await served.row(run_id)
    cursor = await served.retinue.store.count(row.root_id)
    rows = await _below(served, row)
    return Tree(
        root_id=row.root_id,
        runs=[shapes.run(one) for one in rows],
        total=shapes.total(row),
        cursor=cursor,
    )


@router.get("/runs/{run_id}/messages", **for_role("watch"))
async def read_messages(run_id: RunId, served: Served) -> Conversations:
    """The conversations of a run and of every run below it, whole: what each was told and said."""
    row = await served.row(run_id)
    found = await served.retinue.messages_of(row.run_id)
    return Conversations(runs=[RunMessagesOut(**msgspec.to_builtins(one)) for one in found])


@router.get(
    "/runs/{run_id}/events", response_class=Response, **for_role("watch", responses={200: EVENT_PAGE})
)
async def read_events(
    run_id: RunId,
    served: Served,
    after: Place = 0,
    limit: Annotated[int, Query(ge=1, le=5000)] = 500,
    own: Annotated[bool, Query(description="only what this run wrote itself, also if it is a root")] = False,
    standing: Annotated[
        bool, Query(description="with the last page, how every run of the workflow stands")
    ] = False,
) -> Response:
    """The events of a workflow in order, from after a place; of one run alone if the id is a child's."""
    row = await served.row(run_id)
    only = row.run_id if row.parent_id or own else None
    store = served.retinue.store
    found = await store.events(row.root_id, after=after, run_id=only, limit=limit)
    found = await with_outcomes(store, row.root_id, found)
    last = found[-1].pos if found else after
    more = b"true" if len(found) == limit else b"false"
    stands = b""
    if standing and len(found) < limit:  # read after the events: it is never behind them
        rows = await served.retinue.shown.standings(row.root_id)
        stands = b',"standing":' + as_json(rows)
    body = b'{"events":%b,"next":%d,"more":%b%b}' % (stored(found), last, more, stands)
    return Response(body, media_type="application/json")


@router.get(
    "/runs/{run_id}/stream", response_class=Response, **for_role("watch", responses={200: sse.SCHEMA})
)
async def stream_events(
    run_id: RunId,
    request: Request,
    served: Served,
    who: Who,
    after: Place = 0,
    until: Annotated[
        Literal["end"] | None, Query(description="close when the run has ended; else the stream stays open")
    ] = None,
    standing: Annotated[
        bool, Query(description="also how each run stands, as `RunStanding`, whenever that has changed")
    ] = False,
) -> Response:
    """Events as they happen, from a place on. `Last-Event-ID` is honoured, so nothing is lost or comes twice.

    Text and progress ride along without an `id`: `streamed`, `progressed`, and `writing`, the whole text of
    an open reply for whoever comes in the middle of it. They may be lost. So does `standing`, if it is asked
    for: of the runs that something happened to from that place on, once the stream has caught up, and of
    each run whenever it changes.
    """
    row = await served.row(run_id)
    cursor = sse.cursor(request, after)
    only = row.run_id if row.parent_id else None

    async def chunks() -> AsyncGenerator[bytes]:
        if until and await _ended(served, row, cursor):
            return
        async with aclosing(
            served.hub.watch(row.root_id, after=cursor, only=only, standing=standing)
        ) as watching:
            async for chunk, reached in watching:
                yield chunk
                if until and await _ended(served, row, reached):
                    return

    return served.stream(who, chunks())


async def _ended(served: Server, was: RunRow, reached: int) -> bool:
    """Whether a run is over and everything that happened in its workflow has been told."""
    row = await served.retinue.store.run(was.run_id)
    if row is None or row.completed_at is None:
        return row is None
    return reached >= await served.retinue.store.count(was.root_id)


@router.get("/runs/{run_id}/report", **for_role("watch"))
async def read_report(run_id: RunId, served: Served) -> ReportOut:
    """What came back. 404 with the code `no_report` while the run goes on."""
    row = await served.row(run_id)
    found = await report_of(served.retinue.store, row)
    if found is None:
        raise ApiError(404, "no_report", f"{run_id} has no report yet: it is {row.status}")
    return await shapes.report(found)


@router.get("/runs/{run_id}/transcript", **for_role("watch"))
async def read_transcript(
    run_id: RunId,
    served: Served,
    after: Place = 0,
    limit: Annotated[int, Query(ge=1, le=2000, description="events, not parts")] = 500,
) -> RunTranscript:
    """A run as a person reads it: each step, each tool, the report. Markdown is rendered and cleaned."""
    row = await served.row(run_id)
    story, log = await told_with_log(served.retinue.store, row)
    events = [event for event in log if event.pos > after][:limit]
    return RunTranscript(
        run_id=run_id,
        agent=row.agent,
        parts=await transcript.parts(events, story),
        next=events[-1].pos if len(events) == limit else None,
    )


@router.get(
    "/runs/{run_id}/export",
    response_class=Response,
    **for_role(
        "watch",
        responses={
            200: {
                "description": "the whole workflow as a file",
                "content": {
                    "application/jsonl": {"schema": {"type": "string"}},
                    "text/html": {"schema": {"type": "string"}},
                },
            }
        },
    ),
)
async def export_run(
    run_id: RunId, served: Served, format: Annotated[Literal["jsonl", "html"], Query()] = "jsonl"
) -> Response:
    """The whole workflow: every event as a line of JSON, or one page to read and to send around."""
    row = await served.row(run_id)
    events = await served.retinue.store.events(row.root_id)
    data = await asyncio.to_thread(_exported, events, format, row.outcome == "interrupted")
    kind = "application/jsonl" if format == "jsonl" else "text/html; charset=utf-8"
    # A file, never a page of this server: it has styles of its own, which the policy here forbids.
    disposition = f'attachment; filename="{row.root_id}.{format}"'
    return Response(data, media_type=kind, headers={"Content-Disposition": disposition})


def _exported(events: list[AnyEvent], format: str, interrupted: bool) -> bytes:
    events = with_facts(events)
    if format == "jsonl":
        return b"".join(encode(event) + b"\n" for event in events)
    from retinue.view.page import page

    return page(events, interrupted=interrupted).encode("utf-8", "replace")
