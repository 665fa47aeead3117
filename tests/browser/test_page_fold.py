"""The page's picture of a workflow against the log's own: both are folds of the same events."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import scenes
from playwright.sync_api import Page, expect
from served import Play, Provider, Served

from retinue.events import AnyEvent
from retinue.fold import fold
from retinue.testing import Script

Open = Callable[..., Page]

FOLDED = """async (events) => {
  const { Workflow } = await import("/js/fold.js");
  const flow = new Workflow(events[0].root_id);
  for (const event of events) flow.apply(event);
  const again = events.map((event) => flow.apply(event));
  return {
    again: again.some(Boolean),
    runs: [...flow.runs.values()].map((run) => ({
      id: run.id, parent: run.parent?.id ?? null, status: run.status, turns: run.turns, toolCalls: run.toolCalls,
      input: run.own.input, output: run.own.output, waiting: run.waiting.size, report: run.report?.text ?? null,
      children: run.children.length,
    })),
    waiting: flow.approvals.size,
  };
}"""


def tells(server: Served, run_id: str) -> list[dict[str, object]]:
    return server.api("GET", f"runs/{run_id}/events?limit=5000")["events"]


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
    told = tells(server, run_id)
    events = [msgspec.convert(one, AnyEvent) for one in told]
    found = page.evaluate(FOLDED, told)
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
