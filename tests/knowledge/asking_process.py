"""One process of several that share a database, for `test_shared_pacing`: asks arXiv as often as told.

`python asking_process.py DATABASE ADDRESS SECONDS FIRST COUNT`: SECONDS is the limit's interval.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from retinue.settings import KnowledgeSettings
from retinue.store.sqlite import SqliteStore
from retinue.tools.knowledge import knowledge_tools
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.web.pacing import Limit


async def main(database: str, address: str, seconds: str, first: str, count: str) -> None:
    store = SqliteStore(Path(database))
    await store.open()
    client = KnowledgeClient(
        KnowledgeSettings(base_urls={"arxiv": address}, request_timeout=60),
        cached=store.cached,
        cache=store.cache,
        recache=store.recache,
        limits={"arxiv": Limit(interval=float(seconds), concurrency=1)},
        warn=lambda _: None,
    )
    [search] = [tool for tool in knowledge_tools(client) if tool.name == "arxiv_search"]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for number in range(int(first), int(first) + int(count)):
        await search.call(search.parse(json.dumps({"query": f"topic{number}"})), None)  # pyright: ignore[reportArgumentType]
    await client.close()
    await store.close()


asyncio.run(main(*sys.argv[1:]))
