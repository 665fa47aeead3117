"""`Retinue.map`: one agent over many inputs, durable, bounded, each input a run of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, ConfigError, Report, Retinue, StoreError
from retinue.errors import Gone
from retinue.map_batch import MapBatch, MapWork
from retinue.store.base import RunFilter
from retinue.testing import EvalCase, FakeProvider, Script, ScriptedModel, SeenRequest, evaluate
from retinue.types import AssistantMessage, ModelRequest, Reply, Usage, UserMessage

PLAIN = AgentSpec(name="plain", description="answers", prompt="You answer.", tools=())


def asked(request: ModelRequest) -> str:
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    return first.text


class Counting:
    """A model that shouts what it was asked, counts how often, and fails where it is told to."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.fails: set[str] = set()
        self.at_once = self.most = 0

    def __call__(self, request: ModelRequest) -> Any:
        text = asked(request)
        self.asked[text] += 1
        if text in self.fails:
            raise RuntimeError("the model is out of order")
        return text.upper()


def opened(tmp_path: Path, play: Any, **options: Any) -> Retinue:
    db = f"sqlite:///{tmp_path / 'runs.db'}"
    return Retinue(model=ScriptedModel(play), db=db, cwd=tmp_path, environ={}, **options)


async def test_what_an_earlier_start_had_done_is_marked_and_used_nothing_now(tmp_path: Path) -> None:
    play = Counting()
    play.fails.add("b")
    async with opened(tmp_path, play) as retinue:
        first = retinue.map(PLAIN, ["a", "b"])
        assert not any([item.from_before async for item in first])
        paid = first.usage
        play.fails.clear()
        again = retinue.map(PLAIN, ["a", "b", "c"], ordered=True)
        items = [item async for item in again]
    assert [item.from_before for item in items] == [True, False, False]
    assert again.from_before == 1
    assert [item.report.usage.total_tokens for item in items if item.report] == [15, 15, 15]
    assert paid.total_tokens == 15
    assert again.usage.total_tokens == 30, "a failed call had used nothing"


async def test_every_input_has_a_report_and_the_totals_add_up(tmp_path: Path) -> None:
    play = Counting()
    async with opened(tmp_path, play) as retinue:
        batch = retinue.map(PLAIN, ["a", "b", "c"], ordered=True)
        items = [item async for item in batch]
    assert [item.report.text for item in items if item.report] == ["A", "B", "C"]
    assert [item.index for item in items] == [0, 1, 2]
    assert [item.done for item in items][-1] == 3
    assert batch.failed == 0
    total = sum(item.report.usage.output_tokens for item in items if item.report)
    assert batch.usage.output_tokens == total > 0


async def test_a_second_start_does_only_what_is_missing(tmp_path: Path) -> None:
    play = Counting()
    play.fails = {"b"}
    async with opened(tmp_path, play) as retinue:
        first = [item async for item in retinue.map(PLAIN, ["a", "b"])]
    assert {item.input: item.ok for item in first} == {"a": True, "b": False}
    play.fails = set()
    before = play.asked["b"]
    async with opened(tmp_path, play) as retinue:
        again = {item.input: item.report async for item in retinue.map(PLAIN, ["a", "b", "c"])}
    assert {key: report.text for key, report in again.items() if report} == {"a": "A", "b": "B", "c": "C"}
    assert play.asked["a"] == 1
    assert play.asked["b"] == before + 1
    assert play.asked["c"] == 1


@pytest.mark.parametrize("redo", [True, False])
async def test_what_a_model_refused_is_asked_anew_by_a_second_start(tmp_path: Path, redo: bool) -> None:
    """In a run of its own, as all that was refused; with `redo=False` its report is given again."""
    refused = Reply(message=AssistantMessage(text="I can't"), usage=Usage(), stop="refusal", model="m")
    async with opened(tmp_path, lambda request: refused) as retinue:
        [first] = await retinue.map(PLAIN, ["a"]).reports()
    async with opened(tmp_path, Counting()) as retinue:
        [second] = await retinue.map(PLAIN, ["a"], redo=redo).reports()
    assert first.outcome == "refused"
    assert second.outcome == ("completed" if redo else "refused")
    assert (second.run_id != first.run_id) == redo


