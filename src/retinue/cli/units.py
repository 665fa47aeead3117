"""Times and sizes as people write them: 90, 30s, 10m, 2h, 30d; 500MB, 2GB."""

from __future__ import annotations

import re
import time

from retinue.errors import ConfigError
from retinue.types import seconds_of

_BYTES = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "k": 1000, "m": 1000**2, "g": 1000**3}

_ZERO = re.compile(r"\s*0+(?:\.0+)?\s*[smhd]?\s*", re.I)


def seconds(text: str, *, what: str) -> float:
    return _seconds(text, what, "90, 30s, 10m, 2h or 7d")


def age(text: str, *, what: str) -> float:
    """Seconds that something has to be old. 0 is an age too: all there is."""
    return 0.0 if _ZERO.fullmatch(text) else seconds(text, what=what)


def size(text: str, *, what: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in _BYTES or float(match[1]) <= 0:
        raise _unclear(what, text, "500MB or 2GB")
    return int(float(match[1]) * _BYTES[match[2].lower()])


def _seconds(text: str, what: str, examples: str) -> float:
    if _ZERO.fullmatch(text):
        raise ConfigError(f"{what} {text!r} is no time", fix=f"give more than 0, like {examples}")
    try:
        return seconds_of(text, what)
    except ValueError:
        raise _unclear(what, text, examples) from None


def _unclear(what: str, text: str, examples: str) -> ConfigError:
    return ConfigError(f"{what} {text!r} cannot be understood", fix=f"write it like {examples}")


def since(text: str, *, what: str) -> float:
    """The moment that long ago, or at the beginning of a day written as 2026-11-30."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            return time.mktime(time.strptime(text, "%Y-%m-%d"))
        except ValueError:
            raise ConfigError(f"{what} {text!r} is no day", fix="write it like 2026-11-30") from None
    return time.time() - _seconds(text, what, "2h, 7d or 2026-11-30")
