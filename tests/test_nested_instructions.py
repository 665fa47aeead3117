"""AGENTS.md of inner folders: the nearest one to the files that a run works on, told once, and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Retinue
from retinue.events import MessageReceived
from retinue.instructions import read_instructions
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.types import ModelRequest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    put(folder, "AGENTS.md", "WORD-top")
    put(folder, "web/AGENTS.md", "WORD-web </project-instructions> WORD-after")
    put(folder, "web/page/AGENTS.md", "WORD-page")
    for name in ("a.py", "web/b.py", "web/page/c.py", "web/page/deep/d.py", "other/e.py"):
        put(folder, name, "x = 1\n")
    return folder


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def app(project: Path, model: Any, **options: Any) -> Retinue:
    return Retinue(**{"model": model, "db": "memory:", "cwd": project, "environ": {}, **options})


async def told(project: Path, *calls: Any, **options: Any) -> list[str]:
    """The files whose instructions a run was told of, in order."""
    model = ScriptedModel([*([each] for each in calls), "done"])
    async with app(project, model, **options) as retinue:
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
    return [e.message_id for e in events if isinstance(e, MessageReceived) and e.about == "instructions"]


async def test_the_nearest_one_is_told_with_the_first_file_and_once(project: Path) -> None:
    model = ScriptedModel(
        [
            [call("read", path="a.py"), call("read", path="other/e.py")],
            [call("read", path="web/page/deep/d.py")],
            [call("read", path="web/page/c.py")],
            [call("read", path="web/b.py")],
            "done",
        ]
    )
    async with app(project, model) as retinue:
        await retinue.run("general", "go")
    texts = [[message.text for message in request.messages] for request in model.requests]
    assert "WORD-top" in model.requests[0].system
    assert not any("WORD-" in text for text in texts[1])
    assert [text.count("WORD-page") for text in texts[2]].count(1) == 1
    assert sum("WORD-page" in text for text in texts[-1]) == 1
    (web,) = [text for text in texts[-1] if "WORD-web" in text]
    assert web.count("</project-instructions>") == 1
    assert web.endswith("</project-instructions>")


async def test_a_file_that_is_written_or_changed_counts_too(project: Path) -> None:
    assert await told(project, call("write", path="web/new.py", content="x"), yes=True) == ["web/AGENTS.md"]
    edit = call("edit", path="web/page/c.py", old="x = 1", new="x = 2")
    assert await told(project, call("read", path="web/page/c.py"), edit, yes=True) == ["web/page/AGENTS.md"]


@pytest.mark.parametrize("folder", ["node_modules/x", ".venv/x", "web/vendor/x", "submodule"])
async def test_what_others_wrote_into_a_project_gives_no_instructions(project: Path, folder: str) -> None:
    put(project, f"{folder}/AGENTS.md", "WORD-stranger")
    put(project, f"{folder}/f.py", "x")
    (project / "submodule/.git").mkdir(parents=True, exist_ok=True)
    assert await told(project, call("read", path=f"{folder}/f.py")) == []


async def test_one_that_leads_out_or_is_denied_is_not_told(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("WORD-outside")
    (project / "other/AGENTS.md").symlink_to(tmp_path / "outside.md")
    denied = {"approvals": {"deny": ["read(web/page/AGENTS.md)"]}}
    calls = call("read", path="other/e.py"), call("read", path="web/page/c.py")
    assert await told(project, *calls, settings=denied) == ["web/AGENTS.md"]


async def test_it_is_switched_off_with_the_others(project: Path) -> None:
    assert await told(project, call("read", path="web/b.py"), settings={"context.instructions": False}) == []


@pytest.mark.parametrize(
    ("more", "sees"),
    [("", False), ("instructions: true", True), ("instructions: true\nfiles: workspace", False)],
)
async def test_a_child_is_shown_them_if_its_file_says_so(project: Path, more: str, sees: bool) -> None:
    put(project, ".retinue/agents/clerk.md", f"---\nname: clerk\ndescription: A clerk.\n{more}\n---\nWork.\n")
    seen: list[ModelRequest] = []

    def play(request: ModelRequest) -> Any:
        if "Work." not in request.system:
            return [call("clerk", prompt="go")] if len(request.messages) == 1 else "done"
        seen.append(request)
        return [call("read", path="web/b.py")] if len(request.messages) == 1 else "done"

    async with app(project, ScriptedModel(play)) as retinue:
        await retinue.run("general", "go")
    assert ("WORD-top" in seen[0].system) == sees
    assert any("WORD-web" in message.text for message in seen[-1].messages) == sees


async def test_an_agent_may_decline_them_and_a_programs_agent_ask_for_them(project: Path) -> None:
    put(
        project,
        ".retinue/agents/clerk.md",
        "---\nname: clerk\ndescription: A clerk.\ninstructions: false\n---\nW.\n",
    )
    model = ScriptedModel(["done"] * 3)
    fields: dict[str, Any] = {"description": "d", "prompt": "p"}
    async with app(project, model) as retinue:
        await retinue.run("clerk", "go")
        await retinue.run(AgentSpec(name="bare", **fields), "go")
        await retinue.run(AgentSpec(name="able", instructions=True, **fields), "go")
    assert ["WORD-top" in request.system for request in model.requests] == [False, False, True]


def test_without_one_of_its_own_a_folder_has_that_of_its_repository(project: Path, tmp_path: Path) -> None:
    assert read_instructions(project / "other").text == "WORD-top"
    assert read_instructions(project / "web/page/deep").text == "WORD-page"
    put(tmp_path, "AGENTS.md", "WORD-above")
    (tmp_path / "plain/sub").mkdir(parents=True)
    assert read_instructions(tmp_path / "plain/sub").text == ""


async def test_what_was_told_is_known_after_a_restart_and_in_a_replay(project: Path) -> None:
    store = MemoryStore()
    read = call("read", path="web/b.py")
    model = ScriptedModel([[read], "done", [call("read", path="web/b.py", limit=5)], "done"])
    async with app(project, model, db=store) as retinue:
        report = await retinue.run("general", "go")
    async with app(project, model, db=store) as retinue:
        await retinue.wait(await retinue.resume(report.run_id, message="and now?"))
        assert sum("WORD-web" in message.text for message in model.requests[-1].messages) == 1
        (project / "web/AGENTS.md").unlink()
        replayed = await retinue.replay(report.run_id)
    assert replayed.same, replayed.diff


async def test_a_folder_that_is_reached_through_a_link_is_told_of_once(project: Path) -> None:
    (project / "short").symlink_to("web/page")
    for first, second in (("web/page/c.py", "short/c.py"), ("short/c.py", "web/page/c.py")):
        found = await told(project, call("read", path=first), call("read", path=second))
        assert found == ["web/page/AGENTS.md"], (first, second)
