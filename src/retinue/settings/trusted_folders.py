"""Which folders the user trusts, and whether one is still what was trusted: the same folder, the same bytes.

`trust` in the user's own `config.toml` is the list; `retinue config trust` writes it. Trust is of one folder:
its `retinue.toml` and its agent files, as they were then. It does not reach down to folders inside, which may
be repositories of others, nor to a work tree or a copy elsewhere. An entry knows the folder itself, by the
number and the birth that the file system gave it, so that another folder put in its place is not trusted; and
the digests of what it said, so that what comes later, by a pull or otherwise, is not trusted either. An entry
without digests, of an earlier version or written by hand, lets no setting and no agent file count.
See docs/decisions/trust-is-of-one-folder.md.

Nothing here writes, and nothing reads more than the state of a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from retinue.errors import ConfigError
from retinue.reading import real_path


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedContent:
    """What a folder said when it was trusted. Nothing that it says beside this is."""

    settings: str = ""
    """The digest of its `retinue.toml`; empty if there was none."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """The fingerprint of each setting in there: only to say what is new."""
    agents: Mapping[str, str] = field(default_factory=dict[str, str])
    """The fingerprint of each agent file that asks for what needs trust, by its name in the folder."""


NO_CONTENT = TrustedContent()
TrustState = Literal["trusted", "changed", "of the folder alone", "replaced", "unknown"]
"""`changed`: it said something else when it was trusted. `of the folder alone`: nobody knows what it said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedFolder:
    """An entry of the list. `identity` is None where a path was written by hand, `content` too."""

    folder: str
    identity: str | None = None
    content: TrustedContent | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedFolders:
    entries: tuple[TrustedFolder, ...] = ()

    @classmethod
    def of(cls, listed: Any, file: str) -> TrustedFolders:
        """The list as it stands in the user's file."""
        if not isinstance(listed, list):
            raise _unknown(listed, file)
        return cls(entries=tuple(_entry(one, file) for one in cast("list[Any]", listed)))

    def has(self, folder: Path) -> bool:
        """Whether the user trusts this very folder, whatever it says by now."""
        return self._entry(folder)[0] is not None

    def content(self, folder: Path) -> TrustedContent | None:
        """What of this very folder is trusted."""
        entry, _ = self._entry(folder)
        return None if entry is None else entry.content

    def settings(self, folder: Path, digest: str) -> TrustState:
        """How a `retinue.toml` of this digest stands."""
        return self._state(folder, lambda content: content.settings == digest)

    def agent(self, folder: Path, name: str, asked: str) -> TrustState:
        """How an agent file of this name stands, which asks for something and has this fingerprint."""
        return self._state(folder, lambda content: content.agents.get(name) == asked)

    def _state(self, folder: Path, same: Callable[[TrustedContent], bool]) -> TrustState:
        entry, replaced = self._entry(folder)
        if entry is None:
            return "replaced" if replaced else "unknown"
        if entry.content is None:
            return "of the folder alone"
        return "trusted" if same(entry.content) else "changed"

    def _entry(self, folder: Path) -> tuple[TrustedFolder | None, bool]:
        """The entry of this very folder; and whether one of this path is of another folder."""
        real = real_path(folder)
        replaced = False
        for entry in self.entries:
            if entry.identity is None:
                if real_path(entry.folder) == real:
                    return entry, False
            elif entry.folder == real:
                if is_same(entry.identity, identity_of(real)):
                    return entry, False
                replaced = True
        return None, replaced

    def adding(self, folder: Path, content: TrustedContent = NO_CONTENT) -> TrustedFolders:
        """The list with this folder as it is now, in place of what the list had at its path."""
        real = real_path(folder)
        entry = TrustedFolder(folder=real, identity=identity_of(real), content=content)
        return TrustedFolders(entries=(*self.without(folder).entries, entry))

    def saying(self, folder: Path, now: TrustedContent) -> TrustedFolders:
        """The list with a trusted folder's settings as they are now, and its agent files as they were."""
        before = self.content(folder)
        return self if before is None else self.adding(folder, replace(now, agents=before.agents))

    def without(self, folder: Path) -> TrustedFolders:
        real = real_path(folder)
        return replace(self, entries=tuple(one for one in self.entries if real_path(one.folder) != real))

    def listed(self) -> list[Any]:
        """As it is written down."""
        return [_written(entry) for entry in self.entries]


