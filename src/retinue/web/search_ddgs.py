"""Search without a key, by way of the `ddgs` library, which scrapes several engines.

Blocks look like empty answers or like plain exceptions, and captchas come with status 200: so whatever is
not a list of results counts as unavailable. One query a second, in a thread, since the library blocks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from retinue.web.search import BackendUnavailable, Result

SECONDS = 8
PAUSE = 1.0

Engine = Callable[[str, int], list[dict[str, Any]]]
"""A query and a number to the library's results; blocks."""


class Ddgs:
    name = "ddgs"

    def __init__(
        self,
        *,
        proxy: str | None = None,
        verify: bool | str = True,
        engine: Engine | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._proxy, self._verify = proxy, verify
        self._engine = engine or self._library
        self._clock, self._sleep = clock, sleep
        self._turn = asyncio.Lock()
        self._next = 0.0

    async def search(self, query: str, most: int) -> list[Result]:
        await self._wait()
        try:
            found = await asyncio.to_thread(self._engine, query, most)
        except ImportError:
            raise BackendUnavailable("the library ddgs is not installed") from None
        except Exception as error:
            # The library raises whatever its engines raise; none of it is a reason to end the run.
            raise BackendUnavailable(f"blocked or out of reach ({type(error).__name__})") from None
        results = [result for result in map(_result, found) if result is not None]
        if not results:
            raise BackendUnavailable("an empty answer, which usually means that it is blocked")
        return results

    async def close(self) -> None:
        pass

    async def _wait(self) -> None:
        async with self._turn:
            pause = self._next - self._clock()
            if pause > 0:
                await self._sleep(pause)
            self._next = self._clock() + PAUSE

    def _library(self, query: str, most: int) -> list[dict[str, Any]]:
        # The library's types are partly unknown; what comes back is checked in `_result`.
        from ddgs import DDGS  # pyright: ignore[reportUnknownVariableType]

        return DDGS(proxy=self._proxy, timeout=SECONDS, verify=self._verify).text(query, max_results=most)


def _result(item: dict[str, Any]) -> Result | None:
    url = str(item.get("href") or item.get("url") or "")
    if not url.startswith(("http://", "https://")):
        return None
    return Result(
        title=" ".join(str(item.get("title") or "").split()),
        url=url,
        snippet=" ".join(str(item.get("body") or item.get("description") or "").split()),
        date=str(item.get("date") or "")[:10],
    )
