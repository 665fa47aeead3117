"""The local web, and fetchers that may reach it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from local_web import Kept, Site

from retinue.settings import WebSettings
from retinue.tools.base import ToolContext
from retinue.web.fetch import Web
from retinue.web.pool import Pool
from retinue.workspace import Files
from retinue.workspace_folder import Workspace

MakeWeb = Callable[..., Web]
MakeSite = Callable[..., Awaitable[Site]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a module share one event loop, so that they can share one pool of workers."""
    for item in items:
        if item.path.parent == Path(__file__).parent and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(loop_scope="module")
async def make_site() -> AsyncIterator[MakeSite]:
    sites: list[Site] = []

    async def make(**how: Any) -> Site:
        site = await Site(**how).start()
        sites.append(site)
        return site

    yield make
    for site in sites:
        await site.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def site(make_site: MakeSite) -> Site:
    return await make_site()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pool() -> AsyncIterator[Pool]:
    """One for all tests of a module: starting Python for each would take most of their time."""
    pool = Pool()
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="module")
async def make_web(site: Site, pool: Pool) -> AsyncIterator[MakeWeb]:
    """A fetcher that may reach `site`. Keyword arguments of `WebSettings` and of `Web` both do."""
    async with AsyncExitStack() as stack:

        def make(kept: Kept | None = None, **how: Any) -> Web:
            names = set(WebSettings.__struct_fields__)
            chosen = {"allow_hosts": (site.authority,), "timeout": 60.0, "host_interval": 0.0}
            chosen |= {name: value for name, value in how.items() if name in names}
            rest = {name: value for name, value in how.items() if name not in names}
            if kept is not None:
                rest |= {"cached": kept.cached, "cache": kept.cache, "wall": kept.wall}
            web = Web(WebSettings(**chosen), **{"pool": pool, "environ": {}, **rest})
            stack.push_async_callback(web.close)
            return web

        yield make


@pytest.fixture
def web(make_web: MakeWeb) -> Web:
    return make_web()


@pytest.fixture
def context(tmp_path: Path):
    """A tool context with a workspace; `denied` collects what was refused."""
    workspace = Workspace(root=tmp_path)
    denied: list[tuple[str, str]] = []
    files = Files(None, workspace)
    context = ToolContext(
        run_id="run",
        root_id="run",
        depth=0,
        agent="test",
        call_id="call",
        files=files,
        progress=lambda _: None,
        denied=lambda what, detail: denied.append((what, detail)),
    )
    yield context, denied
    workspace.close()
