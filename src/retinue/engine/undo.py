"""What a workflow changed in its project, read from its log; and taking it back.

Of every path the first before and the last after count. A file that is not as the workflow left it is never
touched: then nothing is, unless whoever asks wants the rest. Called by the app for a workflow that nobody
works on. Taking back may be cut off and done again: what is as it was already is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from retinue.authority.secrets import is_secret
from retinue.engine.in_the_way import Becoming, above_of, held_folders, in_place_of_folders
from retinue.events import AnyEvent, ChangesUndone, FilesChanged, RunStarted, ToolReturned
from retinue.jail import Jail
from retinue.shadow import Shadow
from retinue.types import FileChange, FileState

NOT_KEPT = "what was there before was not kept"

Content = Callable[[str], bytes | None]
"""Bytes by their hash, if they are kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NetChange:
    """What a workflow made of one path in all. `mixed`: somebody else changed it in between."""

    path: str
    before: FileState
    after: FileState
    agents: tuple[str, ...] = ()
    mixed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeSet:
    """What a workflow changed, and what of it is not known or cannot be taken back."""

    project: Path | None
    changes: tuple[NetChange, ...] = ()
    left_out: tuple[str, ...] = ()
    unfinished: tuple[tuple[str, str], ...] = ()
    """Commands that were cut off: a run and its call. What they changed is among the changes."""
    taken_back: tuple[str, ...] = ()
    """What was changed, taken back, and not changed again. It is not among the changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Undone:
    """What was taken back (`paths`), and what was not, with why. Without paths nothing was touched."""

    paths: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    linked: tuple[str, ...] = ()
    """Of the paths those that had other names: these keep what was written through them."""
    left_out: tuple[str, ...] = ()
    """What the workflow changed besides that nobody can take back, in words: ignored files that are gone."""
    stays: tuple[str, ...] = ()
    """Folders that the workflow made, and that stay since somebody else's files are in them."""


def change_set(events: Sequence[AnyEvent], shadow: Shadow | None) -> ChangeSet:
    """What the workflow of these events changed. In a thread: it may look at the project."""
    began = events[0]
    if not isinstance(began, RunStarted) or not began.cwd:
        return ChangeSet(project=None)
    agents = {event.run_id: event.spec.name for event in events if isinstance(event, RunStarted)}
    since = began.forked_at or 0.0
    chains: dict[str, _Chain] = {}
    left_out: dict[str, None] = {}
    taken_back: dict[str, None] = {}
    for event in events:
        if isinstance(event, ChangesUndone):
            for path in event.paths:
                chains.pop(path, None)
                taken_back[path] = None
        if not isinstance(event, FilesChanged) or event.at < since:
            continue
        left_out.update(dict.fromkeys(event.left_out))
        for change in event.changes:
            chain = chains.setdefault(change.path, _Chain())
            call = (event.run_id, event.call_id)
            if event.void:
                chain.take_back(change, call)
            else:
                chain.add(change, agents.get(event.run_id, ""), call)
    returned = {(event.run_id, event.call_id) for event in events if isinstance(event, ToolReturned)}
    unfinished = _unfinished(shadow, agents, returned, chains, left_out)
    net = [change for path, chain in sorted(chains.items()) if (change := chain.net(path)) is not None]
    return ChangeSet(
        project=Path(began.cwd),
        changes=tuple(net),
        left_out=tuple(left_out),
        unfinished=unfinished,
        taken_back=tuple(path for path in sorted(taken_back) if path not in chains),
    )


def _unfinished(
    shadow: Shadow | None,
    agents: Mapping[str, str],
    returned: Collection[tuple[str, str]],
    chains: dict[str, _Chain],
    left_out: dict[str, None],
) -> tuple[tuple[str, str], ...]:
    """Add what commands changed that were cut off and that nobody took up since."""
    # What has returned was not cut off, whatever its record says: what changed since is not its change.
    calls = [] if shadow is None else [call for call in shadow.begun(agents) if call not in returned]
    for run_id, call_id in calls:
        found = shadow.changed_since(run_id, call_id) if shadow is not None else None
        if found is None:
            continue
        left_out.update(dict.fromkeys(found.left_out))
        for change in found.changes:
            chains.setdefault(change.path, _Chain()).add(change, agents[run_id], (run_id, call_id))
    return tuple(calls)


