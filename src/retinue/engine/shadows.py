"""Where the shadows of projects are kept: beside the database, or for a store in memory in a temp folder.

Made and closed by `assembly`; the recorder and undo ask it for the shadow of a project.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from retinue.sandbox.commands.repositories import stands_in
from retinue.settings import UndoSettings
from retinue.shadow import FILE, Shadow, remove_idle
from retinue.store.base import Store
from retinue.threads import to_its_end


def shadow_folder(store: Store) -> Path | None:
    """The folder for all shadows of a store; None if it keeps nothing on this machine."""
    lock = store.lock_file
    if lock is None:
        return None
    if lock.like is not None:
        return lock.like.with_name(f"{lock.like.name}-shadow")
    from platformdirs import user_data_path

    return user_data_path("retinue", appauthor=False) / "shadow"


def own_paths(store: Store) -> list[str]:
    """What a store has on this machine, with what is kept beside it: no business of commands, nor of undo."""
    lock, shadow = store.lock_file, shadow_folder(store)
    if lock is None or shadow is None:
        return []
    database = (
        () if lock.like is None else (f"{lock.like}{more}" for more in ("", "-wal", "-shm", "-journal"))
    )
    return [os.path.realpath(path) for path in (*database, lock.path, shadow, _beside(shadow, "worktrees"))]


def _beside(shadow: Path, name: str) -> Path:
    return shadow.with_name(f"{shadow.name.removesuffix('-shadow')}-{name}")


def _name(real: str) -> str:
    return hashlib.sha256(os.fsencode(real)).hexdigest()[:24]


class Shadows:
    """The shadows that are open, by project."""

    def __init__(self, store: Store) -> None:
        self._store, self._hidden = store, own_paths(store)
        self._open: dict[str, Shadow] = {}
        self._temp = Path(tempfile.gettempdir()) / f"retinue-shadow-{secrets.token_hex(8)}"
        """For a store in memory: made when it is needed."""
        self._lock = threading.Lock()

    def of(self, project: Path | None, settings: UndoSettings, *, make: bool = True) -> Shadow | None:
        """The shadow of a project, made if need be. In a thread: it touches the disk."""
        if project is None:
            return None
        real = os.path.realpath(project)
        with self._lock:
            found = self._open.get(real)
            if found is None:
                folder = self._folder() / _name(real)
                if not make and not (folder / FILE).exists():
                    return None
                self._open[real] = found = Shadow(
                    folder,
                    Path(real),
                    most_bytes=settings.file_mb * 1_000_000,
                    most_files=settings.files,
                    hidden=(*self._hidden, *self._own_paths()),
                    passing=stands_in,
                )
            return found

    @property
    def alone(self) -> bool:
        """Whether no other database has its shadows in the same folder."""
        lock = self._store.lock_file
        return lock is None or lock.like is not None

    def known(self) -> list[Path]:
        """The folders of all shadows, open or not."""
        folder = shadow_folder(self._store) or self._temp
        return sorted(path.parent for path in folder.glob(f"*/{FILE}"))

    def drop(self, project: Path) -> None:
        """Remove the shadow of a folder that is gone for good."""
        real = os.path.realpath(project)
        with self._lock:
            found = self._open.pop(real, None)
            if found is not None:
                found.close()
        remove_idle(self._folder() / _name(real))

    def tidy(self, used: Iterable[Path]) -> int:
        """Remove the shadows of all other projects, unless something is remembered there. Returns bytes."""
        names = {_name(os.path.realpath(project)) for project in used}
        with self._lock:
            names |= {shadow.folder.name for shadow in self._open.values()}
        return sum(remove_idle(folder) for folder in self.known() if folder.name not in names)

    def _own_paths(self) -> list[str]:
        """What belongs to the store, which may be in a project: no change of anybody, and in no copy."""
        own = [str(self._folder()), str(self.beside("worktrees"))]
        lock = self._store.lock_file
        if lock is None or lock.like is None:
            return own
        files = [f"{lock.like}{more}" for more in ("", "-wal", "-shm", "-journal")]
        return [*own, str(lock.path), *files]

    def _folder(self) -> Path:
        folder = shadow_folder(self._store) or self._temp
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def beside(self, name: str) -> Path:
        """A folder for other copies of projects, beside those of the shadows."""
        folder = shadow_folder(self._store)
        if folder is None:
            return self._temp / name
        return _beside(folder, name)

    async def close(self) -> None:
        await to_its_end(self._close)

    def _close(self) -> None:
        with self._lock:
            for shadow in self._open.values():
                shadow.close()
            self._open.clear()
            shutil.rmtree(self._temp, ignore_errors=True)
