"""Drives one fuzz target for some seconds of CPU: guided by coverage where atheris is there, else by hypothesis.

Called by `test_fuzz.py` and `scripts/fuzz.sh`, in a process of its own that ends when the time is over:

    python tests/fuzz/driver.py TARGET --seconds 3 [--seed 1] [--keep FOLDER]
    python tests/fuzz/driver.py TARGET --input FILE

It prints one line of JSON (the engine, how many inputs were tried) and ends with 0 if every check held. Else it
prints the error, writes the input to FOLDER and ends with another number. `--input` tries one kept input again.
Inputs that taught the fuzzer something stay in FOLDER/TARGET, and the next run begins with them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

TARGETS = {
    "paths": ["retinue.jail"],
    "events": ["retinue.models.sse"],
    "markdown": ["retinue.server.markdown", "markdown_it.rules_inline"],
    "addresses": ["retinue.web.urls", "retinue.web.guard"],
    "agent_files": ["retinue.agents"],
    "shell_rules": ["retinue.authority.shell"],
    "replies": ["retinue.models.text_reading", "retinue.models.text_mending"],
}
"""What is fuzzed, and the modules whose coverage guides it. Few: watching a module makes its import slow."""
MOST_BYTES = 2048
MOST_SECONDS_FOR_ONE = 20
MOST_MEGABYTES = 1500


class Target(Protocol):
    SEEDS: tuple[bytes, ...]

    def check(self, data: bytes) -> None: ...


class Trial:
    """Counts and times what is tried (by CPU, since machines are busy), and ends the process: when time is over, or when a check fails."""

    def __init__(
        self, name: str, engine: str, check: Callable[[bytes], None], *, seconds: float, keep: Path
    ) -> None:
        self.name, self.engine, self.check, self.keep = name, engine, check, keep
        self.until = time.process_time() + seconds
        self.tried = 0

    def one(self, data: bytes) -> None:
        if time.process_time() >= self.until:
            self.end(0)
        self.tried += 1
        try:
            self.check(data)
        except BaseException:
            traceback.print_exc()
            path = self.keep / f"{self.name}-{sha256(data).hexdigest()[:16]}"
            path.write_bytes(data)
            print(f"{self.name}: a check failed for the {len(data)} bytes in {path}", file=sys.stderr)
            self.end(1)

    def end(self, code: int) -> NoReturn:
        """The fuzzer's own end would report an error and skip what Python has to flush."""
        print(json.dumps({"target": self.name, "engine": self.engine, "tried": self.tried}))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("target")
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--seed", type=int, default=0, help="0: another one each time")
    options.add_argument("--keep", type=Path, default=None)
    options.add_argument("--input", type=Path, default=None)
    options.add_argument("--engine", choices=["atheris", "hypothesis"], default=None)
    given = options.parse_args()
    sys.path.insert(0, str(Path(__file__).parent.parent))
    atheris: Any = None
    if given.engine != "hypothesis" and given.input is None:
        with contextlib.suppress(ImportError):
            atheris = importlib.import_module("atheris")
    if atheris is None and given.engine == "atheris":
        sys.exit("driver: atheris is not installed here; leave out --engine to use hypothesis")
    keep = given.keep or Path(tempfile.gettempdir())
    # Whatever is imported from here on, also later and inside functions, is watched.
    watched = TARGETS.get(given.target, [f"fuzz.{given.target}"])
    with watching(atheris, watched) if atheris else contextlib.nullcontext():
        target = cast("Target", importlib.import_module(f"fuzz.{given.target}"))
        if given.input is not None:
            target.check(given.input.read_bytes())
            return
        name = "atheris" if atheris else "hypothesis"
        trial = Trial(given.target, name, target.check, seconds=given.seconds, keep=keep)
        for seed in target.SEEDS:
            trial.one(seed)
        if atheris:
            by_coverage(atheris, target, trial, given.seed)
        else:
            by_hypothesis(target, trial, given.seed)


def watching(atheris: Any, watched: list[str]) -> contextlib.AbstractContextManager[object]:
    """Instruments these modules and what is below them. The fuzzer itself can only take or leave whole packages."""
    tops = {name.partition(".")[0] for name in watched}
    others: list[str] = []
    for top in tops:
        found = importlib.util.find_spec(top)
        for folder in (found.submodule_search_locations if found else None) or ():
            for file in Path(folder).rglob("*.py"):
                parts = file.relative_to(Path(folder).parent).with_suffix("").parts
                name = ".".join(parts).removesuffix(".__init__")
                if not any(name == one or name.startswith(f"{one}.") for one in watched):
                    others.append(name)
    return atheris.instrument_imports(include=sorted(tops), exclude=others)


def by_coverage(atheris: Any, target: Target, trial: Trial, seed: int) -> None:
    corpus = trial.keep / trial.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.SEEDS):
        (corpus / f"seed-{number}").write_bytes(data)
    flags = [
        *(f"-seed={seed}" if seed else "", f"-max_len={MOST_BYTES}", f"-timeout={MOST_SECONDS_FOR_ONE}"),
        *(f"-rss_limit_mb={MOST_MEGABYTES}", f"-artifact_prefix={trial.keep}/{trial.name}-", "-verbosity=0"),
        "-print_final_stats=0",
    ]
    atheris.Setup([sys.argv[0], *filter(None, flags), str(corpus)], trial.one)
    atheris.Fuzz()


def by_hypothesis(target: Target, trial: Trial, seed: int) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st

    edit = st.tuples(st.integers(0, MOST_BYTES), st.integers(0, 8), st.binary(max_size=8))
    edited = st.builds(_edited, st.sampled_from(target.SEEDS), st.lists(edit, max_size=6))

    def rounds() -> None:
        number = seed
        while True:  # `trial.one` ends it
            number += 1
            tried = settings(
                max_examples=500,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=cast(
                    "list[HealthCheck]", list(HealthCheck)
                ),  # its metaclass hides the type
            )(given(edited | st.binary(max_size=MOST_BYTES))(trial.one))
            (seeded(number)(tried) if seed else tried)()

    rounds()


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for at, gone, new in edits:
        at %= len(data) + 1
        data = data[:at] + new + data[at + gone :]
    return data[:MOST_BYTES]


if __name__ == "__main__":
    main()
