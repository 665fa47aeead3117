"""Fetching for the whole tree: one guard, one session, one cache, one pool of readers.

`app` makes one `Web`, the tools call `page`, `extract` and `search`. Every hop of a redirect is checked
like the first, and held against the rules of whoever asked; robots.txt is asked; equal requests at the same
time become one. It sends no cookies and no credentials, and it never reads more than its settings allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import importlib.metadata
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.errors import Refused, ToolError
from retinue.settings import WebSettings
from retinue.types import MAX_IMAGE, Image, Source, image_type
from retinue.web.content import kind_of, media_type
from retinue.web.extraction import Extracted, ExtractJob
from retinue.web.framing import frame
from retinue.web.guard import Guard, shown
from retinue.web.host_pace import HostPace
from retinue.web.page import Job, Mode, Page
from retinue.web.pages import Cache, Cached, CachedPages, FetchedBody
from retinue.web.pool import Pool
from retinue.web.robots import MOST_BYTES as ROBOTS_BYTES
from retinue.web.robots import Robots, RobotsAnswer, RobotsFile, RobotsJob
from retinue.web.shared_pacing import Recache
from retinue.web.status import explain
from retinue.web.together import Together
from retinue.web.urls import BadUrl, Target, join, take_apart
from retinue.web.worker import AnyAnswer, AnyJob, ConversionFailed

if TYPE_CHECKING:
    from retinue.web.search import Searcher, SearchOutcome
    from retinue.web.wire import Hop, Resolve, WebSession

Forbids = Callable[[str], Refused | None]
"""Why an address may not be reached, by the rules of whoever asks, or None: the rest of a sentence."""

HOPS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
ACCEPT = (
    "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, application/pdf;q=0.8, "
    "application/json;q=0.8, application/xml;q=0.7, text/*;q=0.7, */*;q=0.5"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """An answer and its text. `cached`: nothing was sent this time."""

    answer: FetchedBody
    page: Page

    def source(self, saved_as: str | None = None) -> Source:
        """What a report may cite. The page's own canonical URL is no alias: a page may claim any."""
        aliases = tuple(url for url in dict.fromkeys(self.answer.hops) if url != self.answer.url)
        return Source(
            url=self.answer.url,
            title=self.page.title,
            fetched_at=self.answer.fetched_at,
            status=self.answer.status,
            sha256=self.answer.sha256,
            saved_as=saved_as,
            aliases=aliases,
        )


_DECIDE = {"allow_hosts", "proxy", "robots", "max_bytes", "searxng_url", "brave_url", "tavily_url"}


def _kept_for(scope: str, settings: WebSettings, user_agent: str) -> str:
    """The scope of what is kept. Whoever may reach other hosts, or asks others, gets other pages: what one
    project was allowed to fetch is not there for another that is not."""
    decisive = json.dumps([{name: getattr(settings, name) for name in _DECIDE}, user_agent], sort_keys=True)
    return f"{scope} {hashlib.sha256(decisive.encode()).hexdigest()[:16]}"


