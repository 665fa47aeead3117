"""The pytest plugin: the fixture `replay_tree`. Loaded by every pytest run, so it imports nothing heavy."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def replay_tree() -> Any:
    """Replay a recorded workflow: see `retinue.testing.recording`."""
    from retinue.testing.recording import replay_file

    return replay_file
