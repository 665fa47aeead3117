"""Make docs/images/page-run.png and page-approval.png: the page in a real browser, with children at work.

The model is the fake provider, so that there is something to see at the moment of the picture.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "browser"))

from playwright.sync_api import Page, expect, sync_playwright
from served import Gate, Provider, Served, part

from retinue.testing import Script, SeenRequest, call

ROOT = Path(__file__).parent.parent
QUESTION = "Why does the parser stumble over an empty stream? Mend it, with a test first."
FILE = "src/retinue/models/sse.py"
PRICES = '[prices."openai:gpt-5-mini"]\ninput = 0.25\noutput = 2\n'
BEFORE = "def feed(chunk):\n    first = chunk[0]\n    return first\n"
TESTER = """---
name: tester
description: Writes down which tests are missing. For parts of this project that somebody is about to change.
icon: "🧪"
tools: [read, ls, glob, code-search]
---
You are `tester`. You say which tests are missing.
"""
SPOKEN = "I will look from three sides at once."
FOUND = f"- `{FILE}:2` takes `chunk[0]` without a look at its length.\n- No test has an empty chunk."


def story(hold: Gate):
    """A root with three children, one of which has a child of its own; then the change, which asks."""

    def play(seen: SeenRequest) -> Script:
        who, turn = part(seen), seen.turn
        if who == "general":
            return _root(turn)
        if who == "code-search":
            if turn < 2:
                calls = (call("grep", pattern="def feed"), call("read", path=FILE))[turn]
                return Script(calls=(calls,))
            return Script(text=FOUND)
        if who == "code-review":
            if turn == 0:
                return Script(calls=(call("read", path=FILE), call("grep", pattern="chunk")))
            return Script(text="waits", gate=hold.event)
        if turn == 0:
            return Script(calls=(call("ls", path="."), call("code-search", query="tests that call feed")))
        return Script(
            text="1. A test with an empty chunk.\n2. One with a chunk of one byte.", gate=hold.event
        )

    return play


def _root(turn: int) -> Script:
    if turn == 0:
        return Script(
            text=SPOKEN,
            calls=(
                call("code-search", query="where does the parser handle empty input?"),
                call("code-review", target=FILE, focus="bugs"),
                call("tester", prompt="write down the tests that are missing for an empty stream"),
            ),
        )
    if turn == 1:
        old, new = "    first = chunk[0]\n", "    if not chunk:\n        return None\n    first = chunk[0]\n"
        return Script(
            text="All three agree: the first byte is taken without a look.",
            calls=(call("edit", path=FILE, old=old, new=new),),
        )
    return Script(text="Done.")


def shoot(page: Page, name: str) -> None:
    path = ROOT / "docs" / "images" / f"{name}.png"
    page.screenshot(path=str(path))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def main() -> None:
    with tempfile.TemporaryDirectory() as home, Provider() as provider, sync_playwright() as playwright:
        server = Served(Path(home) / "home", provider)
        server.write("../config/retinue/config.toml", PRICES)
        server.env |= {"RETINUE_DELEGATION_POLICY": "nested", "RETINUE_MODEL": "openai:gpt-5-mini"}
        server.write(FILE, BEFORE)
        server.write(".retinue/agents/tester.md", TESTER)
        hold = provider.gate()
        provider.play = story(hold)
        server.start()
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            page = browser.new_page(viewport={"width": 1180, "height": 640}, reduced_motion="reduce")
            page.goto(server.url)
            page.get_by_label("Your question").fill(QUESTION)
            page.keyboard.press("Enter")
            expect(page.get_by_role("treeitem").filter(has_text="thinking")).to_have_count(2)
            shoot(page, "page-run")
            hold.open()
            expect(page.get_by_role("dialog").locator(".diff")).to_be_visible()
            shoot(page, "page-approval")
        finally:
            browser.close()
            server.stop()


if __name__ == "__main__":
    main()