async def test_another_name_agent_or_folder_begins_anew(tmp_path: Path) -> None:
    play = Counting()
    other = AgentSpec(name="other", description="answers", prompt="You answer.", tools=())
    async with opened(tmp_path, play) as retinue:
        for agent, name in ((PLAIN, ""), (PLAIN, "again"), (other, "again")):
            assert [item.ok async for item in retinue.map(agent, ["a"], name=name)] == [True]
    (tmp_path / "elsewhere").mkdir()
    db = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Retinue(model=ScriptedModel(play), db=db, cwd=tmp_path / "elsewhere", environ={}) as retinue:
        assert [item.ok async for item in retinue.map(PLAIN, ["a"])] == [True]
    assert play.asked["a"] == 4


async def test_an_input_that_changed_under_its_key_is_done_again(tmp_path: Path) -> None:
    play = Counting()
    async with opened(tmp_path, play) as retinue:
        for text in ("a", "a", "b"):
            rows = [{"id": "7", "text": text}]
            batch = retinue.map(PLAIN, rows, key=lambda row: row["id"], prompt=lambda row: row["text"])
            assert [item.key async for item in batch] == ["7"]
    assert play.asked == {"a": 1, "b": 1}


async def test_equal_inputs_are_each_done_and_equal_keys_refused(tmp_path: Path) -> None:
    play = Counting()
    async with opened(tmp_path, play) as retinue:
        items = [item async for item in retinue.map(PLAIN, ["a", "a"])]
        assert len({item.run_id for item in items}) == 2
        with pytest.raises(ConfigError, match="two inputs have the key 'x'"):
            await retinue.map(PLAIN, ["a", "b"], key=lambda _: "x").reports()


async def test_no_more_at_once_than_it_says_and_inputs_are_read_as_needed(tmp_path: Path) -> None:
    gate, reached, read = asyncio.Event(), asyncio.Event(), list[int]()
    running = 0

    async def play(request: SeenRequest) -> Script:
        nonlocal running
        running += 1
        if running == 3:
            reached.set()
        await gate.wait()
        return Script(text="done")

    async def inputs() -> AsyncIterator[str]:
        for number in range(20):
            read.append(number)
            yield f"number {number}"

    async with FakeProvider(play) as provider:
        environ = {"OPENAI_BASE_URL": provider.openai_url, "OPENAI_API_KEY": "k"}
        async with Retinue(model="openai:m", db="memory:", cwd=tmp_path, environ=environ) as retinue:
            work = asyncio.ensure_future(retinue.map(PLAIN, inputs(), concurrency=3).reports())
            await asyncio.wait_for(reached.wait(), 60)
            assert len(read) == running == 3
            gate.set()
            assert len(await work) == 20


async def test_an_input_that_cannot_be_started_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    strict = AgentSpec(
        name="strict",
        description="answers",
        prompt="You answer.",
        tools=(),
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    )
    async with opened(tmp_path, ["one", "two"]) as retinue:
        items = [item async for item in retinue.map(strict, [{"n": 1}, {"n": "x"}, {"n": 2}], ordered=True)]
    assert [item.ok for item in items] == [True, False, True]
    assert isinstance(items[1].error, ConfigError)
    assert items[1].report is None


async def test_leaving_early_cancels_what_runs_and_a_second_start_goes_on(tmp_path: Path) -> None:
    play = Counting()
    async with opened(tmp_path, play) as retinue:
        async for item in retinue.map(PLAIN, [f"n{number}" for number in range(30)], concurrency=4):
            assert item.ok
            break
        rest = [item async for item in retinue.map(PLAIN, [f"n{number}" for number in range(30)])]
        assert len(rest) == 30
        assert all(item.ok for item in rest)
    assert all(count <= 2 for count in play.asked.values())  # at most the four under way were asked again
    assert sum(count == 2 for count in play.asked.values()) <= 4


