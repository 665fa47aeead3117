"""The page's picture of a workflow: its entries from the events, how it stands from what the server says."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
import scenes
from playwright.sync_api import Page, expect
from served import Play, Provider, Served

from retinue.errors import ModelError
from retinue.events import AnyEvent, ToolReturned
from retinue.fold import fold
from retinue.story import Story
from retinue.testing import Script
from retinue.tools.base import tool
from trees import Stage, agent

Open = Callable[..., Page]

FOLDED = """async ([events, standing]) => {
  const { Workflow } = await import("/js/fold.js");
  const flow = new Workflow(events[0].root_id);
  for (const event of events) flow.apply(event);
  flow.stand(standing);
  const again = events.map((event) => flow.apply(event));
  return {
    again: again.some(Boolean),
    runs: [...flow.runs.values()].map((run) => ({
      id: run.id, parent: run.parent?.id ?? null, status: run.status, outcome: run.outcome, turns: run.turns, toolCalls: run.toolCalls,
      input: run.own.input, output: run.own.output, waiting: run.waiting.size, report: run.report?.text ?? null,
      children: run.children.length,
    })),
    waiting: flow.approvals.size,
  };
}"""


CALLS = """async (events) => {
  const { Workflow } = await import("/js/fold.js");
  const flow = new Workflow(events[0].root_id);
  for (const event of events) flow.apply(event);
  return Object.fromEntries([...flow.root.calls.values()].map((call) => [call.id, call.outcome]));
}"""


def tells(server: Served, run_id: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The events of a workflow, and how its runs stand."""
    found = server.api("GET", f"runs/{run_id}/events?limit=5000&standing=true")
    return found["events"], found["standing"]


@pytest.mark.parametrize(
    "play",
    [scenes.retries(asks=False), scenes.retries(), scenes.says("Short."), lambda seen: Script(status=401)],
    ids=["children", "waiting", "short", "failed"],
)
def test_the_page_and_the_log_agree_about_every_run(
    open_page: Open, server: Served, provider: Provider, play: Play
) -> None:
    provider.play = play
    page = open_page()
    run_id: str = server.api("POST", "runs", {"prompt": scenes.QUESTION})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.locator(".run-head .badge")).not_to_have_text("running")
    told, standing = tells(server, run_id)
    events = [msgspec.convert(one, AnyEvent) for one in told]
    found = page.evaluate(FOLDED, [told, standing])
    assert found["again"] is False
    for run in found["runs"]:
        state = fold(event for event in events if event.run_id == run["id"])
        assert run["status"] == state.status
        assert (run["turns"], run["toolCalls"]) == (state.turns, state.tool_calls)
        assert (run["input"], run["output"]) == (state.usage.input_tokens, state.usage.output_tokens)
        assert run["waiting"] == len(state.waiting)
        assert run["children"] == len(state.children)
        assert run["report"] == (state.report.text if state.report else None)
    assert {run["id"] for run in found["runs"]} == {event.run_id for event in events}


SHOWN = """() => {
  const { flow } = document.querySelector("r-run");
  return Object.fromEntries([...flow.runs.values()].map((run) =>
    [run.id, [run.outcome, run.usage.input, run.usage.output, run.turns, run.toolCalls]]));
}"""


def test_the_page_shows_live_what_it_is_sent_of_every_run(
    open_page: Open, server: Served, provider: Provider
) -> None:
    """Children work and end while it looks: in the end all stands there that the columns of `runs` say."""
    provider.play = scenes.retries(asks=False)
    page = open_page()
    run_id: str = server.api("POST", "runs", {"prompt": scenes.QUESTION})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.locator(".run-head .badge")).to_have_text("completed")
    rows = server.api("GET", f"runs/{run_id}/tree")["runs"]
    assert len(rows) > 1
    truth = {
        row["run_id"]: [
            row["outcome"],
            *(row["total"][what] for what in ("input_tokens", "output_tokens")),
            *(row[what] for what in ("turns", "tool_calls")),
        ]
        for row in rows
    }
    page.wait_for_function(f"(truth) => JSON.stringify(({SHOWN})()) === truth", arg=compact(truth))


def compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def test_the_page_shows_what_it_is_sent_and_works_nothing_out(
    open_page: Open, server: Served, provider: Provider
) -> None:
    """Where the server's word and the events say different things, the server's word is shown."""
    provider.play = scenes.says("Short.")
    page = open_page()
    run_id: str = server.api("POST", "runs", {"prompt": "Say it."})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    badge = page.locator(".run-head .badge")
    expect(badge).to_have_text("completed")
    (standing,) = tells(server, run_id)[1]
    told = {**standing, "outcome": "refused", "worked": 754, "shortfall": {"rejected": 3}}
    told["total"] = {**standing["total"], "tool_calls": 12, "input_tokens": 9000, "output_tokens": 0}
    page.evaluate("(told) => document.querySelector('r-run').flow.stand([told])", told)
    expect(badge).to_have_text("refused, 3 rejected")
    facts = page.locator(".run-facts")
    for fact in ("12 m 34 s", "12 tool calls", "9.0k tokens"):
        expect(facts).to_contain_text(fact)
    page.evaluate(
        "(told) => document.querySelector('r-run').flow.stand([told])", told | {"outcome": "waiting"}
    )
    expect(badge).to_contain_text("waiting")


