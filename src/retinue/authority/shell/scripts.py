"""Scripts of sed and awk in the words of a command: what only prints, deletes and replaces is let through.

Called by `programs`, for words that a star stands for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\[\n]|\\[^\n]|\[[^\]/|#,:@!\\\n]+\])*/I?)"
_S_PART = r"(?:(?!\1)[^\\\[\n]|\\[^\n]|\[[^\]/|#,:@!\\\n]+\])*"
_S = rf"s([/|#,:@!]){_S_PART}\1{_S_PART}\1[gpIi0-9]*"
_SED = re.compile(rf"\s*(?:{_ADDRESS}(?:,(?:{_ADDRESS}|[+~]\d+))?\s*!?\s*)?(?:[pdPDGHhgxNnl=]|q\d*|{_S})\s*")
"""One command of a sed script that prints, deletes or replaces."""


def sed(words: Sequence[str], free: Sequence[bool]) -> str:
    """Only scripts that print, delete and replace: others write files (`w`) or run programs (`e`)."""
    scripts: list[int] = []
    at = 1
    while at < len(words):
        word = words[at]
        if word == "-e":
            scripts.append(at + 1)
            at += 1
        elif word.startswith("-") and word != "-":
            if free[at] and not re.fullmatch(r"-[nErsuz]+|--quiet|--silent|--regexp-extended|--debug", word):
                return word
        elif not scripts:
            scripts.append(at)
        at += 1
    for at in scripts:
        if at >= len(words) or (free[at] and not _tame_sed(words[at])):
            return words[min(at, len(words) - 1)]
    return ""


def _tame_sed(script: str) -> bool:
    at = 0
    while match := _SED.match(script, at):
        at = match.end()
        if at == len(script):
            return True
        if script[at] not in ";\n":
            return False
        at += 1
    return False


def awk(words: Sequence[str], free: Sequence[bool]) -> str:
    """Programs without pipes, files, `system` and what calls by name."""
    for at, word in enumerate(words):
        if at == 0 or not free[at]:
            continue
        if word.startswith("-") and not re.match(r"-[Fv]", word):
            return word
        if re.search(r"[|>@]|system|getline", word):
            return word
    return ""
