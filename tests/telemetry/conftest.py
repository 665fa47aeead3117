"""Collectors: one of each kind for all tests of a process, empty for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from telemetry.collecting import Collector


@pytest.fixture(scope="session")
def collectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Collector]]:
    made: dict[str, Collector] = {}
    yield made
    for each in made.values():
        each.stop()


@pytest.fixture
def collector(
    collectors: dict[str, Collector], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Collector]:
    def start(mode: str = "takes") -> Collector:
        if mode not in collectors:
            collectors[mode] = Collector(tmp_path_factory.mktemp("received") / "requests.jsonl", mode)
        collectors[mode].file.unlink(missing_ok=True)
        return collectors[mode]

    return start
