"""The loop: what becomes of answers, tool calls, mistakes and limits."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from retinue import report_facts
from retinue.engine.replay import replay
from retinue.errors import ModelError, ToolError
from retinue.events import (
    ChildEnded,
    ErrorRaised,
    HistoryPruned,
    MessageReceived,
    ModelReplied,
    RunFinished,
    StepStarted,
    Streamed,
    ToolCalled,
    ToolReturned,
)
from retinue.fold import fold
from retinue.tools.base import ToolContext, tool
from retinue.types import AssistantMessage, Reply, ToolMessage, Usage
from trees import Stage, agent, never, reply, results, told, turn


@tool(effect="read")
async def echo(text: str) -> str:
    """Say it again."""
    return f"echo {text}"


@tool(effect="read")
async def fail(text: str = "") -> str:
    """Always fails."""
    raise ToolError("it is broken; try echo")


@tool(effect="read")
async def crash() -> str:
    """Has a bug."""
    raise KeyError("oops")


async def test_an_answer_without_calls_is_the_report() -> None:
    stage = Stage({"root": ["the answer"]})
    report = await stage.run()
    assert (report.status, report.text, report.turns, report.tool_calls) == ("completed", "the answer", 1, 0)
    assert report.usage == Usage(input_tokens=10, output_tokens=5, cost=0.001)
    assert [type(e) for e in await stage.log()][-2:] == [ModelReplied, RunFinished]


async def test_text_streams_live_and_is_not_stored() -> None:
    stage = Stage({"root": ["hello"]})
    await stage.run()
    assert [e.text for e in stage.live if isinstance(e, Streamed)] == ["hello"]
    assert not any(isinstance(e, Streamed) for e in await stage.log())


async def test_calls_of_a_step_run_side_by_side_and_come_back_in_order() -> None:
    both = asyncio.Barrier(2)

    @tool(effect="read")
    async def meet(name: str) -> str:
        """Wait for the other."""
        async with asyncio.timeout(60):
            await both.wait()
        return name

    stage = Stage({"root": [[("meet", {"name": "a"}), ("meet", {"name": "b"})], "done"]}, tools=[meet])
    report = await stage.run()
    assert report.text == "done"
    assert [m.text for m in results(stage.model.of("root")[1])] == ["a", "b"]


async def test_no_more_tools_run_at_once_than_the_limit() -> None:
    running, most = 0, 0

    @tool(effect="read")
    async def work() -> str:
        """Count who runs."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return ""

    stage = Stage({"root": [[("work", {})] * 9, "done"]}, tools=[work], limits__tool_concurrency=3)
    await stage.run()
    assert most == 3


async def test_the_first_of_many_calls_are_on_their_way_while_others_begin() -> None:
    """A thousand children are begun in no time, but not in one turn of the event loop."""
    order: list[str] = []

    @tool(effect="read")
    async def work(number: int) -> str:
        """Take two turns of the event loop."""
        order.append(f"begun {number}")
        await asyncio.sleep(0)
        order.append(f"done {number}")
        return ""

    calls = [("work", {"number": n}) for n in range(200)]
    stage = Stage({"root": [calls, "done"]}, tools=[work], limits__tool_concurrency=1000)
    report = await stage.run()
    assert report.tool_calls == 200
    assert order.index("done 0") < order.index("begun 199")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            ("ehco", {"text": "x"}),
            "there is no tool 'ehco' here. Did you mean echo? Your tools: crash, echo, fail",
        ),
        (("echo", {}), "invalid arguments for echo: text: Field required"),
        (("echo", {"text": 5}), "invalid arguments for echo: text: Input should be a valid string"),
        (("echo", '{"text": "unclosed'), "the arguments are not valid JSON"),
        (("echo", "[1]"), "the arguments must be one JSON object, not list"),
        (("fail", {}), "it is broken; try echo"),
        (("crash", {}), "KeyError: 'oops'"),
    ],
)
async def test_a_mistake_becomes_a_result_the_model_can_act_on(call: tuple[str, object], says: str) -> None:
    stage = Stage({"root": [[call], "sorry"]}, tools=[echo, fail, crash])  # pyright: ignore[reportArgumentType]
    report = await stage.run()
    (result,) = results(stage.model.of("root")[1])
    assert result.is_error
    assert result.text.startswith(says)
    assert (report.status, report.text) == ("completed", "sorry")


