"""An approval for more than one call: what its rule covers, every call of a tool, or always in a folder."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace as replace_struct

from retinue.app import Retinue
from retinue.approvals import Verdict
from retinue.authority.rules import Asked
from retinue.engine.answers import Answer
from retinue.engine.offers import covers
from retinue.engine.outbox import AnswerGiven, _same
from retinue.errors import ConfigError
from retinue.events import ApprovalAnswered, ApprovalRequested, Decision, ToolReturned, decode, encode
from retinue.fold import apply
from retinue.run_state import Grant, RunState
from retinue.settings import load
from retinue.settings.files import read_user_file
from retinue.settings.toml_file import forget_rule, keep_rule
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from trees import Cast, agent, turn


@tool(effect="execute")
async def act(command: str) -> str:
    """Act.

    Args:
        command: what to run
    """
    return f"did {command}"


@tool(effect="write")
async def put(path: str) -> str:
    """Put.

    Args:
        path: where
    """
    return f"put {path}"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own settings."""
    file = tmp_path / "config.toml"
    file.touch()
    monkeypatch.setenv("RETINUE_CONFIG", str(file))
    return file


def steps(*replies: list[tuple[str, dict[str, Any]]]) -> Any:
    def play(request: Any) -> Any:
        return replies[turn(request)] if turn(request) < len(replies) else "done"

    return play


class Person:
    """Says one thing to what is asked, and remembers it."""

    def __init__(self, decision: Decision) -> None:
        self.decision: Decision = decision
        self.asked: list[ApprovalRequested] = []

    async def __call__(self, asked: ApprovalRequested) -> Answer:
        self.asked.append(asked)
        return Answer(decision=self.decision)

    @property
    def about(self) -> list[str]:
        return [next(iter(msgspec.json.decode(one.arguments).values())) for one in self.asked]


def app(
    play: Any, folder: Path, approve: Person | None = None, store: MemoryStore | None = None, **more: Any
):
    return Retinue(
        model=Cast({"root": play}),
        db=store or MemoryStore(),
        cwd=folder,
        tools=[act, put],
        environ={},
        approve=approve,
        answering="ask",
        **more,
    )


ROOT = agent("root", tools=("act", "put"))
IN_TURN = steps(
    [("act", {"command": "git status"})],
    [("act", {"command": "git status"})],
    [("act", {"command": "git log"})],
    [("put", {"path": "a.txt"})],
)


@pytest.mark.parametrize(
    ("decision", "asked"),
    [
        ("approve", ["git status", "git status", "git log", "a.txt"]),
        ("approve_run", ["git status", "git log", "a.txt"]),
        ("approve_tool", ["git status", "a.txt"]),
    ],
)
async def test_an_approval_for_the_rest_of_a_run_is_for_what_it_said(
    decision: Decision, asked: list[str], tmp_path: Path, mine: Path
) -> None:
    person = Person(decision)
    async with app(IN_TURN, tmp_path, person) as retinue:
        await retinue.run(ROOT, "go")
    assert person.about == asked
    assert person.asked[0].rule == "act(git status)"
    assert mine.read_text() == ""


async def test_a_question_says_what_it_takes_and_takes_nothing_else(tmp_path: Path, mine: Path) -> None:
    play = steps([("act", {"command": "git status $(x)"})], [("act", {"command": "git push"})])
    settings = {"approvals.ask": ["act(git push)"], "approvals.deny": ["act(rm *)"]}
    async with app(play, tmp_path, settings=settings) as retinue:
        run_id = await retinue.start(ROOT, "go")
        first = await waiting(retinue, 1)
        assert first[0].answers == ("approve", "reject"), "a rule denies what this may run: each time anew"
        assert first[0].rule == ""
        with pytest.raises(ConfigError, match="answer approve, reject"):
            await retinue.answer(first[0].approval_id, "approve_tool")
        await retinue.answer(first[0].approval_id, "approve")
        while (second := await waiting(retinue, 1))[0].approval_id == first[0].approval_id:
            await asyncio.sleep(0.01)
        assert "approve_always" not in second[0].answers, "another rule wants a person asked"
        with pytest.raises(ConfigError, match="no answer to this question"):
            await retinue.answer(second[0].approval_id, "approve_always")
        with pytest.raises(ConfigError, match="edited arguments"):
            await retinue.answer(second[0].approval_id, "approve_run", arguments='{"command": "x"}')
        await retinue.answer(second[0].approval_id, "approve")
        await retinue.wait(run_id)
    assert mine.read_text() == ""


async def waiting(retinue: Retinue, number: int) -> list[ApprovalRequested]:
    """So many questions, once they wait."""
    while len(found := await retinue.approvals()) != number:
        await asyncio.sleep(0.01)
    return found


AT_ONCE = steps([("act", {"command": one}) for one in ("git status", "git log", "git status", "git status")])


