"""Sub-agents that have sub-agents: what a made-up child may hand on under `nested`, and who is asked for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from delegating import answer_of, echo, inner

from retinue.app import Retinue
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested, ChildStarted, RunStarted, ToolReturned
from retinue.store.memory import MemoryStore
from retinue.types import ModelEvent, ModelRequest
from trees import Cast, Stage, agent, reply, results, told, turn

COPY = "You do one delegated task. Work through it with your tools, then answer."


def depth_of(request: ModelRequest) -> int:
    """By its task: the root is told to `go`, and each level tells the next how deep it is."""
    task = told(request)[0]
    return 0 if task == "go" else int(task.split()[-1])


def goes_down(request: ModelRequest) -> Any:
    """Every level hands its task to a sub-agent, also the one that must not."""
    if turn(request) == 0:
        below = depth_of(request) + 1
        return [
            ("subagent", {"label": f"level {below}", "task_prompt": f"create a sub-agent at depth {below}"})
        ]
    return f"level {depth_of(request)} was told: {results(request)[0].text}"


def offered(request: ModelRequest) -> set[str]:
    return {spec.name for spec in request.tools}


async def test_a_subagent_that_creates_a_subagent_is_refused_at_the_last_level() -> None:
    """Depth 1 and 2 run, depth 3 is refused with the depth and the limit, as the result of that call."""
    stage = Stage({"root": goes_down, COPY: goes_down}, tools=[echo], yes=True, delegation__policy="nested")
    report = await stage.run()
    log = await stage.log()
    assert sorted(e.depth for e in log if isinstance(e, RunStarted)) == [0, 1, 2]
    (refused,) = [e for e in log if isinstance(e, ToolReturned) and e.is_error]
    assert refused.depth == 2
    assert refused.text == (
        "not started: the depth limit is 3 levels (0 to 2); you are at depth 2, so the child would be at depth "
        "3. Do the work yourself."
    )
    assert (report.status, report.shortfall.not_started) == ("completed", 1)
    assert answer_of(stage)["success"], "the main agent has its sub-agent's report, and no failure of its own"
    by_depth = {depth_of(request): offered(request) for _, request in stage.model.requests if request.tools}
    assert "subagent" in by_depth[0] & by_depth[1], "offered by default, also one level down"
    assert by_depth[2] == {"echo"}, "the last level is offered no way to delegate"


@pytest.mark.parametrize("allowed", [None, ["echo"], []])
async def test_a_subagent_may_delegate_whatever_tools_it_is_allowed(allowed: list[str] | None) -> None:
    def play(request: ModelRequest) -> Any:
        if depth_of(request) == 2 or turn(request):
            return "done"
        below = depth_of(request) + 1
        call: dict[str, Any] = {"label": "l", "task_prompt": f"depth {below}", "allowed_tools": allowed}
        return [("subagent", call)]

    stage = Stage(
        {"root": play, COPY: play, "c": ["ok"]},
        agents=[agent("c")],
        tools=[echo],
        yes=True,
        delegation__policy="nested",
    )
    await stage.run()
    assert sorted(e.depth for e in await stage.log() if isinstance(e, RunStarted)) == [0, 1, 2]
    first = next(request for _, request in stage.model.requests if depth_of(request) == 1)
    own = set(allowed) if allowed is not None else {"echo"}
    assert offered(first) == own | {"subagent", "spawn_agent", "parallel_tasks", "c"}, (
        "what its parent was offered"
    )


async def test_a_child_of_a_parent_without_a_way_to_delegate_is_not_given_one() -> None:
    def play(request: ModelRequest) -> Any:
        if turn(request) == 0 and depth_of(request) == 0:
            return [("subagent", {"label": "l", "task_prompt": "depth 1"})]
        return [("spawn_agent", {"name": "s", "prompt": "x"})] if turn(request) == 0 else "done"

    stage = Stage({"root": play, COPY: play}, tools=[echo], yes=True, delegation__policy="nested")
    await stage.run(agent("root", tools=("echo", "subagent")))
    first = next(request for _, request in stage.model.requests if depth_of(request) == 1)
    assert offered(first) == {"echo", "subagent"}
    (refused,) = [e for e in await stage.log() if isinstance(e, ToolReturned) and e.is_error]
    assert (
        refused.text
        == "there is no tool 'spawn_agent' here. Did you mean subagent? Your tools: echo, subagent"
    )


async def test_an_agent_that_is_not_its_own_tool_is_not_that_of_its_copy() -> None:
    def play(request: ModelRequest) -> Any:
        if turn(request) == 0 and depth_of(request) == 0:
            return [("subagent", {"label": "l", "task_prompt": "depth 1"})]
        return "done"

    root = agent("root")
    stage = Stage(
        {"root": play, COPY: play}, agents=[root, agent("c")], yes=True, delegation__policy="nested"
    )
    await stage.run(root)
    assert [offered(request) & {"root", "c"} for _, request in stage.model.requests if request.tools] == [
        {"c"}
    ] * 3


async def test_a_spawned_child_may_spawn_in_turn() -> None:
    def play(request: ModelRequest) -> Any:
        if depth_of(request) == 2 or turn(request):
            return f"from depth {depth_of(request)}"
        below = depth_of(request) + 1
        call = {
            "name": f"s{below}",
            "prompt": f"depth {below}",
            "system_prompt": "PLAY made",
            "tools": ["echo"],
        }
        return [("spawn_agent", call)]

    stage = Stage({"root": play, "made": play}, tools=[echo], yes=True, delegation__policy="nested")
    await stage.run()
    started = [e for e in await stage.log() if isinstance(e, ChildStarted)]
    assert [(e.depth, e.agent) for e in started] == [(0, "s1"), (1, "s2")]


async def test_under_flat_a_made_up_child_has_no_way_to_delegate() -> None:
    stage = Stage(
        {"root": goes_down, COPY: goes_down}, tools=[echo], yes=True, delegation__tools=["subagent", "agents"]
    )
    await stage.run()
    log = await stage.log()
    assert [e.depth for e in log if isinstance(e, RunStarted)] == [0, 1]
    (refused,) = [e for e in log if isinstance(e, ToolReturned) and e.is_error]
    assert "the policy 'flat' lets only the root delegate, and you are at depth 1" in refused.text


def three_by_three(request: ModelRequest) -> Any:
    """The root asks three sub-agents, each of which asks three."""
    depth = depth_of(request)
    if not request.tools or depth == 2 or turn(request):
        return f"{told(request)[0]}: {len(results(request))} below"
    name = told(request)[0].rsplit(" ", 1)[0]
    return [
        ("subagent", {"label": f"{name}.{n}", "task_prompt": f"{name}.{n} {depth + 1}"}) for n in range(1, 4)
    ]


async def test_a_tree_of_three_by_three_subagents_comes_back_whole() -> None:
    stage = Stage(
        {"root": three_by_three, COPY: three_by_three}, tools=[echo], yes=True, delegation__policy="nested"
    )
    report = await stage.run()
    assert report.text == "go: 3 below"
    started = [e for e in await stage.log() if isinstance(e, ChildStarted)]
    assert sorted(e.label for e in started) == sorted(
        [f"go.{n}" for n in (1, 2, 3)] + [f"go.{n}.{m}" for n in (1, 2, 3) for m in (1, 2, 3)]
    )
    assert inner(answer_of(stage)["report"]).startswith("go.")


# -- who is asked --------------------------------------------------------------------------------------------


async def asked_in(stage: Stage, answers: dict[str, str]) -> list[str]:
    """Answer every question of a tree by the agents and tool that it is about; what was asked, in order."""
    asked: list[str] = []
    config = stage.config

    def ask(question: ApprovalRequested) -> Any:
        about = " ".join((*question.path, question.tool))
        asked.append(about)
        decision: Any = answers.get(about, "approve")
        stage.workflow.inbox.tell(question.approval_id, Answer(decision=decision))
        return lambda: None

    object.__setattr__(config, "ask", ask)
    await stage.run()
    return asked


async def test_one_approval_of_a_subagent_covers_what_it_starts_in_turn() -> None:
    stage = Stage(
        {"root": three_by_three, COPY: three_by_three},
        tools=[echo],
        answering="ask",
        delegation__policy="nested",
    )
    assert await asked_in(stage, {}) == ["root subagent"] * 3, "once for each of the three, and never below"
    assert sum(isinstance(e, ChildStarted) for e in await stage.log()) == 12
    (question, *_) = [e for e in await stage.log() if isinstance(e, ApprovalRequested)]
    assert question.reason == (
        "delegate needs a person's approval (risk medium); with it, what this sub-agent starts in turn is approved"
    )


@pytest.mark.parametrize(
    "change", [{"approvals__ask": ["subagent"]}, {"approvals__delegation": "all"}], ids=["an ask rule", "all"]
)
async def test_who_wants_to_be_asked_every_time_is(change: dict[str, Any]) -> None:
    stage = Stage(
        {"root": goes_down, COPY: goes_down},
        tools=[echo],
        answering="ask",
        delegation__policy="nested",
        **change,
    )
    assert await asked_in(stage, {}) == ["root subagent", "root subagent subagent"]


async def test_an_approval_covers_delegation_and_no_other_call_below_it() -> None:
    from retinue.tools.base import tool

    @tool(effect="write")
    async def change(what: str) -> str:
        """Change it."""
        return what

    def play(request: ModelRequest) -> Any:
        if turn(request):
            return "done"
        if depth_of(request) == 2:
            return [("change", {"what": "x"})]
        below = depth_of(request) + 1
        return [("subagent", {"label": "l", "task_prompt": f"depth {below}"})]

    stage = Stage({"root": play, COPY: play}, tools=[change], answering="ask", delegation__policy="nested")
    assert await asked_in(stage, {}) == ["root subagent", "root subagent subagent change"]


async def test_a_deny_rule_holds_below_an_approval() -> None:
    stage = Stage(
        {"root": goes_down, COPY: goes_down},
        tools=[echo],
        answering="ask",
        delegation__policy="nested",
        approvals__deny=["agent:subagent subagent"],
    )
    assert await asked_in(stage, {}) == ["root subagent"]
    assert sum(isinstance(e, ChildStarted) for e in await stage.log()) == 1


async def test_what_a_registered_agent_makes_up_is_asked_about_as_ever() -> None:
    """Nobody was asked for the agent, so nobody has approved what it starts."""

    def play(request: ModelRequest) -> Any:
        return [("subagent", {"label": "l", "task_prompt": "depth 2"})] if turn(request) == 0 else "done"

    stage = Stage(
        {"root": [[("mid", {"prompt": "depth 1"})], "done"], "mid": play, COPY: ["ok", "in short"]},
        agents=[agent("mid")],
        answering="ask",
        delegation__policy="nested",
    )
    assert await asked_in(stage, {}) == ["root mid subagent"]


# -- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "there"),
    [
        ({}, False),
        ({"delegation__policy": "nested"}, True),
        ({"delegation__policy": "nested", "delegation__tools": ["agents"]}, False),
        ({"delegation__tools": ["subagent"]}, True),
        ({"delegation__policy": "nested", "delegation__tools": "auto"}, True),
    ],
)
async def test_subagent_is_offered_under_nested_unless_the_settings_list_other_ways(
    change: dict[str, Any], there: bool
) -> None:
    stage = Stage({"root": ["done"]}, agents=[agent("c")], **change)
    await stage.run()
    assert ("subagent" in offered(stage.model.of("root")[0])) == there


# -- with agents as they come --------------------------------------------------------------------------------


async def test_general_is_a_middle_manager_under_nested(tmp_path: Path) -> None:
    """Below a root of one's own it has its staff and `subagent`, and what it hands on runs one level down."""
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / ".retinue/agents").mkdir(parents=True)
    (tmp_path / ".retinue/agents/boss.md").write_text("---\ndescription: asks general\n---\nPLAY boss\n")
    tasks = [
        ("code-search", {"query": "where is x set?"}),
        ("subagent", {"label": "count", "task_prompt": "count the files", "allowed_tools": ["ls"]}),
    ]
    seen: list[str] = []

    class Staff(Cast):
        """Plays agents whose prompts are those of their files."""

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            seen.append(next(name for name in self.parts if name in request.system.split("\n", 1)[0]))
            if seen[-1] == "`general`":
                assert {"code-search", "subagent", "read"} <= offered(request)
            said: Any = self.parts[seen[-1]]
            said = said[turn(request)] if isinstance(said, list) else said
            yield reply(said) if isinstance(said, str) else reply("", said)

    model = Staff(
        {
            "boss": [[("general", {"prompt": "do both parts"})], "done"],
            "`general`": [tasks, "both are done"],
            "`code-search`": "in a.py:1",
            "delegated task": "one file",
        }
    )
    settings = {"delegation.policy": "nested"}
    async with Retinue(
        model=model, db=MemoryStore(), cwd=tmp_path, environ={}, yes=True, settings=settings
    ) as retinue:
        report = await retinue.run("boss", "go")
        log = await retinue.store.events(report.run_id)
    assert report.text == "done"
    started = {(e.depth, e.agent) for e in log if isinstance(e, ChildStarted)}
    assert started == {(0, "general"), (1, "code-search"), (1, "subagent")}
    assert not [e.text for e in log if isinstance(e, ToolReturned) and e.is_error]


async def test_an_approval_covers_no_subtree_in_a_fork() -> None:
    """What a sub-agent starts in turn was approved with it, in the workflow where that was asked."""
    store, asked = MemoryStore(), list[str]()

    async def person(question: ApprovalRequested) -> Answer:
        asked.append(" ".join((*question.path, question.tool)))
        return Answer(decision="approve")

    async with Retinue(
        model=Cast({"root": goes_down, COPY: goes_down}),
        db=store,
        environ={},
        approve=person,
        settings={"delegation.policy": "nested", "delegation.tools": ["subagent"]},
    ) as retinue:
        report = await retinue.run(agent("root"), "go")
        assert asked == ["root subagent"]
        log = await store.events(report.run_id)
        below = next(e for e in log if isinstance(e, RunStarted) and e.depth == 1)
        asked.clear()
        await retinue.wait(await retinue.fork(report.run_id, at=below.pos))
    assert asked == ["root subagent subagent"]
