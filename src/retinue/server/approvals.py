"""Questions that wait for a person: the list, and the answer. The first answer wins."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from retinue.errors import ConfigError, ToolError
from retinue.events import ApprovalRequested
from retinue.server import shapes
from retinue.server.context import Served, Server, Who, for_role
from retinue.server.errors import ApiError
from retinue.server.fields import Word
from retinue.server.models import AnswerRecorded, ApprovalAnswer, ApprovalList
from retinue.store.base import RunRow, Signal

router = APIRouter(tags=["approvals"])
ApprovalId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}:[^\x00]{1,300}$", description="'run:call', as the question says")
]


@router.get("/approvals", **for_role("watch"))
async def list_approvals(
    served: Served, root_id: Annotated[Word | None, Query(description="of this workflow alone")] = None
) -> ApprovalList:
    """Whatever waits for an answer, oldest first."""
    waiting = await served.retinue.store.waiting(root_id)
    return ApprovalList(approvals=[shapes.approval(asked) for asked in waiting])


@router.post("/approvals/{approval_id:path}", **for_role("approve"))
async def answer_approval(
    approval_id: ApprovalId, body: ApprovalAnswer, served: Served, who: Who
) -> AnswerRecorded:
    """Answer a question. 409 with the code `answered` and who it was, if somebody was faster."""
    row = await served.row(approval_id.partition(":")[0])
    asked = await _asked(served, row, approval_id)
    arguments = _edited(served, asked, body)
    if body.decision == "approve_always":
        who.require("admin", "a rule that is kept")
    try:
        given = await served.retinue.answer(
            approval_id, body.decision, reason=body.reason, arguments=arguments, by=who.name
        )
    except ConfigError as error:
        raise ApiError(422, "invalid", error.message, fix=error.fix) from None
    if not given:
        raise await _too_late(served, row, approval_id)
    root = await served.row(row.root_id)
    take_up = served.retinue.take_up
    if take_up.belongs(root) and await served.retinue.abandoned(root.root_id):
        await take_up.one(root)
    return AnswerRecorded(approval_id=approval_id, decision=body.decision, also=list(given.also), by=who.name)


async def _asked(served: Server, row: RunRow, approval_id: str) -> ApprovalRequested:
    for asked in await served.retinue.store.waiting(row.root_id):
        if asked.approval_id == approval_id:
            return asked
    raise await _too_late(served, row, approval_id)


async def _too_late(served: Server, row: RunRow, approval_id: str) -> ApiError:
    signal: Signal | None = await served.retinue.store.signal(row.root_id, approval_id)
    if signal is None:
        return ApiError(404, "not_found", f"no question {approval_id!r} waits", fix="GET /api/v1/approvals")
    given: dict[str, Any] = json.loads(signal.body)
    details = {
        "decision": given.get("decision"),
        "by": given.get("by"),
        "reason": given.get("reason"),
        "at": signal.at,
    }
    return ApiError(
        409, "answered", f"{given.get('by')} answered first: {given.get('decision')}", details=details
    )


def _edited(served: Server, asked: ApprovalRequested, body: ApprovalAnswer) -> str | None:
    """The person's own arguments, if they fit the tool."""
    if body.arguments is None:
        return None
    if body.decision == "reject":
        raise ApiError(422, "invalid", "'arguments' go with an approval, not with a rejection")
    text = json.dumps(body.arguments, ensure_ascii=False)
    tool = served.retinue.tools.get(asked.tool)
    if tool is not None:
        try:
            tool.parse(text)
        except ToolError as error:
            raise ApiError(422, "invalid", str(error)) from None
    return text
