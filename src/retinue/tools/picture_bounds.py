"""How many pictures a tool's result may have, and how large: all are logged, and sent with every turn.

Called for every result before it is logged. Never fails: what is left out, the text says.
"""

from __future__ import annotations

from dataclasses import replace

from retinue.tools.base import ToolResult
from retinue.types import Image

MOST_SHOWN = 20
MOST_BYTES = 12_000_000
"""Of all pictures of a result together: three of the largest, as a request may have."""


def bounded(result: ToolResult) -> ToolResult:
    """The result with the pictures that can be shown, and words for those that cannot. Takes some
    milliseconds: not for an event loop."""
    kept: list[Image] = []
    reasons: dict[str, int] = {}
    size = 0
    for image in result.images:
        why = _fault(image)
        if not why and len(kept) >= MOST_SHOWN:
            why = f"a result shows {MOST_SHOWN} at most"
        if not why and size + image.size > MOST_BYTES:
            why = f"those of a result have {MOST_BYTES:,} bytes together at most"
        if why:
            reasons[why] = reasons.get(why, 0) + 1
            continue
        kept.append(image)
        size += image.size
    if not reasons:
        return result
    said = "\n".join(f"[{_count(number)} left out: {why}]" for why, number in reasons.items())
    text = f"{result.text}\n\n{said}" if result.text else said
    return replace(result, text=text, images=tuple(kept))


def _fault(image: Image) -> str:
    try:
        image.checked()
    except ValueError as error:
        return str(error)
    return ""


def _count(number: int) -> str:
    return "1 picture is" if number == 1 else f"{number} pictures are"
