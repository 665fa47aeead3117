"""Runs that work in a copy of the project: where it is, what their report says of it, and merging it back.

Used by the workflow and by `build`. The tool `merge_child` is how a parent merges; it asks a person like any
tool that writes, and shows the change. What was shown is what is merged: a digest of it is in the question.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from retinue.approvals import Verdict
from retinue.authority.flows import Concern
from retinue.authority.later import run_later
from retinue.authority.rules import Asked, exact_rule
from retinue.authority.secrets import secrets_in
from retinue.engine.config import WorkflowConfig
from retinue.engine.merge_diffs import Withheld, conflicts, of_copy, planned_diff, whole_diff
from retinue.engine.preview import UNSEEN
from retinue.engine.tree import RunTree
from retinue.engine.worktrees import Copy, MergePlan, Worktrees
from retinue.errors import Refused, ToolError
from retinue.events import AnyEvent, CopyLeft, RunResumed, RunStarted, next_event
from retinue.git import GitFailed
from retinue.run import Closing, CopyWork, Run
from retinue.settings import UndoSettings
from retinue.store.base import Store
from retinue.threads import to_its_end, undisturbed
from retinue.tools.base import Admit, Preview, ShownCall, Tool, ToolContext, ToolResult, tool
from retinue.tools.descriptions import describe
from retinue.tools.diff import on_a_line
from retinue.types import ENDED, AgentSpec, FileChange
from retinue.workspace import Files

log = logging.getLogger("retinue")
MERGE = "merge_child"
MOST_LISTED = 30
MOST_DIFF = 3000
"""Characters of the change that a report shows; a merge shows all of it."""


class Isolation:
    """The copies of one workflow."""

    def __init__(self, tree: RunTree) -> None:
        self._tree = tree
        self._shown: dict[str, str] = {}
        """What was last shown of a merge, by the child. What a person was shown is in the log besides."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def _config(self) -> WorkflowConfig:
        return self._tree.config

    def source(self, parent: Run | None) -> Path | None:
        """What a copy for a child of this run would be of."""
        return self._config.project if parent is None else parent.files.project

    def copies(self, spec: AgentSpec, parent: Run | None) -> bool:
        """Whether a run works in a copy of the project, its own or that of a run above it."""
        able = self._config.worktrees is not None and self.source(parent) is not None
        return (able and spec.isolation == "worktree") or (parent is not None and parent.in_copy)

    def folder(self, run_id: str, spec: AgentSpec, parent: Run | None) -> Path | None:
        """Where a run works: in the copy that was made for it, or where its parent does."""
        source, worktrees = self.source(parent), self._config.worktrees
        if spec.isolation != "worktree" or worktrees is None or source is None or self._config.recorded:
            return source
        return worktrees.path(run_id)

    async def prepare(self, run_id: str, spec: AgentSpec, parent: Run | None) -> None:
        """Make the copy of a run that is about to be built, unless it has one, while others go on."""
        source, worktrees = self.source(parent), self._config.worktrees
        if source is None or worktrees is None or self.folder(run_id, spec, parent) == source:
            return
        settings = self._config.settings
        make = partial(worktrees.make, run_id, self._tree.root_id, spec.name, source, settings.undo)
        async with self._turn(run_id):  # a merge removes the copy that it finds
            await to_its_end(partial(make, ignored=settings.isolation.ignored))

    def _turn(self, run_id: str) -> asyncio.Lock:
        """Whoever makes the copy of a run, or merges it, waits for others who do."""
        lock = self._turns.get(run_id)
        if lock is None:
            lock = self._turns[run_id] = asyncio.Lock()
        return lock

    async def closing(self, run: Run) -> Closing:
        """What the report of a run says of its copy below its text: its branch and what it changed.

        A text that is data has nothing below it.
        """
        worktrees = self._config.worktrees
        if run.spec.isolation != "worktree" or worktrees is None:
            return Closing()
        try:
            told = await to_its_end(self._closing, worktrees, run)
        except Exception as error:  # a report is worth more than what it says of a folder
            log.warning("what %s changed in its copy could not be told: %s", run.id, error)
            where = worktrees.path(run.id)
            told = Closing(text=f"\n\n[It worked in a copy of the project, which is in {where}.]")
        return told if run.output_schema is None else replace(told, text="")

    def _closing(self, worktrees: Worktrees, run: Run) -> Closing:
        copy = worktrees.copy_of(run.id)
        if copy is None:
            return Closing()
        settings = self._config.settings.undo
        changes, left_out = worktrees.changes(copy, settings)
        below = [
            f"not merged: what its child {each.agent} ({each.run_id}) made in a copy of this copy"
            for each in worktrees.copies_of(copy)
            if any(worktrees.changes(each, settings))
        ]
        where = f"branch {copy.branch}" if copy.branch else f"folder {worktrees.path(run.id)}"
        work = CopyWork(branch=copy.branch, files=len(changes), left_out=len(left_out))
        if not changes:
            nothing = (
                f"[Isolated: {where}. It changed nothing in its copy of the project that can be merged.]"
            )
            return Closing(text="\n\n" + "\n".join([nothing, *_not_merged(left_out), *below]), work=work)
        try:
            worktrees.commit(copy, changes)
        except GitFailed as error:  # its agent may have done anything to it: the branch is not what is merged
            log.warning("the branch of %s is not up to date: %s", run.id, error)
            where = f"folder {worktrees.path(run.id)}"
        lines = [f"{_word(change)} {on_a_line(change.path)}" for change in changes[:MOST_LISTED]]
        if len(changes) > MOST_LISTED:
            lines.append(f"and {len(changes) - MOST_LISTED} more")
        lines += [*_not_merged(left_out), *below]
        withheld = of_copy(worktrees, copy, settings, run.authority.rules, *run.path)
        shown = whole_diff(worktrees, copy, settings, changes[:MOST_LISTED], withheld)
        whole = len(shown) <= MOST_DIFF and len(changes) <= MOST_LISTED
        cut = "" if whole else "\n[there is more; a person is shown it when it is merged]"
        by_parent = "" if run.parent_id is None else f"{MERGE}(child_id={run.id!r}) or "
        head = (
            f"[Isolated: {where}. Nothing of this is in the project yet: {by_parent}"
            f"'retinue runs merge {run.id}' merges it.]"
        )
        text = "\n\n" + "\n".join([head, *lines, "", shown[:MOST_DIFF] + cut])
        return Closing(text=text, files=tuple(change.path for change in changes), work=work)

    async def sweep(self) -> None:
        """At the end of the workflow."""
        worktrees, config = self._config.worktrees, self._config
        if worktrees is not None and config.recorded is None:
            undo, root_id = config.settings.undo, self._tree.root_id
            await settle_copies(worktrees, config.store, root_id, undo, config.publish)

    # -- merging ---------------------------------------------------------------------

    def tools(self) -> list[Tool]:
        """The tool by which a parent merges."""
        if self._config.worktrees is None:
            return []

        made = merge_tool(self._merge_child, self._preview, self._admit)
        return [self._config.merging(replace(made, concern=self._concern))]

    def _preview(self, arguments: dict[str, Any], files: Files) -> ShownCall:
        worktrees, copy = self._copy(str(arguments["child_id"]))
        settings = self._config.settings.undo
        plan = worktrees.plan(copy, settings)
        self._shown[copy.run_id] = plan.digest
        withheld = of_copy(worktrees, copy, settings, self._config.rules)
        text = "\n".join(
            [*conflicts(plan, withheld), *_not_merged(plan.left_out), planned_diff(copy, plan, withheld)]
        )
        return ShownCall(text=text, digest=plan.digest)

    def _copy(self, child_id: str) -> tuple[Worktrees, Copy]:
        worktrees = self._config.worktrees
        copy = None if worktrees is None else worktrees.copy_of(child_id)
        if worktrees is None or copy is None or copy.root_id != self._tree.root_id:
            raise ToolError(
                f"there is nothing to merge of {child_id!r}: it has no copy of the project, or no more"
            )
        return worktrees, copy

    def _admit(self, arguments: dict[str, Any], run_id: str) -> None:
        """Refuse what cannot be merged before anybody is asked about it."""
        self._mergeable(self._tree.run(run_id), str(arguments["child_id"]))

    def _mergeable(self, run: Run, child_id: str) -> tuple[Worktrees, Copy]:
        if child_id not in run.state.children:
            known = ", ".join(run.state.children) or "none"
            raise ToolError(f"there is no child {child_id!r} of yours. Your children: {known}")
        self._refuse_at_work(child_id)
        if not run.files.writable:
            raise Refused("not merged: this run may only read the project")
        return self._copy(child_id)

    def _refuse_at_work(self, child_id: str) -> None:
        state = self._tree.state(child_id)
        if child_id in self._tree.continuing or state is None or state.status not in ENDED:
            raise ToolError(f"the child {child_id} has not ended: wait for it, then merge")

    async def _concern(self, arguments: dict[str, Any], run_id: str) -> Concern | None:
        """Why a person is asked although `merge_child` is allowed: for a file that it would write."""
        return await to_its_end(self._file_to_ask_about, self._tree.run(run_id), str(arguments["child_id"]))

    def _file_to_ask_about(self, run: Run, child_id: str) -> Concern | None:
        worktrees, copy = self._copy(child_id)
        return _concern_of(run, worktrees.plan(copy, self._config.settings.undo), self._config.environ)

    async def _merge_child(self, ctx: ToolContext, child_id: str, rest: bool) -> ToolResult:
        async with self._turn(child_id):
            # Here and not in the thread: whoever is to ask it again comes before this, or waits for the turn.
            self._refuse_at_work(child_id)
            return await undisturbed(self._merge_and_tell(ctx, child_id, rest))

    async def _merge_and_tell(self, ctx: ToolContext, child_id: str, rest: bool) -> ToolResult:
        """Merge, and write down what is left in the copy: it is the child's own, which has ended."""
        before = child_id in self._tree.run(ctx.run_id).state.unmerged
        try:
            done = await to_its_end(self._merge, ctx, child_id, rest)
        except MergeConflict as error:
            return ToolResult(text=str(error), is_error=True, merge_of=child_id, unmerged=0 if before else 1)
        config = self._config
        log = await config.store.events(self._tree.root_id, run_id=child_id)
        for event in left_since(log, done.work):
            await config.store.append([event])
            config.publish(event)
        failed = done.result.is_error
        unmerged = int(failed) - int(before)
        return replace(done.result, merge_of=child_id, unmerged=unmerged)

    def _merge(self, ctx: ToolContext, child_id: str, rest: bool) -> MergeDone:
        run = self._tree.run(ctx.run_id)
        worktrees, copy = self._mergeable(run, child_id)
        asked = ctx.call_id in run.state.answers
        shown = run.state.shown.get(ctx.call_id, "") if asked else self._shown.pop(child_id, UNSEEN)
        settings = self._config.settings.undo
        withheld = of_copy(worktrees, copy, settings, run.authority.rules, *run.path)

        def check(plan: MergePlan) -> None:
            """What a person approved is what was shown; what a rule denies does not come by a merge."""
            if shown not in (UNSEEN, plan.digest):
                raise ToolError(
                    "not merged: the copy or the project was changed after the person was shown what would "
                    "be merged. Call merge_child again: it is shown anew"
                )
            paths = [change.path for change, _ in plan.going]
            denied = [on_a_line(path) for path in paths if _judged(run, path).action == "deny"]
            if denied:
                raise Refused(
                    f"not merged: a rule denies to write {', '.join(denied[:MOST_LISTED])}", not_run="denied"
                )
            concern = None if asked else _concern_of(run, plan, self._config.environ)
            if concern is not None:  # it came to be so after the rules were asked
                raise ToolError(f"not merged: {concern.why}. Call {MERGE} again: a person is asked")

        return merged(worktrees, copy, settings, rest=rest, check=check, withheld=withheld)


