"""The other views: runs and comparing, agents, stats, settings, sources, what was looked up first."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import scenes
from playwright.sync_api import Page, Route, expect
from served import Provider, Served, part

from claims.pages import BRIDGE
from retinue import Retinue
from retinue.testing import Script, ScriptedModel, SeenRequest, call
from retinue.types import Usage

Open = Callable[..., Page]


def finished(server: Served, page: Page, **given: object) -> str:
    """A run from its start to its end, as another client sees it."""
    run_id: str = server.api("POST", "runs", given)["run_id"]
    assert page.context.request.get(f"{server.url}/api/v1/runs/{run_id}/stream?until=end").ok
    return run_id


def test_yesterdays_run_is_found_by_a_word(open_page: Open, server: Served, provider: Provider) -> None:
    page = open_page()
    provider.play = lambda seen: Script(text=f"About {seen.asked}")
    for prompt in ("How do birds navigate?", "Which fonts are free?", "Why is the sky blue?"):
        finished(server, page, prompt=prompt)
    page.get_by_role("link", name="Runs", exact=True).click()
    rows = page.locator(".run-row")
    expect(rows).to_have_count(3)
    expect(page.get_by_role("heading", name="Today")).to_be_visible()
    page.get_by_label("Search tasks and answers").fill("fonts")
    expect(rows).to_have_count(1)
    assert "text=fonts" in page.url
    page.reload()
    expect(rows).to_have_count(1)
    rows.get_by_role("link").click()
    expect(page.locator(".answer-text")).to_have_text("About Which fonts are free?")


def test_a_list_of_many_runs_keeps_its_place_and_its_end_while_runs_start(
    open_page: Open, own_server: Served, provider: Provider, tmp_path: Path
) -> None:
    provider.play = scenes.says("Done.")
    db = f"sqlite://{tmp_path}/many.db"

    async def many() -> None:
        model = ScriptedModel(["Done."] * 120)
        async with Retinue(model=model, db=db, cwd=own_server.folder, environ={}) as retinue:
            for number in range(120):
                await retinue.run("general", f"Number {number}.")

    with ThreadPoolExecutor() as beside:  # here a loop runs already
        beside.submit(asyncio.run, many()).result()
    own_server.start("--db", db)
    page = open_page("#/runs")
    rows = page.locator(".run-row")
    expect(rows).to_have_count(50)
    held: list[Route] = []
    slow = threading.Event()
    slow.set()

    def pass_on(route: Route) -> None:
        held.append(route) if slow.is_set() and "cursor=" not in route.request.url else route.continue_()

    page.route("**/api/v1/runs?*", pass_on)
    finished(own_server, page, prompt="One more.")
    while not held:  # what shows the new run is asked for, and slow
        page.wait_for_timeout(50)
    rows.last.scroll_into_view_if_needed()
    page.locator(".list-end").scroll_into_view_if_needed()
    expect(rows.nth(99)).to_be_attached()
    slow.clear()
    for route in held:
        route.continue_()
    expect(rows.first).to_contain_text("One more.")
    page.locator(".list-end").scroll_into_view_if_needed()
    expect(rows).to_have_count(121)
    tasks = page.locator(".run-task > :first-child").all_inner_texts()
    assert tasks == ["One more.", *(f"Number {number}." for number in reversed(range(120)))]


def test_a_run_of_another_folder_says_where_it_worked(
    open_page: Open, server: Served, provider: Provider
) -> None:
    page = open_page()
    provider.play = lambda seen: Script(text="Here.")
    finished(server, page, prompt="Where am I?")
    other = server.home / "other-place"
    other.mkdir()
    asked = [sys.executable, "-m", "retinue", "ask", "Where is this?"]
    subprocess.run(asked, cwd=other, env=server.env, check=True, capture_output=True)
    page.goto(f"{server.url}/#/runs")
    here, there = (page.locator(".run-row", has_text=text) for text in ("Where am I?", "Where is this?"))
    expect(there).to_contain_text("in other-place")
    expect(here).not_to_contain_text("in project")
    there.get_by_role("link").click()
    expect(page.locator(".run-facts")).to_contain_text("in other-place")


def test_runs_are_filtered_by_status_and_children_shown_on_request(
    open_page: Open, server: Served, provider: Provider
) -> None:
    page = open_page()
    provider.play = scenes.retries(asks=False)
    run_id = finished(server, page, prompt=scenes.QUESTION)
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.locator(".run-facts")).to_contain_text("tool calls in all")
    provider.play = lambda seen: Script(status=401, message="no")
    finished(server, page, prompt="This fails.")
    page.goto(f"{server.url}/#/runs")
    rows = page.locator(".run-row")
    expect(rows).to_have_count(2)
    page.get_by_label("Status").select_option("error")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("This fails.")
    page.get_by_label("Status").select_option("")
    page.get_by_label("Children too").check()
    expect(rows).to_have_count(4)
    page.get_by_label("Search tasks and answers").fill("nothing like this")
    expect(page.get_by_role("heading", name="No run fits")).to_be_visible()


def test_a_run_that_did_not_finish_has_no_mark_of_success_anywhere(
    open_page: Open, server: Served, provider: Provider
) -> None:
    server.write(
        ".retinue/agents/hasty.md",
        "---\nname: hasty\ndescription: Stops soon.\ntools: [read]\nmax_turns: 1\n---\nYou are `hasty`.\n",
    )
    provider.play = lambda seen: Script(text="So far.", calls=(call("read", path="notes.md"),))
    page = open_page()
    run_id = finished(server, page, prompt="Look at everything.", agent="hasty")
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.locator(".notice.warning")).to_contain_text("Not finished")
    expect(page.locator(".run-head .badge")).to_have_text("incomplete")
    for place in (".recent", ".step.run"):
        expect(page.locator(place).get_by_role("img", name="incomplete")).to_be_visible()
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator(".run-row").get_by_role("img", name="incomplete")).to_be_visible()
    expect(page.locator(".recent, .run-row").locator(".mark.completed")).to_have_count(0)


def test_two_runs_are_compared(open_page: Open, server: Served, provider: Provider) -> None:
    page = open_page()
    for text in ("Same beginning.\n\nThe first end.", "Same beginning.\n\nThe second end."):
        provider.play = scenes.says(text)
        finished(server, page, prompt="How does it end?")
    page.goto(f"{server.url}/#/runs")
    boxes = page.get_by_role("checkbox", name="Choose to compare")
    expect(boxes).to_have_count(2)
    for box in boxes.all():
        box.check()
    page.get_by_role("button", name="Compare these two").click()
    expect(page.locator(".diff .removed")).to_have_text("-The first end.\n")
    expect(page.locator(".diff .added")).to_have_text("+The second end.\n")
    expect(page.get_by_role("row", name="Turns")).to_contain_text("same")


def test_a_run_is_exported_as_a_file(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = scenes.says("The answer.")
    page = open_page()
    run_id = finished(server, page, prompt="A question.")
    page.goto(f"{server.url}/#/run/{run_id}")
    page.get_by_text("Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Every event").click()
    lines = waiting.value.path().read_text().splitlines()
    assert json.loads(lines[0])["type"] == "run_started"
    assert json.loads(lines[-1])["type"] == "run_finished"


def test_the_catalogue_shows_agents_and_what_is_wrong_with_files(
    open_page: Open, server: Served, provider: Provider
) -> None:
    server.write(".retinue/agents/broken.md", "---\nname: broken\nmax_turns: many\n---\nhi\n")
    page = open_page("#/agents")
    expect(page.locator(".notice.error").first).to_contain_text("must be a whole number")
    card = page.locator(".agent-card").filter(has_text="scribe")
    expect(card).to_contain_text("this project")
    page.get_by_label("Search agents and tools").fill("bash")
    expect(page.locator(".agent-card")).to_have_count(1)
    card.get_by_role("link").click()
    expect(page.get_by_role("heading", name="scribe", level=1)).to_be_visible()
    expect(page.locator(".tool-list")).to_contain_text("bash")
    expect(page.locator(".agent-prompt")).to_contain_text("You write what you are told.")
    provider.play = lambda seen: Script(text=f"I am {part(seen)}")
    page.get_by_label("Try scribe").fill("Who are you?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer-text")).to_have_text("I am scribe")


def test_the_catalogue_shows_skills_and_own_tools_with_their_origin(open_page: Open, server: Served) -> None:
    server.write(
        ".agents/skills/forms/SKILL.md", "---\nname: forms\ndescription: Use for forms.\n---\nDo it.\n"
    )
    server.write(".agents/skills/silent/SKILL.md", "---\nname: silent\n---\nDo it.\n")
    page = open_page("#/agents")
    skills = page.get_by_role("region", name="Skills")
    expect(skills).to_contain_text("Use for forms.")
    expect(skills).to_contain_text(".agents/skills/forms")
    expect(skills.locator(".notice.error")).to_have_count(1)
    expect(page.get_by_role("region", name="Your own tools")).to_contain_text("None.")


def test_a_new_agent_file_counts_while_the_server_runs(
    open_page: Open, server: Served, provider: Provider
) -> None:
    page = open_page("#/agents")
    expect(page.locator(".agent-card").filter(has_text="scribe")).to_be_visible()
    server.write(
        ".retinue/agents/herald.md",
        "---\nname: herald\ndescription: Says `hear, hear` first. For news.\n---\nYou are `herald`.\n",
    )
    page.reload()
    card = page.locator(".agent-card").filter(has_text="herald")
    expect(card.locator("code")).to_have_text("hear, hear")
    provider.play = lambda seen: Script(text=f"I am {part(seen)}")
    page.get_by_role("link", name="Ask", exact=True).click()
    expect(page.locator(".example").first).to_be_visible()
    server.write(".retinue/agents/crier.md", "---\nname: crier\ndescription: Cries.\n---\nYou are `crier`.\n")
    page.get_by_label("Your question").fill("@crier Who are you?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer-text")).to_have_text("I am crier")
    page.goto(f"{server.url}/#/")
    page.get_by_label("Your question").fill("@herald Who are you?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer-text")).to_have_text("I am herald")


def test_in_a_wide_window_the_conversation_stays_beside_every_tab(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.says("Here it is.")
    page = open_page()
    run_id = finished(server, page, prompt="Where is it?")
    for tab in ("chat", "timeline", "log", "chat", "steps"):
        page.goto(f"{server.url}/#/run/{run_id}/{tab}")
        chosen = "Steps" if tab == "chat" else tab.capitalize()
        expect(page.get_by_role("tab", name=chosen)).to_have_attribute("aria-selected", "true")
        expect(page.locator(".chat-pane")).to_contain_text("Here it is.")


def test_why_a_run_failed_is_said_once(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = lambda seen: Script(status=401, message="the key is wrong")
    page = open_page()
    page.get_by_label("Your question").fill("Will it fail?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".chat-pane")).to_contain_text("This run failed.")
    expect(page.locator(".chat-pane").get_by_text("the key is wrong")).to_have_count(1)


def test_a_setting_is_changed_and_says_where_it_comes_from(open_page: Open, server: Served) -> None:
    page = open_page("#/settings")
    row = page.locator(".setting").filter(has_text="limits.max_turns")
    expect(row.locator(".badge")).to_have_text("default")
    page.get_by_label("limits.max_turns").fill("7")
    row.get_by_role("button", name="Save").click()
    expect(row.locator(".badge")).to_have_text("your file")
    file = server.home / "config" / "retinue" / "config.toml"
    assert tomllib.loads(file.read_text())["limits"]["max_turns"] == 7
    page.reload()
    expect(page.get_by_label("limits.max_turns")).to_have_value("7")
    row.get_by_role("button", name="Reset").click()
    expect(page.get_by_label("limits.max_turns")).to_have_value("25")
    expect(row.locator(".badge")).to_have_text("default")


def test_a_setting_that_makes_no_sense_is_refused_where_it_was_written(open_page: Open) -> None:
    page = open_page("#/settings", forgive=("422",))
    box = page.get_by_label("limits.max_turns")
    box.fill("-3")
    box.press("Enter")
    row = page.locator(".setting").filter(has_text="limits.max_turns")
    expect(row.get_by_role("alert")).to_contain_text("must be whole number ≥ 1")
    expect(box).to_have_attribute("aria-invalid", "true")
    row.get_by_role("button", name="Undo").click()
    expect(box).to_have_value("25")
    expect(row.locator(".setting-failed")).to_be_empty()


def test_a_change_that_is_not_saved_is_kept_and_said(open_page: Open, server: Served) -> None:
    page = open_page("#/settings")
    box = page.get_by_label("limits.max_turns")
    box.fill("7")
    page.get_by_label("limits.tool_timeout").fill("30")
    expect(page.locator("#unsaved")).to_contain_text(
        "2 changes not saved yet: limits.max_turns, limits.tool_timeout"
    )
    page.get_by_role("link", name="Stats", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="2 changes not saved yet")).to_be_visible()
    expect(page.get_by_role("heading", name="Stats")).to_be_visible()
    # A tab that is closed with something unsaved asks first.
    asks = "() => { const going = new Event('beforeunload', { cancelable: true }); dispatchEvent(going); return going.defaultPrevented; }"
    assert page.evaluate(asks) is True
    page.get_by_role("link", name="Settings", exact=True).click()
    expect(box).to_have_value("7")
    row = page.locator(".setting").filter(has_text="limits.max_turns")
    row.get_by_role("button", name="Undo").click()
    expect(box).to_have_value("25")
    expect(page.locator("#unsaved")).to_contain_text("1 change not saved yet: limits.tool_timeout")
    page.locator("#unsaved").get_by_role("button", name="Save").click()
    expect(page.locator("#unsaved")).to_be_hidden()
    depth = page.locator(".setting").filter(has_text="limits.tool_timeout")
    expect(depth.locator(".badge")).to_have_text("your file")
    assert page.evaluate(asks) is False
    depth.get_by_role("button", name="Reset").click()
    expect(depth.locator(".badge")).to_have_text("default")


def test_settings_can_be_searched(open_page: Open) -> None:
    page = open_page("#/settings")
    page.get_by_label("Search settings").fill("cache")
    shown = page.locator(".setting:visible label")
    expect(shown).to_have_text(["web.cache_ttl", "knowledge.cache_ttl"])
    page.get_by_label("Search settings").fill("")
    page.get_by_label("Only what is not a default").check()
    expect(page.locator(".setting:visible label").first).to_have_text("model")
    expect(page.locator(".setting:visible").first.locator(".badge")).to_have_text("environment")


def test_costs_and_tokens_are_plotted(open_page: Open, own_server: Served, provider: Provider) -> None:
    own_server.write(
        "../config/retinue/config.toml", '[prices."openai:fake-model"]\ninput = 100\noutput = 1000\n'
    )
    own_server.start()
    page = open_page()
    provider.play = scenes.says("Cheap.", usage=Usage(input_tokens=1000, output_tokens=100))
    finished(own_server, page, prompt="What does this cost?")
    page.goto(f"{own_server.url}/#/stats")
    figures = page.locator(".figures .card")
    expect(figures.filter(has_text="Cost")).to_contain_text("$0.200")
    expect(figures.filter(has_text="Tokens in")).to_contain_text("1.0k")
    expect(page.get_by_role("img", name="Cost by day")).to_be_visible()
    expect(page.get_by_role("list", name="Tokens by agent")).to_contain_text("general")
    page.get_by_role("button", name="7 days").click()
    expect(page.get_by_role("img", name="Tokens by day").locator(".bar")).to_have_count(7)


def test_sources_are_marked_as_verified_or_not(open_page: Open, server: Served, provider: Provider) -> None:
    page = open_page()
    provider.play = scenes.retries(asks=False)
    run_id = finished(server, page, prompt=scenes.QUESTION)
    page.goto(f"{server.url}/#/run/{run_id}/sources")
    found = page.locator(".source").filter(has_text="example.com/backoff")
    expect(found.locator(".badge")).to_have_text("Not verified")
    expect(page.locator("r-sources .notice.warning")).to_contain_text("never fetched")
    chip = page.locator(".answer-sources .source-chip").filter(has_text="example.com")
    expect(chip).to_contain_text("not verified")


def test_a_verified_source_says_what_it_rests_on(open_page: Open, server: Served, provider: Provider) -> None:
    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(calls=(call("read", path="src/retry.py"),))
        return Script(text="It doubles: `src/retry.py:1-2` says so.")

    provider.play = play
    page = open_page()
    run_id = finished(server, page, prompt="How long does it wait?")
    page.goto(f"{server.url}/#/run/{run_id}/sources")
    source = page.locator(".source")
    expect(source.locator(".badge")).to_have_text("Verified")
    text = (server.folder / "src/retry.py").read_bytes()
    expect(source).to_contain_text("Lines 1 to 2 were read by general with read on ")
    expect(source.locator("code")).to_have_attribute("title", hashlib.sha256(text).hexdigest())
    expect(page.locator("r-sources")).to_contain_text("1 source: verified")
    expect(page.locator("r-sources")).to_contain_text(
        "a step of this run really fetched the page or read these"
    )
    source.get_by_role("button", name="Its step").click()
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("readsrc/retry.py")


class _Bridge(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(BRIDGE.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing of it belongs into the output of tests."""


