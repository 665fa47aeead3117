"""What a `retinue serve` with hundreds of runs under way does when something fails under it for a while.

    python scripts/outages.py [CASE…] [--runs 500] [--seconds 60]

Starts a real server over a fake provider, both on loopback, has it accept runs, takes something away in the
middle of their replies, gives it back, and waits for the ends of all of them: without a restart, except where
that is the case. Ends with 1 if a run was lost, ended otherwise than completed, or was paid for twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "server")]

import crowds  # noqa: E402  # from the tests
import postgres  # noqa: E402
from crowds import Crowd, Outcome  # noqa: E402

Case = Callable[[Crowd, float, float], Awaitable[Outcome]]


async def lock(crowd: Crowd, seconds: float, patience: float) -> Outcome:
    """another process holds the SQLite file"""
    async with crowd.served():
        await crowd.begin()
        await crowd.suffer(crowds.locked(crowd.home / "log.db"), seconds)
        return await crowd.judge(patience=patience)


async def away(crowd: Crowd, seconds: float, patience: float) -> Outcome:
    """PostgreSQL is stopped and started again"""
    return await _with_postgres(crowd, halted, seconds, patience)


async def frozen(crowd: Crowd, seconds: float, patience: float) -> Outcome:
    """every process of PostgreSQL stands still"""
    return await _with_postgres(crowd, standing_still, seconds, patience)


@contextlib.asynccontextmanager
async def halted(server: postgres.Server) -> AsyncIterator[None]:
    """PostgreSQL is stopped in order, and started again."""
    await asyncio.to_thread(postgres.halt, server)
    try:
        yield
    finally:
        await asyncio.to_thread(postgres.begin, server)


@contextlib.asynccontextmanager
async def standing_still(server: postgres.Server) -> AsyncIterator[None]:
    """PostgreSQL and every process of it stand still: connections are there, and nobody answers."""
    everybody = _processes(server)
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in everybody:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _processes(server: postgres.Server) -> list[int]:
    assert server.process is not None
    pid = server.process.pid
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


async def _with_postgres(
    crowd: Crowd,
    fault: Callable[[postgres.Server], contextlib.AbstractAsyncContextManager[None]],
    seconds: float,
    patience: float,
) -> Outcome:
    with postgres.throwaway() as server:
        db = server.url("outages")
        async with crowd.served(db=db):
            await crowd.begin()
            await crowd.suffer(fault(server), seconds)
            return await crowd.judge(patience=patience)


async def handles(crowd: Crowd, seconds: float, patience: float) -> Outcome:
    """the server may open no file and no connection more than it has open"""
    async with crowd.served() as serving:
        await crowd.begin()
        await crowd.suffer(crowds.without_handles(serving), seconds)
        return await crowd.judge(patience=patience)


async def few(crowd: Crowd, seconds: float, patience: float) -> Outcome:
    """the server has 256 handles from its start to its end"""
    async with crowd.served(within=crowds.with_handles(256)):
        await crowd.ask(crowd.count)
        crowd.near.set()
        crowd.go.set()
        return await crowd.judge(patience=patience)


async def full(crowd: Crowd, seconds: float, patience: float) -> Outcome:
    """the disk of the database has no room"""
    disk = crowd.home / "disk"
    disk.mkdir()
    db, within = f"sqlite://{disk}/log.db", crowds.on_a_small_disk(disk, 256)
    async with crowd.served(db=db, within=within) as serving:
        assert serving.process is not None
        seen = Path(f"/proc/{serving.process.pid}/root{disk}")
        await crowd.begin()
        await crowd.suffer(crowds.filled(seen), seconds)
        return await crowd.judge(patience=patience)


async def kill(crowd: Crowd, seconds: float, patience: float) -> Outcome:
    """the server is killed and started again"""
    async with crowd.served():
        await crowd.begin()
        await crowd.kill()
        return await crowd.judge(patience=patience)


CASES: dict[str, Case] = {case.__name__: case for case in (lock, away, frozen, handles, few, full, kill)}


async def main(given: argparse.Namespace) -> int:
    failed = 0
    for name in given.cases or CASES:
        with tempfile.TemporaryDirectory(prefix="retinue-outage-") as home:
            began = time.monotonic()
            crowd = Crowd(Path(home), given.runs, speaking=given.speaking)
            outcome = await CASES[name](crowd, given.seconds, given.patience)
        held = "held" if outcome.held else "FAILED"
        print(
            f"{name}, {given.seconds:g} s: {held} in {time.monotonic() - began:.0f} s: {outcome}", flush=True
        )
        if given.verbose or not outcome.held:
            shown = [
                line
                for line in outcome.said
                if "shown this once" not in line and " POST " not in line and "tokens: " not in line
            ]
            found = [f"{count} x {error}" for error, count in outcome.errors.most_common(10)]
            print("\n".join(f"    {line}" for line in [*found, *shown[:40]]), flush=True)
        failed += not outcome.held
    return 1 if failed else 0


def read() -> argparse.Namespace:
    cases = "\n".join(f"  {name:8} {case.__doc__}" for name, case in CASES.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"cases:\n{cases}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="else all of them")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60, help="how long it fails")
    parser.add_argument("--speaking", type=float, default=15, help="seconds that a slow reply takes")
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for the ends")
    parser.add_argument("--verbose", action="store_true", help="what the server said, too")
    given = parser.parse_args()
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]!r}: {', '.join(CASES)}")
    return given


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # every run has a connection to the model
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # a client that was killed is no news
    sys.exit(asyncio.run(main(read())))
