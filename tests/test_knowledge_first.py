"""Knowledge first: how long it may take, when it is on, what the main agent may cite of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from counting import assert_linear
from retinue.app import Retinue
from retinue.events import AccessDenied, ChildStarted, MessageReceived, RunStarted
from retinue.models.offline.facts import subject_of
from retinue.settings import LoadedSettings, load
from retinue.store.memory import MemoryStore
from retinue.story import Story
from retinue.tools.base import ToolResult, tool
from retinue.types import Report, Shortfall, Source
from trees import Cast, agent, told, turn

QUESTION = "What is the latest population of Paris?"
ON = {"default_agent": "main", "knowledge.first": True, "knowledge.agent": "know"}
PAGE = "https://wiki.example/Paris"


@tool(effect="network")
async def page(title: str) -> ToolResult:
    """Read a page.

    Args:
        title: which
    """
    return ToolResult(text="Paris has 2.1 million people.", sources=(Source(url=PAGE, title=title),))


def app(cast: Cast, store: MemoryStore, settings: dict[str, Any]) -> Retinue:
    agents = [agent("main", shown=()), agent("know", tools=("page",), timeout=90.0)]
    return Retinue(model=cast, db=store, agents=agents, tools=[page], environ={}, settings=settings, yes=True)


async def test_the_agent_that_runs_first_has_the_time_of_the_setting_and_not_of_its_file() -> None:
    never = asyncio.Event()

    async def know(_: Any) -> str:
        await never.wait()
        return "too late"

    cast = Cast({"main": ["answer"], "know": know})
    async with app(cast, MemoryStore(), {**ON, "knowledge.timeout": 0.2}) as retinue:
        report = await retinue.ask(QUESTION)
        events = await retinue.store.events(report.run_id)
    assert report.text == "answer"
    assert told(cast.of("main")[0]) == [QUESTION], "the main run goes on without it"
    child = next(e for e in events if isinstance(e, RunStarted) and e.depth == 1)
    assert child.spec.timeout == 0.2


@pytest.mark.parametrize("how", ["error", "nothing read", "refused", "only listed"])
async def test_a_lookup_that_failed_is_said_and_takes_nothing_from_the_answer(how: str) -> None:
    """Nobody asked for it: the answer has all its parts without it, and whoever reads it knows."""

    def know(request: Any) -> Any:
        if how == "error":
            return ValueError("the model broke")
        if how == "refused" and turn(request) == 0:
            return [("shell", {"what": "curl"})]
        if how == "only listed" and turn(request) == 0:
            return [("hits", {"query": "Paris"})]
        return "I read nothing, but Paris is large."

    @tool(effect="network")
    async def hits(query: str) -> ToolResult:
        """Search."""
        return ToolResult(text=query, sources=(Source(url=PAGE, listed=True),))

    @tool(effect="execute")
    async def shell(what: str) -> str:
        """Run something."""
        return what

    must = agent("know", tools=("page", "shell", "hits"), must_read=True)
    agents, settings = [agent("main", shown=()), must], dict(ON)
    cast, store = Cast({"main": ["answer", "second"], "know": know}), MemoryStore()
    async with Retinue(
        model=cast, db=store, agents=agents, tools=[page, shell, hits], environ={}, settings=settings
    ) as retinue:
        report = await retinue.ask(QUESTION)
        story = Story()
        for event in await retinue.store.events(report.run_id):
            story.apply(event)
        child = next(run for run in story.nodes if run != report.run_id)
        assert (report.outcome, report.shortfall) == ("completed", Shortfall())
        assert story.root is not None
        assert (story.root.outcome, story.root.shortfall) == ("completed", Shortfall())
        assert told(cast.of("main")[0]) == [QUESTION], "what failed is no knowledge"
        assert report.problems == (
            f"external knowledge: know found nothing that can be used, so this is answered without it (run {child})",
        )
        again = await retinue.ask(QUESTION)
        assert told(cast.of("main")[1]) == [QUESTION], "nor is it kept"
        await retinue.resume(again.run_id, message="and now?")
        assert (await retinue.wait(again.run_id)).problems == (), "it was said with the answer it was for"


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_nothing_is_looked_up_first_by_an_agent_that_a_rule_denies_or_asks_about(action: str) -> None:
    cast = Cast({"main": ["answer"], "know": ["never asked"]})
    async with app(cast, MemoryStore(), {**ON, f"approvals.{action}": ["know"]}) as retinue:
        report = await retinue.ask(QUESTION)
        events = await retinue.store.events(report.run_id)
    assert report.text == "answer"
    assert not [e for e in events if isinstance(e, ChildStarted)]
    assert [e.detail for e in events if isinstance(e, AccessDenied)] == ["the rule 'know'"]


async def test_a_run_goes_on_without_an_agent_whose_model_has_no_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agents = [agent("main", shown=()), agent("know", model="anthropic:claude-haiku-4-5")]
    async with Retinue(
        model=Cast({"main": ["answer"]}), db=MemoryStore(), agents=agents, environ={}, settings=ON
    ) as retinue:
        report = await retinue.ask(QUESTION)
    assert (report.outcome, report.text) == ("completed", "answer")
    assert "know could not look this up first: no key for anthropic" in caplog.text


@pytest.mark.parametrize("first", [True, False])
async def test_one_run_may_switch_it_on_or_off_for_itself(first: bool) -> None:
    cast = Cast({"main": ["answer"], "know": ["Paris has 2.1 million people."]})
    async with app(cast, MemoryStore(), {**ON, "knowledge.first": not first}) as retinue:
        run_id = await retinue.start("main", QUESTION, settings={"knowledge.first": first})
        await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    assert any(isinstance(e, ChildStarted) for e in events) == first


async def test_what_was_looked_up_first_may_be_cited_even_when_it_was_kept() -> None:
    def know(request: Any) -> Any:
        return [("page", {"title": "Paris"})] if turn(request) == 0 else f"2.1 million. Source: {PAGE}"

    cast = Cast({"main": [f"2.1 million ({PAGE}), not https://made.example/up"], "know": know})
    store = MemoryStore()
    reports: list[Report] = []
    for _ in range(2):
        async with app(cast, store, dict(ON)) as retinue:
            reports.append(await retinue.ask(QUESTION))
        assert [source.url for source in reports[-1].sources if source.verified] == [PAGE]
        assert ["made.example" in problem for problem in reports[-1].problems] == [True]
    assert len(cast.of("know")) == 2, "two steps, once: the second question was answered from what was kept"
    events = await store.events(reports[-1].run_id)
    assert next(e for e in events if isinstance(e, MessageReceived)).sources[0].url == PAGE


@pytest.mark.parametrize("what", ["agent", "settings", "nothing"])
async def test_an_answer_is_kept_for_the_very_agent_and_the_very_sources_that_gave_it(what: str) -> None:
    """Two projects may share a store, and each may have an agent of this name."""
    cast = Cast({"main": ["answer"], "know": lambda _: "It is so."})
    store, settings = MemoryStore(), dict(ON)
    async with app(cast, store, settings) as retinue:
        await retinue.ask(QUESTION)
    know = agent("know", tools=("page",), timeout=90.0 if what != "agent" else 80.0)
    agents = [agent("main", shown=()), know]
    if what == "settings":
        settings["knowledge.base_urls"] = {"wikipedia": "http://127.0.0.1:9"}
    async with Retinue(
        model=cast, db=store, agents=agents, tools=[page], environ={}, settings=settings, yes=True
    ) as other:
        await other.ask(QUESTION)
    assert len(cast.of("know")) == (1 if what == "nothing" else 2)


async def test_a_run_is_replayed_from_its_record_whether_knowledge_was_looked_up_or_kept() -> None:
    cast = Cast({"main": ["answer"], "know": ["Paris has 2.1 million people."]})
    async with app(cast, MemoryStore(), dict(ON)) as retinue:
        for _ in range(2):
            report = await retinue.ask(QUESTION)
            assert (await retinue.replay(report.run_id)).diff == ""


async def test_a_time_given_for_one_run_beats_the_agents_own() -> None:
    async with app(Cast({"know": ["x"]}), MemoryStore(), {}) as retinue:
        seconds = {}
        for told_so in ({}, {"limits.timeout": 300}):
            run_id = await retinue.start("know", "hello", settings=told_so)
            live = retinue._workflows.live(run_id, run_id)
            assert live is not None
            seconds[len(told_so)] = live.run.clock.seconds
            await retinue.wait(run_id)
    assert seconds == {0: 90.0, 1: 300.0}


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("Who was Alan Turing?", "Alan Turing"),
        ("Who is Ada Lovelace?", "Ada Lovelace"),
        ("What is a Turing machine?", "Turing machine"),
        ("What is the Amazon?", "Amazon"),
        ("Who wrote Ontology of One?", "Ontology of One"),
        ("tell me about Oxygen", "Oxygen"),
    ],
)
def test_a_name_that_begins_like_an_article_is_not_cut(question: str, subject: str) -> None:
    assert subject_of(question) == subject


def test_the_work_of_finding_a_subject_grows_no_faster_than_the_question() -> None:
    assert_linear(lambda size: subject_of("tell A" + " " * size + "b"), 16_000)


def test_the_two_times_are_two_settings() -> None:
    loaded: LoadedSettings = load(
        environ={"RETINUE_KNOWLEDGE_TIMEOUT": "7", "RETINUE_KNOWLEDGE_REQUEST_TIMEOUT": "3"}
    )
    assert (loaded.settings.knowledge.timeout, loaded.settings.knowledge.request_timeout) == (7, 3)


@tool
async def order(number: str) -> str:
    """Read an order of this customer.

    Args:
        number: which
    """
    return "a private order"


async def test_what_rests_on_private_data_is_not_kept_for_other_runs() -> None:
    def know(request: Any) -> Any:
        return [("order", {"number": "7"})] if turn(request) == 0 else "It is a private order."

    cast, store = Cast({"main": ["answer"], "know": know}), MemoryStore()
    agents = [agent("main", shown=()), agent("know", tools=("order",), timeout=90.0)]
    for _ in range(2):
        async with Retinue(
            model=cast, db=store, agents=agents, tools=[order], environ={}, settings=dict(ON), yes=True
        ) as retinue:
            report = await retinue.ask(QUESTION)
            began = [e for e in await store.events(report.run_id) if isinstance(e, RunStarted)]
            assert [e.spec.name for e in began] == ["main", "know"], "it is looked up each time"
