"""Every view in light, dark and narrow: nothing sticks out, and a picture of each is left to be looked at.

The pictures go to the folder that RETINUE_PICTURES names, or to the test's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import scenes
from playwright.sync_api import Page, expect
from served import Provider, Served

Open = Callable[..., Page]

FORMS: dict[str, dict[str, object]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1440, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1440, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}, "has_touch": True},
    "medium": {"color_scheme": "dark", "viewport": {"width": 900, "height": 700}},
}
# What reaches beyond the right edge of the window, unless it is inside of something that scrolls.
STICKS_OUT = """() => {
  const wide = innerWidth + 1;
  const scrolls = (one) => { for (let at = one; at && at !== document.body; at = at.parentElement) if (/auto|scroll|hidden|clip/.test(getComputedStyle(at).overflowX)) return true; return false; };
  const out = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > wide && !scrolls(one.parentElement));
  const pushed = [...document.querySelectorAll("main, dialog, .panel, .page, .drawer")].filter((one) => one.scrollWidth > one.clientWidth + 1);
  out.push(...pushed);
  return { page: document.documentElement.scrollWidth - innerWidth, out: out.slice(0, 5).map((one) => one.outerHTML.slice(0, 120)) };
}"""


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_view_fits_the_window(
    open_page: Open, own_server: Served, provider: Provider, tmp_path: Path, form: str
) -> None:
    folder = Path(os.environ.get("RETINUE_PICTURES") or tmp_path / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    server = own_server
    server.write("../config/retinue/config.toml", '[prices."openai:fake-model"]\ninput = 2\noutput = 8\n')
    server.write(".retinue/agents/broken.md", "---\nname: broken\nmax_turns: many\n---\nhi\n")
    server.start()
    page = open_page(**FORMS[form])
    sticking: dict[str, object] = {}

    def shoot(name: str, path: str | None, sign: str) -> None:
        if path is not None:
            page.goto(f"{server.url}/#/{path}")
        expect(page.locator(sign).first).to_be_visible()
        page.evaluate("() => document.fonts.ready")
        found = page.evaluate(STICKS_OUT)
        if found["page"] > 0 or found["out"]:
            sticking[name] = found
        page.screenshot(path=str(folder / f"{name}-{form}.png"))

    shoot("ask", "", ".example")
    hold = provider.gate()
    provider.play = scenes.retries(hold=hold)
    run_id = server.api("POST", "runs", {"prompt": scenes.QUESTION})["run_id"]
    shoot("live", f"run/{run_id}", ".work-line")
    shoot("live-steps", f"run/{run_id}/steps", ".step.now")
    hold.open()
    shoot("approval-agent", None, "dialog r-approval")
    shoot("approvals", "approvals", "r-approval")
    _approve(server)
    page.goto(f"{server.url}/#/run/{run_id}/steps")
    shoot("approval-diff", None, "dialog .diff")
    page.get_by_role("dialog").get_by_role("button", name="Edit").click()
    shoot("approval-edit", None, "dialog textarea")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    _approve(server)
    shoot("approval-command", None, "dialog .command")
    _approve(server)
    page.goto(f"{server.url}/#/run/{run_id}/steps")
    expect(page.locator(".run-head .badge")).to_have_text("completed")
    page.get_by_role("button", name="Expand all").click()
    page.locator(".step.call").filter(has_text="grep").click()
    shoot("steps", None, ".step-detail")
    shoot("answer", f"run/{run_id}/chat", ".answer-text, .step")
    for tab, sign in (
        ("timeline", ".lane"),
        ("sources", ".source"),
        ("changes", ".change"),
        ("log", ".log-row"),
    ):
        shoot(tab, f"run/{run_id}/{tab}", sign)
    shoot("runs", "runs", ".run-row")
    shoot("compare", f"compare/{run_id}/{run_id}", ".compare-table")
    shoot("agents", "agents", ".agent-card")
    shoot("agent", "agents/code-review", ".agent-prompt .prose, .agent-prompt.prose")
    shoot("stats", "stats", ".plot")
    shoot("settings", "settings", ".setting")
    page.locator("main").focus()
    page.keyboard.press("?")
    shoot("help", None, ".help .keys")
    print(f"\npictures of {form}: {folder}")
    assert not sticking, sticking


def _approve(server: Served) -> None:
    for asked in server.api("GET", "approvals")["approvals"]:
        server.api("POST", f"approvals/{quote(asked['approval_id'])}", {"decision": "approve"})
