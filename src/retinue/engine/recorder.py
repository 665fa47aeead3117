"""Records what the runs of a workflow change in the project, with its before: it can be taken back.

`write` and `edit` say themselves what they are about to do; around a command the project's shadow is looked
at. Events say what changed, the bytes are kept with the files of the workflow, and go with it. Made by the
workflow. A run is worth more than its record: what cannot be recorded is said, and never stops a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from retinue.engine.tree import RunTree
from retinue.errors import RetinueError, StoreError
from retinue.events import FilesChanged, now
from retinue.git import GitFailed
from retinue.run import Run
from retinue.settings import UndoSettings
from retinue.shadow import Shadow, ShadowTooLarge
from retinue.snapshots import Difference, Snapshot
from retinue.store.base import KeptFile, Store
from retinue.threads import to_its_end, undisturbed
from retinue.tools.base import Tool
from retinue.types import FileChange, FileState

log = logging.getLogger("retinue")

UNDO = "undo"
"""Whose files these are: of no run, but what can be put back for a workflow. Their paths are their hashes."""
AT_ONCE = 500
"""Changes in one event."""
MOST_AFTER = 1_000_000
"""Bytes of a new content that are kept as well, to be shown later; what was there before is always kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """Who wrote a file last, and what. `exact`: by a tool that was told the content."""

    run_id: str
    agent: str
    sha256: str
    exact: bool


class KeptBytes:
    """The bytes that are kept for one workflow, so that its changes can be taken back."""

    def __init__(self, store: Store, root_id: str, settings: UndoSettings) -> None:
        self._store, self._root_id, self._settings = store, root_id, settings
        self._sizes: dict[str, int] | None = None
        self._one = asyncio.Lock()

    async def keep(self, sha256: str, data: bytes) -> bool:
        """Keep these, once. False if there is no room, or the database took them not."""
        async with self._one:
            sizes = await self._known()
            if sha256 in sizes:
                return True
            packed = await asyncio.to_thread(zlib.compress, data, 1)
            if sum(sizes.values()) + len(packed) > self._settings.kept_mb * 1_000_000:
                return False
            try:
                await self._store.keep(
                    KeptFile(root_id=self._root_id, run_id=UNDO, path=sha256, seq=0, at=now(), data=packed)
                )
            except StoreError as error:
                log.warning("what was there before a change was not kept: %s", error)
                return False
            sizes[sha256] = len(packed)
            return True

    async def _known(self) -> dict[str, int]:
        if self._sizes is None:
            kept = await self._store.kept(self._root_id, UNDO)
            self._sizes = {file.path: len(file.data) for file in kept}
        return self._sizes


