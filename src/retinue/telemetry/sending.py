"""What sends spans and metrics from a process that works: a thread with a queue that has an end.

Whoever hands it a span never waits. What finds the queue full, or a collector that does not take it, is
dropped and counted; that is said once, and once more with the number at the end. Used by `live`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any

from retinue.masking import masked_text
from retinue.telemetry import otlp
from retinue.telemetry.environment import Destination, TelemetryConfig
from retinue.telemetry.metrics import SpanMetrics
from retinue.telemetry.posting import NotTaken, post
from retinue.telemetry.span import Span

log = logging.getLogger("retinue.telemetry")

LONGEST_GOODBYE = 3.0
"""Seconds that a process waits at its end for a collector to take the rest."""
_LARGEST = 1 << 63


class Sender:
    """Starts its thread with the first span."""

    def __init__(self, config: TelemetryConfig) -> None:
        self._config = config
        self._metrics = SpanMetrics(time.time(), delta=config.delta)
        self._waiting: deque[Span] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._counted = False
        self._said = False
        self.dropped = 0
        """Spans that no collector has."""

    def put(self, spans: list[Span]) -> None:
        """Hand over spans that have ended. Never waits."""
        if not spans:
            return
        with self._lock:
            if self._config.metrics is not None:
                self._counted = True
                for span in spans:
                    self._metrics.count(span)
            if self._config.traces is not None:
                wanted = [span for span in spans if self._sampled(span)]
                room = self._config.queue - len(self._waiting)
                self._waiting.extend(wanted[: max(room, 0)])
                lost = len(wanted) - max(room, 0)
                if lost > 0:
                    self._lost(lost, f"{self._config.queue} are waiting already")
            full = len(self._waiting) >= self._config.batch
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="retinue-telemetry", daemon=True)
            self._thread.start()
        if full:
            self._wake.set()

    def close(self, patience: float = LONGEST_GOODBYE) -> None:
        """Send the rest and stop, or give up after `patience` seconds. Blocks."""
        self._ending.set()
        self._wake.set()
        if self._thread is not None and not self._done.wait(patience):
            with self._lock:
                self._lost(len(self._waiting), f"it took more than {patience:g} s at the end")
                self._waiting.clear()
        if self.dropped:
            log.warning("telemetry: %d spans were not delivered", self.dropped)

    def _sampled(self, span: Span) -> bool:
        """By the trace alone, so that every process decides alike, as OpenTelemetry's own ratio does."""
        ratio = self._config.ratio
        return ratio >= 1 or int(span.trace_id[16:], 16) < ratio * 2 * _LARGEST

    def _work(self) -> None:
        next_metrics = time.monotonic() + self._config.interval
        try:
            while True:
                ending = self._ending.is_set()
                self._wake.wait(0 if ending else self._config.delay)
                self._wake.clear()
                ending = self._ending.is_set()
                self._send_spans(all_of_them=ending)
                if ending or time.monotonic() >= next_metrics:
                    next_metrics = time.monotonic() + self._config.interval
                    self._send_metrics()
                if ending:
                    return
        except Exception as error:  # a mistake in here must not look like one of a run
            with self._lock:
                self._lost(len(self._waiting), repr(error))
                self._waiting.clear()
        finally:
            self._done.set()

    def _send_spans(self, *, all_of_them: bool) -> None:
        while True:
            with self._lock:
                count = min(len(self._waiting), self._config.batch)
                batch = [self._waiting.popleft() for _ in range(count)]
            if not batch or self._config.traces is None:
                return
            message = otlp.traces(batch, self._config.resource, str(self._config.resource["service.version"]))
            if (why := self._sent(self._config.traces, message)) is not None:
                with self._lock:
                    self._lost(len(batch), why)
            if not all_of_them and len(self._waiting) < self._config.batch:
                return

    def _send_metrics(self) -> None:
        with self._lock:
            if self._config.metrics is None or not self._counted:
                return
            points = self._metrics.taken(time.time())
        message = otlp.metrics(points, self._config.resource, str(self._config.resource["service.version"]))
        if points and (why := self._sent(self._config.metrics, message)) is not None:
            with self._lock:
                self._lost(0, why)

    def _sent(self, destination: Destination, message: dict[str, Any]) -> str | None:
        """Why it was not, or None."""
        try:
            post(destination, otlp.encoded(message, destination.protocol), wait=self._ending.wait)
        except NotTaken as error:
            return f"{masked_text(destination.url)}: {error}"
        return None

    def _lost(self, count: int, why: str) -> None:
        self.dropped += count
        if not self._said:
            self._said = True
            log.warning("telemetry cannot be delivered and is dropped from here on where it is not: %s", why)
