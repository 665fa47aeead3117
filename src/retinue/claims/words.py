"""Words of a text, in a form in which two texts can be compared.

Called by the other modules of this package. Words are folded (case, accents kept), common endings taken
off, and scripts without blanks (Chinese, Japanese, Thai …), and Korean, whose
words end in particles, are cut into pairs of characters. Linear in
the text's length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from retinue.claims.lists import lines_of, listed

_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)*")
_UNSPACED = re.compile(
    "[\u0e00-\u0e7f\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
_PARTICLES = frozenset(listed("particles.txt"))
_KANA = re.compile("[\u3040-\u309f]{1,2}")
_ENGLISH_SMALL = frozenset(listed("english_small_words.txt"))
_EUROPEAN_SMALL = frozenset(listed("small_words.txt"))
_STOP = _ENGLISH_SMALL | _EUROPEAN_SMALL


@dataclass(frozen=True, slots=True)
class TextWord:
    """`stem` is what is compared; `start` and `end` are its place in the text it was read from."""

    stem: str
    text: str
    start: int
    end: int

    @property
    def content(self) -> bool:
        """Whether it says something: not an article, not a preposition."""
        if self.text[0] >= "\u2e80":
            return _PARTICLES.isdisjoint(self.text) and not _KANA.fullmatch(self.text)
        return self.text.casefold() not in _STOP and (len(self.stem) > 1 or not self.stem.isascii())


def words(text: str) -> list[TextWord]:
    """The words of a text in their order."""
    found: list[TextWord] = []
    for match in _WORD.finditer(text):
        piece = match[0]
        if piece.isascii() or not _UNSPACED.search(piece):
            found.append(TextWord(stem(piece), piece, match.start(), match.end()))
        else:
            found += _pairs(piece, match.start())
    return found


def _pairs(piece: str, at: int) -> list[TextWord]:
    """Pairs of characters of a script without blanks; the rest of the piece as it is."""
    found: list[TextWord] = []
    last = 0
    for run in _UNSPACED.finditer(piece):
        if run.start() > last:
            found.append(
                TextWord(
                    stem(piece[last : run.start()]), piece[last : run.start()], at + last, at + run.start()
                )
            )
        text = run[0]
        for i in range(max(1, len(text) - 1)):
            found.append(
                TextWord(text[i : i + 2], text[i : i + 2], at + run.start() + i, at + run.start() + i + 2)
            )
        last = run.end()
    if last < len(piece):
        found.append(TextWord(stem(piece[last:]), piece[last:], at + last, at + len(piece)))
    return found


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """A word without its case and its common endings, in English and in Cyrillic script; in Arabic and Hebrew
    without what is written together with it. Others match as they are."""
    folded = unicodedata.normalize("NFKC", word).casefold().replace("’", "'")
    folded = folded.removesuffix("'s").replace("'", "")
    if len(folded) >= 4 and "\u0400" <= folded[0] <= "\u06ff":
        return _other_script(folded)
    if not folded.isascii() or not folded.isalpha() or len(folded) < 4:
        return folded
    return _without_ending(folded)


_ENDINGS = tuple(
    (ending, instead.strip("-"), int(least))
    for ending, instead, least in map(str.split, lines_of("endings.txt"))
)


_CYRILLIC_ENDINGS = tuple(listed("cyrillic_endings.txt"))
_JOINED = tuple(listed("joined_beginnings.txt"))
_POINTS = re.compile("[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f]")


def _other_script(word: str) -> str:
    if word[0] < "\u0530":
        ending = next((one for one in _CYRILLIC_ENDINGS if word.endswith(one)), "")
        return word.removesuffix(ending) if len(word) - len(ending) >= 3 else word
    word = _POINTS.sub("", word)
    joined = next((one for one in _JOINED if word.startswith(one)), "")
    return word.removeprefix(joined) if len(word) - len(joined) >= 3 else word


def _without_ending(word: str) -> str:
    if word.endswith(("ss", "us", "is")) and len(word) < 7:
        return word
    for ending, instead, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 4 else word


def leaning(found: Sequence[TextWord]) -> Literal["english", "european", "other", ""]:
    """What kind of language a text is in, as far as script and small words tell; `""` where they do not."""
    if not found:
        return ""
    if sum(word.text[0] > "\u036f" for word in found) * 2 > len(found):
        return "other"
    folded = [word.text.casefold() for word in found]
    ours = sum(word in _ENGLISH_SMALL and word not in _EUROPEAN_SMALL for word in folded)
    theirs = sum(word in _EUROPEAN_SMALL and word not in _ENGLISH_SMALL for word in folded)
    return "english" if ours > theirs else "european" if theirs > ours else ""
