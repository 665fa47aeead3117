"""Without a mouse, and without eyes: keys, focus, roles, names and contrast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import scenes
from playwright.sync_api import Page, expect
from served import Provider, Served

Open = Callable[..., Page]


def focused(page: Page) -> str:
    return page.evaluate(
        "() => { const at = document.activeElement; return at.getAttribute('aria-label') || at.textContent.trim() || at.tagName; }"
    )


def test_everything_from_question_to_approval_without_a_mouse(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.writer("out.txt", "hello\n")
    page = open_page()
    expect(page.get_by_label("Your question")).to_be_focused()
    page.keyboard.type("Write it.")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Approval")).to_be_visible()
    expect(page.locator(".approval-head h2")).to_be_focused()
    page.keyboard.press("Tab")
    page.wait_for_function("() => document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("r")
    dialog = page.get_by_role("dialog", name="Approval")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Reject").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Why not?")).to_be_focused()
    page.keyboard.type("not now")
    page.keyboard.press("Enter")
    expect(page.locator(".answer-text")).to_contain_text("not now")


def test_the_tree_of_steps_is_walked_with_arrows(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = scenes.retries(asks=False)
    page = open_page()
    run_id = server.api("POST", "runs", {"prompt": scenes.QUESTION})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.locator(".answer-text")).to_be_visible()
    tree = page.get_by_role("tree", name="Steps")
    selected = tree.get_by_role("treeitem", selected=True)
    tree.focus()
    page.keyboard.press("Home")
    expect(selected).to_contain_text("general")
    page.keyboard.press("ArrowDown")
    expect(selected).to_contain_text("Task")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    expect(selected).to_contain_text("code-search")
    expect(selected).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowRight")
    expect(selected).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowRight")
    expect(selected).to_have_attribute("aria-level", "3")
    page.keyboard.press("Enter")
    expect(page.locator(".step-detail")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".step-detail")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    expect(selected).to_contain_text("code-search")
    page.keyboard.press("End")
    expect(selected).to_contain_text("Report")
    described = tree.get_attribute("aria-activedescendant")
    expect(page.locator(f"#{described}")).to_contain_text("Report")


def test_shortcuts_go_everywhere_and_can_be_switched_off(open_page: Open) -> None:
    page = open_page()
    expect(page.get_by_label("Your question")).to_be_focused()
    page.keyboard.type("g r")
    expect(page.get_by_label("Your question")).to_have_value("g r")
    page.keyboard.press("Escape")
    for keys, title in (
        ("gr", "Runs"),
        ("gp", "Approvals"),
        ("gs", "Agents"),
        ("gt", "Stats"),
        ("g,", "Settings"),
    ):
        page.keyboard.type(keys)
        expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Search settings")).to_be_focused()
    page.keyboard.press("Tab")
    page.locator("main").focus()
    page.keyboard.press("?")
    help = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help).to_contain_text("Review what waits for you")
    help.get_by_label("Single keys do things").uncheck()
    page.keyboard.press("Escape")
    page.locator("main").focus()
    page.keyboard.type("gr")
    expect(page.get_by_role("heading", level=1, name="Settings")).to_be_visible()


def test_the_first_tab_skips_to_the_content(open_page: Open, server: Served) -> None:
    page = open_page("#/runs")
    expect(page.get_by_role("heading", name="Nothing was asked yet")).to_be_visible()
    page.evaluate("() => { document.activeElement.blur(); getSelection().setPosition(document.body, 0); }")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Search tasks and answers")).to_be_focused()


def test_light_and_dark_follow_the_system_until_told_otherwise(open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    shade = "() => getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(shade)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(shade)
    assert light != dark
    page.get_by_role("button", name="Colours: as the system").click()
    page.get_by_role("button", name="Colours: light").click()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    assert page.evaluate(shade) == dark
    page.reload()
    assert page.evaluate(shade) == dark


# -- a scan by axe ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def axe() -> str:
    """The scanner's source: `make test` installs it with what checks the page."""
    source = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        pytest.skip("axe-core is not installed: make page")
    return source.read_text("utf-8")


def scan(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate(
        """async () => {
          const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
          return violations.map((one) => `${one.id} (${one.impact}): ${one.help}\\n` + one.nodes.slice(0, 4).map((node) => `    ${node.html.slice(0, 160)} | ${node.failureSummary.split("\\n")[1] ?? ""}`).join("\\n"));
        }"""
    )
    return list(found)


@pytest.mark.slow
@pytest.mark.parametrize("shade", ["light", "dark"])
def test_no_view_has_a_barrier_that_a_scan_can_find(
    open_page: Open, server: Served, provider: Provider, axe: str, shade: str
) -> None:
    hold = provider.gate()
    provider.play = scenes.retries(hold=hold)
    page = open_page(color_scheme=shade)
    problems: dict[str, list[str]] = {}

    def look(name: str) -> None:
        found = scan(page, axe)
        if found:
            problems[name] = found

    run_id = server.api("POST", "runs", {"prompt": scenes.QUESTION})["run_id"]
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    look("ask")
    for tab in ("steps", "timeline", "sources", "log"):
        page.goto(f"{server.url}/#/run/{run_id}/{tab}")
        expect(page.get_by_role("tabpanel").locator("> *")).to_be_visible()
        if tab == "steps":
            expect(page.get_by_role("treeitem").filter(has_text="thinking")).to_be_visible()
            page.locator(".step.task").first.click()
            expect(page.locator(".step-detail")).to_be_visible()
        look(f"run, {tab}")
    hold.open()
    page.goto(f"{server.url}/#/run/{run_id}")
    expect(page.get_by_role("dialog", name="Approval")).to_be_visible()
    look("approval")
    page.get_by_role("dialog").get_by_role("button", name="Edit").click()
    look("approval, edit")
    for path, sign in (
        ("approvals", "r-approval"),
        ("runs", ".run-row"),
        ("agents", ".agent-card"),
        ("agents/scribe", ".tool-list"),
        ("stats", ".plot"),
        ("settings", ".setting"),
        (f"compare/{run_id}/{run_id}", ".compare-table"),
    ):
        page.goto(f"{server.url}/#/{path}")
        expect(page.locator(sign).first).to_be_visible()
        look(path)
    page.locator("main").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    look("help")
    assert not problems, "\n".join(f"{name}:\n  " + "\n  ".join(found) for name, found in problems.items())
