"""How much one client may ask for: requests by token buckets, bodies by size, the rest by number.

A bucket holds so many requests and fills up again at a rate. Buckets that are full again are forgotten.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

MOST_CLIENTS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimits:
    """Rates are per second and client: `wrong_tokens` stops guessing, `starts` run-away bills."""

    requests: float = 100
    requests_burst: int = 400
    starts: float = 2
    starts_burst: int = 30
    wrong_tokens: float = 0.2
    wrong_tokens_burst: int = 10
    body_bytes: int = 1_000_000
    start_bytes: int = 12_000_000
    body_seconds: float = 30
    streams: int = 200
    """Streams that one client may hold open."""
    head_seconds: float = 10
    """For the head of a request, from its first byte or from the connection."""
    stalled_seconds: float = 20
    """In which a client has to take something of what it is sent."""
    connections: int = 4000
    connections_of_one: int = 1000
    """Connections of all, and of one address."""


class Buckets:
    """Token buckets by client."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, now: float | None = None) -> float:
        """Seconds until this client may have one more; 0 if it may now."""
        left = self._left(client, time.monotonic() if now is None else now)
        return 0.0 if left >= 1 else (1 - left) / self.rate

    def take(self, client: str, now: float | None = None) -> float:
        """Take one. Returns the seconds to wait if there is none, and takes nothing then."""
        now = time.monotonic() if now is None else now
        left = self._left(client, now)
        if left < 1:
            return (1 - left) / self.rate
        self._held[client] = (left - 1, now)
        self._held.move_to_end(client)
        while len(self._held) > MOST_CLIENTS:
            self._held.popitem(last=False)
        return 0.0

    def _left(self, client: str, now: float) -> float:
        left, at = self._held.get(client, (float(self.burst), now))
        return min(float(self.burst), left + (now - at) * self.rate)
