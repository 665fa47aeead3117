"""What a person entered: words that they typed, and texts that they pasted.

Only what is typed on the line is read for `!`, `/` and `@`; a stranger may have written the rest. A large
paste is folded to one word in the input line and unfolded when it is sent. Used by the screen, its history
and `Talk`.
"""

from __future__ import annotations

import re

from retinue.errors import ConfigError

MOST_LINES = 8
MOST_CHARACTERS = 800
MOST_READ = 120
"""Characters of one line that is taken for typed, although it was pasted and reads like a command."""
MOST_KEPT = 8_000_000
"""Characters of pastes that are kept for the lines that name them; the oldest go first."""
MENTION = re.compile(r"(?<!\S)@(\S+)")
PLACE = "\ufffc"
"""Stands in `Entered.own` for what was not typed."""
BEGINS, ENDS = "\x02", "\x03"
"""Around a paste where a line is written down."""
_FOLDED = re.compile(r"\[pasted text (\d+): \d+ lines?\]")
_MARKED = re.compile(f"{BEGINS}([^{BEGINS}{ENDS}]*){ENDS}")


class Entered(str):
    """A text as it is sent; `own` is that which the person typed, with a mark in place of each paste."""

    __slots__ = ("own",)
    own: str

    def __new__(cls, text: str, own: str | None = None) -> Entered:
        made = super().__new__(cls, text)
        made.own = text if own is None else own
        return made

    @classmethod
    def words(cls, text: str) -> Entered:
        """A text of which nothing was typed: it came through a pipe, say."""
        return cls(text, PLACE)

    def after_word(self) -> Entered:
        """All but the first word."""
        text, own = (f"{each} ".split(maxsplit=1)[1:] for each in (str(self), self.own))
        return Entered("".join(text).strip(), "".join(own).strip())

    @property
    def pasted(self) -> bool:
        return PLACE in self.own


class Pastes:
    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._given, self._size = 0, 0

    def folded(self, text: str) -> str:
        """What stands in the input line for a paste: the text itself, if it is short and does nothing."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = text.replace(BEGINS, "").replace(ENDS, "").replace(PLACE, "")
        lines = text.strip("\n").count("\n") + 1
        is_read = text.lstrip().startswith(("!", "/")) or MENTION.search(text) is not None
        if lines <= (1 if is_read else MOST_LINES) and len(text) <= (
            MOST_READ if is_read else MOST_CHARACTERS
        ):
            return text
        return self.fold(text)

    def fold(self, text: str) -> str:
        """The word that stands for a text."""
        self._given += 1
        self._texts[self._given] = text
        self._size += len(text)
        while self._size > MOST_KEPT and len(self._texts) > 1:
            self._size -= len(self._texts.pop(next(iter(self._texts))))
        lines = text.strip("\n").count("\n") + 1
        return f"[pasted text {self._given}: {lines} line{'' if lines == 1 else 's'}]"

    def unfolded(self, line: str) -> Entered:
        """What is sent for a line."""
        return Entered(_FOLDED.sub(self._whole, line), _FOLDED.sub(self._place, line))

    def refolded(self, text: str, before: str) -> str:
        """The line for a text that was `before` and came back from an editor. Pastes that are as they were
        are folded again; if one was changed, nobody can tell any more what of the text was typed."""
        for match in _FOLDED.finditer(before):
            whole = self._whole(match)
            if whole == match[0]:
                continue
            if whole not in text:
                return self.fold(text)
            text = text.replace(whole, match[0], 1)
        return text

    def marked(self, line: str) -> str:
        """The line with its pastes, to be written down."""

        def whole(match: re.Match[str]) -> str:
            found = self._texts.get(int(match[1]))
            return match[0] if found is None else f"{BEGINS}{found}{ENDS}"

        return _FOLDED.sub(whole, line)

    def unmarked(self, written: str) -> str:
        """The line that was written down, its pastes folded."""
        return _MARKED.sub(lambda match: self.fold(match[1]), written)

    def _whole(self, match: re.Match[str]) -> str:
        number = int(match[1])
        if number in self._texts or not 0 < number <= self._given:
            return self._texts.get(number, match[0])
        raise ConfigError(f"{match[0]} is no longer kept", fix="paste it again")

    def _place(self, match: re.Match[str]) -> str:
        return PLACE if int(match[1]) in self._texts else match[0]
