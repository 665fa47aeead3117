"""HTML to Markdown on large real pages: the time against other libraries, and the longest stall of the loop.

    python bench/web_pages.py [folder of HTML pages]

Without a folder it takes the documentation that is installed here (Debian's `python3-doc`,
`postgresql-doc-15`, `debian-reference-en`; the documentation of a Rust toolchain). Libraries that are not
installed are left out: `uv pip install markdownify html2text htmd-py inscriptis` adds some. One that
fails a check of the format is timed as well, and what it loses is told.

The first bar: what a page costs here, all in all, is at most 1.2 times the fastest library that does the
same job, in the same run, in CPU time: for every page, and for all of them together. The same job means: from
the bytes that came to Markdown, with tables, code, headings and links that can be followed, without hidden
text. The same library with its defaults, which leaves links relative, is timed beside it. The second bar: the
event loop is never blocked for more than 50 ms while a page of 5 MB is read. An idle loop in another process
is watched at the same time: what stalls that one too is not blocking.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import glob
import os
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web as server

from retinue.settings import WebSettings
from retinue.web.fetch import Web
from retinue.web.page import Job
from retinue.web.pool import Pool

BAR = 1.2
STALL_BAR = 0.050
ROUNDS = 5
ROUNDS_BYTES = 10_000_000
"""Small pages are converted more often, until so much is read: a millisecond is soon disturbed."""
STALL_ROUNDS = 5
TICK = 0.001
PLACES = (
    "/usr/share/doc/python3*/html/**/*.html",
    "/usr/share/doc/postgresql-doc-*/html/*.html",
    "/usr/share/debian-reference/*.html",
    os.path.expanduser("~/.rustup/toolchains/stable-*/share/doc/rust/html/reference/*.html"),
    os.path.expanduser("~/.rustup/toolchains/stable-*/share/doc/rust/html/std/**/*.html"),
)
MUCH_CODE = 2
"""So many pages more: those with the most code, for their size."""
Convert = Callable[[str], str]
URL = "https://bench.example/page.html"
DEFAULTS = "html_to_markdown with its defaults"


def libraries() -> dict[str, Convert]:
    """Every converter that is installed, by its name, each as its documentation shows it."""
    found: dict[str, Convert] = {}

    def add(name: str, make: Callable[[], Convert]) -> None:
        try:
            found[name] = make()
        except ImportError:
            print(f"  {name}: not installed")

    def html_to_markdown() -> Convert:
        import html_to_markdown as library

        options = library.ConversionOptions(base_url=URL)
        return lambda html: library.convert(html, options).content or ""

    def with_defaults() -> Convert:
        import html_to_markdown as library

        return lambda html: library.convert(html).content or ""

    def markdownify() -> Convert:
        from markdownify import markdownify as convert  # pyright: ignore[reportMissingImports]

        return convert

    def html2text() -> Convert:
        import html2text as library  # pyright: ignore[reportMissingImports]

        return lambda html: library.HTML2Text(bodywidth=0).handle(html)

    def htmd() -> Convert:
        import htmd as library  # pyright: ignore[reportMissingImports]

        return library.convert_html

    def trafilatura() -> Convert:
        from trafilatura import extract

        return lambda html: extract(html, output_format="markdown", include_tables=True) or ""

    def inscriptis() -> Convert:
        from inscriptis import get_text  # pyright: ignore[reportMissingImports]

        return get_text

    for make in (html_to_markdown, markdownify, html2text, htmd, trafilatura, inscriptis):
        add(make.__name__, make)
    add(DEFAULTS, with_defaults)
    return found


CHECKS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "heading": ("<h2>Part two</h2>", lambda text: "## Part two" in text),
    "table": (
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>",
        lambda text: text.count("|") >= 6,
    ),
    "table without a header": (
        "<table><tr><td>a</td><td>b</td></tr><tr><td>1</td><td>2</td></tr></table>",
        lambda text: text.count("|") >= 6,
    ),
    "code": ("<pre>x = 1\ny = 2</pre>", lambda text: "```" in text or "    x = 1\n    y = 2" in text),
    "link": ('<p><a href="https://x.test/y">words</a></p>', lambda text: "[words](" in text),
    "relative link": ('<p><a href="y">words</a></p>', lambda text: "(https://bench.example/y)" in text),
    "hidden text": (
        '<p>seen</p><p style="display:none">secret</p><p hidden>secret</p>',
        lambda t: "secret" not in t,
    ),
}


def failed_checks(convert: Convert) -> list[str]:
    failed: list[str] = []
    for name, (html, holds) in CHECKS.items():
        try:
            text = convert(f"<html><body><p>Some text around it.</p>{html}<p>More text.</p></body></html>")
        except Exception as error:
            text = repr(error)
        if not holds(text):
            failed.append(name)
    return failed


def pages(folder: str | None) -> list[Path]:
    """The two largest pages of each size class, so that no single page decides, and those with much code."""
    patterns = (f"{folder}/**/*.html",) if folder else PLACES
    names = {os.path.realpath(name) for pattern in patterns for name in glob.glob(pattern, recursive=True)}
    files = [Path(name) for name in sorted(names)]
    sized = sorted(((file.stat().st_size, file) for file in files), reverse=True)
    chosen: list[Path] = []
    for least, most in ((2e6, 5e6), (1e6, 2e6), (500e3, 1e6), (300e3, 500e3), (150e3, 300e3), (60e3, 150e3)):
        chosen += [file for size, file in sized if least <= size < most][:2]
    left = [(file.read_bytes().count(b"<span") / size, file) for size, file in sized if 100e3 < size < 2e6]
    dense = [file for _, file in sorted(left, reverse=True) if file not in chosen]
    return chosen + dense[:MUCH_CODE]


def timed(work: Callable[[], Any]) -> float:
    """CPU seconds: the clock would tell of whatever else this machine does."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


