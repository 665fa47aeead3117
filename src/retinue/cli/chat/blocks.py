"""An answer as it arrives, part by part: blocks of Markdown that are complete, and the one that is not yet.

A complete block is printed for good and never drawn again; the open one is shown below until it closes.
Pure. Used by the view of the chat.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Blocks:
    """Feed it pieces of a text; it hands back what is complete."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""
        self._fence = ""
        self._gap = False

    @property
    def rest(self) -> str:
        """What has come of the block that is not complete."""
        return "\n".join([*self._lines, self._line]).strip("\n")

    def feed(self, text: str) -> list[str]:
        """The blocks that this piece completes."""
        found: list[str] = []
        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            found += self._take(line)
        return found

    def end(self) -> list[str]:
        """The text is over: the rest, whatever it lacks."""
        rest = self.rest
        self.__init__()
        return [rest] if rest.strip() else []

    def _take(self, line: str) -> list[str]:
        if self._fence:
            self._lines.append(line)
            fence = _FENCE.match(line)
            closes = fence is not None and fence[1].startswith(self._fence) and not line.strip(" `~")
            if not closes:
                return []
            self._fence = ""
            return self._close()
        if not line.strip():
            self._gap = bool(self._lines)
            self._lines += [""] if self._lines else []
            return []
        # what is indented after a gap belongs to the item of a list above it
        found = self._close() if self._gap and not line.startswith(("  ", "\t")) else []
        self._gap = False
        if fence := _FENCE.match(line):
            if not any(each.strip() for each in self._lines) or not line.startswith(" "):
                found += self._close()
            self._fence = fence[1]
        self._lines.append(line)
        return found

    def _close(self) -> list[str]:
        block, self._lines, self._gap = "\n".join(self._lines).strip("\n"), [], False
        return [block] if block.strip() else []
