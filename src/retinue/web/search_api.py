"""Search backends that answer in JSON: a SearXNG of one's own, Brave, Tavily.

Their addresses come from the operator's settings and may be private, so they have a session of their own
and never share a connection with pages that a model asked for. A key is sent in a header only, never
follows a redirect, and is in no message.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from retinue.web.search import BackendUnavailable, Result
from retinue.web.status import retry_after

if TYPE_CHECKING:
    from aiohttp import ClientSession

MOST_BYTES = 2_000_000


class _Api:
    """One JSON API. `label` is how people know it."""

    def __init__(self, label: str, *, user_agent: str) -> None:
        self.label = label
        self._user_agent = user_agent
        self._session: ClientSession | None = None

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        advice: Mapping[int, str] | None = None,
    ) -> dict[str, Any]:
        """The JSON object it answers with. Raises `BackendUnavailable`."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"User-Agent": self._user_agent, "Accept": "application/json"},
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=20),
            )
        try:
            async with self._session.request(
                method, url, headers=headers, params=params, json=body, allow_redirects=False
            ) as response:
                data = await response.content.read(MOST_BYTES)
                while len(data) < MOST_BYTES and (
                    more := await response.content.read(MOST_BYTES - len(data))
                ):
                    data += more
                status, answered = response.status, {k.lower(): v for k, v in response.headers.items()}
        except TimeoutError:
            raise BackendUnavailable("no answer in 20 seconds") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise BackendUnavailable(f"out of reach ({type(error).__name__})") from None
        if status != 200:
            raise BackendUnavailable(_why(status, answered, advice or {}))
        try:
            value: Any = json.loads(data)
        except (ValueError, RecursionError):
            raise BackendUnavailable("its answer is not JSON") from None
        if not isinstance(value, dict):
            raise BackendUnavailable("its answer is not a JSON object")
        return cast("dict[str, Any]", value)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _why(status: int, headers: Mapping[str, str], advice: Mapping[int, str]) -> str:
    if status in advice:
        return f"{status}, {advice[status]}"
    if status == 429:
        wait = retry_after(headers)
        return "429, rate limited" + (f", again in {wait} seconds" if wait is not None else "")
    if status in (401, 403):
        return f"{status}, the key was rejected"
    return f"status {status}"


def _plain(value: Any) -> str:
    return " ".join(html.unescape(re.sub(r"<[^<>]*>", "", str(value or ""))).split())


def _results(items: Any, snippet: str, date: str) -> list[Result]:
    found: list[Result] = []
    for item in cast("list[Any]", items if isinstance(items, list) else []):
        if isinstance(item, dict):
            entry = cast("dict[str, Any]", item)
            found.append(
                Result(
                    title=_plain(entry.get("title")),
                    url=str(entry.get("url") or ""),
                    snippet=_plain(entry.get(snippet)),
                    date=str(entry.get(date) or "")[:10],
                )
            )
    return found


class SearXNG:
    name = "searxng"

    def __init__(self, url: str | None, *, user_agent: str) -> None:
        self._url = (url or "").rstrip("/")
        self._api = _Api("SearXNG", user_agent=user_agent)

    async def search(self, query: str, most: int) -> list[Result]:
        if not self._url:
            raise BackendUnavailable("web.searxng_url is not set")
        data = await self._api.ask(
            "GET",
            f"{self._url}/search",
            params={"q": query, "format": "json"},
            advice={403: "JSON is switched off there: its settings.yml needs 'json' under search.formats"},
        )
        results = _results(data.get("results"), "content", "publishedDate")
        silent: Any = data.get("unresponsive_engines")
        if not results and silent:
            each = cast("list[Any]", silent if isinstance(silent, list) else [silent])[:5]
            names = ", ".join(str(next(iter(cast("Any", e)), "") if isinstance(e, list) else e) for e in each)
            raise BackendUnavailable("none of its engines answered", said=names[:500])
        return results[:most]

    async def close(self) -> None:
        await self._api.close()


class Brave:
    name = "brave"

    def __init__(self, url: str, api_key: str, *, user_agent: str) -> None:
        self._url, self._key = url.rstrip("/"), api_key.strip()
        self._api = _Api("Brave", user_agent=user_agent)

    async def search(self, query: str, most: int) -> list[Result]:
        if not self._key:
            raise BackendUnavailable("BRAVE_API_KEY is not set")
        data = await self._api.ask(
            "GET",
            f"{self._url}/res/v1/web/search",
            headers={"X-Subscription-Token": self._key},
            params={"q": query[:400], "count": str(min(most, 20))},
            advice={422: "the key or the query was not accepted"},
        )
        web = data.get("web")
        items: Any = cast("dict[str, Any]", web).get("results") if isinstance(web, dict) else None
        return _results(items, "description", "page_age")

    async def close(self) -> None:
        await self._api.close()


class Tavily:
    name = "tavily"

    def __init__(self, url: str, api_key: str, *, user_agent: str) -> None:
        self._url, self._key = url.rstrip("/"), api_key.strip()
        self._api = _Api("Tavily", user_agent=user_agent)

    async def search(self, query: str, most: int) -> list[Result]:
        if not self._key:
            raise BackendUnavailable("TAVILY_API_KEY is not set")
        data = await self._api.ask(
            "POST",
            f"{self._url}/search",
            headers={"Authorization": f"Bearer {self._key}"},
            body={"query": query[:400], "max_results": min(most, 20)},
            advice={432: "the plan's limit is used up", 433: "the pay-as-you-go limit is used up"},
        )
        return _results(data.get("results"), "content", "published_date")

    async def close(self) -> None:
        await self._api.close()
