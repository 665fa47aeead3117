"""Fork: go on from any event of an old run in another way. Replay: the same events come out again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import test_tree_is_deterministic as mixed
from retinue.app import Retinue
from retinue.engine.answers import Answer
from retinue.engine.compare import difference
from retinue.engine.replay import replay
from retinue.engine.scrub import known_secrets, scrub, scrubber
from retinue.errors import ConfigError, RunError
from retinue.events import (
    AnyEvent,
    ChildEnded,
    ModelReplied,
    RunFinished,
    RunResumed,
    RunStarted,
    ToolReturned,
    decode,
    encode,
)
from retinue.store.base import RunFilter
from retinue.store.memory import MemoryStore
from retinue.story import Story
from retinue.testing import ScriptedModel, call
from retinue.tools.base import tool
from retinue.types import AgentSpec, Report, Source, Usage
from trees import Cast, Stage, agent, results, told, turn


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def play(request: Any) -> Any:
    me = request.system.split("\n")[0].removeprefix("PLAY ")
    if me == "child":
        return (
            [("look", {"what": told(request)[0]})]
            if turn(request) == 0
            else f"child: {results(request)[0].text}"
        )
    if turn(request) == 0:
        return [("child", {"prompt": "a"}), ("look", {"what": "b"})]
    return f"{told(request)[-1]}: " + "; ".join(
        m.text.split("\n")[1 if "<report" in m.text else 0] for m in results(request)
    )


def app(store: MemoryStore, **more: Any) -> Retinue:
    cast = Cast({"root": play, "child": play})
    return Retinue(
        model=cast, db=store, agents=[agent("child", tools=("look",))], tools=[look], environ={}, **more
    )


async def test_a_fork_goes_on_from_the_end_with_another_prompt_and_leaves_the_old_run_alone() -> None:
    store = MemoryStore()
    async with app(store) as retinue:
        report = await retinue.run(agent("root"), "first")
        before = await store.events(report.run_id)
        fork = await retinue.fork(report.run_id, message="and then?")
        again = await retinue.wait(fork)
        assert again.text == "and then?: child: saw a; saw b"
        assert await store.events(report.run_id) == before
        root = next(e for e in await store.events(fork) if isinstance(e, RunStarted))
        assert root.forked_from == report.run_id


async def test_a_fork_at_any_event_goes_on_to_the_same_report_and_pays_only_for_what_is_new() -> None:
    store = MemoryStore()
    async with app(store) as retinue:
        report = await retinue.run(agent("root"), "first")
        events = await store.events(report.run_id)
        for place in range(1, len(events)):
            paid = sum(isinstance(e, ModelReplied) for e in events[:place])
            asked = len(retinue.services.models.given.requests)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            fork = await retinue.fork(report.run_id, at=place)
            again = await retinue.wait(fork)
            assert again.text == report.text
            new = len(retinue.services.models.given.requests) - asked  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            assert new == 4 - paid
            ids = {e.run_id for e in await store.events(fork)}
            assert ids.isdisjoint({e.run_id for e in events})


async def test_what_a_fork_copies_was_paid_for_in_the_old_run_and_nothing_counts_it_again() -> None:
    store = MemoryStore()
    async with app(store) as retinue:
        report = await retinue.run(agent("root"), "first")
        events = await store.events(report.run_id)
        used = report.usage
        assert used.total_tokens > 0
        for place, message in ((len(events), "and then?"), (len(events) - 1, None), (len(events) // 2, None)):
            fork = await retinue.fork(report.run_id, at=place, message=message)
            again = await retinue.wait(fork)
            log = await store.events(fork)
            new = [
                event.usage
                for event in log[len(await _copied(store, fork)) :]
                if isinstance(event, ModelReplied)
            ]
            assert again.usage == sum(new, Usage())
            row = await store.run(fork)
            assert row is not None
            assert (row.tree_tokens, row.tree_cost) == (again.usage.total_tokens, again.usage.cost)
            story = Story()
            for event in log:
                story.apply(event)
            assert story.root is not None
            assert sum((node.own for node in story.root.walk()), Usage()) == again.usage
            used = used + again.usage
        [total] = await retinue.shown.totals("model")
        assert (total.input_tokens, total.output_tokens) == (used.input_tokens, used.output_tokens)


async def _copied(store: MemoryStore, fork: str) -> list[AnyEvent]:
    """What a fork begins with: everything before it was taken up."""
    log = await store.events(fork)
    return log[: next(place for place, event in enumerate(log) if isinstance(event, RunResumed))]


async def test_a_fork_is_the_newest_run_and_shows_its_children_in_their_order() -> None:
    store = MemoryStore()
    async with app(store) as retinue:
        first = await retinue.run(agent("root"), "first")
        second = await retinue.run(agent("root"), "second")
        fork = await retinue.fork(first.run_id, message="and then?")
        await retinue.wait(fork)
        newest = [row.run_id for row in await retinue.runs(RunFilter(roots_only=True))]
        assert newest == [fork, second.run_id, first.run_id]
        rows = [await store.tree(root) for root in (first.run_id, fork)]
        assert [row.task for row in rows[0]] == [row.task for row in rows[1]] == ["first", "a"]


async def test_a_finished_run_cannot_be_forked_at_its_end_without_saying_how_to_go_on() -> None:
    async with app(MemoryStore()) as retinue:
        report = await retinue.run(agent("root"), "first")
        with pytest.raises(ConfigError, match=r"there is no event 9999 .* the last one is \d+"):
            await retinue.fork(report.run_id, at=9999, message="go on")
        with pytest.raises(ConfigError, match="is finished at that point"):
            await retinue.fork(report.run_id)


async def test_a_stored_run_replays_to_the_same_events_without_asking_the_model() -> None:
    store = MemoryStore()
    async with app(store) as retinue:
        report = await retinue.run(agent("root"), "first")
        asked = len(retinue.services.models.given.requests)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        replayed = await retinue.replay(report.run_id)
        assert replayed.diff == ""
        assert replayed.report.text == report.text
        assert len(retinue.services.models.given.requests) == asked  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


async def test_the_mixed_tree_replays_with_its_failures_timeouts_rejections_and_cancels() -> None:
    import random

    stage = mixed.build(random.Random(3))
    logs: list[AnyEvent] = []
    original = mixed.stable
    try:
        mixed.stable = logs.append
        await mixed.execute(3)
    finally:
        mixed.stable = original
    replayed = await replay(logs, replace(stage.config, publish=lambda event: None))
    assert replayed.diff == ""


async def test_an_approved_write_replays_although_its_file_is_there_by_now(tmp_path: Path) -> None:
    model = ScriptedModel([call("write", path="a.txt", content="hello"), "done"])
    yes = Answer(decision="approve")
    async with Retinue(
        model=model, db="memory:", cwd=tmp_path, environ={}, approve=lambda asked: yes
    ) as retinue:
        report = await retinue.run(agent("root", tools=("write",)), "go")
        assert (tmp_path / "a.txt").read_text() == "hello"
        replayed = await retinue.replay(report.run_id)
        assert replayed.diff == ""


async def test_a_fork_to_a_model_that_there_is_not_leaves_nothing_behind() -> None:
    store = MemoryStore()
    async with app(store) as retinue:
        report = await retinue.run(agent("root"), "first")
        with pytest.raises(ConfigError, match="nosuch"):
            await retinue.fork(report.run_id, message="and then?", model="nosuch:x")
        assert [row.run_id for row in await store.runs(RunFilter(roots_only=True))] == [report.run_id]


async def test_what_differs_is_shown_as_a_diff() -> None:
    store = MemoryStore()
    async with app(store) as retinue:
        report = await retinue.run(agent("root"), "first")
        events = await store.events(report.run_id)

    @tool(name="look", effect="read")
    async def changed(what: str) -> str:
        """Look."""
        return f"SAW {what}"

    async with Retinue(
        model=Cast({}),
        db=MemoryStore(),
        agents=[agent("child", tools=("look",))],
        tools=[changed],
        environ={},
    ) as retinue:
        same = await retinue.replay_events(events)
        assert same.same
        real = await retinue.replay_events(events, live_tools=["look"])
    assert not real.same
    assert "call call1 of look: tool returned, text @@" in real.diff
    assert {"-saw b", "+SAW b"} <= {*real.diff.splitlines()}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("export MY_TOKEN=hunter2hunter2", "export MY_TOKEN=[secret]"),
        ("DB_PASSWORD='correct-horse'", "DB_PASSWORD='[secret]'"),
        ('{"command": "API_KEY=\\"abcdef123\\" make"}', '{"command": "API_KEY=\\"[secret]\\" make"}'),
        ("curl -H $MY_TOKEN", "curl -H $MY_TOKEN"),
        ("MY_TOKEN=$(cat token)", "MY_TOKEN=$(cat token)"),
        ("MAX_TOKENS=4000000", "MAX_TOKENS=4000000"),
        ("TOKEN=1234567", "TOKEN=1234567"),
        ("the KEY is under the mat", "the KEY is under the mat"),
        ("MY_PASSWORD=abcdefg&rest", "MY_PASSWORD=[secret]"),
        ("MY_SECRET=ab$rest-of-it", "MY_SECRET=[secret]"),
        ("MY_TOKEN=abcdefg && make", "MY_TOKEN=[secret] && make"),
        ("f(MY_TOKEN=abcdefg)", "f(MY_TOKEN=[secret])"),
        ('MY_TOKEN="$(cat token)"', 'MY_TOKEN="$(cat token)"'),
        ("my_password=lower-case", "my_password=[secret]"),
        ('{"password": "a b, \\"c\\""}', '{"password": "[secret]"}'),
        ('{"text": "{\\"password\\": \\"a b, c\\"}"}', '{"text": "{\\"password\\": \\"[secret]\\"}"}'),
        ("postgres://app:hunter2@db/x", "postgres://app:[secret]@db/x"),
        ('{"a":"http://h","b":"c@d"}', '{"a":"http://h","b":"c@d"}'),
        ("http://h:8080/@bob", "http://h:8080/@bob"),
        ("machine a login b password c", "machine a login b password [secret]"),
        ("the password is under the mat", "the password is under the mat"),
        ("session_token=resultsecret1", "session_token=[secret]"),
        ("secret_key: resultsecret1", "secret_key: [secret]"),
        ('{"token": "resultsecret1"}', '{"token": "[secret]"}'),
        ("token = identifier", "token = identifier"),
    ],
)
def test_a_value_given_to_a_secret_name_is_blanked(text: str, kept: str) -> None:
    assert scrubber()(text) == kept


@pytest.mark.parametrize(
    "secret", ['p"w-quote', "p\\\\w-backslash", "pässw-umlaut", "plain-value", 'pä"ß-both']
)
def test_a_known_value_is_blanked_as_it_is_and_as_it_stands_in_json(secret: str) -> None:
    clean = scrubber([secret])
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert clean(f"x {form} y") == "x [secret] y"
        assert clean(f"MY_PASSWORD={form} y") == "MY_PASSWORD=[secret] y"


def test_of_the_environment_only_what_is_named_a_secret_is_one_and_no_short_word() -> None:
    environ = {
        "MY_TOKEN": "abcdef",
        "db_password": "hunter2",
        "HOME": "/home/someone",
        "API_KEY": "on",
        "N": "1",
    }
    assert known_secrets(environ, ()) == ["abcdef", "hunter2"]


def test_what_a_replay_has_beside_its_record_is_shown_in_its_own_letters() -> None:
    place: dict[str, Any] = {"run_id": "r", "root_id": "r", "parent_id": None, "depth": 0, "seq": 1, "at": 0}
    returned = ToolReturned(**place, call_id="1", name="look", text="found")
    more = msgspec.structs.replace(returned, sources=(Source(path="Öl und Käse.md"),))
    shown = difference([returned], [more])
    assert "Öl und Käse.md" in shown


async def test_what_is_named_a_secret_once_is_blanked_wherever_it_stands_again() -> None:
    def repeats(request: Any) -> Any:
        if turn(request) == 0:
            return [("look", {"what": "abcdef1234567890"})]
        return f"abcdef1234567890 is for the shop, password = request.form, {results(request)[0].text}"

    store = MemoryStore()
    async with Retinue(model=Cast({"root": repeats}), db=store, tools=[look], environ={}) as retinue:
        report = await retinue.run(agent("root"), "what is MY_TOKEN=abcdef1234567890 for?")
        shown = scrub(await store.events(report.run_id))
    text = " ".join(encode(event).decode() for event in shown)
    assert "abcdef1234567890" not in text
    assert "[secret] is for the shop" in text
    assert {event.run_id for event in shown} == {report.run_id}


def test_recording_scrubs_secrets() -> None:
    spec = AgentSpec(name="a", description="", prompt="use sk-abcdefghijklmnop1234")
    began = RunStarted(
        run_id="r",
        root_id="r",
        parent_id=None,
        depth=0,
        seq=1,
        at=0,
        spec=spec,
        prompt='Authorization: Bearer abcdefghijklmnop.qrst and my-own-secret, "quoted"',
    )
    (clean,) = scrub([began], secrets=["my-own-secret"])
    text = encode(clean).decode()
    assert "sk-abc" not in text
    assert "abcdefghijklmnop.qrst" not in text
    assert "my-own-secret" not in text
    assert (
        json.loads(text)["prompt"] == '[secret] and [secret], "quoted"'
        or "[secret]" in json.loads(text)["prompt"]
    )
    assert decode(text) == clean


FIELDS: dict[str, Any] = {
    "password": "datasecret33",
    "deep": [{"api_key": "bodysecret4455", "x-api-key": "headsecret55", "web.api_key": "setsecret66"}],
    "session_token": "resultsecret1",
    "sessionToken": "resultsecret2",
    "token": "resultsecret3",
    "key": "a plain key",
    "tokens": "many words",
    "pin": 1234567,
    "secret": "short",
    "schema": {"properties": {"password": {"type": "string"}}},
}


def test_a_field_is_blanked_by_its_name_in_an_object_as_in_the_text_of_one() -> None:
    report = Report(run_id="r", status="completed", agent="a", text=json.dumps(FIELDS), data=FIELDS)
    ended = RunFinished(run_id="r", root_id="r", parent_id=None, depth=0, seq=1, at=0, report=report)
    (found,) = scrub([ended])
    assert isinstance(found, RunFinished)
    clean = found.report
    assert clean.data == {
        **FIELDS,
        **dict.fromkeys(("password", "session_token", "sessionToken", "token"), "[secret]"),
        "deep": [{"api_key": "[secret]", "x-api-key": "[secret]", "web.api_key": "[secret]"}],
    }
    assert json.loads(clean.text) == clean.data, "a replay compares the two"


async def test_an_unfinished_record_can_still_be_replayed_up_to_its_end() -> None:
    stage = Stage({"root": ["done"]})
    await stage.run()
    events = await stage.log()
    assert isinstance(events[-1], RunFinished)
    replayed = await replay(events, stage.config)
    assert replayed.same


@tool(name="change", effect="write")
async def change(path: str) -> str:
    """Change a file."""
    return f"changed {path}"


async def asked(store: MemoryStore, root_id: str) -> str:
    while not (found := await store.waiting(root_id)):
        await asyncio.sleep(0)
    return found[0].approval_id


def who_asks(depth: int) -> dict[str, Any]:
    ask = [[("change", {"path": "a"})], "done"]
    return {"root": ask} if depth == 0 else {"root": [[("c", {"prompt": "x"})], "done"], "c": ask}


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("resumed", [False, True])
async def test_a_run_that_was_cancelled_at_an_open_question_replays(depth: int, resumed: bool) -> None:
    store = MemoryStore()
    async with (
        asyncio.timeout(60),
        Retinue(
            model=Cast(who_asks(depth)),
            db=store,
            tools=[change],
            agents=[agent("c", tools=("change",))],
            environ={},
            answering="ask",
        ) as retinue,
    ):
        root_id = await retinue.start(agent("root"), "go")
        question = await asked(store, root_id)
        await retinue.cancel(root_id, "enough")
        assert (await retinue.wait(root_id)).status == "cancelled"
        if resumed:
            await retinue.resume(root_id)
            await retinue.answer(question, "approve")
            assert (await retinue.wait(root_id)).text == "done"
        replayed = await retinue.replay(root_id)
    assert replayed.diff == ""
    assert replayed.report.status == "cancelled"


async def test_a_run_that_was_refused_replays_the_same_where_there_is_somebody_to_ask() -> None:
    store = MemoryStore()
    async with Retinue(model=Cast(who_asks(0)), db=store, tools=[change], environ={}) as retinue:
        report = await retinue.run(agent("root"), "go")
    async with (
        asyncio.timeout(60),
        Retinue(model=Cast({}), db=store, tools=[change], environ={}, answering="ask") as retinue,
    ):
        assert (await retinue.replay(report.run_id)).diff == ""


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("before", [True, False])
async def test_a_fork_that_approves_otherwise_than_the_run_it_is_of_replays(before: bool, depth: int) -> None:
    """Begun with all approved and forked without, and the other way round: each call as it was judged then."""
    store = MemoryStore()

    def approving(yes: bool) -> Retinue:
        agents = [agent("c", tools=("change",))]
        return Retinue(
            model=Cast(who_asks(depth)), db=store, tools=[change], agents=agents, environ={}, yes=yes
        )

    async with approving(before) as retinue:
        first = await retinue.run(agent("root"), "go")
    assert first.outcome == ("completed" if before else "refused")
    replied = [e for e in await store.events(first.run_id) if isinstance(e, ModelReplied)][depth]
    async with approving(not before) as retinue:
        fork = await retinue.fork(first.run_id, at=replied.pos)
        again = await retinue.wait(fork)
        assert again.outcome == ("refused" if before else "completed")
        assert (await retinue.replay(fork)).diff == ""


async def test_a_cancel_is_replayed_after_all_that_came_before_it() -> None:
    """One child waits for a person, its sibling works on; then the root is cancelled."""
    store = MemoryStore()
    parts: dict[str, Any] = {
        "root": [[("c", {"prompt": "x"}), ("slow", {"prompt": "y"})], "done"],
        "c": [[("change", {"path": "a"})], "done"],
        "slow": [*([[("look", {"what": str(n)})] for n in range(8)]), "seen"],
    }
    async with (
        asyncio.timeout(60),
        Retinue(
            model=Cast(parts),
            db=store,
            tools=[change, look],
            agents=[agent("c", tools=("change",)), agent("slow", tools=("look",))],
            environ={},
            answering="ask",
        ) as retinue,
    ):
        root_id = await retinue.start(agent("root"), "go")
        await asked(store, root_id)
        while not any(isinstance(e, ChildEnded) for e in await store.events(root_id)):
            await asyncio.sleep(0)
        await retinue.cancel(root_id, "enough")
        await retinue.wait(root_id)
        assert (await retinue.replay(root_id)).diff == ""


async def test_a_run_that_has_not_ended_is_not_replayed() -> None:
    store = MemoryStore()
    async with Retinue(
        model=Cast(who_asks(0)), db=store, tools=[change], environ={}, answering="ask"
    ) as retinue:
        root_id = await retinue.start(agent("root"), "go")
        await asked(store, root_id)
        with pytest.raises(RunError, match="has not ended: resume or cancel it first"):
            await retinue.replay(root_id)


async def test_users_keep_recorded_trees_as_tests_of_their_own_agents(
    tmp_path: Any, replay_tree: Any
) -> None:
    from retinue.testing import record

    async with app(MemoryStore()) as retinue:
        report = await retinue.run(agent("root"), "first")
        path = await record(retinue, report.run_id, tmp_path / "trees" / "first.jsonl")
    replayed = await replay_tree(path, tools=[look])
    assert replayed.same, replayed.diff
    assert replayed.report.text == report.text


class Halting(MemoryStore):
    """A store in which the copy of a workflow is held up: as it is written, or as it is read to go on."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, self.old = where, ""
        self.there, self.go = asyncio.Event(), asyncio.Event()

    async def _halt(self, where: str, root_id: str) -> None:
        if self.old and where == self.where and root_id != self.old:
            self.there.set()
            await self.go.wait()

    def append(self, events: Any) -> asyncio.Future[None]:
        async def held_up() -> None:
            await self._halt("before it is written", events[0].root_id)
            await written(events)
            await self._halt("when it is written", events[0].root_id)

        written = super().append
        return asyncio.ensure_future(held_up()) if self.old else written(events)

    async def events(self, root_id: str, **more: Any) -> list[AnyEvent]:
        await self._halt("as it is taken up", root_id)
        return await super().events(root_id, **more)