async def test_a_tool_that_takes_too_long_is_stopped() -> None:
    @tool(effect="read")
    async def hang() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return ""

    stage = Stage({"root": [[("hang", {})], "done"]}, tools=[hang], limits__tool_timeout=0.02)
    await stage.run()
    (result,) = results(stage.model.of("root")[1])
    assert result.text == "hang did not finish within 0.02 s and was stopped. Ask for less at once."


async def test_a_tool_in_a_thread_that_takes_too_long_is_left_behind_and_not_said_to_be_stopped() -> None:
    go_on = threading.Event()

    @tool(effect="read")
    def hang() -> str:
        """Does not end by itself."""
        go_on.wait()
        return ""

    stage = Stage({"root": [[("hang", {})], "done"]}, tools=[hang], limits__tool_timeout=0.02)
    await stage.run()
    go_on.set()
    (result,) = results(stage.model.of("root")[1])
    assert result.text == (
        "hang did not finish within 0.02 s. It runs in a thread, which cannot be stopped: what it does may "
        "still happen. Ask for less at once."
    )


async def test_an_identical_failing_call_is_not_run_again_and_then_ends_the_run() -> None:
    ran = 0

    @tool(effect="read")
    async def flaky(n: int) -> str:
        """Fails."""
        nonlocal ran
        ran += 1
        raise ToolError("no")

    def play(request):
        return "what I have" if not request.tools else [("flaky", {"n": 1})]

    stage = Stage({"root": play}, tools=[flaky])
    report = await stage.run()
    assert ran == 2
    texts = [m.text for m in results(stage.model.of("root")[-1])]
    assert texts[:2] == ["no", "no"]
    assert texts[2].startswith("not run: flaky has failed 2 times with exactly these arguments")
    assert report.incomplete is not None
    assert report.incomplete.startswith("going in a circle: flaky was called")
    assert report.text == "what I have"


async def test_an_identical_succeeding_call_in_a_circle_ends_the_run_too() -> None:
    def play(request):
        return "enough" if not request.tools else [("echo", {"text": "x"})]

    stage = Stage({"root": play}, tools=[echo])
    report = await stage.run()
    assert report.incomplete == 'going in a circle: echo was called 5 times with {"text": "x"}'
    assert report.turns == 6


@pytest.mark.parametrize(("calls", "runs"), [(5, 5), (6, 5), (7, 5), (300, 5)])
async def test_identical_calls_of_one_reply_are_a_circle_too(calls: int, runs: int) -> None:
    ran = 0

    @tool(effect="read")
    async def look(place: str) -> str:
        """Look."""
        nonlocal ran
        ran += 1
        await asyncio.sleep(0)
        return f"nothing at {place}"

    def play(request):
        return "enough" if not request.tools else [("look", {"place": "a"})] * calls

    stage = Stage({"root": play}, tools=[look])
    report = await stage.run()
    assert ran == runs
    assert report.incomplete == 'going in a circle: look was called 5 times with {"place": "a"}'
    assert (report.ended_by, report.turns, report.text) == ("circle", 2, "enough")
    texts = [m.text for m in results(stage.model.of("root")[-1])]
    assert texts[:5] == ["nothing at a"] * 5
    assert all(text.startswith("not run: look was called with exactly these") for text in texts[5:])
    assert len(texts) == calls
    assert fold(await stage.log()).attempts == stage.workflow.tree.live[stage.root_id].run.state.attempts


