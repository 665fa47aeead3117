"""What a small model needs to delegate: names in the schema, one obvious default, an error with the call to make."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from delegating import ALL, inner
from msgspec.structs import replace

from retinue.delegate.offering import offered
from retinue.events import ChildStarted
from retinue.types import ModelRequest, ToolSpec
from trees import Stage, agent, results, turn

CLERK = replace(agent("clerk"), description="Use for sums.")
READER = replace(agent("reader"), description="Use for books. " + "x" * 100)


def stage_of(root: Any, *agents: Any, **options: Any) -> Stage:
    cast = {"root": root, "clerk": lambda request: "42", "reader": lambda request: "Austen"}
    return Stage(cast, agents=list(agents), **{"yes": True, "delegation__tools": ALL, **options})


def plays(*steps: Any) -> Any:
    return lambda request: (
        steps[turn(request)](request) if callable(steps[turn(request)]) else steps[turn(request)]
    )


def results_of(stage: Stage) -> list[str]:
    return [result.text for result in results(stage.model.of("root")[-1])]


async def shown(*ways: str) -> dict[str, Any]:
    stage = stage_of("done", CLERK, READER, delegation__tools=ways)
    await stage.run()
    return {tool.name: tool.schema for tool in stage.model.of("root")[0].tools}


async def test_every_way_that_takes_a_name_says_which_names_there_are_and_wants_one() -> None:
    schemas = await shown(*ALL)
    named = {
        "delegate_task": schemas["delegate_task"],
        "background": schemas["background"],
        "parallel_tasks": schemas["parallel_tasks"]["$defs"]["Task"],
    }
    for schema in named.values():
        assert schema["properties"]["agent_id"]["enum"] == ["clerk", "reader"]
        assert schema["properties"]["agent_id"]["description"] == "the agent's name"
    assert {name: schema["required"] for name, schema in named.items()} == {
        "delegate_task": ["agent_id", "prompt"],
        "background": ["operation", "agent_id"],
        "parallel_tasks": ["agent_id", "prompt"],
    }
    assert "null" not in json.dumps([schemas[name] for name in ALL if name != "agents"])


async def test_what_an_agent_is_for_is_said_where_it_is_no_tool_itself() -> None:
    said = (await shown("delegate_task"))["delegate_task"]["properties"]["agent_id"]["description"]
    assert said.startswith("the agent's name. clerk: Use for sums. reader: Use for books. xxx")
    assert said.endswith("….")


@pytest.mark.parametrize(("length", "shown_as"), [(80, "x" * 80 + "."), (81, "x" * 79 + "….")])
async def test_what_an_agent_is_for_is_said_in_eighty_characters(length: int, shown_as: str) -> None:
    made = offered(
        ToolSpec(name="way", description="", schema={"properties": {"agent_id": {}}}),
        [replace(agent("a"), description=f" {'x' * length}. ")],
        described=False,
    )
    assert made.schema["properties"]["agent_id"]["description"] == f"the agent's name. a: {shown_as}"


@pytest.mark.parametrize("way", ["delegate_task", "background"])
async def test_the_only_agent_needs_no_name(way: str) -> None:
    stage = stage_of(plays([(way, {"prompt": "add"})], "done", "done"), CLERK)
    await stage.run()
    assert [e.agent for e in await stage.log() if isinstance(e, ChildStarted)] == ["clerk"]


@pytest.mark.parametrize("way", ["delegate_task", "background"])
async def test_a_call_without_a_name_is_shown_the_calls_to_make(way: str) -> None:
    def as_told(request: ModelRequest) -> Any:
        return [(way, json.loads(results(request)[0].text.splitlines()[-1]))]

    stage = stage_of(plays([(way, {"prompt": "add"})], as_told, "done", "done"), CLERK, READER)
    await stage.run()
    assert results_of(stage)[0].splitlines() == [
        "agent_id is missing. Agents: clerk, reader. Call again with one of these:",
        '{"agent_id": "clerk", "prompt": "add"}',
        '{"agent_id": "reader", "prompt": "add"}',
    ]
    assert [e.agent for e in await stage.log() if isinstance(e, ChildStarted)] == ["reader"]


async def test_the_only_child_in_the_background_needs_no_id() -> None:
    start = ("background", {"agent_id": "clerk", "prompt": "add"})
    wait = ("background", {"operation": "wait"})
    stage = stage_of(plays([start], [wait], "done"), CLERK, READER)
    await stage.run()
    body = json.loads(results_of(stage)[-1])
    assert (body["success"], body["agent_id"]) == (True, "clerk")


async def test_of_several_in_the_background_the_one_of_that_agent_is_meant_or_the_calls_are_shown() -> None:
    both = [("background", {"agent_id": name, "prompt": "x"}) for name in ("clerk", "reader")]
    named = [("background", {"operation": "check", "agent_id": "reader"})]
    unnamed = [("background", {"operation": "check"})]
    stage = stage_of(plays(both, named, unnamed, "done"), CLERK, READER)
    await stage.run()
    *ids, checked, which = results_of(stage)
    first, second = (json.loads(each)["child_id"] for each in ids)
    assert [row["child_id"] for row in json.loads(checked)["children"]] == [second]
    assert which.splitlines() == [
        "child_id is missing, and there are 2. Call again with one of these:",
        json.dumps({"operation": "check", "child_id": first}) + " (clerk)",
        json.dumps({"operation": "check", "child_id": second}) + " (reader)",
    ]


async def test_one_that_works_is_meant_before_those_that_have_ended() -> None:
    gate = asyncio.Event()

    async def clerk(request: ModelRequest) -> str:
        if "slow" in str(request.messages):
            await gate.wait()
        return "42"

    def starts(prompt: str) -> Any:
        return [("background", {"agent_id": "clerk", "prompt": prompt})]

    def first_of(request: ModelRequest) -> Any:
        child_id = json.loads(results(request)[0].text)["child_id"]
        return [("background", {"operation": "wait", "child_id": child_id})]

    def over(request: ModelRequest) -> str:
        gate.set()
        return "done"

    check = [("background", {"operation": "check"})]
    stage = stage_of(plays(starts("quick"), first_of, starts("slow"), check, over), CLERK)
    stage.model.parts = {**stage.model.parts, "clerk": clerk}
    await stage.run()
    *_, started, checked = results_of(stage)
    (row,) = json.loads(checked)["children"]
    assert row["child_id"] == json.loads(started)["child_id"]


@pytest.mark.parametrize("operation", ["check", "wait", "message", "cancel"])
async def test_a_child_of_another_agent_than_the_named_one_is_never_meant(operation: str) -> None:
    start = ("background", {"agent_id": "clerk", "prompt": "add"})
    other = ("background", {"operation": operation, "agent_id": "reader", "text": "stop that"})
    stage = stage_of(plays([start], [other], "done"), CLERK, READER)
    await stage.run()
    started, refused = results_of(stage)
    assert refused.splitlines() == [
        "child_id is missing, and no child of reader is in the background. Call again with one of these:",
        json.dumps({"operation": operation, "child_id": json.loads(started)["child_id"]}) + " (clerk)",
    ]


async def test_without_any_child_in_the_background_that_is_said() -> None:
    stage = stage_of(plays([("background", {"operation": "wait"})], "done"), CLERK)
    await stage.run()
    assert results_of(stage) == ["child_id is missing, and nothing of yours is in the background"]


@pytest.mark.parametrize("name", ["clerk", "reader"])
async def test_a_child_that_is_asked_again_may_be_named_by_its_agent_too(name: str) -> None:
    def again(request: ModelRequest) -> Any:
        child = json.loads(results(request)[0].text)["child_id"]
        return [("delegate_task", {"agent_id": name, "child_id": child, "prompt": "more"})]

    first = [("delegate_task", {"agent_id": "clerk", "prompt": "add"})]
    stage = stage_of(plays(first, again, "done"), CLERK, READER)
    await stage.run()
    text = results_of(stage)[-1]
    child = json.loads(results_of(stage)[0])["child_id"]
    if name == "clerk":
        assert inner(json.loads(text)["report"]) == "42"
    else:
        assert text == (
            f"the child {child} is 'clerk', not 'reader'. To ask it again, call with "
            f'{{"child_id": "{child}", "prompt": "more"}}; to start \'reader\', with '
            '{"agent_id": "reader", "prompt": "more"}'
        )
