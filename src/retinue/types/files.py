"""What a path of the project was and became, as the log keeps it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class FileState(Struct, frozen=True, kw_only=True):
    """What is at a path: nothing if `kind` is empty. `sha256` is of a file's bytes or of a link's target.

    `mode` None: it was not looked at. `kept` False: its bytes are not kept with the workflow.
    """

    kind: Literal["", "file", "folder", "link"] = ""
    mode: int | None = None
    size: int = 0
    sha256: str = ""
    kept: bool = True

    def is_like(self, other: FileState) -> bool:
        """Whether the same lies there; a mode that was not looked at may be any."""
        if self.kind != other.kind or self.sha256 != other.sha256:
            return False
        return self.mode is None or other.mode is None or self.mode == other.mode


class FileChange(Struct, frozen=True, kw_only=True):
    """What became of one path, relative to the project."""

    path: str
    before: FileState = FileState()
    after: FileState = FileState()
