"""Searching the web: several queries at once, the next backend when one fails, each page once.

`fetch.Web` makes one `Searcher`. An answer that failed or came back empty from a backend that hides its
blocks is "search unavailable", never "nothing found": a model that is told there is nothing believes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from retinue.errors import ToolError
from retinue.settings import WebSettings
from retinue.web.framing import frame
from retinue.web.pages import CachedPages
from retinue.web.urls import key

DOWN_SECONDS = 30.0
LONGEST_QUERY = 400
BACKEND_SECONDS = 25.0


class Result(Struct, frozen=True, kw_only=True):
    title: str
    url: str
    snippet: str = ""
    date: str = ""


class BackendUnavailable(Exception):
    """A backend could not search; the text says why, and never holds a key.

    `said` is what the backend said of it: strangers' words, which the text does not hold.
    """

    def __init__(self, why: str, *, said: str = "") -> None:
        super().__init__(why)
        self.said = said


class Backend(Protocol):
    name: str

    async def search(self, query: str, most: int) -> list[Result]:
        """Raises `BackendUnavailable`. An empty list: the backend vouches for there being nothing."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryAnswered:
    """One query. `results` leaves out what an earlier one found; `failures` are the backends passed over,
    `said` what they said of it themselves."""

    query: str
    backend: str = ""
    results: tuple[Result, ...] = ()
    repeated: int = 0
    failures: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return bool(self.backend)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOutcome:
    answered: tuple[QueryAnswered, ...]


class Searcher:
    def __init__(
        self,
        settings: WebSettings,
        *,
        environ: Mapping[str, str],
        user_agent: str,
        pages: CachedPages,
        clock: Callable[[], float] = time.monotonic,
        backends: list[Backend] | None = None,
    ) -> None:
        self._pages = pages
        self._clock = clock
        self._backends = make_backends(settings, environ, user_agent) if backends is None else backends
        self._down: dict[str, tuple[float, BackendUnavailable]] = {}

    async def close(self) -> None:
        for backend in self._backends:
            await backend.close()

    async def search(self, queries: list[str], max_results: int) -> SearchOutcome:
        """Raises `ToolError` if no query could be answered."""
        asked = list(dict.fromkeys(_sendable(query) for query in queries if query.strip()))
        if not asked:
            raise ToolError("no query: give one to five, each a few words.")
        # A backend refuses a longer one, and would be taken for broken: for this query and everybody's next.
        if (longest := max(map(len, asked))) > LONGEST_QUERY:
            raise ToolError(
                f"a query has {longest:,} characters: the limit is {LONGEST_QUERY}; a few words do."
            )
        answers = await asyncio.gather(*(self._one(query, max_results) for query in asked))
        if not any(answer.ok for answer in answers):
            raise ToolError(self._all_failed(answers))
        return SearchOutcome(answered=tuple(_each_page_once(answers)))

    async def _one(self, query: str, most: int) -> QueryAnswered:
        failures, said = list[str](), list[str]()
        for backend in self._backends:
            try:
                results = await self._ask(backend, query, most)
            except BackendUnavailable as error:
                failures.append(f"{backend.name}: {error}")
                said += [error.said] if error.said else []
                continue
            return QueryAnswered(
                query=query, backend=backend.name, results=tuple(results[:most]), failures=tuple(failures)
            )
        return QueryAnswered(query=query, failures=tuple(failures), said=tuple(said))

    async def _ask(self, backend: Backend, query: str, most: int) -> list[Result]:
        name = f"search {backend.name} {most} {query.casefold()}"
        kept = await self._pages.read(name, list[Result])
        if kept is not None:
            return kept
        until, why = self._down.get(backend.name, (0.0, None))
        if why is not None and self._clock() < until:
            raise BackendUnavailable(str(why), said=why.said)
        try:
            results = await self._within(backend, query, most)
        except BackendUnavailable as error:
            # The other queries of this moment would only meet the same wall, and wait for it in turn.
            self._down[backend.name] = (self._clock() + DOWN_SECONDS, error)
            raise
        results = [result for result in results if result.url.startswith(("http://", "https://"))]
        if results:
            await self._pages.write(name, results)
        return results

    async def _within(self, backend: Backend, query: str, most: int) -> list[Result]:
        try:
            async with asyncio.timeout(BACKEND_SECONDS):
                return await backend.search(query, most)
        except TimeoutError:
            raise BackendUnavailable(f"no answer in {BACKEND_SECONDS:g} seconds") from None

    def _all_failed(self, answers: list[QueryAnswered]) -> str:
        why = list(dict.fromkeys(failure for answer in answers for failure in answer.failures))
        tried = "; ".join(why) or "no backend is configured"
        said = "\n".join(dict.fromkeys(words for answer in answers for words in answer.said))
        engines = f"\n{frame(said, what='names of its engines')}" if said else ""
        return (
            f"search unavailable ({tried}). This does not mean that there is nothing to find. "
            f"Fetch a page whose address you know, or go on without searching and say so. {self._advice()}"
            f"{engines}"
        )

    def _advice(self) -> str:
        have = {backend.name for backend in self._backends}
        if "brave" not in have:
            return "For a person: set BRAVE_API_KEY and add 'brave' to web.search."
        if "tavily" not in have:
            return "For a person: set TAVILY_API_KEY and add 'tavily' to web.search."
        if "searxng" not in have:
            return "For a person: set web.searxng_url and add 'searxng' to web.search."
        return "For a person: 'retinue doctor' shows which backends are configured."


def _sendable(query: str) -> str:
    """On one line, without halves of characters, and without "!bangs", by which an engine hands a query on to
    any site it knows."""
    words = query.encode("utf-8", "replace").decode().split()
    return " ".join(word for word in (each.strip("!").lstrip("\\") for each in words) if word)


def _each_page_once(answers: list[QueryAnswered]) -> list[QueryAnswered]:
    seen: set[str] = set()
    out: list[QueryAnswered] = []
    for answer in answers:
        new: list[Result] = []
        for result in answer.results:
            if key(result.url) not in seen:
                seen.add(key(result.url))
                new.append(result)
        out.append(
            QueryAnswered(
                query=answer.query,
                backend=answer.backend,
                results=tuple(new),
                repeated=len(answer.results) - len(new),
                failures=answer.failures,
            )
        )
    return out


def make_backends(settings: WebSettings, environ: Mapping[str, str], user_agent: str) -> list[Backend]:
    """The configured backends in order. One that lacks its key or address is there, and says so."""
    from retinue.web.search_api import Brave, SearXNG, Tavily
    from retinue.web.search_ddgs import Ddgs

    made: list[Backend] = []
    for name in settings.search:
        match name:
            case "ddgs":
                made.append(Ddgs(proxy=settings.proxy))
            case "searxng":
                made.append(SearXNG(settings.searxng_url, user_agent=user_agent))
            case "brave":
                made.append(
                    Brave(settings.brave_url, environ.get("BRAVE_API_KEY", ""), user_agent=user_agent)
                )
            case "tavily":
                made.append(
                    Tavily(settings.tavily_url, environ.get("TAVILY_API_KEY", ""), user_agent=user_agent)
                )
    return made
