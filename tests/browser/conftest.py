"""Fixtures: a real Chromium, a real server process, a fake provider."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from served import SCRIBE, Provider, Served

from retinue.testing import Script

HERE = Path(__file__).parent
expect.set_options(timeout=60_000)  # how long a busy machine may take; what is there is seen at once
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium here: scripts/system.sh installs one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def one_provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
def provider(one_provider: Provider) -> Provider:
    one_provider.play = lambda seen: Script(text="Nothing was scripted.")
    return one_provider


def fill(made: Served) -> None:
    """The project that every test begins with."""
    for path in made.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    made.write(".retinue/agents/scribe.md", SCRIBE)
    made.write("notes.md", "# Notes\n\nRetries are decided in retry.py, line 12.\n")
    made.write("src/retry.py", "def wait(attempt):\n    return 2 ** attempt\n")


@pytest.fixture(scope="session")
def one_server(tmp_path_factory: pytest.TempPathFactory, one_provider: Provider) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served") / "home", one_provider)
    fill(made)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def server(one_server: Served, provider: Provider) -> Iterator[Served]:
    """A server that knows of no run. Starting one takes longer than most tests, so they share it."""
    fill(one_server)
    yield one_server
    one_server.wipe()


@pytest.fixture
def own_server(tmp_path: Path, provider: Provider) -> Iterator[Served]:
    """A server of a test's own, to be stopped, killed and set up otherwise. It is not started yet."""
    made = Served(tmp_path / "home", provider)
    fill(made)
    yield made
    made.stop()


@pytest.fixture
def open_page(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Page]]:
    """A page in a context of its own. Whatever the browser complains about fails the test."""
    server: Served = request.getfixturevalue(
        "own_server" if "own_server" in request.fixturenames else "server"
    )
    complaints: list[str] = []
    contexts = []

    def opened(path: str = "", *, forgive: tuple[str, ...] = (), **options: Any) -> Page:
        wanted = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", **options}
        context = chromium.new_context(**wanted)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))

        def heard(message: ConsoleMessage) -> None:
            text = f"{message.type}: {message.text}"
            if message.type in ("error", "warning") and not any(one in text for one in forgive):
                complaints.append(text)

        page.on("console", heard)
        page.goto(f"{server.url}/{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints, complaints
