"""A large tree in the page: how long until its rows are there, until all of it is, and what is sent.

    python bench/page.py [OPENINGS]

A finished workflow of a thousand runs and some fifty thousand events is written into a database, served by
`retinue serve` and opened in a real Chromium. Medians of several openings, each with an empty cache. Then
what the server alone needs for the same answers.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "browser"))

from grown import ROOT, grown, plant
from playwright.sync_api import Browser, sync_playwright
from served import Provider, Served

# Long tasks, and the moments that count, as the page itself sees them; before any script of the page runs.
WATCH = """() => {
  window.seen = { long: [] };
  new PerformanceObserver((list) => seen.long.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask", buffered: true });
  const look = () => {
    const flow = document.querySelector("r-run")?.flow;
    if (!seen.rows && document.querySelector("r-steps .step")) seen.rows = performance.now();
    const runs = document.querySelectorAll("r-steps .step.run").length;
    if (!seen.children && runs > 10) seen.children = performance.now();
    if (!seen.all && flow?.log.length >= window.wanted) seen.all = performance.now();
    if (!seen.all || !seen.children) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


def opened(browser: Browser, url: str, events: int) -> dict[str, Any]:
    """One opening of the run's page, from an empty browser."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    sent = [0]
    client = context.new_cdp_session(page)
    client.send("Network.enable")

    def count(event: dict[str, Any]) -> None:
        sent[0] += int(event["encodedDataLength"])

    client.on("Network.loadingFinished", count)
    page.add_init_script(f"window.wanted = {events}; ({WATCH})()")
    page.goto(f"{url}/#/run/{ROOT}")
    page.wait_for_function("() => window.seen?.all && window.seen.children", timeout=60_000)
    seen = page.evaluate("() => window.seen")
    seen["rows_in_document"] = page.evaluate("() => document.querySelectorAll('r-steps .step').length")
    seen["bytes"] = sent[0]
    context.close()
    return seen


def asked(url: str, path: str) -> tuple[float, int]:
    """Seconds and bytes of one answer of the server, without a browser."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"{url}/api/v1/{path}", timeout=60) as response:
        size = len(response.read())
    return time.perf_counter() - began, size


def report(found: list[dict[str, Any]], events: int) -> None:
    def middle(name: str) -> float:
        return statistics.median(one[name] for one in found)

    print(f"a tree of 1,000 runs and {events:,} events, opened {len(found)} times")
    print(f"  first rows of the tree   {middle('rows'):8,.0f} ms")
    print(f"  rows of its children     {middle('children'):8,.0f} ms")
    print(f"  every event read         {middle('all'):8,.0f} ms")
    print(f"  sent over the wire       {middle('bytes') / 1e6:8.1f} MB")
    print(f"  rows in the document     {middle('rows_in_document'):8.0f}")
    longest = statistics.median(max(one["long"], default=0) for one in found)
    number = statistics.median(len(one["long"]) for one in found)
    print(f"  tasks over 50 ms         {number:8.0f}, the longest {longest:.0f} ms")


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as home, Provider() as provider, sync_playwright() as playwright:
        server = Served(Path(home) / "home", provider)
        server.env["RETINUE_DB"] = f"sqlite:///{home}/grown.db"
        events = grown()
        plant(server.env["RETINUE_DB"], events)
        server.start()
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            opened(browser, server.url, len(events))  # bytecode, caches of the disk
            report([opened(browser, server.url, len(events)) for _ in range(times)], len(events))
            print("the server alone")
            for path in (f"runs/{ROOT}", f"runs/{ROOT}/tree", f"runs/{ROOT}/events?limit=4000"):
                took, size = asked(server.url, path)
                print(f"  {path:<32} {took * 1000:6.0f} ms, {size:,} bytes")
        finally:
            browser.close()
            server.stop()


if __name__ == "__main__":
    main()