async def test_identical_calls_that_come_to_something_else_each_time_all_run() -> None:
    ran = 0

    @tool(effect="read")
    async def roll() -> str:
        """Roll a die."""
        nonlocal ran
        ran += 1
        return str(ran)

    stage = Stage({"root": [[("roll", {})] * 12 + [("echo", {"text": "x"})], "done"]}, tools=[roll, echo])
    report = await stage.run()
    assert (ran, report.ended_by) == (12, "answer")
    assert [m.text for m in results(stage.model.of("root")[-1])] == [*map(str, range(1, 13)), "echo x"]


async def test_identical_failing_calls_of_one_reply_are_not_all_run() -> None:
    ran = 0

    @tool(effect="read")
    async def flaky() -> str:
        """Fails."""
        nonlocal ran
        ran += 1
        raise ToolError(f"no {ran}")

    stage = Stage({"root": [[("flaky", {})] * 300, "what I have"]}, tools=[flaky])
    report = await stage.run()
    assert ran <= 5
    assert report.ended_by == "circle"


async def test_at_max_turns_a_last_turn_without_tools_asks_for_what_was_found() -> None:
    def play(request):
        return [("echo", {"text": str(turn(request))})] if request.tools else "found two things"

    stage = Stage({"root": play}, tools=[echo])
    report = await stage.run(agent("root", max_turns=2))
    last = stage.model.of("root")[-1]
    assert last.tools == ()
    assert told(last)[-1].startswith("You cannot use tools any more (max turns reached: 2 of 2).")
    assert (report.status, report.text, report.turns) == ("completed", "found two things", 3)
    assert report.incomplete == "max turns reached: 2 of 2"


async def test_calls_in_the_last_turn_mean_nothing() -> None:
    def play(request):
        return reply("partial", [("echo", {"text": "y"})])

    stage = Stage({"root": play}, tools=[echo])
    report = await stage.run(agent("root", max_turns=1))
    assert report.text == "partial"
    assert sum(isinstance(e, ToolCalled) for e in await stage.log()) == 1


async def test_an_empty_reply_is_asked_again_and_no_more_than_allowed() -> None:
    stage = Stage({"root": ["", "now"]})
    assert (await stage.run()).text == "now"
    stage = Stage({"root": lambda request: ""})
    report = await stage.run()
    assert report.turns == 3
    assert report.incomplete == ("the answer could not be corrected: the last reply was empty")


async def test_a_model_that_fails_ends_the_run_with_its_message_and_the_work_so_far() -> None:
    stage = Stage(
        {"root": [reply("I looked.", [("echo", {"text": "a"})]), ModelError("no such key", kind="auth")]},
        tools=[echo],
    )
    report = await stage.run()
    assert (report.status, report.error) == ("error", "no such key")
    assert "echo a" in report.text
    errors = [e for e in await stage.log() if isinstance(e, ErrorRaised)]
    assert [(e.kind, e.message) for e in errors] == [("auth", "no such key")]


async def test_a_refusal_is_no_answer_and_says_so() -> None:
    refused = Reply(message=AssistantMessage(text="I can't"), usage=Usage(), stop="refusal", model="m")
    report = await Stage({"root": [refused]}).run()
    assert (report.status, report.outcome, report.ended_by) == ("error", "refused", "refusal")
    assert (report.error, report.text) == ("the model refused to answer, or said that it cannot", "I can't")


async def test_a_call_of_an_agent_whose_model_refuses_is_refused() -> None:
    refused = Reply(message=AssistantMessage(text="I can't"), usage=Usage(), stop="refusal", model="m")
    stage = Stage({"root": [[("leaf", {"prompt": "go"})], "done"], "leaf": [refused]}, agents=[agent("leaf")])
    report = await stage.run()
    assert (report.outcome, report.shortfall.failed) == ("incomplete", 1)
    (returned,) = [e for e in await stage.log() if isinstance(e, ToolReturned)]
    (ended,) = [e for e in await stage.log() if isinstance(e, ChildEnded)]
    assert ended.ended_by == "refusal"
    assert "I can't" in returned.text