async def settle_copies(
    worktrees: Worktrees,
    store: Store,
    root_id: str,
    settings: UndoSettings,
    publish: Callable[[AnyEvent], None],
) -> None:
    """At the end of a workflow: copies that nothing was changed in go. What is in the others is in the logs
    of their runs, also of those that came to no end of their own."""
    copies = [copy for copy in await asyncio.to_thread(worktrees.all) if copy.root_id == root_id]
    # Copies of copies first: nothing of theirs keeps the one they were made of.
    for copy in sorted(copies, key=lambda copy: len(worktrees.above(copy)), reverse=True):
        try:
            work = await to_its_end(_work_in, worktrees, copy, settings)
            events = await store.events(root_id, run_id=copy.run_id) if work is not None else ()
            for event in () if work is None or _has_told(events) else left_since(events, work):
                await store.append([event])
                publish(event)
        except Exception as error:  # it stays, and is listed
            log.warning("the copy of the project of %s was kept: %s", copy.run_id, error)


def _has_told(events: Sequence[AnyEvent]) -> bool:
    """Whether a log says what is in the copy of its run since that was last at work."""
    said = (e for e in reversed(events) if isinstance(e, CopyLeft | RunResumed | RunStarted))
    return isinstance(next(said, None), CopyLeft)


def _work_in(worktrees: Worktrees, copy: Copy, settings: UndoSettings) -> CopyWork | None:
    """What is in a copy and not in the project; the copy goes if that is nothing."""
    changes, left_out = worktrees.changes(copy, settings)
    if not changes and not left_out:
        worktrees.clear(copy, settings)
        return None
    return CopyWork(branch=copy.branch, files=len(changes), left_out=len(left_out))


