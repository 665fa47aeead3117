"""Approvals: from any depth, several at once, first answer wins, clocks stand still, a restart loses none."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.clock import Clock
from retinue.errors import ToolError
from retinue.events import AccessDenied, ApprovalAnswered, ApprovalRequested, ToolCalled, now
from retinue.store.base import Signal
from retinue.store.sqlite import SqliteStore
from retinue.tools.base import FormQuestion, ToolContext, tool
from retinue.types import Status
from trees import Stage, agent, results, told, turn


def recorder(effect: Any = "write") -> tuple[Any, list[str]]:
    ran: list[str] = []

    @tool(name="change", effect=effect, preview=lambda arguments, files: f"would change {arguments['path']}")
    async def change(path: str) -> str:
        """Change a file."""
        ran.append(path)
        return f"changed {path}"

    return change, ran


async def answer(stage: Stage, asked: ApprovalRequested, **said: Any) -> bool:
    body = {"decision": "approve", **said}
    return await stage.store.send(
        Signal(
            root_id=asked.root_id,
            run_id=asked.run_id,
            kind="answer",
            key=asked.approval_id,
            body=json.dumps(body),
            at=now(),
        )
    )


async def waiting(stage: Stage, count: int) -> list[ApprovalRequested]:
    async with asyncio.timeout(60):
        while len(found := await stage.store.waiting(stage.root_id)) < count:
            await asyncio.sleep(0.001)
    return found


@pytest.mark.parametrize(
    ("said", "result", "ran"),
    [
        ({"decision": "approve"}, "changed a", ["a"]),
        (
            {"decision": "reject", "reason": "not that file"},
            "the person rejected this call of change: not that file",
            [],
        ),
        ({"decision": "reject"}, "the person rejected this call of change: no reason given", []),
        (
            {"decision": "approve", "arguments": '{"path": "b"}'},
            '[the person changed the arguments of this call to {"path": "b"}]\nchanged b',
            ["b"],
        ),
    ],
)
async def test_a_person_can_approve_reject_with_a_reason_or_edit(
    said: dict[str, str], result: str, ran: list[str]
) -> None:
    change, done = recorder()
    stage = Stage({"root": [[("change", {"path": "a"})], "done"]}, tools=[change], answering="ask")
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    assert (asked.tool, asked.risk, asked.preview, asked.path) == (
        "change",
        "medium",
        "would change a",
        ("root",),
    )
    row = await stage.store.run(stage.root_id)
    assert row is not None
    assert row.status == "waiting"
    assert await answer(stage, asked, **said)
    report = await task
    assert report.text == "done"
    assert [m.text for m in results(stage.model.of("root")[1])] == [result]
    assert done == ran


async def test_edited_arguments_are_what_the_log_says_ran() -> None:
    change, _ = recorder()
    stage = Stage({"root": [[("change", {"path": "a"})], "done"]}, tools=[change], answering="ask")
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    await answer(stage, asked, arguments='{"path": "b"}')
    await task
    (called,) = [e for e in await stage.log() if isinstance(e, ToolCalled)]
    assert called.arguments == '{"path": "b"}'


async def test_a_person_cannot_change_a_call_to_one_that_is_denied() -> None:
    change, done = recorder()
    stage = Stage(
        {"root": [[("change", {"path": "a"})], "done"]},
        tools=[change],
        answering="ask",
        approvals__deny=("change(secrets/**)",),
    )
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    await answer(stage, asked, arguments='{"path": "secrets/key"}')
    await task
    assert done == []
    assert results(stage.model.of("root")[1])[0].text == (
        "the person changed the arguments of this call, and it is denied by the rule 'change(secrets/**)': change "
        "will not run. Find another way."
    )
    assert [e.what for e in await stage.log() if isinstance(e, AccessDenied)] == ["change"]


@pytest.mark.parametrize("answering", ["ask", "refuse"])
@pytest.mark.parametrize(
    ("tool_name", "call"),
    [
        ("spawn_agent", {"name": "h", "prompt": "x"}),
        ("subagent", {"label": "l", "task_prompt": "t"}),
    ],
)
async def test_nobody_is_asked_for_a_child_that_the_policy_refuses(
    answering: str, tool_name: str, call: dict[str, str]
) -> None:
    stage = Stage(
        {"root": [[("c", {"prompt": "x"})], "done"], "c": [[(tool_name, call)], "ok"]},
        agents=[agent("c")],
        answering=answering,
        delegation__tools=["agents", "spawn_agent", "subagent"],
    )
    async with asyncio.timeout(60):
        await stage.run()
    assert results(stage.model.of("c")[1])[0].text == (
        "not started: the policy 'flat' lets only the root delegate, and you are at depth 1. Do the work yourself."
    )
    assert not any(isinstance(e, ApprovalRequested) for e in await stage.log())


async def test_nobody_is_asked_for_a_child_that_has_no_place_or_is_not_well_described() -> None:
    spawn = {"name": "h", "prompt": "x"}
    stage = Stage(
        {
            "root": [
                [("spawn_agent", {"name": "h"})],
                [("subagent", {"label": " ", "task_prompt": "t"})],
                [("parallel_tasks", {"tasks": [{"agent_id": "c", "prompt": "x"}]})],
                [("spawn_agent", spawn)],
                "done",
            ],
            "c": ["ok"],
        },
        agents=[agent("c")],
        answering="ask",
        delegation__max_children=1,
        delegation__tools=["parallel_tasks", "spawn_agent", "subagent"],
    )
    async with asyncio.timeout(60):
        await stage.run()
    said = [message.text for message in results(stage.model.of("root")[-1])]
    assert (said[0], said[1]) == (
        "the operation 'spawn' needs prompt",
        "label is empty: name the task in a few words",
    )
    assert said[3].startswith("not started: 1 of 1 children already started for this message")
    assert not any(isinstance(e, ApprovalRequested) for e in await stage.log())


async def test_edited_arguments_that_do_not_fit_are_told_to_the_model() -> None:
    change, done = recorder()
    stage = Stage({"root": [[("change", {"path": "a"})], "done"]}, tools=[change], answering="ask")
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    await answer(stage, asked, arguments='{"path": 5}')
    await task
    text = results(stage.model.of("root")[1])[0].text
    assert text.startswith("this call of change was not approved: the edited arguments do not fit: ")
    assert "invalid arguments for change: path" in text
    assert done == []


async def test_approving_every_call_of_a_tool_asks_no_more_in_the_whole_tree() -> None:
    change, done = recorder()
    stage = Stage(
        {
            "root": [[("change", {"path": "a"})], [("c", {"prompt": "x"})], "done"],
            "c": [[("change", {"path": "b"})], "ok"],
        },
        agents=[agent("c")],
        tools=[change],
        answering="ask",
    )
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    await answer(stage, asked, decision="approve_tool")
    await task
    assert done == ["a", "b"]
    assert sum(isinstance(e, ApprovalRequested) for e in await stage.log()) == 1


async def test_the_first_answer_wins_and_a_late_one_is_told_so() -> None:
    change, done = recorder()
    stage = Stage({"root": [[("change", {"path": "a"})], "done"]}, tools=[change], answering="ask")
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    assert await answer(stage, asked, decision="approve") is True
    assert await answer(stage, asked, decision="reject") is False
    await task
    assert done == ["a"]


async def test_a_denied_call_does_not_run_and_is_logged_for_audit() -> None:
    change, done = recorder()
    stage = Stage(
        {"root": [[("change", {"path": "secrets/key"})], "done"]},
        tools=[change],
        yes=True,
        approvals__deny=("change(secrets/**)",),
    )
    await stage.run()
    assert done == []
    assert results(stage.model.of("root")[1])[0].text == (
        "denied by the rule 'change(secrets/**)': change will not run. Find another way."
    )
    assert [e.what for e in await stage.log() if isinstance(e, AccessDenied)] == ["change"]


async def test_without_anyone_to_ask_a_call_is_refused_with_the_rule_that_would_allow_it() -> None:
    change, done = recorder()
    stage = Stage({"root": [[("change", {"path": "docs/a.md"})], "done"]}, tools=[change])
    await stage.run()
    assert results(stage.model.of("root")[1])[0].text == (
        "refused: write needs a person's approval (risk medium), and this run has nobody to ask. To allow it, "
        'add "change(docs/a.md)" to allow under [approvals] in the settings, or run with --yes (in a program: yes=True).'
    )
    stage = Stage(
        {"root": [[("change", {"path": "docs/a.md"})], "done"]},
        tools=[change],
        approvals__allow=("change(docs/a.md)",),
    )
    await stage.run()
    assert done == ["docs/a.md"]


@pytest.mark.parametrize("yes", [False, True])
async def test_what_a_rule_asks_about_is_not_said_to_be_allowed_by_another_rule(yes: bool) -> None:
    change, done = recorder()
    stage = Stage(
        {"root": [[("change", {"path": "docs/a.md"})], "done"]},
        tools=[change],
        yes=yes,
        approvals__ask=("change(docs/**)",),
        approvals__allow=("change(docs/a.md)",),
    )
    await stage.run()
    assert done == []
    assert results(stage.model.of("root")[1])[0].text == (
        "refused: the rule 'change(docs/**)' wants a person asked, and this run has nobody to ask. To allow it, "
        "take that rule out of ask under [approvals] in the settings, or run with --wait-approvals and answer (in a program: approve=…)."
    )


async def test_a_waiting_run_stops_its_clocks_and_its_siblings_go_on() -> None:
    change, done = recorder()
    sibling_done = asyncio.Event()

    def sibling(request):
        sibling_done.set()
        return "sibling finished"

    stage = Stage(
        {
            "root": [[("asks", {"prompt": "x"}), ("free", {"prompt": "y"})], "done"],
            "asks": [[("change", {"path": "a"})], "ok"],
            "free": sibling,
        },
        agents=[agent("asks", timeout=2), agent("free")],
        tools=[change],
        answering="ask",
        delegation__concurrency=1,
        limits__timeout=2.5,
    )
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    assert asked.path == ("root", "asks")
    await sibling_done.wait()  # although there is one slot only: who waits for a person holds none
    await asyncio.sleep(3)  # longer than every timeout in this tree
    await answer(stage, asked)
    report = await task
    assert (report.status, done) == ("completed", ["a"])


async def test_twenty_questions_three_levels_deep_answered_in_any_order_reach_exactly_their_child() -> None:
    change, done = recorder()

    def play(request):
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        if me == "leaf":
            name = told(request)[0]
            return (
                [("change", {"path": name})] if turn(request) == 0 else f"{name}: {results(request)[0].text}"
            )
        if turn(request):
            return "\n".join(m.text for m in results(request))
        below, count = ("mid", 4) if me == "root" else ("leaf", 5)
        here = "" if me == "root" else told(request)[0]
        tasks = [{"agent_id": below, "prompt": f"{here}{n}"} for n in range(count)]
        return [("parallel_tasks", {"tasks": tasks})]

    stage = Stage(
        {"root": play, "mid": play, "leaf": play},
        agents=[agent("mid"), agent("leaf")],
        tools=[change],
        answering="ask",
        delegation__policy="nested",
        delegation__concurrency=3,
        limits__report_bytes=100_000,
    )
    task = await stage.start()
    asked = await waiting(stage, 20)
    random.Random(7).shuffle(asked)
    for question in asked:
        path = json.loads(question.arguments)["path"]
        if int(path) % 2:
            await answer(stage, question, decision="reject", reason=f"no {path}")
        else:
            await answer(stage, question)
    report = await task
    for n in range(4):
        for m in range(5):
            path = f"{n}{m}"
            expected = (
                f"{path}: the person rejected this call of change: no {path}"
                if int(path) % 2
                else f"{path}: changed {path}"
            )
            assert (
                expected
                in json.dumps([row["report"] for row in json.loads(report.text)["results"]])
                .replace("\\n", "\n")
                .replace('\\"', '"')
                or expected in report.text
            )
    assert sorted(done) == sorted(f"{n}{m}" for n in range(4) for m in range(5) if int(f"{n}{m}") % 2 == 0)


@pytest.mark.parametrize("answering", ["ask", "refuse"])
async def test_an_answer_given_while_nothing_ran_is_used_after_a_restart(
    tmp_path: Path, answering: str
) -> None:
    change, done = recorder()
    parts: dict[str, Any] = {
        "root": [[("c", {"prompt": "x"})], "done"],
        "c": [[("change", {"path": "a"})], "ok"],
    }
    store = SqliteStore(tmp_path / "first.db")
    await store.open()
    first = Stage(parts, agents=[agent("c")], tools=[change], answering="ask", store=store)
    task = await first.start()
    (asked,) = await waiting(first, 1)
    # What a process that died right now would have left behind.
    with (
        closing(sqlite3.connect(tmp_path / "first.db")) as now_,
        closing(sqlite3.connect(tmp_path / "left.db")) as left,
    ):
        now_.backup(left)
    first.workflow.cancel(first.root_id, "dead")
    await task
    await store.close()

    left_behind = SqliteStore(tmp_path / "left.db")
    await left_behind.open()
    second = Stage(
        parts,
        agents=[agent("c")],
        tools=[change],
        answering=answering,
        store=left_behind,
        root_id=first.root_id,
    )
    assert await answer(second, asked), "nothing runs, and the answer is taken"
    report = await (await second.resume())
    assert (report.text, done) == ("done", ["a"])
    assert sum(isinstance(e, ApprovalRequested) for e in await second.log()) == 1
    assert sum(isinstance(e, ApprovalAnswered) for e in await second.log()) == 1
    await left_behind.close()


async def test_two_questions_of_one_call_at_the_same_time_are_asked_one_after_the_other() -> None:
    form = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}

    @tool(effect="read")
    async def two(context: ToolContext) -> str:
        """Ask two things at once."""
        filled = await asyncio.gather(
            *(context.inquire(FormQuestion(asker="it", text=text, schema=form)) for text in ("one?", "two?"))
        )
        return " ".join(each.content["n"] for each in filled)

    stage = Stage({"root": [[("two", {})], "done"]}, tools=[two], answering="ask")
    task = await stage.start()
    for text in ("one?", "two?"):
        (asked,) = await waiting(stage, 1)
        assert asked.reason == f"the MCP server it asks: {text}"
        assert await answer(stage, asked, arguments=json.dumps({"n": f"as to {text}"}))
        async with asyncio.timeout(60):
            while asked in await stage.store.waiting(stage.root_id):
                await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        await task
    assert results(stage.model.of("root")[-1])[0].text == "as to one? as to two?"


async def test_a_form_is_shown_as_far_as_it_is_known_in_the_words_it_was_given_in() -> None:
    city = {"type": "string", "default": "Zürich"}
    form = {"type": "object", "properties": {"city": city, "n": {"type": "string"}}, "required": ["n"]}

    @tool(effect="read")
    async def book(context: ToolContext) -> str:
        """Book."""
        filled = await context.inquire(FormQuestion(asker="it", text="where?", schema=form))
        return json.dumps(filled.content, ensure_ascii=False)

    stage = Stage({"root": [[("book", {})], "done"]}, tools=[book], answering="ask")
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    assert asked.arguments == '{"city": "Zürich", "n": ""}'
    assert await answer(stage, asked)
    async with asyncio.timeout(60):
        await task
    assert results(stage.model.of("root")[-1])[0].text == asked.arguments, "approved as it was shown"


async def test_a_call_asks_a_person_no_more_than_a_few_things() -> None:
    form = {"type": "object", "properties": {"n": {"type": "string"}}}

    @tool(effect="read")
    async def many(context: ToolContext) -> str:
        """Ask and ask."""
        question = FormQuestion(asker="it", text="and now?", schema=form)
        return " ".join([(await context.inquire(question)).action for _ in range(7)])

    stage = Stage({"root": [[("many", {})], "done"]}, tools=[many], answering="ask")
    task = await stage.start()
    for number in range(5):
        (asked,) = await waiting(stage, 1)
        assert asked.call_id.partition(".")[0].endswith(str(number + 1))
        assert await answer(stage, asked, arguments="{}")
        async with asyncio.timeout(60):
            while asked in await stage.store.waiting(stage.root_id):
                await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        await task
    assert results(stage.model.of("root")[-1])[0].text == "accept " * 5 + "cancel cancel"


def test_statuses_are_those_everyone_knows() -> None:
    from typing import get_args

    assert set(get_args(Status)) == {"pending", "running", "waiting", "completed", "error", "cancelled"}


async def test_a_call_that_had_begun_is_not_made_again_if_a_rule_denies_it_by_now() -> None:
    ran: list[str] = []

    @tool(effect="network", repeatable=True)
    async def send(url: str) -> str:
        """Send."""
        ran.append(url)
        return f"sent to {url}"

    parts: dict[str, Any] = {"root": [[("send", {"url": "https://192.0.2.1/x"})], "done"]}
    before = Stage(parts, tools=[send])
    await before.run()
    log = await before.log()
    begun = next(at for at, event in enumerate(log) if isinstance(event, ToolCalled))
    for deny, times in (("send(https://192.0.2.1/**)", 1), ("send(https://192.0.2.2/**)", 2)):
        stage = Stage(parts, tools=[send], root_id=before.root_id, approvals__deny=[deny])
        await stage.store.append([msgspec.structs.replace(event, pos=0) for event in log[: begun + 1]])
        assert (await (await stage.resume())).text == "done"
        assert len(ran) == times
        told_of = [event.what for event in await stage.log() if isinstance(event, AccessDenied)]
        assert told_of == (["send"] if times == 1 else [])


async def test_answers_that_are_in_the_log_are_not_held_after_a_restart() -> None:
    change, _ = recorder()
    parts: dict[str, Any] = {"root": [[("change", {"path": "a"})], "done", "and more"]}
    stage = Stage(parts, tools=[change], answering="ask")
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    assert await answer(stage, asked)
    await task
    again = Stage(parts, tools=[change], store=stage.store, root_id=stage.root_id)
    await (await again.resume("and now?"))
    assert not again.workflow.questions.may_ask(asked.approval_id), "it was answered, and that is over"


async def test_questions_of_one_reply_are_put_in_its_order_however_long_their_previews_take() -> None:
    second_shown = asyncio.Event()

    async def show(arguments: dict[str, Any], files: Any) -> str:
        if arguments["path"] == "a":
            await second_shown.wait()
        else:
            second_shown.set()
        return f"would change {arguments['path']}"

    @tool(effect="network", preview=show)
    async def change(path: str) -> str:
        """Change.

        Args:
            path: what
        """
        return f"changed {path}"

    calls = [("change", {"path": path}) for path in ("a", "b", "c")]
    stage = Stage({"root": [calls, "done"]}, tools=[change], answering="ask", approvals__ask=["change"])
    task = await stage.start()
    asked = await waiting(stage, 3)
    assert [one.preview for one in asked] == ["would change a", "would change b", "would change c"]
    for one in asked:
        assert await answer(stage, one, decision="approve")
    assert (await task).outcome == "completed"


async def asked_in_order(*calls: str, fail: bool = False) -> list[str]:
    """Whom a person is asked about. `slow`: it is known late whether it asks, after the last one has come."""
    last_came = asyncio.Event()

    async def admit(arguments: dict[str, Any], run_id: str) -> None:
        await last_came.wait()
        if fail:
            raise ToolError("that cannot be")

    async def show(arguments: dict[str, Any], files: Any) -> str:
        if arguments["path"] == str(len(calls) - 1):
            last_came.set()
        return f"would change {arguments['path']}"

    async def work(path: str) -> str:
        """Work.

        Args:
            path: on what
        """
        return f"worked on {path}"

    tools = [
        tool(name="slow", effect="write", admit=admit)(work),
        tool(name="quick", effect="write", preview=show)(work),
        tool(name="unasked", effect="read")(work),
    ]
    reply = [(name, {"path": str(n)}) for n, name in enumerate(calls)]
    stage = Stage({"root": [reply, "done"]}, tools=tools, answering="ask")
    task = await stage.start()
    asking = [name for name in calls if name == "quick" or (name == "slow" and not fail)]
    asked = await waiting(stage, len(asking))
    for one in asked:
        assert await answer(stage, one, decision="approve")
    await task
    return [f"{one.tool} {json.loads(one.arguments)['path']}" for one in asked]


async def test_questions_of_one_reply_are_put_in_its_order_however_long_it_takes_to_know_who_asks() -> None:
    asked = await asked_in_order("slow", "quick", "unasked", "slow", "quick")
    assert asked == ["slow 0", "quick 1", "slow 3", "quick 4"]


async def test_nobody_waits_to_ask_for_a_call_that_turns_out_not_to_ask() -> None:
    assert await asked_in_order("slow", "unasked", "quick", "quick", fail=True) == ["quick 2", "quick 3"]


async def test_two_calls_about_the_same_address_never_wait_for_each_other() -> None:
    """The second is to ask after the first, and the first waits for what the second asks."""
    second_came = asyncio.Event()

    async def admit(arguments: dict[str, Any], run_id: str) -> None:
        if arguments["url"].endswith("/1"):
            await second_came.wait()

    async def show(arguments: dict[str, Any], files: Any) -> str:
        second_came.set()
        return arguments["url"]

    @tool(effect="read", private=True)
    async def diary() -> str:
        """Read it."""
        return "private"

    @tool(effect="network", admit=admit, preview=show)
    async def visit(url: str) -> str:
        """Visit.

        Args:
            url: what
        """
        return f"visited {url}"

    both = [("visit", {"url": f"https://elsewhere.example/{n}"}) for n in (1, 2)]
    at_the_end: list[bool] = []

    def root(request: Any) -> Any:
        if turn(request) == 2:
            at_the_end.append(runs(clock))
        return [[("diary", {})], both, "done"][turn(request)]

    stage = Stage({"root": root}, tools=[diary, visit], answering="ask")
    task = await stage.start()
    clock = stage.workflow.tree.live[stage.root_id].run.clock
    (asked,) = await waiting(stage, 1)
    assert not runs(clock), "nobody's time is used while a person is asked"
    assert json.loads(asked.arguments)["url"].endswith("/2")
    assert await answer(stage, asked, decision="approve")
    assert (await task).outcome == "completed"
    assert [result.text for result in results(stage.model.of("root")[-1])][1:] == [
        "visited https://elsewhere.example/1",
        "visited https://elsewhere.example/2",
    ]
    assert (at_the_end, runs(clock)) == ([True], False), "it counts again, up to the end of the run"


def runs(clock: Clock) -> bool:
    before = clock.elapsed
    return any(clock.elapsed > before for _ in range(10_000))
