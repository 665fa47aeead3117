"""Background children that outlive an answer: the turn ends without them, and their report opens the next."""

from __future__ import annotations

import asyncio
from typing import Any

from delegating import ALL

from retinue.engine.outbox import Spoken
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    CancelRequested,
    ChildEnded,
    MessageReceived,
    RunFinished,
    StepStarted,
)
from retinue.fold import fold
from retinue.run import Closing, Run
from retinue.store.base import Store
from retinue.story import Story
from trees import Stage, agent, reply, told, turn

START = ("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})


class Played:
    """A stage whose root starts children in the background, answers, and answers whatever it is told next.

    `go` lets the children end, in the order in which they are let go.
    """

    def __init__(self, *, children: int = 1, root: Any = None, worker: Any = None, **settings: Any) -> None:
        self.go = [asyncio.Event() for _ in range(children)]
        self.begun: list[asyncio.Event] = [asyncio.Event() for _ in range(children)]
        settings = {"delegation__tools": ALL, "delegation__parent_ends": "leave", **settings}
        self.stage = Stage(
            {"root": root or self._root, "w": worker or self._worker}, agents=[agent("w")], **settings
        )
        self.started = 0

    def _root(self, request: Any) -> Any:
        if turn(request) == 0:
            return [START] * len(self.go)
        return f"answer {turn(request)}: {told(request)[-1].splitlines()[0]}"

    async def _worker(self, request: Any) -> Any:
        mine, self.started = self.started, self.started + 1
        self.begun[mine].set()
        await self.go[mine].wait()
        return f"found {mine}"

    async def answered(self) -> Any:
        """The root's task, once it has answered and its children are at work."""
        task = await self.stage.start()
        answer = self.stage.workflow.next_answer()
        for begun in self.begun:
            await begun.wait()
        await answer
        return task


async def agreed(store: Store, root_id: str, outcome: str) -> list[AnyEvent]:
    """The log, if every reading of it says the same of the root."""
    events = await store.events(root_id)
    story = Story()
    for event in events:
        story.apply(event)
    row = await store.run(root_id)
    state = fold([event for event in events if event.run_id == root_id])
    assert row is not None
    assert story.root is not None
    assert (row.outcome, story.root.outcome, state.standing.outcome) == (outcome, outcome, outcome)
    assert row.completed_at == story.root.ended == state.standing.completed_at
    assert row.tree_input_tokens == story.root.usage.input_tokens
    assert row.shortfall == story.root.shortfall == state.shortfall
    return events


def ends(events: list[AnyEvent], root_id: str) -> list[RunFinished]:
    return [e for e in events if isinstance(e, RunFinished) and e.run_id == root_id]


async def test_a_turn_ends_without_its_background_child_whose_report_opens_the_next() -> None:
    async with asyncio.timeout(20):
        played = Played()
        stage, task = played.stage, await played.answered()
        events = await agreed(stage.store, stage.root_id, "running")
        first = ends(events, stage.root_id)[0].report
        assert (first.status, first.at_work, first.outcome) == ("completed", 1, "completed")
        assert not task.done()
        played.go[0].set()
        last = await task
    events = await agreed(stage.store, stage.root_id, "completed")
    after = events[events.index(ends(events, stage.root_id)[0]) + 1 :]
    opening = next(e for e in after if e.run_id == stage.root_id)
    assert isinstance(opening, ChildEnded)
    assert opening.opens
    assert "found 0" in opening.notice
    assert last.at_work == 0
    assert last.text.startswith("answer 2: [The background agent w (c")
    assert last.usage.input_tokens == 40, "three calls of its own and one of the child"
    assert [e.report.at_work for e in ends(events, stage.root_id)] == [1, 0]


async def test_each_child_that_ends_by_itself_opens_a_turn_and_those_that_end_together_one() -> None:
    async with asyncio.timeout(20):
        played = Played(children=3)
        stage, task = played.stage, await played.answered()
        played.go[1].set()
        second = await stage.workflow.next_answer()
        assert second.at_work == 2
        played.go[0].set()
        played.go[2].set()
        last = await task
    reports = [e.report for e in ends(await agreed(stage.store, stage.root_id, "completed"), stage.root_id)]
    assert [report.at_work for report in reports][:2] == [3, 2]
    assert last.text.count("answer") == 1
    heard = "\n".join(told(stage.model.of("root")[-1]))
    assert all(heard.count(f"found {n}\n") == 1 for n in range(3)), "each report is told once"


async def test_what_a_person_says_meanwhile_is_answered_first_and_the_child_goes_on() -> None:
    async with asyncio.timeout(20):
        played = Played()
        stage, task = played.stage, await played.answered()
        stage.workflow.inbox._deliver(stage.root_id, Spoken(text="and what is two and two?"), "m1")
        second = await stage.workflow.next_answer()
        assert (second.text, second.at_work) == ("answer 2: and what is two and two?", 1)
        events = await agreed(stage.store, stage.root_id, "running")
        said = next(e for e in events if isinstance(e, MessageReceived))
        assert said.next_turn
        played.go[0].set()
        assert (await task).text.startswith("answer 3: [The background agent")
    events = await agreed(stage.store, stage.root_id, "completed")
    assert [e.report.at_work for e in ends(events, stage.root_id)] == [1, 1, 0]


async def test_cancelling_a_root_that_has_answered_stops_what_it_left_at_work() -> None:
    async with asyncio.timeout(20):
        played = Played()
        stage, task = played.stage, await played.answered()
        stage.workflow.cancel(stage.root_id, "enough")
        report = await task
    assert (report.status, report.error) == ("cancelled", "enough")
    assert report.text.startswith("answer 1"), "what was answered is kept"
    events = await agreed(stage.store, stage.root_id, "cancelled")
    assert {e.report.agent: e.report.status for e in events if isinstance(e, RunFinished)} == {
        "w": "cancelled",
        "root": "cancelled",
    }
    assert not any(isinstance(e, ChildEnded) and e.opens for e in events)
    assert len(stage.model.of("root")) == 2, "no turn is opened by what was cancelled"


async def test_a_person_who_stops_the_child_alone_opens_a_turn_that_says_so() -> None:
    async with asyncio.timeout(20):
        played = Played()
        stage, task = played.stage, await played.answered()
        child = next(run_id for run_id in stage.workflow.tree.live if run_id != stage.root_id)
        stage.workflow.cancel(child, "not needed")
        report = await task
    assert report.text.startswith("answer 2: [The background agent w (")
    assert report.text.endswith("has ended: cancelled.]")
    await agreed(stage.store, stage.root_id, report.outcome)


async def test_turns_that_children_open_use_up_what_the_message_of_a_person_allows() -> None:
    """A root that starts another child whenever one ends does not talk to itself without end."""

    def root(request: Any) -> Any:
        last = request.messages[-1]
        if "[The background agent" in last.text or turn(request) == 0:
            return [START]
        return f"answer {turn(request)}"

    played = Played(root=root, worker=lambda request: "found", delegation__max_children=3)
    async with asyncio.timeout(20):
        report = await played.stage.run()
    events = await agreed(played.stage.store, played.stage.root_id, report.outcome)
    started = [e for e in events if isinstance(e, ChildEnded)]
    assert len(started) == 3
    refused = [m.text for m in played.stage.model.of("root")[-1].messages if "not started" in m.text]
    assert "3 of 3 children already started for this message" in refused[0]


async def test_a_hung_child_that_was_left_is_stopped_and_its_parent_says_so() -> None:
    async with asyncio.timeout(20):
        played = Played()
        stage, task = played.stage, await played.answered()
        child = next(live for live in stage.workflow.tree.live.values() if live.run.depth == 1)
        assert child.run.clock.parent is stage.workflow.tree.live[stage.root_id].run.clock
        child.run.clock.expire()
        report = await task
    assert "has ended: error" in report.text
    assert report.shortfall.failed == 1
    await agreed(stage.store, stage.root_id, "incomplete")


async def test_money_that_a_left_child_spends_counts_for_the_conversation() -> None:
    async def costly(request: Any) -> Any:
        await go.wait()
        return reply("found", cost=5.0)

    go = asyncio.Event()
    played = Played(worker=costly, limits__max_cost=1.0)
    played.begun = []
    async with asyncio.timeout(20):
        stage, task = played.stage, await played.answered()
        go.set()
        report = await task
    assert report.ended_by == "budget"
    assert "$1.0000 (limits.max_cost)" in (report.incomplete or "")
    assert len(stage.model.of("root")) == 2, "there is no money left for another turn"


async def test_a_child_waits_for_its_own_children_before_it_answers() -> None:
    """Only a root has a next turn."""
    go = asyncio.Event()

    async def leaf(request: Any) -> Any:
        await go.wait()
        return "leaf found"

    def mid(request: Any) -> Any:
        if turn(request) == 0:
            asyncio.get_running_loop().call_soon(go.set)
            return [("background", {"operation": "start", "agent_id": "leaf", "prompt": "dig"})]
        return told(request)[-1]

    stage = Stage(
        {"root": [[("mid", {"prompt": "x"})], "done"], "mid": mid, "leaf": leaf},
        agents=[agent("mid"), agent("leaf")],
        delegation__policy="nested",
        delegation__tools=ALL,
        delegation__parent_ends="leave",
    )
    async with asyncio.timeout(20):
        await stage.run()
    finished = [e.report for e in await stage.log() if isinstance(e, RunFinished)]
    assert [(r.agent, r.at_work) for r in finished] == [("leaf", 0), ("mid", 0), ("root", 0)]
    assert "leaf found" in finished[1].text


async def test_the_question_of_a_left_child_reaches_the_person_and_holds_the_tree() -> None:
    from retinue.tools.base import tool

    @tool(effect="write")
    async def put(what: str) -> str:
        """Put.

        Args:
            what: what
        """
        return f"put {what}"

    answered = asyncio.Event()

    async def worker(request: Any) -> Any:
        await answered.wait()
        return [("put", {"what": "it"})] if turn(request) == 0 else "put it"

    stage = Stage(
        {"root": [[START], "first", "second"], "w": worker},
        agents=[agent("w")],
        tools=[put],
        answering="ask",
        delegation__tools=ALL,
        delegation__parent_ends="leave",
    )
    async with asyncio.timeout(20):
        task = await stage.start()
        await stage.workflow.next_answer()
        asked = asyncio.Event()
        stage.store.subscribe(stage.root_id, asked.set)
        answered.set()
        while not (waiting := await stage.store.waiting(stage.root_id)):
            asked.clear()
            await asked.wait()
        assert isinstance(waiting[0], ApprovalRequested)
        story = Story()
        for event in await stage.log():
            story.apply(event)
        assert story.root is not None
        assert story.root.outcome == "waiting"
        from retinue.engine.answers import Answer

        stage.workflow.inbox.tell(waiting[0].approval_id, Answer(decision="approve"))
        assert (await task).text == "second"


async def test_after_a_crash_the_left_child_goes_on_and_its_report_opens_the_turn_that_it_would_have() -> (
    None
):
    async with asyncio.timeout(20):
        played = Played()
        stage = played.stage
        await played.answered()
        await stage.workflow.leave()
        row = await stage.store.run(stage.root_id)
        assert row is not None
        assert (row.status, row.completed_at) == ("running", None)
        again = Played()
        again.stage.store = stage.store
        settings = {"delegation__tools": ALL, "delegation__parent_ends": "leave"}
        taken = Stage(
            {"root": again._root, "w": again._worker},
            agents=[agent("w")],
            store=stage.store,
            root_id=stage.root_id,
            **settings,
        )
        task = await taken.resume()
        await again.begun[0].wait()
        assert len(taken.model.of("root")) == 0, "what was answered is not asked again"
        again.go[0].set()
        report = await task
    assert report.text.startswith("answer 2: [The background agent w")
    events = await agreed(stage.store, stage.root_id, "completed")
    assert [e.report.at_work for e in ends(events, stage.root_id)] == [1, 0]
    steps = [e.step for e in events if isinstance(e, StepStarted) and e.run_id == stage.root_id]
    assert steps == [1, 2, 3]
    assert not any(isinstance(e, CancelRequested) for e in events)


async def test_a_child_that_ended_as_the_process_did_is_told_when_it_is_taken_up() -> None:
    async with asyncio.timeout(20):
        played = Played()
        stage, task = played.stage, await played.answered()
        played.go[0].set()
        await task
        # As if the process had died between the end of the child and what follows from it.
        whole = await stage.log()
        opening = next(e for e in whole if isinstance(e, ChildEnded))
        from retinue.store.memory import MemoryStore

        cut = MemoryStore()
        for event in whole[: whole.index(opening)]:
            await cut.append([event])
        taken = Stage(
            {"root": played._root, "w": played._worker},
            agents=[agent("w")],
            store=cut,
            root_id=stage.root_id,
            delegation__tools=ALL,
        )
        report = await (await taken.resume())
    assert report.text.startswith("answer 2: [The background agent w")
    assert [name for name, _ in taken.model.requests] == ["root"], "the child is not asked again"
    await agreed(cut, stage.root_id, "completed")


async def test_a_child_that_ends_between_the_answer_and_its_end_is_read_before_the_answer_counts() -> None:
    async with asyncio.timeout(20):
        played = Played()
        stage = played.stage
        closing = stage.workflow.isolation.closing

        async def late(run: Run) -> Closing:
            """The last thing that is waited for before the end of a turn is written."""
            for live in stage.workflow.tree.running_below(run.id):
                played.go[0].set()
                await asyncio.wait([live.task])
            return await closing(run)

        stage.workflow.isolation.closing = late
        report = await stage.run()
    assert report.text.startswith("answer 2: [The background agent w"), "its report was not passed over"
    events = await agreed(stage.store, stage.root_id, "completed")
    assert [e.report.at_work for e in ends(events, stage.root_id)] == [0]
