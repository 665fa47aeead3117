"""A model that is not to be had any more, since its key is gone: what rests on it waits, all else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from retinue.app import Retinue
from retinue.errors import NoKey
from retinue.events import ChildEnded, ChildStarted, StepStarted
from retinue.store.memory import MemoryStore
from retinue.testing import FakeProvider, Script
from retinue.types import AgentSpec
from trees import Cast, agent, told, turn

MODEL = "anthropic:claude-haiku-4-5"
KEYED = agent("keyed", model=MODEL)
GONE = "no key for anthropic (set ANTHROPIC_API_KEY in the environment, or 'retinue keys set anthropic')"


def app(store: MemoryStore, root: Any, environ: dict[str, str] | None = None) -> Retinue:
    return Retinue(
        model=Cast({"root": root}),
        db=store,
        agents=[KEYED],
        environ=environ or {},
        settings={"delegation.tools": ["agents", "background"], "delegation.parent_ends": "wait"},
    )


async def until(found: Callable[[Any], bool], store: MemoryStore, root_id: str) -> Any:
    async with asyncio.timeout(60):
        while not (events := [e for e in await store.events(root_id) if found(e)]):
            await asyncio.sleep(0.001)
    return events[0]


async def test_what_has_no_model_any_more_is_not_taken_up_and_nothing_is_written() -> None:
    """Neither with a word to the root that had it, nor with one to a child."""
    store = MemoryStore()
    async with (
        FakeProvider(lambda request: Script(text="found")) as provider,
        app(store, [[("keyed", {"prompt": "x"})], "done"], provider.environ()) as retinue,
    ):
        alone = (await retinue.run(KEYED, "go")).run_id
        whole = (await retinue.run(agent("root"), "go")).run_id
    child = (await until(lambda e: isinstance(e, ChildStarted), store, whole)).child_id
    before = [await store.events(alone), await store.events(whole)]
    async with app(store, lambda r: "again") as retinue:
        for run_id in (alone, child):
            with pytest.raises(NoKey, match="ANTHROPIC_API_KEY"):
                await retinue.resume(run_id, message="more")
        assert [await store.events(alone), await store.events(whole)] == before
        await retinue.resume(whole, message="more")
        assert (await retinue.wait(whole)).text == "again"


async def test_a_parent_is_told_that_its_child_cannot_be_asked_again_without_its_model() -> None:
    store, asked, go = MemoryStore(), asyncio.Event(), asyncio.Event()

    async def root(request: Any) -> Any:
        asked.set()
        await go.wait()
        return told(request)[-1]

    async with (
        FakeProvider(lambda request: Script(text="found")) as provider,
        app(store, [[("keyed", {"prompt": "x"})], "done"], provider.environ()) as retinue,
    ):
        root_id = (await retinue.run(agent("root"), "go")).run_id
    child = (await until(lambda e: isinstance(e, ChildStarted), store, root_id)).child_id
    async with app(store, root) as retinue:
        await retinue.resume(root_id, message="more")
        await asked.wait()
        assert await retinue.message(child, "and why?")
        go.set()
        report = await retinue.wait(root_id)
        assert report.text == f"[{child} could not be asked again: {GONE}]"
        await retinue.resume(root_id, message="never mind")
        assert (await retinue.wait(root_id)).text == "never mind"


async def test_a_tree_goes_on_without_a_background_child_whose_model_is_gone() -> None:
    store, waiting = MemoryStore(), asyncio.Event()
    start = ("background", {"operation": "start", "agent_id": "keyed", "prompt": "dig"})
    spec: AgentSpec = agent("root")
    async with FakeProvider(lambda request: Script(text="found", gate=waiting)) as provider:
        async with app(store, lambda r: [start] if turn(r) == 0 else "done", provider.environ()) as retinue:
            root_id = await retinue.start(spec, "go")
            await until(lambda e: isinstance(e, StepStarted) and e.depth == 1, store, root_id)
            await retinue.leave()
        waiting.set()
    async with app(store, lambda r: told(r)[-1]) as retinue:
        await retinue.resume(root_id)
        report = await retinue.wait(root_id)
    (ended,) = [e for e in await store.events(root_id) if isinstance(e, ChildEnded)]
    assert ended.status == "cancelled"
    assert f"it could not be taken up again: {GONE}" in report.text
    async with (
        FakeProvider(lambda request: Script(text="found at last")) as provider,
        app(store, lambda r: told(r)[-1], provider.environ()) as retinue,
    ):
        await retinue.resume(root_id, message="once more")
        assert "found at last" in (await retinue.wait(root_id)).text