def left_since(log: Sequence[AnyEvent], work: CopyWork) -> list[CopyLeft]:
    """What is in the copy of a run, as the next event of its log, where that is another than the log says.

    Nothing for a run without a log: it was deleted since.
    """
    if not log:
        return []
    said = next((e for e in reversed(log) if isinstance(e, CopyLeft)), None)
    now_left, was_left = (
        bool(work.files or work.left_out),
        said is not None and bool(said.files or said.left_out),
    )
    same = said is not None and (said.files, said.left_out) == (work.files, work.left_out)
    if same or not (now_left or was_left):
        return []
    return [next_event(log[-1], CopyLeft, **asdict(work), more=int(now_left) - int(was_left))]


class MergeConflict(ToolError):
    """The project was changed meanwhile where the copy was, so that nothing is merged."""


def _concern_of(run: Run, plan: MergePlan, environ: Mapping[str, str]) -> Concern | None:
    """The first file of a merge that a person is to be asked about, by a rule or since it matters more."""
    later = run_later([change.path for change, _ in plan.going], run.files, environ)
    for change, _ in plan.going:
        name, verdict = on_a_line(change.path), _judged(run, change.path)
        if verdict.action == "ask" and verdict.by_rule:
            return Concern(
                why=f"{verdict.why} wants a person asked about writing {name}", about=(), rule=None
            )
        rules, writing, runs = run.authority.rules, _writing(run, change.path), later.get(change.path)
        secret = secrets_in([change.path], run.files, made=True)
        why = runs.why if runs is not None and not rules.opens_later(writing, runs) else ""
        if secret and not rules.opens(writing, secret=True):
            why = f"{name} is a file that usually holds secrets"
        if why:
            return Concern(why=why, about=(), rule=exact_rule("write", change.path))
    return None


