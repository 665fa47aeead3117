"""The file tools as a whole: their names, the ways out, and ignore files that are traps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from working import Agent, trap

from retinue.errors import ForbiddenPath, ToolError
from retinue.tools import ripgrep
from retinue.tools.files import file_tools


@pytest.mark.parametrize("kind", ["pipe", "endless", "outside", "huge", "circle"])
@pytest.mark.parametrize("name", [".gitignore", ".ignore", ".rgignore"])
async def test_an_ignore_file_that_is_a_trap_is_not_read_and_it_is_said(
    agent: Agent, project: Path, kind: str, name: str
) -> None:
    (project / name).unlink(missing_ok=True)
    trap(project / name, kind)
    for found in (
        await agent("grep", pattern="needle", path="src"),
        await agent("glob", pattern="*.py"),
        await agent("ls"),
    ):
        assert f"[{name} is not a regular file of this folder, or too large: nothing is ignored]" in found
        assert "canary" not in found
    assert "src/deep/local.py" in await agent("glob", pattern="local.py")


@pytest.mark.parametrize("kind", ["pipe", "endless"])
async def test_an_ignore_file_further_down_that_is_a_trap_ends_the_search_and_is_named(
    agent: Agent, project: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "SECONDS", 0.5 if kind == "pipe" else 60)
    monkeypatch.setattr(ripgrep, "MEMORY", 400 << 20)
    (project / "src" / ".gitignore").unlink(missing_ok=True)
    trap(project / "src" / ".gitignore", kind)
    for call in (agent("grep", pattern="needle"), agent("glob", pattern="*.py"), agent("ls")):
        with pytest.raises(ToolError, match=r"the ignore file src/\.gitignore is not a regular file"):
            await call


async def test_what_ripgrep_says_against_an_ignore_file_is_not_shown(agent: Agent, project: Path) -> None:
    (project / "src" / ".gitignore").write_text("[canary\n")
    assert "canary" not in await agent("grep", pattern="needle")
    with pytest.raises(ToolError) as raised:
        await agent("grep", pattern="(needle")
    assert "canary" not in str(raised.value)


def test_the_tools_and_their_other_names() -> None:
    assert [(tool.name, tool.effect, tool.aliases) for tool in file_tools()] == [
        ("read", "read", ("Read", "NotebookRead")),
        ("ls", "read", ("LS",)),
        ("glob", "read", ("Glob",)),
        ("grep", "read", ("Grep",)),
        ("write", "write", ("Write",)),
        ("edit", "write", ("Edit", "MultiEdit")),
    ]
    for tool in file_tools():
        assert len(tool.description) > 60
        assert all("description" in parameter for parameter in tool.schema["properties"].values())
        assert "ctx" not in tool.schema["properties"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read", {"path": "/etc/passwd"}),
        ("read", {"path": "out.py"}),
        ("ls", {"path": ".."}),
        ("ls", {"path": "out"}),
        ("glob", {"pattern": "*", "path": "/etc"}),
        ("glob", {"pattern": "../*"}),
        ("glob", {"pattern": "/etc/*"}),
        ("glob", {"pattern": "out/*.py"}),
        ("grep", {"pattern": "x", "path": "../outside"}),
        ("grep", {"pattern": "x", "path": "out"}),
        ("grep", {"pattern": "x", "path": "out.py"}),
        ("write", {"path": "../x", "content": "x"}),
        ("write", {"path": "out/x", "content": "x"}),
        ("write", {"path": "out.py", "content": "x"}),
        ("edit", {"path": "out.py", "old": "needle", "new": "x"}),
    ],
)
async def test_every_way_out_is_forbidden(
    agent: Agent, tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ForbiddenPath, match=r"^forbidden request: .* is outside the project$"):
        await agent(name, **arguments)
    assert (tmp_path / "outside" / "secret.py").read_text() == "needle canary\n"
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["secret.py"]