async def test_an_answer_cut_by_the_model_is_marked_incomplete() -> None:
    cut = Reply(message=AssistantMessage(text="and so"), usage=Usage(), stop="length", model="m")
    report = await Stage({"root": [cut]}).run()
    assert (report.status, report.incomplete) == (
        "completed",
        "the answer was cut at the model's output limit",
    )


async def test_call_ids_that_come_twice_are_made_unique() -> None:
    stage = Stage({"root": [[("echo", {"text": "1"})], [("echo", {"text": "2"})], "done"]}, tools=[echo])
    await stage.run()
    ids = [e.call_id for e in await stage.log() if isinstance(e, ToolReturned)]
    assert len(set(ids)) == 2


async def test_a_result_too_large_is_cut_and_kept_in_the_workspace() -> None:
    @tool(effect="read")
    async def big() -> str:
        """Much."""
        return "\n".join(f"line {n}" for n in range(10_000))

    @tool(effect="read")
    async def look(path: str, ctx: ToolContext) -> str:
        """Read a file of the workspace."""
        return str(len(ctx.files.read_bytes(path).splitlines()))

    def play(request):
        if turn(request) == 0:
            return [("big", {})]
        if turn(request) == 1:
            path = results(request)[0].text.rsplit(" ", 1)[1].rstrip("]")
            return [("look", {"path": path})]
        return "done"

    stage = Stage({"root": play}, tools=[big, look], limits__tool_output=1000)
    await stage.run()
    first, second = results(stage.model.of("root")[-1])
    assert len(first.text) < 1200
    assert "characters shown; all of it is in /home/agent/" in first.text
    assert second.text == "10000"


async def test_a_result_too_large_for_a_full_workspace_says_to_ask_for_less() -> None:
    @tool(effect="read")
    async def big() -> str:
        """Much."""
        return "x" * 1_000_001

    stage = Stage(
        {"root": [[("big", {})], "done"]}, tools=[big], limits__tool_output=1000, workspace__quota_mb=1
    )
    assert (await stage.run()).ok
    (cut,) = results(stage.model.of("root")[-1])
    assert cut.text.endswith("\n[cut: 1000 of 1000001 characters shown; ask for less at once]")


async def test_history_is_pruned_under_its_budget_and_the_task_stays() -> None:
    @tool(effect="read")
    async def page(n: int) -> str:
        """A page."""
        return "word " * 400

    def play(request):
        return [("page", {"n": turn_of[0]})] if step(request) else "done"

    turn_of = [0]

    def step(request) -> bool:
        turn_of[0] += 1
        return turn_of[0] <= 12

    stage = Stage({"root": play}, tools=[page], context__max_tokens=4000, context__keep_turns=2)
    report = await stage.run(prompt="the task itself")
    assert report.text == "done"
    pruned = [e for e in await stage.log() if isinstance(e, HistoryPruned)]
    assert pruned
    assert all(e.tokens_after < e.tokens_before for e in pruned)
    for request in stage.model.of("root"):
        assert told(request)[0] == "the task itself"
        calls = [c.id for m in request.messages if isinstance(m, AssistantMessage) for c in m.calls]
        assert calls == [m.call_id for m in request.messages if isinstance(m, ToolMessage)]


async def test_a_conversation_too_long_for_the_model_is_pruned_and_asked_again() -> None:
    asked = 0

    def play(request):
        nonlocal asked
        asked += 1
        if asked <= 4:
            return [("echo", {"text": str(asked) * 500})]
        if asked == 5:
            return ModelError("context length exceeded", kind="too_long")
        return f"answered with {len(request.messages)} messages"

    report = await Stage({"root": play}, tools=[echo]).run()
    assert report.status == "completed"
    assert report.text == "answered with 6 messages", "the task, an outline and two turns of four"