def _judged(run: Run, path: str) -> Verdict:
    """What the rules say of writing a file."""
    return run.authority.rules.judge(_writing(run, path))


def _writing(run: Run, path: str) -> Asked:
    return Asked(
        tool="write",
        aliases=(MERGE, "edit"),
        effect="write",
        risk="medium",
        agent=run.spec.name,
        above=run.path[:-1],
        arguments={"path": path},
        files=run.files,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeDone:
    """What a merge did. `whole`: nothing is left in the copy that is not in the project; else `work` is."""

    result: ToolResult
    whole: bool
    work: CopyWork


def merged(
    worktrees: Worktrees,
    copy: Copy,
    settings: Any,
    *,
    rest: bool,
    check: Callable[[MergePlan], None] = lambda plan: None,
    withheld: Withheld | None = None,
    spelt: str = "rest=true",
) -> MergeDone:
    """Merge a copy, whole or not at all unless the rest is wanted, and remove it when all of it is in.

    `spelt`: how whoever asks for the merge says that they want the rest.
    """
    with worktrees.alone:
        plan = worktrees.plan(copy, settings)
        check(plan)
        if plan.conflicts and not rest:
            told = "\n".join([*conflicts(plan, withheld), *_not_merged(plan.left_out)])
            raise MergeConflict(
                f"not merged, since the project was changed meanwhile:\n{told}\nMake these changes "
                f"yourself, or merge the rest with {spelt}."
            )
        failed = worktrees.merge(copy, plan)
        lost = {path for path, _ in failed}
        paths = [change.path for change, _ in plan.going if change.path not in lost]
        whole = not (plan.conflicts or plan.left_out or failed)
        if whole:
            worktrees.clear(copy, settings)
        below = worktrees.copies_of(copy)
    wanted = len(plan.going) + len(plan.conflicts)
    lines = [f"merged {len(paths)} of {wanted} paths of {copy.agent} ({copy.run_id})"]
    lines += [*map(on_a_line, paths[:MOST_LISTED]), *conflicts(plan, withheld), *_not_merged(plan.left_out)]
    lines += [f"{on_a_line(path)}: {why}" for path, why in failed]
    if not whole:
        lines.append(f"What is not merged is in its copy, which stays: {worktrees.path(copy.run_id)}")
    lines += [
        f"Its child {each.agent} ({each.run_id}) worked in a copy of that copy, and is not merged. A person "
        f"can: 'retinue runs merge {each.run_id}', then 'retinue runs merge {copy.run_id}'"
        for each in below
    ]
    result = ToolResult(text="\n".join(lines), is_error=bool(failed), files=tuple(paths))
    left = CopyWork(branch=copy.branch, files=len(plan.conflicts) + len(failed), left_out=len(plan.left_out))
    return MergeDone(result=result, whole=whole, work=left)


def _not_merged(left_out: Sequence[str]) -> list[str]:
    lines = [f"not merged: {on_a_line(line)}" for line in left_out[:MOST_LISTED]]
    more = len(left_out) - len(lines)
    return [*lines, f"not merged: {more} more"] if more else lines


def _word(change: FileChange) -> str:
    return "created" if not change.before.kind else "removed" if not change.after.kind else "changed"


def merge_tool(
    merge: Callable[[ToolContext, str, bool], Awaitable[ToolResult]],
    preview: Preview,
    admit: Admit | None = None,
) -> Tool:
    """The tool by which a parent merges."""

    @tool(name=MERGE, description=describe(MERGE), effect="write", preview=preview, admit=admit, timeout=None)
    async def merge_child(ctx: ToolContext, child_id: str, rest: bool = False) -> ToolResult:
        """Merge.

        Args:
            child_id: whose work to merge
            rest: leave out files with conflicts, and merge the others
        """
        return await merge(ctx, child_id, rest)

    return merge_child