@dataclass(kw_only=True, slots=True)
class _Chain:
    """The states of one path, from change to change."""

    changes: list[FileChange] = field(default_factory=list[FileChange])
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Which call of which run made each of them."""
    agents: dict[str, None] = field(default_factory=dict[str, None])

    def add(self, change: FileChange, agent: str, call: tuple[str, str]) -> None:
        self.changes.append(change)
        self.calls.append(call)
        self.agents[agent] = None

    def take_back(self, change: FileChange, call: tuple[str, str]) -> None:
        """The last one alike of the same call did not come about."""
        for at in range(len(self.changes) - 1, -1, -1):
            if self.calls[at] == call and self.changes[at].after.is_like(change.after):
                del self.changes[at], self.calls[at]
                return

    def net(self, path: str) -> NetChange | None:
        if not self.changes:
            return None
        states, mixed = [self.changes[0].before], False
        for change in self.changes:
            # Two commands at once have seen the same: what one of them began from, the other had found.
            mixed = mixed or not any(change.before.is_like(state) for state in states)
            states.append(change.after)
        if states[0].is_like(states[-1]) and not mixed:
            return None
        return NetChange(
            path=path, before=states[0], after=states[-1], agents=tuple(self.agents), mixed=mixed
        )


def content_of(kept: Mapping[str, bytes], shadow: Shadow | None) -> Content:
    """Bytes of a workflow's changes: what it keeps, or what a command that was cut off left in the shadow."""

    def content(sha256: str) -> bytes | None:
        packed = kept.get(sha256)
        if packed is not None:
            return zlib.decompress(packed)
        return None if shadow is None else shadow.content(sha256)

    return content


def undo(found: ChangeSet, content: Content, *, rest: bool = False, dry_run: bool = False) -> Undone:
    """Put back what was there before. With `rest`, what is not as the workflow left it stays as it is."""
    if found.project is None or not found.changes:
        return Undone()
    with Jail(found.project) as jail:
        already, refused, going = _looked_at(jail, found, content)
        stays = tuple(held_folders(jail, becoming(change for change, _ in going)))
        going = [each for each in going if each[0].path not in stays]
        linked = tuple(change.path for change, _ in going if _has_other_names(jail, change))
        touching = not dry_run and (rest or not refused)
        left = put_back(jail, going) if touching else []
        gone = {path for path, _ in left}
        paths = [change.path for change, _ in going if change.path not in gone] if touching or dry_run else []
    return Undone(
        paths=tuple(paths),
        already=tuple(already),
        refused=(*refused, *left),
        linked=linked,
        stays=stays,
    )


def _looked_at(
    jail: Jail, found: ChangeSet, content: Content
) -> tuple[list[str], list[tuple[str, str]], list[tuple[NetChange, bytes | None]]]:
    """What is as before already, what is not put back, with why, and what is, with its bytes."""
    already: list[str] = []
    refused: list[tuple[str, str]] = []
    going: list[tuple[NetChange, bytes | None]] = []
    links = links_made(found.changes)
    for change in found.changes:
        now = state_beside(jail, change, links)
        if now.is_like(change.before) and not change.mixed:
            already.append(change.path)
            continue
        data = content(change.before.sha256) if change.before.sha256 else None
        why = _why_not(change, now, data)
        if why:
            refused.append((change.path, why))
        else:
            going.append((replace(change, after=now), data))
    wanted = [change for change in found.changes if change.path not in set(already)]
    while blocked := _blocked(going, wanted, links) or _hindered(jail, going):
        refused += blocked.items()
        going = [each for each in going if each[0].path not in blocked]
    return already, refused, going


