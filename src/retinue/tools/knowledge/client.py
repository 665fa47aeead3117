"""The one door to every knowledge source: identity, limits, cache, retries, errors.

`app` makes one `KnowledgeClient` for the whole tree, so that all agents share its lanes and its cache; each
source builds a `Request` and hands over a parser. An answer is cached only after its parser accepted it,
since many sources report errors with status 200. It never shows a key to anyone: not in a URL that is
kept, not in an error, not in a cached body.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote_plus, urljoin, urlsplit

import msgspec

from retinue.errors import ConfigError
from retinue.settings import KnowledgeSettings
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.causes import SourceError
from retinue.tools.knowledge.sources import SOURCES, SourceInfo
from retinue.tools.knowledge.wire import Request, SourceResponse
from retinue.web.pacing import Busy, Clock, Limit, ServerQueue, Sleep
from retinue.web.shared_pacing import Recache, SharedPace
from retinue.web.together import Together

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")
Cached = Callable[[str, str], Awaitable[tuple[bytes, float] | None]]
Cache = Callable[[str, str, bytes, float], Awaitable[None]]

SCOPE = "knowledge"
TRIES = 3
HOPS = 3
MOST_BYTES = 5_000_000
# What parsers look at; the rest of the headers is not worth a place in the cache.
HEADERS = frozenset(
    {"content-type", "retry-after", "location", "mediawiki-api-error", "x-sparql-maxrows", "x-sql-state"}
)


class KnowledgeClient:
    """Asks sources. `cached`, `cache` and `recache` are those of the store; without the first two nothing
    outlives a request, without the last the limits hold for this process alone."""

    def __init__(
        self,
        settings: KnowledgeSettings,
        *,
        cached: Cached | None = None,
        cache: Cache | None = None,
        recache: Recache | None = None,
        environ: Mapping[str, str] | None = None,
        session: Callable[[], ClientSession] | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        wall: Clock = time.time,
        limits: Mapping[str, Limit] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        unknown = sorted(set(settings.base_urls) - set(SOURCES))
        if unknown:
            raise ConfigError(
                f"knowledge.base_urls names no known source: {', '.join(unknown)}",
                fix=f"known are {', '.join(sorted(SOURCES))}",
            )
        self.settings = settings
        self.wall = wall
        self._cached, self._cache = cached, cache
        self._environ = os.environ if environ is None else environ
        self._make_session = session or self._new_session
        self._session: ClientSession | None = None
        self._clock, self._sleep = clock, sleep
        self._limits = dict(limits or {})
        self._warn = warn or logging.getLogger(__name__).warning
        self._warned = False
        self._lanes: dict[str, ServerQueue] = {}
        self._strikes: dict[str, int] = {}
        self._together = Together()
        self._shared = SharedPace(recache, wall=wall, clock=clock, sleep=sleep)

    # ---- what sources build requests from

    @property
    def contact(self) -> str:
        """The operator's address as it may stand in a header."""
        text = "".join(c for c in self.settings.contact or "" if c.isprintable())
        return text.strip().replace("(", "").replace(")", "")

    @property
    def user_agent(self) -> str:
        """`retinue/1.0 (operator) aiohttp/3.14`: the form Wikimedia grants its higher limit to."""
        name = f"retinue/{_version('retinue')}"
        contact = f" ({self.contact})" if self.contact else ""
        return f"{name}{contact} aiohttp/{_version('aiohttp')}"

    def base(self, source: str, lang: str = "en") -> str:
        """The address of a source, in a language where it has several."""
        template = self.settings.base_urls.get(source, SOURCES[source].base)
        return template.replace("{lang}", lang).rstrip("/")

    def is_usual(self, source: str) -> bool:
        """Whether a source has its own address and not one of the operator's."""
        return self.settings.base_urls.get(source, SOURCES[source].base) == SOURCES[source].base

    def key(self, source: str) -> str:
        """The key of a source from the environment, or "" ."""
        info = SOURCES[source]
        return (self._environ.get(info.key, "").strip() if info.key else "") or info.default_key

    def required_key(self, source: str) -> str:
        info = SOURCES[source]
        key = self.key(source)
        if not key:
            raise causes.needs_key(info.label, info.key, info.get_key)
        return key

    def deadline(self) -> float:
        """When a call that starts now must be over. Give it to `ask` if one call asks several times."""
        return self._clock() + self.settings.request_timeout

    # ---- asking

    async def ask(
        self,
        request: Request,
        parse: Callable[[SourceResponse], T],
        *,
        deadline: float | None = None,
        keep: Callable[[T], bool] = lambda _: True,
    ) -> tuple[T, SourceResponse]:
        """The parsed answer, from the cache, from an equal request under way, or from the source.

        Raises `SourceError`. `keep` says whether a good answer is worth caching.
        """
        key = request.key()
        kept = await self._from_cache(key)
        if kept is not None:
            try:
                return parse(kept), kept
            except SourceError:
                pass  # kept by an older parser: ask again
        end = self.deadline() if deadline is None else deadline
        return await self._together.run(key, lambda: self._within(request, parse, end, keep, key))

    async def close(self) -> None:
        """Stop what is under way and close connections."""
        await self._together.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _within(
        self,
        request: Request,
        parse: Callable[[SourceResponse], T],
        deadline: float,
        keep: Callable[[T], bool],
        key: str,
    ) -> tuple[T, SourceResponse]:
        left = max(0.0, deadline - self._clock())
        try:
            async with asyncio.timeout(left):
                value, answer = await self._try(request, parse, deadline)
        except TimeoutError:
            raise causes.timeout(SOURCES[request.source].label, left) from None
        if self._cache is not None and self.settings.cache_ttl > 0 and keep(value):
            await self._cache(SCOPE, key, msgspec.msgpack.encode(answer), self.settings.cache_ttl)
        return value, answer

    async def _try(
        self, request: Request, parse: Callable[[SourceResponse], T], deadline: float
    ) -> tuple[T, SourceResponse]:
        """Up to three times, as long as the deadline allows; a lane that is held back is waited for."""
        for number in range(1, TRIES + 1):
            try:
                return await self._once(request, parse, deadline)
            except SourceError as error:
                if not error.again or number == TRIES or (error.cause == "empty_page" and number > 1):
                    raise
                if error.cause != "rate_limited":
                    pause = 0.5 * 2 ** (number - 1) * random.uniform(0.8, 1.2)  # noqa: S311 only spreads retries
                    if self._clock() + pause > deadline:
                        raise
                    await self._sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _once(
        self, request: Request, parse: Callable[[SourceResponse], T], deadline: float
    ) -> tuple[T, SourceResponse]:
        info = SOURCES[request.source]
        name = info.lane or request.source
        lane = self._lane(name, info)
        held = self._held_name(name, request.source)
        await self._learn_holds(held, lane, request.method)
        url = request.url
        for _ in range(HOPS):
            try:
                async with (
                    lane.turn(request.method, deadline),
                    self._shared.turn(
                        held, lane.limit, seconds=request.timeout or info.timeout, deadline=deadline
                    ),
                ):
                    answer = await self._send(request, url, info, deadline)
                    if answer.status in (301, 302, 303, 307, 308):
                        url = _next_hop(url, answer, info)
                        continue
                    try:
                        self._check_status(request, answer, info)
                        value = parse(answer)
                    except SourceError as error:
                        await self._hold_back(name, held, lane, error)
                        raise
                    self._strikes.pop(name, None)
                    pause = request.pause(answer)
                    if pause:
                        await self._hold(held, lane, pause, request.method)
                    return value, answer
            except Busy as busy:
                left = max(0.0, deadline - self._clock())
                raise causes.rate_limited(
                    info.label, busy.wait, allowed=left, again=False, hint=self._hint(info)
                ) from None
        raise causes.down(info.label, f"more than {HOPS} redirects", again=False)

    # ---- one request over the wire

    async def _send(self, request: Request, url: str, info: SourceInfo, deadline: float) -> SourceResponse:
        import aiohttp
        from yarl import URL

        from retinue.models.http import proxy_for

        most = min(request.timeout or info.timeout, max(0.1, deadline - self._clock()))
        query = {**request.params, **request.secret_params} if url == request.url else {}
        target = URL(url, encoded=True)
        try:
            async with self._open().request(
                "GET" if request.form is None else "POST",
                target.update_query(query) if query else target,
                data=None if request.form is None else dict(request.form),
                headers={"User-Agent": self.user_agent, **request.headers, **request.secret_headers},
                timeout=aiohttp.ClientTimeout(total=most),
                allow_redirects=False,
                proxy=proxy_for(url, self._environ),
            ) as response:
                body = await _read(response, info.label)
                headers = {k.lower(): v for k, v in response.headers.items() if k.lower() in HEADERS}
                status = response.status
        except TimeoutError:
            raise causes.timeout(info.label, most) from None
        except (aiohttp.ClientError, OSError) as error:
            # The type says what happened; the text of some of these errors holds the whole URL.
            raise causes.down(info.label, f"no connection, {type(error).__name__}") from None
        secrets = [*request.secret_params.values(), *request.secret_headers.values()]
        return SourceResponse(
            status=status, headers=headers, body=_without(body, secrets), fetched_at=self.wall()
        )

    def _check_status(self, request: Request, answer: SourceResponse, info: SourceInfo) -> None:
        """Raise what a status means for every source; 200s and what the parser handles pass."""
        status, wait = answer.status, answer.retry_after
        if status == 429 or (status == 503 and wait is not None):
            raise causes.rate_limited(info.label, wait, hint=self._hint(info))
        if status < 300 and answer.is_page and not request.or_page:
            raise causes.no_answer(info.label, "a page for people", answer.start)
        if status < 300 or status in request.handles:
            return
        if status >= 500:
            raise causes.down(info.label, f"status {status}", said=answer.start)
        if status in (401, 403):
            if request.secret_params or request.secret_headers:
                raise causes.key_rejected(info.label, info.key, info.get_key)
            raise causes.down(
                info.label, f"it refused us with status {status}", said=answer.start, again=False
            )
        raise causes.bad_query(info.label, answer.start, detail=f"status {status}")

    # ---- limits

    def _lane(self, name: str, info: SourceInfo) -> ServerQueue:
        if name not in self._lanes:
            unlocked = bool(self.contact) if info.unlock == "contact" else self._environ.get(info.key)
            limit = info.better if info.better is not None and unlocked else info.limit
            self._lanes[name] = ServerQueue(
                self._limits.get(name, limit), clock=self._clock, sleep=self._sleep
            )
        return self._lanes[name]

    def _hint(self, info: SourceInfo) -> str:
        """What the operator could do about a limit."""
        if info.unlock == "contact" and not self.contact:
            return "The limit is higher once the setting knowledge.contact is set."
        if info.unlock == "key" and not self._environ.get(info.key):
            return f"The limit is higher with a key in {info.key} ({info.get_key})."
        return ""

    async def _hold_back(self, name: str, held: str, lane: ServerQueue, error: SourceError) -> None:
        """Keep everyone away from a source that said so; longer each time where it does not say how long."""
        if error.cause == "rate_limited":
            strikes = self._strikes[name] = self._strikes.get(name, 0) + 1
            guess = min(60.0, max(1.0, lane.limit.interval) * 2 ** (strikes - 1))
            await self._hold(held, lane, guess if error.wait is None else error.wait, "")
        elif lane.limit.after_error and error.cause in ("bad_query", "timeout", "down"):
            lane.hold(lane.limit.after_error)

    async def _hold(self, held: str, lane: ServerQueue, wait: float, method: str) -> None:
        """Keep away, and let other processes that share the store know."""
        wait = min(wait, causes.LONGEST_WAIT)
        lane.hold(wait, method)
        if self._cache is not None and wait >= 1:
            until = str(self.wall() + wait).encode()
            await self._cache(SCOPE, f"hold:{held}:{method}", until, wait)

    async def _learn_holds(self, held: str, lane: ServerQueue, method: str) -> None:
        """A ban outlives the process that earned it: whoever shares the store keeps away too."""
        if self._cached is None:
            return
        for part in {"", method}:
            found = await self._cached(SCOPE, f"hold:{held}:{part}")
            if found is not None and (left := float(found[0]) - self.wall()) > 0:
                lane.hold(left, part)

    def _held_name(self, name: str, source: str) -> str:
        """What a ban is remembered by: it is one server's, and an operator's address is another server."""
        if self.is_usual(source):
            return name
        return f"{name}@{hashlib.sha256(self.settings.base_urls[source].encode()).hexdigest()[:16]}"

    # ---- session and cache

    async def _from_cache(self, key: str) -> SourceResponse | None:
        if self._cached is None or self.settings.cache_ttl <= 0:
            return None
        found = await self._cached(SCOPE, key)
        if found is None:
            return None
        try:
            answer = msgspec.msgpack.decode(found[0], type=SourceResponse)
        except msgspec.DecodeError:
            return None
        return msgspec.structs.replace(answer, cached=True)

    def _open(self) -> ClientSession:
        if self._session is None:
            if not self.contact and not self._warned:
                self._warned = True
                self._warn(
                    "knowledge.contact is not set: Wikimedia allows 10 requests per minute to clients that "
                    "name no operator, 200 to those that do. Set it to your URL or e-mail address: it is "
                    "sent in the User-Agent."
                )
            self._session = self._make_session()
        return self._session

    def _new_session(self) -> ClientSession:
        import aiohttp

        # No cookies: what one agent was handed must not follow the next one around. And nothing of the
        # environment: with it the passwords of a `.netrc` would be sent along.
        return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "0"


