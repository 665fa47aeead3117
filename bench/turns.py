"""What a model turn and a thousand children cost, beside the bare `openai` SDK loop, in one run.

    make bench

CPU is that of the measured process alone (`time.process_time`). The model is a strict fake server in a
process of its own.
Rounds are interleaved, medians printed; the ratios are what to trust.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "peers"


@contextmanager
def server(latency: float) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "server.py"), str(latency)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()


def measure(python: str, script: str, *arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [python, str(HERE / script), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def turns(raw_python: str, rounds: int, n: int, k: int) -> None:
    found: dict[str, list[float]] = {"bare openai SDK": [], "retinue, log off": [], "retinue, SQLite log": []}
    with server(0) as url:
        for _ in range(rounds):
            found["bare openai SDK"] += measure(raw_python, "raw_openai.py", url, n, k, 4)["cpu_ms_per_turn"]
            found["retinue, log off"] += measure(sys.executable, "with_retinue.py", "memory:", url, n, k, 4)[
                "cpu_ms_per_turn"
            ]
            found["retinue, SQLite log"] += measure(
                sys.executable, "with_retinue.py", "sqlite", url, n, k, 4
            )["cpu_ms_per_turn"]
    bare = statistics.median(found["bare openai SDK"])
    print(f"\nCPU per model turn, streaming, N={n} children, K={k} tool turns ({rounds} rounds of 4)")
    for name, samples in found.items():
        median = statistics.median(samples)
        print(f"  {name:22} {median:6.3f} ms (min {min(samples):.3f})   x{median / bare:.2f} of the bare SDK")
    print("  bar: at most x0.30 with the SQLite log")


def crowd(raw_python: str, rounds: int, children: int, latency: float, k: int) -> None:
    ideal = latency * (2 + k + 1)
    with server(latency) as url:
        try:
            bare = measure(raw_python, "raw_openai.py", url, children, k, 1)["wall_s"][0]
            beside = f"{bare:6.2f} s   x{bare / ideal:.2f}"
        except SystemExit as error:  # with so many connections its own timeouts may end it
            beside = f"failed: {str(error).splitlines()[-1]}"
        results = [
            measure(sys.executable, "with_retinue.py", "sqlite", url, children, k, 1) for _ in range(rounds)
        ]
    walls = [result["wall_s"][0] for result in results]
    wall, per_child = statistics.median(walls), statistics.median(r["kb_per_child"] for r in results)
    print(f"\n{children} children at once, {latency * 1000:.0f} ms per model call, K={k} ({rounds} rounds)")
    print(f"  ideal                  {ideal:6.2f} s")
    print(f"  retinue, SQLite log    {wall:6.2f} s (best {min(walls):.2f})   x{wall / ideal:.2f}   (bar: x2)")
    print(f"  bare openai SDK        {beside}")
    print(f"  memory {per_child:.1f} KB per child   (bar: 60 KB)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raw-python", default=sys.executable, help="a Python that has `openai` installed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--children", type=int, default=1000)
    arguments = parser.parse_args()
    turns(arguments.raw_python, arguments.rounds, 8, 3)
    crowd(arguments.raw_python, arguments.rounds, arguments.children, 0.2, 3)


main()
