"""The changes of stored workflows: shown, and taken back. What the app hands on as `changes`.

Taking back is for a workflow that nobody works on, and is written to its log: whoever goes on with it later
finds files otherwise than it left them, and is told so when it edits one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import msgspec

from retinue.engine.at_rest import AtRest, at_rest
from retinue.engine.isolation import MERGE, MergeDone, left_since, merged
from retinue.engine.recorder import MOST_AFTER, KeptBytes, kept_bytes, not_kept
from retinue.engine.shadows import Shadows
from retinue.engine.shown import ShownRuns, rows_below
from retinue.engine.undo import ChangeSet, Content, Undone, change_set, content_of, undo
from retinue.engine.worktrees import Copy, MergePlan, Worktrees
from retinue.errors import ConfigError, RunError, ToolError
from retinue.events import AnyEvent, ChangesUndone, CopyLeft, FilesChanged, LiveEvent, RunStarted
from retinue.run import CopyWork
from retinue.settings import UndoSettings
from retinue.shadow import WORKTREE, Shadow, forget_in, waits
from retinue.standing import OPEN
from retinue.store.base import RunFilter, RunRow, Store
from retinue.threads import to_its_end, undisturbed
from retinue.types import FileChange

PAGE = 500
"""Rows that are read at once."""


class UnmergedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """What a run made in its copy of the project, and nobody has merged or thrown away."""

    run_id: str
    agent: str
    branch: str
    """Empty where the project is not in git."""
    path: str
    """The folder of the copy; empty where that is not here: on another machine, or removed by hand."""
    files: int
    """That merging would change, those with conflicts included."""
    conflicts: int
    left_out: int
    """Paths that cannot be merged."""
    above: dict[str, str] = {}
    """The copies that it is a copy of, the nearest first: the runs, and whose they are. Merged next."""


class WorkflowChanges:
    """What workflows changed. A run is named by its id; of a child, its own and those of all below it."""

    def __init__(
        self,
        store: Store,
        shadows: Shadows,
        shown: ShownRuns,
        *,
        settings: UndoSettings,
        taking_up: Callable[[str], AbstractAsyncContextManager[None]],
        publish: Callable[[LiveEvent], None],
    ) -> None:
        self._store, self._shadows, self._shown = store, shadows, shown
        self._settings, self._taking_up, self._publish = settings, taking_up, publish

    async def of(self, run_id: str) -> tuple[ChangeSet, Content]:
        """What a run and those below it changed, and the bytes of it."""
        row = await self._row(run_id)
        root = row if row.parent_id is None else await self._row(row.root_id)
        found, content, _ = await self._found(row, at_work=root.outcome in OPEN)
        return found, content

    async def _row(self, run_id: str) -> RunRow:
        row = await self._shown.run(run_id)
        if row is None:
            raise RunError(f"there is no run {run_id}", run_id=run_id)
        return row

    async def _at_rest(self, run_id: str, doing: str, fix: str) -> tuple[RunRow, AtRest]:
        return await at_rest(self._store, self._shown, run_id, publish=self._publish, doing=doing, fix=fix)

    async def _found(self, row: RunRow, *, at_work: bool) -> tuple[ChangeSet, Content, Shadow | None]:
        events = await self._store.events(row.root_id)
        # What a command changes that is at work is known when it has ended.
        shadow = None if at_work else await self._shadow(events)
        if row.parent_id is not None:
            events = _below(events, row.run_id)
        found = await to_its_end(change_set, events, shadow)
        return found, content_of(await kept_bytes(self._store, row.root_id), shadow), shadow

    async def undo(
        self, run_id: str, *, rest: bool = False, dry_run: bool = False, by: str = "person"
    ) -> Undone:
        """Take back what a whole workflow changed. With `rest`, all but what is not as it left it."""
        row, log = await self._at_rest(run_id, "undo", "cancel it first")
        async with self._taking_up(run_id):  # meanwhile nobody here goes on with it
            found, content, shadow = await self._found(row, at_work=False)
            if found.project is not None and not found.project.is_dir():
                raise ConfigError(f"the folder {found.project} is gone, and with it what was changed there")
            if dry_run:
                done = await asyncio.to_thread(undo, found, content, rest=rest, dry_run=True)
                return replace(done, left_out=found.left_out)

            async def take_back() -> Undone:
                done: list[Undone] = []  # also where whoever waits is cancelled, as all are when a loop ends
                try:
                    await to_its_end(lambda: done.append(undo(found, content, rest=rest)))
                finally:
                    if done and done[0].paths:
                        await log.write(
                            ChangesUndone,
                            paths=(*done[0].paths, *done[0].already),
                            left=tuple(f"{path}: {why}" for path, why in done[0].refused),
                            by=by,
                        )
                if shadow is not None and not done[0].refused:
                    for call in found.unfinished:
                        await to_its_end(shadow.end, *call)
                return replace(done[0], left_out=found.left_out)

            return await undisturbed(take_back())  # what is done to files is in the log

    async def forget(self, run_id: str) -> None:
        """Before a workflow is deleted: what its commands left in the shadow of its project goes with it."""
        events = await self._store.events(run_id)
        shadow = await self._shadow(events)
        if shadow is not None:
            await to_its_end(shadow.forget, {event.run_id for event in events})

    async def tidy(self, worktrees: Worktrees) -> int:
        """Remove what shadows keep for workflows that are gone, and shadows of projects without any.

        Returns how many bytes. Where several databases share a folder, what is remembered there may be
        another's and stays.
        """
        used = {Path(cwd) for cwd in await self._projects()}
        for copy in await asyncio.to_thread(worktrees.all):
            used |= {Path(copy.source), worktrees.path(copy.run_id)}
        if self._shadows.alone:
            for folder in await asyncio.to_thread(self._shadows.known):
                await self._forget_gone(folder)
        return await to_its_end(self._shadows.tidy, used)

    async def _forget_gone(self, folder: Path) -> None:
        runs = {
            run_id for run_id, call_id in await asyncio.to_thread(waits, folder) or () if call_id != WORKTREE
        }
        gone = [run_id for run_id in sorted(runs) if await self._store.run(run_id) is None]
        if gone:
            await to_its_end(forget_in, folder, gone)

    async def _projects(self) -> set[str]:
        """The folders that workflows of this store worked in."""
        found: set[str] = set()
        which = RunFilter(roots_only=True, limit=PAGE)
        while True:
            rows = await self._store.runs(which)
            found.update(row.cwd for row in rows if row.cwd)
            if len(rows) < PAGE:
                return found
            last = rows[-1]
            which = msgspec.structs.replace(which, before=last.created_at, before_id=last.run_id)

    async def merge(
        self, run_id: str, worktrees: Worktrees, *, rest: bool = False, spelt: str = "rest=true"
    ) -> MergeDone:
        """Merge what an isolated child changed into its project, for a person.

        For a workflow that nobody works on: while it runs, the parent merges. `spelt`: how `rest` is asked
        for.
        """
        root, copy = await self._copy(run_id, worktrees)
        said = await self._store.events(root.run_id, run_id=run_id)  # of the child, before the look
        _, log = await self._at_rest(root.run_id, "merge", "cancel it first, or wait")
        async with self._taking_up(root.run_id):
            plan = await to_its_end(worktrees.plan, copy, self._settings)
            changes: tuple[FileChange, ...] = ()
            if (not plan.conflicts or rest) and await self._is_of_root(root.run_id, copy):
                changes = await self._with_bytes(root.run_id, copy, plan)

            def check(found: MergePlan) -> None:
                if found.digest != plan.digest:  # it would not be what the log says
                    raise ToolError("not merged: the copy or the project was changed just now. Try again.")

            async def merge() -> MergeDone:
                """Written to the log before it is made: it is undone with the rest."""
                done: list[MergeDone] = []  # as above

                def work() -> None:
                    done.append(merged(worktrees, copy, self._settings, rest=rest, check=check, spelt=spelt))
                    worktrees.clear_above(copy, self._settings)

                await _write(log, changes)
                try:
                    await to_its_end(work)
                finally:
                    made = done[0].result.files if done else ()
                    lost = [each for each in changes if each.path not in made]
                    await _write(log, lost, void=True)
                await self._tell_left(said, done[0].work)
                return done[0]

            return await undisturbed(merge())

    async def unmerged(self, run_id: str, worktrees: Worktrees) -> list[tuple[Copy, MergePlan]]:
        """The copies of a workflow, or of a child, and what merging each would do; none while it works."""
        row = await self._row(run_id)
        root = row if row.parent_id is None else await self._row(row.root_id)
        if root.outcome in OPEN:
            return []
        copies = await asyncio.to_thread(worktrees.all)
        mine = [
            copy
            for copy in copies
            if run_id in (copy.root_id, copy.run_id, *(each.run_id for each in worktrees.above(copy)))
        ]
        return [(copy, await to_its_end(self._plan, copy, worktrees)) for copy in mine]

    async def not_in_project(self, run_id: str, worktrees: Worktrees) -> list[UnmergedCopy]:
        """The work of a workflow, or of a child, that is not in the project; none while it works.

        That there is some its log says; what merging would do, the copy, if it is here.
        """
        row = await self._row(run_id)
        root = row if row.parent_id is None else await self._row(row.root_id)
        if root.outcome in OPEN:
            return []
        found = {copy.run_id: (copy, plan) for copy, plan in await self.unmerged(run_id, worktrees)}
        rows = await self._store.tree(row.root_id) if row.unmerged else ()
        known = {each.run_id: each for each in rows_below(rows, run_id) if each.copy_left}
        here = [
            _unmerged(copy, plan, worktrees)
            for copy, plan in found.values()
            if _has_work(plan) or copy.run_id in known
        ]
        return here + [await self._elsewhere(each) for name, each in known.items() if name not in found]

    async def with_old_copies(self, rows: Sequence[RunRow], worktrees: Worktrees) -> list[RunRow]:
        """Rows of a list, in which work counts too of which no log tells, and the copy is here: an earlier
        version left it, or the process is gone."""
        ended = {row.run_id for row in rows if row.outcome not in OPEN and not row.unmerged}
        found: dict[str, int] = {}
        for copy in await asyncio.to_thread(worktrees.all) if ended else ():
            those = {copy.root_id, copy.run_id, *(each.run_id for each in worktrees.above(copy))} & ended
            if not those or await self._is_told(copy):
                continue
            if _has_work(await to_its_end(self._plan, copy, worktrees)):
                found.update((run_id, found.get(run_id, 0) + 1) for run_id in those)
        return [
            msgspec.structs.replace(row, unmerged=found[row.run_id]) if row.run_id in found else row
            for row in rows
        ]

    async def _is_told(self, copy: Copy) -> bool:
        """Whether the log says what became of the work in a copy."""
        log = await self._store.events(copy.root_id, run_id=copy.run_id)
        return any(isinstance(event, CopyLeft) for event in log)

    async def _elsewhere(self, row: RunRow) -> UnmergedCopy:
        """What the log says of a copy that is not here."""
        log = await self._store.events(row.root_id, run_id=row.run_id)
        said = next(e for e in reversed(log) if isinstance(e, CopyLeft))
        return UnmergedCopy(
            run_id=row.run_id,
            agent=row.agent,
            branch=said.branch,
            path="",
            files=said.files,
            conflicts=0,
            left_out=said.left_out,
        )

    def _plan(self, copy: Copy, worktrees: Worktrees) -> MergePlan:
        if not Path(copy.source).is_dir():
            return MergePlan(left_out=(f"the folder {copy.source} is gone",))
        try:
            return worktrees.plan(copy, self._settings)
        except ToolError as error:
            return MergePlan(left_out=(str(error),))

    async def _copy(self, run_id: str, worktrees: Worktrees) -> tuple[RunRow, Copy]:
        """The root of a workflow that nobody works on, and the copy that one of its runs has."""
        row = await self._row(run_id)
        root = row if row.parent_id is None else await self._row(row.root_id)
        if root.outcome in OPEN:
            raise ConfigError(f"{root.run_id} has not ended ({root.outcome})", fix="cancel it first, or wait")
        copy = await asyncio.to_thread(worktrees.copy_of, run_id)
        if copy is None:
            raise ConfigError(
                f"{run_id} has no copy of the project", fix="'retinue runs worktrees' lists them"
            )
        return root, copy

    async def _is_of_root(self, root_id: str, copy: Copy) -> bool:
        """Whether a copy is of the project of its workflow, and not of the copy of another run."""
        began = (await self._store.events(root_id, run_id=root_id))[0]
        cwd = began.cwd if isinstance(began, RunStarted) else ""
        return bool(cwd) and await asyncio.to_thread(_same_folder, cwd, copy.source)

    async def discard(self, run_id: str, worktrees: Worktrees) -> None:
        """Throw away the copy of a run that nobody works on, also if its workflow was deleted."""
        copy = await asyncio.to_thread(worktrees.copy_of, run_id)
        if copy is None:
            raise ConfigError(
                f"{run_id} has no copy of the project", fix="'retinue runs worktrees' lists them"
            )
        said = await self._store.events(copy.root_id, run_id=run_id)
        root = await self._shown.run(copy.root_id)
        if root is not None and root.outcome in OPEN:
            raise ConfigError(
                f"{copy.root_id} has not ended ({root.outcome}), and {run_id} may be at work in its copy",
                fix="cancel it first, or wait",
            )
        async with self._taking_up(copy.root_id):
            below = await asyncio.to_thread(worktrees.copies_of, copy)
            if below:
                names = ", ".join(each.run_id for each in below)
                raise ConfigError(
                    f"copies were made of the copy of {run_id}, and are not merged: {names}",
                    fix="merge or discard those first",
                )
            await undisturbed(self._discard(copy, worktrees, said))

    async def _discard(self, copy: Copy, worktrees: Worktrees, said: Sequence[AnyEvent]) -> None:
        await to_its_end(worktrees.remove, copy, self._settings)
        await self._tell_left(said, CopyWork(branch=copy.branch))
        await to_its_end(worktrees.clear_above, copy, self._settings)

    async def _tell_left(self, said: Sequence[AnyEvent], work: CopyWork) -> None:
        for event in left_since(said, work):
            await AtRest(self._store, said[-1], publish=self._publish).append(event)

    async def _with_bytes(self, root_id: str, copy: Copy, plan: MergePlan) -> tuple[FileChange, ...]:
        """What a person's merge changes, once the bytes that it replaces are kept."""
        kept = KeptBytes(self._store, root_id, self._settings)
        changes: list[FileChange] = []
        for change, data in plan.going:
            before, here = change.after, Path(copy.source) / change.path
            if before.kind == "file":
                there = await asyncio.to_thread(here.read_bytes)
                before = before if await kept.keep(before.sha256, there) else not_kept(before)
            if data is not None and len(data) <= MOST_AFTER:
                await kept.keep(change.before.sha256, data)
            changes.append(FileChange(path=change.path, before=before, after=change.before))
        return tuple(changes)

    async def _shadow(self, events: Sequence[AnyEvent]) -> Shadow | None:
        began = events[0] if events else None
        if not isinstance(began, RunStarted) or not began.cwd:
            return None
        return await to_its_end(self._known_shadow, Path(began.cwd))

    def _known_shadow(self, project: Path) -> Shadow | None:
        return self._shadows.of(project, self._settings, make=False) if project.is_dir() else None


