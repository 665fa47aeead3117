"""What a page survives: a reload, a server that is stopped or killed and comes back, a network that goes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import scenes
from grown import plant
from playwright.sync_api import Page, expect
from served import Provider, Served

from retinue.events import RunStarted, StepRetried, StepStarted
from retinue.testing import Script, SeenRequest, call
from retinue.types import AgentSpec

Open = Callable[..., Page]
GONE = ("ERR_",)
GOES = """async (place) => {
  await new Promise((done) => { addEventListener("hashchange", done, { once: true }); location.hash = place; });
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
}"""
PLACES = "() => document.querySelector('r-run').flow.log.map((event) => event.pos)"


def started(page: Page, server: Served, prompt: str) -> str:
    run_id: str = server.api("POST", "runs", {"prompt": prompt})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    return run_id


def all_there(page: Page, server: Served, run_id: str) -> None:
    """Every event of the log is on the page, once, in order."""
    known = [event["pos"] for event in server.api("GET", f"runs/{run_id}/events?limit=5000")["events"]]
    assert page.evaluate(PLACES) == known == list(range(1, len(known) + 1))


def test_a_reload_in_the_middle_shows_the_same_run(
    open_page: Open, server: Served, provider: Provider
) -> None:
    hold = provider.gate()
    provider.play = scenes.retries(hold=hold, asks=False)
    page = open_page()
    run_id = started(page, server, scenes.QUESTION)
    expect(page.locator(".work-line").filter(has_text="planner")).to_contain_text("thinking")
    page.reload()
    expect(page.locator(".work-line").filter(has_text="planner")).to_contain_text("thinking")
    hold.open()
    expect(page.locator(".answer-text")).to_contain_text("Retries are decided in one place")
    all_there(page, server, run_id)


def test_who_goes_elsewhere_before_the_server_has_said_who_they_are_gets_there(
    open_page: Open, server: Served
) -> None:
    page = open_page()
    held: list[Any] = []

    def hold(route: Any) -> None:  # answered when this test says so
        held.append(route)

    page.route("**/api/v1/me", hold)
    with page.expect_request("**/api/v1/me"):
        page.reload(wait_until="commit")
    page.evaluate("() => customElements.whenDefined('r-ask')")
    page.evaluate(GOES, "#/runs")
    page.evaluate(GOES, "#/")
    print("HELD", [r.request.url for r in held])
    held[0].continue_()
    page.on("request", lambda r: print("REQ", r.url))
    page.on("response", lambda r: print("RES", r.url, r.status))
    expect(page.locator(".example").first).to_be_visible()


def test_a_run_that_ended_before_the_news_began_is_in_the_lists(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.says("Done.")
    page = open_page()
    page.goto("about:blank")
    held: list[Any] = []

    def hold(route: Any) -> None:  # the news begin when this test says so
        held.append(route)

    page.route("**/api/v1/stream*", hold)
    with page.expect_request("**/api/v1/stream*"), page.expect_response("**/api/v1/runs?*limit=30*"):
        page.goto(f"{server.url}/#/runs", wait_until="commit")
    expect(page.get_by_text("Nothing was asked yet")).to_be_visible()
    run_id = server.api("POST", "runs", {"prompt": "Too fast to be news."})["run_id"]
    assert page.context.request.get(f"{server.url}/api/v1/runs/{run_id}/stream?until=end").ok
    held[0].continue_()
    expect(page.locator(".recent")).to_contain_text("Too fast to be news.")
    expect(page.locator(".run-list")).to_contain_text("Too fast to be news.")


def test_a_reload_in_the_middle_of_an_answer_shows_its_beginning(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.says("The beginning.\n\nThe middle of it", pieces=100, delay=0.01, hang_after=28)
    page = open_page()
    started(page, server, "Say it.")
    expect(page.locator(".live")).to_contain_text("The middle")
    page.reload()
    expect(page.locator(".live")).to_contain_text("The beginning.")
    expect(page.locator(".live")).to_contain_text("The middle")


def test_a_stopped_server_is_said_and_the_same_page_goes_on(
    open_page: Open, server: Served, provider: Provider
) -> None:
    hold = provider.gate()
    provider.play = scenes.retries(hold=hold, asks=False)
    page = open_page(forgive=GONE)
    run_id = started(page, server, scenes.QUESTION)
    expect(page.locator(".work-line").filter(has_text="planner")).to_contain_text("thinking")
    server.stop()
    expect(page.locator("#lost")).to_contain_text("Not live")
    expect(page.get_by_text("Connection lost.")).to_be_visible()
    hold.open()
    server.start()
    expect(page.locator(".answer-text")).to_contain_text("Retries are decided in one place")
    expect(page.locator(".bar:visible")).to_have_count(0)
    all_there(page, server, run_id)


def test_a_killed_server_loses_nothing_and_repeats_nothing(
    open_page: Open, server: Served, provider: Provider
) -> None:
    hold = provider.gate()

    def play(seen: SeenRequest) -> Script:
        if seen.turn < 3:
            return Script(calls=(call("ls", path="src"),) if seen.turn else (call("read", path="notes.md"),))
        return Script(text="The end.", gate=hold.event)

    provider.play = play
    page = open_page(forgive=GONE)
    run_id = started(page, server, "Look three times.")
    expect(page.locator(".run-facts")).to_contain_text("3 tool calls")
    expect(page.get_by_role("treeitem").filter(has_text="thinking")).to_be_visible()
    server.kill()
    expect(page.locator("#lost")).to_be_visible()
    hold.open()
    server.start()
    expect(page.locator(".answer-text")).to_have_text("The end.")
    expect(page.locator(".run-facts")).to_contain_text("3 tool calls")
    all_there(page, server, run_id)


def test_a_run_whose_process_is_gone_is_interrupted_and_can_be_resumed(
    open_page: Open, own_server: Served
) -> None:
    spec = AgentSpec(name="general", description="one", prompt="You are one.")
    stamp: dict[str, Any] = {"run_id": "rgone", "root_id": "rgone", "parent_id": None, "depth": 0}
    at = time.time() - 600
    began = RunStarted(
        **stamp, seq=1, at=at, spec=spec, prompt="Go on.", cwd="/elsewhere", host=socket.gethostname(), pid=0
    )
    db = f"sqlite://{own_server.home}/log.db"
    again = StepRetried(**stamp, seq=3, at=at + 3, step=1, reason="busy", attempt=1, wait=1)
    plant(db, [began, StepStarted(**stamp, seq=2, at=at, step=1, model="fake"), again])
    own_server.start("--db", db)
    page = open_page("#/run/rgone")
    expect(page.locator(".run-head .badge")).to_have_text("interrupted")
    expect(page.locator(".run-facts")).to_contain_text("3.0 s")
    expect(page.locator(".run-head").get_by_role("button", name="Resume")).to_be_visible()
    expect(page.locator(".mark.running")).to_have_count(0)
    expect(page.locator(".recent").get_by_role("img", name="interrupted")).to_be_visible()


def test_a_question_that_waits_outlives_the_server(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.writer("kept.txt")
    page = open_page(forgive=GONE)
    started(page, server, "Write it.")
    dialog = page.get_by_role("dialog", name="Approval")
    expect(dialog).to_be_visible()
    server.kill()
    expect(page.locator("#lost")).to_be_visible()
    dialog.get_by_role("button", name="Approve").click()
    expect(dialog.get_by_role("alert")).to_contain_text("cannot be reached")
    server.start()
    expect(page.locator("#lost")).to_have_count(0)
    # What went wrong then is not what is wrong now.
    expect(dialog.get_by_role("alert")).to_have_text("Connected again. Your answer was not sent.")
    dialog.get_by_role("button", name="Approve").click()
    expect(page.locator(".answer-text")).to_contain_text("Done.")
    assert (server.folder / "kept.txt").exists()


@pytest.mark.parametrize("known", [False, True], ids=["not loaded before", "loaded before"])
def test_a_view_opened_without_a_server_says_so_and_comes_when_the_server_does(
    open_page: Open, server: Served, known: bool
) -> None:
    page = open_page("#/runs" if known else "", forgive=GONE)
    if known:
        expect(page.get_by_role("heading", name="Nothing was asked yet")).to_be_visible()
        page.get_by_role("link", name="Ask", exact=True).click()
    expect(page.get_by_label("Your question")).to_be_visible()
    server.stop()
    expect(page.get_by_text("Connection lost.")).to_be_visible()
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("main").get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    server.start()
    expect(page.get_by_role("heading", name="Nothing was asked yet")).to_be_visible()
    expect(page.get_by_text("Connection lost.")).to_be_hidden()


def test_a_send_that_fails_keeps_what_was_written(
    open_page: Open, server: Served, provider: Provider
) -> None:
    page = open_page(forgive=GONE)
    page.get_by_label("Your question").fill("A long question that nobody wants to type again.")
    server.stop()
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert").filter(has_text="cannot be reached")).to_be_visible()
    expect(page.get_by_label("Your question")).to_have_value(
        "A long question that nobody wants to type again."
    )
    server.start()
    provider.play = scenes.says("Here.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer-text")).to_have_text("Here.")


def test_two_tabs_share_one_stream_of_news(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = scenes.writer()
    first = open_page()
    expect(first.get_by_label("Your question")).to_be_visible()
    second = first.context.new_page()
    second.goto(f"{server.url}/#/runs")
    expect(second.get_by_role("heading", name="Nothing was asked yet")).to_be_visible()
    server.api("POST", "runs", {"prompt": "Write it."})
    for page in (first, second):
        expect(page.locator(".nav .count")).to_contain_text("1")
    leads = "() => import('/js/inbox.js').then(({ inbox }) => inbox.feed !== null)"
    assert [first.evaluate(leads), second.evaluate(leads)] == [True, False]
    first.close()
    second.wait_for_function(leads)
    expect(second.locator(".nav .count")).to_contain_text("1")
