"""Guards and observers of a program: what comes in and goes out, stopped or mended, and nothing leaked."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, ConfigError, Correct, Guarded, Mend, Retinue, Stop, guards, threads
from retinue.events import GuardSpoke, LiveEvent, RunFinished, Streamed, encode
from retinue.guards import InputGuard, OutputGuard
from retinue.observers import MOST_WAITING
from retinue.testing import ScriptedModel, call

TALKER = AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())
SECRET = "4111-1111"


async def no_cards(given: Guarded[Any]) -> Mend | None:
    clean = given.text.replace(SECRET, "[card]")
    return Mend(clean, why="a card number", hide=True) if clean != given.text else None


def no_swearing(given: Guarded[Any]) -> Stop | None:
    return Stop("it swears") if "damn" in given.text else None


def here(tmp_path: Path, model: Any, **more: Any) -> Retinue[None]:
    return Retinue(
        model=model,
        db=f"sqlite:///{tmp_path}/guards.db",
        cwd=tmp_path,
        **{"agents": [TALKER], **more},
    )


async def spoken(retinue: Retinue[None], root_id: str) -> list[tuple[str, str, str]]:
    events = await retinue.store.events(root_id)
    return [(e.side, e.guard, e.decision) for e in events if isinstance(e, GuardSpoke)]


async def whole_log(retinue: Retinue[None], root_id: str) -> str:
    return b"".join(encode(event) for event in await retinue.store.events(root_id)).decode()


@pytest.mark.parametrize("where", ["instance", "agent"])
async def test_a_prompt_is_stopped_and_no_model_is_asked(tmp_path: Path, where: str) -> None:
    agent = AgentSpec(name="a", description="a", prompt="You talk.", tools=(), input_guards=[no_swearing])
    more: Any = {"input_guards": [no_swearing]} if where == "instance" else {"agents": [agent]}
    model = ScriptedModel([])
    async with here(tmp_path, model, **more) as retinue:
        report = await retinue.run("talker" if where == "instance" else "a", "damn it")
        assert (report.status, report.outcome, report.ended_by) == ("error", "error", "guard")
        assert report.error == "stopped by the guard no_swearing: it swears"
        assert await spoken(retinue, report.run_id) == [("input", "no_swearing", "stop")]
        (row,) = await retinue.runs()
        assert row.outcome == "error"
        replayed = await retinue.replay(report.run_id)
        assert not replayed.diff
    assert model.requests == []


async def test_what_a_guard_hides_is_in_no_log_and_what_it_only_mends_is(tmp_path: Path) -> None:
    def politely(given: Guarded[Any]) -> Mend | None:
        return Mend(given.text.replace("now", "please")) if "now" in given.text else None

    model = ScriptedModel(["Done.", "Done too."])
    async with here(tmp_path, model, input_guards=[no_cards, politely]) as retinue:
        hidden = await retinue.run("talker", f"Pay with {SECRET} now")
        assert SECRET not in await whole_log(retinue, hidden.run_id)
        shown = await retinue.run("talker", "Answer now")
        assert '"removed":"Answer now"' in await whole_log(retinue, shown.run_id)
        for report in (hidden, shown):
            assert not (await retinue.replay(report.run_id)).diff
    assert [request.messages[0].text for request in model.requests] == [
        "Pay with [card] please",
        "Answer please",
    ]


async def test_an_answer_is_mended_before_anybody_sees_it(tmp_path: Path) -> None:
    model = ScriptedModel([f"The card is {SECRET}."])
    async with here(tmp_path, model, output_guards=[no_cards]) as retinue:
        events = [event async for event in retinue.stream("talker", "Which card?")]
        assert not [event for event in events if isinstance(event, Streamed)]
        last = events[-1]
        assert isinstance(last, RunFinished)
        assert (last.report.text, last.report.outcome) == ("The card is [card].", "completed")
        assert SECRET not in await whole_log(retinue, last.run_id)
        assert not (await retinue.replay(last.run_id)).diff


async def test_an_answer_is_stopped_and_its_report_has_no_text(tmp_path: Path) -> None:
    async with here(tmp_path, ScriptedModel(["damn"]), output_guards=[no_swearing]) as retinue:
        report = await retinue.run("talker", "Say it.")
        assert (report.text, report.ended_by, report.outcome) == ("", "guard", "error")
        assert not (await retinue.replay(report.run_id)).diff


@pytest.mark.parametrize(("answers", "outcome"), [(["no", "yes"], "completed"), (["no"] * 5, "incomplete")])
async def test_an_answer_is_sent_back_so_often_and_no_more(
    tmp_path: Path, answers: list[str], outcome: str
) -> None:
    def must_agree(given: Guarded[Any]) -> Correct | None:
        return None if given.text == "yes" else Correct("say yes")

    model = ScriptedModel(answers)
    async with here(tmp_path, model, output_guards=[must_agree]) as retinue:
        report = await retinue.run("talker", "Do you agree?")
        assert report.outcome == outcome
        assert report.text == ("yes" if outcome == "completed" else "")
        assert not (await retinue.replay(report.run_id)).diff
    assert "say yes" in model.requests[1].messages[-1].text
    assert len(model.requests) == (2 if outcome == "completed" else 3)


async def test_a_child_is_guarded_by_its_own_and_by_those_of_the_program(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int]] = []

    def note(given: Guarded[Any]) -> None:
        seen.append((given.agent, given.side, given.depth))

    child = AgentSpec(
        name="child", description="helps", prompt="You help.", tools=(), input_guards=[no_swearing]
    )
    boss = AgentSpec(name="boss", description="leads", prompt="You lead.", tools=[child])
    model = ScriptedModel(
        {"You lead": [call("child", prompt="damn it"), "No luck."], "You help": ["never asked"]}
    )
    async with here(tmp_path, model, agents=[boss], input_guards=[note], output_guards=[note]) as retinue:
        report = await retinue.run("boss", "go")
        assert (report.text, report.outcome) == ("No luck.", "incomplete")
        assert ("input", "no_swearing", "stop") in await spoken(retinue, report.run_id)
        assert not (await retinue.replay(report.run_id)).diff
    assert seen == [("boss", "input", 0), ("child", "input", 1), ("boss", "output", 0)]


async def raises(given: Guarded[Any]) -> None:
    raise ValueError("broken")


def yes(given: Guarded[Any]) -> Any:
    return True


def corrects(given: Guarded[Any]) -> Any:
    return Correct("no such thing for what comes in")


@pytest.mark.parametrize("guard", [raises, yes, corrects])
async def test_a_guard_that_fails_lets_nothing_pass(tmp_path: Path, guard: Any) -> None:
    async with here(tmp_path, ScriptedModel([]), input_guards=[guard]) as retinue:
        report = await retinue.run("talker", "Hello")
        assert (report.ended_by, report.text) == ("guard", "")


async def test_a_conversation_goes_on_after_a_turn_that_was_stopped(tmp_path: Path) -> None:
    model = ScriptedModel(["Hello.", "Better."])
    async with here(tmp_path, model, input_guards=[no_swearing, no_cards]) as retinue:
        chat = retinue.conversation("talker")
        await chat.send("Hi.")
        assert (await chat.send("damn")).ended_by == "guard"
        assert (await chat.send(f"Sorry. {SECRET}")).text == "Better."
        assert SECRET not in await whole_log(retinue, chat.run_id)
        texts = [message.text for message in await chat.messages()]
    assert "damn" not in "".join(texts)
    assert texts[-2] == "Sorry. [card]"


async def test_what_is_said_to_a_run_at_work_is_guarded_too(tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        """Take a while."""
        asked.set()
        await go_on.wait()
        return "done"

    waiter = AgentSpec(name="waiter", description="waits", prompt="You wait.", tools=[slow])
    model = ScriptedModel([call("slow"), "Paid."])
    async with here(tmp_path, model, agents=[waiter], input_guards=[no_cards]) as retinue:
        run_id = await retinue.start("waiter", "go")
        await asked.wait()
        assert await retinue.message(run_id, f"Use {SECRET}")
        go_on.set()
        assert (await retinue.wait(run_id)).text == "Paid."
    assert model.requests[1].messages[-1].text == "Use [card]"


async def test_a_guard_that_let_a_prompt_pass_is_not_asked_again_after_a_restart(tmp_path: Path) -> None:
    looked: list[str] = []

    def watch(given: Guarded[Any]) -> None:
        looked.append(given.text)

    async def hang(request: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    started = asyncio.Event()
    async with here(tmp_path, ScriptedModel(hang), input_guards=[watch]) as retinue:
        run_id = await retinue.start("talker", "Hello")
        await started.wait()
        await retinue.leave()
    async with here(tmp_path, ScriptedModel(["Hi."]), input_guards=[watch]) as retinue:
        assert await retinue.resume_abandoned() == [run_id]
        assert (await retinue.wait(run_id)).text == "Hi."
    assert looked == ["Hello"]
    async with here(tmp_path, ScriptedModel(["Hi."])) as retinue:
        with pytest.raises(ConfigError, match="under the guard 'watch'"):
            await retinue.resume(run_id, message="And now without?")


async def test_observers_hear_everything_and_disturb_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    blocked = threading.Event()

    async def listens(event: LiveEvent) -> None:
        heard.append(type(event).__name__)

    async def fails(event: LiveEvent) -> None:
        raise ValueError("an observer's own trouble")

    def blocks(event: LiveEvent) -> None:
        blocked.wait(30)

    async with here(tmp_path, ScriptedModel(["Hi."]), observers=[listens, fails, blocks]) as retinue:
        assert (await retinue.run("talker", "Hello")).text == "Hi."
        blocked.set()
    assert heard[0] == "RunStarted"
    assert heard[-1] == "RunFinished"
    assert "the observer fails failed on RunStarted" in caplog.text


async def test_an_observer_that_is_too_slow_is_not_waited_for(tmp_path: Path) -> None:
    from retinue.engine.listeners import Listeners
    from retinue.observers import Observers

    go_on = asyncio.Event()

    async def slow(event: LiveEvent) -> None:
        await go_on.wait()

    listeners, observers = Listeners(), Observers([slow])
    observers.open(listeners)
    for _ in range(MOST_WAITING + 10):
        listeners.publish(Streamed(run_id="r", root_id="r", depth=0, step=1, text="x"))
    (told,) = observers._told
    assert (told.queue.qsize(), told.dropped) == (MOST_WAITING, 10)
    go_on.set()
    await observers.close()


def test_what_is_no_function_is_said_at_once(tmp_path: Path) -> None:
    for name in ("input_guards", "output_guards", "observers"):
        for wrong in ("text", [7]):
            with pytest.raises(TypeError, match=name):
                here(tmp_path, ScriptedModel([]), **{name: wrong})
    with pytest.raises(TypeError, match="input_guards"):
        AgentSpec(name="a", description="", prompt="", input_guards=[7])  # pyright: ignore[reportArgumentType]


def test_guards_are_typed(tmp_path: Path) -> None:
    guard: InputGuard[Any] = no_cards
    also: OutputGuard[Any] = no_cards
    assert guard is also


async def stubborn(given: Guarded[Any]) -> Stop | None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.mark.parametrize("side", ["input", "output"])
async def test_a_guard_that_takes_a_cancellation_for_nothing_holds_nobody_up(
    tmp_path: Path, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "SECONDS", 0.05)
    monkeypatch.setattr(threads, "GRACE", 0.05)
    model = ScriptedModel(["Done."] if side == "output" else [])
    more: Any = {f"{side}_guards": [stubborn]}
    async with here(tmp_path, model, **more) as retinue:
        report = await retinue.run("talker", "Go on.")
    assert (report.outcome, report.ended_by) == ("error", "guard")


async def leave_async(given: Guarded[Any]) -> None:
    raise SystemExit(3)


def leave(given: Guarded[Any]) -> None:
    raise SystemExit(3)


async def cancel_itself(given: Guarded[Any]) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("guard", [leave, leave_async, cancel_itself])
@pytest.mark.parametrize("side", ["input", "output"])
async def test_a_guard_that_would_end_the_program_stops_its_run_alone(
    tmp_path: Path, side: str, guard: Any
) -> None:
    model = ScriptedModel(["Done."] if side == "output" else [])
    more: Any = {f"{side}_guards": [guard]}
    async with here(tmp_path, model, **more) as retinue:
        report = await retinue.run("talker", "Go on.")
    assert (report.outcome, report.ended_by) == ("error", "guard")
    assert "it failed" in (report.error or "")
