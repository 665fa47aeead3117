"""Fenced blocks of code in a text: where they stand, and the text without them.

Called by `sources` and by `claims.snippets`. A block that is never closed is taken for prose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"[ ]{0,3}(```+|~~~+)(.*)")


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """`info` is what stands behind the opening fence; `start` and `end` are the place with both fences."""

    start: int
    end: int
    info: str
    body: str


def code_blocks(text: str) -> list[CodeBlock]:
    """The blocks of a text, in order."""
    found: list[CodeBlock] = []
    opened, fence, info, body = -1, "", "", 0
    at = 0
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark is not None and opened < 0:
            opened, fence, info, body = at, mark[1], mark[2].strip(), at + len(line) + 1
        elif mark is not None and mark[1].startswith(fence):
            found.append(CodeBlock(opened, at + len(line), info, text[body : max(body, at - 1)]))
            opened = -1
        at += len(line) + 1
    return found


def without_blocks(text: str, blocks: list[CodeBlock]) -> str:
    """A text with blanks for its blocks: what is left keeps its place."""
    pieces: list[str] = []
    at = 0
    for block in blocks:
        pieces += (text[at : block.start], _blank(text[block.start : block.end]))
        at = block.end
    return "".join((*pieces, text[at:]))


def _blank(text: str) -> str:
    return "\n".join(" " * len(line) for line in text.split("\n"))
