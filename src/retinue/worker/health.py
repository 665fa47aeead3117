"""What a worker tells whoever looks after it, over HTTP: that it lives, that it can work, and its metrics.

    GET /healthz    200 while the event loop turns
    GET /readyz     200 while it is connected to the queue and is not told to stop, else 503
    GET /metrics    Prometheus' text format

It reads one line of a request and answers it; nothing of a run is shown. Begun by `retinue worker --health`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping

from retinue.errors import StoreError
from retinue.store.postgres import PostgresStore
from retinue.store.postgres_workers import QueueDepth, RunSums, depths, sums
from retinue.worker.worker import Worker

MOST_LINE = 4096
WITHIN_SECONDS = 5.0
KEPT_SECONDS = 15.0
"""Sums over all runs are read no more often than that."""


class WorkerHealth:
    """The answers of one worker."""

    def __init__(self, worker: Worker, store: PostgresStore) -> None:
        self._worker, self._store = worker, store
        self._sums: tuple[float, list[RunSums]] = (-KEPT_SECONDS, [])

    async def listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._answer, host, port, limit=MOST_LINE)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                words = (await reader.readline()).decode("latin-1").split()
                while (await reader.readline()).strip():
                    pass
                status, body = await self.answer(words[1] if len(words) > 1 else "")
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n"
                data = body.encode()
                writer.write(
                    f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data
                )
                await writer.drain()
        except (TimeoutError, ValueError, OSError):
            pass  # whoever asks so gets nothing
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def answer(self, path: str) -> tuple[str, str]:
        """The status and the text for a path."""
        if path == "/healthz":
            return "200 OK", "ok\n"
        if path == "/readyz":
            ready = self._worker.ready and not self._worker.stopping
            return ("200 OK", "ready\n") if ready else ("503 Service Unavailable", "not ready\n")
        if path == "/metrics":
            return "200 OK", await self._metrics()
        return "404 Not Found", "there are /healthz, /readyz and /metrics\n"

    async def _metrics(self) -> str:
        worker = self._worker
        lines = [
            *_gauge("retinue_worker_slots", "workflows it can have at once", _one(worker.slots)),
            *_gauge("retinue_worker_at_work", "workflows it works on", _one(worker.at_work)),
            *_gauge("retinue_worker_ready", "1 while it can claim work", _one(int(worker.ready))),
            *_counter("retinue_worker_legs_total", "jobs that it was done with", _one(worker.legs_done)),
        ]
        try:
            lines += _of_queues(await depths(self._store))
            lines += _of_runs(await self._known_sums())
            lines += _gauge("retinue_database_up", "1 while the database answers", _one(1))
        except StoreError:
            lines += _gauge("retinue_database_up", "1 while the database answers", _one(0))
        return "\n".join(lines) + "\n"

    async def _known_sums(self) -> list[RunSums]:
        at, known = self._sums
        if time.monotonic() - at >= KEPT_SECONDS:
            known = await sums(self._store)
            self._sums = time.monotonic(), known
        return known


Samples = Iterable[tuple[Mapping[str, str], float]]


def _one(value: float) -> list[tuple[Mapping[str, str], float]]:
    return [({}, value)]


def _of_queues(found: Iterable[QueueDepth]) -> list[str]:
    queues = list(found)
    names = [{"queue": each.label} for each in queues]
    return [
        *_gauge(
            "retinue_queue_waiting",
            "workflows that wait for a worker",
            [(name, each.waiting) for name, each in zip(names, queues, strict=True)],
        ),
        *_gauge(
            "retinue_queue_oldest_seconds",
            "how long the oldest of them has waited",
            [(name, each.oldest) for name, each in zip(names, queues, strict=True)],
        ),
        *_gauge(
            "retinue_queue_later",
            "workflows that go on by themselves at a later time",
            [(name, each.later) for name, each in zip(names, queues, strict=True)],
        ),
        *_gauge(
            "retinue_queue_at_work",
            "workflows that workers have",
            [(name, each.at_work) for name, each in zip(names, queues, strict=True)],
        ),
    ]


def _of_runs(found: Iterable[RunSums]) -> list[str]:
    rows = list(found)
    total, output = sum(row.input_tokens for row in rows), sum(row.output_tokens for row in rows)
    cost = sum(row.cost for row in rows)
    return [
        *_gauge(
            "retinue_runs", "runs by their outcome", [({"outcome": row.outcome}, row.runs) for row in rows]
        ),
        *_gauge("retinue_input_tokens", "input tokens of all runs that are kept", _one(total)),
        *_gauge("retinue_output_tokens", "output tokens of all runs that are kept", _one(output)),
        *_gauge("retinue_cost_dollars", "what is known of their cost, in US dollars", _one(cost)),
    ]


def _gauge(name: str, about: str, samples: Samples) -> list[str]:
    return _family(name, "gauge", about, samples)


def _counter(name: str, about: str, samples: Samples) -> list[str]:
    return _family(name, "counter", about, samples)


def _family(name: str, kind: str, about: str, samples: Samples) -> list[str]:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(each)}"' for label, each in labels.items())
        lines.append(f"{name}{{{shown}}} {value:g}" if shown else f"{name} {value:g}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
