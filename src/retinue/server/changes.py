"""What a workflow changed in its project: shown and taken back; copies of it: merged, or thrown away.

Diffs are bounded here: `retinue runs diff` shows all of them. Whoever takes back what a run did needs the
role that may allow it.
"""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import APIRouter

from retinue.approvals import Rules
from retinue.engine.merge_diffs import Withheld, of_copy, planned_content
from retinue.engine.undo import ChangeSet, Content, Undone, undo
from retinue.engine.worktrees import Copy, MergePlan
from retinue.errors import ToolError
from retinue.server.context import RunId, Served, Server, Who, for_role
from retinue.server.errors import ApiError
from retinue.server.models import (
    ChangeList,
    ChangeMade,
    ChangeOut,
    ConflictOut,
    Merged,
    MergeRun,
    Refusal,
    UndoneOut,
    UndoRun,
    WorktreeList,
    WorktreeOut,
)
from retinue.standing import OPEN
from retinue.store.base import RunRow
from retinue.view.changes import Room, ShownChange, shown_changes
from retinue.workspace import Origin

router = APIRouter(tags=["changes"])
MOST_PATHS = 500
ROOM = Room(lines=4_000, each=60_000, all=300_000)


@router.get("/runs/{run_id}/changes", **for_role("watch"))
async def changes_of_run(run_id: RunId, served: Served) -> ChangeList:
    """What a run and everything below it changed in its project, and what undo would make of it now."""
    row = await served.row(run_id)
    found, content = await served.retinue.changes.of(row.run_id)
    return await asyncio.to_thread(_shown, row, found, content, _withheld(served, found))


def _withheld(served: Server, found: ChangeSet) -> Withheld:
    """What is shown to nobody who only watches: 'retinue runs diff' shows it to whoever has the database."""
    top = None if found.project is None else Origin(folders=(str(found.project),), shared={})
    return Withheld(Rules.of(served.retinue.settings.approvals), top)


def _shown(row: RunRow, found: ChangeSet, content: Content, withheld: Withheld) -> ChangeList:
    some = found.changes[:MOST_PATHS]
    listed = [(each.path, each.before, each.after) for each in some]
    shown = shown_changes(listed, content, ROOM, withheld.why)
    agents = {each.path: list(each.agents) for each in some}
    planned = _planned(found, content)
    return ChangeList(
        run_id=row.run_id,
        project=str(found.project or ""),
        changes=[_made(change, agents[change.path], planned) for change in shown],
        more=len(found.changes) - len(some),
        left_out=list(found.left_out),
        unfinished=bool(found.unfinished),
    )


def _planned(found: ChangeSet, content: Content) -> Undone:
    """What undo would do. It has nothing to do where the folder is gone."""
    if found.project is not None and not found.project.is_dir():
        return Undone(refused=tuple((each.path, "the folder is gone") for each in found.changes))
    return undo(found, content, dry_run=True)


def _made(change: ShownChange, agents: list[str], planned: Undone) -> ChangeMade:
    refused = dict(planned.refused)
    why = refused.get(change.path) or refused.get(change.was, "")
    stands = "refused" if why else "as_before" if change.path in planned.already else "as_left"
    return ChangeMade(
        path=change.path,
        what=change.what,
        was=change.was,
        note=change.note,
        diff=change.diff,
        cut=change.cut,
        added=change.added,
        removed=change.removed,
        agents=agents,
        stands=stands,
        why=why,
    )


@router.post("/runs/{run_id}/undo", **for_role("approve"))
async def undo_run(run_id: RunId, served: Served, who: Who, body: UndoRun | None = None) -> UndoneOut:
    """Take back what a whole workflow changed: every file as it was before. If a file is no longer as the
    workflow left it, nothing is touched, unless `rest` is wanted."""
    given = body or UndoRun()
    root = await _ended(served, run_id, "undo")
    if root.run_id != run_id:
        raise ApiError(409, "conflict", f"{run_id} is part of {root.run_id}", fix=f"undo {root.run_id}")
    done = await served.retinue.changes.undo(run_id, rest=given.rest, dry_run=given.dry_run, by=who.name)
    return UndoneOut(
        paths=list(done.paths),
        already=list(done.already),
        refused=[Refusal(path=path, why=why) for path, why in done.refused],
        left_out=[
            *done.left_out,
            *(f"{path}: stays, files of somebody else are in it" for path in done.stays),
        ],
    )


async def _ended(served: Served, run_id: str, deed: str) -> RunRow:
    """The root of a workflow of this folder that nobody works on."""
    root = await served.root_here(run_id, deed)
    if root.outcome in OPEN:
        raise ApiError(
            409, "running", f"{root.run_id} has not ended ({root.outcome})", fix="wait, or cancel it first"
        )
    return root


@router.get("/runs/{run_id}/worktrees", **for_role("watch"))
async def worktrees_of_run(run_id: RunId, served: Served) -> WorktreeList:
    """The copies of the project in which isolated children of a workflow worked and that were not merged yet;
    of a child, its own. There are none until the workflow has ended."""
    row = await served.row(run_id)
    copies = served.retinue.services.worktrees
    found = await served.retinue.changes.unmerged(row.run_id, copies)
    return WorktreeList(
        worktrees=[await asyncio.to_thread(_copied, copy, plan, served) for copy, plan in found]
    )


def _copied(copy: Copy, plan: MergePlan, served: Server) -> WorktreeOut:
    copies, settings = served.retinue.services.worktrees, served.retinue.settings
    withheld = of_copy(copies, copy, settings.undo, Rules.of(settings.approvals))
    path, content = str(copies.path(copy.run_id)), planned_content(copy, plan)
    why = partial(withheld.why, content=content)
    some = [(change.path, change.after, change.before) for change, _ in plan.going[:MOST_PATHS]]
    return WorktreeOut(
        run_id=copy.run_id,
        agent=copy.agent,
        branch=copy.branch,
        path=path,
        changes=[ChangeOut.model_validate(each) for each in shown_changes(some, content, ROOM, why)],
        more=len(plan.going) - len(some),
        conflicts=[
            ConflictOut(
                path=each.path,
                why=each.why,
                text=f"not shown: {hidden}"
                if (hidden := withheld.why(each.path) or withheld.why_text(each.text))
                else each.text[: ROOM.each],
            )
            for each in plan.conflicts
        ],
        left_out=list(plan.left_out),
    )


@router.post("/runs/{run_id}/merge", **for_role("approve"))
async def merge_run(run_id: RunId, served: Served, body: MergeRun | None = None) -> Merged:
    """Merge what an isolated child changed in its copy into the project, or throw the copy away. Where the
    same lines were changed on both sides nothing is merged, unless `rest` is wanted."""
    given = body or MergeRun()
    await _ended(served, run_id, "merge")
    copies = served.retinue.services.worktrees
    if await asyncio.to_thread(copies.copy_of, run_id) is None:
        raise ApiError(
            404, "not_found", f"{run_id} has no copy of the project", fix="see the worktrees of its root"
        )
    if given.discard:
        await served.retinue.changes.discard(run_id, copies)
        return Merged(text="the copy is gone")
    try:
        done = await served.retinue.changes.merge(run_id, copies, rest=given.rest)
        return Merged(text=done.result.text)
    except ToolError as error:
        raise ApiError(409, "conflict", str(error)) from None