class Recorder:
    """The changes of one workflow."""

    def __init__(self, tree: RunTree) -> None:
        self._tree, self._store = tree, tree.config.store
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._bytes = KeptBytes(self._store, tree.root_id, tree.config.settings.undo)
        self._writing = asyncio.Lock()
        """Merges of a workflow wait for each other: else one would take what another made for its before."""
        self._noting = asyncio.Lock()
        """What was seen last is noted last, of commands that run at once."""
        self._exact: dict[tuple[str, str], list[FileChange]] = {}
        """What file tools change while a command runs, by the run and the call of that."""
        self._writers: dict[str, Written] = {}
        self._shadow: Shadow | None = None
        self._no_shadow = ""

    def of(self, run: Run, call_id: str) -> RunChanges:
        return RunChanges(recorder=self, run=run, call_id=call_id)

    def lock(self, run: Run, path: str) -> asyncio.Lock:
        path = f"{run.files.project}/{path}"
        lock = self._locks.get(path)
        if lock is None:
            lock = self._locks[path] = asyncio.Lock()
        return lock

    def wrote(self, run: Run, changes: Sequence[FileChange], *, exact: bool = False) -> None:
        for change in changes:
            written = Written(run_id=run.id, agent=run.spec.name, sha256=change.after.sha256, exact=exact)
            self._writers[f"{run.files.project}/{change.path}"] = written

    def changed_since(self, run: Run, path: str, sha256: str) -> str | None:
        """Who has changed a file that a run saw otherwise; None if the run has seen this, or wrote it."""
        seen = run.state.seen_files.get(path)
        if seen is None or not sha256 or seen == sha256:
            return None
        last = self._writers.get(f"{run.files.project}/{path}")
        if last is None or last.sha256 != sha256:
            return "somebody else"
        if last.run_id == run.id:
            return None if last.exact else "a command of yours"
        return f"the agent {last.agent} ({last.run_id})"

    def records(self, run: Run) -> bool:
        """Whether the changes of a run are recorded: not in a replay, and not in a folder of its own."""
        config = self._tree.config
        return (
            config.settings.undo.enabled
            and config.recorded is None
            and config.project is not None
            and run.files.project == config.project
        )

    # -- files by name -------------------------------------------------------------

    async def about_to(
        self,
        run: Run,
        call_id: str,
        changes: tuple[FileChange, ...],
        before: bytes | None,
        after: bytes,
        stamped: list[tuple[FileChange, ...]],
    ) -> None:
        """Write down an exact change before it is made, and say in `stamped` that the log has it."""
        self.wrote(run, changes, exact=True)
        if not self.records(run):
            return
        noted = list(changes)
        file = noted[-1]
        if before is not None and not await self.keep(file.before.sha256, before):
            noted[-1] = FileChange(path=file.path, before=not_kept(file.before), after=file.after)
        if len(after) <= MOST_AFTER:
            await self.keep(file.after.sha256, after)
        for meanwhile in self._exact.values():
            meanwhile += changes
        run.log.note(FilesChanged, call_id=call_id, changes=tuple(noted), exact=True)
        stamped.append(changes)
        await run.log.commit()  # whoever takes the run up after a crash has to know what was there

    async def keep(self, sha256: str, data: bytes) -> bool:
        """Keep bytes with the workflow, once. False if there is no room, or the database took them not."""
        return await self._bytes.keep(sha256, data)

    # -- commands --------------------------------------------------------------------

    @asynccontextmanager
    async def around(self, run: Run, tool: Tool, call_id: str, *, sealed: bool) -> AsyncGenerator[None]:
        """Look at the project before and after a call that may change anything in it."""
        if not self._watches(run, tool, sealed=sealed):
            yield
            return
        turn = self._writing if tool.ours and tool.effect == "write" else contextlib.nullcontext()
        async with turn, self._watched(run, call_id):
            yield

    @asynccontextmanager
    async def _watched(self, run: Run, call_id: str) -> AsyncGenerator[None]:
        place = run.id, call_id
        exact = self._exact[place] = list[FileChange]()
        try:
            before, why = await self._begin(run, call_id)
            if before is None:
                run.log.note(FilesChanged, call_id=call_id, left_out=(f"what a command changed: {why}",))
            try:
                yield
            finally:
                if before is not None:
                    await undisturbed(self._finish(run, call_id, before, exact))
        finally:
            del self._exact[place]

    def _watches(self, run: Run, tool: Tool, *, sealed: bool) -> bool:
        if tool.records or tool.effect not in ("write", "execute") or not self.records(run):
            return False
        return run.files.writable or not sealed

    async def _begin(self, run: Run, call_id: str) -> tuple[Snapshot | None, str]:
        if self._no_shadow:
            return None, self._no_shadow
        try:
            shadow = await self._opened()
            if shadow is None:
                return None, "there is no place for it"
            return await self._remembered(run, call_id, shadow), ""
        except ShadowTooLarge as error:
            self._no_shadow = str(error)
        except (OSError, sqlite3.Error, GitFailed) as error:  # of this call alone: the next may find it free
            log.warning("what a command of %s changes is not recorded: %s", run.id, error)
            return None, f"its record could not be written ({error})"
        return None, self._no_shadow

    async def _remembered(self, run: Run, call_id: str, shadow: Shadow) -> Snapshot:
        """How things stand before a call. If it is cancelled now it never runs, and what people change from
        here on is not its change."""
        known: list[bool] = []

        def begin() -> Snapshot:
            known.append((run.id, call_id) in shadow.begun((run.id,)))
            return shadow.begin(run.id, call_id)

        try:
            return await to_its_end(begin)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError, sqlite3.Error):
                if known == [True]:  # made again after a crash: by then it had run
                    await undisturbed(self._finish(run, call_id, None, ()))
                else:
                    await to_its_end(shadow.end, run.id, call_id)
            raise

    async def _opened(self) -> Shadow | None:
        if self._shadow is None:
            self._shadow = await to_its_end(self._tree.config.shadow)
        return self._shadow

    async def _finish(
        self, run: Run, call_id: str, before: Snapshot | None, exact: Sequence[FileChange]
    ) -> None:
        shadow = await self._opened()
        if shadow is None:
            return
        try:
            async with self._noting:
                found = await to_its_end(shadow.changed_since, run.id, call_id, before)
                if found is not None:
                    await self._note(run, call_id, shadow, found, exact, interrupted=before is None)
            await to_its_end(shadow.end, run.id, call_id)
        except (ShadowTooLarge, OSError, sqlite3.Error, GitFailed) as error:
            log.warning("what a command of %s changed was not recorded: %s", run.id, error)
            run.log.note(FilesChanged, call_id=call_id, left_out=(f"what a command changed: {error}",))
            # Or all that anybody changes later would be taken for its change.
            with contextlib.suppress(OSError, sqlite3.Error):
                await to_its_end(shadow.end, run.id, call_id)

    async def _note(
        self,
        run: Run,
        call_id: str,
        shadow: Shadow,
        found: Difference,
        exact: Sequence[FileChange],
        *,
        interrupted: bool,
    ) -> None:
        # What a file tool wrote meanwhile is recorded as its own.
        others = {(change.path, change.after.sha256, change.after.kind) for change in exact}
        changes = [
            change
            for change in found.changes
            if (change.path, change.after.sha256, change.after.kind) not in others
        ]
        if not changes and not found.left_out:
            return
        self.wrote(run, changes)
        kept = [await self._with_content(shadow, change) for change in changes]
        for at in range(0, max(len(kept), 1), AT_ONCE):
            run.log.note(
                FilesChanged,
                call_id=call_id,
                changes=tuple(kept[at : at + AT_ONCE]),
                left_out=found.left_out[:AT_ONCE] if at == 0 else (),
                interrupted=interrupted,
            )
        await run.log.commit()

    async def _with_content(self, shadow: Shadow, change: FileChange) -> FileChange:
        if change.after.sha256 and change.after.size <= MOST_AFTER:
            after = await asyncio.to_thread(shadow.content, change.after.sha256)
            if after is not None:
                await self.keep(change.after.sha256, after)
        if not change.before.sha256:
            return change
        data = await asyncio.to_thread(shadow.content, change.before.sha256)
        if data is not None and await self.keep(change.before.sha256, data):
            return change
        return FileChange(path=change.path, before=not_kept(change.before), after=change.after)

    async def recover(self, run: Run, call_id: str) -> None:
        """A command was cut off with its process: what it had changed by then is found now."""
        if self.records(run):
            with contextlib.suppress(OSError, sqlite3.Error):
                await undisturbed(self._finish(run, call_id, None, ()))


