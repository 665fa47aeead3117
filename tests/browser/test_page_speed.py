"""Small and quick: what is loaded first, and a tree of a thousand runs with fifty thousand events."""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grown import ROOT, grown, plant
from playwright.sync_api import Browser, Page, expect
from served import Served

import retinue.server

Open = Callable[..., Page]
STATIC = Path(retinue.server.__file__).with_name("static")
FIRST_PAINT = 50_000


def test_the_first_paint_takes_under_50_kb_compressed(open_page: Open, server: Served) -> None:
    page = open_page("", forgive=("ERR_",))
    expect(page.get_by_label("Your question")).to_be_visible()
    loaded = page.evaluate("() => performance.getEntriesByType('resource').map((one) => one.name)")
    own = {"index.html"} | {
        url.removeprefix(f"{server.url}/") for url in loaded if re.search(r"\.(js|css)$", url)
    }
    sizes = {name: len(gzip.compress((STATIC / name).read_bytes(), mtime=0)) for name in sorted(own)}
    print("\n" + "\n".join(f"{size:6,d}  {name}" for name, size in sizes.items()))
    print(f"{sum(sizes.values()):6,d}  bytes of script and style before the first question can be asked")
    assert "js/views/steps.js" not in own
    assert sum(sizes.values()) < FIRST_PAINT


def test_no_script_of_the_page_reads_html_or_loads_from_elsewhere() -> None:
    scripts = {path: path.read_text() for path in STATIC.rglob("*.js")}
    assert len(scripts) > 20
    for path, text in scripts.items():
        code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert word not in code, f"{path.name} uses {word}"
        assert not re.search(r"""(from|import\()\s*["']https?:""", code), path.name
    page = (STATIC / "index.html").read_text()
    assert "style=" not in page
    assert not re.search(r"<script(?![^>]*src=)", page)
    assert not re.search(r"""(src|href)=["'](https?:)?//""", page)


@pytest.mark.slow
def test_a_tree_of_1000_runs_and_50000_events_renders_and_scrolls(
    open_page: Open, own_server: Served, chromium: Browser
) -> None:
    server = own_server
    server.env["RETINUE_DB"] = f"sqlite:///{server.home}/grown.db"
    events = grown()
    plant(server.env["RETINUE_DB"], events)
    server.start()
    assert len(events) >= 50_000
    page = open_page()
    page.goto(f"{server.url}/#/run/{ROOT}")
    tree = page.get_by_role("tree", name="Steps")
    expect(tree.get_by_role("treeitem").first).to_be_visible(timeout=60_000)
    opened = page.evaluate("() => Math.round(performance.now())")
    assert page.evaluate("() => document.querySelector('r-run').flow.runs.size") == 1000
    page.get_by_role("button", name="Expand all").click()
    page.wait_for_function("() => document.querySelector('r-steps').list.rows.length > 10000")
    rows = page.evaluate("() => document.querySelector('r-steps').list.rows.length")

    chromium.start_tracing(page=page, categories=["devtools.timeline", "toplevel"])
    box = tree.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.evaluate(
        """() => {
          window.frames_seen = [];
          window.made = 0;
          window.watch = new MutationObserver((all) => { for (const one of all) window.made += one.addedNodes.length; });
          window.watch.observe(document.querySelector("r-steps"), { childList: true, subtree: true });
          let last = performance.now();
          const look = (now) => { window.frames_seen.push(now - last); last = now; window.looking = requestAnimationFrame(look); };
          window.looking = requestAnimationFrame(look);
        }"""
    )
    for _ in range(60):
        page.mouse.wheel(0, 900)
    for _ in range(20):
        page.mouse.wheel(0, 9000)
    page.wait_for_function("() => document.querySelector('r-steps').tree.scrollTop > 100000")
    made = page.evaluate("() => { window.watch.disconnect(); return window.made; }")
    frames = page.evaluate(
        "() => { cancelAnimationFrame(window.looking); return window.frames_seen.slice(1); }"
    )
    trace = json.loads(chromium.stop_tracing())
    drawn = page.evaluate("() => document.querySelectorAll('r-steps .step').length")
    tasks = main_thread_tasks(trace["traceEvents"])
    print(
        f"\n{len(events):,} events, 1,000 runs, {rows:,} rows: shown after {opened:,} ms; {drawn} rows in the document, {made:,} nodes made"
        f"\nframes while scrolling: {len(frames)}, median {statistics.median(frames):.1f} ms, "
        f"p95 {quantile(frames, 0.95):.1f} ms, longest {max(frames):.1f} ms"
        f"\ntasks of the main thread: {len(tasks)}, p95 {quantile(tasks, 0.95):.1f} ms, "
        f"longest {max(tasks):.1f} ms, over 50 ms: {sum(task > 50 for task in tasks)}"
    )
    assert drawn < 120
    # The times are there to be read. What they come from is counted: no frame makes more than a few rows.
    assert made < len(frames) * 500
    # The end is there too, and so is a step that is jumped to.
    tree.focus()
    page.keyboard.press("End")
    expect(tree.get_by_role("treeitem", selected=True)).to_contain_text("Report")
    page.get_by_label("Filter steps").fill("part_5 read")
    expect(page.locator(".step.call").first).to_contain_text("part_5")


def main_thread_tasks(events: list[dict[str, Any]]) -> list[float]:
    """What each task of the page's main thread took of the processor, in milliseconds."""
    names = {
        (one["pid"], one["tid"])
        for one in events
        if one.get("name") == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    return [
        one.get("tdur", one["dur"]) / 1000
        for one in events
        if one.get("name") in ("RunTask", "ThreadControllerImpl::RunTask")
        and one.get("ph") == "X"
        and (one["pid"], one["tid"]) in names
    ]


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
