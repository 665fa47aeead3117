"""Fixtures of the knowledge tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from .wiring import Clock, Shelf, Wire, World


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    server = Wire()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def world(wire: Wire) -> AsyncIterator[Callable[..., World]]:
    """Makes worlds on the local server, and closes them."""
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(wire, **options))
        return made[-1]

    yield make
    for one in made:
        await one.knowledge.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shelf(clock: Clock) -> Shelf:
    return Shelf(clock)


@pytest.fixture
def recorded() -> Path:
    """Answers recorded from the real sources, where they lie beside the repository."""
    folder = Path(__file__).parents[3] / "shared" / "recorded"
    if not folder.is_dir():
        pytest.skip("no recorded answers beside the repository")
    return folder
