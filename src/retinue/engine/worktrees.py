"""Copies of a project for runs that write: each in a folder of its own, in git on a branch of its own.

A copy holds the project as it is at that moment, with what is not committed yet; what git ignores is left out
unless a setting says otherwise. What the run made of it is merged into the project by its parent or by a
person, three texts for each file. A copy that was not merged is kept, and listed. Used by the engine, which
makes copies and names them in reports, and by the app for people. Whatever is done here runs in a thread.

Git does not check anything out here, since that would run filters: files are written as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from retinue.engine.copy_files import fill, hidden_changes, made_ignored, outside, shared_with
from retinue.engine.in_the_way import above_of, held_folders, in_place_of_folders
from retinue.engine.shadows import Shadows
from retinue.engine.undo import NetChange, becoming, links_made, put_back, state_beside, state_of
from retinue.errors import ToolError
from retinue.git import GitFailed, commit_files, git, has_git, merge_texts
from retinue.jail import Jail
from retinue.secret_names import is_secret
from retinue.settings import UndoSettings
from retinue.shadow import WORKTREE, Shadow, ShadowTooLarge
from retinue.snapshots import Snapshot, difference
from retinue.tools.diff import on_a_line
from retinue.types import FileChange, FileState
from retinue.workspace import Origin

BRANCH = "retinue"
MERGED_AT_ONCE = 2_000_000
"""Bytes of a text that is still merged line by line."""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy as it is written down beside it, once it is whole."""

    run_id: str
    root_id: str
    agent: str
    source: str
    """The folder it is a copy of."""
    branch: str = ""
    git_dir: str = ""
    """Where git has it, as it was when it was made: an agent may rewrite what its copy says."""
    common_dir: str = ""
    shared: dict[str, tuple[str, ...]] = {}
    """The other names that files had in the project when it was made, by hard links."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """A path that was changed on both sides in ways that do not fit. `text` has the marks of both."""

    path: str
    why: str
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MergePlan:
    """What a merge would do: `going` is what a path is to be, over what it is."""

    going: tuple[tuple[NetChange, bytes | None], ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Another for any other plan: by this it is known again after a restart."""
        going = [(change.path, change.before, change.after) for change, _ in self.going]
        said = msgspec.json.encode((going, self.conflicts, self.left_out))
        return hashlib.sha256(said).hexdigest()