def _has_other_names(jail: Jail, change: NetChange) -> bool:
    """Whether a file that is put back is a hard link: a new file takes its place, and the others stay."""
    if change.after.kind != "file" or not _needs_bytes(change):
        return False
    parent, name = posixpath.split(change.path)
    try:
        with jail.folder(parent or ".") as folder:
            return os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink > 1
    except OSError:
        return False


def _why_not(change: NetChange, now: FileState, data: bytes | None) -> str:
    if change.mixed:
        return "somebody else changed it between two changes of this workflow"
    if not now.is_like(change.after):
        return "it was changed since" if now.kind else "it was removed since"
    if change.before.kind in ("file", "link") and (not change.before.kept or data is None):
        return NOT_KEPT
    if data is not None and hashlib.sha256(data).hexdigest() != change.before.sha256:
        return "what was kept of it is damaged"
    return ""


def _blocked(
    going: Sequence[tuple[NetChange, bytes | None]], wanted: Sequence[NetChange], links: set[str]
) -> dict[str, str]:
    """What has to stay because something else does, with why: taking it back would lose or misplace that.

    A folder that holds what stays, what would be written through a link that stays, and the only copy of what
    does not come back elsewhere: a file that was moved.
    """
    doing = {change.path for change, _ in going}
    staying = [change for change in wanted if change.path not in doing]
    stays = {change.path for change in staying}
    moved = {change.before.sha256: change.path for change in staying if change.before.size}
    blocked: dict[str, str] = {}
    for change, _ in going:
        inside = next((path for path in stays if path.startswith(f"{change.path}/")), "")
        above = next((path for path in above_of(change.path) if path in links and path in stays), "")
        kept = moved.get(change.after.sha256, "") if change.after.kind == "file" else ""
        if change.after.kind == "folder" and change.before.kind != "folder" and inside:
            blocked[change.path] = f"{inside} in it stays"
        elif above and change.before.kind:
            blocked[change.path] = f"{above}, which became a link, stays"
        elif kept and kept != change.path and change.before.sha256 != change.after.sha256:
            blocked[change.path] = f"it holds what was in {kept}, which is not taken back"
    return blocked


def becoming(changes: Iterable[NetChange]) -> dict[str, Becoming]:
    """What `put_back` would make of each path."""
    return {each.path: Becoming(now=each.after.kind, wanted=each.before.kind) for each in changes}


def _hindered(jail: Jail, going: Sequence[tuple[NetChange, bytes | None]]) -> dict[str, str]:
    """What cannot be put back where it was, since somebody else has something there, with why."""
    kinds = becoming(change for change, _ in going)
    held = held_folders(jail, kinds)
    hindered = {path: f"{stays} is in it now" for path, stays in held.items() if kinds[path].wanted}
    for path, (above, kind) in in_place_of_folders(jail, kinds).items():
        hindered[path] = f"{above} is a {kind} now"
    return hindered


def links_made(changes: Iterable[NetChange | FileChange]) -> set[str]:
    """The paths that became links."""
    return {each.path for each in changes if each.after.kind == "link" != each.before.kind}


def state_beside(jail: Jail, change: NetChange | FileChange, links: set[str]) -> FileState:
    """What is at the path of a change now: nothing, if it went away with a folder that became a link.

    What can be seen through such a link lies elsewhere, and is no business of this path.
    """
    if not change.after.kind:
        for path in above_of(change.path):
            if path in links and state_of(jail, path).kind == "link":
                return FileState()
    return state_of(jail, change.path)


def state_of(jail: Jail, path: str) -> FileState:
    """What is at a path now, links not followed."""
    parent, name = posixpath.split(path)
    try:
        with jail.folder(parent or ".") as folder:
            there = os.stat(name, dir_fd=folder, follow_symlinks=False)
            mode = stat.S_IMODE(there.st_mode)
            if stat.S_ISDIR(there.st_mode):
                return FileState(kind="folder", mode=mode)
            if stat.S_ISLNK(there.st_mode):
                target = os.fsencode(os.readlink(name, dir_fd=folder))
                return FileState(kind="link", size=len(target), sha256=hashlib.sha256(target).hexdigest())
        digest = hashlib.sha256()
        with jail.open_read(path, follow=False) as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
        return FileState(kind="file", mode=mode, size=there.st_size, sha256=digest.hexdigest())
    except (FileNotFoundError, NotADirectoryError):
        return FileState()
    except OSError:
        return FileState(kind="file", sha256="unreadable", kept=False)