def not_kept(state: FileState) -> FileState:
    """The same, of which it is known that its bytes are gone."""
    return FileState(kind=state.kind, mode=state.mode, size=state.size, sha256=state.sha256, kept=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunChanges:
    """The changes of one call of one run, as tools know them (`tools.changing.Changes`)."""

    recorder: Recorder
    run: Run
    call_id: str
    stamped: list[tuple[FileChange, ...]] = field(default_factory=list[tuple[FileChange, ...]])
    """Those that the log says are about to be made."""

    def alone(self, path: str) -> AbstractAsyncContextManager[None]:
        return self.recorder.lock(self.run, path)

    async def about_to(self, changes: tuple[FileChange, ...], before: bytes | None, after: bytes) -> None:
        await self.recorder.about_to(self.run, self.call_id, changes, before, after, self.stamped)

    def void(self, changes: tuple[FileChange, ...]) -> None:
        if changes in self.stamped:  # else it was cancelled before that: an earlier one alike is not void
            self.stamped.remove(changes)
            with contextlib.suppress(
                RetinueError
            ):  # a log that is shut: the run finds out when it next writes
                self.run.log.note(FilesChanged, call_id=self.call_id, changes=changes, exact=True, void=True)

    def changed_since(self, path: str, sha256: str) -> str | None:
        return self.recorder.changed_since(self.run, path, sha256)


async def kept_bytes(store: Store, root_id: str) -> dict[str, bytes]:
    """What is kept of a workflow's changes, packed, by hash."""
    return {file.path: file.data for file in await store.kept(root_id, UNDO)}