async def _write(log: AtRest, changes: Sequence[FileChange], *, void: bool = False) -> None:
    """Write changes of a merge to the log, or that they were not made."""
    if changes:
        await log.write(FilesChanged, call_id=MERGE, changes=tuple(changes), exact=True, void=void)


def _unmerged(copy: Copy, plan: MergePlan, worktrees: Worktrees) -> UnmergedCopy:
    return UnmergedCopy(
        run_id=copy.run_id,
        agent=copy.agent,
        branch=copy.branch,
        path=str(worktrees.path(copy.run_id)),
        files=len(plan.going) + len(plan.conflicts),
        conflicts=len(plan.conflicts),
        left_out=len(plan.left_out),
        above={each.run_id: each.agent for each in worktrees.above(copy)},
    )


def _has_work(plan: MergePlan) -> bool:
    return bool(plan.going or plan.conflicts or plan.left_out)


def _same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _below(events: Sequence[AnyEvent], run_id: str) -> list[AnyEvent]:
    """The workflow as if only this run and those below it had changed files."""
    inside = {run_id}
    kept: list[AnyEvent] = []
    for event in events:
        if event.parent_id in inside:
            inside.add(event.run_id)
        if not isinstance(event, FilesChanged) or event.run_id in inside:
            kept.append(event)
    return kept
