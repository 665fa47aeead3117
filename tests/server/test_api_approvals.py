"""Approvals over HTTP: listed, answered once, edited, and still there after a restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from api import Api, serving

from retinue.testing import ScriptedModel, call
from retinue.tools.base import tool
from retinue.types import AgentSpec, ModelRequest, ToolMessage, UserMessage

done: list[str] = []


@tool(effect="write")
async def mark(what: str) -> str:
    """Leave a mark."""
    done.append(what)
    return f"marked {what}"


async def waiting(api: Api, count: int = 1) -> list[dict[str, Any]]:
    """The questions, once there are so many."""
    async with asyncio.timeout(60):
        while len(found := (await api.get("approvals"))["approvals"]) < count:
            await asyncio.sleep(0.01)
    return found


def asks(*what: str) -> ScriptedModel:
    calls = [call("mark", what=one) for one in what]
    return ScriptedModel(
        [calls, lambda r: "; ".join(m.text for m in r.messages if isinstance(m, ToolMessage))]
    )


async def test_a_question_is_listed_with_all_a_person_needs_and_approved(folder: Path) -> None:
    async with serving(asks("one-approved"), folder, tools=[mark]) as api:
        run_id = await api.ask()
        (asked,) = await waiting(api)
        assert asked["path"] == ["root"]
        assert (asked["tool"], asked["effect"], asked["risk"]) == ("mark", "write", "medium")
        assert json.loads(asked["arguments"]) == {"what": "one-approved"}
        assert (await api.get(f"runs/{run_id}"))["run"]["status"] == "waiting"
        said = await api.post(f"approvals/{asked['approval_id']}", {"decision": "approve"})
        assert (said["decision"], said["by"]) == ("approve", "person")
        await api.ended(run_id)
        assert (await api.get(f"runs/{run_id}/report"))["text"] == "marked one-approved"
        assert (await api.get("approvals"))["approvals"] == []


async def test_a_rejection_reaches_the_model_with_its_reason(folder: Path) -> None:
    async with serving(asks("never"), folder, tools=[mark]) as api:
        run_id = await api.ask()
        (asked,) = await waiting(api)
        await api.post(f"approvals/{asked['approval_id']}", {"decision": "reject", "reason": "use another"})
        await api.ended(run_id)
        assert "use another" in (await api.get(f"runs/{run_id}/report"))["text"]
        assert "never" not in done
        # A list says it too: what was rejected is completed, and not simply done.
        assert [(run["status"], run["outcome"]) for run in (await api.get("runs"))["runs"]] == [
            ("completed", "rejected")
        ]


async def test_a_rejection_below_counts_for_those_above_and_for_no_other_run(folder: Path) -> None:
    def play(request: ModelRequest) -> Any:
        turn = len([m for m in request.messages if not isinstance(m, UserMessage)])
        if "a marker" in request.system:
            return call("mark", what="below") if turn == 0 else "not marked"
        if "a bystander" in request.system:
            return "stood by"
        return [call("marker", prompt="one"), call("bystander", prompt="two")] if turn == 0 else "done"

    agents = [
        AgentSpec(name=n, description=f"is a {n}", prompt=f"You are a {n}.") for n in ("marker", "bystander")
    ]
    async with serving(ScriptedModel(play), folder, tools=[mark], agents=agents) as api:
        run_id = await api.ask()
        (asked,) = await waiting(api)
        await api.post(f"approvals/{asked['approval_id']}", {"decision": "reject"})
        await api.ended(run_id)
        found = {run["agent"]: run["outcome"] for run in (await api.get("runs?children=1"))["runs"]}
        assert found == {"root": "rejected", "marker": "rejected", "bystander": "completed"}


async def test_edited_arguments_are_what_runs_and_have_to_fit_the_tool(folder: Path) -> None:
    async with serving(asks("before-edit"), folder, tools=[mark]) as api:
        run_id = await api.ask()
        (asked,) = await waiting(api)
        path = f"approvals/{asked['approval_id']}"
        wrong = await api("POST", path, {"decision": "approve", "arguments": {"whom": 1}})
        assert (wrong.status, wrong.code) == (422, "invalid")
        both = await api("POST", path, {"decision": "reject", "arguments": {"what": "x"}})
        assert both.status == 422
        await api.post(path, {"decision": "approve", "arguments": {"what": "after-edit"}})
        await api.ended(run_id)
        text = (await api.get(f"runs/{run_id}/report"))["text"]
        assert text.startswith("[the person changed the arguments of this call to ")
        assert text.endswith("\nmarked after-edit")
        assert "before-edit" not in done


async def test_the_second_answer_is_told_who_was_first(folder: Path) -> None:
    async with serving(asks("twice"), folder, tools=[mark], with_tokens=True) as nobody:
        admin, approver = nobody.as_role("admin"), nobody.as_role("approve")
        run_id = await admin.ask()
        (asked,) = await waiting(admin)
        path = f"approvals/{asked['approval_id']}"
        await approver.post(path, {"decision": "reject", "reason": "no"})
        late = await admin("POST", path, {"decision": "approve"})
        assert (late.status, late.code) == (409, "answered")
        assert late.body["error"]["details"]["by"] == "approve"
        assert late.body["error"]["details"]["decision"] == "reject"
        await admin.ended(run_id)
        still = await admin("POST", path, {"decision": "approve"})
        assert (still.status, still.code) == (409, "answered")


async def test_of_many_answers_at_once_exactly_one_counts(folder: Path) -> None:
    async with serving(asks("race"), folder, tools=[mark]) as api:
        await api.ask()
        (asked,) = await waiting(api)
        path = f"approvals/{asked['approval_id']}"
        answers = await asyncio.gather(*(api("POST", path, {"decision": "approve"}) for _ in range(12)))
        assert sorted(answer.status for answer in answers) == [200] + [409] * 11


async def test_a_question_nobody_asked_is_not_found(folder: Path) -> None:
    async with serving(ScriptedModel(["done"]), folder) as api:
        run_id = await api.ask()
        await api.ended(run_id)
        for approval_id in (f"{run_id}:call_1", "r0:call_1"):
            answer = await api("POST", f"approvals/{approval_id}", {"decision": "approve"})
            assert (answer.status, answer.code) == (404, "not_found")


async def test_a_question_still_waits_after_a_clean_stop_and_is_answered_then(
    folder: Path, tmp_path: Path
) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    async with serving(asks("after-restart"), folder, db=db, tools=[mark]) as api:
        run_id = await api.ask()
        (before,) = await waiting(api)
        events = (await api.get(f"runs/{run_id}/events"))["events"]
    async with serving(ScriptedModel(["went on"]), folder, db=db, tools=[mark]) as api:
        (asked,) = await waiting(api)
        assert asked == before
        await api.post(f"approvals/{asked['approval_id']}", {"decision": "approve"})
        after = await api.ended(run_id)
        assert after[: len(events)] == events
        assert [event["type"] for event in after[len(events) :]] == [
            "run_resumed",
            "approval_answered",
            "tool_called",
            "tool_returned",
            "step_started",
            "model_replied",
            "run_finished",
        ]
        assert done.count("after-restart") == 1


async def test_an_answer_to_a_run_that_nobody_works_on_takes_it_up(folder: Path, tmp_path: Path) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    async with serving(asks("left-alone"), folder, db=db, tools=[mark]) as api:
        run_id = await api.ask()
        await waiting(api)
    async with serving(ScriptedModel(["went on"]), folder, db=db, tools=[mark], resume=False) as api:
        (asked,) = await waiting(api)
        assert not api.retinue.is_running(run_id)
        await api.post(f"approvals/{asked['approval_id']}", {"decision": "approve"})
        await api.ended(run_id)
        assert (await api.get(f"runs/{run_id}/report"))["text"] == "went on"


async def test_an_answer_for_more_than_one_call_says_what_it_was_for(folder: Path) -> None:
    async with serving(asks("a", "b", "c"), folder, tools=[mark]) as api:
        run_id = await api.ask()
        first, *others = await waiting(api, 3)
        assert first["rule"] == "mark"
        assert first["answers"] == ["approve", "approve_run", "approve_tool", "approve_always", "reject"]
        said = await api.post(f"approvals/{first['approval_id']}", {"decision": "approve_tool"})
        assert sorted(said["also"]) == sorted(one["approval_id"] for one in others)
        await api.ended(run_id)
        assert (await api.get(f"runs/{run_id}/report"))["text"] == "marked a; marked b; marked c"


async def test_a_rule_is_kept_by_an_admin_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "mine.toml"
    file.touch()
    monkeypatch.setenv("RETINUE_CONFIG", str(file))
    async with serving(asks("a"), folder, tools=[mark], with_tokens=True) as nobody:
        run_id = await nobody.as_role("admin").ask()
        (asked,) = await waiting(nobody.as_role("approve"))
        where, always = f"approvals/{asked['approval_id']}", {"decision": "approve_always"}
        refused = await nobody.as_role("approve")("POST", where, always)
        assert refused.status == 403
        assert "a rule that is kept" in refused.body["error"]["message"]
        assert file.read_text() == ""
        await nobody.as_role("admin").post(where, always)
        await nobody.as_role("admin").ended(run_id)
    assert '"mark"' in file.read_text()


async def test_a_question_says_what_of_a_command_no_rule_covers(folder: Path) -> None:
    model = ScriptedModel([call("bash", command="ls && rm x"), "done"])
    shell = AgentSpec(name="shell", description="runs", prompt="You are the shell.", tools=["bash"])
    settings = {"approvals.allow": ["bash(ls*)"]}
    async with serving(model, folder, agents=[shell], settings=settings) as api:
        await api.ask(agent="shell")
        (asked,) = await waiting(api)
        assert asked["uncovered"] == {"part": "rm x", "word": "", "rule": "", "why": ""}
        await api.post(f"approvals/{asked['approval_id']}", {"decision": "reject"})
