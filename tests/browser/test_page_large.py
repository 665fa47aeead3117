"""A large tree: it is there before its log is, says how far it is read, and loses nothing on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from grown import ROOT, grown, plant
from playwright.sync_api import Page, Route, expect
from served import Provider, Served

from retinue.events import Event, RunStarted

Open = Callable[..., Page]
Large = tuple[Served, list[Event]]
STEPS = 8
PLACES = "() => document.querySelector('r-run').flow.log.map((event) => event.pos)"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, one_provider: Provider) -> Iterator[Large]:
    made = Served(tmp_path_factory.mktemp("large") / "home", one_provider)
    made.env["RETINUE_DB"] = f"sqlite:///{made.home}/grown.db"
    events = grown(150, STEPS)
    plant(made.env["RETINUE_DB"], events)
    made.start()
    yield made, events
    made.stop()


class Hold:
    """Keeps the pages of the whole log back until it is let go; what the outline is made of passes."""

    def __init__(self, page: Page) -> None:
        self.held: list[Route] = []
        self.open = False
        page.route(lambda url: "/events?" in url and "own=true" not in url, self._meet)

    def _meet(self, route: Route) -> None:
        if self.open:
            route.continue_()
        else:
            self.held.append(route)

    def end(self, *, well: bool = True) -> None:
        self.open = True
        for route in self.held:
            if well:
                route.continue_()
            else:
                route.abort()


def test_the_tree_is_there_before_its_log(open_page: Open, server: Served, large: Large) -> None:
    served, log = large
    events, runs = len(log), sum(isinstance(event, RunStarted) for event in log)
    assert events > 4000  # or it would be read in one go
    page = open_page()
    hold = Hold(page)
    page.goto(f"{served.url}/#/run/{ROOT}")
    child = page.locator(".step.run").nth(1)
    expect(child).to_contain_text("part")
    expect(child.get_by_role("img", name="completed")).to_be_visible()
    expect(page.locator(".run-facts")).to_contain_text(f"{runs - 1} children · {runs * STEPS:,} tool calls")
    expect(page.locator(".run-facts")).to_contain_text("tokens")
    expect(page.locator(".reading")).to_contain_text(f"Reading the details: 0 of {events:,} events")
    child.click()
    expect(page.locator(".step.unread")).to_contain_text("reading its steps")
    before = child.locator(".name, .about").all_inner_texts()
    assert len(hold.held) == 1
    hold.end()
    expect(page.locator(".reading")).to_have_count(0)
    expect(page.locator(".step.unread")).to_have_count(0)
    # It stays open, says the same, and has its steps now.
    expect(child).to_have_attribute("aria-expanded", "true")
    assert child.locator(".name, .about").all_inner_texts() == before
    expect(page.locator(".step.task").nth(1)).to_be_visible()
    assert page.evaluate(PLACES) == list(range(1, events + 1))


def test_every_tab_says_that_the_log_is_still_read(open_page: Open, server: Served, large: Large) -> None:
    served, events = large[0], len(large[1])
    page = open_page()
    hold = Hold(page)
    page.goto(f"{served.url}/#/run/{ROOT}/timeline")
    expect(page.locator(".lane").nth(3)).to_be_visible()
    expect(page.locator(".reading")).to_be_visible()
    page.get_by_role("tab", name="Log").click()
    expect(page.locator("r-log")).to_contain_text(f"of {events:,} events")
    hold.end()
    expect(page.locator(".reading")).to_have_count(0)
    expect(page.locator("r-log .steps-bar")).to_contain_text(f"{events:,} events")


def test_a_log_that_cannot_be_read_to_its_end_says_so_and_is_read_again(
    open_page: Open, server: Served, large: Large
) -> None:
    served, events = large[0], len(large[1])
    page = open_page(forgive=("ERR_",))
    hold = Hold(page)
    page.goto(f"{served.url}/#/run/{ROOT}")
    expect(page.locator(".reading")).to_be_visible()
    page.get_by_label("Message").fill("Words that nobody wants to type again.")
    hold.end(well=False)
    expect(page.get_by_role("main").get_by_role("alert")).to_contain_text("cannot be reached")
    # What is there already stays, and what was written into it.
    expect(page.locator(".step.run").nth(1)).to_be_visible()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    expect(page.get_by_label("Message")).to_have_value("Words that nobody wants to type again.")
    expect(page.locator(".step.run").nth(1)).to_be_visible()
    expect(page.locator(".reading")).to_have_count(0)
    assert page.evaluate(PLACES) == list(range(1, events + 1))


def test_a_run_that_was_left_before_it_could_be_shown_is_not_begun(
    open_page: Open, server: Served, large: Large
) -> None:
    served, _ = large
    page = open_page()
    page.set_viewport_size({"width": 1400, "height": 900})
    held: list[Route] = []

    def meet(route: Route) -> None:
        held.append(route)

    page.route("**/js/views/steps.js", meet)
    with page.expect_response(lambda response: "own=true" in response.url):
        page.goto(f"{served.url}/#/run/{ROOT}")
    page.wait_for_function("() => document.querySelector('r-run')?.flow?.root")
    page.evaluate("() => { globalThis.left = document.querySelector('r-run'); location.hash = '#/runs'; }")
    expect(page.locator("r-runs")).to_be_visible()
    for route in held:
        route.continue_()
    page.evaluate("() => import('/js/views/steps.js').then(() => new Promise((done) => setTimeout(done)))")
    assert held
    assert page.evaluate("() => [left.head, left.watching]") == [None, None]


def test_what_is_sent_first_is_a_small_part_of_the_whole(
    open_page: Open, server: Served, large: Large
) -> None:
    served, _ = large
    page = open_page()
    sizes: dict[str, int] = {}

    def count(response: Any) -> None:
        url = response.url
        if f"runs/{ROOT}" in url and "/stream" not in url:
            sizes[url] = len(response.body())

    page.on("requestfinished", lambda request: count(request.response()))
    page.goto(f"{served.url}/#/run/{ROOT}")
    expect(page.locator(".step.run").nth(1)).to_be_visible()
    expect(page.locator(".reading")).to_have_count(0)
    whole = sum(size for url, size in sizes.items() if "/events?after" in url)
    first = sum(size for url, size in sizes.items() if "/events?after" not in url)
    assert 0 < first < whole / 10, sizes
