"""Watchers as they are in the world: they read a while, the connection breaks, they come back with a cursor."""

from __future__ import annotations

import asyncio
import random
import zlib
from dataclasses import dataclass, field

import aiohttp


@dataclass
class Watcher:
    """Follows one stream to the end of its run. `seen` are places with a checksum of what came there."""

    url: str
    dice: random.Random
    longest: int = 1500
    """Events after which it loses its connection, at the latest."""
    seen: list[tuple[int, int]] = field(default_factory=list)
    connections: int = 0
    live: int = 0
    ended: bool = False

    @property
    def cursor(self) -> int:
        return self.seen[-1][0] if self.seen else 0

    async def watch(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=2**16) as session:
            while not self.ended:
                try:
                    await self._connect(session)
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)  # the server is away for a moment

    async def _connect(self, session: aiohttp.ClientSession) -> None:
        self.connections += 1
        patience = self.dice.randint(1, self.longest)
        async with session.get(self.url, headers={"Last-Event-ID": str(self.cursor)}) as response:
            assert response.status == 200, await response.text()
            rest = b""
            async for chunk in response.content.iter_any():
                *whole, rest = (rest + chunk).split(b"\n\n")
                for frame in whole:
                    self._take(frame)
                    patience -= 1
                    if patience <= 0 or self.ended:
                        response.close()  # in the middle of whatever was on its way
                        return

    def _take(self, frame: bytes) -> None:
        if not frame.startswith(b"id: "):
            self.live += frame.startswith(b"data: ")
            return
        place, _, data = frame.partition(b"\n")
        self.seen.append((int(place[4:]), zlib.crc32(data)))
        # The root's alone: children end before it.
        self.ended = b'"type":"run_finished"' in data[:40] and b'"parent_id":null' in data[:200]


def checksum(event: bytes) -> int:
    return zlib.crc32(b"data: " + event)