@pytest.fixture
def page_of_a_bridge() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Bridge) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/bridge"
        server.shutdown()


def test_each_claim_is_shown_with_what_its_source_says(
    open_page: Open, own_server: Served, provider: Provider, page_of_a_bridge: str
) -> None:
    host = page_of_a_bridge.split("/")[2]
    own_server.write("../config/retinue/config.toml", f'[web]\nallow_hosts = ["{host}"]\n')
    own_server.start()

    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(calls=(call("web_fetch", url=page_of_a_bridge),))
        return Script(
            text=f"The main span is 350 m long. The bridge opened in March 1874. {page_of_a_bridge}"
        )

    provider.play = play
    page = open_page()
    run_id = finished(own_server, page, prompt=f"How long is the bridge? {page_of_a_bridge}")
    page.goto(f"{own_server.url}/#/run/{run_id}")
    answer = page.locator(".answer-text")
    expect(answer.locator(".claim-mark.contradicted")).to_have_text("The main span is 350 m long")
    expect(answer.locator(".claim-mark.supported")).to_have_text("The bridge opened in March 1874")
    expect(page.locator(".claims-badge")).to_have_text("1 of 2 claims supported")
    answer.locator(".claim-open.contradicted").click()
    shown = page.locator(".claim-said:popover-open")
    expect(shown.locator("mark")).to_have_text("330 metres")
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)
    page.goto(f"{own_server.url}/#/run/{run_id}/sources")
    claims = page.locator("r-sources .claims")
    expect(claims.locator("summary")).to_contain_text("1 of 2 claims supported")
    wrong = claims.locator(".claim").filter(has_text="350 m long")
    expect(wrong.locator(".badge")).to_have_text("Contradicted")
    expect(wrong).to_contain_text("It says “350 m”, its source “330 metres”.")