async def test_a_run_that_takes_too_long_keeps_its_partial_work() -> None:
    async def slow(request):
        if turn(request) == 0:
            return [("echo", {"text": "found"})]
        stage.workflow.tree.live[stage.root_id].run.clock.expire()
        return await never()

    stage = Stage({"root": slow}, tools=[echo], limits__timeout=3600)
    report = await stage.run()
    assert (report.status, report.error) == ("error", "timed out after 3600 s")
    assert "echo found" in report.text


async def test_structured_output_is_validated_and_mended() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    stage = Stage({"root": ["not json", '{"n": "x"}', '```json\n{"n": 5}\n```']})
    report = await stage.run(agent("root", output_schema=schema))
    assert report.data == {"n": 5}
    corrections = told(stage.model.of("root")[-1])
    assert corrections[1].startswith("Your answer does not fit the required JSON schema: it is not JSON.")
    assert "n: 'x' is not of type 'integer'" in corrections[2]

    stage = Stage({"root": lambda request: "never"})
    report = await stage.run(agent("root", output_schema=schema))
    assert report.turns == 3, "the first answer and two corrections"
    said = "the answer does not fit the required JSON schema: it is not JSON"
    assert report.incomplete == f"the answer could not be corrected: {said}", "no orders meant for the model"


async def test_a_step_is_durable_before_the_model_is_asked() -> None:
    async def play(request):
        return ", ".join(type(event).__name__ for event in await stage.log())

    stage = Stage({"root": play})
    assert (await stage.run()).text == "RunStarted, StepStarted"


async def test_text_that_no_database_takes_is_mended_before_it_is_logged() -> None:
    @tool(effect="read")
    async def odd(text: str) -> str:
        """Give back what cannot be stored."""
        return "half \ud83d of a pair and a \0"

    stage = Stage({"root": [reply("think \ud800", [("odd", {"text": "x"})]), "done \udfff"]}, tools=[odd])
    report = await stage.run(prompt="what \udc80?")
    assert report.text == "done ?"
    assert results(stage.model.of("root")[1])[0].text == "half ? of a pair and a \ufffd"


async def test_what_is_said_while_the_model_gives_its_last_answer_is_read_before_the_run_ends() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def play(request):
        if turn(request) == 0:
            asked.set()
            await go.wait()
            return "an answer"
        return f"another answer, to {told(request)[-1]}"

    stage = Stage({"root": play})
    task = await stage.start()
    await asked.wait()
    await stage.workflow.tree.live[stage.root_id].run.log.write(MessageReceived, text="in French, please")
    go.set()
    report = await task
    assert report.text == "another answer, to in French, please"
    assert [type(m).__name__ for m in stage.model.of("root")[1].messages] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ], "it was said while the first answer was written, so it follows that answer"
    replayed = await replay(await stage.log(), stage.config)
    assert replayed.same, replayed.diff


async def test_a_step_asked_again_after_a_restart_is_asked_with_what_was_said_meanwhile() -> None:
    stage = Stage({"root": [ModelError("too many requests", kind="rate_limit")]})
    await stage.run()
    again = Stage({"root": lambda request: told(request)[1]}, store=stage.store, root_id=stage.root_id)
    report = await (await again.resume("try once more"))
    assert (report.text, report.turns) == ("try once more", 1)
    assert [e.step for e in await again.log() if isinstance(e, StepStarted)] == [1, 1]


