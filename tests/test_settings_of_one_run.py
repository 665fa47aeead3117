"""What all runs of an instance share cannot be set for one of them, and whoever tries is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from retinue.errors import ConfigError
from retinue.testing import ScriptedModel

SHARED: dict[str, Any] = {
    "web.allow_hosts": ["10.0.0.7"],
    "web.proxy": "http://127.0.0.1:9",
    "web.max_bytes": 1000,
    "mcp.servers": {"crm": {"command": "crm"}},
    "db": "memory:",
    "workspace.root": "/nowhere",
    "knowledge.contact": "me@example.org",
}


@pytest.mark.parametrize("name", SHARED)
async def test_what_all_runs_share_is_refused_for_one(name: str, tmp_path: Path) -> None:
    model = ScriptedModel(["done"])
    async with Retinue(model=model, db=f"sqlite://{tmp_path}/a.db", cwd=tmp_path, environ={}) as retinue:
        with pytest.raises(ConfigError, match=f"{name} is for all runs of a Retinue"):
            await retinue.run("general", "go", settings={name: SHARED[name]})
        assert not model.requests
        assert (await retinue.run("general", "go", settings={"limits.max_turns": 3})).ok


async def test_what_is_set_as_it_is_anyway_is_taken_and_tables_are_looked_into(tmp_path: Path) -> None:
    model = ScriptedModel(["done"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, environ={}) as retinue:
        with pytest.raises(ConfigError, match=r"web\.max_bytes"):
            await retinue.run("general", "go", settings={"web": {"max_bytes": 1000}})
        same = retinue.settings.web.max_bytes
        assert (await retinue.run("general", "go", settings={"web.max_bytes": same})).ok
