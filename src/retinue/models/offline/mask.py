"""Source text with its strings and comments blanked, so that checks look at code alone.

A small scanner for the comment and string forms of the common languages. Line numbers and columns stay as
they are. Called by the code review.
"""

from __future__ import annotations

import re

_HASH = frozenset({"py", "pyi", "rb", "sh", "bash", "yaml", "yml", "toml", "ex", "exs", "r", "pl", "tf"})
_PYTHON = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<string>[rbfuRBFU]{0,2}(?:\"\"\"(?:[^\\]|\\.)*?(?:\"\"\"|\Z)|'''(?:[^\\]|\\.)*?(?:'''|\Z)"
    r"|\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'(?:[^'\\\n]|\\.)*(?:'|$)))",
    re.DOTALL | re.MULTILINE,
)
_CURLY = re.compile(
    r"(?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'(?:[^'\\\n]|\\.)*(?:'|$)|`(?:[^`\\]|\\.)*(?:`|\Z))",
    re.DOTALL | re.MULTILINE,
)


def _blank(match: re.Match[str]) -> str:
    text = match[0]
    if match.lastgroup == "comment":
        return re.sub(r"[^\n]", " ", text)
    quote = re.search(r"[\"'`]", text)
    head = text[: quote.start() + 1] if quote else ""
    inner = re.sub(r"[^\n]", " ", text[len(head) : -1])
    return (head + inner + text[-1])[: len(text)] if len(text) > len(head) else text


def mask(text: str, suffix: str) -> str:
    """The text with strings emptied and comments gone."""
    pattern = _PYTHON if suffix in _HASH else _CURLY
    return pattern.sub(_blank, text)


def comments(text: str, suffix: str) -> dict[int, str]:
    """The comments by the line they begin on."""
    pattern = _PYTHON if suffix in _HASH else _CURLY
    found: dict[int, str] = {}
    line, at = 1, 0
    for match in pattern.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        if match.lastgroup == "comment":
            for offset, part in enumerate(match[0].split("\n")):
                found[line + offset] = part
    return found
