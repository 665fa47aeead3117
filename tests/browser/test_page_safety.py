"""What models and tools write stays text: nothing of it runs, and nothing else is loaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import scenes
from playwright.sync_api import Page, expect
from served import Provider, Served

from retinue.server.tokens import grant, revoke
from retinue.testing import Script, SeenRequest, call

Open = Callable[..., Page]

HOSTILE = """# Hello <script>window.ran = 1</script>

<img src=x onerror="window.ran = 2"> <svg onload="window.ran = 3"></svg>
<iframe srcdoc="<script>parent.ran = 4</script>"></iframe>
[a link](javascript:window.ran=5) and ![a picture](https://example.com/pixel.png)
<a href="data:text/html,<script>window.ran=6</script>">data</a> <style>body { display: none }</style>

- <details open ontoggle="window.ran = 7">x</details>
"""
NO_SPOOF = "Looks like \u202egnp.exe and \u0007 bell."


def test_script_in_a_report_does_not_run(open_page: Open, server: Served, provider: Provider) -> None:
    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(text=HOSTILE, calls=(call("read", path="evil.md"),))
        return Script(text=HOSTILE + NO_SPOOF)

    server.write("evil.md", HOSTILE)
    provider.play = play
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    run_id = server.api("POST", "runs", {"prompt": HOSTILE, "label": "<b onclick=1>bold</b>"})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    answer = page.locator(".answer-text")
    expect(answer.locator("h3")).to_contain_text("<script>window.ran = 1</script>")
    for row in page.locator(".step.call, .step.say, .step.report, .step.task").all():
        row.click()
    expect(page.locator(".step-detail")).to_have_count(4)
    assert page.evaluate("() => window.ran") is None
    inside = "script, iframe, img, style, svg[onload], [onerror], [onclick], [ontoggle], [style*=display]"
    assert answer.locator(inside).count() == 0
    linked = [a.get_attribute("href") for a in answer.locator("a[href]").all()]
    assert linked == ["https://example.com/pixel.png"]  # a picture is a link, and is not loaded
    expect(answer).to_contain_text("⟨U+202E⟩")
    expect(page.locator("body")).to_be_visible()
    assert not [url for url in asked if not url.startswith((server.url, "data:"))]


def test_even_html_from_a_fooled_server_is_taken_apart(open_page: Open) -> None:
    page = open_page(forgive=("Content Security Policy",))
    expect(page.get_by_label("Your question")).to_be_visible()
    html = '<p onclick="window.ran=1">x<script>window.ran=2</script><img src=x onerror="window.ran=3"></p><a href="javascript:window.ran=4">go</a><form action="//evil"><input></form>'
    page.route("**/api/v1/render", lambda route: route.fulfill(json={"html": [html]}))
    left = page.evaluate(
        """async () => {
          const { prose } = await import("/js/prose.js");
          const box = document.body.appendChild(document.createElement("div"));
          prose(box, "anything");
          await new Promise((done) => new MutationObserver((_, seen) => box.querySelector("p") && (seen.disconnect(), done())).observe(box, { childList: true, subtree: true }));
          box.querySelector("a").click();
          box.querySelector("p").click();
          return box.innerHTML;
        }"""
    )
    assert page.evaluate("() => window.ran") is None
    assert not any(
        word in left for word in ("<script", "<img", "onerror", "onclick", "javascript:", "<form", "<input")
    )


def test_the_page_loads_nothing_from_elsewhere_and_breaks_no_rule_of_its_policy(
    open_page: Open, server: Served, provider: Provider
) -> None:
    provider.play = scenes.retries(asks=False)
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    run_id = server.api("POST", "runs", {"prompt": scenes.QUESTION})["run_id"]
    page.evaluate(
        "() => { window.broken = []; addEventListener('securitypolicyviolation', (event) => window.broken.push(event.violatedDirective)); }"
    )
    for path in (
        f"run/{run_id}",
        f"run/{run_id}/timeline",
        f"run/{run_id}/sources",
        "runs",
        "agents",
        "stats",
        "settings",
        "approvals",
    ):
        page.evaluate("path => { location.hash = '/' + path; }", path)
        expect(page.locator("main h1, main h2").first).to_be_visible()
    assert page.evaluate("() => window.broken") == []
    assert {url.split("/")[2] for url in asked} == {server.url.split("/")[2]}


@pytest.fixture
def guarded(own_server: Served) -> str:
    """A server that asks for a token; the token."""
    own_server.env["RETINUE_SERVER_TOKEN"] = "a-token-that-is-long-enough"
    own_server.start()
    return own_server.env["RETINUE_SERVER_TOKEN"]


def test_a_server_with_tokens_asks_for_one(guarded: str, open_page: Open, provider: Provider) -> None:
    provider.play = scenes.says("Inside.")
    page = open_page(forgive=("401",))
    expect(page.get_by_role("heading", name="This server wants a token")).to_be_visible()
    page.get_by_label("Token").fill("wrong-wrong-wrong")
    page.get_by_role("button", name="Enter").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    page.get_by_label("Token").fill(guarded)
    page.get_by_role("button", name="Enter").click()
    page.get_by_label("Your question").fill("Am I in?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer-text")).to_have_text("Inside.")
    assert page.evaluate("() => document.cookie") == ""
    page.reload()
    expect(page.locator(".answer-text")).to_have_text("Inside.")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="This server wants a token")).to_be_visible()
    expect(page.locator(".answer-text")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("heading", name="This server wants a token")).to_be_visible()


def test_a_page_whose_token_is_revoked_asks_for_another_and_goes_on(
    own_server: Served, open_page: Open, provider: Provider
) -> None:
    file = own_server.home / "config" / "retinue" / "server-tokens.json"
    made = grant(file, [("alice", "ask"), ("bob", "approve")])
    own_server.start("--token", "alice:ask")
    provider.play = scenes.says("Still here.")
    page = open_page(forgive=("401",))
    page.get_by_label("Token").fill(made["alice"])
    page.get_by_role("button", name="Enter").click()
    expect(page.get_by_label("Your question")).to_be_visible()
    revoke(file, "alice")
    # The server ends its stream, the page comes back with it and is refused: nobody has to touch anything.
    expect(page.get_by_role("heading", name="This server wants a token")).to_be_visible()
    page.get_by_label("Token").fill(made["bob"])
    page.get_by_role("button", name="Enter").click()
    page.get_by_label("Your question").fill("And now?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer-text")).to_have_text("Still here.")