async def _read(response: ClientResponse, label: str) -> bytes:
    """The body, decompressed, unless it is larger than any honest answer."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(65536):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            response.close()
            raise causes.bad_query(
                label,
                "",
                "Ask for less, for example with LIMIT.",
                detail=f"its answer is larger than {MOST_BYTES:,} bytes",
            )
    return b"".join(parts)


def _without(body: bytes, secrets: list[str]) -> bytes:
    """The body with every key that it echoes taken out."""
    for secret in secrets:
        bare = secret.removeprefix("Bearer ")
        if len(bare) < 4:
            continue  # no key is that short, and replacing it would spoil the text
        for form in {bare, quote_plus(bare)}:
            body = body.replace(form.encode(), b"[key]")
    return body


def _next_hop(url: str, answer: SourceResponse, info: SourceInfo) -> str:
    """Where a redirect leads. Only within the same host: keys and trust belong to that host."""
    try:
        target = urljoin(url, answer.headers.get("location", ""))
        old, new = urlsplit(url), urlsplit(target)
        same = old.hostname == new.hostname and (old.port == new.port or new.scheme == "https")
    except ValueError:
        raise causes.down(info.label, "it sends us to what is no address", again=False) from None
    if not same or new.scheme not in ("http", "https") or (old.scheme, new.scheme) == ("https", "http"):
        raise causes.down(info.label, "it sends us elsewhere", said=new.hostname or "nowhere", again=False)
    return target
