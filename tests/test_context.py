"""What the model is shown beyond the conversation: notes, knowledge, code, what went wrong before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from counting import assert_linear
from retinue import pruning
from retinue.agents import builtin_agents
from retinue.app import Retinue
from retinue.engine.replay import replay
from retinue.errors import ModelError
from retinue.events import ChildStarted, MessageReceived, ToolCalled, ToolReturned
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from retinue.tools.files import file_tools
from retinue.types import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from trees import Cast, Stage, agent, results, told, turn

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@tool(effect="read")
async def look(what: str) -> str:
    """Look.

    Args:
        what: at what
    """
    return f"saw {what}"


async def test_notes_are_shown_before_each_step_and_are_private_to_the_run() -> None:
    def play(request: Any) -> Any:
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        if me == "child":
            return f"child sees: {told(request)}"
        if turn(request) == 0:
            return [
                ("vault_set", {"name": "plan", "value": "x" * 5000, "summary": "the secret plan"}),
                ("todo", {"action": "add", "texts": ["buy milk"]}),
            ]
        if turn(request) == 1:
            return [("child", {"prompt": "hello"})]
        return "done"

    stage = Stage({"root": play, "child": play}, agents=[agent("child")])
    await stage.run(agent("root", tools=("vault_set", "todo", "child")))
    first, second, _ = stage.model.of("root")
    assert "<state>" not in told(first)[-1]
    assert told(second)[-1].startswith("<state>\n## Tasks\n")
    assert "buy milk" in told(second)[-1]
    assert "the secret plan" in told(second)[-1]
    assert "xxxx" not in told(second)[-1], "only a summary of a large value enters the prompt"
    (child,) = stage.model.of("child")
    assert told(child) == ["hello"]
    assert not any(isinstance(e, MessageReceived) for e in await stage.log()), "reminders are in no log"


async def test_an_agent_that_looks_first_is_made_to_call_a_tool_in_its_first_step_alone() -> None:
    looks = agent("root", tools=("look", "child"), look_first=True, summary="sum up", output_schema=NUMBER)
    stage = Stage(
        {
            "root": [[("look", {"what": "x"}), ("child", {"prompt": "go"})], "not JSON", *['{"n": 1}'] * 2],
            "child": ["done"],
        },
        tools=[look],
        agents=[agent("child", tools=("look",))],
    )
    await stage.run(looks)
    assert [request.tool_choice for request in stage.model.of("root")] == ["required", *["auto"] * 3]
    assert [request.tool_choice for request in stage.model.of("child")] == ["auto"], "it is not handed down"


async def test_the_form_of_an_answer_is_told_at_once_and_demanded_without_tools_where_it_is_missed() -> None:
    stage = Stage({"root": [[("look", {"what": "x"})], "not JSON", '{"n": 1}']}, tools=[look])
    report = await stage.run(agent("root", tools=("look",), output_schema=NUMBER))
    assert report.data == {"n": 1}
    first, second, mended = stage.model.of("root")
    assert json.dumps(NUMBER) in first.system
    assert [bool(each.tools) for each in (first, second, mended)] == [True, True, False]
    assert [each.schema for each in (first, second, mended)] == [None, None, NUMBER]


async def test_a_tool_call_is_not_demanded_where_no_tool_is_offered() -> None:
    stage = Stage({"root": ["from memory"]}, tools=[look])
    await stage.run(agent("root", tools=(), look_first=True))
    (request,) = stage.model.of("root")
    assert (request.tools, request.tool_choice) == ((), "auto")


async def test_the_demand_for_a_look_survives_a_restart_and_does_not_come_back_later() -> None:
    store = MemoryStore()
    root = agent("root", tools=("look",), look_first=True)
    first = Stage({"root": [ModelError("the model is on fire", kind="invalid")]}, store=store, tools=[look])
    await first.run(root)
    answers: list[Any] = [[("look", {"what": "x"})], "seen"]
    second = Stage({"root": answers}, store=store, root_id=first.root_id, tools=[look])
    await (await second.resume())
    assert [request.tool_choice for request in second.model.of("root")] == ["required", "auto"]


async def test_memory_of_a_permanent_agent_persists_if_its_spec_says_so() -> None:
    store = MemoryStore()
    keeper = agent("keeper", tools=("memory_add",), memory=True)
    stage = Stage({"keeper": [[("memory_add", {"text": "the key is under the mat"})], "ok"]}, store=store)
    await stage.run(keeper)
    again = Stage({"keeper": ["ok"]}, store=store)
    await again.run(keeper)
    assert "the key is under the mat" in told(again.model.of("keeper")[0])[-1]
    other = Stage({"keeper": ["ok"]}, store=store)
    await other.run(agent("keeper", tools=("memory_add",)))
    assert "mat" not in str(told(other.model.of("keeper")[0]))


async def test_a_resumed_run_is_told_how_it_ended_the_last_time() -> None:
    store = MemoryStore()
    first = Stage({"root": [ModelError("the model is on fire", kind="invalid")]}, store=store)
    report = await first.run()
    assert report.status == "error"
    second = Stage({"root": ["better now"]}, store=store, root_id=first.root_id)
    assert (await (await second.resume())).text == "better now"
    assert told(second.model.of("root")[0])[-1] == "<state>\n## Pending error\nthe model is on fire\n</state>"


async def test_code_mode_offers_run_code_alone_and_its_tools_are_functions_inside() -> None:
    pytest.importorskip("pydantic_monty")
    code = "a = await look('x')\nb = await look('y')\nprint(a)\nb"
    stage = Stage(
        {"coder": [[("run_code", {"code": code})], [("run_code", {"code": "a + '!'"})], "done"]}, tools=[look]
    )
    sandboxes: list[Any] = []
    stage = _with_sandbox(stage, sandboxes)
    report = await stage.run(agent("coder", mode="code", tools=("look", "run_code")))
    assert report.text == "done"
    assert [spec.name for spec in stage.model.of("coder")[0].tools] == ["run_code"]
    first, second = results(stage.model.of("coder")[-1])
    assert "saw x" in first.text
    assert "saw y" in first.text
    assert "saw x!" in second.text, "variables live as long as the run"
    inner = [e.call_id for e in await stage.log() if isinstance(e, ToolCalled) and e.name == "look"]
    assert inner == ["call0/1", "call0/2"]
    await sandboxes[0].close()


async def test_a_tool_called_from_code_asks_like_any_other() -> None:
    pytest.importorskip("pydantic_monty")

    @tool(effect="write")
    async def change(what: str) -> str:
        """Change."""
        return "changed"

    stage = Stage({"coder": [[("run_code", {"code": "await change('x')"})], "done"]}, tools=[change])
    sandboxes: list[Any] = []
    stage = _with_sandbox(stage, sandboxes)
    await stage.run(agent("coder", mode="code"))
    assert "nobody to ask" in results(stage.model.of("coder")[-1])[0].text
    assert not any(isinstance(e, ToolCalled) and e.name == "change" for e in await stage.log())
    await sandboxes[0].close()


async def test_code_that_was_interrupted_goes_on_without_repeating_its_finished_calls() -> None:
    pytest.importorskip("pydantic_monty")
    ran: list[str] = []

    @tool(effect="read")
    async def note(what: str) -> str:
        """Note."""
        ran.append(what)
        return f"noted {what}"

    parts = {
        "coder": [
            [("run_code", {"code": "first = await note('one')"})],
            [("run_code", {"code": "x = await note('two')\ny = await note('three')\nfirst + x + y"})],
            "done",
        ]
    }
    coder = agent("coder", mode="code", tools=("note", "run_code"))
    sandboxes: list[Any] = []
    whole = _with_sandbox(Stage(parts, tools=[note]), sandboxes)
    await whole.run(coder)
    events = await whole.log()
    cut = next(
        i
        for i, e in enumerate(events)
        if isinstance(e, ToolReturned) and e.call_id.endswith("/1") and "two" in e.text
    )
    ran.clear()
    store = MemoryStore()
    await store.append(events[: cut + 1])
    again = _with_sandbox(Stage(parts, tools=[note], store=store, root_id=whole.root_id), sandboxes)
    report = await (await again.resume())
    assert report.text == "done"
    assert ran == ["three"], "what was finished is answered from the log"
    assert "noted onenoted twonoted three" in results(again.model.of("coder")[-1])[-1].text
    assert (await replay(events, whole.config)).same
    for engine in sandboxes:
        await engine.close()


def _with_sandbox(stage: Stage, engines: list[Any]) -> Stage:
    from retinue.sandbox import open_engine
    from retinue.sandbox.base import SandboxLimits

    engine, _ = open_engine(stage.settings.code)
    engines.append(engine)
    object.__setattr__(stage.config, "sandbox", lambda: engine.session(SandboxLimits()))
    return stage


@pytest.mark.parametrize("fails", [False, True])
async def test_external_knowledge_comes_first_when_the_question_needs_it(fails: bool) -> None:
    looked = 0

    def know(request: Any) -> Any:
        nonlocal looked
        looked += 1
        return ModelError("no network", kind="connection") if fails else "Paris has 2.1 million people."

    cast = Cast({"main": ["answer"] * 3, "know": know})
    async with Retinue(
        model=cast,
        db=MemoryStore(),
        agents=[agent("main"), agent("know")],
        environ={},
        settings={"default_agent": "main", "knowledge.first": True, "knowledge.agent": "know"},
    ) as retinue:
        report = await retinue.ask("What is the latest population of Paris?")
        assert report.text == "answer"
        seen = told(cast.of("main")[0])
        assert seen[0] == "What is the latest population of Paris?"
        if fails:
            assert len(seen) == 1, "the main run goes on without it"
        else:
            assert seen[1].startswith(
                "## External Knowledge\nknow looked this up before you began:\n<report "
            )
            assert "Paris has 2.1 million people." in seen[1]
            await retinue.ask("What is the latest population of Paris?")
            assert looked == 1, "the same question is not looked up twice"
        asked = looked
        await retinue.ask("fix the bug in src/app.py")
        assert looked == asked, "not triggered"
        events = await retinue.store.events(report.run_id)
        assert sum(isinstance(e, ChildStarted) for e in events) == 1
    assert json.dumps(told(cast.of("main")[-1])) == json.dumps(["fix the bug in src/app.py"])


async def test_an_attached_workbook_comes_with_tools_and_guidance_and_survives_a_restart(
    tmp_path: Any,
) -> None:
    from retinue.attachments import attach

    (tmp_path / "sales.csv").write_text("city,sold\nParis,5\nLyon,7\n")
    ask = {"cells": "A1:B3"}
    cast = Cast({"main": [[("sheet_read", ask)], "done"]})
    store = MemoryStore()

    def app() -> Retinue:
        return Retinue(model=cast, db=store, agents=[agent("main", shown=())], environ={})

    async with app() as retinue:
        run_id = await retinue.start("main", "sum it up", attachments=[await attach(tmp_path / "sales.csv")])
        await retinue.wait(run_id)
        first = cast.of("main")[0]
        assert {spec.name for spec in first.tools} >= {"sheet_read", "sheet_filter", "sheet_aggregate"}
        assert "spreadsheet" in first.system.lower()
        assert '<attachment name="sales.csv"' in told(first)[0]
        assert "Lyon" in results(cast.of("main")[1])[0].text
        row = await store.run(run_id)
        assert row is not None
        assert row.task == "sum it up"
    async with app() as retinue:
        await retinue.resume(run_id, message="again")
        await retinue.wait(run_id)
        assert "sheet_read" in {spec.name for spec in cast.of("main")[-1].tools}
        await retinue.run("main", "no workbook here")
        assert "sheet_read" not in {spec.name for spec in cast.of("main")[-1].tools}
        assert "spreadsheet" not in cast.of("main")[-1].system.lower()


async def test_a_model_without_tool_calls_is_spoken_to_in_tags(tmp_path: Any) -> None:
    from retinue.testing import FakeProvider

    async with FakeProvider() as provider:
        provider.reply(text='I will look.\n<tool name="look">{"what": "x"}</tool>')
        provider.reply(text="<answer>it was there</answer>")
        async with Retinue(
            model="text:openai:fake-model",
            db=MemoryStore(),
            cwd=tmp_path,
            agents=[agent("plain", tools=("look",))],
            tools=[look],
            environ=provider.environ() | {"HOME": str(tmp_path)},
        ) as retinue:
            report = await retinue.run("plain", "look for x")
        assert (report.text, report.tool_calls) == ("it was there", 1)
        assert provider.requests[0].tools == ()
        assert "saw x" in provider.requests[1].messages[-1].text


@pytest.mark.parametrize(
    ("prompt", "incomplete"),
    [("review a.py", "nothing was read"), ("review this:\n\n" + "x = 1\n" * 5, None)],
)
async def test_an_answer_that_must_rest_on_something_read_is_incomplete_without(
    prompt: str, incomplete: str | None
) -> None:
    stage = Stage({"root": [[("look", {"what": "x"})], "fine"]}, tools=[look])
    report = await stage.run(agent("root", must_read=True), prompt=prompt)
    assert (report.status, report.text, report.incomplete) == ("completed", "fine", incomplete)


@pytest.mark.parametrize(
    ("calls", "incomplete"),
    [
        ([("grep", {"pattern": "signed", "path": "missing"})], "nothing was read"),
        ([("grep", {"pattern": "signed"})], "nothing was read"),
        ([("ls", {})], "nothing was read"),
        ([("grep", {"pattern": "signed", "context": 2})], None),
        ([("grep", {"pattern": "signed"}), ("read", {"path": "a.txt"})], None),
    ],
)
async def test_a_hit_of_a_search_is_listed_and_not_read(
    calls: Any, incomplete: str | None, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\nit is signed\ntwo\n")
    stage = Stage({"root": [calls, "it is not signed"]}, tools=file_tools(), project=tmp_path)
    report = await stage.run(agent("root", must_read=True))
    assert report.incomplete == incomplete
    assert report.outcome == ("completed" if incomplete is None else "incomplete")


@pytest.mark.parametrize(
    "name",
    ["agentic-fetch", "summarize", "compare", "code-search", "code-review", "planner", "web-knowledge"],
)
def test_built_in_agents_that_look_things_up_must_read(name: str) -> None:
    assert builtin_agents()[name].must_read


def _history(turns: int) -> list[Message]:
    messages: list[Message] = [UserMessage(text="task")]
    for number in range(turns):
        call = ToolCall(id=str(number), name="look", arguments="{}")
        messages += [
            AssistantMessage(text="", calls=(call,)),
            ToolMessage(call_id=call.id, name="look", text="r" * 200),
        ]
    return messages


def test_what_can_go_from_a_long_history_is_found_in_one_pass_over_it() -> None:
    assert_linear(lambda turns: pruning.droppable(_history(turns), 2, 0), 1_600)


def test_whole_turns_go_oldest_first_until_the_rest_fits() -> None:
    messages = _history(100)
    assert pruning.droppable(messages, 2, 0) == 2 * (100 - 2), "all but the newest turns"
    assert pruning.droppable(messages, 2, pruning.estimate(messages)) == 2, "one turn at least"
    half = pruning.estimate(messages) // 2
    gone = pruning.droppable(messages, 2, half)
    assert gone % 2 == 0
    assert pruning.estimate(messages[:1] + messages[1 + gone :]) <= half
    assert pruning.estimate(messages[:1] + messages[1 + gone - 2 :]) > half