STAYS = """async (summary) => {
  const menu = summary.parentElement;
  summary.click();
  const button = menu.querySelector("button:last-child");
  await new Promise((told) => menu.addEventListener("toggle", told, { once: true }));
  return button !== null && button.isConnected;
}"""
"""Whether what a menu has when it is opened is what it has once that is told."""


def test_a_run_is_deleted_after_a_question_and_by_the_keyboard_alone(
    open_page: Open, server: Served, provider: Provider
) -> None:
    page = open_page()
    provider.play = scenes.retries(asks=False)
    gone = finished(server, page, prompt="Delete me.")
    provider.play = scenes.says("Stay.")
    stays = finished(server, page, prompt="Keep me.")
    page.get_by_role("link", name="Runs", exact=True).click()
    rows = page.locator(".run-row")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="Delete me.")).to_contain_text("2 children")
    more = rows.filter(has_text="Delete me.").get_by_label("More about")
    dialog = page.get_by_role("dialog", name="Delete this run?")

    def ask() -> None:
        more.focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Delete…").focus()
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("its 2 children are gone for good")

    ask()
    expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(rows).to_have_count(2)
    expect(more).to_be_focused()
    more.press("Enter")
    expect(page.get_by_role("button", name="Delete…")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Delete…")).to_have_count(0)
    assert more.evaluate(STAYS), "who is quicker than the page keeps the button that has the keyboard"
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Delete…")).to_have_count(0)
    ask()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(page.locator(".recent a")).to_have_count(1)
    expect(rows.get_by_role("link")).to_be_focused()
    assert [run["run_id"] for run in server.api("GET", "runs")["runs"]] == [stays]
    assert gone != stays


def test_the_timeline_shows_who_ran_when_and_leads_to_the_step(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.retries(asks=False)
    page = open_page()
    run_id = finished(server, page, prompt=scenes.QUESTION)
    page.goto(f"{server.url}/#/run/{run_id}/timeline")
    lanes = page.get_by_role("list", name="Runs over time").get_by_role("listitem")
    expect(lanes).to_have_count(3)
    expect(lanes.nth(2).get_by_role("img", name="planner: from")).to_be_visible()
    expect(page.get_by_role("row", name="code-search")).to_be_visible()
    whole = lanes.nth(0).locator(".bar-run").bounding_box()
    child = lanes.nth(2).locator(".bar-run").bounding_box()
    assert whole is not None
    assert child is not None
    assert whole["x"] <= child["x"] + 1
    assert child["x"] + child["width"] <= whole["x"] + whole["width"] + 1
    page.get_by_role("button", name="Closer").click()
    expect(page.locator("r-timeline")).to_contain_text(" of ")
    lanes.nth(2).get_by_role("button").click()
    expect(page.get_by_role("tab", name="Steps")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("planner")


def test_knowledge_that_was_looked_up_first_is_shown_as_such(
    open_page: Open, own_server: Served, provider: Provider
) -> None:
    own_server.env["RETINUE_KNOWLEDGE_FIRST"] = "true"
    own_server.env["RETINUE_KNOWLEDGE_AGENT"] = "oracle"
    agents = own_server.folder / ".retinue" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    # One that may answer from what it knows: of the built-in ones, what read nothing is no knowledge.
    (agents / "oracle.md").write_text(
        "---\nname: oracle\ndescription: Knows.\ntools: []\n---\nYou are `oracle`.\n"
    )
    own_server.start()

    def play(seen: SeenRequest) -> Script:
        if part(seen) == "oracle":
            return Script(text="- Mount Example is **1,234 m** high.")
        return Script(text="It is 1,234 m high.")

    provider.play = play
    page = open_page()
    page.get_by_label("Your question").fill("How high is the latest measured Mount Example in Norway?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer-text")).to_have_text("It is 1,234 m high.")
    block = page.locator(".knowledge")
    expect(block).to_contain_text("looked up by oracle in 1 turn")
    block.locator("summary").click()
    expect(block.locator("strong").last).to_have_text("1,234 m")
    expect(page.get_by_role("treeitem").filter(has_text="oracle").first).to_be_visible()


@pytest.mark.parametrize("path", ["#/run/r0000000000000000", "#/nowhere"])
def test_an_address_of_nothing_says_so(open_page: Open, path: str) -> None:
    page = open_page(path, forgive=("404",))
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "There is no such run" if "run" in path else "There is nothing here"
    )


def test_one_line_of_an_answer_has_its_words_without_the_marks(open_page: Open) -> None:
    page = open_page()
    text = "## Found\n\n- **two** places: `2 ** attempt`, a*b\n> said so"
    said = page.evaluate("text => import('/js/words.js').then(({ unmarked }) => unmarked(text))", text)
    assert said.split("\n") == ["Found", "two places: 2 ** attempt, a*b", "said so"]


def test_an_emoji_that_no_font_has_is_left_out(open_page: Open) -> None:
    page = open_page()
    drawn = "texts => import('/js/emoji.js').then(({ emoji }) => texts.map(emoji))"
    assert page.evaluate(drawn, ["\U0010fffd", "\U0010fffc\ufe0f", "§", ""]) == ["", "", "§", ""]


def test_a_model_without_a_name_is_named_once_it_has_answered(
    open_page: Open, own_server: Served, provider: Provider
) -> None:
    own_server.env["RETINUE_MODEL"] = "openai:"
    own_server.start()
    provider.play = scenes.says("It is me.")
    page = open_page()
    expect(page.get_by_label("Model", exact=True)).to_contain_text("openai, its only model (default)")
    run_id = finished(own_server, page, prompt="Who answers?")
    page.goto(f"{own_server.url}/#/run/{run_id}")
    expect(page.locator(".run-facts")).to_contain_text("openai:fake-model")