async def test_a_tool_that_swallows_the_cancel_does_not_keep_its_run_alive() -> None:
    begun = asyncio.Event()

    @tool(effect="read")
    async def stubborn() -> str:
        """Takes no for no answer."""
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "I went on"

    stage = Stage({"root": [[("stubborn", {})], "asked although it was cancelled"]}, tools=[stubborn])
    task = await stage.start()
    await begun.wait()
    stage.workflow.cancel(stage.root_id, "stop it")
    report = await asyncio.wait_for(task, 60)
    assert (report.status, report.error) == ("cancelled", "stop it")
    assert len(stage.model.requests) == 1

    stage = Stage({"root": [[("stubborn", {})], "asked although its time was up"]}, tools=[stubborn])
    begun.clear()
    task = await stage.start()
    await begun.wait()
    stage.workflow.tree.live[stage.root_id].run.clock.expire()
    report = await asyncio.wait_for(task, 60)
    assert report.status == "error"
    assert report.error is not None
    assert "timed out" in report.error
    assert len(stage.model.requests) == 1


async def test_a_summary_that_had_to_be_mended_is_the_report() -> None:
    schema = {"type": "object", "required": ["n"]}
    stage = Stage({"root": ['{"n": 1}', "not JSON", '{"n": 2}', "one too many"]})
    report = await stage.run(agent("root", output_schema=schema, summary="Sum it up."))
    assert (report.text, report.data, report.incomplete) == ('{"n": 2}', {"n": 2}, None)


async def test_data_is_that_of_the_answer_and_of_no_earlier_one() -> None:
    schema = {"type": "object", "required": ["n"]}
    stage = Stage({"root": ['{"n": 1}', "not JSON", "still not JSON", "never"]})
    report = await stage.run(agent("root", output_schema=schema, summary="Sum it up."))
    assert report.incomplete is not None
    assert report.incomplete.startswith("the answer could not be corrected")
    assert report.data is None


async def test_a_last_answer_at_max_turns_is_data_if_it_fits() -> None:
    schema = {"type": "object", "required": ["n"]}
    stage = Stage({"root": [[("echo", {"text": "x"})], '{"n": 1}']}, tools=[echo])
    report = await stage.run(agent("root", output_schema=schema, max_turns=1))
    assert report.incomplete == "max turns reached: 1 of 1"
    assert report.data == {"n": 1}


async def test_an_answer_whose_sources_cannot_be_checked_still_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(report_facts, "check_sources", broken)
    stage = Stage({"root": ["the answer"]})
    report = await stage.run()
    assert (report.status, report.text, report.error) == ("error", "the answer", "RecursionError: too deep")
    assert isinstance((await stage.log())[-1], RunFinished)


async def test_a_conversation_that_ended_in_a_circle_can_go_on() -> None:
    def circling(request):
        return "enough" if not request.tools else [("echo", {"text": "x"})]

    stage = Stage({"root": circling}, tools=[echo])
    assert (await stage.run()).ended_by == "circle"

    def asked_again(request):
        return [("echo", {"text": "x"})] if len(results(request)) == 5 else "looked again"

    again = Stage({"root": asked_again}, tools=[echo], store=stage.store, root_id=stage.root_id)
    report = await (await again.resume("look once more"))
    assert (report.text, report.ended_by) == ("looked again", "answer")
    assert len(results(again.model.of("root")[-1])) == 6, "the tool could be used, and ran"
    assert fold(await stage.log()).attempts == {("echo", '{"text": "x"}'): [(False, hash("echo x"))]}


async def test_a_circle_counts_from_what_a_person_said_last_not_from_what_the_loop_says() -> None:
    said = False

    def play(request):
        return "enough" if not request.tools else [("echo", {"text": "x"})]

    stage = Stage({"root": play}, tools=[echo])
    task = await stage.start()
    log = stage.workflow.tree.live[stage.root_id].run.log
    while not task.done():
        if log.state.turns == 3 and not said:
            said = True
            log.write(MessageReceived, text="go on", sender="person")
            log.write(MessageReceived, text="by the way", sender="system", about="form")
        await asyncio.sleep(0)
    report = await task
    assert said
    assert report.ended_by == "circle"
    assert 7 <= report.turns <= 9, "three or so before the word of the person, five after it, and the last"
