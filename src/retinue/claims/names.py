"""Names in a text: runs of words that are written with a capital letter where no sentence begins.

Called by `verdicts`. Scripts without capital letters have no names here, and nothing is said about theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retinue.claims.lists import listed
from retinue.claims.words import TextWord

_NOT_NAMES = frozenset(listed("no_names.txt"))


@dataclass(frozen=True, slots=True)
class Name:
    words: tuple[TextWord, ...]
    begins: bool
    """Whether it stands at the beginning of a sentence, where every word has a capital letter."""

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def acronym(self) -> bool:
        return any(char.isupper() for char in self.words[0].text[1:])

    @property
    def sure(self) -> bool:
        return not self.begins or len(self.words) > 1 or self.acronym


def names(text: str, found: Sequence[TextWord]) -> list[Name]:
    """The names in a sentence, in their order."""
    result: list[Name] = []
    run: list[TextWord] = []
    begins = False
    for at, word in enumerate(found):
        joined = bool(run) and text[run[-1].end : word.start] in (" ", "-", ". ", "\u00a0", " & ")
        if _capital(word):
            if not joined:
                _close(run, begins, result)
                run, begins = [], _begins(text, word, at)
            run.append(word)
        else:
            _close(run, begins, result)
            run = []
    _close(run, begins, result)
    return result


def _capital(word: TextWord) -> bool:
    first = word.text[0]
    return (
        first.isupper()
        and word.text.casefold() not in _NOT_NAMES
        and not word.text.isdigit()
        and len(word.text) > 1
    )


def _begins(text: str, word: TextWord, at: int) -> bool:
    before = text[: word.start].rstrip(" \t*_\"“”'‘’([#>-•")
    return at == 0 or not before or before[-1] in ".!?:;\n"


def _close(run: list[TextWord], begins: bool, result: list[Name]) -> None:
    if run:
        result.append(Name(tuple(run), begins))
