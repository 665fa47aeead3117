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
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath

import msgspec

from retinue.engine.fork import CopiedRun, renamed
from retinue.engine.tree import RunTree
from retinue.errors import StoreError, ToolError
from retinue.events import now
from retinue.reading import read_own
from retinue.run import Run
from retinue.store.base import KeptFile, Store
from retinue.threads import to_its_end
from retinue.workspace import HOME, MOST_BYTES

log = logging.getLogger("retinue")


Place = tuple[str, str, int]
"""A version of a file: its run, its path, and the last event of the run when it was kept."""
VERSIONS = 5
"""Of one file that are kept, the newest: a fork from before has it as it was then."""


class KeptFiles:
    """What is kept of one workflow, up to `workspace.kept_mb`, as it is stored.

    Where there is no room, older versions go first, then files of runs that have ended, the oldest of each
    before the others.
    """

    def __init__(self, tree: RunTree) -> None:
        self._tree, self._store, self._root_id = tree, tree.config.store, tree.root_id
        self._most = tree.config.settings.workspace.kept_mb * 1_000_000
        self._sizes: dict[Place, int] | None = {}
        self._digests: dict[tuple[str, str], tuple[int, bytes]] = {}
        """Of the newest version of each file: its seq, and what its content comes to."""
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
        place, digest = (run.id, path, run.state.seq), sha256(data).digest()
        sizes = await self._known()
        if self._digests.get((run.id, path), (0, b""))[1] == digest:
            return
        packed = await asyncio.to_thread(zlib.compress, data, 1)
        if not await self._made_room(sizes, place, len(packed)):
            log.warning("%s of %s was not kept: workspace.kept_mb is used up", path, run.id)
            return
        await self._store.keep(
            KeptFile(root_id=self._root_id, run_id=run.id, path=path, seq=place[2], at=now(), data=packed)
        )
        sizes.pop(place, None)  # now it is the newest
        sizes[place], self._digests[run.id, path] = len(packed), (place[2], digest)
        for old in [each for each in sizes if each[:2] == place[:2]][:-VERSIONS]:
            await self._drop(sizes, old)

    async def _known(self) -> dict[Place, int]:
        if self._sizes is None:
            kept = of_workspaces(await self._store.kept(self._root_id))
            self._digests = await asyncio.to_thread(_digests, kept)
            self._sizes = {(file.run_id, file.path, file.seq): len(file.data) for file in kept}
        return self._sizes

    async def _made_room(self, sizes: dict[Place, int], place: Place, size: int) -> bool:
        """Whether there is room for this one. If there is none, all that is kept stays."""
        used = sum(sizes.values()) - sizes.get(place, 0) + size
        if used <= self._most:
            return True
        newest = {(run_id, path): seq for run_id, path, seq in sizes} | {place[:2]: place[2]}
        old = dict.fromkeys(each for each in sizes if newest[each[:2]] != each[2])
        old |= dict.fromkeys(each for each in sizes if each not in old and self._tree.is_over(each[0]))
        gone: list[Place] = []
        for each in old:
            if used <= self._most:
                break
            used -= sizes[each]
            gone.append(each)
        if used > self._most:
            return False
        for each in gone:
            await self._drop(sizes, each)
        return True

    async def _drop(self, sizes: dict[Place, int], place: Place) -> None:
        run_id, path, seq = place
        await self._store.unkeep(self._root_id, run_id, path, seq)
        del sizes[place]
        if self._digests.get((run_id, path), (None, b""))[0] == seq:
            del self._digests[run_id, path]

    async def restore(self, run: Run) -> None:
        """Put what was kept of a run into its new workspace."""
        for file in newest(await self._store.kept(self._root_id, run.id)):
            try:
                data = await asyncio.to_thread(content, file)
                await to_its_end(run.files.write, file.path, data)
            except (ToolError, zlib.error) as error:
                log.warning("%s of %s could not be restored: %s", file.path, run.id, error)


def _digests(files: Iterable[KeptFile]) -> dict[tuple[str, str], tuple[int, bytes]]:
    """What the newest version of each file comes to; none of one that cannot be unpacked."""
    found: dict[tuple[str, str], tuple[int, bytes]] = {}
    for file in newest(files):
        with contextlib.suppress(zlib.error):
            found[file.run_id, file.path] = file.seq, sha256(content(file)).digest()
    return found


def of_workspaces(files: Iterable[KeptFile]) -> list[KeptFile]:
    """Without what is kept beside them, as what was attached to a workflow."""
    return [file for file in files if file.path.startswith(f"{HOME}/")]


def newest(files: Iterable[KeptFile]) -> list[KeptFile]:
    """Each file once, as it was last."""
    return list({(each.run_id, each.path): each for each in sorted(files, key=lambda f: f.seq)}.values())


def content(file: KeptFile) -> bytes:
    return zlib.decompress(file.data)


def export_kept(files: Iterable[KeptFile], folder: Path, blank: Callable[[str], str]) -> int:
    """Write kept files below a folder, by run and path, with secrets blanked out. Returns how many."""
    written = 0
    for file in newest(of_workspaces(files)):
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


def exported_kept(folder: Path, root_id: str) -> list[KeptFile]:
    """The files below a folder that `export_kept` wrote for a workflow."""
    found: list[KeptFile] = []
    for place in sorted(folder.glob("*/**/*")):
        if place.is_symlink() or not place.is_file():
            continue
        run_id, *parts = place.relative_to(folder).parts
        data = zlib.compress(read_own(place, MOST_BYTES), 1)
        path = str(PurePosixPath(HOME, *parts))
        found.append(KeptFile(root_id=root_id, run_id=run_id, path=path, seq=0, at=0.0, data=data))
    return found


async def copy_kept(store: Store, old_root: str, new_root: str, copied: Mapping[str, CopiedRun]) -> None:
    """The files of a workflow for a fork of it, in each version that its beginning knew.

    Before its log, which names them. What a crash then leaves behind, `prune` removes.
    """
    ids = {run_id: run.new_id for run_id, run in copied.items()}
    for file in of_workspaces(await store.kept(old_root)):
        run = copied.get(file.run_id)
        if run is None or file.seq >= run.seqs[-1]:
            continue
        path = renamed(file.path, ids)  # of a report: in the copy it is named so too
        seq = bisect_right(run.seqs, file.seq)
        await store.keep(
            msgspec.structs.replace(file, root_id=new_root, run_id=run.new_id, path=path, seq=seq, at=now())
        )


async def drop_kept(store: Store, root_id: str) -> None:
    """What was kept for a workflow that was not begun after all."""
    with contextlib.suppress(StoreError):  # why it was not begun is worth more
        if await store.run(root_id) is None:
            for file in await store.kept(root_id):
                await store.unkeep(root_id, file.run_id, file.path, file.seq)