class Worktrees:
    """The copies of one store, in a folder of theirs."""

    def __init__(self, shadows: Shadows) -> None:
        self._shadows = shadows
        self.alone = threading.RLock()
        """Held while a copy is made, removed or merged: from the look at the project to its change."""

    @cached_property
    def _folder(self) -> Path:
        return self._shadows.beside("worktrees")

    def path(self, run_id: str) -> Path:
        return self._folder / run_id

    def copy_of(self, run_id: str) -> Copy | None:
        """The copy of a run, if there is one and it is whole."""
        try:
            return msgspec.json.decode((self._folder / f"{run_id}.json").read_bytes(), type=Copy)
        except (OSError, msgspec.MsgspecError):
            return None

    def all(self) -> list[Copy]:
        names = sorted(path.stem for path in self._folder.glob("*.json")) if self._folder.is_dir() else []
        return [copy for name in names if (copy := self.copy_of(name)) is not None]

    def copies_of(self, copy: Copy) -> list[Copy]:
        """The copies that were made of a copy, by children of its run, and are there still."""
        return [each for each in self.all() if Path(each.source) == self.path(copy.run_id)]

    def above(self, copy: Copy) -> list[Copy]:
        """The copies that a copy was made of, the nearest first; of one of the project there are none."""
        found: list[Copy] = []
        while Path(copy.source).parent == self._folder:
            above = self.copy_of(Path(copy.source).name)
            if above is None or above in found:
                break
            found.append(above)
            copy = above
        return found

    def origin(self, project: Path | None) -> Origin | None:
        """What a folder is a copy of; None if it is none."""
        folders: list[str] = []
        shared: dict[str, tuple[str, ...]] = {}
        while project is not None and project.parent == self._folder:
            copy = self.copy_of(project.name)
            if copy is None:
                break
            folders += dict.fromkeys((copy.source, os.path.realpath(copy.source)))
            for name, others in copy.shared.items():
                shared[name] = (*shared.get(name, ()), *others)
            project = Path(copy.source)
        return Origin(folders=tuple(folders), shared=shared) if folders else None

    # -- making --------------------------------------------------------------------

    def make(
        self, run_id: str, root_id: str, agent: str, source: Path, settings: UndoSettings, *, ignored: bool
    ) -> Copy:
        """A copy of a folder for a run: the one that it has, or a new one."""
        known = self.copy_of(run_id)
        if known is not None:
            return known
        with self.alone:
            copy = Copy(run_id=run_id, root_id=root_id, agent=agent, source=str(source))
            try:
                head = self._head(source)
                if head:
                    copy = msgspec.structs.replace(copy, branch=self._branch_for(copy))
                self.remove(copy, settings)  # what is left of one that was cut off
                return self._made(copy, head, settings, ignored=ignored)
            except (OSError, GitFailed, ShadowTooLarge) as error:
                self.remove(copy, settings)
                raise ToolError(
                    f"not started: no copy of the project could be made for it: {error}"
                ) from None

    def _branch_for(self, copy: Copy) -> str:
        name = f"{re.sub(r'[^A-Za-z0-9-]+', '-', copy.agent)[:30]}-{copy.run_id[-8:]}"
        source = Path(copy.source)
        taken = git(
            source,
            *("show-ref", "--verify", "-q", f"refs/heads/{BRANCH}"),
            codes=(0, 1),
            env=self._repository(source),
        )
        # Where somebody has a branch of that very name, none can be below it.
        return f"{BRANCH}/{name}" if taken.returncode else f"{BRANCH}-{name}"

    def _made(self, copy: Copy, head: str, settings: UndoSettings, *, ignored: bool) -> Copy:
        source, target = Path(copy.source), self.path(copy.run_id)
        shadow = self._shadows.of(source, settings)
        if shadow is None:
            raise OSError("there is no project")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if head:
            words = ("worktree", "add", "--no-checkout", "-q", "-b", copy.branch, str(target), head)
            git(source, *words, env=self._repository(source))
            # Nobody has worked in it yet: what it says of its repository is true.
            words = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
            said = git(target, *words, project=source)
            git_dir, common_dir = os.fsdecode(said.stdout).splitlines()
            copy = msgspec.structs.replace(copy, git_dir=git_dir, common_dir=common_dir)
            git(target, "read-tree", "HEAD", env=self._repository(target, copy))
        else:
            target.mkdir(mode=0o700)
        base = shadow.begin(copy.run_id, WORKTREE)
        copy = msgspec.structs.replace(copy, shared=shared_with(source, base, all_files=ignored))
        fill(shadow, base, target, ignored=ignored)
        if head:
            before = [path for path, seen in base.items() if seen.kind in ("file", "link")]
            self._commit(copy, before, f"what was not committed when {copy.agent} began")
        temp = self._folder / f".{copy.run_id}.json"
        temp.write_bytes(msgspec.json.encode(copy))
        temp.replace(self._folder / f"{copy.run_id}.json")
        return copy

    def _repository(self, folder: Path, copy: Copy | None = None) -> dict[str, str]:
        """What git is told of the repository of a folder: of a copy all of it, whatever the copy says itself.

        A copy may be the source of another: then an agent has worked in it.
        """
        if copy is None and folder.parent == self._folder:
            copy = self.copy_of(folder.name)
        if copy is None or not copy.git_dir:
            return {}
        return {
            "GIT_DIR": copy.git_dir,
            "GIT_COMMON_DIR": copy.common_dir,
            "GIT_WORK_TREE": str(self.path(copy.run_id)),
        }

    def _head(self, source: Path) -> str:
        """The commit that a folder is at, if it is the top of a repository that has one."""
        known = self._repository(source)
        if not has_git(source) or not (known or (source / ".git").exists()):
            return ""
        try:
            top = git(source, "rev-parse", "--show-toplevel", env=known).stdout.decode().strip()
            if os.path.realpath(top) != os.path.realpath(source):
                return ""
            words = ("rev-parse", "--verify", "-q", "HEAD^{commit}")
            return git(source, *words, env=known).stdout.decode().strip()
        except GitFailed:
            return ""

    # -- what became of it -----------------------------------------------------------

    def changes(self, copy: Copy, settings: UndoSettings) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
        """What its run changed in a copy, and what of it cannot be merged."""
        base, shadow = self._base(copy, settings), self._own(copy, settings)
        if base is None or shadow is None:
            what = (
                "its folder is gone" if shadow is None else "how the project was when it began is not known"
            )
            raise ToolError(
                f"what {copy.run_id} changed in its copy cannot be told any more: {what}. The copy is "
                f"{self.path(copy.run_id)}; 'retinue runs merge {copy.run_id} --discard' throws it away"
            )
        now = shadow.now()
        # What git ignores is nobody's change: it may not have been copied at all. Nor is anything removed
        # that git ignores now and did not before.
        tops = {path for files in (base, now) for path, seen in files.items() if seen.kind == "ignored"}
        known = {path: seen for path, seen in base.items() if seen.kind != "other"}  # not copied either
        if copy.git_dir:
            now.pop(".git", None)  # it was made with the copy
        found = difference(outside(known, tops), outside(now, tops))
        hidden = hidden_changes(self.path(copy.run_id), base, now, tops)
        made = made_ignored(self.path(copy.run_id), Path(copy.source), now)
        return found.changes, (*found.left_out, *hidden, *made)

    def before(self, copy: Copy, settings: UndoSettings) -> list[tuple[str, str, int]]:
        """The files that a copy began with, each with its hash and its size; of those that git ignores, and
        that nobody has looked into, without a hash."""
        base = self._base(copy, settings) or {}
        kinds = ("file", "ignored")
        return [(path, seen.sha, seen.size) for path, seen in base.items() if seen.kind in kinds]

    def _base(self, copy: Copy, settings: UndoSettings) -> Snapshot | None:
        source = self._shadows.of(Path(copy.source), settings, make=False)
        return None if source is None else source.at(copy.run_id, WORKTREE)

    def _own(self, copy: Copy, settings: UndoSettings) -> Shadow | None:
        path = self.path(copy.run_id)
        return self._shadows.of(path, settings) if path.is_dir() else None

    def content(self, copy: Copy, settings: UndoSettings, sha256: str) -> bytes | None:
        for shadow in (self._own(copy, settings), self._shadows.of(Path(copy.source), settings, make=False)):
            data = None if shadow is None else shadow.content(sha256)
            if data is not None:
                return data
        return None

    def needed(self, copy: Copy, settings: UndoSettings, path: str, sha256: str) -> bytes:
        """Bytes that have to be written somewhere. Never others, and never none for some that are lost."""
        data = self.content(copy, settings, sha256)
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            raise ToolError(
                f"not merged: what is in {path} was not kept. The copy is {self.path(copy.run_id)}"
            )
        return data

    def commit(self, copy: Copy, changes: Iterable[FileChange]) -> None:
        """Put what a run made of its copy on its branch."""
        if copy.branch:
            paths = [change.path for change in changes]
            self._commit(copy, paths, f"what {copy.agent} ({copy.run_id}) did")

    def _commit(self, copy: Copy, paths: Iterable[str], message: str) -> None:
        if copy.git_dir:
            target = self.path(copy.run_id)
            # A branch may be pushed: what is not committed yet and usually holds secrets stays in the folder.
            known = self._repository(target, copy)
            commit_files(target, copy.branch, paths, message, env=known, unless_new=is_secret)

    # -- merging -----------------------------------------------------------------------

    def plan(self, copy: Copy, settings: UndoSettings) -> MergePlan:
        """What merging a copy into its folder would do."""
        changes, left_out = self.changes(copy, settings)
        going: list[tuple[NetChange, bytes | None]] = []
        conflicts: list[Conflict] = []
        links = links_made(changes)
        with Jail(Path(copy.source)) as jail:
            for change in changes:
                now = state_beside(jail, change, links)
                if now.is_like(change.after):
                    continue
                if now.is_like(change.before):
                    wanted = change.after.sha256
                    data = self.needed(copy, settings, change.path, wanted) if wanted else None
                    going.append((_to(change.path, now, change.after), data))
                    continue
                merged = self._merged(copy, settings, jail, change, now)
                if isinstance(merged, Conflict):
                    conflicts.append(merged)
                else:
                    going.append(merged)
            while clashes := _clashes(jail, going):
                conflicts += clashes
                clashing = {each.path for each in clashes}
                going = [each for each in going if each[0].path not in clashing]
            # A folder that the child removed and others have files in is theirs.
            held = held_folders(jail, becoming(change for change, _ in going))
            going = [each for each in going if each[0].path not in held]
        return MergePlan(going=tuple(going), conflicts=tuple(conflicts), left_out=left_out)

    def _merged(
        self, copy: Copy, settings: UndoSettings, jail: Jail, change: FileChange, now: FileState
    ) -> tuple[NetChange, bytes] | Conflict:
        if {now.kind, change.before.kind, change.after.kind} != {"file"}:
            gone = "removed in the project, and changed by the child" if not now.kind else ""
            gone = gone or (
                "changed in the project, and removed by the child" if not change.after.kind else ""
            )
            return Conflict(path=change.path, why=gone or "made on both sides, and not the same")
        base = self.content(copy, settings, change.before.sha256)
        theirs = self.content(copy, settings, change.after.sha256)
        with jail.open_read(change.path, follow=False) as file:
            ours = file.read(MERGED_AT_ONCE + 1)
        texts = [each for each in (ours, base, theirs) if each is not None]
        if len(texts) < 3 or any(b"\0" in each or len(each) > MERGED_AT_ONCE for each in texts):
            return Conflict(path=change.path, why="changed on both sides, and no text that can be merged")
        source = Path(copy.source)
        if not has_git(source):
            return Conflict(
                path=change.path, why="changed on both sides, and git is not installed to merge it"
            )
        scratch = self._folder / f".merge-{copy.run_id}"
        merged, marks = merge_texts(ours, base or b"", theirs or b"", scratch, source)
        if marks:
            text = merged.decode("utf-8", "replace")
            return Conflict(path=change.path, why="changed on both sides in the same lines", text=text)
        state = FileState(
            kind="file", mode=change.after.mode, size=len(merged), sha256=hashlib.sha256(merged).hexdigest()
        )
        return _to(change.path, now, state), merged

    def merge(self, copy: Copy, plan: MergePlan) -> list[tuple[str, str]]:
        """Carry a plan out. Returns what could not be written, and why."""
        with self.alone, Jail(Path(copy.source)) as jail:
            moved = [
                change.path
                for change, _ in plan.going
                if not state_of(jail, change.path).is_like(change.after)
            ]
            if moved:
                names = ", ".join(map(on_a_line, moved[:5]))
                raise ToolError(f"not merged: {names} was changed just now by somebody else. Try again.")
            return put_back(jail, plan.going)

    def clear(self, copy: Copy, settings: UndoSettings) -> None:
        """Remove a copy that has nothing left to be merged, unless others were made of it: what is in those
        is merged into it, and can be told only as long as it is there."""
        with self.alone:
            if not self.copies_of(copy):
                self.remove(copy, settings)

    def clear_above(self, copy: Copy, settings: UndoSettings) -> None:
        """A copy is gone: the one it was made of goes too, if it only waited for that. For a workflow that
        nobody works on: a run may be about to write in it otherwise."""
        with self.alone, contextlib.suppress(ToolError):  # what is in one cannot be told any more: it stays
            for above in () if self.copy_of(copy.run_id) else self.above(copy):
                if self.copies_of(above) or self.plan(above, settings) != MergePlan():
                    return
                self.remove(above, settings)

    def remove(self, copy: Copy, settings: UndoSettings) -> None:
        """A copy is not needed any more: its folder, its branch, and what was remembered for it."""
        with self.alone:
            self._removed(copy.run_id, Path(copy.source), copy.branch)
            self._shadows.drop(self.path(copy.run_id))
            source = self._shadows.of(Path(copy.source), settings, make=False)
            if source is not None:
                source.end(copy.run_id, WORKTREE)

    def _removed(self, run_id: str, source: Path, branch: str) -> None:
        target, known = self.path(run_id), self._repository(source)
        (self._folder / f"{run_id}.json").unlink(missing_ok=True)
        for folder in (target, self._folder / f".merge-{run_id}"):
            shutil.rmtree(folder, ignore_errors=True)
        if branch and source.is_dir():
            # This one alone: others that are not there now may be on a disk that is not plugged in.
            for words in (
                ("worktree", "remove", "--force", "--force", str(target)),
                ("update-ref", "-d", f"refs/heads/{branch}"),
            ):
                with contextlib.suppress(GitFailed, OSError):
                    git(source, *words, env=known)


def _clashes(jail: Jail, going: Sequence[tuple[NetChange, bytes | None]]) -> list[Conflict]:
    """What does not fit, since it is a folder on one side only: with all that comes or goes with it."""
    kinds = becoming(change for change, _ in going)
    why = {
        path: f"the child made a {kinds[path].wanted} of this folder, and the project has {on_a_line(stays)}"
        for path, stays in held_folders(jail, kinds).items()
        if kinds[path].wanted
    }
    for path in kinds:
        top = next((above for above in above_of(path) if above in why), "")
        if top:
            why.setdefault(path, f"it goes only with {on_a_line(top)}")
    for path, (above, kind) in in_place_of_folders(jail, kinds).items():
        why.setdefault(path, f"{on_a_line(above)} is a {kind} in the project")
    return [Conflict(path=path, why=told) for path, told in why.items()]


def _to(path: str, now: FileState, wanted: FileState) -> NetChange:
    """A change by which a path becomes what is wanted, as `put_back` carries changes out."""
    return NetChange(path=path, before=wanted, after=now)
