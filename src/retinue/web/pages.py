"""What was fetched, kept for the whole tree: pages while they are fresh and to revalidate after, searches.

`fetch` and `search` use it; the bytes live in the store, under the scope of one tenant. A store that fails
makes fetching slower, never wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from retinue.errors import StoreError

Cached = Callable[[str, str], Awaitable[tuple[bytes, float] | None]]
Cache = Callable[[str, str, bytes, float], Awaitable[None]]
T = TypeVar("T")

KEPT_TO_REVALIDATE = 24
"""A page with a validator is kept this many times longer than it is fresh."""


class FetchedBody(Struct, frozen=True, kw_only=True):
    """A body that was really fetched. `hops` are the URLs on the way, the asked one first."""

    url: str
    hops: tuple[str, ...]
    status: int
    content_type: str
    body: bytes
    sha256: str
    fetched_at: float
    cut: str = ""
    etag: str = ""
    modified: str = ""
    inside: tuple[str, ...] = ()
    """The hosts of private networks that it came from or by."""


class CachedPages:
    """`cached` and `cache` are the store's; without them, or with a `ttl` of 0, nothing is kept."""

    def __init__(
        self,
        cached: Cached | None,
        cache: Cache | None,
        *,
        scope: str,
        ttl: float,
        wall: Callable[[], float],
    ) -> None:
        self._cached, self._cache = (cached, cache) if ttl else (None, None)
        self._scope, self._ttl, self._wall = scope, ttl, wall

    def is_fresh(self, answer: FetchedBody) -> bool:
        return self._wall() < answer.fetched_at + self._ttl

    async def get(self, url: str) -> FetchedBody | None:
        """A page, fresh or not."""
        return await self.read(f"page {url}", FetchedBody)

    async def put(self, url: str, answer: FetchedBody) -> None:
        again = answer.etag or answer.modified
        await self.write(f"page {url}", answer, self._ttl * (KEPT_TO_REVALIDATE if again else 1))

    async def read(self, name: str, kind: type[T]) -> T | None:
        if self._cached is None:
            return None
        with contextlib.suppress(StoreError, msgspec.DecodeError):
            found = await self._cached(self._scope, name)
            if found is not None:
                return msgspec.msgpack.decode(found[0], type=kind)
        return None

    async def write(self, name: str, value: object, ttl: float | None = None) -> None:
        if self._cache is None:
            return
        with contextlib.suppress(StoreError):
            await self._cache(
                self._scope, name, msgspec.msgpack.encode(value), self._ttl if ttl is None else ttl
            )
