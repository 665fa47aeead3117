"""What holds for every test: it stays on this machine, and no property is judged by how long an example took."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

import no_network

settings.register_profile("retinue", deadline=None)
settings.load_profile("retinue")
no_network.turn_on()


@pytest.fixture(autouse=True)
def stays_on_this_machine() -> Iterator[None]:
    """The error alone is not enough: a program that copes with a failing network would hide it."""
    before = len(no_network.attempts)
    yield
    left = no_network.attempts[before:]
    del no_network.attempts[before:]
    assert not left, f"tests never leave this machine: {'; '.join(left)}"
