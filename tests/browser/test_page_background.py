"""Children that outlive an answer, on the page: at work below a turn that is over, and then the next turn."""

from __future__ import annotations

from collections.abc import Callable

import scenes
from playwright.sync_api import Page, expect
from served import Gate, Play, Provider, Served, part

from retinue.testing import Script, SeenRequest, call

Open = Callable[..., Page]


def planning(hold: Gate, asked: list[str]) -> Play:
    """A root that has a plan made in the background, and answers at once."""

    def play(seen: SeenRequest) -> Script:
        asked.append(part(seen))
        if part(seen) == "planner" and seen.turn == 0:
            return Script(calls=(call("read", path="notes.md"),))
        if part(seen) == "planner":
            return Script(text="1. Count.\n2. Wait.", gate=hold.event)
        if seen.turn == 0:
            task = {"agent_id": "planner", "prompt": "plan it"}
            return Script(calls=(call("parallel_tasks", tasks=[task], wait_all=False),))
        said = scenes.last_said(seen)
        return Script(text="The plan is there." if "planner" in said else f"You said: {said}")

    return play


def ask(page: Page, question: str) -> None:
    page.get_by_label("Your question").fill(question)
    page.get_by_role("button", name="Send").click()


def test_a_child_works_on_below_its_answer_and_opens_the_next_turn(
    open_page: Open, provider: Provider
) -> None:
    hold, asked = provider.gate(), list[str]()
    provider.play = planning(hold, asked)
    page = open_page()
    ask(page, "How should it wait?")
    turns = page.locator(".turn")
    expect(turns.nth(0).locator(".answer-text")).to_have_text("You said: How should it wait?")
    child = turns.nth(0).locator(".work-line").filter(has_text="planner")
    expect(child.get_by_role("img", name="running")).to_be_visible()
    expect(page.locator(".run-head .badge")).to_have_text("running")
    page.get_by_label("Message").fill("And meanwhile?")
    page.keyboard.press("Enter")
    expect(turns.nth(1).locator(".answer-text")).to_have_text("You said: And meanwhile?")
    expect(turns.nth(1).locator(".bubble")).to_have_text("And meanwhile?")
    hold.open()
    expect(turns.nth(2)).to_contain_text("planner ended in the background")
    expect(turns.nth(2).locator(".answer-text")).to_have_text("The plan is there.")
    expect(page.locator(".run-head .badge")).to_have_text("completed")
    expect(turns).to_have_count(3)
    page.reload()
    expect(turns).to_have_count(3)
    expect(turns.nth(2)).to_contain_text("planner ended in the background")
    assert asked.count("general") == 4


def test_a_server_that_is_killed_goes_on_with_the_child_and_the_turn_it_opens(
    open_page: Open, server: Served, provider: Provider
) -> None:
    hold, asked = provider.gate(), list[str]()
    provider.play = planning(hold, asked)
    page = open_page(forgive=("net::ERR", "Failed to load"))
    ask(page, "How should it wait?")
    answer = page.locator(".turn").nth(0).locator(".answer-text")
    expect(answer).to_have_text("You said: How should it wait?")
    expect(
        page.locator(".work-line").filter(has_text="planner").get_by_role("img", name="running")
    ).to_be_visible()
    server.kill()
    server.start()
    page.reload()
    expect(answer).to_have_text("You said: How should it wait?")
    hold.open()
    expect(page.locator(".turn").nth(1)).to_contain_text("planner ended in the background")
    expect(page.locator(".turn").nth(1).locator(".answer-text")).to_have_text("The plan is there.")
    assert asked.count("general") == 3, "what was answered before is not asked again"
    (run,) = (run for run in server.api("GET", "runs?limit=10")["runs"] if run["parent_id"] is None)
    assert run["outcome"] == "completed"
