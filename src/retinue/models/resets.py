"""When a limit resets, where a provider says so in other ways than by Retry-After. Called by `failures`.

OpenAI and those who speak like it: `x-ratelimit-reset-requests: 6m0s` beside its `-remaining-requests`, or
one `x-ratelimit-reset` as a moment. Anthropic: `anthropic-ratelimit-tokens-reset` as a date beside its
`-remaining`, and `anthropic-ratelimit-unified-reset` as a moment. Gemini: the quota of a day, which ends at
midnight in California whatever its RetryInfo says. A limit of which something remains is not the one that was
reached.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, cast

_RESET = re.compile(
    r"(?P<who>x-ratelimit|anthropic-ratelimit)-(?:reset(?:-(?P<openai>[a-z-]+))?|(?P<anthropic>[a-z-]+)-reset)"
)
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_IN_SECONDS = (86_400.0, 3600.0, 60.0, 1.0, 0.001)
_MILLISECONDS, _SECONDS = 1e11, 1e9
"""From which number on one is a moment, and no stretch of time."""
DAYS_END = "America/Los_Angeles"


def resets_in(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds until the limit is gone that was reached. None if the headers do not say."""
    now = time.time() if now is None else now
    found: list[float] = []
    for name, value in headers.items():
        match = _RESET.fullmatch(name.lower())
        if match is None or _remains(headers, match):
            continue
        seconds = _seconds(value.strip(), now)
        if seconds is not None:
            found.append(max(0.0, seconds))
    return max(found, default=None)


def _remains(headers: Mapping[str, str], match: re.Match[str]) -> bool:
    """Whether something is left of what this reset is of."""
    who, part = match["who"], match["openai"] or match["anthropic"]
    name = f"{who}-remaining" if part is None else f"{who}-remaining-{part}"
    left = headers.get(f"{who}-{part}-remaining" if match["anthropic"] else name)
    try:
        return left is not None and float(left) > 0
    except ValueError:
        return False


def _seconds(value: str, now: float) -> float | None:
    """`90`, `6m0s`, `17ms`, a moment in seconds or milliseconds since 1970, or a date."""
    try:
        number = float(value)
    except ValueError:
        pass
    else:
        if not 0 <= number < 1e15:
            return None
        return (
            number / 1000 - now if number > _MILLISECONDS else number - now if number > _SECONDS else number
        )
    span = _SPAN.fullmatch(value)
    if span is not None and value:
        return sum(float(part) * unit for part, unit in zip(span.groups(), _IN_SECONDS, strict=True) if part)
    try:
        return datetime.fromisoformat(value).timestamp() - now
    except (ValueError, OverflowError):
        return None


def quota_reset(details: Any, *, now: float | None = None) -> float | None:
    """Seconds until Gemini's quota of a day is there again, if that is what was used up."""
    if not any("PerDay" in each for each in _quotas(details)):
        return None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        zone = ZoneInfo(DAYS_END)
    except ZoneInfoNotFoundError:
        return None
    moment = time.time() if now is None else now
    today = datetime.fromtimestamp(moment, zone)
    midnight = (today + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight.timestamp() - moment


def _quotas(details: Any) -> list[str]:
    """The names of the quotas that were used up."""
    names: list[str] = []
    for item in cast("list[Any]", details) if isinstance(details, list) else ():
        broken = cast("dict[str, Any]", item).get("violations") if isinstance(item, dict) else None
        for each in cast("list[Any]", broken) if isinstance(broken, list) else ():
            name = cast("dict[str, Any]", each).get("quotaId") if isinstance(each, dict) else None
            names += [name] if isinstance(name, str) else []
    return names
