"""Files that notices, results and reports name in a workspace, kept with the log of their workflow.

A workspace ends with its process, and the log still names what was in it: whole reports, saved pages, files
that an agent wrote. Called by the workflow: whenever something is named, and when a run is taken up again.
What is kept is bounded for the whole workflow, and goes with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

import msgspec

from retinue.engine.fork import renamed
from retinue.engine.tree import RunTree
from retinue.errors import StoreError, ToolError
from retinue.events import now
from retinue.run import Run
from retinue.store.base import KeptFile, Store
from retinue.workspace import HOME, MOST_BYTES

log = logging.getLogger("retinue")


class KeptFiles:
    """What is kept of one workflow, up to `workspace.kept_mb`, as it is stored.

    Where there is no room, files of runs that have ended go first, the oldest before the others.
    """

    def __init__(self, tree: RunTree) -> None:
        self._tree, self._store, self._root_id = tree, tree.config.store, tree.root_id
        self._most = tree.config.settings.workspace.kept_mb * 1_000_000
        self._sizes: dict[tuple[str, str], int] | None = {}
        self._crcs: dict[tuple[str, str], int] = {}
        self._one = asyncio.Lock()

    def taken_up(self) -> None:
        """There may be files of before: they are looked at when they are needed."""
        self._sizes = None

    async def keep(self, run: Run, paths: Iterable[str]) -> None:
        """Keep the files of this run at these paths; others than those of its workspace are not its own."""
        if self._most <= 0:
            return
        for path in dict.fromkeys(paths):
            try:
                if not run.files.locate(path).home:
                    continue
                data = await asyncio.to_thread(run.files.read_bytes, path, MOST_BYTES)
            except ToolError:
                continue  # gone meanwhile, or larger than anything that is kept
            async with self._one:
                try:
                    await self._keep_one(run, run.files.display(path), data)
                except StoreError as error:  # a run is worth more than a file of it
                    log.warning("%s of %s was not kept: %s", path, run.id, error)

    async def _keep_one(self, run: Run, path: str, data: bytes) -> None:
        place, crc = (run.id, path), zlib.crc32(data)
        sizes = await self._known()
        if self._crcs.get(place) == crc:
            return
        packed = await asyncio.to_thread(zlib.compress, data, 1)
        if not await self._made_room(sizes, len(packed) - sizes.get(place, 0)):
            log.warning("%s of %s was not kept: workspace.kept_mb is used up", path, run.id)
            return
        file = KeptFile(
            root_id=self._root_id, run_id=run.id, path=path, seq=run.state.seq, at=now(), data=packed
        )
        await self._store.keep(file)
        sizes.pop(place, None)  # now it is the newest
        sizes[place], self._crcs[place] = len(packed), crc

    async def _known(self) -> dict[tuple[str, str], int]:
        if self._sizes is None:
            kept = of_workspaces(await self._store.kept(self._root_id))
            self._sizes = {(file.run_id, file.path): len(file.data) for file in kept}
        return self._sizes

    async def _made_room(self, sizes: dict[tuple[str, str], int], more: int) -> bool:
        old = [place for place in sizes if self._tree.is_over(place[0])]
        while sum(sizes.values()) + more > self._most:
            if not old:
                return False
            run_id, path = gone = old.pop(0)
            await self._store.unkeep(self._root_id, run_id, path)
            del sizes[gone]
            self._crcs.pop(gone, None)
        return True

    async def restore(self, run: Run) -> None:
        """Put what was kept of a run into its new workspace."""
        for file in await self._store.kept(self._root_id, run.id):
            try:
                data = await asyncio.to_thread(content, file)
                await asyncio.to_thread(run.files.write, file.path, data)
            except (ToolError, zlib.error) as error:
                log.warning("%s of %s could not be restored: %s", file.path, run.id, error)


def of_workspaces(files: Iterable[KeptFile]) -> list[KeptFile]:
    """Without what is kept beside them, as what was attached to a workflow."""
    return [file for file in files if file.path.startswith(f"{HOME}/")]


def content(file: KeptFile) -> bytes:
    return zlib.decompress(file.data)


def export_kept(files: Iterable[KeptFile], folder: Path, blank: Callable[[str], str]) -> int:
    """Write kept files below a folder, by run and path, with secrets blanked out. Returns how many."""
    written = 0
    for file in of_workspaces(files):
        parts = PurePosixPath(file.path).relative_to(HOME).parts
        if ".." in (file.run_id, *parts) or "/" in file.run_id:
            continue  # never written by us
        place = folder.joinpath(file.run_id, *parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        data = content(file)
        with contextlib.suppress(UnicodeDecodeError):  # what is no text has no such words
            data = blank(data.decode()).encode()
        place.write_bytes(data)
        written += 1
    return written


async def copy_kept(store: Store, old_root: str, new_root: str, copied: dict[str, tuple[str, int]]) -> None:
    """The files of a workflow for a fork of it. `copied` has the new id of each run, and its last event."""
    ids = {run_id: new_id for run_id, (new_id, _) in copied.items()}
    for file in of_workspaces(await store.kept(old_root)):
        new_id, last = copied.get(file.run_id, ("", 0))
        if last > file.seq:
            path = renamed(file.path, ids)  # of a report: in the copy it is named so too
            await store.keep(msgspec.structs.replace(file, root_id=new_root, run_id=new_id, path=path))
