"""Which folders the user trusts, and whether a folder is still the one that was trusted.

`trust` in the user's own `config.toml` is the list; `retinue config trust` writes it. Trust is of one folder:
its `retinue.toml` and its agent files. It does not reach down to folders inside, which may be repositories of
others, nor to a work tree or a copy elsewhere. An entry that the command wrote knows the folder itself, by
the number and the birth that the file system gave it, so that another folder put in its place is not trusted.
An entry that is only a path trusts whatever lies there. See docs/decisions/trust-is-of-one-folder.md.

Nothing here writes, and nothing reads more than the state of a folder.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from retinue.errors import ConfigError
from retinue.reading import real_path


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedFolder:
    """An entry of the list. `identity` is None where a path was written by hand."""

    folder: str
    identity: str | None = None


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
        """Whether the user trusts this very folder."""
        return self._state(folder) == "trusted"

    def replaced(self, folder: Path) -> bool:
        """Whether the user trusted a folder of this path, and this is another one."""
        return self._state(folder) == "replaced"

    def _state(self, folder: Path) -> Literal["trusted", "replaced", "unknown"]:
        real = real_path(folder)
        state: Literal["replaced", "unknown"] = "unknown"
        for entry in self.entries:
            if entry.identity is None:
                if real_path(entry.folder) == real:
                    return "trusted"
            elif entry.folder == real:
                if is_same(entry.identity, identity_of(real)):
                    return "trusted"
                state = "replaced"
        return state

    def adding(self, folder: Path) -> TrustedFolders:
        """The list with this folder as it is now, in place of what the list had at its path."""
        real = real_path(folder)
        others = [entry for entry in self.entries if real_path(entry.folder) != real]
        return TrustedFolders(entries=(*others, TrustedFolder(folder=real, identity=identity_of(real))))

    def listed(self) -> list[str | dict[str, str]]:
        """As it is written down."""
        return [
            entry.folder if entry.identity is None else {"folder": entry.folder, "identity": entry.identity}
            for entry in self.entries
        ]


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
            return TrustedFolder(folder=folder, identity=identity)
    raise _unknown(one, file)


def _unknown(one: Any, file: str) -> ConfigError:
    return ConfigError(
        f"'trust' has {one!r:.80}, which is no folder",
        file=file,
        fix="take it out; 'retinue config trust DIR' writes a right one",
    )
