"""A chain of models: who is asked next, when, and what the log says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, ModelError, Retinue
from retinue.errors import ModelErrorKind
from retinue.events import ModelReplied, RunStarted, StepRetried, StepStarted
from retinue.models.fallback import REST, FallbackModel
from retinue.testing import FakeProvider, ScriptedModel, Step
from retinue.types import ModelRequest, Reply, Retrying, UserMessage

AGENT = AgentSpec(name="answers", description="answers", prompt="You answer.", tools=())
CHAIN = "anthropic:claude-haiku-4-5,openai:gpt-4.1"


def failing(kind: ModelErrorKind, name: str = "first", **more: Any) -> ScriptedModel:
    return ScriptedModel(lambda request: ModelError(f"{kind}!", kind=kind, **more), name=name)


async def events_of(model: FallbackModel) -> list[Any]:
    request = ModelRequest(system="", messages=(UserMessage(text="hi"),))
    return [event async for event in model.stream(request)]


@pytest.mark.parametrize("kind", ["auth", "not_found", "rate_limit", "overloaded", "timeout", "connection"])
async def test_the_next_is_asked_where_one_fails_for_good(kind: ModelErrorKind) -> None:
    events = await events_of(FallbackModel([failing(kind), ScriptedModel(["yes"], name="second")]))
    turned, reply = events[0], events[-1]
    assert isinstance(turned, Retrying)
    assert isinstance(reply, Reply)
    assert (turned.model, turned.begun, turned.text_shown) == ("second", False, False)
    assert (reply.model, reply.message.text) == ("second", "yes")


@pytest.mark.parametrize("kind", ["invalid", "refused", "too_long", "protocol", "too_large"])
async def test_nobody_else_is_asked_what_would_be_refused_again(kind: ModelErrorKind) -> None:
    second = ScriptedModel([], name="second")
    with pytest.raises(ModelError, match=f"{kind}!"):
        await events_of(FallbackModel([failing(kind), second]))
    assert not second.requests


async def test_that_a_reply_had_begun_which_may_be_charged_for_is_said() -> None:
    broken = Step(text="half an ans", error=ModelError("gone", kind="connection"))
    chain = FallbackModel([ScriptedModel([broken], name="first"), ScriptedModel(["whole"], name="second")])
    turned = next(event for event in await events_of(chain) if isinstance(event, Retrying))
    assert (turned.begun, turned.text_shown, turned.model) == (True, True, "second")


async def test_where_all_fail_each_is_named_and_the_first_reset_counts() -> None:
    chain = FallbackModel(
        [
            failing("rate_limit", "first", retry_after=900.0),
            failing("rate_limit", "second", retry_after=300.0),
        ]
    )
    with pytest.raises(ModelError, match="first: rate_limit!; second: rate_limit!") as failed:
        await events_of(chain)
    assert (failed.value.kind, failed.value.retry_after) == ("rate_limit", 300.0)


async def test_one_that_failed_a_moment_ago_is_asked_last_until_it_has_rested() -> None:
    now = 0.0
    first, second = failing("overloaded"), ScriptedModel(lambda request: "yes", name="second")
    chain = FallbackModel([first, second], clock=lambda: now)
    await events_of(chain)
    await events_of(chain)
    assert (len(first.requests), len(second.requests)) == (1, 2)
    now = REST + 1
    await events_of(chain)
    assert (len(first.requests), len(second.requests)) == (2, 3)


async def test_the_log_says_who_answered_over_real_sockets(tmp_path: Path, server: FakeProvider) -> None:
    def answer(seen: Any) -> Any:
        from retinue.testing import Script

        return (
            Script(status=401, message="no such key")
            if seen.wire == "anthropic"
            else Script(text="from openai")
        )

    server.handler = answer
    environ = {**server.environ(), "HOME": str(tmp_path)}
    for given in (CHAIN, CHAIN.split(",")):
        async with Retinue(model=given, db="memory:", cwd=tmp_path, environ=environ) as retinue:
            report = await retinue.run(AGENT, "hello")
            events = await retinue.store.events(report.run_id)
            replayed = await retinue.replay(report.run_id)
        assert (report.text, report.model) == ("from openai", "openai:gpt-4.1")
        asked = [e.model for e in events if isinstance(e, RunStarted | StepStarted)]
        assert asked == [CHAIN, CHAIN]
        turned = next(event for event in events if isinstance(event, StepRetried))
        assert turned.model == "openai:gpt-4.1"
        assert "anthropic:claude-haiku-4-5: " in turned.reason
        assert [e.model for e in events if isinstance(e, ModelReplied)] == ["openai:gpt-4.1"]
        assert replayed.same, replayed.diff


async def test_an_agent_may_be_given_a_model_and_a_chain_with_one(tmp_path: Path) -> None:
    own, spare = ScriptedModel(["mine"]), failing("overloaded", "spare")
    root = ScriptedModel(["the root's"])
    one = AgentSpec(name="one", description="d", prompt="You.", tools=(), model=own)
    two = AgentSpec(name="two", description="d", prompt="You.", tools=(), model=[spare, ScriptedModel(["2"])])
    async with Retinue(model=root, db="memory:", cwd=tmp_path, agents=[one, two]) as retinue:
        assert (await retinue.run("one", "x")).text == "mine", "though the other one has the same name"
        assert (await retinue.run(AGENT, "x")).text == "the root's"
        report = await retinue.run("two", "x")
    assert (report.text, report.model) == ("2", "scripted")


PROGRAM = """
    import asyncio, os, signal, sys
    from retinue import AgentSpec, Retinue, tool
    from retinue.events import ModelReplied

    @tool(effect="read")
    async def look(what: str) -> str:
        '''Look.'''
        return what

    AGENT = AgentSpec(name="answers", description="d", prompt="You answer.", tools=["look"])

    async def main(run_id, chain, db, folder, resume):
        async with Retinue(model=chain, db=db, cwd=folder, tools=[look]) as retinue:
            def die(event):
                if isinstance(event, ModelReplied) and not resume:
                    os.kill(os.getpid(), signal.SIGKILL)
            retinue.hear(die)
            if resume:
                await retinue.resume(run_id, take_over=True)
                report = await retinue.wait(run_id)
            else:
                report = await retinue.run(AGENT, "go", run_id=run_id)
            print(report.text, report.model)

    asyncio.run(main(*sys.argv[1:5], len(sys.argv) > 5))
"""


async def test_a_run_that_was_killed_after_its_chain_fell_over_pays_nothing_twice(
    tmp_path: Path, server: FakeProvider
) -> None:
    import asyncio

    from retinue.testing import Script, call

    def answer(seen: Any) -> Script:
        if seen.wire == "anthropic":
            return Script(status=404, message="no such model")
        return Script(calls=(call("look", what="x"),)) if seen.turn == 0 else Script(text="done")

    server.handler = answer
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    arguments = ("r0chain", CHAIN, f"sqlite://{tmp_path}/log.db", str(tmp_path))
    environ = {**os.environ, **server.environ(), "HOME": str(tmp_path)}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(program), *arguments, *more],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    killed = await asyncio.to_thread(run)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert server.served == 1
    ended = await asyncio.to_thread(run, "resume")
    assert ended.stdout.split() == ["done", "openai:gpt-4.1"], ended.stderr
    assert server.served == 2, "the first reply was paid for once, and both turns by the second model"
