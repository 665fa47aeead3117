"""What a workflow changed, over HTTP: shown, taken back, and copies of the project merged or thrown away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from api import Api, serving

from retinue.testing import ScriptedModel, Step, call
from retinue.types import AgentSpec

CODER = AgentSpec(
    name="coder",
    description="writes code",
    prompt="You are the coder.",
    tools=("read", "write", "edit"),
    isolation="worktree",
)


async def changed(api: Api, **more: Any) -> str:
    """A workflow that has ended."""
    run_id = await api.ask("change it", **more)
    await api.ended(run_id)
    return run_id


def writing() -> ScriptedModel:
    steps = [
        call("edit", path="main.py", old="one", new="two"),
        call("write", path="made.txt", content="new\n"),
        "done",
    ]
    return ScriptedModel(steps)


async def test_what_a_workflow_changed_is_shown_file_by_file_and_what_changed_since_is_said(
    folder: Path,
) -> None:
    (folder / "main.py").write_text("print('one')\n")
    async with serving(writing(), folder, yes=True) as api:
        run_id = await changed(api)
        found = await api.get(f"runs/{run_id}/changes")
        assert (found["project"], found["more"], found["left_out"], found["unfinished"]) == (
            str(folder),
            0,
            [],
            False,
        )
        assert [
            (one["path"], one["what"], one["added"], one["removed"], one["agents"], one["stands"], one["why"])
            for one in found["changes"]
        ] == [
            ("made.txt", "created", 1, 0, ["root"], "as_left", ""),
            ("main.py", "changed", 1, 1, ["root"], "as_left", ""),
        ]
        assert "-print('one')\n+print('two')\n" in found["changes"][1]["diff"]
        (folder / "main.py").write_text("mine now\n")
        (folder / "made.txt").unlink()
        found = await api.get(f"runs/{run_id}/changes")
        assert [(one["stands"], one["why"]) for one in found["changes"]] == [
            ("as_before", ""),
            ("refused", "it was changed since"),
        ]


async def test_a_long_diff_is_cut_at_a_line_and_says_so_and_what_is_not_recorded_is_named(
    folder: Path,
) -> None:
    lines = "".join(f"{number} {'x' * 90}\n" for number in range(3000))
    command = "head -c 2000000 /dev/zero >> large.bin; echo small > small.txt"
    (folder / "large.bin").write_bytes(b"x" * 2_000_000)
    steps = [call("write", path="long.txt", content=lines), call("bash", command=command), "done"]
    settings = {"undo.file_mb": 1}
    async with serving(ScriptedModel(steps), folder, yes=True, settings=settings) as api:
        found = await api.get(f"runs/{await changed(api)}/changes")
    long, small = found["changes"]
    assert (long["path"], long["cut"], long["added"]) == ("long.txt", True, 3000)
    assert 50_000 < len(long["diff"]) <= 60_000
    assert long["diff"].endswith("\n")
    assert (small["path"], small["cut"]) == ("small.txt", False)
    assert [line.split(":")[0] for line in found["left_out"]] == ["large.bin"]


async def test_undo_says_first_what_it_would_do_and_takes_back_whole_or_not_at_all(folder: Path) -> None:
    (folder / "main.py").write_text("print('one')\n")
    async with serving(writing(), folder, yes=True, with_tokens=True) as api:
        admin, one = api.as_role("admin"), api.as_role("approve")
        run_id = await changed(admin)
        planned = await one.post(f"runs/{run_id}/undo", {"dry_run": True})
        assert planned == {"paths": ["made.txt", "main.py"], "already": [], "refused": [], "left_out": []}
        assert (folder / "made.txt").exists()
        (folder / "main.py").write_text("mine now\n")
        refusal = [{"path": "main.py", "why": "it was changed since"}]
        refused = await one.post(f"runs/{run_id}/undo")
        assert refused == {"paths": [], "already": [], "refused": refusal, "left_out": []}
        assert (folder / "made.txt").exists()
        done = await one.post(f"runs/{run_id}/undo", {"rest": True})
        assert done == {"paths": ["made.txt"], "already": [], "refused": refusal, "left_out": []}
        assert not (folder / "made.txt").exists()
        assert (folder / "main.py").read_text() == "mine now\n"
        undone = [told for told in await admin.ended(run_id) if told["type"] == "changes_undone"]
        assert [(event["paths"], event["by"]) for event in undone] == [(["made.txt"], "approve")]
        left = await one.get(f"runs/{run_id}/changes")
        assert [change["path"] for change in left["changes"]] == ["main.py"]


async def test_who_may_not_approve_may_not_undo_or_merge_and_other_folders_are_left_alone(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "main.py").write_text("print('one')\n")
    db = str(tmp_path / "runs.db")
    other = tmp_path / "other"
    other.mkdir()
    async with serving(writing(), folder, yes=True, with_tokens=True, db=db) as api:
        run_id = await changed(api.as_role("admin"))
        asker = api.as_role("ask")
        assert (await asker.get(f"runs/{run_id}/changes"))["changes"] != []
        for deed in ("undo", "merge"):
            refused = await asker("POST", f"runs/{run_id}/{deed}", {})
            assert (refused.status, refused.body["error"]["details"]["needs"]) == (403, "approve")
    async with serving(ScriptedModel([]), other, db=db) as api:
        for deed in ("undo", "merge"):
            refused = await api("POST", f"runs/{run_id}/{deed}", {})
            assert (refused.status, refused.code) == (409, "other_project")
            assert refused.body["error"]["fix"].endswith(f"'retinue runs {deed} {run_id}'")
    assert (folder / "made.txt").exists()


async def test_nothing_is_taken_back_of_a_child_alone_or_of_a_workflow_at_work(folder: Path) -> None:
    gate = asyncio.Event()
    held = Step(text="done", gate=gate)
    scribe = AgentSpec(name="scribe", description="writes", prompt="You are the scribe.", tools=("write",))
    steps: dict[str, Any] = {
        "You are the scribe": [call("write", path="made.txt", content="new\n"), "written"],
        "You are the root": [call("scribe", prompt="write it"), held],
    }
    async with serving(ScriptedModel(steps), folder, yes=True, agents=[scribe]) as api:
        run_id = await api.ask()
        events = await api.follow(
            f"runs/{run_id}/stream", until=lambda told: told.data["type"] == "child_ended"
        )
        child = events[-1].data["child_id"]
        assert [one["agents"] for one in (await api.get(f"runs/{child}/changes"))["changes"]] == [["scribe"]]
        refused = await api("POST", f"runs/{run_id}/undo")
        assert (refused.status, refused.code) == (409, "running")
        gate.set()
        await api.ended(run_id)
        refused = await api("POST", f"runs/{child}/undo")
        assert (refused.status, refused.code, refused.body["error"]["fix"]) == (
            409,
            "conflict",
            f"undo {run_id}",
        )
        assert (folder / "made.txt").exists()


def delegating(*steps: Any) -> ScriptedModel:
    """The root asks a coder, who does these steps in its copy, and ends."""
    return ScriptedModel(
        {"You are the coder": [*steps, "coded"], "You are the root": [call("coder", prompt="do it"), "done"]}
    )


async def test_the_copy_of_an_isolated_child_is_shown_with_its_diff_and_merged_and_undone(
    folder: Path,
) -> None:
    (folder / "main.py").write_text("print('one')\n")
    model = delegating(
        call("edit", path="main.py", old="one", new="two"), call("write", path="made.txt", content="new\n")
    )
    async with serving(model, folder, yes=True, agents=[CODER]) as api:
        run_id = await changed(api)
        (copy,) = (await api.get(f"runs/{run_id}/worktrees"))["worktrees"]
        assert (copy["agent"], copy["conflicts"], copy["left_out"], copy["more"]) == ("coder", [], [], 0)
        assert [(one["path"], one["what"]) for one in copy["changes"]] == [
            ("made.txt", "created"),
            ("main.py", "changed"),
        ]
        assert "-print('one')\n+print('two')\n" in copy["changes"][1]["diff"]
        child = copy["run_id"]
        assert (await api.get(f"runs/{child}/worktrees"))["worktrees"] == [copy]
        (fact,) = (await api.get(f"runs/{run_id}"))["unmerged"]
        assert (fact["run_id"], fact["branch"], fact["path"]) == (child, copy["branch"], copy["path"])
        assert fact["files"] == len(copy["changes"])
        assert (await api.get(f"runs/{child}"))["unmerged"] == [fact]
        assert (folder / "main.py").read_text() == "print('one')\n"
        merged = await api.post(f"runs/{child}/merge")
        assert merged["text"].startswith("merged 2 of 2 paths of coder")
        assert (folder / "main.py").read_text() == "print('two')\n"
        assert (await api.get(f"runs/{run_id}/worktrees"))["worktrees"] == []
        again = await api("POST", f"runs/{child}/merge")
        assert (again.status, again.code) == (404, "not_found")
        assert len((await api.get(f"runs/{run_id}/changes"))["changes"]) == 2
        await api.post(f"runs/{run_id}/undo")
        assert (folder / "main.py").read_text() == "print('one')\n"
        assert not (folder / "made.txt").exists()


async def test_a_conflict_is_shown_and_refused_the_rest_is_merged_and_what_is_left_thrown_away(
    folder: Path,
) -> None:
    (folder / "main.py").write_text("print('one')\n")
    model = delegating(
        call("edit", path="main.py", old="one", new="two"), call("write", path="made.txt", content="new\n")
    )
    async with serving(model, folder, yes=True, agents=[CODER]) as api:
        run_id = await changed(api)
        (folder / "main.py").write_text("print('mine')\n")
        (copy,) = (await api.get(f"runs/{run_id}/worktrees"))["worktrees"]
        (conflict,) = copy["conflicts"]
        assert (conflict["path"], conflict["why"]) == ("main.py", "changed on both sides in the same lines")
        assert "print('mine')" in conflict["text"]
        assert "print('two')" in conflict["text"]
        refused = await api("POST", f"runs/{copy['run_id']}/merge")
        assert (refused.status, refused.code) == (409, "conflict")
        assert "main.py" in refused.body["error"]["message"]
        assert not (folder / "made.txt").exists()
        merged = await api.post(f"runs/{copy['run_id']}/merge", {"rest": True})
        assert merged["text"].startswith("merged 1 of 2 paths")
        assert (folder / "made.txt").exists()
        assert (folder / "main.py").read_text() == "print('mine')\n"
        (left,) = (await api.get(f"runs/{run_id}/worktrees"))["worktrees"]
        assert ([one["path"] for one in left["changes"]], len(left["conflicts"])) == ([], 1)
        await api.post(f"runs/{copy['run_id']}/merge", {"discard": True})
        assert (await api.get(f"runs/{run_id}/worktrees"))["worktrees"] == []
        assert not Path(copy["path"]).exists()
        assert (folder / "main.py").read_text() == "print('mine')\n"
