"""How long it takes until Retinue does something: wall and CPU time of its start, beside a bare Python.

    python bench/startup.py [RUNS]

Medians of several runs with warm bytecode, each in a new process, then what the imports cost.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import retinue": ["-c", "import retinue"],
    "retinue --version": ["-m", "retinue", "--version"],
    "retinue --help": ["-m", "retinue", "--help"],
    "retinue ask --help": ["-m", "retinue", "ask", "--help"],
    "retinue runs list": ["-m", "retinue", "runs", "list"],
    "import retinue.app": ["-c", "import retinue.app"],
}


def once(arguments: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{arguments} ended with {process.returncode}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def imports(arguments: list[str], env: dict[str, str], most: int = 8) -> list[str]:
    """The most expensive imports, by their own time."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], env=env, capture_output=True, text=True, check=True
    )
    rows: list[tuple[int, str]] = []
    for line in done.stderr.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[0].strip().isdigit():
            rows.append((int(parts[0]), parts[2].strip()))
    return [f"{own / 1000:8.1f} ms  {name}" for own, name in sorted(rows, reverse=True)[:most]]


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if not name.startswith("RETINUE")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env |= {
            "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
            "XDG_DATA_HOME": folder,
            "XDG_CONFIG_HOME": folder,
        }
        print(f"{'median of ' + str(runs):22} {'wall ms':>8} {'CPU ms':>8}")
        for name, arguments in COMMANDS.items():
            once(arguments, env)  # writes the bytecode
            times = [once(arguments, env) for _ in range(runs)]
            wall, cpu = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
            print(f"{name:22} {wall:8.0f} {cpu:8.0f}")
        for name in ("import retinue", "retinue --help"):
            print(f"\nimports of '{name}', by their own time")
            print("\n".join(imports(COMMANDS[name], env)))


if __name__ == "__main__":
    main()
