"""Changing runs: start, cancel, resume, fork, message, replay, delete."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from retinue.attachments import attach_bytes
from retinue.errors import NothingLeft
from retinue.events import FOR_MORE, ApprovalAnswered, RunResumed, RunStarted
from retinue.server import overrides, shapes
from retinue.server.context import RunId, Served, Server, Who, for_role
from retinue.server.errors import ApiError
from retinue.server.models import (
    AttachmentUpload,
    Cancelled,
    CancelRun,
    ForkRun,
    Message,
    Replay,
    ResumeRun,
    RunAccepted,
    StartRun,
    Told,
)
from retinue.server.security import Identity
from retinue.store.base import RunRow
from retinue.types import ENDED, Limits

router = APIRouter(tags=["runs"])
REPLAY_SECONDS = 60.0


@router.post("/runs", status_code=201, **for_role("ask"))
async def start_run(
    body: StartRun,
    served: Served,
    who: Who,
    response: Response,
    traceparent: Annotated[str, Header(description="the span of yours that the run stands below")] = "",
) -> RunAccepted:
    """Start an agent on a prompt. It goes on by itself: follow its stream."""
    retinue = served.retinue
    if (body.prompt is None) == (body.input is None):
        raise ApiError(422, "invalid", "give either 'prompt' or 'input'")
    settings = overrides.check(body.settings, body.model, who, retinue.settings)
    prompt: Any = body.prompt if body.prompt is not None else body.input
    attachments = [await attach_bytes(one.name, _decoded(one)) for one in body.attachments]
    await retinue.reread_agents()
    run_id = await retinue.start(
        body.agent or retinue.settings.default_agent,
        prompt,
        label=body.label,
        attachments=attachments,
        settings=settings,
        strict_sources=body.strict_sources,
        effort=body.effort,
        traceparent=traceparent,
        model_settings=overrides.asked(body.model_settings, who),
        limits=None if body.limits is None else Limits(**body.limits.model_dump()),
        metadata=overrides.described(body.metadata, who),
        instructions=body.instructions,
    )
    response.headers["Location"] = f"/api/v1/runs/{run_id}"
    return RunAccepted(run_id=run_id)


def _decoded(file: AttachmentUpload) -> bytes:
    try:
        return base64.b64decode(file.data, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(422, "invalid", f"the attachment {file.name!r} is not base64") from None


@router.post("/runs/{run_id}/cancel", **for_role("ask"))
async def cancel_run(run_id: RunId, served: Served, who: Who, body: CancelRun | None = None) -> Cancelled:
    """Stop a run and everything below it, wherever it runs. What was done so far is kept."""
    row = await served.row(run_id)
    reason = (body.reason if body else "") or f"cancelled by {who.name}"
    cancelled = await served.retinue.cancel(run_id, reason)
    return Cancelled(cancelled=cancelled, status=row.status)


@router.post("/runs/{run_id}/resume", **for_role("ask"))
async def resume_run(run_id: RunId, served: Served, who: Who, body: ResumeRun | None = None) -> RunAccepted:
    """Go on with a whole workflow where its log ends. A finished one goes on with a message, or with more of
    what it ran out of (`settings`)."""
    given = body or ResumeRun()
    root = await served.root_here(run_id)
    await _check_power(served, root, who, given.message)
    settings = overrides.check(given.settings, None, who, served.retinue.settings)
    await served.retinue.reread_agents()
    try:
        await served.retinue.resume(
            root.run_id, message=given.message, take_over=given.take_over, settings=settings
        )
    except NothingLeft as error:
        fix = "say how it should go on: 'message'; or allow more of what it ran out of: 'settings'"
        raise ApiError(409, "finished", error.message, fix=fix) from None
    return RunAccepted(run_id=root.run_id)


@router.post("/runs/{run_id}/fork", status_code=201, **for_role("ask"))
async def fork_run(
    run_id: RunId, served: Served, who: Who, response: Response, body: ForkRun | None = None
) -> RunAccepted:
    """Begin a new workflow with the events of this one up to a place. This one is untouched."""
    given = body or ForkRun()
    root = await served.root_here(run_id)
    await _check_power(served, root, who, "fork")
    if given.model is not None:
        overrides.check({}, given.model, who, served.retinue.settings)
    await served.retinue.reread_agents()
    new = await served.retinue.fork(root.run_id, at=given.at, message=given.message, model=given.model)
    response.headers["Location"] = f"/api/v1/runs/{new}"
    return RunAccepted(run_id=new)


@router.post("/runs/{run_id}/message", **for_role("ask"))
async def message_run(run_id: RunId, body: Message, served: Served, who: Who) -> Told:
    """Say something. A run that goes on reads it before its next step; a finished root goes on with it; a
    finished child is asked again, and the run that started it is told what it found."""
    row, root = await served.row(run_id), await served.root_here(run_id)
    await _check_power(served, root, who, body.text)
    going = root.status not in ENDED and not await served.retinue.abandoned(root.root_id)
    if going and await served.retinue.message(run_id, body.text):
        return Told(how="delivered")
    ended = (await served.row(row.root_id)).status in ENDED
    if row.parent_id is not None and not (row.parent_id == row.root_id and ended):
        raise ApiError(
            409, "finished", f"{run_id} has ended and reads no more messages", fix=f"speak to {root.run_id}"
        )
    await served.retinue.take_up.one(root, message=body.text, asks=run_id if row.parent_id else "")
    return Told(how="resumed")


@router.post("/runs/{run_id}/replay", **for_role("ask"))
async def replay_run(run_id: RunId, served: Served) -> Replay:
    """Run a finished workflow again from its record, without network, key or effect, and compare."""
    root = await served.row((await served.row(run_id)).root_id)
    if root.status not in ENDED:
        raise ApiError(409, "running", f"{root.run_id} has not ended", fix="replay it when it has")
    try:
        async with asyncio.timeout(REPLAY_SECONDS):
            replayed = await served.retinue.replay(root.run_id)
    except TimeoutError:
        raise ApiError(409, "conflict", f"the replay did not end within {REPLAY_SECONDS:g} s") from None
    return Replay(
        same=replayed.same,
        diff=replayed.diff,
        after=replayed.after,
        report=await shapes.report(replayed.report),
    )


@router.delete("/runs/{run_id}", status_code=204, response_class=Response, **for_role("admin"))
async def delete_run(
    run_id: RunId,
    served: Served,
    force: Annotated[bool, Query(description="even if it has not ended; whoever works on it stops")] = False,
) -> Response:
    """Remove a whole workflow for good."""
    row = await served.row(run_id)
    if row.parent_id is not None:
        raise ApiError(409, "conflict", f"{run_id} is part of {row.root_id}", fix=f"delete {row.root_id}")
    if row.status not in ENDED and not force:
        fix = "cancel it first, or delete it with force=true"
        raise ApiError(409, "running", f"{run_id} has not ended ({row.status})", fix=fix)
    await served.retinue.changes.forget(run_id)
    await served.retinue.store.delete(run_id)
    served.hub.pages.forget(run_id)
    return Response(status_code=204)


async def _check_power(served: Server, root: RunRow, who: Identity, message: str | None) -> None:
    """Whoever tells a run what to do must be allowed what the run was allowed by somebody else.

    A run that was started with every approval given, or was given one for its rest, does what it is told
    without asking again: telling it takes the role that may approve.
    """
    if message is None or who.may("approve"):
        return
    for event in await served.retinue.store.events(root.root_id):
        needs_none = isinstance(event, RunStarted) and event.options.yes
        if needs_none or (isinstance(event, RunResumed) and event.yes):
            who.require("approve", "a word to a run that needs no approvals")
        if isinstance(event, ApprovalAnswered) and event.decision in FOR_MORE:
            who.require("approve", "a word to a run that was given an approval for its rest")
