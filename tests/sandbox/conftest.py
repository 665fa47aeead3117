"""One engine per test, of each kind this machine can run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from retinue.sandbox import open_engine
from retinue.sandbox.base import Engine
from retinue.settings import CodeSettings


@pytest.fixture(params=["monty"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    opened, notice = open_engine(CodeSettings(engine=request.param))
    if notice is not None:
        pytest.skip(notice)
    yield opened
    await opened.close()


@pytest.fixture
async def monty() -> AsyncIterator[Engine]:
    opened, _ = open_engine(CodeSettings(engine="monty"))
    yield opened
    await opened.close()
