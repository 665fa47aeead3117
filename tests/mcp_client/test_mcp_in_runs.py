"""MCP calls in the life of a run: progress, questions to people, many tools, children, crashes, replays."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcp_world import GENERAL, World, questions, results, trusting
from retinue import Retinue
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested, LiveEvent, Progressed, RunStarted, ToolCalled, ToolReturned
from retinue.mcp.listing import Annotations, ListedTool
from retinue.mcp.tools import unasked
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.workspace import Files


async def test_progress_is_shown_while_a_call_runs(world: World) -> None:
    world.plain()
    shown: list[str] = []

    def tell(event: LiveEvent) -> None:
        if isinstance(event, Progressed):
            shown.append(event.text)

    await world.ask(call("mcp__plain__steps", n=3), tell=tell)
    assert shown == ["1 of 3: step 1", "2 of 3: step 2", "3 of 3: step 3"]


async def test_what_a_server_wants_to_know_is_a_question_with_a_form(world: World) -> None:
    world.plain()
    asked: list[ApprovalRequested] = []
    answer = Answer(decision="approve", arguments='{"colour": "red", "count": 2}')
    found = await world.ask(
        call("mcp__plain__ask", about="the door"), approve=lambda question: answer, tell=questions(asked)
    )
    assert len(asked) == 1
    assert asked[0].form is not None
    assert set(asked[0].form["properties"]) == {"colour", "count"}
    assert asked[0].arguments == '{"colour": "", "count": 1}'
    assert "Which colour for the door?" in asked[0].reason
    assert '"action": "accept"' in found[0].text
    assert '"colour": "red"' in found[0].text


async def test_an_answer_that_does_not_fit_is_asked_for_again_and_a_no_is_told(world: World) -> None:
    world.plain()
    said = [
        Answer(decision="approve", arguments='{"colour": 7}'),
        Answer(decision="reject"),
    ]
    asked: list[ApprovalRequested] = []
    found = await world.ask(
        call("mcp__plain__ask", about="x"),
        approve=lambda question: said.pop(0),
        tell=questions(asked),
    )
    assert len(asked) == 2
    assert "did not fit" in asked[1].reason
    assert '"action": "decline"' in found[0].text


async def test_where_nobody_is_there_a_server_is_told_so(world: World) -> None:
    world.plain()
    found = await world.ask(call("mcp__plain__ask", about="x"))
    assert '"action": "cancel"' in found[0].text


async def test_many_tools_are_found_with_a_search_and_shown_from_then_on(world: World) -> None:
    world.plain("--many", "40")
    shown: list[set[str]] = []
    steps: list[Any] = [
        call("mcp_search_tools", query="extra tool number 7"),
        call("mcp__plain__extra_7", text="x"),
        "done",
    ]

    def play(request: Any) -> Any:
        shown.append({tool.name for tool in request.tools if tool.name.startswith("mcp_")})
        return steps[len(shown) - 1]

    async with Retinue(model=ScriptedModel(play), cwd=world.project, db="memory:") as retinue:
        await trusting(retinue)
        found = await results(retinue)
    assert shown[0] == {"mcp_search_tools"}
    assert "mcp__plain__extra_7" in shown[1]
    assert len(shown[1]) < 15
    assert found[0].shows[0] == "mcp__plain__extra_7"
    assert found[1].not_run == ""


async def test_the_words_of_a_server_reach_those_who_hold_its_tools(world: World) -> None:
    world.plain()
    async with world.open() as retinue:
        await trusting(retinue)
        for name, told in (("general", True), ("planner", False)):
            run_id = await retinue.start(name, "go")
            began = (await retinue.store.events(run_id))[0]
            assert isinstance(began, RunStarted)
            assert ("Speak of plain things plainly." in began.system) is told
            await retinue.cancel(run_id)


@pytest.mark.parametrize("first", ["look", "echo"])
async def test_whatever_a_server_returns_is_private_and_a_look_at_the_open_world_asks_then(
    world: World, first: str
) -> None:
    world.plain()
    found = await world.ask(
        call(f"mcp__plain__{first}", text="mail"), call("mcp__plain__look", text="secret")
    )
    assert [each.not_run for each in found] == ["", "unattended"]
    assert found[0].private == (f"what mcp__plain__{first} returned",)
    assert "goes to others" in found[1].text


async def test_what_a_server_returns_that_a_person_calls_public_is_not_private(world: World) -> None:
    world.plain()
    look = call("mcp__plain__look", text="weather")
    found = await world.ask(look, call("mcp__plain__echo", text="x"), RESOURCE, PROMPT, look, trust="public")
    assert [(each.not_run, each.private) for each in found] == [("", ())] * 5


async def test_a_tool_that_is_another_than_it_was_is_private_also_of_a_public_server(world: World) -> None:
    world.plain()
    async with world.open([call("mcp__plain__look", text="x")], yes=True) as retinue:
        await trusting(retinue, "public")
        app = retinue.services.mcp
        server, listing = app.servers["plain"], app.listings["plain"]
        app.trust.add(server, [each for each in listing.tools if each.name != "look"], public=True)
        assert [each.private for each in await results(retinue)] == [("what mcp__plain__look returned",)]


RESOURCE = call("mcp__plain__read_resource", uri="memo://secret")
PROMPT = call("mcp__plain__get_prompt", name="greet", arguments={"who": "secret"})


@pytest.mark.parametrize("by", [RESOURCE, PROMPT])
async def test_resources_and_prompts_ask_once_private_data_was_read_like_the_most_open_tool(
    world: World, by: Any
) -> None:
    world.plain()
    found = await world.ask(by, call("mcp__plain__list_resources"), by)
    assert [each.not_run for each in found] == ["", "", "unattended"]
    assert "goes to others" in found[2].text


async def test_resources_of_a_server_whose_tools_are_all_of_a_closed_world_never_ask(world: World) -> None:
    world.plain("--closed")
    found = await world.ask(RESOURCE, PROMPT, RESOURCE, PROMPT)
    assert [each.not_run for each in found] == ["", "", "", ""]


async def test_resources_of_a_server_without_tools_are_open_for_it_says_nothing_else(world: World) -> None:
    world.plain("--toolless")
    found = await world.ask(RESOURCE, RESOURCE)
    assert [each.not_run for each in found] == ["", "unattended"]


async def test_resources_are_open_once_a_tool_is_not_one_that_was_trusted(world: World) -> None:
    world.plain("--closed")
    async with world.open() as retinue:
        await trusting(retinue)
        app = retinue.services.mcp
        server, listing = app.servers["plain"], app.listings["plain"]
        assert unasked(server, listing, app.trust)[1] == []
        late = ListedTool(name="late", annotations=Annotations(read_only=True, open_world=False))
        more = msgspec.structs.replace(listing, tools=(*listing.tools, late))
        assert unasked(server, more, app.trust)[1] == ["read_resource", "get_prompt"]


async def test_a_finished_run_replays_without_its_server(world: World) -> None:
    world.plain()
    store = MemoryStore()
    answer = Answer(decision="approve", arguments='{"colour": "red"}')
    model = ScriptedModel(
        {GENERAL: [call("mcp__plain__echo", text="hi"), call("mcp__plain__ask", about="x"), "done"]}
    )
    async with Retinue(model=model, cwd=world.project, db=store, approve=lambda question: answer) as retinue:
        await trusting(retinue)
        report = await retinue.run("general", "go")
        starts = world.starts()
        replayed = await retinue.replay(report.run_id)
        assert replayed.diff == ""
        assert replayed.report.text == "done"
        assert world.starts() == starts


async def test_a_call_that_was_cut_off_is_made_again_only_if_it_may_be(world: World) -> None:
    world.plain()
    for tool, arguments, unknown in (("hang", {}, False), ("note", {"text": "hang"}, True)):
        store = MemoryStore()
        steps = [call(f"mcp__plain__{tool}", **arguments), "done"]
        settings = {"limits.tool_timeout": 2, "approvals.allow": ["mcp__plain__*"]}
        model = ScriptedModel({GENERAL: steps})
        async with Retinue(model=model, cwd=world.project, db=store, settings=settings) as retinue:
            await trusting(retinue)
            run_id = await retinue.start("general", "go")
            while not any(line.startswith(f"call {tool}") for line in world.heard):
                await asyncio.sleep(0.01)
            await retinue.leave()
        made = sum(line.startswith(f"call {tool}") for line in world.heard)
        async with Retinue(
            model=ScriptedModel({GENERAL: steps[1:]}), cwd=world.project, db=store, settings=settings
        ) as retinue:
            await trusting(retinue)
            await retinue.resume(run_id)
            await retinue.wait(run_id)
            events = await retinue.store.events(run_id)
        ended = next(each for each in events if isinstance(each, ToolReturned))
        again = sum(line.startswith(f"call {tool}") for line in world.heard) - made
        assert (ended.not_run == "outcome_unknown") is unknown
        assert again == (0 if unknown else 1)


async def test_what_is_shown_of_a_call_never_says_that_it_is_all_a_server_does(world: World) -> None:
    """A reviewer clears only what it can see whole."""
    world.plain()
    async with world.open() as retinue:
        await trusting(retinue)
        for tool in retinue.services.mcp.tree(retinue.settings.mcp).tools.values():
            if tool.effect != "read":
                assert tool.preview is not None
                shown: Any = tool.preview({"text": "x"}, Files(None, None))
                assert not shown.whole


@pytest.mark.parametrize(("trust", "brings"), [("all", ("what mcp__plain__long returned",)), ("public", ())])
async def test_a_call_brings_private_data_from_its_beginning_unless_its_server_is_public(
    world: World, trust: str, brings: tuple[str, ...]
) -> None:
    """A long answer is a file in the workspace before the log has it."""
    world.plain()
    begun: list[ToolCalled] = []
    (returned,) = await world.ask(
        call("mcp__plain__long", n=40_000),
        trust=trust,
        tell=lambda event: begun.append(event) if isinstance(event, ToolCalled) else None,
    )
    assert returned.files
    assert [event.private for event in begun] == [brings]
    assert returned.private == brings
