"""A local web of invented things for the tests of research, and a writer of reports who is told what to write.

Two hundred pages, each about one thing, with numbers, names and dates of its own; a search that finds them by
their words, as SearXNG answers; everything on the loopback of this machine.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from retinue.events import RunFinished
from retinue.store.connect import connect
from retinue.testing.script import call
from retinue.types import AssistantMessage, ModelRequest, ToolMessage, UserMessage

FIRST = ("Har", "Vel", "Or", "Mar", "Tes", "Cor", "Is", "Quil", "Lin", "Hol")
SECOND = ("row", "den", "sa", "vane", "sel", "ter", "lon", "dal", "min", "gard")
KINDS = ("Tower", "Bridge")
GIVEN = ("Ida", "Peter", "Amara", "Daniel", "Lucia", "Elias", "Marta", "Thomas", "Ingrid", "Jonas")
FAMILY = ("Kolstad", "Lund", "Osei", "Roth", "Ferrante", "Wren", "Conti", "Gale", "Bergman", "Haldor")


@dataclass(frozen=True, kw_only=True)
class Thing:
    """Something that a page is about."""

    name: str
    path: str
    metres: int
    year: int
    maker: str
    visitors: int

    @property
    def sentences(self) -> tuple[str, str, str]:
        """What a true report says of it."""
        return (
            f"The {self.name} is {self.metres} metres high.",
            f"It was designed by {self.maker}.",
            f"The {self.name} opened in {self.year}.",
        )

    @property
    def page(self) -> str:
        body = (
            f"The {self.name} is {self.metres} metres high and stands above the river. "
            f"The {self.name} was designed by {self.maker} after a competition.",
            f"The {self.name} opened in {self.year}. It has about {self.visitors:,} visitors a year, most of "
            "them in summer, and a small museum at its foot.",
        )
        paragraphs = "".join(f"<p>{html.escape(each)}</p>" for each in body)
        title = html.escape(self.name)
        return (
            f"<!doctype html><html><head><title>{title}</title></head>"
            f"<body><h1>{title}</h1>{paragraphs}</body></html>"
        )


def things(count: int = 200) -> list[Thing]:
    made: list[Thing] = []
    for at in range(count):
        name = f"{FIRST[at % 10]}{SECOND[at // 10 % 10]} {KINDS[at // 100 % 2]}"
        made.append(
            Thing(
                name=name,
                path=f"/{name.lower().replace(' ', '-')}",
                metres=40 + at * 3,
                year=1800 + at,
                maker=f"{GIVEN[at % 10]} {FAMILY[(at // 10 + at) % 10]}",
                visitors=10_000 + at * 350,
            )
        )
    return made


class PlantedWeb:
    """The pages and the search, served on the loopback. `hits` counts what was fetched."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages = dict(pages)
        self.hits: Counter[str] = Counter()
        self._runner: web.AppRunner | None = None
        self._held: dict[str, asyncio.Event] = {}
        self._asked = asyncio.Condition()
        self.port = 0

    async def __aenter__(self) -> PlantedWeb:
        app = web.Application()
        app.router.add_get("/search", self._search)
        app.router.add_get("/{name:.*}", self._page)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.authority}{path}"

    @property
    def settings(self) -> dict[str, Any]:
        return settings_of(self.authority)

    def hold(self, path: str) -> None:
        """Let nobody have this page before `release`."""
        self._held[path] = asyncio.Event()

    def release(self) -> None:
        for event in self._held.values():
            event.set()

    async def all_asked(self, paths: Sequence[str]) -> None:
        """Until each of these pages was asked for."""
        async with self._asked:
            await self._asked.wait_for(lambda: all(self.hits[path] for path in paths))

    async def children_done(self, db: Path, root_id: str, count: int) -> None:
        """Until so many children of a run in another process have ended: told by its database."""
        store, news = connect(f"sqlite://{db}"), asyncio.Event()
        await store.open()
        leave = store.subscribe(root_id, news.set)
        try:
            while True:
                news.clear()
                ends = [e for e in await store.events(root_id) if isinstance(e, RunFinished)]
                if sum(end.run_id != root_id for end in ends) >= count:
                    return
                await news.wait()
        finally:
            leave()
            await store.close()

    async def _page(self, request: web.Request) -> web.Response:
        async with self._asked:
            self.hits[request.path] += 1
            self._asked.notify_all()
        if request.path in self._held:
            await self._held[request.path].wait()
        text = self.pages.get(request.path)
        if text is None:
            return web.Response(status=404, text="no such page")
        return web.Response(text=text, content_type="text/html")

    async def _search(self, request: web.Request) -> web.Response:
        self.hits["/search"] += 1
        wanted = set(re.findall(r"\w+", request.query.get("q", "").lower()))
        ranked = sorted(
            (
                (len(wanted & set(re.findall(r"\w+", text.lower()))), path)
                for path, text in self.pages.items()
            ),
            key=lambda pair: (-pair[0], pair[1]),
        )
        results = [
            {"title": path.strip("/"), "url": self.url(path), "content": ""}
            for hits, path in ranked[:10]
            if hits
        ]
        return web.Response(text=json.dumps({"results": results}), content_type="application/json")


def settings_of(authority: str) -> dict[str, Any]:
    return {
        "web.allow_hosts": [authority],
        "web.search": ["searxng"],
        "web.searxng_url": f"http://{authority}",
        "web.host_interval": 0,
        "web.robots": False,
    }


def asked(request: ModelRequest) -> str:
    """The first thing that a run was told."""
    return next(message.text for message in request.messages if isinstance(message, UserMessage))


def turns(request: ModelRequest) -> int:
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


def results(request: ModelRequest) -> list[ToolMessage]:
    return [message for message in request.messages if isinstance(message, ToolMessage)]


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Plays a research agent and its children: it reads these addresses, a child for each, and writes `body`,
    in which {1} stands for the number of the first address in the table of sources. It mends nothing."""

    urls: Sequence[str]
    body: str

    def __call__(self, request: ModelRequest) -> Any:
        if "research_plan" not in {tool.name for tool in request.tools} and not _was_root(request):
            return self._child(request)
        done = [message.name for message in results(request)]
        if "research_plan" not in done:
            return call("research_plan", questions=[f"What does {url} say?" for url in self.urls])
        if "parallel_tasks" not in done:
            tasks = [{"agent_id": "agentic-fetch", "prompt": f"url: {url}"} for url in self.urls]
            return call("parallel_tasks", tasks=tasks)
        if "research_sources" not in done:
            return call("research_sources")
        last = results(request)[-1]
        if last.name == "research_report" and "You are done" in last.text:
            return "The report is written."
        table = next(message.text for message in results(request) if message.name == "research_sources")
        return call("research_report", title="What was found", body=self._numbered(table))

    def _child(self, request: ModelRequest) -> Any:
        url = asked(request).removeprefix("url: ").strip()
        if turns(request) == 0:
            return call("web_fetch", url=url)
        return f"It was read. Source: {url}"

    def _numbered(self, table: str) -> str:
        body = self.body
        for at, url in enumerate(self.urls, start=1):
            number = re.search(rf"\[(\d+)\] [^\n]*{re.escape(url)}(?:\s|$)", table)
            assert number is not None, (url, table)
            body = body.replace(f"{{{at}}}", f"[{number[1]}]")
        return body


def _was_root(request: ModelRequest) -> bool:
    return any(message.name.startswith("research_") for message in results(request))