@pytest.mark.parametrize(
    ("decision", "also"), [("approve", 0), ("approve_run", 2), ("approve_tool", 3), ("approve_always", 2)]
)
async def test_what_waits_already_is_answered_too_each_in_the_log(
    decision: Decision, also: int, tmp_path: Path, mine: Path
) -> None:
    async with app(AT_ONCE, tmp_path) as retinue:
        run_id = await retinue.start(ROOT, "go")
        questions = await waiting(retinue, 4)
        first = next(one for one in questions if one.rule == "act(git status)")
        given = await retinue.answer(first.approval_id, decision, by="ann")
        assert (given, len(given.also)) == (AnswerGiven(first=True, also=given.also), also)
        for one in await waiting(retinue, 3 - also):
            await retinue.answer(one.approval_id, "reject")
        await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    along = [e for e in events if isinstance(e, ApprovalAnswered) and e.along_with]
    assert {e.approval_id for e in along} == set(given.also)
    assert all((e.decision, e.by, e.along_with) == ("approve", "ann", first.approval_id) for e in along)
    assert sum(isinstance(e, ToolReturned) and e.text.startswith("did") for e in events) == 1 + also


async def test_who_has_answered_one_of_them_first_is_not_overruled(tmp_path: Path, mine: Path) -> None:
    async with app(AT_ONCE, tmp_path) as retinue:
        run_id = await retinue.start(ROOT, "go")
        same = [one for one in await waiting(retinue, 4) if one.rule == "act(git status)"]
        await retinue.answer(same[1].approval_id, "reject", reason="not now")
        await retinue.answer(same[0].approval_id, "approve_tool")
        report = await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    assert report.shortfall.rejected == 1
    answers = {e.approval_id: e.decision for e in events if isinstance(e, ApprovalAnswered)}
    assert answers[same[1].approval_id] == "reject"
    assert sorted(answers.values()) == ["approve", "approve", "approve_tool", "reject"]


async def test_a_grant_by_rule_outlives_a_restart(tmp_path: Path, mine: Path) -> None:
    store, person = MemoryStore(), Person("approve_run")
    async with app(steps([("act", {"command": "git status"})]), tmp_path, person, store) as retinue:
        report = await retinue.run(ROOT, "go")
    again = steps([], [], [("act", {"command": "git status"})], [("act", {"command": "git log"})])
    async with app(again, tmp_path, person, store) as retinue:
        await retinue.resume(report.run_id, message="more")
        await retinue.wait(report.run_id)
    assert person.about == ["git status", "git log"]


async def test_always_is_for_one_folder_and_is_taken_back(tmp_path: Path, mine: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    person = Person("approve_always")
    async with app(IN_TURN, here, person) as retinue:
        await retinue.run(ROOT, "go")
        assert person.about == ["git status", "git log", "a.txt"]
        person.asked.clear()
        await retinue.run(ROOT, "again")
        assert person.asked == [], "the same program, from the next run on"
    rules = ("act(git status)", "act(git log)", "put(a.txt)")
    assert read_user_file().kept.of_folder(here) == rules
    assert load(cwd=here).settings.approvals.allow == rules
    assert load(cwd=elsewhere).settings.approvals.allow == ()
    assert load(cwd=here, project=False).settings.approvals.allow == ()
    rejecting = Person("reject")
    async with app(IN_TURN, here, rejecting) as retinue:
        await retinue.run(ROOT, "go")
    async with app(IN_TURN, elsewhere, rejecting) as retinue:
        await retinue.run(ROOT, "go")
    assert rejecting.about == ["git status", "git status", "git log", "a.txt"], "elsewhere alone"
    assert [forget_rule(here, "put(a.txt)") for _ in range(2)] == [True, False]
    assert load(cwd=here).settings.approvals.allow == rules[:2]
    shutil.rmtree(here)
    here.mkdir()
    assert load(cwd=here).settings.approvals.allow == (), "another folder of the same path"
    assert forget_rule(here, "act(git log)")
    here.rmdir()
    assert forget_rule(here, "act(git status)"), "also where the folder is gone"
    assert read_user_file().kept.entries == ()


async def test_a_repository_cannot_write_down_what_is_always_allowed(tmp_path: Path, mine: Path) -> None:
    keep_rule(tmp_path, "act(git status)")
    kept = mine.read_text()
    (tmp_path / "retinue.toml").write_text(kept.replace("git status", "rm -rf /"))
    mine.write_text("")
    assert load(cwd=tmp_path).settings.approvals.allow == ()


def test_rules_that_two_processes_keep_at_once_are_all_kept(tmp_path: Path, mine: Path) -> None:
    import concurrent.futures

    mine.write_text('model = "offline"  # mine\n')
    rules = [f"act(make t{number})" for number in range(12)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda rule: keep_rule(tmp_path, rule), rules))
    assert set(read_user_file().kept.of_folder(tmp_path)) == set(rules)
    assert '"offline"  # mine' in mine.read_text()


