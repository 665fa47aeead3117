"""Large pastes, folded to one word in the input line and unfolded when the message is sent."""

from __future__ import annotations

import re

MOST_LINES = 8
MOST_CHARACTERS = 800


class Pastes:
    def __init__(self) -> None:
        self._texts: list[str] = []

    def folded(self, text: str) -> str:
        """What stands in the input line for a paste: the text itself, if it is short."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= MOST_LINES and len(text) <= MOST_CHARACTERS:
            return text
        self._texts.append(text)
        return f"[pasted text {len(self._texts)}: {lines} lines]"

    def unfolded(self, text: str) -> str:
        def whole(match: re.Match[str]) -> str:
            number = int(match[1])
            return self._texts[number - 1] if 0 < number <= len(self._texts) else match[0]

        return re.sub(r"\[pasted text (\d+): \d+ lines\]", whole, text)