def stamped(*facts: tuple[float, str, str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Events as the page takes them: when, which run, what kind, and the rest."""
    return [
        {"type": kind, "run_id": run, "root_id": "r", "parent_id": None if run == "r" else "r", "seq": place}
        | {"depth": 0 if run == "r" else 1, "at": at, "pos": place, **rest}
        for place, (at, run, kind, rest) in enumerate(facts, start=1)
    ]


def begins(name: str) -> dict[str, object]:
    return {"spec": {"name": name}, "prompt": "x"}


ASKED = {"tool": "write", "arguments": "{}", "effect": "write", "risk": "medium", "reason": "", "path": []}
TIMES = """async ([events, now]) => {
  const { Workflow } = await import("/js/fold.js");
  const flow = new Workflow("r");
  for (const event of events) flow.apply(event);
  return Object.fromEntries([...flow.runs.values()].flatMap((run) =>
    [[run.id, run.paused(0, now)], ...[...run.calls.values()].map((call) => [call.id, [call.seconds(now), call.waited(now)]])]));
}"""
"""Of each run how long a person was waited for, as it is drawn; of each call how long it worked and waited."""


def test_waiting_for_a_person_is_no_work_anywhere_in_the_tree(open_page: Open) -> None:
    page = open_page()
    ask = {**ASKED, "approval_id": "c:call", "call_id": "call"}
    answer = {"approval_id": "c:call", "call_id": "call", "decision": "approve", "by": "person"}
    told = stamped(
        (0, "r", "run_started", begins("general")),
        (1, "r", "child_started", {"child_id": "c", "agent": "scribe", "prompt": "x"}),
        (1, "c", "run_started", begins("scribe")),
        (2, "c", "approval_requested", ask),
        (12, "c", "approval_answered", answer),
        (12, "c", "tool_called", {"call_id": "call", "name": "write", "arguments": "{}", "effect": "write"}),
        (13, "c", "tool_returned", {"call_id": "call", "name": "write", "text": "", "duration_ms": 11_000}),
    )
    # Asked, then answered: the clocks of the child and of everyone above it stood still for ten seconds.
    assert page.evaluate(TIMES, [told[:4], 7]) == {"r": 5, "c": 5, "call": [0, 5]}
    assert page.evaluate(TIMES, [told, 20]) == {"r": 10, "c": 10, "call": [1, 10]}
    # Two questions at once are one wait; a server that was away in between changes nothing.
    other = {**ASKED, "approval_id": "r:other", "call_id": "other"}
    both = stamped(
        *((e["at"], e["run_id"], e["type"], e) for e in told[:4]),
        (4, "r", "approval_requested", other),
        (10, "r", "run_resumed", {}),
        (10, "c", "run_resumed", {}),
        (12, "c", "approval_answered", answer),
    )
    found = page.evaluate(TIMES, [both, 14])
    assert (found["r"], found["c"]) == (12, 10)


def test_an_answer_to_a_run_that_has_stopped_ends_no_wait_twice(open_page: Open) -> None:
    ask = {**ASKED, "approval_id": "r:call", "call_id": "call"}
    answer = {"approval_id": "r:call", "call_id": "call", "decision": "reject", "by": "person"}
    told = stamped(
        (0, "r", "run_started", begins("general")),
        (2, "r", "approval_requested", ask),
        (5, "r", "run_finished", {"report": {"status": "cancelled", "duration_ms": 2000, "usage": {}}}),
        (6, "r", "approval_answered", answer),
        (10, "r", "run_resumed", {}),
        (11, "r", "approval_requested", {**ask, "approval_id": "r:next", "call_id": "next"}),
    )
    assert open_page().evaluate(TIMES, [told, 15])["r"] == 7


def test_work_and_waiting_are_the_same_in_every_view(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.writer()
    page = open_page()
    run_id: str = server.api("POST", "runs", {"prompt": "Write it."})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator(".run-facts")).to_contain_text("· waiting ")
    expect(page.locator(".step.run .facts-line")).to_contain_text("waiting ")
    expect(page.locator(".step.call .facts-line")).to_contain_text("waiting ")
    expect(page.locator(".step.call .time")).to_have_text("")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Review").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.locator(".answer-foot")).to_contain_text("· waited ")
    worked, waited = page.locator(".answer-foot > span").first.inner_text().split(" · ")[:2]
    expect(page.locator(".run-facts")).to_contain_text(f"· {worked} · {waited} ·")
    expect(page.locator(".step.run .time")).to_have_text(worked)
    expect(page.locator(".step.run .facts-line")).to_contain_text(waited)
    page.locator(".step.report").click()
    expect(page.locator(".step-detail .facts")).to_contain_text(f"{worked}, {waited}")
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".lane-facts")).to_have_text(worked)
    expect(page.locator(".time-summary")).to_contain_text(f"{worked} of work, {waited}.")
    expect(page.locator(".split-words li").nth(2)).to_contain_text(waited.removeprefix("waited "))


def test_the_page_marks_a_call_as_the_log_does(open_page: Open, server: Served) -> None:
    """One that started children by the worst of them, also where it gave back a result: its event says so."""
    batches = (("fine", "fine"), ("fine", "broken"), ("doer", "fine"), ("fine", "nobody"))
    calls = [
        ("parallel_tasks", {"tasks": [{"agent_id": name, "prompt": "x"} for name in batch]})
        for batch in batches
    ]

    @tool(effect="execute")
    async def act() -> str:
        """Do it."""
        return "done"

    stage = Stage(
        {
            "root": [calls, "done"],
            "fine": ["fine"],
            "broken": [ModelError("bad", kind="invalid")],
            "doer": [[("act", {})], "done"],
        },
        agents=[agent(name) for name in ("fine", "broken", "doer")],
        tools=[act],
        delegation__tools=["parallel_tasks"],
        delegation__max_children=9,
    )

    async def played() -> list[AnyEvent]:
        await stage.run()
        return await stage.log()

    with concurrent.futures.ThreadPoolExecutor(1) as apart:  # the browser's own loop runs in this thread
        log = apart.submit(lambda: asyncio.run(played())).result()
    story = Story()
    for event in log:
        story.apply(event)
    assert story.root is not None
    truth = {
        event.call_id: story.root.outcome_of(event)
        for event in log
        if isinstance(event, ToolReturned) and event.parent_id is None
    }
    assert sorted(truth.values()) == ["completed", "error", "incomplete", "refused"]
    assert open_page().evaluate(CALLS, [msgspec.to_builtins(event) for event in log]) == truth


NOTES = """async (events) => {
  const { Workflow } = await import("/js/fold.js");
  const flow = new Workflow("r");
  for (const event of events) flow.apply(event);
  return flow.root.entries.filter((entry) => entry.kind === "note").map((entry) => [entry.text, entry.detail]);
}"""


def test_the_page_tells_of_guards_other_models_and_calls_that_were_cut(open_page: Open) -> None:
    spoke = {"side": "output", "guard": "polite", "why": "no greeting"}
    again = {"step": 1, "attempt": 1, "wait": 0, "text_shown": False, "begun": True}
    told = stamped(
        (0, "r", "run_started", begins("general")),
        (1, "r", "step_retried", {**again, "reason": "it is away", "model": "b:y"}),
        (2, "r", "call_cut", {"step": 1, "usage": {"cost": None}}),
        (3, "r", "guard_spoke", {**spoke, "decision": "pass"}),
        (4, "r", "guard_spoke", {**spoke, "decision": "correct"}),
    )
    assert open_page().evaluate(NOTES, told) == [
        ["b:y is asked instead", "it is away\nA reply had begun, which may be charged for."],
        ["a model call was cut off after it had begun", "What it cost is not known."],
        ["the output guard polite sends the answer back", "no greeting"],
    ]


BUBBLE = """async (events) => {
  const { Workflow } = await import("/js/fold.js");
  const { question } = await import("/js/views/chat-words.js");
  const flow = new Workflow(events[0].root_id);
  for (const event of events) flow.apply(event);
  const bubble = question(flow.turns.at(-1));
  const written = [...bubble.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE);
  return [written.map((one) => one.data).join(""), [...bubble.querySelectorAll(".chip .cut")].map((one) => one.textContent)];
}"""


def test_what_is_attached_to_a_follow_up_is_known_by_its_event_and_not_by_what_the_person_wrote(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.says("Short.")
    page = open_page()
    run_id: str = server.api("POST", "runs", {"prompt": "Say it."})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.locator(".run-head .badge")).to_have_text("completed")
    events, _ = tells(server, run_id)
    framed = '<attachment name="{}" kind="text">\ninside\n</attachment>'
    text = f"🔑 {framed.format('own')} is what I wrote"
    said = {
        **{name: events[-1][name] for name in ("run_id", "root_id", "parent_id", "depth", "at", "v")},
        "type": "message_received",
        "seq": events[-1]["seq"] + 1,
        "pos": events[-1]["pos"] + 1,
        "text": text,
    }
    assert page.evaluate(BUBBLE, [*events, said]) == [text, []]
    said["rendered"] = f"{text}\n\n{framed.format('notes.txt')}"
    assert page.evaluate(BUBBLE, [*events, said]) == [text, ["notes.txt"]]
