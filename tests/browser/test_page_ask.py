"""Asking: from the question to the answer, and on from there."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect
from served import Provider, Served

from retinue.testing import Script


def test_a_question_is_answered_on_the_page(
    open_page: Callable[..., Page], server: Served, provider: Provider
) -> None:
    provider.play = lambda seen: Script(text="## Retries\n\nThey are decided in `retry.py`, **line 12**.")
    page = open_page()
    page.get_by_label("Your question").fill("Where are retries decided?")
    page.get_by_role("button", name="Send").click()
    answer = page.locator(".answer-text")
    expect(answer.locator("code")).to_have_text("retry.py")
    expect(answer.locator("strong")).to_have_text("line 12")
    expect(page.locator(".run-head .badge")).to_have_text("completed")
