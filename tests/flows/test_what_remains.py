"""What one run was told, found or was allowed counts for its workflow after it has ended, as before."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.authority.flows import leaving
from retinue.events import ApprovalAnswered, ApprovalRequested, MessageReceived, ToolReturned
from retinue.fold import fold, remains

URL = "https://example.com/doc?x=1"


def stamp(kind: Any, **fields: Any) -> Any:
    return kind(run_id="c", root_id="r", parent_id="r", depth=1, seq=1, at=1.0, **fields)


ASKED = {"approval_id": "c:1", "call_id": "1", "tool": "web_fetch", "arguments": "{}", "effect": "network"}
TOLD = {
    "a person named it": [stamp(MessageReceived, text=f"see {URL}", sender="person")],
    "a search found it": [stamp(ToolReturned, call_id="1", name="web_search", text="", found=(URL,))],
    "a page links to it": [stamp(ToolReturned, call_id="1", name="web_fetch", text="", links=(URL,))],
    "a person let it leave": [
        stamp(ApprovalRequested, **ASKED, risk="high", reason="", concerns=("host example.com",)),
        stamp(ApprovalAnswered, approval_id="c:1", call_id="1", decision="approve"),
    ],
}


@pytest.mark.parametrize("how", TOLD)
def test_an_address_that_a_child_may_go_to_its_parent_may_go_to_after_the_child_ended(how: str) -> None:
    child = fold(TOLD[how])
    before, after = (
        leaving("web_fetch", "addresses", {"url": URL}, ("a.txt",), [state])
        for state in (child, remains(child))
    )
    assert before.concern is None
    assert after == before
