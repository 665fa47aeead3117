"""Spans of what happens in this process, as it happens: hears every event that an app publishes.

Started by the app where a collector is named. A workflow whose beginning was not heard here (one that is
resumed, the next turn of a conversation) is read from its log first; what others did in it is theirs to send.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from retinue.engine.scrub import scrubber
from retinue.errors import ConfigError
from retinue.events import AnyEvent, Event, LiveEvent, RunStarted
from retinue.settings import TelemetrySettings
from retinue.store.base import Store
from retinue.telemetry.content import SpanContent
from retinue.telemetry.environment import TelemetryConfig, configured
from retinue.telemetry.sending import Sender
from retinue.telemetry.spans import SpanReader

log = logging.getLogger("retinue.telemetry")


class LiveTelemetry:
    def __init__(self, config: TelemetryConfig, secrets: Iterable[str], store: Store) -> None:
        self._config = config
        self._store = store
        self._clean = scrubber(secrets)
        self._readers: dict[str, SpanReader] = {}
        self._behind: dict[str, list[AnyEvent]] = {}
        """Events of workflows whose log is being read."""
        self._reading: set[asyncio.Task[None]] = set()
        self.sender = Sender(config)
        self.stop: Callable[[], None] = lambda: None
        """How to hear no more."""

    def hear(self, event: LiveEvent) -> None:
        """Take one event. Never waits, and never raises for what a log may hold."""
        if not isinstance(event, Event):
            return
        root_id = event.root_id
        if root_id in self._behind:
            self._behind[root_id].append(event)
        elif root_id in self._readers:
            self._read(self._readers[root_id], event)
        elif isinstance(event, RunStarted) and event.parent_id is None:
            reader = self._readers[root_id] = self.reader()
            self._read(reader, event)
        else:
            self._behind[root_id] = [event]
            task = asyncio.ensure_future(self._catch_up(root_id))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    def reader(self) -> SpanReader:
        return SpanReader(SpanContent(self._clean, self._config.longest) if self._config.content else None)

    def _read(self, reader: SpanReader, event: AnyEvent) -> None:
        self.sender.put(reader.read(event))
        if reader.idle:
            self._readers.pop(event.root_id, None)

    async def _catch_up(self, root_id: str) -> None:
        """Read a log up to what was heard of it."""
        reader = self.reader()
        try:
            first = self._behind[root_id][0].pos
            for event in await self._store.events(root_id):
                if event.pos < first:
                    reader.read(event)
        except Exception as error:  # a store that is gone ends the run too: here it only ends its spans
            log.warning("telemetry: the log of %s cannot be read: %s", root_id, error)
            del self._behind[root_id]
            return
        self._readers[root_id] = reader
        for event in self._behind.pop(root_id):
            self._read(reader, event)

    async def close(self) -> None:
        self.stop()
        if self._reading:
            await asyncio.wait(self._reading)
        await asyncio.to_thread(self.sender.close)


async def listening(
    settings: TelemetrySettings,
    environ: Mapping[str, str],
    store: Store,
    hear: Callable[[Callable[[LiveEvent], None]], Callable[[], None]],
    secrets: Callable[[], list[str]],
) -> LiveTelemetry | None:
    """Send what is heard from now on, or None where the environment says nothing that could be done.

    `secrets` gives what is blanked out of it; it is asked in a thread, and only where texts are sent.
    """
    try:
        config = configured(settings, environ)
        known = await asyncio.to_thread(secrets) if config.content else ()
        live = LiveTelemetry(config, known, store)
    except ConfigError as error:
        log.warning("telemetry is off: %s", error)
        return None
    live.stop = hear(live.hear)
    return live
