"""Files on the page: what a run changed and taking it back, copies of the project, asking a child again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, expect
from served import Provider, Served, part

from retinue.testing import Script, SeenRequest, call

Open = Callable[..., Page]

CODER = """---
name: coder
description: Makes one change to the code, in a copy of the project.
icon: "🛠️"
tools: [read, write, edit]
isolation: worktree
---
You are `coder`. You change code.
"""


def finished(server: Served, **given: object) -> str:
    """A run from its start to its end, with everything approved that it asks for."""
    run_id: str = server.api("POST", "runs", given)["run_id"]
    with urllib.request.urlopen(f"{server.url}/api/v1/runs/{run_id}/stream?until=end", timeout=60) as stream:
        for line in stream:
            event = json.loads(line[6:]) if line.startswith(b"data: ") else {}
            if event.get("type") == "approval_requested":
                server.api("POST", f"approvals/{quote(event['approval_id'])}", {"decision": "approve"})
    return run_id


def picture(page: Page, name: str) -> None:
    """Leave a picture to be looked at, if somebody wants one."""
    folder = os.environ.get("RETINUE_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def writes(seen: SeenRequest) -> Script:
    if seen.turn:
        return Script(text="Written.")
    change = call("edit", "one", path="src/retry.py", old="2 **", new="3 **")
    return Script(calls=(change, call("write", "two", path="note.md", content="# A note\n\nof it\n")))


def test_what_a_run_changed_is_shown_and_taken_back_but_for_what_changed_since(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = writes
    page = open_page()
    run_id = finished(server, prompt="Wait longer.", agent="scribe")
    page.goto(f"{server.url}/#/run/{run_id}")
    page.get_by_role("tab", name="Changes").click()
    changes = page.locator("r-changes")
    expect(changes).to_contain_text("2 paths changed, 4 lines added, 1 removed")
    expect(changes.locator(".change .diff .removed")).to_contain_text("return 2 ** attempt")
    expect(changes.locator(".change .diff .added").last).to_contain_text("return 3 ** attempt")
    picture(page, "changes")
    server.write("note.md", "mine\n")
    changes.get_by_role("button", name="Undo").click()
    asked = page.get_by_role("dialog")
    expect(asked).to_contain_text("As they were before the run:src/retry.py")
    expect(asked).to_contain_text("Left as they are:note.md: it was changed since")
    picture(page, "changes-undo")
    asked.get_by_role("button", name="Leave them").click()
    assert "3 **" in (server.folder / "src/retry.py").read_text()
    changes.get_by_role("button", name="Undo").click()
    asked.get_by_role("button", name="Take back the rest").click()
    expect(changes.locator(".change")).to_have_count(1)
    expect(changes.locator(".change")).to_contain_text("note.md")
    expect(changes.get_by_role("button", name="Undo")).to_have_count(0)
    expect(changes).to_contain_text("1 path taken back by person")
    assert "2 **" in (server.folder / "src/retry.py").read_text()
    assert (server.folder / "note.md").read_text() == "mine\n"
    picture(page, "changes-undone")


def test_undo_says_which_files_it_removes(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = writes
    page = open_page()
    run_id = finished(server, prompt="Wait longer.", agent="scribe")
    page.goto(f"{server.url}/#/run/{run_id}")
    page.get_by_role("tab", name="Changes").click()
    page.locator("r-changes").get_by_role("button", name="Undo").click()
    asked = page.get_by_role("dialog")
    expect(asked).to_contain_text("As they were before the run:src/retry.py")
    expect(asked).to_contain_text("Removed, since the run made them:note.md")


def test_a_run_that_changed_nothing_has_no_tab_of_changes(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = lambda seen: Script(text="Nothing to do.")
    page = open_page()
    run_id = finished(server, prompt="Look.", agent="scribe")
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.locator(".answer-text")).to_have_text("Nothing to do.")
    expect(page.get_by_role("tab", name="Log")).to_be_visible()
    expect(page.get_by_role("tab", name="Changes")).to_have_count(0)


def codes(seen: SeenRequest) -> Script:
    if part(seen) == "coder":
        return writes(seen)
    calls = () if seen.turn else (call("coder", prompt="wait longer"), call("coder", prompt="wait longer"))
    return Script(text="" if calls else "Coded.", calls=calls)


def test_copies_of_the_project_are_merged_and_thrown_away(
    open_page: Open, server: Served, provider: Provider
) -> None:
    server.write(".retinue/agents/coder.md", CODER)
    provider.play = codes
    page = open_page()
    run_id = finished(server, prompt="Have it wait longer.", agent="general")
    assert "2 **" in (server.folder / "src/retry.py").read_text()
    page.goto(f"{server.url}/#/run/{run_id}/changes")
    changes, copies = page.locator("r-changes"), page.locator("r-changes .worktree")
    expect(copies).to_have_count(2)
    expect(copies.first.locator(".diff .added").last).to_contain_text("return 3 ** attempt")
    expect(changes).to_contain_text("It changed nothing in the project.")
    picture(page, "changes-copies")
    copies.first.get_by_role("button", name="Merge").click()
    expect(copies).to_have_count(1)
    assert "3 **" in (server.folder / "src/retry.py").read_text()
    expect(changes).to_contain_text("2 paths changed")
    server.write("src/retry.py", "def wait(attempt):\n    return 5 ** attempt\n")
    page.reload()
    expect(copies).to_contain_text("src/retry.py: changed on both sides in the same lines")
    picture(page, "changes-conflict")
    copies.get_by_role("button", name="Discard").click()
    page.get_by_role("dialog").get_by_role("button", name="Throw it away").click()
    expect(copies).to_have_count(0)
    assert "5 **" in (server.folder / "src/retry.py").read_text()


def test_a_child_that_has_ended_is_asked_again_from_its_place_on_the_page(
    open_page: Open, server: Served, provider: Provider
) -> None:
    def play(seen: SeenRequest) -> Script:
        if part(seen) == "scribe":
            return Script(text=f"Answer {seen.turn + 1}.")
        calls = () if seen.turn else (call("scribe", prompt="say something"),)
        return Script(text="" if calls else f"Told {seen.turn} times.", calls=calls)

    provider.play = play
    page = open_page()
    run_id = finished(server, prompt="Have it said.", agent="general")
    (child,) = server.api("GET", f"runs?parent_id={run_id}&children=true")["runs"]
    page.goto(f"{server.url}/#/run/{child['run_id']}")
    to = page.locator(".addressee")
    expect(to).to_contain_text("To scribe, say something")
    box = page.get_by_placeholder("Ask it again: it knows what it did")
    box.fill("And what else?")
    picture(page, "child")
    box.press("Enter")
    # Whether the root is asked once more before the child has ended is a matter of who is faster.
    expect(page.locator(".answer-text").last).to_contain_text(re.compile(r"Told [23] times\."))
    expect(page.locator("r-steps")).to_contain_text("Answer 2.")
    expect(page.locator("r-steps")).to_contain_text("Answer 1.")
    expect(page.locator(".bubble").filter(has_text="And what else?")).to_contain_text("To scribe")
    picture(page, "child-again")
    to.get_by_role("button", name="Speak to the run instead").click()
    expect(to).to_be_hidden()
    expect(page.get_by_placeholder("Go on with this conversation")).to_be_visible()


def test_a_child_is_asked_again_on_a_small_screen_and_its_long_task_widens_nothing(
    open_page: Open, server: Served, provider: Provider
) -> None:
    def play(seen: SeenRequest) -> Script:
        if part(seen) == "scribe":
            return Script(text="Answer.")
        calls = () if seen.turn else (call("scribe", prompt="say something " * 20),)
        return Script(text="" if calls else "Told.", calls=calls)

    provider.play = play
    run_id = finished(server, prompt="Have it said.", agent="general")
    page = open_page(f"#/run/{run_id}/steps", viewport={"width": 390, "height": 844})
    page.locator(".step.run").filter(has_text="scribe").click()
    page.locator(".step.report").filter(has_text="Answer.").first.click()
    page.get_by_role("button", name="Ask it again").click()
    expect(page.locator(".addressee")).to_contain_text("To scribe")
    for part_of_it in (".addressee", ".compose-line", ".bubble"):
        place = page.locator(part_of_it).first.bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= 390, (part_of_it, place)
    picture(page, "child-narrow")


def test_a_child_that_cannot_be_asked_here_says_why_and_keeps_what_was_written(
    open_page: Open, server: Served, provider: Provider
) -> None:
    def play(seen: SeenRequest) -> Script:
        if part(seen) == "code-search" or seen.turn:
            return Script(text="Nothing.")
        return Script(calls=(call("code-search", query="anything"),))

    provider.play = play
    other = server.home / "yet-another-place"
    other.mkdir()
    asked = [sys.executable, "-m", "retinue", "ask", "Look for it."]
    ended = subprocess.run(asked, cwd=other, env=server.env, check=False, capture_output=True, text=True)
    assert ended.returncode == 3, ended.stderr  # a search that read nothing is incomplete
    (run,) = server.api("GET", "runs")["runs"]
    page = open_page(f"#/run/{run['run_id']}", forgive=("409",))
    page.locator(".step.run").filter(has_text="code-search").click()
    page.locator(".step.report").filter(has_text="Nothing.").first.click()
    page.get_by_role("button", name="Ask it again").click()
    box = page.get_by_placeholder("Ask it again: it knows what it did")
    expect(box).to_be_focused()
    box.fill("And what else?")
    box.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("worked in another folder")
    expect(box).to_have_value("And what else?")
    picture(page, "child-refused")