async def test_a_lost_database_ends_the_batch_and_not_each_input() -> None:
    begun: list[str] = []

    async def work(run_id: str, label: str, prompt: Any) -> MapWork:
        begun.append(prompt)
        raise StoreError("the disk is full")

    async def scope() -> str:
        return ""

    batch = MapBatch(
        work, map(str, range(9)), name="n", scope=scope, key=None, prompt=None, concurrency=2, ordered=False
    )
    with pytest.raises(StoreError, match="the disk is full"):
        await batch.reports()
    assert set(begun) <= {"0", "1"}


PROGRAM = """
import asyncio, sys
from retinue import AgentSpec, Retinue
PLAIN = AgentSpec(name="plain", description="answers", prompt="You answer.", tools=())
async def main():
    async with Retinue(model="openai:m", db=sys.argv[1], cwd=sys.argv[2]) as retinue:
        async for item in retinue.map(PLAIN, [f"number {n}" for n in range(60)], concurrency=8, ordered=True):
            print(item.index, item.report.text, flush=True)
asyncio.run(main())
"""


async def test_killed_at_any_moment_a_batch_is_finished_by_the_next_start_and_paid_once(
    tmp_path: Path,
) -> None:
    paid: Counter[str] = Counter()

    def play(request: SeenRequest) -> Script:
        paid[request.asked] += 1
        return Script(text=f"<{request.asked}>")

    async with FakeProvider(play) as provider:
        environ = {**os.environ, "OPENAI_BASE_URL": provider.openai_url, "OPENAI_API_KEY": "k"}
        command = [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path / 'r.db'}", str(tmp_path)]

        async def start(lines: int | None) -> list[str]:
            """Read so many lines and kill it, or read all."""
            process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=subprocess.PIPE)
            assert process.stdout is not None
            seen: list[str] = []
            while line := await process.stdout.readline():
                seen.append(line.decode().strip())
                if len(seen) == lines:
                    process.send_signal(signal.SIGKILL)
                    break
            await process.wait()
            return seen

        for lines in (1, 30):
            await start(lines)
        whole = await start(None)
    assert whole == [f"{n} <number {n}>" for n in range(60)]
    # Only calls that were under way when the process was killed, at most 8 each time, are made again.
    assert sum(paid.values()) <= 60 + 2 * 8


async def test_what_is_done_does_not_wait_for_an_input_that_is_slow_to_come(tmp_path: Path) -> None:
    delivered = asyncio.Event()

    async def inputs() -> AsyncIterator[str]:
        yield "a"
        await delivered.wait()
        yield "b"

    async with opened(tmp_path, Counting()) as retinue, asyncio.timeout(60):
        items: list[str] = []
        async for item in retinue.map(PLAIN, inputs()):
            items.append(item.input)
            delivered.set()
    assert items == ["a", "b"]


async def test_inputs_are_read_in_one_task(tmp_path: Path) -> None:
    tasks = set[asyncio.Task[Any] | None]()

    async def inputs() -> AsyncIterator[str]:
        async with asyncio.timeout(60):  # which has to be left by the task that has entered it
            for text in ("a", "b", "c"):
                tasks.add(asyncio.current_task())
                yield text

    async with opened(tmp_path, Counting()) as retinue:
        assert len(await retinue.map(PLAIN, inputs(), concurrency=2).reports()) == 3
    assert len(tasks) == 1


async def test_inputs_that_fail_end_the_batch_after_what_was_done(tmp_path: Path) -> None:
    async def inputs() -> AsyncIterator[str]:
        yield "a"
        raise LookupError("the queue is gone")

    async with opened(tmp_path, Counting()) as retinue:
        with pytest.raises(LookupError, match="gone"):
            await retinue.map(PLAIN, inputs()).reports()


async def test_a_batch_is_gone_through_once_and_paid_once(tmp_path: Path) -> None:
    play = Counting()
    async with opened(tmp_path, play) as retinue:
        batch = retinue.map(PLAIN, ["a", "b"])
        await batch.reports()
        with pytest.raises(ConfigError, match="call map again"):
            await batch.reports()
        begun = retinue.map(PLAIN, ["a", "b"])
        assert [item.ok async for item in begun] == [True, True]
        with pytest.raises(ConfigError, match="call map again"):
            await begun.reports()
    assert play.asked == {"a": 1, "b": 1}


