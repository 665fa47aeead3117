"""A child that has ended is asked again: same run, same log, all it knows; another piece of work for every count."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from delegating import ALL, echo, inner
from msgspec import to_builtins
from msgspec.structs import replace

from retinue.app import Retinue
from retinue.engine.answers import Answer
from retinue.errors import ConfigError
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    ChildEnded,
    ChildStarted,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunResumed,
    RunStarted,
    ToolReturned,
)
from retinue.fold import fold
from retinue.server.transcript import parts
from retinue.store.base import Signal
from retinue.store.memory import MemoryStore
from retinue.story import Story
from retinue.tools.base import tool
from retinue.types import AssistantMessage, Limits, ModelRequest, Shortfall
from retinue.view.transcript import Transcript
from trees import Cast, Stage, agent, never, reply, results, told, turn

COPY = "You do one delegated task. Work through it with your tools, then answer."

FIRST: dict[str, tuple[str, dict[str, Any]]] = {
    "agent": ("c", {"prompt": "first"}),
    "delegate_task": ("delegate_task", {"agent_id": "c", "prompt": "first"}),
    "spawn_agent": ("spawn_agent", {"name": "s", "prompt": "first", "system_prompt": "PLAY c"}),
}
AGAIN: dict[str, dict[str, Any]] = {
    "delegate_task": {"prompt": "second"},
    "spawn_agent": {"operation": "continue", "prompt": "second"},
    "subagent": {"label": "more", "task_prompt": "second"},
    "background": {"operation": "start", "prompt": "second"},
}


def child_in(request: ModelRequest) -> str:
    """The id of the child, as the model finds it in the first result."""
    text = results(request)[0].text
    return text.split()[1] if text.startswith("<report") else json.loads(text)["child_id"]


def asks_twice(first: str, again: str, **change: Any) -> Any:
    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [FIRST[first]]
        if turn(request) == 1:
            return [(again, {**AGAIN[again], "child_id": child_in(request), **change})]
        return "done"

    return root


def counts(request: ModelRequest) -> str:
    """What a child knows: everything it was told and said."""
    said = [m.text for m in request.messages if isinstance(m, AssistantMessage) and not m.calls]
    return f"told {told(request)}, said {said}"


def stage_of(root: Any, child: Any = counts, **options: Any) -> Stage:
    given: dict[str, Any] = {"yes": True, "delegation__tools": ALL, **options}
    return Stage({"root": root, "c": child, COPY: child}, agents=[agent("c")], tools=[echo], **given)


def last_of(stage: Stage) -> dict[str, Any]:
    return json.loads(results(stage.model.of("root")[-1])[-1].text)


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("again", ["delegate_task", "spawn_agent", "subagent"])
async def test_a_finished_child_goes_on_with_all_it_knows(first: str, again: str) -> None:
    stage = stage_of(asks_twice(first, again))
    report = await stage.run()
    body = last_of(stage)
    assert inner(body["report"]) == "told ['first', 'second'], said [\"told ['first'], said []\"]"
    log = await stage.log()
    assert [e.run_id for e in log if isinstance(e, RunStarted)] == [stage.root_id, body["child_id"]]
    started = [e for e in log if isinstance(e, ChildStarted)]
    assert [(e.child_id, e.continues, e.prompt) for e in started] == [
        (body["child_id"], False, "first"),
        (body["child_id"], True, "second"),
    ]
    assert [e.call_id for e in log if isinstance(e, ChildEnded)] == [e.call_id for e in started]
    assert [e.report.text[:8] for e in log if isinstance(e, RunFinished)] == ["told ['f", "told ['f", "done"]
    # Two calls of the child and three of the root, each of 10 and 5 tokens: both pieces once in the whole.
    assert (report.usage.input_tokens, report.usage.output_tokens) == (50, 25)
    assert (body["metrics"]["tokens_input"], body["metrics"]["tokens_output"]) == (10, 5), (
        "of this piece alone"
    )
    assert report.outcome == "completed"


async def test_a_child_is_asked_again_in_the_background_and_its_parent_told() -> None:
    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "c", "prompt": "first"})]
        child = child_in(request)
        ends = [text for text in told(request) if text.startswith("[The background agent c")]
        if len(ends) == 1 and turn(request) < 4 and len(results(request)) == 1:
            return [("background", {"operation": "start", "child_id": child, "prompt": "second"})]
        return "done" if len(ends) == 2 else "waiting"

    stage = stage_of(root)
    report = await stage.run()
    assert report.text == "done"
    ends = [text for text in told(stage.model.of("root")[-1]) if text.startswith("[The background agent c")]
    assert "told ['first', 'second']" in ends[1]
    assert "second" not in ends[0]
    for end in ends:
        assert re.search(r'turns="1" duration_ms="\d+" tokens_input="10" tokens_output="5"', end), (
            f"of this piece alone: {end}"
        )


async def test_a_report_that_came_with_a_notice_is_not_taken_for_that_of_the_next_piece() -> None:
    """Asked in the background first, and waited for the second time: the second report is in the result."""

    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "c", "prompt": "first"})]
        if len(results(request)) == 1:
            ended = any(text.startswith("[The background agent") for text in told(request))
            return (
                [("delegate_task", {"child_id": child_in(request), "prompt": "second"})] if ended else "wait"
            )
        return "done"

    stage = stage_of(root)
    await stage.run()
    assert "told ['first', 'second']" in inner(last_of(stage)["report"])


# -- counted and budgeted as a new piece of work -------------------------------------------------------------


async def test_it_counts_as_another_child() -> None:
    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [FIRST["delegate_task"]]
        if turn(request) < 5:
            return [("delegate_task", {"child_id": child_in(request), "prompt": f"piece {turn(request)}"})]
        return "done"

    stage = stage_of(root, delegation__max_children=3)
    report = await stage.run()
    told_root = [message.text for message in results(stage.model.of("root")[-1])]
    assert [text.startswith("{") for text in told_root] == [True, True, True, False, False]
    assert told_root[3] == (
        "not started: 3 of 3 children already started for this message "
        "(policy flat, delegation.max_children = 3). Work with the reports you have."
    )
    assert report.shortfall.not_started == 2


async def test_it_has_a_share_of_its_own_and_no_more_than_its_agent_may_use() -> None:
    def child(request: ModelRequest) -> Any:
        return [("echo", {"text": str(turn(request))})] if request.tools else "summed up"

    stage = Stage(
        {"root": asks_twice("delegate_task", "delegate_task"), "c": child},
        agents=[agent("c", limits=Limits(turns=3))],
        tools=[echo],
        delegation__tools=ALL,
    )
    await stage.run()
    begun = [event for event in await stage.log() if isinstance(event, ChildStarted)]
    assert [event.reserved.turns for event in begun] == [3, 3]
    assert len(stage.model.of("c")) <= 6, "each piece is held to it"


async def test_what_its_parent_had_read_by_then_counts_as_read_by_it() -> None:
    @tool(effect="read", private=True)
    async def diary() -> str:
        """Read what is private."""
        return "dear diary"

    def root(request: ModelRequest) -> Any:
        if turn(request) == 1:
            return [("diary", {})]
        if turn(request) == 2:
            return [("delegate_task", {"child_id": child_in(request), "prompt": "second"})]
        return [FIRST["delegate_task"]] if turn(request) == 0 else "done"

    stage = Stage(
        {"root": root, "c": ["first", "second"]},
        agents=[agent("c", tools=())],
        tools=[diary],
        delegation__tools=ALL,
    )
    await stage.run()
    said = [event for event in await stage.log() if isinstance(event, MessageReceived) and event.opens]
    assert [bool(event.private) for event in said] == [True]


async def test_its_turns_and_limits_begin_anew() -> None:
    def child(request: ModelRequest) -> Any:
        return (
            [("echo", {"text": str(turn(request))})] if request.tools else f"summed up after {turn(request)}"
        )

    stage = Stage(
        {"root": asks_twice("delegate_task", "delegate_task"), "c": child},
        agents=[agent("c", max_turns=2)],
        tools=[echo],
        delegation__tools=ALL,
    )
    await stage.run()
    assert inner(last_of(stage)["report"]) == "[incomplete: max turns reached: 2 of 2]\nsummed up after 5"


async def test_a_failure_of_the_first_piece_still_counts_when_the_second_succeeds() -> None:
    def child(request: ModelRequest) -> Any:
        return ValueError("broken") if told(request)[-1] == "first" else "fine"

    stage = stage_of(asks_twice("delegate_task", "delegate_task"), child)
    report = await stage.run()
    assert last_of(stage)["success"]
    assert report.shortfall.failed == 1


async def test_what_the_second_piece_lacks_is_added_to_what_the_first_lacked() -> None:
    def child(request: ModelRequest) -> Any:
        return [("change", {})] if turn(request) in (0, 2) else "did without"

    @tool(effect="write")
    async def change() -> str:
        """Change something."""
        return "changed"

    stage = Stage(
        {"root": asks_twice("delegate_task", "delegate_task"), "c": child},
        agents=[agent("c")],
        tools=[change],
        delegation__tools=ALL,
    )
    report = await stage.run()
    assert report.shortfall.refused == 2
    last = [e for e in await stage.log() if isinstance(e, RunFinished)][1]
    assert last_of(stage)["shortfall"] == {"refused": 1}, "its parent knows of the first"
    assert last.report.shortfall.refused == 2, "so every view of the child says the same as its parent"


LACKING: dict[str, tuple[Any, str]] = {
    "failed": (ValueError("broken"), "incomplete"),
    "incomplete": (replace(reply("cut"), stop="length"), "incomplete"),
    "denied": ([("taboo", {})], "completed"),
    "refused": ([("change", {})], "refused"),
}


@pytest.mark.parametrize("what", LACKING)
async def test_a_child_that_is_asked_again_shows_what_its_first_piece_lacked_as_its_parent_does(
    what: str,
) -> None:
    first, outcome = LACKING[what]

    def child(request: ModelRequest) -> Any:
        return first if turn(request) == 0 and told(request)[-1] == "first" else "fine"

    @tool(effect="write")
    async def change() -> str:
        """Change something."""
        return "changed"

    @tool(effect="read")
    async def taboo() -> str:
        """What a rule denies."""
        return "done"

    store = MemoryStore()
    settings: dict[str, Any] = {"delegation.tools": list(ALL), "approvals.deny": ["taboo"]}
    parts = {"root": asks_twice("delegate_task", "delegate_task"), "c": child}
    async with Retinue(
        model=Cast(parts), db=store, agents=[agent("c")], tools=[change, taboo], environ={}, settings=settings
    ) as retinue:
        report = await retinue.run(agent("root"), "go")
        replayed = await retinue.replay(report.run_id)
    log = await store.events(report.run_id)
    lacks = {what: 1}
    assert to_builtins(report.shortfall) == lacks
    last = [e.report for e in log if isinstance(e, RunFinished) and e.depth == 1][-1]
    story = Story()
    for event in log:
        story.apply(event)
    (row,) = [row for row in await store.tree(report.run_id) if row.depth == 1]
    node = story.nodes[row.run_id]
    assert [to_builtins(each.shortfall) for each in (last, node, row)] == [lacks] * 3
    assert {last.outcome, node.outcome, row.outcome} == {outcome}
    assert replayed.diff == ""


async def test_what_a_child_lacked_before_a_person_spoke_again_is_missing_nowhere_in_the_next_turn() -> None:
    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [FIRST["delegate_task"]]
        if turn(request) == 2:
            return [("delegate_task", {"prompt": "second", "child_id": child_in(request)})]
        return "done"

    def child(request: ModelRequest) -> Any:
        return ValueError("broken") if told(request)[-1] == "first" else "fine"

    stage = stage_of(root, child)
    report = await stage.run()
    assert report.shortfall.failed == 1
    again = stage_of(root, child, store=stage.store, root_id=stage.root_id)
    report = await (await again.resume("and now again"))
    assert report.shortfall == Shortfall()
    last = [e.report for e in await again.log() if isinstance(e, RunFinished) and e.depth == 1][-1]
    assert last.outcome == "completed"


# -- what cannot be asked again ------------------------------------------------------------------------------


async def test_only_a_parent_asks_its_child_again() -> None:
    def mid(request: ModelRequest) -> Any:
        other = told(request)[0]
        return [("delegate_task", {"child_id": other, "prompt": "x"})] if turn(request) == 0 else "done"

    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [FIRST["delegate_task"]]
        if turn(request) == 1:
            return [("delegate_task", {"agent_id": "mid", "prompt": child_in(request)})]
        return "done"

    stage = Stage(
        {"root": root, "mid": mid, "c": counts},
        agents=[agent("mid"), agent("c")],
        delegation__tools=ALL,
        delegation__policy="nested",
    )
    await stage.run()
    (refused,) = [e for e in await stage.log() if isinstance(e, ToolReturned) and e.is_error]
    child = child_in(stage.model.of("root")[-1])
    assert refused.text == f"there is no child '{child}' of yours. Your children: none"
    assert sum(isinstance(e, MessageReceived) for e in await stage.log()) == 0


async def test_a_child_at_work_is_not_asked_again() -> None:
    gate = asyncio.Event()

    async def child(request: ModelRequest) -> Any:
        await gate.wait()
        return "done"

    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "c", "prompt": "first"})]
        if turn(request) == 1:
            return [("delegate_task", {"child_id": child_in(request), "prompt": "second"})]
        gate.set()
        return "done"

    stage = stage_of(root, child)
    await stage.run()
    (refused,) = [e for e in await stage.log() if isinstance(e, ToolReturned) and e.is_error]
    assert refused.text == (
        f"the child {child_in(stage.model.of('root')[-1])} is still at work, so it cannot be asked again yet: wait "
        "for its report, or send it a message"
    )


async def test_of_two_calls_at_once_one_is_refused() -> None:
    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [FIRST["delegate_task"]]
        if turn(request) == 1:
            return [
                ("delegate_task", {"child_id": child_in(request), "prompt": f"at once {n}"}) for n in (1, 2)
            ]
        return "done"

    stage = stage_of(root)
    await stage.run()
    pieces = [e.prompt for e in await stage.log() if isinstance(e, ChildStarted) and e.continues]
    assert pieces == ["at once 1"]
    (refused,) = [e for e in await stage.log() if isinstance(e, ToolReturned) and e.is_error]
    assert "is still at work" in refused.text


@pytest.mark.parametrize(
    ("way", "change", "says"),
    [
        ("delegate_task", {"agent_id": "d"}, "the child c"),
        ("delegate_task", {"prompt": " "}, "the operation 'delegate' needs prompt"),
        ("background", {"agent_id": "d"}, "the child c"),
        ("spawn_agent", {"child_id": ""}, "the operation 'continue' needs child_id"),
        ("delegate_task", {"child_id": "c0"}, "there is no child 'c0' of yours. Your children: "),
        ("subagent", {"allowed_tools": ["echo"]}, "a child that is asked again keeps its own allowed_tools"),
        (
            "spawn_agent",
            {"effort": "high"},
            "a child that is asked again keeps its own effort: leave that out",
        ),
        ("subagent", {"max_turns": 3}, "a child that is asked again keeps its own max_turns: leave that out"),
    ],
)
async def test_a_wrong_call_says_why_and_asks_nobody(way: str, change: dict[str, Any], says: str) -> None:
    stage = stage_of(asks_twice("delegate_task", way, **change), yes=False, answering="ask")
    await stage.run()
    (refused,) = [e for e in await stage.log() if isinstance(e, ToolReturned) and e.is_error]
    assert refused.text.startswith(says)
    assert not any(isinstance(e, ApprovalRequested) for e in await stage.log())


# -- approvals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "asked"), [("delegate_task", []), ("spawn_agent", ["spawn_agent", "second"])]
)
@pytest.mark.parametrize("again", ["delegate_task", "spawn_agent", "subagent"])
async def test_who_is_asked_depends_on_the_child_and_not_on_the_tool(
    first: str, asked: list[str], again: str
) -> None:
    """What a model made up asks a person, and not only the first time; a registered agent does not."""
    stage = stage_of(asks_twice(first, again), yes=False, answering="ask")
    heard: list[ApprovalRequested] = []

    def ask(question: ApprovalRequested) -> Any:
        heard.append(question)
        stage.workflow.inbox.tell(question.approval_id, Answer(decision="approve"))
        return lambda: None

    object.__setattr__(stage.config, "ask", ask)
    await stage.run()
    names = [again if "second" in one.arguments else one.tool for one in heard]
    assert names == ([] if not asked else ["spawn_agent", again])
    assert {one.risk for one in heard} <= {"medium"}


# -- people --------------------------------------------------------------------------------------------------


async def test_people_see_one_run_with_both_pieces() -> None:
    stage = stage_of(asks_twice("delegate_task", "delegate_task"))
    report = await stage.run()
    story = Story()
    for event in await stage.log():
        story.apply(event)
    assert story.root is not None
    (child,) = story.root.children
    assert (child.outcome, child.task, child.usage.input_tokens) == ("completed", "first", 20)
    assert story.root.usage == report.usage
    row = await stage.store.run(child.run_id)
    assert row is not None
    assert (row.outcome, row.input_tokens) == ("completed", 20)


async def test_a_cancel_stops_the_second_piece_and_keeps_what_the_first_found() -> None:
    began = asyncio.Event()

    async def child(request: ModelRequest) -> Any:
        if told(request)[-1] == "second":
            began.set()
            await never()
        return "the first finding"

    stage = stage_of(asks_twice("delegate_task", "delegate_task"), child)
    task = await stage.start()
    await began.wait()
    stage.workflow.cancel(stage.root_id, "enough")
    report = await task
    assert report.status == "cancelled"
    ends = [e.report for e in await stage.log() if isinstance(e, RunFinished)]
    assert (ends[0].status, ends[0].text) == ("completed", "the first finding")
    assert ends[1].status == "cancelled"


# -- after a restart, in a fork, in a replay -------------------------------------------------------------------


def in_three_pieces(request: ModelRequest) -> Any:
    """The child is asked three times, the last time in the background."""
    if turn(request) == 0:
        return [FIRST["delegate_task"]]
    if turn(request) == 1:
        return [("delegate_task", {"child_id": child_in(request), "prompt": "second"})]
    if turn(request) == 2:
        return [("background", {"operation": "start", "child_id": child_in(request), "prompt": "third"})]
    ended = [text for text in told(request) if text.startswith("[The background agent")]
    return f"done after {len(ended)}" if ended else "not yet"


def remembers(request: ModelRequest) -> Any:
    """Keeps a value in its vault while it does the first piece, and looks for it in every other."""
    piece, at = next(t for t in reversed(told(request)) if not t.startswith("<state>")), turn(request)
    if at % 2:
        return f"{piece}: {results(request)[-1].text}"
    if piece == "first":
        return [("vault_set", {"name": "secret", "value": "kept"})]
    return [("vault_get", {"name": "secret"})]


def remembering(store: MemoryStore | None = None, root_id: str | None = None, **options: Any) -> Stage:
    return Stage(
        {"root": in_three_pieces, "c": remembers},
        agents=[agent("c", tools=("vault_set", "vault_get", "echo"))],
        tools=[echo],
        store=store,
        root_id=root_id,
        delegation__tools=ALL,
        delegation__max_children=3,
        **options,
    )


def whole_writes(log: list[Any]) -> list[int]:
    """After how many events the log may end: not within what is written in one transaction."""
    inside = [
        n
        for n, event in enumerate(log)
        if (isinstance(event, RunStarted | RunResumed) and event.depth) or getattr(event, "opens", False)
    ]
    return [n for n in range(1, len(log)) if n not in inside]


async def test_a_child_that_was_asked_again_is_taken_up_from_any_place_of_its_log() -> None:
    stage = remembering()
    report = await stage.run()
    assert report.text == "done after 1"
    log = await stage.log()
    replies = [(e.run_id, e.step) for e in log if isinstance(e, ModelReplied) and e.depth]
    said = [e.report.text.splitlines() for e in log if isinstance(e, RunFinished) and e.depth][1:]
    assert [(lines[0].partition(":")[0], "kept" in lines) for lines in said] == [
        ("second", True),
        ("third", True),
    ]
    for place in whole_writes(log):
        store = MemoryStore()
        await store.append(log[:place])
        again = remembering(store, stage.root_id)
        assert (await (await again.resume())).text == "done after 1", place
        budget = again.workflow.tree.run(stage.root_id).budget
        assert budget.used["children"] == 3, f"three pieces of work, wherever it was cut: {place}"
        now = [e for e in await again.log() if isinstance(e, ModelReplied)]
        paid = [(e.run_id, e.step) for e in now]
        assert len(paid) == len(set(paid))
        mine = [one for one in paid if one[0] != stage.root_id]
        assert mine == replies, f"each step of the child once, and none left out: {place}"
        assert budget.used["turns"] == len(paid), place
        pieces = [e.prompt for e in await again.log() if isinstance(e, ChildStarted)]
        assert pieces == ["first", "second", "third"]


async def test_the_second_piece_has_its_own_share_after_a_restart() -> None:
    """What the first piece used is not charged to the limits of the second."""
    part: dict[str, Any] = {"agents": [agent("c", limits=Limits(turns=2))], "delegation__tools": ALL}
    parts = {"root": asks_twice("delegate_task", "delegate_task"), "c": remembers}
    stage = Stage(parts, **part)
    await stage.run()
    log = await stage.log()
    assert (
        json.loads([e for e in log if isinstance(e, ToolReturned) and not e.depth][-1].text)["status"]
        == "completed"
    )
    opened = next(n for n, e in enumerate(log) if isinstance(e, MessageReceived) and e.opens)
    asked = next(n for n, e in enumerate(log) if n > opened and isinstance(e, ModelReplied))
    store = MemoryStore()
    await store.append(log[: asked + 1])
    again = Stage(parts, store=store, root_id=stage.root_id, **part)
    report = await (await again.resume())
    assert (report.outcome, report.shortfall.incomplete) == ("completed", 0)


async def test_a_person_who_speaks_again_pays_for_what_follows_alone() -> None:
    """A child of the question before is asked again for the next one: that piece counts, the first does not."""

    def root(request: ModelRequest) -> Any:
        if turn(request) == 0:
            return [FIRST["delegate_task"]]
        if told(request)[-1] == "more" and len(results(request)) == 1:
            return [("delegate_task", {"child_id": child_in(request), "prompt": "second"})]
        return "done"

    stage = stage_of(root, delegation__max_children=1)
    await stage.run()
    log = await stage.log()
    store = MemoryStore()
    await store.append(log)
    again = stage_of(root, store=store, root_id=stage.root_id, delegation__max_children=1)
    report = await (await again.resume("more"))
    assert report.outcome == "completed"
    assert "told ['first', 'second']" in inner(last_of(again)["report"])
    third = stage_of(root, store=store, root_id=stage.root_id, delegation__max_children=1)
    await (await third.resume("and more"))
    used = third.workflow.tree.run(stage.root_id).budget.used
    assert (used["children"], used["turns"]) == (0, 1)


async def test_a_tree_with_a_child_that_was_asked_again_replays_and_forks() -> None:
    store = MemoryStore()
    settings = {"delegation.tools": list(ALL), "delegation.max_children": 6}

    def app(parts: dict[str, Any]) -> Retinue:
        agents = [agent("c", tools=("vault_set", "vault_get"))]
        return Retinue(model=Cast(parts), db=store, agents=agents, environ={}, yes=True, settings=settings)

    parts = {"root": in_three_pieces, "c": remembers}
    async with app(parts) as retinue:
        report = await retinue.run(agent("root"), "go")
    async with app({"root": [], "c": []}) as retinue:
        assert (await retinue.replay(report.run_id)).diff == ""
    log = await store.events(report.run_id)
    places = [n for n, e in enumerate(log) if isinstance(e, ChildStarted) and e.continues]
    async with app(parts) as retinue:
        for first in places:
            for at in (first, first + 1, first + 2, first + 4):  # also within the write that asks again
                fork = await retinue.fork(report.run_id, at=log[at].pos)
                ended = await retinue.wait(fork)
                assert ended.text == "done after 1"
                copied = await store.events(fork)
                (child,) = {e.child_id for e in copied if isinstance(e, ChildStarted)}
                assert child not in {e.run_id for e in log}, "the copy has ids of its own"
                pieces = [e.prompt for e in copied if isinstance(e, ChildStarted)]
                assert pieces == ["first", "second", "third"], at


# -- by a person -----------------------------------------------------------------------------------------------


def passes_on(request: ModelRequest) -> Any:
    """Asks one child, and says what it was told of the ends of children since."""
    if turn(request) == 0:
        return [FIRST["delegate_task"]]
    ends = [text for text in told(request) if text.startswith("[The background agent")]
    return f"done, and told of {len(ends)}"


def app_of(store: MemoryStore, parts: dict[str, Any]) -> Retinue:
    settings = {"delegation.tools": list(ALL), "delegation.max_children": 1}
    return Retinue(model=Cast(parts), db=store, agents=[agent("c")], environ={}, yes=True, settings=settings)


async def test_a_person_asks_a_finished_child_of_a_finished_run_again() -> None:
    store = MemoryStore()
    async with app_of(store, {"root": passes_on, "c": counts}) as retinue:
        report = await retinue.run(agent("root"), "go")
        (child,) = [e.child_id for e in await store.events(report.run_id) if isinstance(e, ChildStarted)]
        assert not await retinue.message(child, "too late for that")
        await retinue.resume(child, message="and why?")
        again = await retinue.wait(report.run_id)
    assert again.text == "done, and told of 1"
    log = await store.events(report.run_id)
    ends = [e.report.text for e in log if isinstance(e, RunFinished) and e.run_id == child]
    assert ends[1] == "told ['first', 'and why?'], said [\"told ['first'], said []\"]"
    opened = next(e for e in log if isinstance(e, MessageReceived) and e.opens)
    assert (opened.run_id, opened.sender) == (child, "person")
    heard = next(e for e in log if isinstance(e, MessageReceived) and e.asks)
    assert (heard.run_id, heard.asks) == (report.run_id, child)


async def test_a_person_asks_a_finished_child_while_its_parent_works() -> None:
    """The parent is told of both, and the whole of it replays."""
    store, ended, asked = MemoryStore(), asyncio.Event(), asyncio.Event()

    async def root(request: ModelRequest) -> Any:
        if turn(request) == 1:
            ended.set()
            await asked.wait()
        return passes_on(request)

    async with app_of(store, {"root": root, "c": counts}) as retinue:
        run_id = await retinue.start(agent("root"), "go")
        await ended.wait()
        (child,) = [e.child_id for e in await store.events(run_id) if isinstance(e, ChildStarted)]
        assert await retinue.message(child, "and why?")
        asked.set()
        report = await retinue.wait(run_id)
    assert report.text == "done, and told of 1"
    log = await store.events(run_id)
    assert [e.continues for e in log if isinstance(e, ChildStarted)] == [False, True]
    async with app_of(store, {"root": [], "c": []}) as retinue:
        assert (await retinue.replay(run_id)).diff == ""


async def everybody_else() -> None:
    for _ in range(1000):
        await asyncio.sleep(0)


class SlowToRead(MemoryStore):
    """Where the log of one run is long in coming."""

    async def events(
        self, root_id: str, *, run_id: str | None = None, after: int = 0, limit: int | None = None
    ) -> list[AnyEvent]:
        if run_id is not None:
            await everybody_else()
        return await super().events(root_id, run_id=run_id, after=after, limit=limit)


@pytest.mark.parametrize("ends", ["leave", "wait", "cancel"])
@pytest.mark.parametrize("at_work", [False, True])
async def test_a_parent_is_asked_once_when_the_child_that_a_person_asked_has_ended(
    ends: str, at_work: bool
) -> None:
    """However long the child takes to begin and to end: until then there is nothing to say."""
    store, ended, asked = SlowToRead(), asyncio.Event(), asyncio.Event()

    async def root(request: ModelRequest) -> Any:
        if turn(request) == 1 and at_work:
            ended.set()
            await asked.wait()
        return passes_on(request)

    async def slowly(request: ModelRequest) -> str:
        await everybody_else()
        return counts(request)

    settings = {"delegation.tools": list(ALL), "delegation.parent_ends": ends}
    cast = Cast({"root": root, "c": slowly})
    async with Retinue(
        model=cast, db=store, agents=[agent("c")], environ={}, yes=True, settings=settings
    ) as retinue:
        run_id = await retinue.start(agent("root"), "go")
        await (ended.wait() if at_work else retinue.wait(run_id))
        (child,) = [e.child_id for e in await store.events(run_id) if isinstance(e, ChildStarted)]
        if at_work:
            assert await retinue.message(child, "and why?")
            asked.set()
        else:
            await retinue.resume(child, message="and why?")
        assert (await retinue.wait(run_id)).text == "done, and told of 1"
    assert len(cast.of("root")) == 3, "the child's id, its first report, its second"
    if at_work:
        async with app_of(store, {"root": [], "c": []}) as retinue:
            assert (await retinue.replay(run_id)).diff == ""


async def test_who_speaks_to_a_parent_while_the_child_works_that_a_person_asked_is_answered_at_once() -> None:
    store, working, go_on = MemoryStore(), asyncio.Event(), asyncio.Event()

    def root(request: ModelRequest) -> Any:
        if "how far?" in told(request)[-1]:
            go_on.set()
        return passes_on(request)

    async def child(request: ModelRequest) -> str:
        if turn(request):
            working.set()
            await go_on.wait()
        return counts(request)

    async with app_of(store, {"root": root, "c": child}) as retinue:
        report = await retinue.run(agent("root"), "go")
        (child_id,) = [e.child_id for e in await store.events(report.run_id) if isinstance(e, ChildStarted)]
        await retinue.resume(child_id, message="and why?")
        await working.wait()
        assert await retinue.message(report.run_id, "how far?")
        assert (await retinue.wait(report.run_id)).text == "done, and told of 1"


async def test_in_a_log_of_an_earlier_version_the_parent_was_asked_before_its_child_had_ended() -> None:
    store = MemoryStore()
    async with app_of(store, {"root": passes_on, "c": counts}) as retinue:
        report = await retinue.run(agent("root"), "go")
        (child,) = [e.child_id for e in await store.events(report.run_id) if isinstance(e, ChildStarted)]
        await retinue.resume(child, message="and why?")
        await retinue.wait(report.run_id)
    log = await store.events(report.run_id, run_id=report.run_id)
    heard = next(n for n, e in enumerate(log) if isinstance(e, MessageReceived) and e.asks)
    assert fold(log[: heard + 1]).awaits_asked
    old = replace(log[heard], awaited=False)
    assert not fold([*log[:heard], old]).awaits_asked


@pytest.mark.parametrize("words", [2, 3])
async def test_whatever_is_said_to_a_finished_child_at_once_is_read_by_it(words: int) -> None:
    store, ended, asked = MemoryStore(), asyncio.Event(), asyncio.Event()

    async def root(request: ModelRequest) -> Any:
        if turn(request) == 1:
            ended.set()
            await asked.wait()
        return passes_on(request)

    async with app_of(store, {"root": root, "c": lambda request: " ".join(told(request))}) as retinue:
        run_id = await retinue.start(agent("root"), "go")
        await ended.wait()
        (child,) = [e.child_id for e in await store.events(run_id) if isinstance(e, ChildStarted)]
        said = [f"word{number}" for number in range(words)]
        assert await asyncio.gather(*(retinue.message(child, word) for word in said)) == [True] * words
        asked.set()
        await retinue.wait(run_id)
    log = await store.events(run_id)
    heard = [e.text for e in log if isinstance(e, MessageReceived) and e.run_id == child]
    assert sorted(heard) == said
    assert not [e for e in log if isinstance(e, MessageReceived) and e.sender == "system"]


async def test_what_a_person_asked_a_child_is_not_lost_in_a_crash() -> None:
    """Wherever the log of the second question is cut, the child is asked once."""
    store = MemoryStore()
    parts = {"root": passes_on, "c": counts}
    async with app_of(store, parts) as retinue:
        report = await retinue.run(agent("root"), "go")
        (child,) = [e.child_id for e in await store.events(report.run_id) if isinstance(e, ChildStarted)]
        before = len(await store.events(report.run_id))
        await retinue.resume(child, message="and why?")
        await retinue.wait(report.run_id)
    log = await store.events(report.run_id)
    for place in [n for n in whole_writes(log) if n > before + 1]:
        cut = MemoryStore()
        await cut.append(log[:place])
        async with app_of(cut, parts) as retinue:
            await retinue.resume(report.run_id, take_over=True)
            assert (await retinue.wait(report.run_id)).text == "done, and told of 1", place
        pieces = [e.prompt for e in await cut.events(report.run_id) if isinstance(e, ChildStarted)]
        assert pieces == ["first", "and why?"], place


async def test_a_child_below_another_that_has_ended_is_not_asked_by_a_person() -> None:
    store = MemoryStore()
    mid = [[("c", {"prompt": "x"})], "done"]
    async with Retinue(
        model=Cast({"root": [[("mid", {"prompt": "x"})], "done"], "mid": mid, "c": counts}),
        db=store,
        agents=[agent("mid"), agent("c")],
        environ={},
        settings={"delegation.policy": "nested"},
    ) as retinue:
        report = await retinue.run(agent("root"), "go")
        below = next(
            e for e in await store.events(report.run_id) if isinstance(e, ChildStarted) and e.depth == 1
        )
        with pytest.raises(
            ConfigError, match=f"{below.child_id} was started by {below.run_id}, which has ended"
        ):
            await retinue.resume(below.child_id, message="and why?")


def slow_to_stop() -> tuple[Any, asyncio.Event, asyncio.Event]:
    """A part that takes its time to stop, that it is being stopped, and what lets it."""
    stopping, go = asyncio.Event(), asyncio.Event()

    async def slow(request: ModelRequest) -> Any:
        try:
            await never()
        finally:
            stopping.set()
            await go.wait()

    return slow, stopping, go


async def test_a_person_who_asks_a_child_of_a_tree_that_is_being_cancelled_is_told_that_it_is_too_late() -> (
    None
):
    store = MemoryStore()
    slow, stopping, go = slow_to_stop()
    root = [[("c", {"prompt": "first"})], [("slow", {"prompt": "x"})], "done"]
    async with Retinue(
        model=Cast({"root": root, "c": counts, "slow": slow}),
        db=store,
        agents=[agent("c"), agent("slow")],
        environ={},
    ) as retinue:
        run_id = await retinue.start(agent("root"), "go")
        async with asyncio.timeout(60):
            while len(begun := [e for e in await store.events(run_id) if isinstance(e, ChildStarted)]) < 2:
                await asyncio.sleep(0.001)
            await retinue.cancel(run_id)
            await stopping.wait()
            saying = asyncio.create_task(retinue.message(begun[0].child_id, "and why?"))
            while len(await store.signals(run_id)) < 2:
                await asyncio.sleep(0.001)
            go.set()
            assert await saying is False
            assert (await retinue.wait(run_id)).incomplete == "cancelled"
    log = await store.events(run_id)
    assert isinstance(log[-1], RunFinished)
    assert log[-1].run_id == run_id
    assert len([e for e in log if isinstance(e, ChildStarted)]) == 2


async def test_no_child_outlives_its_tree_whenever_that_is_cancelled_after_a_person_asked_it() -> None:
    pieces: set[int] = set()
    for moment in range(40):
        slow, _, go = slow_to_stop()
        root = [[("c", {"prompt": "first"})], [("slow", {"prompt": "x"})], "done"]
        stage = Stage(
            {"root": root, "c": lambda r: "first" if turn(r) == 0 else never(), "slow": slow},
            agents=[agent("c"), agent("slow")],
        )
        task = await stage.start()
        async with asyncio.timeout(60):
            while len(begun := [e for e in await stage.log() if isinstance(e, ChildStarted)]) < 2:
                await asyncio.sleep(0)
            child, body = begun[0].child_id, json.dumps({"text": "and why?"})
            await stage.store.send(
                Signal(root_id=stage.root_id, run_id=child, kind="message", key="m", body=body, at=0)
            )
            for _ in range(moment):
                await asyncio.sleep(0)
            stage.workflow.cancel(stage.root_id, "enough")
            for _ in range(40 - moment):
                await asyncio.sleep(0)
            go.set()
            await task
        log = await stage.log()
        assert isinstance(log[-1], RunFinished), moment
        assert log[-1].run_id == stage.root_id, moment
        asked = len([e for e in log if isinstance(e, ChildStarted) and e.child_id == child])
        ends = [e for e in log if isinstance(e, RunFinished) and e.run_id == child]
        assert len(ends) == asked, moment
        pieces.add(asked)
    assert pieces == {1, 2}


async def test_people_are_told_of_each_piece_what_it_took_and_of_the_run_all() -> None:
    stage = stage_of(asks_twice("delegate_task", "delegate_task"))
    await stage.run()
    log, story = await stage.log(), Story()
    for event in log:
        story.apply(event)
    ends = [event for event in log if isinstance(event, ChildEnded)]
    assert [event.usage.input_tokens for event in ends] == [10, 20]  # the log has what the run used by then
    assert [story.took(event).usage.input_tokens for event in ends] == [10, 10]
    assert story.took(ends[1]).duration_ms == ends[1].duration_ms - ends[0].duration_ms
    reports = [event for event in log if isinstance(event, RunFinished) and event.run_id == ends[0].child_id]
    assert [story.took(event).usage.input_tokens for event in reports] == [10, 10]
    lines = Transcript(width=100, tree=story).of([event for event in log if event.depth == 0])
    shown = ["".join(text for text, _ in line) for line in lines]
    assert [re.findall(r"(\d+) tokens", line) for line in shown if "← " in line] == [["15"], ["15"]]
    told = [part for part in await parts(log, story) if part.kind == "child_ended"]
    assert [part.duration_ms for part in told] == [story.took(event).duration_ms for event in ends]
