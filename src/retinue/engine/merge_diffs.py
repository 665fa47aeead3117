"""What is shown of the work in a copy of a project: its diffs, bounded, and without what is kept from agents.

Called by `isolation` for reports and merges, by the command line and the server. A diff goes to models and
into the log: what a rule keeps from `read`, and what is in files of secrets, is named in it and not shown,
also where all of it was copied into another file. Whatever is cut says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from retinue.approvals import Rules
from retinue.authority.rules import Asked
from retinue.engine.worktrees import Copy, MergePlan, Worktrees
from retinue.jail import Jail
from retinue.settings import UndoSettings
from retinue.tools.diff import diff, on_a_line
from retinue.types import FileChange, FileState
from retinue.workspace import Origin

MOST_EACH = 60_000
"""Characters of the change of one file that are shown."""
MOST_ALL = 200_000
"""Characters of all changes together."""
MOST_BYTES = 8_000_000
"""Bytes of a file that is still compared."""
MOST_NAMED = 30
MOST_SECRET = 100_000
"""Bytes of a file of secrets that is still looked for inside others."""
TELLING = 6
"""Characters of a line, or of a value, by which it is known again."""
RANDOM = 16
"""Characters of a value that is no mere word, even without a digit."""


class Withheld:
    """Which paths of a copy are named and not shown, and why."""

    def __init__(
        self,
        rules: Rules,
        origin: Origin | None = None,
        *,
        agents: tuple[str, ...] = (),
        before: Callable[[], Iterable[KnownFile]] = tuple,
    ) -> None:
        """`agents`: whose rules count, from the root on; without, those of all. `before`: what there was."""
        if not agents:
            rules = replace(
                rules,
                deny=tuple(replace(rule, agent=None) for rule in rules.deny),
                ask=tuple(replace(rule, agent=None) for rule in rules.ask),
            )
        self._closed = rules.closed(
            Asked(
                tool="read",
                aliases=("view",),
                effect="read",
                risk="low",
                agent=agents[-1] if agents else "",
                above=agents[:-1],
                arguments={},
            )
        )
        self._origin, self._before = origin, before

    def why(
        self, path: str, *hashes: str, content: Callable[[str], bytes | None] = lambda sha256: None
    ) -> str | None:
        """Why what is in a path is not shown; None if it is. `hashes`: of what is in it, before and after."""
        named = self._by_name(path)
        if named is not None:
            return named
        for sha256 in hashes:
            if sha256 in self._known:
                return self._known[sha256]
            data = content(sha256) if sha256 and self._marks else None
            if data and (why := self.why_text(data.decode(errors="replace"))):
                return why
        return None

    def why_text(self, text: str) -> str | None:
        """Why a text is not shown, by what is in it: every line of a file that is not, or every value."""
        for why, several in self._marks:
            if any(all(mark in text for mark in marks) for marks in several):
                return why
        return None

    def _by_name(self, path: str) -> str | None:
        names = [path, *(self._origin.shared.get(path, ()) if self._origin else ())]
        spelled = [*names, *(way for name in names for way in self._folders(name))]
        return self._closed.why(spelled, text=True)

    def _folders(self, name: str) -> list[str]:
        return [] if self._origin is None else self._origin.spellings(name)

    @cached_property
    def _known(self) -> dict[str, str]:
        """Why it is not shown, by the hash of what is not: it may have been copied to another path."""
        return {known.sha256: why for known, why in self._closed_before if known.sha256}

    @cached_property
    def _closed_before(self) -> list[tuple[KnownFile, str]]:
        found = [(known, self._by_name(known.path)) for known in self._before() if known.size]
        return [(known, f"it has what {on_a_line(known.path)} had, and {why}") for known, why in found if why]

    @cached_property
    def _marks(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """By what the content of each file that is not shown is known again inside another."""
        found = [(why, marks_of(known.read())) for known, why in self._closed_before]
        return [(why, marks) for why, marks in found if marks]


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFile:
    """A file as it was before. `sha256` is empty where nobody has looked into it: git ignores it."""

    path: str
    sha256: str
    size: int
    read: Callable[[], bytes | None]


def marks_of(data: bytes | None) -> list[tuple[str, ...]]:
    """The lines of a file of secrets that tell something, and the values in them: who has all of either has
    the file, whatever else stands around them."""
    if not data or len(data) > MOST_SECRET:
        return []
    lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
    told = [line for line in lines if len(line) >= TELLING and not line.startswith(("#", "//", ";"))]
    values = [re.split(r"[=:]", line, maxsplit=1)[-1].strip("\"', ") for line in told]
    values = [value for value in values if len(value) >= TELLING]
    if not any(re.search(r"\d", value) or len(value) >= RANDOM for value in values):
        values = []  # words that stand anywhere
    return [tuple(dict.fromkeys(each)) for each in (told, values) if each]


def of_copy(worktrees: Worktrees, copy: Copy, settings: UndoSettings, rules: Rules, *agents: str) -> Withheld:
    """What is not shown of a copy: to these agents, from the root on, or to anybody."""
    origin = worktrees.origin(worktrees.path(copy.run_id))

    def before() -> Iterator[KnownFile]:
        for path, sha256, size in worktrees.before(copy, settings):
            if sha256:
                read = partial(worktrees.content, copy, settings, sha256)
            else:
                read = partial(_at_most, Path(copy.source), path)
            yield KnownFile(path=path, sha256=sha256, size=size, read=read)

    return Withheld(rules, origin, agents=agents, before=before)


def _at_most(folder: Path, path: str) -> bytes | None:
    try:
        with Jail(folder) as jail, jail.open_read(path, follow=False) as file:
            return file.read(MOST_SECRET + 1)
    except OSError:
        return None


def planned_diff(copy: Copy, plan: MergePlan, withheld: Withheld | None = None) -> str:
    """The change that a merge would make to the project."""
    content = planned_content(copy, plan)
    changes = ((change.path, change.after, change.before) for change, _ in plan.going)
    return _joined(changes, content, withheld)


def whole_diff(
    worktrees: Worktrees,
    copy: Copy,
    settings: UndoSettings,
    changes: Collection[FileChange],
    withheld: Withheld | None = None,
) -> str:
    """What the run of a copy changed in it."""

    def content(sha256: str) -> bytes | None:
        return worktrees.content(copy, settings, sha256)

    return _joined(((each.path, each.before, each.after) for each in changes), content, withheld)


def planned_content(copy: Copy, plan: MergePlan) -> Callable[[str], bytes | None]:
    """Bytes by their hash, of what a merge would replace and of what it would put there."""
    wanted = {change.before.sha256: data for change, data in plan.going if data is not None}
    there = {change.after.sha256: change.path for change, _ in plan.going if change.after.kind == "file"}

    def content(sha256: str) -> bytes | None:
        if sha256 in wanted or sha256 not in there:
            return wanted.get(sha256)
        try:
            with Jail(Path(copy.source)) as jail, jail.open_read(there[sha256], follow=False) as file:
                return file.read(MOST_BYTES + 1)
        except OSError:  # somebody took it away just now
            return None

    return content


def _joined(
    changes: Iterable[tuple[str, FileState, FileState]],
    content: Callable[[str], bytes | None],
    withheld: Withheld | None,
) -> str:
    parts: list[str] = []
    left: list[str] = []
    room = MOST_ALL
    for path, before, after in changes:
        if room <= 0:
            left.append(on_a_line(path))
            continue
        why = withheld.why(path, before.sha256, after.sha256, content=content) if withheld else None
        parts.append(_one_diff(path, before, after, content, why))
        room -= len(parts[-1])
    if left:
        names = ", ".join(left[:MOST_NAMED]) + (", …" if len(left) > MOST_NAMED else "")
        parts.append(f"[{len(left):,} more changed paths are not shown here: {names}]")
    return "\n".join(parts)


def _one_diff(
    path: str,
    before: FileState,
    after: FileState,
    content: Callable[[str], bytes | None],
    why: str | None,
) -> str:
    path = on_a_line(path)
    if before.kind not in ("", "file") or after.kind not in ("", "file"):
        target = ""
        if after.kind == "link" and why is None:
            target = f" to {on_a_line((content(after.sha256) or b'?').decode(errors='replace'))}"
        return f"{path}: {before.kind or 'nothing'} becomes {after.kind or 'nothing'}{target}"
    mode = ""
    if before.mode is not None and after.mode is not None and before.mode != after.mode:
        mode = f"{path}: mode {before.mode:o} becomes {after.mode:o}\n"
        if before.sha256 == after.sha256:
            return mode.rstrip()
    sizes = f"{before.size:,} bytes become {after.size:,}"
    if why is not None:
        return f"{mode}{path}: {sizes}; not shown: {why}"
    if max(before.size, after.size) > MOST_BYTES:
        return f"{mode}{path}: {sizes}; too many to be compared"
    old, new = (_text(content, state) for state in (before, after))
    if old is None or new is None:
        return f"{mode}{path}: {sizes}"
    shown = diff(path, old, new, created=not before.kind)
    if len(shown) > MOST_EACH:
        shown = f"{shown[:MOST_EACH]}\n[{len(shown) - MOST_EACH:,} more characters of this change]"
    return mode + shown


def _text(content: Callable[[str], bytes | None], state: FileState) -> str | None:
    """What is in a file; None if that is no text."""
    data = (content(state.sha256) if state.sha256 else None) or b""
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def conflicts(plan: MergePlan, withheld: Withheld | None = None) -> Iterator[str]:
    """The conflicts of a merge in words, with the texts of both sides where they may be shown."""
    room = MOST_ALL
    for each in plan.conflicts:
        why = withheld.why(each.path) or withheld.why_text(each.text) if withheld else None
        text = each.text[: max(min(room, MOST_EACH), 0)]
        if len(text) < len(each.text):
            text += f"\n[{len(each.text) - len(text):,} more characters of this conflict]"
        room -= len(text)
        text = f"not shown: {why}" if why else text
        yield f"conflict in {on_a_line(each.path)}: {each.why}\n{text}".rstrip()
