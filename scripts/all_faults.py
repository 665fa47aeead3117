"""Every fault at every moment: a store error at each write, and no memory at each encode, append and read.

    uv run scripts/all_faults.py [sqlite|postgres] [SCENARIO…]

The tests try a fixed sample of the same plan (`tests/durability/test_faults.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "durability")]

import faulting  # noqa: E402  # from the tests

import pg  # noqa: E402


async def main(stores: list[str], scenarios: list[str]) -> int:
    faulting.quick()
    total = faulting.Figures()
    began, worked = time.monotonic(), time.process_time()
    for store in stores:
        for scenario in scenarios:
            with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
                sqlite = store == "sqlite"
                url = f"sqlite://{folder}/log.db" if sqlite else stack.enter_context(pg.database())
                database = faulting.Database(url)
                seen = await faulting.moments(database, Path(folder, "whole"), scenario)
                for how in (*faulting.WRITES, *faulting.MEMORY):
                    found = faulting.Figures()
                    most = seen[faulting.fault_of(how, 0).kind]
                    await faulting.all_of(
                        database, Path(folder, "trials"), scenario, how, range(1, most + 1), found
                    )
                    total.add(found)
                    print(f"{store:8} {scenario:10} {how:26} {found}", flush=True)
    seconds = f"{time.monotonic() - began:.0f} s, {time.process_time() - worked:.0f} s of them at work"
    print(f"{total}, {seconds}")
    for failure in total.failures:
        print(failure)
    return 1 if total.failures else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [word for word in words if word in ("sqlite", "postgres")] or ["sqlite", "postgres"]
    named = [word for word in words if word in faulting.SCENARIOS] or list(faulting.SCENARIOS)
    sys.exit(asyncio.run(main(chosen, named)))
