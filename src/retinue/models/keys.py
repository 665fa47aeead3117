"""Several keys of one provider, and which of them to use now.

A key that was rate limited or refused rests for a while; the others are used meanwhile, the one that was
limited longest ago first. Used by `wire`, which takes a key for each call, and by `retry`, which asks
whether another key is free. A key never appears in a repr, an error or a log: `mask` takes it out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

AUTH_REST = 600.0
QUOTA_REST = 3600.0
LIMIT_REST = 5.0
SHORTEST_KEY = 4

# What keys of the known providers look like, for those that a provider quotes half hidden.
_LOOKS_LIKE_KEY = re.compile(
    r"\b(?:sk|gsk|xai|pk|rk|tgp|r8|key)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}|(?<=\bBearer )\S{8,}"
)


class Key:
    """One key. `until` is when its rest ends, `limited` when it was last sent to rest; `told` if the provider
    itself has said until when."""

    __slots__ = ("limited", "secret", "told", "until")

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.until = 0.0
        self.limited = 0.0
        self.told = False

    def __repr__(self) -> str:
        return "Key(***)"


class KeyPool:
    """The keys of a provider. An empty pool is a provider that needs none."""

    def __init__(
        self, keys: tuple[str, ...], *, provider: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.provider = provider
        self._keys = [Key(secret) for secret in dict.fromkeys(keys)]
        self._clock = clock

    def __repr__(self) -> str:
        return f"KeyPool({self.provider}, {len(self._keys)} keys)"

    def __len__(self) -> int:
        return len(self._keys)

    def take(self) -> Key | None:
        """The key for the next call: never blocks. When all rest, the one that is free first."""
        if not self._keys:
            return None
        if len(self._keys) == 1:
            return self._keys[0]
        now = self._clock()
        free = [key for key in self._keys if key.until <= now]
        if free:
            return min(free, key=lambda key: key.limited)
        return min(self._keys, key=lambda key: key.until)

    def rest(self, key: Key | None, seconds: float, *, told: bool = False) -> None:
        """Leave a key alone for a while; `told` by the provider for how long."""
        if key is not None:
            key.limited = self._clock()
            key.until, key.told = max((key.until, key.told), (key.limited + seconds, told))

    def resets(self) -> float | None:
        """Seconds until the first key is free again of which the provider has said when. None if none is
        known, or one is free."""
        if not self._keys or self.wait() == 0:
            return None
        return min((key.until - self._clock() for key in self._keys if key.told), default=None)

    def wait(self) -> float:
        """Seconds until a key is free: 0 when one is."""
        if not self._keys:
            return 0.0
        return max(0.0, min(key.until for key in self._keys) - self._clock())

    def mask(self, text: str) -> str:
        """The text without any key in it. What is too short to be one would only make holes in words."""
        for key in self._keys:
            if len(key.secret) >= SHORTEST_KEY and key.secret in text:
                text = text.replace(key.secret, "***")
        return _LOOKS_LIKE_KEY.sub("***", text)


def find_keys(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Every key in the named variables: comma-separated, and in `NAME_2`, `NAME_3` and so on."""
    found: list[str] = []
    for name in names:
        number = 1
        while True:
            raw = environ.get(name if number == 1 else f"{name}_{number}")
            if raw is None and number > 1:
                break
            found.extend(part.strip() for part in (raw or "").split(",") if part.strip())
            number += 1
    return tuple(dict.fromkeys(found))
