"""The changes of a workflow as people read them: a unified diff, whole, and a line for each file."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from retinue.tools.diff import on_a_line
from retinue.types import FileState
from retinue.view.words import count, size

Content = Callable[[str], bytes | None]
What = Literal["created", "changed", "removed", "renamed", "rights"]
MOST_LINES = 20_000
"""Lines of one file that are still compared one by one: it takes quadratic time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownChange:
    """One path. `note` says what a diff of lines cannot show: rights, links, bytes that are no text."""

    path: str
    what: What
    was: str = ""
    """Where a renamed file was."""
    note: str = ""
    diff: str = ""
    added: int = 0
    removed: int = 0
    cut: bool = False
    """There is more to it than the diff shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """How much of diffs is wanted: lines of a file that are compared, characters of one diff and of all."""

    lines: int = MOST_LINES
    each: int = sys.maxsize
    all: int = sys.maxsize


def shown_changes(
    changes: Sequence[tuple[str, FileState, FileState]],
    content: Content,
    room: Room | None = None,
    withheld: Callable[[str, str, str], str | None] = lambda path, before, after: None,
) -> list[ShownChange]:
    """What became of each path, renamed files as one. Without room for all of it, the first diffs.

    `withheld`: why a path, by its name and its hashes before and after, is only named.
    """
    room = room or Room()
    gone = {
        before.sha256: path for path, before, after in changes if before.kind == "file" and not after.kind
    }
    moved = {
        path: gone[after.sha256]
        for path, before, after in changes
        if after.kind == "file" and not before.kind and after.size and after.sha256 in gone
    }
    away = set(moved.values())
    shown: list[ShownChange] = []
    left = room.all
    for path, before, after in changes:
        if path in moved:
            shown.append(ShownChange(path=path, what="renamed", was=moved[path]))
        elif path not in away and (why := withheld(path, before.sha256, after.sha256)):
            note = f"not shown: {why}"
            shown.append(ShownChange(path=path, what=_what(before, after), note=note, cut=True))
        elif path not in away and left <= 0:
            shown.append(ShownChange(path=path, what=_what(before, after), cut=True))
        elif path not in away:
            shown.append(_cut(_shown(path, before, after, content, room.lines), min(left, room.each)))
            left -= len(shown[-1].diff)
    return shown


def _what(before: FileState, after: FileState) -> What:
    return "created" if not before.kind else "removed" if not after.kind else "changed"


def _cut(change: ShownChange, most: int) -> ShownChange:
    """A change whose diff has at most so many characters, in whole lines."""
    if len(change.diff) <= most:
        return change
    return replace(change, diff=change.diff[: change.diff.rfind("\n", 0, most) + 1], cut=True)


def _shown(path: str, before: FileState, after: FileState, content: Content, most: int) -> ShownChange:
    what = _what(before, after)
    notes = [_kinds(before, after), _rights(before, after)]
    if {before.kind, after.kind} <= {"", "folder"}:
        return ShownChange(
            path=path, what=what if before.kind != after.kind else "rights", note=_joined(notes)
        )
    if before.sha256 == after.sha256 and before.kind == after.kind:
        return ShownChange(path=path, what="rights", note=_joined(notes))
    old, new = _text(before, content), _text(after, content)
    if old is None or new is None:
        notes.append(f"no text that is kept: {size(before.size)} before, {size(after.size)} after")
        return ShownChange(path=path, what=what, note=_joined(notes))
    lines = _compared(path, (old, new), before, after, most)
    if old and new and not lines:
        notes.append("only line endings change")
    return ShownChange(
        path=path,
        what=what,
        note=_joined(notes),
        diff="".join(f"{line}\n" for line in lines),
        added=sum(line.startswith("+") for line in lines[2:]),
        removed=sum(line.startswith("-") for line in lines[2:]),
    )


def _joined(notes: Sequence[str]) -> str:
    return "; ".join(note for note in notes if note)


def _kinds(before: FileState, after: FileState) -> str:
    if before.kind and after.kind and before.kind != after.kind:
        return f"a {before.kind} became a {after.kind}"
    kind = after.kind or before.kind
    return "" if kind == "file" else f"a {kind}"


def _rights(before: FileState, after: FileState) -> str:
    if before.mode is None or after.mode is None or before.mode == after.mode:
        return ""
    if not before.kind or not after.kind:
        return ""
    return f"rights {before.mode:o} became {after.mode:o}"


def _text(state: FileState, content: Content) -> str | None:
    """A state as text; None if it is none, or is not kept."""
    if state.kind in ("", "folder"):
        return ""
    data = content(state.sha256)
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _compared(path: str, texts: tuple[str, str], before: FileState, after: FileState, most: int) -> list[str]:
    a, b = (text.splitlines() for text in texts)
    path = on_a_line(path)
    names = (f"a/{path}" if before.kind else "/dev/null", f"b/{path}" if after.kind else "/dev/null")
    if a == b:
        return []
    if len(a) + len(b) > most and a and b:
        return [f"--- {names[0]}", f"+++ {names[1]}", f"@@ {len(a):,} lines became {len(b):,} @@"]
    return list(difflib.unified_diff(a, b, *names, lineterm=""))


def as_patch(changes: Sequence[ShownChange]) -> str:
    """All of it as one text: a heading for each path, then its lines."""
    return "".join(f"{_heading(change)}\n{change.diff}" for change in changes)


def _heading(change: ShownChange) -> str:
    was = f" from {on_a_line(change.was)}" if change.was else ""
    note = f" ({change.note})" if change.note else ""
    return f"{change.what} {on_a_line(change.path)}{was}{note}"


def one_line(change: ShownChange) -> str:
    lines = f"  +{change.added} -{change.removed}" if change.diff else ""
    return f"{_heading(change)}{lines}"


def summed(changes: Sequence[ShownChange]) -> str:
    added, removed = sum(each.added for each in changes), sum(each.removed for each in changes)
    lines = f", {count(added, 'line')} added, {count(removed, 'line')} removed"
    return f"{count(len(changes), 'path')} changed{lines}"
