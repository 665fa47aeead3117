"""What the pages about hosts show: every command in a snippet can be typed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.root import build

HOSTS = Path(__file__).parents[2] / "docs" / "hosts"
PAGES = sorted(HOSTS.glob("*.md"))


def servers(value: Any) -> Iterator[dict[str, Any]]:
    """Every entry of a snippet that says how to reach a server."""
    if isinstance(value, dict):
        if "command" in value or "url" in value:
            yield value
        for inner in value.values():
            yield from servers(inner)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_snippet_starts_a_server_that_there_is(page: Path) -> None:
    shown = [
        json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", page.read_text(), flags=re.S | re.M)
    ]
    found = [server for snippet in shown for server in servers(snippet)]
    assert found or page.stem == "codex"
    for server in found:
        if "url" in server:
            assert server["url"].endswith("/mcp")
            continue
        assert Path(server["command"]).name == "retinue"
        typed(list(server["args"]))


def typed(words: list[str]) -> None:
    """Fails as the command line would, without running anything."""
    command: Any = build(words[:1])
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)


def test_there_is_a_page_for_each_host_that_people_use() -> None:
    wanted = "claude-code claude-desktop codex cursor jetbrains neovim team vs-code zed"
    assert {*wanted.split()} <= {page.stem for page in PAGES}