def test_an_approval_in_an_old_log_is_for_every_call_of_the_tool() -> None:
    common: dict[str, Any] = {
        "run_id": "r1",
        "root_id": "r1",
        "parent_id": None,
        "depth": 0,
        "at": 1.0,
        "pos": 0,
    }
    asked = ApprovalRequested(
        **common,
        seq=1,
        approval_id="r1:c1",
        call_id="c1",
        tool="bash",
        arguments="{}",
        effect="execute",
        risk="high",
        rule="bash(ls)",
    )
    said = ApprovalAnswered(**common, seq=2, approval_id="r1:c1", call_id="c1", decision="approve_run")
    state = RunState()
    old = msgspec.json.decode(encode(asked))
    for name in ("rule", "answers"):
        old.pop(name, None)
    for event in (decode(msgspec.json.encode(old)), said):
        apply(state, event)
    assert state.granted == {Grant(tool="bash")}
    state = RunState()
    for event in (asked, said):
        apply(state, event)
    assert state.granted == {Grant(tool="bash", rule="bash(ls)")}


async def test_the_end_of_a_long_command_is_shown_as_well(tmp_path: Path, mine: Path) -> None:
    long = f"echo {'x' * 300_000}; touch made"
    play = steps([("bash", {"command": long})])
    person = Person("reject")
    async with Retinue(
        model=Cast({"root": play}), db=MemoryStore(), cwd=tmp_path, environ={}, approve=person
    ) as retinue:
        await retinue.run(agent("root", tools=("bash",)), "go")
    assert person.asked[0].preview.endswith("; touch made")


def test_what_was_approved_for_the_sandbox_counts_in_the_sandbox_alone() -> None:
    grant = Grant(tool="bash", rule="bash(ls)", sealed=True)
    call = Asked(tool="bash", effect="execute", risk="high", agent="root", arguments={"command": "ls"})
    asks = Verdict(action="ask", why="")
    assert not covers(grant, call, asks)
    assert covers(grant, replace(call, sealed=True), asks)
    assert covers(replace_struct(grant, sealed=False), call, asks)


async def test_in_a_copy_of_the_project_each_call_is_approved_by_itself(tmp_path: Path, mine: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "a.txt").write_text("old\n")
    writes = [("write", {"path": "a.txt", "content": "new\n"})]
    parts = {
        "root": steps([("child", {"prompt": "go"})], writes),
        "child": steps(writes, writes),
    }
    person = Person("approve_run")
    child = agent("child", tools=("write",), isolation="worktree")
    async with Retinue(
        model=Cast(parts), db=f"{tmp_path}/runs.db", cwd=here, agents=[child], environ={}, approve=person
    ) as retinue:
        await retinue.run(agent("root", tools=("write", "child")), "go")
    assert [one.answers for one in person.asked[:2]] == [("approve", "reject")] * 2
    assert person.asked[-1].run_id != person.asked[0].run_id, "the root is asked for itself"
    assert len(person.asked) == 3


WAITS = ApprovalRequested(
    run_id="r",
    root_id="r",
    parent_id=None,
    depth=0,
    seq=1,
    at=1.0,
    approval_id="r:one",
    call_id="one",
    tool="act",
    arguments="{}",
    effect="execute",
    risk="high",
    rule="act(git *)",
    answers=("approve", "approve_run", "approve_tool", "approve_always", "reject"),
)
OLD: dict[str, Any] = {"rule": None, "answers": ("approve", "approve_run", "reject")}
"""A question of before there were rules in them: an approval for the run was for every call of the tool."""


@pytest.mark.parametrize(
    ("asked", "other", "also"),
    [
        ({}, {}, {"approve_run", "approve_tool", "approve_always"}),
        ({}, {"rule": "act(ls)"}, {"approve_tool"}),
        ({}, {"tool": "put"}, set()),
        ({}, {"concerns": ("a.test",)}, set()),
        ({}, {"answers": ("approve", "approve_run", "reject")}, {"approve_run", "approve_always"}),
        ({"rule": ""}, {"rule": ""}, {"approve_tool"}),
        ({}, {"unsealed": True}, set()),
        ({"unsealed": True}, {"unsealed": True}, {"approve_run", "approve_tool", "approve_always"}),
        ({"unsealed": True}, {}, {"approve_run", "approve_tool", "approve_always"}),
        ({"sealed": True}, {}, set()),
        ({"sealed": True}, {"sealed": True}, {"approve_run", "approve_tool", "approve_always"}),
        ({}, {"sealed": True}, {"approve_run", "approve_tool", "approve_always"}),
        (OLD, OLD, {"approve_run", "approve_tool"}),
        (OLD, {}, {"approve_run", "approve_tool"}),
        (OLD, {"answers": ("approve", "reject")}, set()),
        ({}, OLD, {"approve_tool"}),
    ],
)
def test_an_answer_is_for_another_question_that_waits_by_what_both_of_them_say(
    asked: dict[str, Any], other: dict[str, Any], also: set[Decision]
) -> None:
    one, two = replace_struct(WAITS, **asked), replace_struct(WAITS, approval_id="r:two", **other)
    found = {each for each in get_args(Decision) if _same(one, Answer(decision=each), two)}
    assert found == also