def put_back(jail: Jail, going: Sequence[tuple[NetChange, bytes | None]]) -> list[tuple[str, str]]:
    """Take away what was made, from the inside out; then make what was there, from the outside in."""
    left = [(change.path, NOT_KEPT) for change, data in going if data is None and _needs_bytes(change)]
    lost = {path for path, _ in left}  # what is there stays: it would be replaced by nothing
    going = [each for each in going if each[0].path not in lost]
    deepest = sorted(going, key=lambda each: each[0].path.count("/"), reverse=True)
    for change, _ in reversed(deepest):
        if change.after.kind == "folder":
            with contextlib.suppress(OSError):  # what is in it could not be put back otherwise
                jail.chmod(change.path, (change.after.mode or 0o755) | 0o700)
    for change, _ in deepest:
        if change.after.kind and change.after.kind != change.before.kind:
            _attempt(left, change.path, lambda change=change: _remove(jail, change))
    failed = {path for path, _ in left}
    for change, data in reversed(deepest):
        if change.before.kind and change.path not in failed:
            _attempt(left, change.path, lambda change=change, data=data: _restore(jail, change, data))
    # A folder's rights last: one that nobody may write to could not have been filled.
    for change, _ in deepest:
        if change.before.kind == "folder" and change.before.mode is not None:
            with contextlib.suppress(OSError):
                jail.chmod(change.path, change.before.mode)
    return left


def _needs_bytes(change: NetChange) -> bool:
    before, after = change.before, change.after
    only_rights = before.kind == after.kind == "file" and before.sha256 == after.sha256
    return before.kind in ("file", "link") and not only_rights


def _attempt(left: list[tuple[str, str]], path: str, do: Callable[[], None]) -> None:
    try:
        do()
    except OSError as error:
        left.append((path, os.strerror(error.errno or 0).lower()))


def _remove(jail: Jail, change: NetChange) -> None:
    with contextlib.suppress(FileNotFoundError):
        if change.after.kind == "folder":
            jail.rmdir(change.path)
        else:
            jail.unlink(change.path)


def _restore(jail: Jail, change: NetChange, data: bytes | None) -> None:
    before = change.before
    if before.kind == "folder":
        jail.mkdir(change.path)
    elif before.kind == "link":
        if change.after.kind == "link":
            jail.unlink(change.path)
        jail.symlink(os.fsdecode(_there(data)), change.path)
    elif before.sha256 == change.after.sha256 and change.after.kind == "file":
        jail.chmod(change.path, before.mode if before.mode is not None else 0o644)
    else:
        jail.put(change.path, _there(data), 0o644 if before.mode is None else before.mode)


def export_befores(
    found: ChangeSet, content: Content, folder: Path, blank: Callable[[str], str]
) -> tuple[int, list[str]]:
    """Write what was there before a workflow's changes below a folder, by path, with secrets blanked out.

    Returns how many files, and what was left out: files that usually hold secrets.
    """
    written, left_out = 0, list[str]()
    for change in found.changes:
        data = content(change.before.sha256) if change.before.kind == "file" else None
        if data is None or ".." in change.path.split("/"):
            continue
        if is_secret(change.path):
            left_out.append(change.path)
            continue
        place = folder / change.path
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(UnicodeDecodeError):  # what is no text has no such words
            data = blank(data.decode()).encode()
        place.write_bytes(data)
        written += 1
    return written, left_out


def _there(data: bytes | None) -> bytes:
    if data is None:  # `put_back` has seen to it
        raise AssertionError("bytes that were not kept are never put back")
    return data
