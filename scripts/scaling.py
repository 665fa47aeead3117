#!/usr/bin/env python
"""From 1 to 1,000 workers: what each part of an installation has to bear, and which gives way first.

    python scripts/scaling.py
    python scripts/scaling.py --runs-per-second 20 --cpu-ms 25      # other work than the measured kind

A model, with constants that `scripts/workers_trial.py` and `bench/store.py` measured (docs/scaling.md says on
what). Everything is in proportion to runs and workers; queueing and the limits of providers are not in it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

FLEETS = (1, 3, 10, 30, 100, 300, 1000)
DAY = 86_400


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one of each costs."""

    cpu_ms: float
    """CPU of a worker for a run with one model call."""
    events_per_run: float
    bytes_per_event: float
    database_events: float
    """Events per second that one PostgreSQL takes: appended in batches, by one writer for each worker."""
    connections: int
    """Of a worker: the queue, the writer, the listener, and those that read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """What so many workers do when each of them is busy, and what that asks of the database."""

    workers: int
    runs: float
    events: float
    database: float
    """The part of what the database can take."""
    connections: int
    notices: float
    """Notices per second that every listener hears: one for each batch, and all hear all."""
    gigabytes: float
    """Per day."""
    days: float
    """Until there are a billion events."""


def fleet(workers: int, seen: Measured, *, cores: int, share: float, wanted: float | None) -> Fleet:
    able = workers * cores * share * 1000 / seen.cpu_ms
    runs = able if wanted is None else min(able, wanted)
    events = runs * seen.events_per_run
    return Fleet(
        workers=workers,
        runs=runs,
        events=events,
        database=events / seen.database_events,
        connections=workers * seen.connections,
        notices=events / 2,
        gigabytes=events * seen.bytes_per_event * DAY / 1e9,
        days=1e9 / (events * DAY) if events else float("inf"),
    )


def gives_way(each: Fleet, *, most_connections: int, heard: float) -> str:
    """What is too much first, if anything is."""
    found = {
        "connections": each.connections / most_connections,
        "events": each.database,
        "notices": each.notices / heard,
    }
    name, part = max(found.items(), key=lambda item: item[1])
    return name if part > 1 else "-"


def table(options: argparse.Namespace) -> list[str]:
    seen = Measured(
        cpu_ms=options.cpu_ms,
        events_per_run=options.events_per_run,
        bytes_per_event=options.bytes_per_event,
        database_events=options.database_events,
        connections=options.connections,
    )
    lines = ["workers    runs/s  events/s  database  connections  notices/s   GB/day  days to 1e9  gives way"]
    for workers in FLEETS:
        each = fleet(workers, seen, cores=1, share=options.share, wanted=options.runs_per_second)
        first = gives_way(each, most_connections=options.most_connections, heard=options.heard)
        lines.append(
            f"{each.workers:7d} {each.runs:9.1f} {each.events:9.0f} {each.database:9.0%}"
            f" {each.connections:12d} {each.notices:10.0f} {each.gigabytes:8.1f} {each.days:12.1f}  {first}"
        )
    return lines


def told() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu-ms", type=float, default=10.0)
    parser.add_argument("--events-per-run", type=float, default=8.8)
    parser.add_argument("--bytes-per-event", type=float, default=940.0)
    parser.add_argument("--database-events", type=float, default=6000.0)
    parser.add_argument("--connections", type=int, default=7)
    parser.add_argument("--most-connections", type=int, default=500)
    parser.add_argument(
        "--heard", type=float, default=20_000.0, help="notices per second one listener can hear"
    )
    parser.add_argument("--share", type=float, default=0.5, help="the part of a core that a worker is busy")
    parser.add_argument("--runs-per-second", type=float, default=None, help="all that is asked for")
    return parser.parse_args()


if __name__ == "__main__":
    sys.stdout.write("\n".join(table(told())) + "\n")
