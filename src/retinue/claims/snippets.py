"""Blocks of code that a report gives under a place in a file.

Called by `claims.report`. The place stands in the head of the block, in its first line, alone in the line
above it, or in a sentence there; below a sentence the code may as well be a proposal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from retinue.claims.fences import CodeBlock
from retinue.claims.places import Place, places, without_places

_CHANGES = frozenset(["diff", "patch", "console", "shell", "bash", "sh", "text", "output", "mermaid"])
_HEAD_PLACE = re.compile(r"^(\d{1,7}):(\d{1,7}):([\w./@+~-]{1,300})$")
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class CodeSnippet:
    """`given`: it is said to stand at that place."""

    body: str
    place: Place
    start: int
    end: int
    given: bool


def snippets(prose: str, blocks: Sequence[CodeBlock], means: Callable[[str], bool]) -> list[CodeSnippet]:
    """The blocks of a report that have a place; `prose` is the report with blanks for its blocks."""
    found: list[CodeSnippet] = []
    for block in blocks:
        kind = block.info.split()[0].casefold() if block.info else ""
        if kind in _CHANGES or not block.body.strip():
            continue
        head = _in_head(block, means)
        if head is not None:
            found.append(CodeSnippet(head[1], head[0], block.start, block.end, given=True))
            continue
        above = _line_above(prose, block.start)
        cited = places(above, means)
        if cited:
            alone = not _WORD.search(without_places(above, means))
            found.append(CodeSnippet(block.body, cited[-1], block.start, block.end, given=alone))
    return found


def _in_head(block: CodeBlock, means: Callable[[str], bool]) -> tuple[Place, str] | None:
    """The place that a block names itself, and its code without it."""
    if match := _HEAD_PLACE.match(block.info):
        return (match[3], int(match[1]), max(int(match[1]), int(match[2]))), block.body
    if cited := places(block.info, means):
        return cited[0], block.body
    first, _, rest = block.body.partition("\n")
    cited = places(first, means)
    if cited and rest.strip() and not _WORD.search(without_places(first, means)):
        return cited[0], rest
    return None


def _line_above(prose: str, at: int) -> str:
    lines = prose[max(0, at - 2_000) : at].rstrip(" ").split("\n")
    return next((line for line in reversed(lines[-3:]) if line.strip()), "")
