"""Who or what, in scripts without capital letters and blanks: where two sentences run alike, up to a place
in which each has another word.

Called by `verdicts`. Only behind characters that open such a place ("is", "by"), and where both go on alike
or end: anything else may be the same in other words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from retinue.claims.lists import listed

LONGEST = 200
"""Characters of a sentence that are compared."""
_OPEN = frozenset(listed("slots.txt"))
_WORD = re.compile("[\u30a0-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af·・]{2,12}")
_STOPS = re.compile("[。！？．!?、，,\\s]+$")


def other_words(claim: str, sentence: str) -> Iterator[tuple[str, str]]:
    """What a claim has in the place of something else in the source, and that."""
    here, there = (_STOPS.sub("", text.strip())[:LONGEST] for text in (claim, sentence))
    codes = SequenceMatcher(None, here, there, autojunk=False).get_opcodes()
    for at, (kind, first, last, low, high) in enumerate(codes):
        if kind != "replace" or at == 0:
            continue
        before = codes[at - 1]
        if before[2] - before[1] < 2 or here[first - 1] not in _OPEN:
            continue
        one, other = _head(here[first:last]), _head(there[low:high])
        if _WORD.fullmatch(one) and _WORD.fullmatch(other):
            yield one, other


def _head(text: str) -> str:
    """The word itself, without the grammar that follows it."""
    return re.split("[\u3040-\u309f。，、,\\s]", text, maxsplit=1)[0]
