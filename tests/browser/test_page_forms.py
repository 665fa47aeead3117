"""What an MCP server asks while a call runs: a form on the page, made from its schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from served import Provider, Served

from mcp_world import PLAIN
from retinue.testing import Script, SeenRequest, call

Open = Callable[..., Page]
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "title": "Colour", "description": "as on the tin", "minLength": 3},
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
        },
        "kind": {"type": "string", "enum": ["matt", "gloss"], "default": "gloss"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "mail": {"type": "string", "format": "email"},
        "urgent": {"type": "boolean", "default": True},
        "rooms": {"type": "array", "items": {"type": "string", "enum": ["kitchen", "hall"]}},
    },
    "required": ["colour", "size", "count"],
}


@pytest.fixture
def server(tmp_path: Path, provider: Provider) -> Iterator[Served]:
    made = Served(tmp_path / "home", provider)
    args = ["-I", "-S", str(PLAIN), "--form", json.dumps(FORM)]
    config = tmp_path / "home/config/retinue/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f"[mcp.servers.plain]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(args)}\n"
        '[approvals]\nallow = ["mcp__plain__*"]\n'
    )
    made.start()
    yield made
    made.stop()


def asks(seen: SeenRequest) -> Script:
    if seen.turn == 0:
        return Script(calls=(call("mcp__plain__ask", about="the wall"),))
    return Script(text=f"It came to: `{seen.messages[-1].text}`")


def test_a_question_of_a_server_is_a_form_with_a_field_for_each_property(
    open_page: Open, server: Served, provider: Provider, tmp_path: Path
) -> None:
    provider.play = asks
    page = open_page()
    run_id: str = server.api("POST", "runs", {"prompt": "Paint it."})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    dialog = page.get_by_role("dialog", name="Approval")
    expect(dialog).to_contain_text("general has a question for you")
    expect(dialog).to_contain_text("Which colour for the wall?")
    expect(dialog.get_by_label("kind")).to_have_value("1")
    expect(dialog.get_by_label("urgent")).to_be_checked()
    expect(dialog.get_by_label("count")).to_have_value("2")
    send = dialog.get_by_role("button", name="Send")
    send.click()
    expect(dialog.get_by_role("alert")).to_contain_text("Colour is needed")
    dialog.get_by_label("Colour").fill("green")
    dialog.get_by_label("size").select_option(label="Large")
    dialog.get_by_label("count").fill("12")
    send.click()
    expect(dialog.get_by_role("alert")).to_contain_text("count is not right")
    page.screenshot(path=str(tmp_path / "form.png"))
    dialog.get_by_label("count").fill("3")
    dialog.get_by_label("urgent").uncheck()
    dialog.get_by_label("hall").check()
    send.click()
    expect(page.locator(".answer-text")).to_contain_text("It came to:")
    said = page.locator(".answer-text").inner_text()
    given = {"colour": "green", "size": "l", "kind": "gloss", "count": 3, "urgent": False, "rooms": ["hall"]}
    for name, value in given.items():
        assert f"{json.dumps(name)}: {json.dumps(value)}" in said


def test_a_form_can_be_declined(open_page: Open, server: Served, provider: Provider) -> None:
    provider.play = asks
    page = open_page()
    run_id: str = server.api("POST", "runs", {"prompt": "Paint it."})["run_id"]
    page.goto(f"{server.url}/#/run/{run_id}")
    page.get_by_role("dialog", name="Approval").get_by_role("button", name="Decline").click()
    expect(page.locator(".answer-text")).to_contain_text("decline")
