from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from retinue.models.http import Client
from retinue.testing import FakeProvider


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as made:
        yield made


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(environ={}) as made:
        yield made