async def test_calls_under_one_id_at_the_same_moment_share_one_run(tmp_path: Path) -> None:
    play = Counting()
    async with opened(tmp_path, play) as one, opened(tmp_path, play) as other:
        reports = await asyncio.gather(*(each.once("mine", PLAIN, "a") for each in (one, one, other)))
    assert [report.text for report in reports] == ["A", "A", "A"]
    assert play.asked == {"a": 1}


async def test_calls_at_the_same_moment_take_up_a_run_that_failed_once(tmp_path: Path) -> None:
    play = Counting()
    play.fails = {"a"}
    async with opened(tmp_path, play) as retinue:
        assert (await retinue.once("mine", PLAIN, "a")).status == "error"
        asked, play.fails = play.asked["a"], set()
        reports = await asyncio.gather(*(retinue.once("mine", PLAIN, "a") for _ in range(3)))
    assert [report.text for report in reports] == ["A", "A", "A"]
    assert play.asked["a"] == asked + 1


async def test_an_id_whose_first_call_could_not_begin_is_free_for_the_second(tmp_path: Path) -> None:
    strict = AgentSpec(name="strict", description="answers", prompt="You answer.", tools=("nothing-such",))
    async with opened(tmp_path, Counting()) as retinue:
        refused, report = await asyncio.gather(
            retinue.once("mine", strict, "a"), retinue.once("mine", PLAIN, "a"), return_exceptions=True
        )
    assert isinstance(refused, ConfigError)
    assert isinstance(report, Report)


async def test_a_run_of_a_batch_that_is_deleted_ends_alone(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def play(request: ModelRequest) -> str:
        if asked(request) == "a":
            begun.set()
            await go.wait()
        return asked(request).upper()

    async with opened(tmp_path, play) as retinue, opened(tmp_path, play) as other:

        async def delete() -> None:
            await begun.wait()
            (row,) = await other.runs(RunFilter(text="a", limit=1))
            await other.store.delete(row.run_id)
            go.set()

        deleting = asyncio.create_task(delete())
        batch = retinue.map(PLAIN, ["a", "b", "c"], concurrency=1, ordered=True)
        items = [item async for item in batch]
        await deleting
    assert [type(item.error) for item in items] == [Gone, type(None), type(None)]
    assert [item.report.text for item in items if item.report] == ["B", "C"]
    assert (batch.done, batch.failed) == (3, 1)
    assert batch.usage.cost is None, "what it had used when it was deleted, nobody knows"


@pytest.mark.parametrize("way", ["map", "once", "evaluate"])
async def test_tools_agents_and_files_of_a_generator_are_there_for_every_run(
    tmp_path: Path, way: str
) -> None:
    def look() -> str:
        """Look."""
        return "seen"

    helper = AgentSpec(name="helper", description="helps", prompt="You help.", tools=())
    (tmp_path / "note.txt").write_text("a word of the note")
    offered: list[tuple[set[str], bool]] = []

    def play(request: ModelRequest) -> str:
        names = {tool.name for tool in request.tools} & {"look", "helper"}
        offered.append((names, "a word of the note" in asked(request)))
        if way == "once" and len(offered) == 1:
            raise RuntimeError("the model is out of order")
        return "done"

    options: Any = {
        "tools": (each for each in [look]),
        "agents": iter([helper]),
        "attachments": (each for each in ["note.txt"]),
    }
    lead = AgentSpec(name="lead", description="leads", prompt="You lead.", tools=())
    async with opened(tmp_path, play) as retinue:
        if way == "map":
            assert [item.ok async for item in retinue.map(lead, ["a", "b"], **options)] == [True, True]
        elif way == "evaluate":
            cases = [EvalCase(name=name, prompt=name) for name in "ab"]
            assert (await evaluate(lead, cases, retinue=retinue, **options)).passed
        else:
            kept = await retinue.once("one-run", lead, "a", **options)
            assert kept.status == "error"
            options |= {"tools": iter([look]), "agents": iter([helper]), "attachments": iter(["note.txt"])}
            assert (await retinue.once("one-run", lead, "a", **options)).outcome == "completed"
    assert offered == [({"look", "helper"}, True)] * 2