@pytest.mark.parametrize("where", ["before it is written", "when it is written", "as it is taken up"])
async def test_a_fork_that_is_cancelled_leaves_no_copy_behind(where: str) -> None:
    store = Halting(where)
    async with app(store) as retinue:
        store.old = (await retinue.run(agent("root"), "one")).run_id
        forking = asyncio.ensure_future(retinue.fork(store.old, message="and?"))
        await store.there.wait()
        forking.cancel()
        asyncio.get_running_loop().call_soon(store.go.set)
        with pytest.raises(asyncio.CancelledError):
            await forking
        assert {row.root_id for row in await store.runs(RunFilter())} == {store.old}


async def test_a_fork_that_cannot_go_on_leaves_no_copy_behind_and_the_old_run_alone() -> None:
    made: list[str] = []

    def deps(about: Any) -> str:
        made.append("once")
        if len(made) > 1:
            raise ConfigError("the orders cannot be reached")
        return "orders"

    store = MemoryStore()
    async with app(store, deps_factory=deps) as retinue:
        old = (await retinue.run(agent("root"), "one")).run_id
        with pytest.raises(ConfigError, match="the orders"):
            await retinue.fork(old, message="and?")
        assert {row.root_id for row in await store.runs(RunFilter())} == {old}
        before = await store.events(old)
        with pytest.raises(RunError):
            await retinue.fork(old, message="and?", new_run_id=old)
        assert await store.events(old) == before


