"""Two looks at a project held against each other: what changed, and what of it cannot be taken back.

Pure: `shadow` looks and keeps, `engine.recorder` and `engine.worktrees` ask for the difference.
"""

from __future__ import annotations

from typing import NamedTuple

from retinue.ignored import REGENERATED
from retinue.types import FileChange, FileState


class Seen(NamedTuple):
    """One path as it was last seen. `kind` is file, folder, link, large, ignored, or other: then `sha` is

    why nobody looks after it, in words.
    """

    kind: str
    mode: int
    size: int
    sha: str
    mtime: int
    ctime: int
    ino: int


Snapshot = dict[str, Seen]


class Difference(NamedTuple):
    """What changed between two looks, and what of it cannot be taken back."""

    changes: tuple[FileChange, ...]
    left_out: tuple[str, ...]


def difference(before: Snapshot, after: Snapshot) -> Difference:
    """What became of every path: changes that can be taken back, and, in words, those that cannot."""
    changes: list[FileChange] = []
    left_out: list[str] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new or _same(old, new):
            continue
        why = _why_left_out(path, old, new, before)
        if why:
            left_out.append(f"{path}: {why}")
        else:
            changes.append(FileChange(path=path, before=_state(old), after=_state(new)))
    return Difference(tuple(changes), tuple(left_out))


def _kind(seen: Seen | None) -> str:
    return "" if seen is None else seen.kind


def _same(old: Seen | None, new: Seen | None) -> bool:
    if old is None or new is None or old.kind != new.kind:
        return False
    if old.kind == "ignored" and 0 in (old.mtime, new.mtime):
        return True  # a folder; or an earlier version has looked
    return old[:4] == new[:4] and (old.kind not in ("large", "ignored") or old.mtime == new.mtime)


def _why_left_out(path: str, old: Seen | None, new: Seen | None, before: Snapshot) -> str:
    """Why this change cannot be taken back. What was there before and not kept must never be removed."""
    if new is not None and new.kind == "other":
        return f"{new.sha}, and it was {'made' if old is None else 'changed'}"
    if old is not None and old.kind == "other":
        return f"{old.sha}, and it was {'removed' if new is None else 'changed'}"
    if _kind(old) == "large":
        return "its bytes were not kept, and it was " + ("removed" if new is None else "changed")
    if _kind(old) == "ignored":
        return f"{_ignored_by(path)}, and it was " + ("removed" if new is None else "changed")
    if _kind(new) == "ignored":
        by = _ignored_by(path)
        return f"new, and {by}" if old is None else f"{by} since the command"
    if old is None and _was_below_ignored(path, before):
        return f"{_ignored_by(path)} before the command"
    if _kind(new) == "large":
        return "too large to be looked after, and it was " + ("made" if old is None else "changed")
    return ""


def _ignored_by(path: str) -> str:
    """Some folders are left out by their names alone, whatever git says."""
    filled = next((part for part in path.split("/") if part in REGENERATED), "")
    return f"not watched, as every {filled}" if filled else "ignored by git"


def _was_below_ignored(path: str, before: Snapshot) -> bool:
    while "/" in path:
        path = path.rpartition("/")[0]
        if _kind(before.get(path)) == "ignored":
            return True
    return False


def _state(seen: Seen | None) -> FileState:
    if seen is None:
        return FileState()
    if seen.kind == "folder":
        return FileState(kind="folder", mode=seen.mode)
    if seen.kind == "link":
        return FileState(kind="link", size=seen.size, sha256=seen.sha)
    return FileState(kind="file", mode=seen.mode, size=seen.size, sha256=seen.sha)
