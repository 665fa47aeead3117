"""Asking: from the question to the answer, what is seen on the way, and how to go on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import scenes
from playwright.sync_api import Page, expect
from served import Provider, Served, part

from retinue.testing import Script, SeenRequest, call

Open = Callable[..., Page]


def ask(page: Page, question: str) -> None:
    page.get_by_label("Your question").fill(question)
    page.get_by_role("button", name="Send").click()


def test_a_question_is_answered_on_the_page(open_page: Open, provider: Provider) -> None:
    provider.play = scenes.says("## Retries\n\nThey are decided in `retry.py`, **line 12**.")
    page = open_page()
    ask(page, "Where are retries decided?")
    answer = page.locator(".answer-text")
    expect(answer.locator("code")).to_have_text("retry.py")
    expect(answer.locator("strong")).to_have_text("line 12")
    expect(page.locator(".run-head .badge")).to_have_text("completed")
    expect(page.locator(".bubble")).to_have_text("Where are retries decided?")


def test_an_answer_is_read_while_it_arrives(open_page: Open, provider: Provider) -> None:
    page = open_page()
    # The first half comes at once, and then nothing more until the connection is given up.
    provider.play = scenes.says(
        "First paragraph.\n\nSecond **paragraph**", pieces=60, delay=0.01, hang_after=26
    )
    ask(page, "Write slowly.")
    live = page.locator(".live")
    expect(live).to_contain_text("First paragraph.")
    expect(page.locator(".run-head .badge")).to_have_text("running")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".run-head .badge")).to_have_text("cancelled")
    expect(page.locator(".answer")).to_contain_text("First paragraph.")


def test_children_are_seen_at_work_below_their_parent(open_page: Open, provider: Provider) -> None:
    hold = provider.gate()
    provider.play = scenes.retries(hold=hold, asks=False)
    page = open_page()
    ask(page, scenes.QUESTION)
    tree = page.get_by_role("tree", name="Steps")
    planner = tree.get_by_role("treeitem").filter(has_text="planner")
    expect(planner.first.get_by_role("img", name="running")).to_be_visible()
    expect(planner.first).to_have_attribute("aria-level", "2")
    expect(tree.get_by_role("treeitem").filter(has_text="thinking")).to_have_attribute("aria-level", "3")
    expect(page.locator(".work-line").filter(has_text="planner")).to_contain_text("thinking")
    hold.open()
    expect(planner.first.get_by_role("img", name="completed")).to_be_visible()
    expect(page.locator(".answer-text")).to_contain_text("Retries are decided in one place")
    finder = tree.get_by_role("treeitem").filter(has_text="code-search").first
    finder.click()
    missing = tree.get_by_role("treeitem").filter(has_text="src/missing.py")
    missing.click()
    expect(page.get_by_role("group", name="Details of read")).to_contain_text("there is no file")


def test_a_conversation_goes_on_after_its_answer(open_page: Open, provider: Provider) -> None:
    provider.play = lambda seen: Script(text=f"You said: {scenes.last_said(seen)}")
    page = open_page()
    ask(page, "The first thing.")
    expect(page.locator(".answer-text")).to_have_text("You said: The first thing.")
    page.get_by_label("Message").fill("And the second.")
    page.keyboard.press("Enter")
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn").nth(1).locator(".answer-text")).to_have_text("You said: And the second.")
    expect(page.locator(".turn").nth(0).locator(".answer-text")).to_have_text("You said: The first thing.")


def test_a_running_agent_can_be_told_something(open_page: Open, provider: Provider) -> None:
    hold = provider.gate()

    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(calls=(call("ls"),), gate=hold.event)
        return Script(text=f"Told: {scenes.last_said(seen)}")

    provider.play = play
    page = open_page()
    ask(page, "Look around.")
    expect(page.locator(".run-head .badge")).to_have_text("running")
    page.get_by_label("Message").fill("Only the tests, please.")
    page.get_by_label("Message").press("Enter")
    expect(page.locator(".small-bubble")).to_have_text("Only the tests, please.")
    hold.open()
    expect(page.locator(".answer-text")).to_contain_text("Only the tests, please.")


def test_the_agent_and_the_model_can_be_chosen(open_page: Open, provider: Provider) -> None:
    provider.play = lambda seen: Script(text=f"{part(seen)} on {seen.model}")
    page = open_page()
    page.get_by_label("Agent", exact=True).select_option("planner")
    page.get_by_label("Model", exact=True).select_option(label="Another model…")
    page.get_by_label("Name of the model").fill("openai:another-model")
    ask(page, "Plan it.")
    expect(page.locator(".answer-text")).to_have_text("planner on another-model")


def test_an_at_sign_offers_agents_to_the_keyboard(open_page: Open, provider: Provider) -> None:
    provider.play = lambda seen: Script(text=f"{part(seen)}: {seen.asked}")
    page = open_page()
    expect(page.get_by_label("Agent", exact=True)).to_have_value("general")
    page.get_by_label("Your question").press_sequentially("@re")
    offers = page.get_by_role("listbox", name="Agents")
    # agentic-fetch has no "re"; code-review and three more do
    expect(offers.get_by_role("option")).to_have_count(4)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(offers.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(offers).to_be_hidden()
    expect(page.get_by_label("Your question")).to_have_value("@code-review ")
    page.keyboard.type("src")
    page.keyboard.press("Enter")
    expect(page.locator(".answer-text")).to_have_text("code-review: src")


def test_an_attached_file_reaches_the_model(open_page: Open, provider: Provider, tmp_path: Path) -> None:
    provider.play = lambda seen: Script(
        text="yes" if "the magic word is xyzzy" in str(seen.messages) else "no"
    )
    file = tmp_path / "secret.txt"
    file.write_text("the magic word is xyzzy")
    page = open_page()
    page.locator("input[type=file]").set_input_files([str(file)])
    expect(page.locator(".chip")).to_contain_text("secret.txt")
    written = 'What is the magic word? 🔑 <attachment name="mine" kind="text">\nmy own words\n</attachment>'
    ask(page, written)
    expect(page.locator(".answer-text")).to_have_text("yes")
    expect(page.locator(".bubble")).to_contain_text(written)
    expect(page.locator(".bubble .chip")).to_have_count(1)
    expect(page.locator(".bubble .chip")).to_contain_text("secret.txt")


def test_a_cancelled_tree_stops_and_keeps_its_work(
    open_page: Open, provider: Provider, server: Served
) -> None:
    provider.play = scenes.retries(hold=provider.gate(), asks=False)
    page = open_page()
    ask(page, scenes.QUESTION)
    expect(page.locator(".work-line").filter(has_text="planner")).to_contain_text("thinking")
    page.locator(".run-head").get_by_role("button", name="Cancel").click()
    expect(page.locator(".run-head .badge")).to_have_text("cancelled")
    planner = page.get_by_role("treeitem").filter(has_text="planner").first
    expect(planner.get_by_role("img", name="cancelled")).to_be_visible()
    expect(page.locator(".answer")).to_contain_text("This run was cancelled")


def test_a_failed_model_is_said_plainly_and_can_be_resumed(open_page: Open, provider: Provider) -> None:
    provider.play = lambda seen: Script(status=401, message="this key is not valid")
    page = open_page()
    ask(page, "Anything.")
    expect(page.locator(".run-head .badge")).to_have_text("failed")
    expect(page.locator(".answer .notice.error")).to_contain_text("this key is not valid")
    provider.play = scenes.says("Now it works.")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".answer-text")).to_have_text("Now it works.")
    expect(page.locator(".run-head .badge")).to_have_text("completed")


def test_a_run_is_forked_from_an_event(open_page: Open, provider: Provider) -> None:
    provider.play = scenes.says("The old answer.")
    page = open_page()
    ask(page, "A question.")
    expect(page.locator(".answer-text")).to_have_text("The old answer.")
    old = page.url
    provider.play = scenes.says("A new answer.")
    page.get_by_role("tab", name="Log").click()
    page.get_by_role("button", name="Fork from event 1", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("the first event")
    dialog.get_by_role("button", name="Fork").click()
    expect(page.locator(".answer-text")).to_have_text("A new answer.")
    assert page.url.partition("/run/")[2][:8] != old.partition("/run/")[2][:8]
