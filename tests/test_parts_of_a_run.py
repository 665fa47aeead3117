"""What a program gives one run: tools, agents, an approver, limits, instructions; and its conversations back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Answer, ConfigError, Limits, ModelError, ModelSettings, Report, Retinue, tool
from retinue.events import ApprovalRequested, RunStarted
from retinue.run_options import ConversationWith
from retinue.testing import ScriptedModel, call
from retinue.types import AssistantMessage, ToolMessage, UserMessage


@tool(effect="read")
async def weigh(what: str) -> str:
    """Weigh."""
    return f"{what}: 7 kg"


@tool(effect="write")
async def send(what: str) -> str:
    """Send."""
    return f"sent {what}"


def agent(name: str, **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"the agent {name}", prompt=f"You are {name}.", **fields)


CLERK = agent("clerk", tools=[weigh])


async def test_a_run_has_tools_of_its_own_and_the_next_one_has_not(tmp_path: Path) -> None:
    model = ScriptedModel([call("weigh", what="bees"), "7 kg", "nothing"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[agent("boss", tools=())]) as retinue:
        report = await retinue.run("boss", "how heavy?", tools=[weigh])
        assert (report.text, report.tool_calls) == ("7 kg", 1)
        await retinue.run("boss", "and now?")
        replayed = await retinue.replay(report.run_id)
    assert [[one.name for one in asked.tools] for asked in model.requests] == [["weigh"], ["weigh"], []]
    assert replayed.same, replayed.diff


async def test_a_run_has_agents_of_its_own_who_hold_no_more_than_its_agent_was_given(tmp_path: Path) -> None:
    script = {
        "You are boss": [call("clerk", prompt="weigh bees"), "done"],
        "You are clerk": [[call("weigh", what="bees"), call("send", what="bees")], "7 kg"],
    }
    model = ScriptedModel(script)
    async with Retinue(model=model, db="memory:", cwd=tmp_path, tools=[send]) as retinue:
        report = await retinue.run(agent("boss", tools=()), "how heavy?", agents=[CLERK], messages=True)
    shown = {asked.system.split(".")[0]: {one.name for one in asked.tools} for asked in model.requests}
    assert shown == {"You are boss": {"clerk"}, "You are clerk": {"weigh"}}
    boss, clerk = report.messages
    assert [boss.agent, clerk.agent, clerk.parent_id] == ["boss", "clerk", boss.run_id]
    results = {m.name: m for m in clerk.messages if isinstance(m, ToolMessage)}
    assert results["weigh"].text == "bees: 7 kg"
    assert results["send"].is_error, "its parent holds no such tool, whatever the instance has"


async def test_the_conversations_of_a_run_and_of_all_below_it_come_on_request(tmp_path: Path) -> None:
    model = ScriptedModel(
        {"You are boss": [call("clerk", prompt="weigh bees"), "done"], "You are clerk": ["7 kg"]}
    )
    async with Retinue(
        model=model, db="memory:", cwd=tmp_path, agents=[agent("boss", tools=[CLERK])]
    ) as retinue:
        report = await retinue.run("boss", "how heavy?")
        with pytest.raises(ValueError, match="messages=True"):
            report.messages  # noqa: B018
        assert "messages" not in report.to_dict()
        whole = await retinue.wait(report.run_id, messages=True)
    boss, clerk = whole.messages
    assert [type(each) for each in boss.messages] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
    assert [each.text for each in clerk.messages] == ["weigh bees", "7 kg"]
    assert [each["agent"] for each in whole.to_dict()["messages"]] == ["boss", "clerk"]


async def test_a_run_asks_its_own_approver_and_another_run_the_instances(tmp_path: Path) -> None:
    def no(asked: ApprovalRequested) -> Answer:
        return Answer(decision="reject", reason="never")

    def yes(asked: ApprovalRequested) -> Answer:
        return Answer(decision="approve")

    model = ScriptedModel([call("send", what="1"), "one", call("send", what="2"), "two"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, tools=[send], approve=no) as retinue:
        first = await retinue.run(agent("boss"), "go", approve=yes)
        second = await retinue.run(agent("boss"), "go")
    assert (first.outcome, second.outcome) == ("completed", "rejected")


async def test_the_lower_limit_counts(tmp_path: Path) -> None:
    model = ScriptedModel(["a", "b"])
    frugal = agent("boss", tools=(), limits=Limits(output_tokens=500, turns=9))
    async with Retinue(model=model, db="memory:", cwd=tmp_path) as retinue:
        report = await retinue.run(frugal, "go", limits=Limits(output_tokens=9000, turns=3, cost=1.0))
        began = (await retinue.store.events(report.run_id))[0]
    assert isinstance(began, RunStarted)
    assert (began.limits.output_tokens, began.limits.turns, began.limits.cost) == (500, 3, 1.0)


@dataclass
class Shop:
    name: str
    asked: int = 0


async def test_instructions_and_prompts_are_made_of_the_deps_once_and_stay_as_they_were(
    tmp_path: Path,
) -> None:
    def prompt(shop: Shop) -> str:
        shop.asked += 1
        return f"You serve {shop.name}, visit {shop.asked}."

    async def instructions(shop: Shop) -> str:
        return f"{shop.name} closes at six."

    shop, db = Shop("acme"), f"sqlite://{tmp_path}/log.db"
    boss = AgentSpec(name="boss", description="the boss", prompt=prompt, tools=())
    first, second = ScriptedModel(["one"]), ScriptedModel(["two"])
    async with Retinue[Shop](model=first, db=db, cwd=tmp_path, agents=[boss]) as retinue:
        report = await retinue.run("boss", "go", deps=shop, instructions=instructions)
        replayed = await retinue.replay(report.run_id)
    told = first.requests[0].system
    assert told.startswith("You serve acme, visit 1.\n\nacme closes at six.")
    assert replayed.same, replayed.diff
    async with Retinue[Shop](model=second, db=db, cwd=tmp_path) as retinue:
        await retinue.resume(report.run_id, message="and then?", deps=Shop("another"))
        assert (await retinue.wait(report.run_id)).text == "two"
    assert second.requests[0].system == told
    assert shop.asked == 1


async def test_a_child_has_a_prompt_made_of_the_deps_too(tmp_path: Path) -> None:
    def prompt(shop: Shop) -> str:
        return f"You serve {shop.name}."

    clerk = AgentSpec(name="clerk", description="the clerk", prompt=prompt, tools=())
    model = ScriptedModel({"You are boss": [call("clerk", prompt="hi"), "done"], "You serve acme": ["hello"]})
    with model:
        async with Retinue[Shop](model=model, db="memory:", cwd=tmp_path) as retinue:
            report = await retinue.run(agent("boss", tools=[clerk]), "go", deps=Shop("acme"))
    assert report.text == "done"


@pytest.mark.parametrize("model", [None, ScriptedModel([])], ids=["no model", "a model of the run"])
async def test_a_prompt_that_cannot_be_made_keeps_the_run_from_starting(
    tmp_path: Path, model: ScriptedModel | None
) -> None:
    def seven(deps: object) -> int:
        return 7

    boss = AgentSpec(name="boss", description="the boss", prompt=seven, tools=())  # pyright: ignore[reportArgumentType] # a mistake
    async with Retinue(model=ScriptedModel([]), db="memory:", cwd=tmp_path) as retinue:
        with pytest.raises(ConfigError, match=r"made by .*seven, which returned int, not text"):
            await retinue.run(boss, "go", model=model)
        assert list(await retinue.runs()) == []


async def test_whoever_takes_a_run_up_is_told_what_to_hand_in_again(tmp_path: Path) -> None:
    db, gate = f"sqlite://{tmp_path}/log.db", asyncio.Event()

    async def never(asked: ApprovalRequested) -> Answer:
        await gate.wait()
        return Answer(decision="approve")

    model = ScriptedModel([call("send", what="1"), "unheard"])
    async with Retinue(model=model, db=db, cwd=tmp_path) as retinue:
        run_id = await retinue.start(agent("boss"), "go", tools=[send], agents=[CLERK], approve=never)
        async for event in retinue.watch(run_id):
            if isinstance(event, ApprovalRequested):
                break
        await retinue.leave()
    async with Retinue(model=ScriptedModel(["done"]), db=db, cwd=tmp_path) as retinue:
        for given, says in (
            ({}, r"tool 'send', which is missing now \(give it again: resume\(run_id, tools=\[send\]\)"),
            ({"tools": [send]}, r"tool 'weigh'"),
            ({"tools": [send, weigh]}, r"agent 'clerk', which is missing now .*agents=\[clerk"),
            ({"tools": [send], "agents": [CLERK]}, r"answers its questions, .*approve=…"),
        ):
            with pytest.raises(ConfigError, match=says):
                await retinue.resume(run_id, **given)  # pyright: ignore[reportArgumentType]
        gate.set()
        await retinue.resume(run_id, tools=[send], agents=[CLERK], approve=never)
        assert (await retinue.wait(run_id)).text == "done"


async def test_a_conversation_with_an_agent_that_brings_its_own_tools_goes_on_with_them(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([call("weigh", what="a"), "one", call("weigh", what="b"), "two"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path) as retinue:
        chat = retinue.conversation(agent("boss", tools=[weigh]))
        assert (await chat.send("go")).text == "one"
        assert (await chat.send("and then?")).text == "two"


async def test_a_fork_is_given_again_what_its_run_was_given(tmp_path: Path) -> None:
    model = ScriptedModel([call("weigh", what="a"), "one", call("weigh", what="b"), "two"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path) as retinue:
        report = await retinue.run(agent("boss", tools=()), "go", tools=[weigh])
        with pytest.raises(ConfigError, match="tool 'weigh', which is missing now"):
            await retinue.fork(report.run_id, message="otherwise")
        forked = await retinue.fork(report.run_id, message="otherwise", tools=[weigh])
        assert (await retinue.wait(forked)).text == "two"


async def test_what_is_done_once_and_failed_is_taken_up_with_what_it_was_given(tmp_path: Path) -> None:
    script = [call("weigh", what="a"), ModelError("down", kind="invalid"), call("weigh", what="b"), "done"]
    async with Retinue(model=ScriptedModel(script), db="memory:", cwd=tmp_path) as retinue:
        own = agent("boss", tools=[weigh])
        first = await retinue.once("r0once", own, "go")
        second = await retinue.once("r0once", own, "go", messages=True)
    assert (first.status, second.text) == ("error", "done")
    assert [m.text for m in second.messages[0].messages if isinstance(m, ToolMessage)] == [
        "a: 7 kg",
        "b: 7 kg",
    ]


def fails_at_first() -> list[Any]:
    return [ModelError("down", kind="invalid"), "done"]


@pytest.mark.parametrize("chain", [False, True])
async def test_what_is_done_once_is_handed_its_model_again_when_it_is_taken_up(
    tmp_path: Path, chain: bool
) -> None:
    db, own = f"sqlite://{tmp_path}/log.db", ScriptedModel(fails_at_first(), name="own:m")
    backup = ScriptedModel([ModelError("down too", kind="invalid")], name="own:b")
    given = [own, backup] if chain else own
    of_map = ScriptedModel(fails_at_first(), name="own:x")
    reports, came = list[Report](), list[bool]()
    for _ in range(2):
        async with Retinue(model=ScriptedModel([], name="main:m"), db=db, cwd=tmp_path) as retinue:
            reports.append(await retinue.once("r0once", agent("boss", tools=()), "go", model=given))
            async for item in retinue.map(agent("boss", tools=()), ["x"], model=of_map):
                came.append(item.ok)
    assert came == [False, True]
    assert [each.status for each in reports] == ["error", "completed"]
    assert (reports[1].text, reports[1].model) == ("done", "own:m")


async def test_a_run_is_taken_up_or_copied_with_another_model_that_is_an_object(tmp_path: Path) -> None:
    first, other = ScriptedModel(["one"], name="own:a"), ScriptedModel(["two", "three"], name="own:b")
    async with Retinue(model=ScriptedModel([]), db="memory:", cwd=tmp_path) as retinue:
        report = await retinue.run(agent("boss", tools=()), "go", model=first)
        with pytest.raises(ConfigError, match=r"'own:a' as an object, which is not here now .*model=…"):
            await retinue.resume(report.run_id, message="and?")
        forked = await retinue.fork(report.run_id, message="and?", model=other)
        assert (await retinue.wait(forked)).text == "two"
        await retinue.resume(report.run_id, message="and?", model=other)
        assert (await retinue.wait(report.run_id)).text == "three"


async def approves(asked: ApprovalRequested) -> Answer:
    return Answer(decision="approve")


@pytest.mark.parametrize(
    "given",
    [
        {"tools": [weigh]},
        {"tools": iter([weigh])},
        {"agents": [CLERK]},
        {"approve": approves},
        {"model": ScriptedModel(lambda asked: "yes", name="own:m")},
        {"model_settings": ModelSettings(extra_headers={"X-Team": "blue"})},
        {"limits": Limits(turns=5)},
        {"instructions": "Be brief."},
    ],
    ids=lambda given: next(iter(given)),
)
async def test_a_conversation_has_what_it_was_given_in_every_turn(
    tmp_path: Path, given: ConversationWith[object]
) -> None:
    boss = agent("boss", tools=())
    model = ScriptedModel(lambda asked: "yes")
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[boss]) as retinue:
        chat = retinue.conversation("boss", **given)
        said = [await chat.send("go"), await chat.send("and?"), await chat.send("and then?")]
        assert [each.text for each in said] == ["yes"] * 3
        assert len({each.model for each in said}) == 1
    own = given.get("model")
    requests = own.requests if isinstance(own, ScriptedModel) else model.requests
    asked = [(r.system, [tool.name for tool in r.tools], r.settings.extra_headers) for r in requests]
    assert asked == asked[:1] * 3
