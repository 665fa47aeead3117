"""Runs that work in a copy of the project: where it is, what their report says of it, and merging it back.

Used by the workflow and by `build`. The tool `merge_child` is how a parent merges; it asks a person like any
tool that writes, and shows the whole change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from retinue.approvals import Asked
from retinue.engine.config import WorkflowConfig
from retinue.engine.tree import RunTree
from retinue.engine.worktrees import Copy, MergePlan, Worktrees
from retinue.errors import Refused, ToolError
from retinue.jail import Jail
from retinue.run import Run
from retinue.tools.base import Tool, ToolContext, ToolResult, tool
from retinue.tools.descriptions import describe
from retinue.tools.diff import diff
from retinue.types import ENDED, AgentSpec, FileChange, FileState
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
        self._shown: dict[str, MergePlan] = {}
        """What a person was shown of a merge, by the child, until it is made."""

    @property
    def _config(self) -> WorkflowConfig:
        return self._tree.config

    def source(self, parent: Run | None) -> Path | None:
        """What a copy for a child of this run would be of."""
        return self._config.project if parent is None else parent.files.project

    def folder(self, run_id: str, spec: AgentSpec, parent: Run | None) -> Path | None:
        """Where a run works: in a copy of its own, made if need be, or where its parent does."""
        source, worktrees = self.source(parent), self._config.worktrees
        if spec.isolation != "worktree" or worktrees is None or source is None or self._config.recorded:
            return source
        settings = self._config.settings
        worktrees.make(
            run_id,
            self._tree.root_id,
            spec.name,
            source,
            settings.undo,
            ignored=settings.isolation.ignored,
        )
        return worktrees.path(run_id)

    async def prepare(self, run_id: str, spec: AgentSpec, parent: Run | None) -> None:
        """Make the copy of a run that is about to be started, while others go on."""
        if spec.isolation == "worktree":
            await asyncio.to_thread(self.folder, run_id, spec, parent)

    async def closing(self, run: Run) -> str:
        """What the report of a run says of its copy: its branch and what it changed."""
        worktrees = self._config.worktrees
        if run.spec.isolation != "worktree" or run.spec.output_schema is not None or worktrees is None:
            return ""
        try:
            return await asyncio.to_thread(self._closing, worktrees, run)
        except Exception as error:  # a report is worth more than what it says of a folder
            log.warning("what %s changed in its copy could not be told: %s", run.id, error)
            return f"\n\n[It worked in a copy of the project, which is in {worktrees.path(run.id)}.]"

    def _closing(self, worktrees: Worktrees, run: Run) -> str:
        copy = worktrees.copy_of(run.id)
        if copy is None:
            return ""
        settings = self._config.settings.undo
        changes, left_out = worktrees.changes(copy, settings)
        where = f"branch {copy.branch}" if copy.branch else f"folder {worktrees.path(run.id)}"
        if not changes:
            nothing = (
                f"[Isolated: {where}. It changed nothing in its copy of the project that can be merged.]"
            )
            return "\n\n" + "\n".join([nothing, *_not_merged(left_out)])
        worktrees.commit(copy, changes)
        lines = [f"{_word(change)} {change.path}" for change in changes[:MOST_LISTED]]
        if len(changes) > MOST_LISTED:
            lines.append(f"and {len(changes) - MOST_LISTED} more")
        lines += _not_merged(left_out)
        shown = whole_diff(worktrees, copy, self._config, changes)
        cut = "" if len(shown) <= MOST_DIFF else "\n[the rest is shown when it is merged]"
        head = (
            f"[Isolated: {where}. Nothing of this is in the project yet: {MERGE}(child_id={run.id!r}) or "
            f"'retinue runs merge {run.id}' merges it.]"
        )
        return "\n\n" + "\n".join([head, *lines, "", shown[:MOST_DIFF] + cut])

    async def sweep(self) -> None:
        """At the end of the workflow: copies that nothing was changed in go, the others are kept."""
        worktrees = self._config.worktrees
        if worktrees is not None and self._config.recorded is None:
            await asyncio.to_thread(self._sweep, worktrees)

    def _sweep(self, worktrees: Worktrees) -> None:
        settings = self._config.settings.undo
        for copy in worktrees.all():
            if copy.root_id != self._tree.root_id:
                continue
            try:
                changes, left_out = worktrees.changes(copy, settings)
                if not changes and not left_out:
                    worktrees.remove(copy, settings)
            except Exception as error:  # it stays, and is listed
                log.warning("the copy of the project of %s was kept: %s", copy.run_id, error)

    # -- merging ---------------------------------------------------------------------

    def tools(self) -> list[Tool]:
        """The tool by which a parent merges."""
        if self._config.worktrees is None:
            return []

        return [merge_tool(self._merge, self._preview)]

    def _preview(self, arguments: dict[str, Any], files: Files) -> str:
        worktrees, copy = self._copy(str(arguments["child_id"]))
        plan = worktrees.plan(copy, self._config.settings.undo)
        self._shown[copy.run_id] = plan
        return "\n".join([*_conflicts(plan), planned_diff(copy, plan)])

    def _copy(self, child_id: str) -> tuple[Worktrees, Copy]:
        worktrees = self._config.worktrees
        copy = None if worktrees is None else worktrees.copy_of(child_id)
        if worktrees is None or copy is None or copy.root_id != self._tree.root_id:
            raise ToolError(
                f"there is nothing to merge of {child_id!r}: it has no copy of the project, or no more"
            )
        return worktrees, copy

    def _merge(self, ctx: ToolContext, child_id: str, rest: bool) -> ToolResult:
        run = self._tree.run(ctx.run_id)
        if child_id not in run.state.children:
            known = ", ".join(run.state.children) or "none"
            raise ToolError(f"there is no child {child_id!r} of yours. Your children: {known}")
        state = self._tree.state(child_id)
        if state is None or state.status not in ENDED:
            raise ToolError(f"the child {child_id} has not ended: wait for it, then merge")
        if not ctx.files.writable:
            raise Refused("not merged: this run may only read the project")
        worktrees, copy = self._copy(child_id)
        shown = self._shown.pop(child_id, None)

        def check(plan: MergePlan) -> None:
            """What a person approved is what was shown; what a rule denies does not come by a merge."""
            if shown is not None and shown != plan:
                raise ToolError(
                    "not merged: the copy or the project was changed after the person was shown what would "
                    "be merged. Call merge_child again: it is shown anew"
                )
            denied = [change.path for change, _ in plan.going if _is_denied(run, change.path)]
            if denied:
                raise Refused(
                    f"not merged: a rule denies to write {', '.join(denied[:MOST_LISTED])}", not_run="denied"
                )

        return merged(worktrees, copy, self._config.settings.undo, rest=rest, check=check)


def _is_denied(run: Run, path: str) -> bool:
    asked = Asked(
        tool="write",
        aliases=(MERGE, "edit"),
        effect="write",
        risk="medium",
        agent=run.spec.name,
        above=run.path[:-1],
        arguments={"path": path},
        files=run.files,
    )
    return run.authority.rules.judge(asked).action == "deny"


def merged(
    worktrees: Worktrees,
    copy: Copy,
    settings: Any,
    *,
    rest: bool,
    check: Callable[[MergePlan], None] = lambda plan: None,
) -> ToolResult:
    """Merge a copy, whole or not at all unless the rest is wanted, and remove it when all of it is in."""
    with worktrees.alone:
        plan = worktrees.plan(copy, settings)
        check(plan)
        if plan.conflicts and not rest:
            told = "\n".join(_conflicts(plan))
            raise ToolError(
                f"not merged, since the project was changed meanwhile:\n{told}\nMake these changes "
                "yourself, or merge the rest with rest=true."
            )
        failed = worktrees.merge(copy, plan)
        lost = {path for path, _ in failed}
        paths = [change.path for change, _ in plan.going if change.path not in lost]
        whole = not (plan.conflicts or plan.left_out or failed)
        if whole:
            worktrees.remove(copy, settings)
    wanted = len(plan.going) + len(plan.conflicts)
    lines = [f"merged {len(paths)} of {wanted} paths of {copy.agent} ({copy.run_id})"]
    lines += [*paths[:MOST_LISTED], *_conflicts(plan), *(f"{path}: {why}" for path, why in failed)]
    if not whole:
        lines.append(f"What is not merged is in its copy, which stays: {worktrees.path(copy.run_id)}")
    return ToolResult(text="\n".join(lines), is_error=bool(failed), files=tuple(paths))


def _not_merged(left_out: Sequence[str]) -> list[str]:
    lines = [f"not merged: {line}" for line in left_out[:MOST_LISTED]]
    more = len(left_out) - len(lines)
    return [*lines, f"not merged: {more} more"] if more else lines


def _conflicts(plan: MergePlan) -> list[str]:
    found = [f"conflict in {each.path}: {each.why}\n{each.text}".rstrip() for each in plan.conflicts]
    return [*found, *_not_merged(plan.left_out)]


def planned_diff(copy: Copy, plan: MergePlan) -> str:
    """The whole change that a merge would make to the project."""
    parts: list[str] = []
    for change, data in plan.going:
        here = Path(copy.source) / change.path
        old = here.read_bytes() if change.after.kind == "file" and not here.is_symlink() else b""
        parts.append(_one_diff(change.path, change.after, change.before, old, data))
    return "\n".join(parts)


def planned_content(copy: Copy, plan: MergePlan) -> Callable[[str], bytes | None]:
    """Bytes by their hash, of what a merge would replace and of what it would put there."""
    wanted = {change.before.sha256: data for change, data in plan.going if data is not None}
    there = {change.after.sha256: change.path for change, _ in plan.going if change.after.kind == "file"}

    def content(sha256: str) -> bytes | None:
        if sha256 in wanted or sha256 not in there:
            return wanted.get(sha256)
        try:
            with Jail(Path(copy.source)) as jail, jail.open_read(there[sha256], follow=False) as file:
                return file.read()
        except OSError:  # somebody took it away just now
            return None

    return content


def whole_diff(
    worktrees: Worktrees, copy: Copy, config: WorkflowConfig, changes: tuple[FileChange, ...]
) -> str:
    parts: list[str] = []
    for change in changes:
        old, new = (
            worktrees.content(copy, config.settings.undo, state.sha256) if state.sha256 else b""
            for state in (change.before, change.after)
        )
        parts.append(_one_diff(change.path, change.before, change.after, old, new))
    return "\n".join(parts)


def _one_diff(path: str, before: FileState, after: FileState, old: bytes | None, new: bytes | None) -> str:
    path = _on_a_line(path)
    if before.kind not in ("", "file") or after.kind not in ("", "file"):
        target = f" to {_on_a_line((new or b'?').decode(errors='replace'))}" if after.kind == "link" else ""
        return f"{path}: {before.kind or 'nothing'} becomes {after.kind or 'nothing'}{target}"
    mode = ""
    if before.kind and after.kind and before.mode != after.mode:
        mode = f"{path}: mode {before.mode or 0:o} becomes {after.mode or 0:o}\n"
        if before.sha256 == after.sha256:
            return mode.rstrip()
    try:
        texts = ((old or b"").decode(), (new or b"").decode())
    except UnicodeDecodeError:
        return f"{mode}{path}: {before.size:,} bytes become {after.size:,}"
    return mode + diff(path, *texts, created=not before.kind)


def _on_a_line(name: str) -> str:
    """A name may have lines of its own, and show a change that there is not."""
    return name if name.isprintable() else ascii(name)


def _word(change: FileChange) -> str:
    return "created" if not change.before.kind else "removed" if not change.after.kind else "changed"


def merge_tool(
    merge: Callable[[ToolContext, str, bool], ToolResult], preview: Callable[[dict[str, Any], Files], str]
) -> Tool:
    """The tool by which a parent merges; `merge` runs in a thread."""

    @tool(name=MERGE, description=describe(MERGE), effect="write", preview=preview, timeout=None)
    async def merge_child(ctx: ToolContext, child_id: str, rest: bool = False) -> ToolResult:
        """Merge.

        Args:
            child_id: whose work to merge
            rest: leave out files with conflicts, and merge the others
        """
        return await asyncio.to_thread(merge, ctx, child_id, rest)

    return merge_child
