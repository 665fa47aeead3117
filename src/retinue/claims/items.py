"""What a list of results says about one of them.

Called by `claims.report`. A lookup gives all it found in one text, numbered; what stands under another number
was said of something else.
"""

from __future__ import annotations

import re

from retinue.types import Source

_ITEM = re.compile(r"^\[\d{1,4}\] (?=\S)", re.MULTILINE)


def own_part(text: str, source: Source) -> str:
    """The items of a text that name a source, or the whole text where it is no list or none does."""
    starts = [match.start() for match in _ITEM.finditer(text)]
    if len(starts) < 2 or not source.url:
        return text
    items = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    heads = [item.split("\n", 3)[:3] for item in items]
    own = [item for item, head in zip(items, heads, strict=True) if source.url in head]
    return "\n\n".join(own) or text