async def timed_here(pool: Pool, job: Job) -> float:
    """CPU seconds of a page here: those of this process and those of its worker."""
    gc.collect()
    before = workers_cpu(pool)
    began = time.process_time()
    await pool.run(job)
    used = time.process_time() - began
    return used + workers_cpu(pool) - before


def workers_cpu(pool: Pool) -> float:
    ids = [worker.process.pid for worker in pool._all]
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in ids) / 1e9


class Compared(NamedTuple):
    """Seconds of a page here, of the fastest library, and of one that does less."""

    here: float
    best: float
    less: float


async def compare(files: list[Path], able: dict[str, Convert], less: Convert) -> list[Compared]:
    """Prints a line per page and one for all of them."""
    found: list[Compared] = []
    print(f"\n{'page':<44}{'KB':>7}{'retinue':>11}{'fastest':>11}  {'which':<18}ratio{'to defaults':>14}")
    for file in files:
        body = file.read_bytes()
        pool = Pool()  # of its own, since a worker that has done many jobs is replaced, and its time lost
        job = Job(body=body, content_type="text/html; charset=utf-8", url=URL)
        await pool.run(job)
        ours: list[float] = []
        theirs: dict[str, list[float]] = {name: [] for name in able}
        lesser: list[float] = []
        for _ in range(max(ROUNDS, ROUNDS_BYTES // len(body))):
            ours.append(await timed_here(pool, job))
            for name, convert in able.items():
                theirs[name].append(timed(lambda convert=convert, body=body: convert(body.decode())))
            lesser.append(timed(lambda body=body: less(body.decode())))
        await pool.close()
        which = min(theirs, key=lambda name: min(theirs[name]))
        mine, best = min(ours), min(theirs[which])
        found.append(Compared(mine, best, min(lesser)))
        name = "/".join(file.parts[-2:])[-43:]
        figures = f"{len(body) / 1e3:>7.0f}{mine * 1e3:>8.1f} ms{best * 1e3:>8.1f} ms"
        print(f"{name:<44}{figures}  {which:<18}{mine / best:.2f}{mine / min(lesser):>13.2f}")
    here, best_in_all = sum(page.here for page in found), sum(page.best for page in found)
    less_in_all = sum(page.less for page in found)
    figures = f"{here * 1e3:>8.1f} ms{best_in_all * 1e3:>8.1f} ms"
    print(f"{'all':<51}{figures}{'':<20}{here / best_in_all:.2f}{here / less_in_all:>13.2f}")
    return found


def show_ratios(files: list[Path], found: list[Compared]) -> bool:
    """Whether the bar holds, for all pages together and for each."""
    in_all = sum(page.here for page in found) / sum(page.best for page in found)
    ratios = {file.name: page.here / page.best for file, page in zip(files, found, strict=True)}
    worst = max(ratios, key=lambda name: ratios[name])
    over = [name for name, ratio in ratios.items() if ratio > BAR]
    print(f"time over the fastest library that does the same job (bar {BAR}):")
    print(f"  all pages together: {in_all:.2f}")
    print(f"  page by page: {ratios[worst]:.2f} at most ({worst}); over the bar: {', '.join(over) or 'none'}")
    return in_all <= BAR and not over


class Stall(NamedTuple):
    """The longest turn of an event loop. `cpu` is what all threads of its process used in one, at most: a
    loop that is blocked by its own process is blocked by that, one that waits for a core is not."""

    clock: float
    cpu: float


async def longest_stall(body: bytes) -> tuple[Stall, Stall, float]:
    """Fetch a page over a real socket: the stall, that of an idle loop meanwhile, the whole time."""

    async def answer(_: server.Request) -> server.Response:
        return server.Response(body=body, content_type="text/html")

    app = server.Application()
    app.router.add_get("/{name}", answer)
    runner = server.AppRunner(app)
    await runner.setup()
    site = server.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    settings = WebSettings(allow_hosts=(f"127.0.0.1:{port}",), timeout=60)
    async with Web(settings) as web:
        await web.page(f"http://127.0.0.1:{port}/warm")
        idle = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--idle", stdin=PIPE, stdout=PIPE
        )
        if idle.stdout is None or await idle.stdout.readline() != b"ready\n":
            raise RuntimeError("the idle loop beside it did not start")
        began = time.perf_counter()
        stall = await _watched(web.page(f"http://127.0.0.1:{port}/big"))
        took = time.perf_counter() - began
        told, _ = await idle.communicate(b"")
    await runner.cleanup()
    clock, cpu = told.split()
    return stall, Stall(float(clock), float(cpu)), took


async def idle_loop() -> None:
    """A loop that does nothing, in a process of its own, until its input ends: what this machine costs."""
    print("ready", flush=True)
    stall = await _watched(asyncio.to_thread(sys.stdin.read))
    print(stall.clock, stall.cpu)


async def _watched(work: Awaitable[Any]) -> Stall:
    """Look at the clock every millisecond, like something that waits for this loop would."""
    task = asyncio.ensure_future(work)
    clock = cpu = 0.0
    while not task.done():
        began, used = time.perf_counter(), time.process_time()
        await asyncio.sleep(TICK)
        clock = max(clock, time.perf_counter() - began - TICK)
        cpu = max(cpu, time.process_time() - used)
    await task
    return Stall(clock, cpu)


def show_stalls(size: int, found: list[tuple[Stall, Stall, float]]) -> bool:
    """Whether the bar holds: by the CPU of this process always, by the clock where the clock can tell."""

    def listed(values: list[float]) -> str:
        return f"{', '.join(f'{value * 1e3:.1f}' for value in values)} ms"

    clocks, idles = [stall.clock for stall, _, _ in found], [idle.clock for _, idle, _ in found]
    cpus = [stall.cpu for stall, _, _ in found]
    print(f"longest stall of the loop, page of {size / 1e6:.1f} MB (bar {STALL_BAR * 1e3:.0f} ms):")
    print(f"  by the clock: {listed(clocks)}")
    print(f"  of an idle loop in another process at the same time: {listed(idles)}")
    print(f"  CPU of all threads of this process in one turn, at most: {listed(cpus)}")
    print(f"  fetched and converted in {min(took for *_, took in found):.2f} s at best")
    blocked = statistics.median(clocks) > STALL_BAR
    if blocked and statistics.median(idles) > STALL_BAR / 2:
        print("  this machine is too busy for the clock to tell: judged by CPU alone")
        blocked = False
    return not blocked and max(cpus) <= STALL_BAR


async def main(folder: str | None) -> int:
    print("format checks (a library that fails one does another job):")
    found = libraries()
    failed = {name: failed_checks(convert) for name, convert in found.items()}
    for name, checks in failed.items():
        print(f"  {name}: {'all passed' if not checks else 'fails ' + ', '.join(checks)}")
    able = {name: convert for name, convert in found.items() if not failed[name]}
    files = pages(folder)
    if not files:
        print("no large HTML pages here: install python3-doc or postgresql-doc-15, or name a folder")
        return 2
    compared = await compare(files, able, found[DEFAULTS])
    fast_enough = show_ratios(files, compared)
    smallest = sorted(range(len(files)), key=lambda at: files[at].stat().st_size)[:4]
    mean = statistics.fmean(compared[at].here for at in smallest)
    print(f"all of them on the four smallest pages, each: retinue {mean * 1e3:.1f} ms")
    small = [files[at].read_text("utf-8", "replace") for at in smallest]
    for name, convert in found.items():
        times = [
            min(timed(lambda convert=convert, html=html: convert(html)) for _ in range(3)) for html in small
        ]
        loses = f", loses: {', '.join(failed[name])}" if failed[name] else ""
        print(f"  {name} {statistics.fmean(times) * 1e3:.1f} ms{loses}")
    body = b"".join(file.read_bytes() for file in files)[:4_999_000]
    stalls = [await longest_stall(body) for _ in range(STALL_ROUNDS)]
    return 0 if show_stalls(len(body), stalls) and fast_enough else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="HTML to Markdown: time and stalls")
    parser.add_argument("folder", nargs="?", help="HTML pages to convert")
    parser.add_argument("--idle", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.exit(asyncio.run(idle_loop() if given.idle else main(given.folder)))
