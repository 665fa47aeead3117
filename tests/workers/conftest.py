"""A staff for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from staff import Staff

from pg import postgres_url as postgres_url
from retinue.testing import FakeProvider


@pytest.fixture
async def provider() -> AsyncGenerator[FakeProvider]:
    async with FakeProvider() as provider:
        yield provider


@pytest.fixture
async def staff(tmp_path: Path, postgres_url: str, provider: FakeProvider) -> AsyncGenerator[Staff]:
    staff = Staff(tmp_path, postgres_url, provider)
    try:
        yield staff
    finally:
        await staff.dismiss()