@pytest.mark.parametrize("at", [2, 3, 4])
async def test_a_fork_with_a_message_replays_wherever_in_a_step_it_begins(at: int) -> None:
    talker = AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())
    async with Retinue(
        model=ScriptedModel(["one", "two"]), db="memory:", project=False, environ={}, agents=[talker]
    ) as retinue:
        first = await retinue.run("talker", "go")
        copy = await retinue.fork(first.run_id, at=at, message="hello")
        assert (await retinue.wait(copy)).text == "two"
        assert (await retinue.replay(copy)).diff == ""


async def test_a_replay_asks_the_agents_of_today_with_the_prompts_that_functions_made_then() -> None:
    store, made = MemoryStore(), list[str]()

    def prompt(_: Any) -> str:
        made.append("made")
        return f"It is day {len(made)}."

    def program(said: Any) -> Retinue:
        spec = AgentSpec(name="boss", description="", prompt=said)
        return Retinue(model=ScriptedModel(["done"]), agents=[spec], db=store)

    async with program("One.") as retinue:
        plain = await retinue.run("boss", "go")
        assert (await retinue.replay(plain.run_id)).same
    async with program("Two.") as retinue:
        replayed = await retinue.replay(plain.run_id)
    assert "spec.prompt @@\n-One.\n+Two." in replayed.diff
    async with program(prompt) as retinue:
        of_function = await retinue.run("boss", "go")
        assert (await retinue.replay(of_function.run_id)).same
    assert made == ["made"]
