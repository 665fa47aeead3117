"""How long something is, as people write it."""

from __future__ import annotations

import re

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_of(written: str, what: str) -> float:
    """Seconds of a text like 90, 30s, 10m, 2h or 7d."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d+)?)\s*([A-Za-z]*)\s*", written)
    if match is None or match[2].lower() not in _SECONDS or float(match[1]) <= 0:
        raise ValueError(f"{what} {written!r} cannot be understood: write it like 90, 30s, 10m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2].lower()]
