"""The page shows of every run the outcome that everything else shows, and does not work it out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from served import Served

from fifty_workflows import played

Open = Callable[..., Page]


@pytest.mark.timeout(1200)
def test_the_page_shows_the_outcome_of_fifty_workflows(
    open_page: Open, own_server: Served, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    db = f"sqlite://{tmp_path}/fifty.db"
    with played(db, folder) as roots:
        own_server.start("--db", db)
        truth = {run["run_id"]: run["outcome"] for run in every_run(own_server)}
        assert {root: truth[root] for root in roots} == roots
        page = open_page("#/runs?children=1")
        assert in_list(page, len(truth)) == truth
        for root_id, outcome in roots.items():
            page.goto(f"{own_server.url}/#/run/{root_id}")
            badge = page.locator(".run-head .badge")
            expect(badge).to_have_class(re.compile(rf"^badge {outcome}$"))
            tree = own_server.api("GET", f"runs/{root_id}/tree")["runs"]
            told = {run["run_id"]: [run["outcome"], sums(run)] for run in tree}
            page.wait_for_function(f"(told) => ({STANDS})(told)", arg=told)
        page.goto(f"{own_server.url}/#/runs?outcome=rejected&children=1")
        rejected = {run_id for run_id, outcome in truth.items() if outcome == "rejected"}
        assert set(in_list(page, len(rejected))) == rejected


STANDS = """(told) => {
  const { runs } = document.querySelector("r-run").flow;
  return runs.size === Object.keys(told).length && Object.entries(told).every(([id, [outcome, sums]]) => {
    const { usage, toolCalls, stands } = runs.get(id);
    const found = [usage.input, usage.output, toolCalls, stands.total.tool_calls];
    return runs.get(id).outcome === outcome && found.join() === sums.join();
  });
}"""
"""Whether the page has of every run of a workflow what the API says of it."""


def sums(run: Any) -> list[int]:
    total = run["total"]
    return [total["input_tokens"], total["output_tokens"], run["tool_calls"], total["tool_calls"]]


def every_run(server: Served) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        page = server.api("GET", f"runs?children=1&limit=200{cursor}")
        found += page["runs"]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


def in_list(page: Page, count: int) -> dict[str, str]:
    """What the list shows, once all of it is there."""
    rows = page.locator(".run-row")
    expect(rows.first).to_be_attached()
    while (before := rows.count()) < count:  # whoever scrolls down is shown more
        rows.last.scroll_into_view_if_needed()
        page.mouse.move(700, 500)
        page.mouse.wheel(0, 9000)
        expect(rows.nth(before)).to_be_attached()
    expect(rows).to_have_count(count)
    script = "rows => rows.map(row => [row.querySelector('a').hash, row.querySelector('.mark').classList[1]])"
    return {hash_.rpartition("/")[2]: outcome for hash_, outcome in rows.evaluate_all(script)}