def fingerprint(value: Any) -> str:
    """Enough of a digest to tell two values apart that nobody chose to look alike to us."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def new_in(content: TrustedContent | None, values: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Those of these settings that are not as they were when a folder was trusted."""
    known = NO_CONTENT.values if content is None else content.values
    return [name for name in names if known.get(name) != fingerprint(values.get(name))]


def _written(entry: TrustedFolder) -> str | dict[str, Any]:
    if entry.identity is None:
        return entry.folder
    found: dict[str, Any] = {"folder": entry.folder, "identity": entry.identity}
    if entry.content is not None:
        found["settings"] = entry.content.settings
        parts = {"values": entry.content.values, "agents": entry.content.agents}
        found |= {name: dict(part) for name, part in parts.items() if part}
    return found


def identity_of(folder: str) -> str | None:
    """`inode@birth in nanoseconds`, or `inode` where the file system keeps no birth; None if it is gone.

    Without the number of the device: that one changes when a disk is mounted again.
    """
    try:
        found = os.stat(folder)
    except OSError:
        return None
    seconds: float | None = getattr(found, "st_birthtime", None)
    born = None if seconds is None else int(seconds * 1_000_000_000)
    if born is None and sys.platform == "linux":
        born = _born(os.fsencode(folder))
    return str(found.st_ino) if born is None else f"{found.st_ino}@{born}"


def is_same(kept: str, now: str | None) -> bool:
    """Whether a folder is the one whose identity was kept."""
    if now is None:
        return False
    inode, _, born = now.partition("@")
    kept_inode, _, kept_born = kept.partition("@")
    return inode == kept_inode and (born == kept_born or not kept_born)


def _born(folder: bytes) -> int | None:
    """When a folder was made, by statx, which Python does not offer."""
    import ctypes

    has_birth, at_birth, size = 0x800, 80, 256
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    answer = ctypes.create_string_buffer(size)
    statx.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]
    if statx(-100, folder, 0, has_birth, answer) != 0:
        return None
    raw = answer.raw
    if not int.from_bytes(raw[:4], sys.byteorder) & has_birth:
        return None
    seconds = int.from_bytes(raw[at_birth : at_birth + 8], sys.byteorder, signed=True)
    return seconds * 1_000_000_000 + int.from_bytes(raw[at_birth + 8 : at_birth + 12], sys.byteorder)


def _entry(one: Any, file: str) -> TrustedFolder:
    if isinstance(one, str) and one:
        return TrustedFolder(folder=os.path.expanduser(one))
    if isinstance(one, dict):
        table = cast("dict[str, Any]", one)
        folder, identity = table.get("folder"), table.get("identity")
        if isinstance(folder, str) and folder and isinstance(identity, str) and identity:
            return TrustedFolder(folder=folder, identity=identity, content=_content(table))
    raise _unknown(one, file)


def _content(table: Mapping[str, Any]) -> TrustedContent | None:
    settings = table.get("settings")
    if not isinstance(settings, str):
        return None
    return TrustedContent(
        settings=settings, values=_texts(table.get("values")), agents=_texts(table.get("agents"))
    )


def _texts(value: Any) -> dict[str, str]:
    found = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {name: text for name, text in found.items() if isinstance(text, str)}


def _unknown(one: Any, file: str) -> ConfigError:
    return ConfigError(
        f"'trust' has {one!r:.80}, which is no folder",
        file=file,
        fix="take it out; 'retinue config trust DIR' writes a right one",
    )
