"""Approvals: the dialog, its four answers, the queue, and whoever answers elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import scenes
from playwright.sync_api import Locator, Page, expect
from served import Provider, Served

from retinue.testing import Script, SeenRequest, call

Open = Callable[..., Page]


def started(page: Page, server: Served, prompt: str = "Write it.") -> str:
    run_id: str = server.api("POST", "runs", {"prompt": prompt})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    return run_id


def dialog_of(page: Page) -> Locator:
    found = page.get_by_role("dialog", name="Approval")
    expect(found).to_be_visible()
    return found


def test_approving_lets_the_tool_run(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = scenes.writer("out.txt", "hello\n")
    page = open_page()
    started(page, server)
    dialog = dialog_of(page)
    expect(dialog).to_contain_text("general wants to change a file")
    expect(dialog).to_contain_text("medium risk")
    expect(dialog).to_contain_text("write needs a person's approval")
    expect(dialog.locator(".diff .added")).to_have_text("+hello\n")
    expect(page).to_have_title("(1) Write it. · Retinue")
    assert not (server.folder / "out.txt").exists()
    dialog.get_by_role("button", name="Approve").click()
    expect(page.locator(".answer-text")).to_contain_text("Done.")
    assert (server.folder / "out.txt").read_text() == "hello\n"
    expect(page).to_have_title("Write it. · Retinue")
    expect(page.locator(".bar:visible")).to_have_count(0)


def test_a_rejection_and_its_reason_reach_the_model(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.writer("out.txt")
    page = open_page()
    started(page, server)
    dialog = dialog_of(page)
    dialog.get_by_role("button", name="Reject").click()
    dialog.get_by_label("Why not?").fill("Not here: put it under docs.")
    dialog.get_by_role("button", name="Reject").click()
    expect(page.locator(".answer-text")).to_contain_text("Not here: put it under docs.")
    assert not (server.folder / "out.txt").exists()
    row = page.locator(".step.call")
    expect(row).to_contain_text("rejected")
    # Nothing that was refused ends with the mark of success: not the call, not the work, not the run.
    expect(row.get_by_role("img", name="rejected")).to_be_visible()
    expect(page.locator(".work-head").get_by_role("img", name="rejected")).to_be_visible()
    expect(page.locator(".work-head")).to_contain_text("write")
    expect(page.locator(".run-head .badge")).to_have_text("completed, 1 rejected")
    expect(page.locator(".recent").get_by_role("img", name="rejected")).to_be_visible()
    expect(page.locator(".mark.completed:visible")).to_have_count(0)
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".lane").get_by_role("img", name="rejected")).to_be_visible()
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator(".run-row").get_by_role("img", name="rejected")).to_be_visible()
    expect(page.locator(".mark.completed:visible")).to_have_count(0)


def test_what_a_rule_denied_is_named_on_the_page(
    open_page: Open, own_server: Served, provider: Provider
) -> None:
    (own_server.folder / "retinue.toml").write_text('[approvals]\ndeny = ["write"]\n')
    own_server.start()
    provider.play = scenes.writer("out.txt")
    page = open_page()
    run_id = own_server.api("POST", "runs", {"prompt": "Write it."})["run_id"]
    page.goto(f"{own_server.url}/#/run/{run_id}")
    badge = page.locator(".run-head .badge")
    expect(badge).to_have_text("completed, 1 denied by a rule")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator(".run-row").filter(has_text="Write it.")).to_contain_text("1 denied")


def test_a_question_shows_what_of_a_command_no_rule_covers(
    open_page: Open, own_server: Served, provider: Provider
) -> None:
    own_server.env["RETINUE_APPROVALS_ALLOW"] = '["bash(git log*)"]'
    own_server.start()
    provider.play = scenes.one_command("git log --output=F")
    page = open_page()
    run_id = own_server.api("POST", "runs", {"prompt": "Look."})["run_id"]
    page.goto(f"{own_server.url}/#/run/{run_id}")
    said = dialog_of(page).locator(".approval-uncovered")
    expect(said).to_have_text("The rule bash(git log*) does not cover --output=F in git log --output=F")


def test_edited_arguments_are_the_ones_that_run(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = scenes.writer("out.txt", "hello\n")
    page = open_page()
    started(page, server)
    dialog = dialog_of(page)
    dialog.get_by_role("button", name="Edit").click()
    dialog.get_by_label("path").fill("better.txt")
    dialog.get_by_label("content").fill("goodbye\n")
    dialog.get_by_role("button", name="Approve with these").click()
    expect(page.locator(".answer-text")).to_contain_text("Done.")
    assert (server.folder / "better.txt").read_text() == "goodbye\n"
    assert not (server.folder / "out.txt").exists()


def test_arguments_that_do_not_fit_are_refused_with_a_reason(
    open_page: Open, server: Served, provider: Provider
) -> None:
    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(calls=(call("bash", command="echo hi", timeout=5),))
        return Script(text="Done.")

    provider.play = play
    page = open_page(forgive=("422",))
    started(page, server)
    dialog = dialog_of(page)
    expect(dialog.locator(".command")).to_contain_text("$ echo hi")
    dialog.get_by_role("button", name="Edit").click()
    dialog.get_by_label("timeout").fill("soon")
    dialog.get_by_role("button", name="Approve with these").click()
    expect(dialog.get_by_role("alert")).to_contain_text("timeout is not valid JSON")
    dialog.get_by_label("timeout").fill('"soon"')
    dialog.get_by_role("button", name="Approve with these").click()
    expect(dialog.get_by_role("alert")).to_contain_text("timeout")
    dialog.get_by_label("timeout").fill("6")
    dialog.get_by_role("button", name="Approve with these").click()
    expect(page.locator(".answer-text")).to_have_text("Done.")


def test_approving_every_call_of_a_tool_asks_only_once(
    open_page: Open, server: Served, provider: Provider
) -> None:
    def play(seen: SeenRequest) -> Script:
        if seen.turn < 3:
            return Script(calls=(call("write", path=f"{seen.turn}.txt", content="x"),))
        return Script(text="All three.")

    provider.play = play
    page = open_page()
    started(page, server)
    dialog_of(page).get_by_role("button", name="Every write of this run").click()
    expect(page.locator(".answer-text")).to_have_text("All three.")
    assert all((server.folder / f"{number}.txt").exists() for number in range(3))


def test_approving_for_the_rest_of_the_run_goes_by_the_rule_that_is_shown(
    open_page: Open, server: Served, provider: Provider
) -> None:
    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(calls=tuple(call("bash", command=f"echo {n} >> out") for n in (1, 1, 2)))
        return Script(text="Done.")

    provider.play = play
    page = open_page()
    started(page, server)
    dialog = dialog_of(page)
    expect(dialog).to_contain_text("The rule that covers it: bash(echo 1 >> out)")
    dialog.get_by_role("button", name="For the rest of the run").click()
    expect(page.get_by_text("Approved too: 1 waiting call of bash")).to_be_visible()
    expect(dialog).to_contain_text("The rule that covers it: bash(echo 2 >> out)")
    dialog.get_by_role("button", name="Approve").click()
    expect(page.locator(".answer-text")).to_have_text("Done.")
    assert sorted((server.folder / "out").read_text().split()) == ["1", "1", "2"]


def test_several_questions_are_a_queue(open_page: Open, server: Served, provider: Provider) -> None:
    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(calls=tuple(call("write", path=f"{n}.txt", content="x") for n in range(3)))
        return Script(text="All.")

    provider.play = play
    page = open_page()
    started(page, server)
    dialog = dialog_of(page)
    expect(dialog).to_contain_text("1 of 3 that wait")
    expect(page).to_have_title("(3) Write it. · Retinue")
    # Calls of one reply ask at once: which of them is asked about first is a matter of who is faster.
    first = dialog.locator(".arguments code").first.inner_text()
    assert first in ("0.txt", "1.txt", "2.txt")
    dialog.get_by_role("button", name="Next").click()
    expect(dialog).to_contain_text("2 of 3 that wait")
    expect(dialog.locator(".arguments code").first).not_to_have_text(first)
    for left in (2, 1):
        dialog.get_by_role("button", name="Approve").click()
        expect(page).to_have_title(f"({left}) Write it. · Retinue")
    dialog.get_by_role("button", name="Approve").click()
    expect(page.locator(".answer-text")).to_have_text("All.")
    expect(dialog).to_have_count(0)


def test_a_question_from_deep_in_the_tree_names_its_path(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.retries()
    page = open_page()
    started(page, server, scenes.QUESTION)
    expect(dialog_of(page)).to_contain_text("general wants to start a child")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Review").click()
    dialog_of(page).get_by_role("button", name="Approve").click()
    expect(page.locator(".approval-head")).to_contain_text("general › note-writer")
    expect(page.locator(".approval-head h2")).to_have_text("note-writer wants to change a file")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Waits", exact=True).click()
    waiting = page.get_by_role("treeitem", selected=True)
    expect(waiting).to_contain_text("write")
    expect(waiting.get_by_role("img", name="waiting")).to_be_visible()


def test_an_answer_from_elsewhere_closes_the_question(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.writer()
    page = open_page()
    started(page, server)
    dialog = dialog_of(page)
    [asked] = server.api("GET", "approvals")["approvals"]
    server.api("POST", f"approvals/{quote(asked['approval_id'])}", {"decision": "approve"})
    expect(dialog).to_have_count(0)
    expect(page.locator(".answer-text")).to_contain_text("Done.")


def test_the_list_of_approvals_shows_all_runs(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = scenes.writer()
    page = open_page("#/approvals")
    expect(page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    for name in ("one", "two"):
        server.api("POST", "runs", {"prompt": f"Write {name}."})
    cards = page.locator("r-approval")
    expect(cards).to_have_count(2)
    expect(page.locator(".nav .count")).to_contain_text("2")
    cards.filter(has_text="Write one.").get_by_role("button", name="Approve").click()
    expect(cards).to_have_count(1)
    expect(cards.first).to_contain_text("Write two.")


def test_a_dialog_does_not_interrupt_whoever_is_writing(
    open_page: Open, server: Served, provider: Provider
) -> None:
    hold = provider.gate()

    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(calls=(call("write", path="a.txt", content="x"),), gate=hold.event)
        return Script(text="Done.")

    provider.play = play
    page = open_page()
    started(page, server)
    page.get_by_label("Message").fill("half a sent")
    hold.open()
    expect(page.locator(".bar").nth(1)).to_contain_text("general waits for you")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_label("Message")).to_be_focused()


def test_a_key_pressed_too_early_approves_nothing(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.writer()
    page = open_page()
    started(page, server)
    dialog = dialog_of(page)
    page.keyboard.press("Escape")
    # The page's own clock held still: the moment after opening never ends.
    since = page.evaluate("() => { const at = performance.now(); performance.now = () => at; return at; }")
    page.keyboard.press("r")
    expect(dialog).to_be_visible()
    page.keyboard.press("a")
    assert len(server.api("GET", "approvals")["approvals"]) == 1
    expect(dialog).to_be_visible()
    page.evaluate("() => { delete performance.now; }")
    page.wait_for_function("since => performance.now() - since > 500", arg=since)
    page.keyboard.press("a")
    expect(page.locator(".answer-text")).to_contain_text("Done.")


HIDDEN = """() => {
  window.told = [];
  const Real = Notification;
  window.Notification = class extends Real {
    constructor(title, more) { super(title, more); window.told.push([title, more.body]); }
  };
  Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
}"""


def test_a_hidden_page_tells_by_a_notification_and_only_if_allowed(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.writer()
    allowed, other = open_page(permissions=["notifications"]), open_page()
    for page in (allowed, other):
        expect(page.get_by_label("Your question")).to_be_visible()
        page.evaluate(HIDDEN)
    server.api("POST", "runs", {"prompt": "Write it."})
    allowed.wait_for_function("() => window.told.length > 0")
    assert allowed.evaluate("() => window.told") == [["general waits for you", "write out.txt"]]
    expect(other).to_have_title("(1) Retinue")
    assert other.evaluate("() => window.told") == []
