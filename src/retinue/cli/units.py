"""Times and sizes as people write them: 90, 30s, 10m, 2h, 30d; 500MB, 2GB."""

from __future__ import annotations

import re
import time

from retinue.errors import ConfigError

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604_800}
_BYTES = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "k": 1000, "m": 1000**2, "g": 1000**3}


def seconds(text: str, *, what: str) -> float:
    return _number(text, _SECONDS, what, "90, 30s, 10m, 2h or 7d")


def size(text: str, *, what: str) -> int:
    return int(_number(text, _BYTES, what, "500MB or 2GB"))


def _number(text: str, units: dict[str, int], what: str, examples: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in units or float(match[1]) <= 0:
        raise ConfigError(f"{what} {text!r} cannot be understood", fix=f"write it like {examples}")
    return float(match[1]) * units[match[2].lower()]


def since(text: str, *, what: str) -> float:
    """The moment that long ago, or at the beginning of a day written as 2026-11-30."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            return time.mktime(time.strptime(text, "%Y-%m-%d"))
        except ValueError:
            raise ConfigError(f"{what} {text!r} is no day", fix="write it like 2026-11-30") from None
    return time.time() - _number(text, _SECONDS, what, "2h, 7d or 2026-11-30")
