"""What a person approved to run in the sandbox runs there or not at all; a trial that failed is not the last."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sealed import WHY_NOT

from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested, Decision, ToolReturned
from retinue.sandbox.commands.view import CommandPlace, missing
from retinue.store.sqlite import SqliteStore
from retinue.tools.base import Tool, ToolContext, tool
from trees import Stage

Why = dict[str, str | None]


def commands(why: Why) -> tuple[Tool, list[str]]:
    """A tool like bash, and in what kind of sandbox its commands have run."""
    ran: list[str] = []

    @tool(effect="execute", risk="high")
    async def bash(command: str, ctx: ToolContext) -> str:
        """Run a command."""
        ran.append(f"{command} {ctx.sandbox}")
        why["now"] = why.get("then", why["now"])
        return "ran"

    return replace(bash, unsealed=lambda files, network, again: why["now"]), ran


async def asked_once(stage: Stage) -> ApprovalRequested:
    while True:
        found = [event for event in await stage.log() if isinstance(event, ApprovalRequested)]
        if found:
            return found[-1]
        await asyncio.sleep(0.01)


PARTS: dict[str, Any] = {
    "root": [[("bash", {"command": "one"})], [("bash", {"command": "two"})], "done"],
}
SANDBOX: dict[str, Any] = {"approvals__sandbox": "project"}


async def left(tmp_path: Path, why: Why) -> Stage:
    """A run that waits for an answer about its first command, as its process leaves it behind."""
    store = SqliteStore(tmp_path / "first.db")
    await store.open()
    bash, _ = commands(why)
    first = Stage(PARTS, tools=[bash], answering="ask", store=store, **SANDBOX)
    task = await first.start()
    await asked_once(first)
    with (
        closing(sqlite3.connect(tmp_path / "first.db")) as now,
        closing(sqlite3.connect(tmp_path / "left.db")) as copy,
    ):
        now.backup(copy)
    first.workflow.cancel(first.root_id, "dead")
    await task
    await store.close()
    return first


async def taken_up(
    tmp_path: Path, first: Stage, why: Why, decision: Decision = "approve"
) -> tuple[list[str], list[str]]:
    """What ran, and what the model read, after the run was taken up and its questions answered."""
    store = SqliteStore(tmp_path / "left.db")
    await store.open()
    bash, ran = commands(why)
    second = Stage(PARTS, tools=[bash], answering="ask", store=store, root_id=first.root_id, **SANDBOX)
    task = await second.resume()
    told: set[str] = set()
    while not task.done():
        for event in await second.log():
            if isinstance(event, ApprovalRequested) and event.approval_id not in told:
                told.add(event.approval_id)
                second.workflow.inbox.tell(event.approval_id, Answer(decision=decision))
        await asyncio.sleep(0.01)
    texts = [event.text for event in await second.log() if isinstance(event, ToolReturned)]
    await store.close()
    return ran, texts


async def test_what_was_to_run_in_the_sandbox_runs_nowhere_else_after_a_restart(tmp_path: Path) -> None:
    first = await left(tmp_path, {"now": None})
    ran, texts = await taken_up(tmp_path, first, {"now": "no namespaces"})
    assert ran == ["two off"], "about which the person was asked as it is now"
    assert texts[0].startswith("not run: it was approved to run in the sandbox, and now it cannot")


async def test_a_question_about_a_command_without_the_sandbox_holds_after_a_restart(tmp_path: Path) -> None:
    first = await left(tmp_path, {"now": "no namespaces"})
    ran, _ = await taken_up(tmp_path, first, {"now": "no namespaces"})
    assert ran == ["one off", "two off"]


async def test_an_approval_for_the_rest_of_a_run_is_for_the_sandbox_if_there_was_one() -> None:
    why: Why = {"now": None, "then": "no namespaces"}
    bash, ran = commands(why)
    stage = Stage(PARTS, tools=[bash], answering="ask", **SANDBOX)
    task = await stage.start()
    asked = await asked_once(stage)
    stage.workflow.inbox.tell(asked.approval_id, Answer(decision="approve_run"))
    while True:
        later = await asked_once(stage)
        if later != asked:
            break
        assert not task.done(), ran
        await asyncio.sleep(0.01)
    assert (later.unsealed, ran) == (True, ["one closed"])
    stage.workflow.inbox.tell(later.approval_id, Answer(decision="approve_run"))
    await task


async def test_a_refusal_of_a_command_that_would_be_sealed_names_the_setting_that_lets_it_run() -> None:
    bash, ran = commands({"now": None})
    stage = Stage(PARTS, tools=[bash], **SANDBOX)
    await stage.run()
    (text, *_) = [event.text for event in await stage.log() if isinstance(event, ToolReturned)]
    assert 'set approvals.auto = "sandboxed"' in text
    assert ran == []
    stage = Stage(PARTS, tools=[bash], approvals__sandbox_network=True, **SANDBOX)
    await stage.run()
    (text, *_) = [event.text for event in await stage.log() if isinstance(event, ToolReturned)]
    assert "approvals.auto" not in text, "it would not, with the network"


@pytest.mark.skipif(WHY_NOT is not None, reason=f"no command can be sealed off here: {WHY_NOT}")
def test_a_trial_that_failed_is_tried_again(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from retinue.sandbox.commands import view\n"
        "place = view.CommandPlace(project=Path.cwd(), workspace=None, writable=True, network=False)\n"
        "def allow(most): Path('/proc/sys/user/max_user_namespaces').write_text(str(most))\n"
        "trials, view.TRIED_AGAIN = view.Trials(), 0.0\n"
        "allow(0); print(trials.why_not(place, {'HOME': '/nowhere'}))\n"
        "allow(100); print(trials.why_not(place, {'HOME': '/nowhere'}) is not None)\n"
        "print(trials.why_not(place, {'HOME': '/nowhere'}, again=True))\n"
        "allow(0); print(trials.why_not(place, {'HOME': '/nowhere'}, again=True))"
    )
    said = subprocess.run(
        ["unshare", "-Ur", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout.splitlines()
    assert "max_user_namespaces" in said[0]
    assert said[1:] == ["True", "None", "None"]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no sandbox elsewhere")
@pytest.mark.parametrize("where", ["settings", "link to them", "home", "elsewhere"])
def test_a_project_that_holds_what_is_the_persons_own_is_not_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A sealed command may write to the project: it would write rules and keys of the person's."""
    project, home = tmp_path / "project", tmp_path / "home"
    own = project / "dotfiles" if where != "elsewhere" else tmp_path / "dotfiles"
    for folder in (own, home):
        folder.mkdir(parents=True)
    if where == "link to them":
        (home / "config").symlink_to(own)
    given = {"settings": own, "link to them": home / "config", "home": home, "elsewhere": own}[where]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(given))
    place = CommandPlace(project=project, workspace=None, writable=True, network=False)
    why = missing(place, {"HOME": str(own if where == "home" else home)}) or ""
    expected = {"home": "holds your home folder", "elsewhere": ""}.get(
        where, "holds your settings for Retinue"
    )
    assert expected in why
    assert bool(why) is (where != "elsewhere")
