"""Runs over HTTP: started, followed, read, steered, taken up again, compared, deleted."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from api import serving

from retinue.app import Retinue
from retinue.engine.parking_clock import ParkingClock
from retinue.errors import Gone, ModelError
from retinue.events import now
from retinue.run_options import RunInfo
from retinue.testing import ScriptedModel, Step, call
from retinue.tools.base import tool
from retinue.types import AgentSpec, ModelRequest, UserMessage


def leaf(name: str = "leaf", **fields: Any) -> AgentSpec:
    return AgentSpec(
        name=name, description=f"does the work of a {name}", prompt=f"You are a {name}.", **fields
    )


@tool(effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


def by_turn(request: ModelRequest) -> Any:
    """The root delegates twice and answers; a leaf looks and answers. Whoever asks in whatever order."""
    turn = len([m for m in request.messages if not isinstance(m, UserMessage)])
    if "You are a leaf" in request.system:
        return call("look", what="x") if turn == 0 else "leaf said"
    return [call("leaf", prompt="one"), call("leaf", prompt="two")] if turn == 0 else "both **done**"


async def test_a_question_is_started_followed_to_its_end_and_its_report_read(folder: Path) -> None:
    async with serving(ScriptedModel([Step(text="the answer is **42**", pieces=4)]), folder) as api:
        answer = await api("POST", "runs", {"prompt": "what is it?", "label": "deep"})
        run_id = answer.body["run_id"]
        assert answer.status == 201
        assert answer.headers["Location"] == f"/api/v1/runs/{run_id}"
        events = await api.ended(run_id)
        assert [event["type"] for event in events] == [
            "run_started",
            "step_started",
            "model_replied",
            "run_finished",
        ]
        report = await api.get(f"runs/{run_id}/report")
        assert report["text"] == "the answer is **42**"
        assert report["html"] == "<p>the answer is <strong>42</strong></p>\n"
        assert report["label"] == "deep"
        assert report["usage"]["total_tokens"] == 15


async def test_a_run_stands_below_the_span_that_the_request_names(folder: Path) -> None:
    above = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with serving(ScriptedModel(["done"]), folder) as api:
        answer = await api("POST", "runs", {"prompt": "go"}, headers={"traceparent": above})
        events = await api.ended(answer.body["run_id"])
        assert events[0]["options"]["traceparent"] == above


async def test_a_run_is_started_with_an_effort_and_its_report_says_so(folder: Path) -> None:
    model = ScriptedModel(["done", "done"])
    async with serving(model, folder) as api:
        run_id = (await api("POST", "runs", {"prompt": "what is it?", "effort": "low"})).body["run_id"]
        await api.ended(run_id)
        assert (await api.get(f"runs/{run_id}/report"))["effort"] == "low"
        assert model.requests[0].effort == "low"
        refused = await api("POST", "runs", {"prompt": "what is it?", "effort": "hardest"})
        assert refused.status == 422


async def test_a_run_takes_how_its_model_is_asked_its_limits_and_what_it_is_told_of(folder: Path) -> None:
    model = ScriptedModel(["A test."])
    async with serving(model, folder) as api:
        given = {
            "prompt": "what is it?",
            "model_settings": {"temperature": 0.5, "stop": ["END"], "max_tokens": 99, "tool_choice": "none"},
            "limits": {"turns": 3, "cost": 0.5},
            "metadata": {"tenant": "a", "vip": True},
            "instructions": "Answer in one word.",
        }
        run_id = (await api("POST", "runs", given)).body["run_id"]
        began = (await api.ended(run_id))[0]
        (asked,) = model.requests
        assert (asked.temperature, asked.settings.stop, asked.max_tokens) == (0.5, ("END",), 99)
        assert "Answer in one word." in asked.system
        assert (await api.get("runs"))["runs"][0]["metadata"] == {"tenant": "a", "vip": "true"}
        assert began["spec"]["limits"]["turns"] == 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model_settings": {"temprature": 1}}, "temperature"),
        ({"model_settings": {"temperature": 7}}, "temperature"),
        ({"model_settings": {"max_tokens": 1.5}}, "max_tokens"),
        ({"model_settings": {"extra_body": {"messages": []}}}, "extra_body"),
        ({"limits": {"turn": 3}}, "turns"),
        ({"limits": {"turns": -1}}, "turns"),
        ({"metadata": {"a b": "c"}}, "metadata"),
    ],
)
async def test_options_of_a_run_that_there_are_not_are_refused(
    folder: Path, given: dict[str, Any], says: str
) -> None:
    async with serving(ScriptedModel(["A test."]), folder) as api:
        answer = await api("POST", "runs", {"prompt": "what is it?", **given})
        assert answer.status == 422
        assert says in str(answer.body)
        assert (await api.get("runs"))["runs"] == []


async def test_only_an_admin_says_what_else_a_provider_is_sent(folder: Path) -> None:
    async with serving(ScriptedModel(["A test."]), folder, with_tokens=True) as nobody:
        for name, value in (
            ("extra_headers", {"x-team": "${SECRET}"}),
            ("extra_body", {"a": 1}),
            ("service_tier", "priority"),
        ):
            given = {"prompt": "what is it?", "model_settings": {name: value}}
            assert (await nobody.as_role("ask")("POST", "runs", given)).status == 403
            assert (await nobody.as_role("admin")("POST", "runs", given)).status != 403


@pytest.mark.parametrize("role", ["ask", "approve"])
async def test_no_token_below_admin_says_whose_a_run_is(folder: Path, role: str) -> None:
    def owner(run: RunInfo) -> str:
        return run.metadata.get("tenant", "nobody")

    model = ScriptedModel(["A test."] * 2)
    async with serving(model, folder, with_tokens=True, deps_factory=owner) as nobody:
        given = {"prompt": "what is it?", "metadata": {"tenant": "somebody-else"}}
        refused = await nobody.as_role(role)("POST", "runs", given)
        assert (refused.status, refused.body["error"]["code"]) == (403, "forbidden")
        assert "leave 'metadata' out" in refused.body["error"]["fix"]
        assert (await nobody.as_role("watch").get("runs"))["runs"] == []
        assert (await nobody.as_role(role)("POST", "runs", {**given, "metadata": {}})).status == 201
        assert (await nobody.as_role("admin")("POST", "runs", given)).status == 201


async def test_the_conversations_of_a_run_and_of_all_below_it_are_given_whole(folder: Path) -> None:
    async with serving(ScriptedModel(by_turn), folder, agents=[leaf()], tools=[look], yes=True) as api:
        run_id = (await api("POST", "runs", {"prompt": "go"})).body["run_id"]
        await api.ended(run_id)
        root, one, two = (await api.get(f"runs/{run_id}/messages"))["runs"]
        assert [m["type"] for m in root["messages"]] == ["user", "assistant", "tool", "tool", "assistant"]
        assert {one["parent_id"], two["parent_id"]} == {run_id}
        assert [m["text"] for m in one["messages"]] == [one["messages"][0]["text"], "", "saw x", "leaf said"]
        below = (await api.get(f"runs/{one['run_id']}/messages"))["runs"]
        assert [each["run_id"] for each in below] == [one["run_id"]]


async def test_a_run_that_waits_for_its_provider_says_until_when_and_goes_on_by_itself(folder: Path) -> None:
    limit = ModelError("openai answered 429: slow down", kind="rate_limit", retry_after=90)
    asleep, time_passes = asyncio.Event(), asyncio.Event()
    at = now()

    async def sleep(seconds: float) -> None:
        nonlocal at
        asleep.set()
        await time_passes.wait()
        at += seconds

    async with serving(ScriptedModel([limit, "done"]), folder) as api:
        api.retinue.parking_clock = ParkingClock(now=lambda: at, sleep=sleep, spread=lambda: 0.0)
        run_id = (await api("POST", "runs", {"prompt": "what is it?"})).body["run_id"]
        await asleep.wait()
        run = (await api.get(f"runs/{run_id}"))["run"]
        assert (run["status"], run["outcome"]) == ("waiting", "waiting")
        assert run["parked_until"] == pytest.approx(at + 90)
        said = (await api.get(f"runs/{run_id}/transcript"))["parts"][-1]
        assert "waits for the provider's limit to reset until" in said["text"]
        assert (await api.get("approvals"))["approvals"] == [], "it is no question"
        time_passes.set()
        events = await api.ended(run_id)
        kinds = [event["type"] for event in events]
        assert kinds == [
            "run_started",
            "step_started",
            "limit_reached",
            "limit_passed",
            "model_replied",
            "run_finished",
        ]
        run = (await api.get(f"runs/{run_id}"))["run"]
        assert (run["status"], run["parked_until"]) == ("completed", None)


async def test_text_rides_along_live_without_a_place_of_its_own(folder: Path) -> None:
    gate = asyncio.Event()
    model = ScriptedModel([Step(text="one two three four", pieces=4, gate=gate)])
    async with serving(model, folder) as api:
        run_id = await api.ask()
        following = asyncio.create_task(api.follow(f"runs/{run_id}/stream?until=end"))
        while not api.server.hub.channels:
            await asyncio.sleep(0.01)
        gate.set()
        told = await following
        texts = [one for one in told if one.data["type"] == "streamed"]
        assert "".join(one.data["text"] for one in texts) == "one two three four"
        assert {one.id for one in texts} == {None}
        kinds = [one.data["type"] for one in told]
        assert kinds.index("step_started") < kinds.index("streamed") < kinds.index("model_replied")


async def test_a_tree_is_shown_with_its_parents_first_and_its_sums(folder: Path) -> None:
    async with serving(ScriptedModel(by_turn), folder, agents=[leaf()], tools=[look], yes=True) as api:
        run_id = await api.ask()
        await api.ended(run_id)
        tree = await api.get(f"runs/{run_id}/tree")
        assert [(run["agent"], run["depth"]) for run in tree["runs"]] == [
            ("root", 0),
            ("leaf", 1),
            ("leaf", 1),
        ]
        assert tree["total"]["runs"] == 3
        assert tree["total"]["turns"] == sum(run["turns"] for run in tree["runs"]) == 6
        child = tree["runs"][1]["run_id"]
        assert [run["run_id"] for run in (await api.get(f"runs/{child}/tree"))["runs"]] == [child]
        listed = (await api.get("runs?totals=true"))["runs"]
        assert [(run["run_id"], run["total"]["turns"]) for run in listed] == [(run_id, 6)]


async def test_events_come_in_pages_and_a_childs_alone_by_its_own_id(folder: Path) -> None:
    async with serving(ScriptedModel(by_turn), folder, agents=[leaf()], tools=[look], yes=True) as api:
        run_id = await api.ask()
        whole = await api.ended(run_id)
        paged: list[dict[str, Any]] = []
        after, more = 0, True
        while more:
            page = await api.get(f"runs/{run_id}/events?after={after}&limit=3")
            paged += page["events"]
            after, more = page["next"], page["more"]
        assert paged == whole
        child = next(event["child_id"] for event in whole if event["type"] == "child_started")
        alone = (await api.get(f"runs/{child}/events"))["events"]
        assert alone == [event for event in whole if event["run_id"] == child]
        streamed = await api.ended(child)
        assert streamed == alone
        own = (await api.get(f"runs/{run_id}/events?own=true"))["events"]
        assert own == [event for event in whole if event["run_id"] == run_id]
        assert (await api.get(f"runs/{child}/events?own=true"))["events"] == alone


async def test_a_run_says_what_it_was_asked_and_what_it_may_use(folder: Path) -> None:
    async with serving(ScriptedModel(["done"]), folder, tools=[look]) as api:
        run_id = await api.ask("look at *this*", settings={"limits.max_cost": 0.5})
        await api.ended(run_id)
        detail = await api.get(f"runs/{run_id}")
        assert detail["prompt"] == "look at *this*"
        assert detail["prompt_html"] == "<p>look at <em>this</em></p>\n"
        assert "look" in detail["tools"]
        assert detail["options"]["settings"] == {"limits.max_cost": 0.5}
        assert detail["limits"]["cost"] == 0.5
        assert detail["cursor"] == 4
        assert detail["run"]["status"] == "completed"


async def test_runs_are_listed_in_pages_without_gap_or_repeat_and_by_filter(folder: Path) -> None:
    async with serving(ScriptedModel(lambda request: "done"), folder, agents=[leaf()]) as api:
        started = [await api.ask(f"question {n}", agent="leaf" if n % 2 else "root") for n in range(7)]
        for run_id in started:
            await api.ended(run_id)
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await api.get("runs", params={"limit": "2", **({"cursor": cursor} if cursor else {})})
            seen += [run["run_id"] for run in page["runs"]]
            cursor = page["next"]
        assert seen == sorted(started, reverse=True)
        by_agent = (await api.get("runs?agent=leaf"))["runs"]
        assert {run["agent"] for run in by_agent} == {"leaf"}
        assert len(by_agent) == 3
        assert [run["task"] for run in (await api.get("runs?text=QUESTION+4"))["runs"]] == ["question 4"]
        assert (await api.get("runs?status=error"))["runs"] == []
        wrong = await api("GET", "runs?cursor=nonsense")
        assert (wrong.status, wrong.code) == (422, "invalid")


async def test_a_transcript_has_rendered_and_raw_parts_in_order(folder: Path) -> None:
    model = ScriptedModel(
        [Step(thinking="hmm", text="let me **see**", calls=(call("look", what="x"),)), "it is `x`"]
    )
    async with serving(model, folder, tools=[look]) as api:
        run_id = await api.ask("find *it*")
        await api.ended(run_id)
        parts = (await api.get(f"runs/{run_id}/transcript"))["parts"]
        assert [part["kind"] for part in parts] == [
            "prompt",
            "thinking",
            "reply",
            "call",
            "result",
            "reply",
            "report",
        ]
        assert parts[2]["html"] == "<p>let me <strong>see</strong></p>\n"
        assert parts[2]["text"] == "let me **see**"
        assert (parts[4]["title"], parts[4]["text"], parts[4]["html"]) == ("look", "saw x", None)
        first = await api.get(f"runs/{run_id}/transcript?limit=2")
        rest = await api.get(f"runs/{run_id}/transcript?after={first['next']}")
        assert first["parts"] + rest["parts"] == parts


async def test_a_run_is_exported_as_lines_and_as_a_page_and_both_are_files(folder: Path) -> None:
    async with serving(ScriptedModel(["<b>done</b>"]), folder) as api:
        run_id = await api.ask()
        events = await api.ended(run_id)
        lines = await api("GET", f"runs/{run_id}/export")
        assert len(lines.body.splitlines()) == len(events)
        assert lines.headers["Content-Disposition"] == f'attachment; filename="{run_id}.jsonl"'
        page = await api("GET", f"runs/{run_id}/export?format=html")
        assert b"&lt;b&gt;done&lt;/b&gt;" in page.body
        assert page.headers["Content-Disposition"].startswith("attachment")


async def test_attachments_reach_the_model(folder: Path) -> None:
    model = ScriptedModel(["read"])
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()
    async with serving(model, folder) as api:
        notes = base64.b64encode(b"the key is under the mat").decode()
        files = [{"name": "notes.txt", "data": notes}, {"name": "map.png", "data": picture}]
        await api.ended(await api.ask("where?", attachments=files))
        said = model.requests[0].messages[0]
        assert isinstance(said, UserMessage)
        assert "the key is under the mat" in said.text
        assert [image.data for image in said.images] == [picture]
        broken = await api("POST", "runs", {"prompt": "x", "attachments": [{"name": "a", "data": "!"}]})
        assert (broken.status, broken.code) == (422, "invalid")


async def test_input_has_to_fit_the_agents_schema(folder: Path) -> None:
    schema = {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]}
    model = ScriptedModel(["fine"])
    async with serving(model, folder, agents=[leaf(input_schema=schema)]) as api:
        refused = await api("POST", "runs", {"agent": "leaf", "input": {"wrong": 1}})
        assert (refused.status, refused.code) == (422, "invalid")
        await api.ended((await api.post("runs", {"agent": "leaf", "input": {"target": "a.py"}}))["run_id"])
        neither = await api("POST", "runs", {"agent": "leaf"})
        assert neither.status == 422
        unknown = await api("POST", "runs", {"agent": "nobody", "prompt": "x"})
        assert unknown.status == 422
        assert "known agents" in unknown.body["error"]["message"]


async def test_a_cancelled_run_keeps_its_partial_work_and_says_who_it_was(folder: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Step(text="as far as I got", last_gate=never)])
    async with serving(model, folder) as api:
        run_id = await api.ask()
        await api.follow(f"runs/{run_id}/stream", until=lambda told: told.data["type"] == "step_started")
        assert (await api.post(f"runs/{run_id}/cancel", {"reason": "enough"}))["cancelled"] is True
        await api.ended(run_id)
        report = await api.get(f"runs/{run_id}/report")
        assert (report["status"], report["error"]) == ("cancelled", "enough")
        again = await api.post(f"runs/{run_id}/cancel")
        assert again == {"cancelled": False, "status": "cancelled"}


async def test_a_message_steers_a_run_and_takes_a_finished_one_up_again(folder: Path) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(
        [Step(calls=(call("look", what="x"),), gate=gate), "first", lambda r: f"heard {r.messages[-1].text}"]
    )
    async with serving(model, folder, tools=[look]) as api:
        run_id = await api.ask()
        assert (await api.post(f"runs/{run_id}/message", {"text": "be brief"})) == {"how": "delivered"}
        await api.follow(f"runs/{run_id}/stream", until=lambda told: told.data["type"] == "message_received")
        gate.set()
        await api.ended(run_id)
        assert "be brief" in [m.text for m in model.requests[1].messages if isinstance(m, UserMessage)]
        last = (await api.get(f"runs/{run_id}"))["cursor"]
        assert (await api.post(f"runs/{run_id}/message", {"text": "and now?"})) == {"how": "resumed"}
        told = await api.follow(
            f"runs/{run_id}/stream", last=last, until=lambda told: told.data["type"] == "run_finished"
        )
        assert told[-1].data["report"]["text"] == "heard and now?"
        assert [one.id for one in told if one.id] == list(
            range(last + 1, last + 1 + len([t for t in told if t.id]))
        )


async def test_a_message_asks_a_finished_child_again_and_its_parent_is_told(folder: Path) -> None:
    def play(request: ModelRequest) -> Any:
        said = [m.text for m in request.messages if isinstance(m, UserMessage)]
        if "You are a leaf" in request.system:
            return f"leaf was told {said}"
        if len(request.messages) == 1:
            return [call("leaf", prompt="one")]
        ends = [text for text in said if text.startswith("[The background agent leaf")]
        return f"told of {len(ends)}"

    async with serving(ScriptedModel([play] * 9), folder, agents=[leaf()]) as api:
        run_id = await api.ask()
        events = await api.ended(run_id)
        (child,) = [event["child_id"] for event in events if event["type"] == "child_started"]
        assert await api.post(f"runs/{child}/message", {"text": "and two"}) == {"how": "resumed"}
        assert (await api.retinue.wait(run_id)).text == "told of 1"
        assert (await api.retinue.wait(child)).text == "leaf was told ['one', 'and two']"


async def test_a_finished_run_is_resumed_only_with_a_message(folder: Path) -> None:
    async with serving(ScriptedModel(["first", "second"]), folder) as api:
        run_id = await api.ask()
        await api.ended(run_id)
        refused = await api("POST", f"runs/{run_id}/resume")
        assert (refused.status, refused.code) == (409, "finished")
        assert (await api.post(f"runs/{run_id}/resume", {"message": "more"})) == {"run_id": run_id}
        await api.ended(run_id)
        assert (await api.get(f"runs/{run_id}/report"))["text"] == "second"


async def test_a_run_at_its_turn_limit_is_resumed_with_more_turns_and_says_so_without(folder: Path) -> None:
    model = ScriptedModel([call("ls", path="."), "so far", "all of it"])
    async with serving(model, folder) as api:
        started = await api.post("runs", {"prompt": "look", "settings": {"limits.max_turns": 1}})
        run_id = started["run_id"]
        await api.ended(run_id)
        refused = await api("POST", f"runs/{run_id}/resume")
        assert (refused.status, refused.code) == (409, "finished")
        assert "max turns reached: 1 of 1" in refused.body["error"]["message"]
        assert await api.post(f"runs/{run_id}/resume", {"settings": {"limits.max_turns": 3}})
        await api.ended(run_id)
        report = await api.get(f"runs/{run_id}/report")
        assert (report["text"], report["outcome"]) == ("all of it", "completed")


async def test_a_fork_goes_its_own_way_and_leaves_the_old_run_alone(folder: Path) -> None:
    async with serving(ScriptedModel(["first", "the other way"]), folder) as api:
        run_id = await api.ask()
        before = await api.ended(run_id)
        forked = (await api.post(f"runs/{run_id}/fork", {"message": "differently"}))["run_id"]
        assert forked != run_id
        await api.ended(forked)
        assert (await api.get(f"runs/{forked}/report"))["text"] == "the other way"
        assert (await api.get(f"runs/{forked}"))["forked_from"] == run_id
        assert (await api.get(f"runs/{run_id}/events"))["events"] == before
        nowhere = await api("POST", f"runs/{run_id}/fork", {})
        assert nowhere.status == 422


async def test_a_replay_says_that_the_same_comes_out(folder: Path) -> None:
    async with serving(ScriptedModel(by_turn), folder, agents=[leaf()], tools=[look], yes=True) as api:
        run_id = await api.ask()
        await api.ended(run_id)
        replayed = await api.post(f"runs/{run_id}/replay")
        assert (replayed["same"], replayed["diff"]) == (True, "")
        assert replayed["report"]["text"] == "both **done**"


async def test_a_replay_says_how_much_of_the_record_comes_after_its_first_end(folder: Path) -> None:
    async with serving(ScriptedModel(["one", "two"]), folder) as api:
        run_id = await api.ask()
        before = await api.ended(run_id)
        await api.post(f"runs/{run_id}/resume", {"message": "more"})
        after = await api.ended(run_id)
        assert (await api.post(f"runs/{run_id}/replay"))["after"] == len(after) - len(before) > 0


async def test_a_deleted_run_is_gone_and_its_watchers_are_told(folder: Path) -> None:
    gate = asyncio.Event()
    async with serving(ScriptedModel([Step(text="done", gate=gate)]), folder) as api:
        run_id = await api.ask()
        refused = await api("DELETE", f"runs/{run_id}")
        assert (refused.status, refused.code) == (409, "running")
        gate.set()
        await api.ended(run_id)
        watching = asyncio.create_task(api.follow(f"runs/{run_id}/stream"))
        while run_id not in api.server.hub.channels:
            await asyncio.sleep(0.01)
        assert (await api("DELETE", f"runs/{run_id}")).status == 204
        assert (await watching)[-1].data == {"type": "deleted"}
        assert (await api("GET", f"runs/{run_id}")).status == 404


async def test_a_run_at_work_is_deleted_with_force_and_stops(folder: Path) -> None:
    async with serving(ScriptedModel([Step(text="never", gate=asyncio.Event())]), folder) as api:
        run_id = await api.ask()
        waiting = asyncio.create_task(api.server.retinue.wait(run_id))
        refused = await api("DELETE", f"runs/{run_id}")
        assert "force=true" in refused.body["error"]["fix"]
        assert (await api("DELETE", f"runs/{run_id}?force=true")).status == 204
        with pytest.raises(Gone, match=f"{run_id} was deleted"):
            await waiting
        assert (await api("GET", f"runs/{run_id}")).status == 404
        assert await api.server.retinue.store.count(run_id) == 0


async def test_what_is_not_there_and_what_is_not_allowed_has_one_shape(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        for method, path, body, status, code in (
            ("GET", "runs/r0", None, 404, "not_found"),
            ("GET", "nothing", None, 404, "not_found"),
            ("PATCH", "runs", {}, 405, "method_not_allowed"),
            ("GET", "runs?limit=0", None, 422, "invalid"),
            ("POST", "runs", {"prompt": "x", "unknown": 1}, 422, "invalid"),
            ("POST", "runs", {"prompt": "   "}, 422, "invalid"),
            ("POST", "runs", {"prompt": "x", "settings": {"db": "sqlite:///x"}}, 422, "invalid"),
            ("POST", "runs", {"prompt": "x", "settings": {"limits.max_turns": "many"}}, 422, "invalid"),
        ):
            answer = await api(method, path, body)
            assert (answer.status, answer.code) == (status, code), (method, path, answer)
            assert set(answer.body) == {"error"}
            assert answer.body["error"]["message"]
        broken = await api("POST", "runs", data=b"{", headers={"Content-Type": "application/json"})
        assert (broken.status, broken.code) == (422, "invalid")
        half = b'{"prompt": "\\ud800"}'
        refused = await api("POST", "runs", data=half, headers={"Content-Type": "application/json"})
        assert (refused.status, refused.code) == (422, "invalid")


async def test_an_unknown_field_is_told_with_the_one_that_was_meant(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        for body, said, fix in (
            ({"promt": "x"}, "body: there is no field 'promt'", "did you mean 'prompt'?"),
            ({"Prompt": "x"}, "body: there is no field 'Prompt'", "did you mean 'prompt'?"),
            (
                {"prompt": "x", "attachments": [{"nam": "a.txt", "content": ""}]},
                "body.attachments.0: there is no field 'nam'",
                "did you mean 'name'?",
            ),
            ({"xyz{": "x"}, "body: there is no field 'xyz{'", "there are agent, prompt, input, model, label"),
        ):
            answer = await api("POST", "runs", body)
            assert (answer.status, answer.body["error"]["code"]) == (422, "invalid")
            assert answer.body["error"]["message"] == said
            assert answer.body["error"]["fix"].startswith(fix)
        assert (await api.get("runs"))["runs"] == []


async def test_a_body_that_is_no_json_and_a_misspelt_setting_are_told_with_what_to_write(
    folder: Path,
) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        answer = await api("POST", "runs", data=b"{prompt: x}", headers={"Content-Type": "application/json"})
        assert (answer.status, answer.body["error"]["code"]) == (422, "invalid")
        assert answer.body["error"]["message"].startswith(
            "the body is not valid JSON: Expecting property name"
        )
        answer = await api("POST", "runs", {"prompt": "x", "settings": {"limits.max_trns": 3}})
        assert (answer.status, answer.body["error"]["fix"]) == (422, "did you mean 'limits.max_turns'?")


async def test_no_report_yet_is_told_apart_from_no_run(folder: Path) -> None:
    gate = asyncio.Event()
    async with serving(ScriptedModel([Step(text="x", gate=gate)]), folder) as api:
        run_id = await api.ask()
        early = await api("GET", f"runs/{run_id}/report")
        assert (early.status, early.code) == (404, "no_report")
        gate.set()
        await api.ended(run_id)
        assert (await api.get(f"runs/{run_id}/report"))["text"] == "x"


async def test_a_run_of_another_folder_is_read_but_not_taken_up(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    db = f"sqlite://{tmp_path}/log.db"
    async with serving(ScriptedModel(["done"]), elsewhere, db=db) as api:
        run_id = await api.ask()
        await api.ended(run_id)
    async with serving(ScriptedModel(["never"]), folder, db=db) as api:
        assert (await api.get(f"runs/{run_id}/report"))["text"] == "done"
        for path, body in (
            ("resume", {"message": "go"}),
            ("message", {"text": "go"}),
            ("fork", {"message": "go"}),
        ):
            refused = await api("POST", f"runs/{run_id}/{path}", body)
            assert (refused.status, refused.code) == (409, "other_project")


async def test_what_was_said_while_the_server_was_away_is_heard_once(folder: Path, tmp_path: Path) -> None:
    db = f"sqlite://{tmp_path}/log.db"
    never = asyncio.Event()
    async with serving(ScriptedModel([Step(text="x", gate=never)]), folder, db=db) as api:
        run_id = await api.ask()
        await api.post(f"runs/{run_id}/message", {"text": "said before"})
        await api.follow(f"runs/{run_id}/stream", until=lambda told: told.data["type"] == "message_received")
    async with Retinue(model="offline", db=db, cwd=folder, environ={}) as another:
        await another.message(run_id, "said meanwhile")
    model = ScriptedModel(["heard", "and done"])
    async with serving(model, folder, db=db) as api:
        events = await api.ended(run_id)
        said = [event["text"] for event in events if event["type"] == "message_received"]
        assert said == ["said before", "said meanwhile"]


async def test_a_mistake_in_a_request_is_told_in_our_own_words(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        for path, said in (
            ("runs?limit=many", "query.limit: must be a whole number"),
            ("runs?limit=0", "query.limit: must be 1 or more"),
            ("runs/a%20b", "path.run_id: is not written like one"),
        ):
            answer = await api("GET", path)
            assert answer.status == 422
            assert answer.body["error"]["message"].startswith(said), answer.body
        slip = await api("POST", "runs", {"prompt": 3})
        assert slip.body["error"]["message"].startswith("body.prompt: must be a text"), slip.body
