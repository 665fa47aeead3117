"""One engine of each kind that this machine can run, shared by the tests of a file, as by the runs of a process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from retinue.sandbox import open_engine
from retinue.sandbox.base import Engine
from retinue.settings import CodeSettings


@pytest_asyncio.fixture(params=["monty", "cpython"], scope="module", loop_scope="module")
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    opened, notice = open_engine(CodeSettings(engine=request.param))
    if notice is not None:
        pytest.skip(notice)
    yield opened
    await opened.close()
