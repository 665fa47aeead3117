"""robots.txt: may this program fetch this page?

`fetch` asks before each page and each redirect. An answer is kept for an hour per origin. As RFC 9309 has
it, a missing file allows everything and a server error forbids everything; a site that cannot be reached
is left to the page's own fetch, whose error says more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from retinue.errors import Refused, ToolError
from retinue.web.guard import shown
from retinue.web.urls import Target

AGENT = "retinue"
MOST_BYTES = 500_000
KEPT_SECONDS = 3600.0
KEPT_ORIGINS = 1000
HOPS = 5


class RobotsJob(Struct, frozen=True, kw_only=True, tag="robots"):
    text: str
    url: str


class RobotsAnswer(Struct, frozen=True, kw_only=True, tag="robots"):
    allowed: bool


def may_fetch(job: RobotsJob) -> RobotsAnswer:
    from protego import Protego

    return RobotsAnswer(allowed=Protego.parse(job.text).can_fetch(job.url, AGENT))


class _Rules(Struct, frozen=True, kw_only=True):
    """`text` None: everything is forbidden, since the server failed with `status`. `onward`: they stand
    there."""

    text: str | None
    status: int
    until: float
    onward: str = ""


class RobotsFile(Struct, frozen=True, kw_only=True):
    """What one address gives: a status and a text, or where it redirects to."""

    status: int
    text: str = ""
    onward: str = ""


Load = Callable[[str], Awaitable[RobotsFile]]
"""What the URL of a robots.txt gives; raises `ToolError` where it cannot be reached."""
Ask = Callable[[RobotsJob], Awaitable[bool]]
MayNot = Callable[[str], Refused | None]
"""Why whoever asks must not go on to an address, or None if they may."""


class Robots:
    def __init__(self, load: Load, ask: Ask, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._load, self._ask, self._clock = load, ask, clock
        self._known: dict[str, _Rules] = {}
        self._loading: dict[str, asyncio.Future[_Rules]] = {}

    async def close(self) -> None:
        loading = list(self._loading.values())
        for future in loading:
            future.cancel()
        await asyncio.gather(*loading, return_exceptions=True)

    async def check(self, target: Target, may_not: MayNot | None = None) -> None:
        """Raises `Refused` if the site does not want this page fetched.

        A redirect is followed as that of a page is, where the rules of whoever asks let it. Where they do
        not, the file counts as missing.
        """
        rules = await self._rules(f"{target.origin}/robots.txt")
        for _ in range(HOPS):
            if not rules.onward or (may_not is not None and may_not(rules.onward) is not None):
                break
            rules = await self._rules(rules.onward)
        if rules.text is None:
            raise Refused(
                f"{shown(target.url)} was not fetched: {target.origin}/robots.txt answered {rules.status}, "
                "which means that nothing may be fetched for now. Use another source."
            )
        if not rules.text:
            return
        if not await self._ask(RobotsJob(text=rules.text, url=target.url)):
            raise Refused(
                f"{shown(target.url)} was not fetched: {target.origin}/robots.txt asks programs to stay away "
                "from it. Use another source; a person can set web.robots = false."
            )

    async def _rules(self, url: str) -> _Rules:
        known = self._known.get(url)
        if known is not None and known.until > self._clock():
            return known
        loading = self._loading.get(url)
        if loading is None:
            loading = asyncio.ensure_future(self._read(url))
            self._loading[url] = loading
            loading.add_done_callback(lambda _: self._loading.pop(url, None))
        rules = await asyncio.shield(loading)
        self._known.pop(url, None)
        self._known[url] = rules
        while len(self._known) > KEPT_ORIGINS:
            self._known.pop(next(iter(self._known)))
        return rules

    async def _read(self, url: str) -> _Rules:
        kept = KEPT_SECONDS
        try:
            found = await self._load(url)
        except Refused:
            found = RobotsFile(status=403)
        except ToolError:
            # Not reached: say nothing, and ask again next time.
            found, kept = RobotsFile(status=0), 0.0
        if found.status >= 500:
            return _Rules(text=None, status=found.status, until=self._clock() + 60)
        text = found.text if 200 <= found.status < 300 else ""
        return _Rules(text=text, status=found.status, until=self._clock() + kept, onward=found.onward)