class Web:
    """`cached` and `cache` are the store's; `scope` keeps tenants apart; `environ` holds search keys."""

    def __init__(
        self,
        settings: WebSettings,
        *,
        cached: Cached | None = None,
        cache: Cache | None = None,
        recache: Recache | None = None,
        scope: str = "web",
        contact: str | None = None,
        environ: Mapping[str, str] | None = None,
        resolve: Resolve | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        guard: Guard | None = None,
        pool: Pool | None = None,
    ) -> None:
        self.settings = settings
        self.guard = guard or Guard(settings.allow_hosts)
        self.wall = wall
        self.user_agent = user_agent(contact)
        kept_for = _kept_for(scope, settings, self.user_agent)
        self._pages = CachedPages(cached, cache, scope=kept_for, ttl=settings.cache_ttl, wall=wall)
        self._environ = os.environ if environ is None else environ
        self._resolve = resolve
        self._clock = clock
        self._pool = pool or Pool()
        self._shares_pool = pool is not None
        self._robots = Robots(self._load_robots, self._ask_robots, clock=clock)
        self._wire: WebSession | None = None
        self._searcher: Searcher | None = None
        self._together = Together()
        self._hosts = HostPace(settings.host_interval, recache, wall=wall, clock=clock)

    async def __aenter__(self) -> Web:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End what is under way, the sessions and the child processes."""
        await self._together.close()
        if self._searcher is not None:
            await self._searcher.close()
        await self._robots.close()
        if self._wire is not None:
            await self._wire.close()
        if not self._shares_pool:
            await self._pool.close()

    # ---- what tools call

    async def page(self, url: str, mode: Mode = "page", forbids: Forbids | None = None) -> Fetched:
        """A page as text. Raises `ToolError`."""
        answer = await self.get(url, forbids)
        job = Job(
            body=answer.body,
            content_type=answer.content_type,
            url=answer.url,
            mode=mode,
            most=self.settings.max_bytes,
            cut=bool(answer.cut),
        )
        page = await self._run(job, answer.url)
        if not isinstance(page, Page):
            raise AssertionError(f"a page was asked for, not {type(page).__name__}")
        if page.problem:
            raise ToolError(
                f"{shown(answer.url)} cannot be read: {page.problem} ({_type_and_size(answer)}). "
                "Use another source."
            )
        if answer.cut:
            page = msgspec.structs.replace(page, notes=(answer.cut, *page.notes))
        return Fetched(answer=answer, page=page)

    async def extract(
        self,
        url: str,
        *,
        fields: tuple[str, ...] = (),
        schema: Mapping[str, Any] | None = None,
        table: int = 0,
        forbids: Forbids | None = None,
    ) -> tuple[Fetched, Extracted]:
        """The data of a page, and the page it is from."""
        fetched = await self.page(url, forbids=forbids)
        answer = fetched.answer
        extracted = await self.extract_from(
            answer.body,
            answer.content_type,
            answer.url,
            fields=fields,
            schema=schema,
            table=table,
            cut=bool(answer.cut),
        )
        return fetched, extracted

    async def extract_from(
        self,
        body: bytes,
        content_type: str,
        name: str,
        *,
        fields: tuple[str, ...] = (),
        schema: Mapping[str, Any] | None = None,
        table: int = 0,
        cut: bool = False,
    ) -> Extracted:
        """The data of a body that is already here, like a saved page."""
        job = ExtractJob(
            body=body,
            content_type=content_type,
            url=name,
            fields=fields,
            schema="" if schema is None else json.dumps(schema),
            table=table,
            cut=cut,
        )
        extracted = await self._run(job, name)
        if not isinstance(extracted, Extracted):
            raise AssertionError(f"data was asked for, not {type(extracted).__name__}")
        if extracted.problem:
            raise ToolError(f"nothing extracted from {shown(name)}: {extracted.problem}.")
        return extracted

    async def search(self, queries: list[str], max_results: int) -> SearchOutcome:
        if self._searcher is None:
            from retinue.web.search import Searcher

            self._searcher = Searcher(
                self.settings,
                environ=self._environ,
                user_agent=self.user_agent,
                pages=self._pages,
                clock=self._clock,
            )
        return await self._searcher.search(queries, max_results)

    def frame(self, text: str, what: str) -> str:
        return frame(text, what=what)

    # ---- fetching

    def inside(self, *urls: str) -> tuple[str, ...]:
        """Of these addresses the hosts of private networks."""
        targets: list[Target] = []
        for url in urls:
            with contextlib.suppress(BadUrl):
                targets.append(take_apart(url))
        return tuple(dict.fromkeys(each.authority for each in targets if self.guard.is_inside(each)))

    async def get(self, url: str, forbids: Forbids | None = None) -> FetchedBody:
        """The body behind a URL, from the cache while it is fresh. Raises `ToolError`.

        `forbids` is held against every address that a redirect leads to, before it is asked for; what was
        asked for itself is the caller's to judge.
        """
        target = self.guard.check(url)
        kept = await self._pages.get(target.url)
        if kept is not None and self._pages.is_fresh(kept):
            for hop in kept.hops[1:]:
                _refuse_forbidden(target.url, hop, forbids)
            return kept
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await self._load(target, kept, forbids)
        except TimeoutError:
            raise ToolError(
                f"{shown(target.url)} was not fetched: it took longer than {self.settings.timeout:g} seconds "
                "(web.timeout). Try it once more later, or use another source."
            ) from None

    async def picture(self, url: str) -> Image:
        """The picture at a URL, for a provider that takes no addresses. Raises `ToolError`."""
        wire, target, hops = await self._open_wire(), self.guard.check(url), ()
        try:
            async with asyncio.timeout(self.settings.timeout):
                while True:
                    hops = (*hops, target.url)
                    hop = await wire.get(
                        target, headers={"Accept": "image/*"}, most=MAX_IMAGE, wanted=lambda kind, head: True
                    )
                    if hop.status not in REDIRECTS or "location" not in hop.headers:
                        break
                    target = self._next(target, hop, hops)
        except TimeoutError:
            why = f"it took longer than {self.settings.timeout:g} seconds (web.timeout)"
            raise ToolError(f"{shown(url)} was not fetched: {why}") from None
        if not 200 <= hop.status < 300:
            raise explain(shown(target.url), hop.status, hop.headers)
        if hop.cut or image_type(hop.body) is None:
            why = f"it has more than {MAX_IMAGE:,} bytes" if hop.cut else "it is no PNG, JPEG, GIF or WebP"
            raise ToolError(f"{shown(url)} cannot be shown: {why}")
        return Image.from_bytes(hop.body)

    async def _load(self, target: Target, stale: FetchedBody | None, forbids: Forbids | None) -> FetchedBody:
        """Follow an address to its end. Those who ask for the same share each hop, not the way: what one of
        them may reach, another may not."""
        hops: tuple[str, ...] = ()
        while True:
            hops = (*hops, target.url)
            if self.settings.robots:
                await self._robots.check(target, forbids)
            visit = partial(self._visit, target, stale, hops)
            found = await self._together.run(f"{hops[0]} {target.url}", visit)
            if isinstance(found, FetchedBody):
                return found
            _refuse_forbidden(hops[0], found.url, forbids)
            target = found

    async def _visit(
        self, target: Target, stale: FetchedBody | None, hops: tuple[str, ...]
    ) -> FetchedBody | Target:
        """What an address gives, the last of `hops`: an answer, or where it redirects to."""
        wire = await self._open_wire()
        await self._pool.warm()
        async with self._hosts.turn(target, self.settings.timeout):
            hop = await wire.get(
                target,
                headers=self._headers(target, stale),
                most=self.settings.max_bytes,
                wanted=_is_readable,
            )
        if hop.status in REDIRECTS and "location" in hop.headers:
            return self._next(target, hop, hops)
        if hop.status == 304 and stale is not None:
            fresh = msgspec.structs.replace(stale, fetched_at=self.wall())
            await self._pages.put(hops[0], fresh)
            return fresh
        if not 200 <= hop.status < 300:
            raise explain(shown(target.url), hop.status, hop.headers)
        answer = self._answer(target, hop, hops)
        if hop.unwanted:
            raise ToolError(
                f"{shown(target.url)} is not text ({_type_and_size(answer, hop)}), so it was not read. "
                "Look for a page that describes it."
            )
        if "no-store" not in hop.headers.get("cache-control", "").lower() and "ended" not in hop.cut:
            await self._pages.put(hops[0], answer)
        return answer

    def _next(self, target: Target, hop: Hop, hops: tuple[str, ...]) -> Target:
        """Where a redirect leads, if it may be followed."""
        try:
            onward = self.guard.check(join(target.url, hop.headers["location"]))
        except BadUrl as error:
            raise ToolError(f"{shown(hops[0])} redirects to a bad URL: {error}.") from None
        except ToolError as error:
            raise type(error)(f"{shown(hops[0])} redirects to a URL that is not fetched: {error}") from None
        if onward.url in hops:
            raise ToolError(
                f"{shown(hops[0])} was not fetched: it redirects in a circle. Use another source."
            )
        if len(hops) > HOPS:
            raise ToolError(
                f"{shown(hops[0])} was not fetched: more than {HOPS} redirects. Use another source."
            )
        return onward

    def _answer(self, target: Target, hop: Hop, hops: tuple[str, ...]) -> FetchedBody:
        return FetchedBody(
            url=target.url,
            hops=hops,
            status=hop.status,
            content_type=hop.headers.get("content-type", ""),
            body=hop.body,
            sha256=hop.sha256,
            fetched_at=self.wall(),
            cut=hop.cut,
            etag=hop.headers.get("etag", ""),
            modified=hop.headers.get("last-modified", ""),
            inside=self.inside(*hops),
        )

    def _headers(self, target: Target, stale: FetchedBody | None) -> dict[str, str]:
        headers = {"Accept": ACCEPT}
        if stale is not None and stale.url == target.url:
            if stale.etag:
                headers["If-None-Match"] = stale.etag
            if stale.modified:
                headers["If-Modified-Since"] = stale.modified
        return headers

    async def _open_wire(self) -> WebSession:
        if self._wire is not None:
            return self._wire
        # The HTTP library takes a third of a second to load: not while the loop waits.
        await asyncio.to_thread(importlib.import_module, "retinue.web.wire")
        from retinue.web.wire import STALL_SECONDS, WebSession

        self._wire = self._wire or WebSession(
            self.guard,
            user_agent=self.user_agent,
            proxy=self.settings.proxy,
            stall=min(STALL_SECONDS, self.settings.timeout),
            resolve=self._resolve,
        )
        return self._wire

    # ---- the workers and robots.txt

    async def _run(self, job: AnyJob, name: str) -> AnyAnswer:
        try:
            answer = await self._pool.run(job)
        except ToolError as error:
            raise ToolError(f"{shown(name)}: {error}") from None
        if isinstance(answer, ConversionFailed):
            raise ToolError(f"{shown(name)}: {answer.reason}. Use another source.")
        return answer

    async def _ask_robots(self, job: RobotsJob) -> bool:
        answer = await self._run(job, job.url)
        return isinstance(answer, RobotsAnswer) and answer.allowed

    async def _load_robots(self, url: str) -> RobotsFile:
        target = self.guard.check(url)
        try:
            async with asyncio.timeout(self.settings.timeout):
                wire = await self._open_wire()
                hop = await wire.get(target, headers={"Accept": "text/plain"}, most=ROBOTS_BYTES)
        except TimeoutError:
            raise ToolError(f"{shown(url)} took longer than {self.settings.timeout:g} seconds") from None
        if hop.status not in REDIRECTS or "location" not in hop.headers:
            return RobotsFile(status=hop.status, text=hop.body.decode("utf-8", "replace").lstrip("\ufeff"))
        try:
            onward = self.guard.check(join(target.url, hop.headers["location"]))
        except BadUrl:
            return RobotsFile(status=404)
        return RobotsFile(status=hop.status, onward=onward.url)


def _refuse_forbidden(first: str, onward: str, forbids: Forbids | None) -> None:
    why = None if forbids is None else forbids(onward)
    if why is not None:
        text = f"{shown(first)} was not fetched: it redirects to {shown(onward, 2000)}, {why}"
        raise Refused(text, not_run=why.not_run)


def _is_readable(content_type: str, head: bytes) -> bool:
    return kind_of(content_type, head) != "binary"


def _type_and_size(answer: FetchedBody, hop: Hop | None = None) -> str:
    kind = media_type(answer.content_type)[:60] or "unknown type"
    declared = "" if hop is None else hop.headers.get("content-length", "")
    if hop is None:
        return f"{kind}, {len(answer.body):,} bytes"
    return f"{kind}, {int(declared):,} bytes" if declared.isdigit() else f"{kind}, size unknown"


def user_agent(contact: str | None) -> str:
    """`retinue/1.0 (+https://operator.example)`: who fetches, and whom to write to."""
    try:
        version = importlib.metadata.version("retinue")
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    known = "".join(c for c in contact or "" if c.isprintable() and c not in "()").strip()
    return f"retinue/{version} (+{known})" if known else f"retinue/{version}"
