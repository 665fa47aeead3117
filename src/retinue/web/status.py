"""HTTP statuses as sentences: what happened, and what a model should do instead."""

from __future__ import annotations

import http
from collections.abc import Mapping

from retinue.errors import ToolError

_ADVICE = {
    400: "The server does not understand this address: check it.",
    401: "It needs a login, which the web tools never have. Use another source.",
    402: "It must be paid for. Use another source.",
    403: "The site refuses programs or this address. Use another source, or search for a copy.",
    404: "There is no such page. Check the address, or find the page's new place with web_search.",
    405: "It cannot be fetched by a plain request. Use another source.",
    406: "Use another source.",
    407: "The proxy in web.proxy wants a login: this is for the operator to mend.",
    410: "The page was removed for good. Search for a copy or another source.",
    418: "The site refuses programs. Use another source.",
    451: "The page is withheld for legal reasons. Use another source.",
}


def explain(url: str, status: int, headers: Mapping[str, str]) -> ToolError:
    """The error for an answer that is no page."""
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    said = f"{url} answered {status} {phrase}".rstrip()
    wait = retry_after(headers)
    if status == 429 or (status == 503 and wait is not None):
        when = "later" if wait is None else f"in {wait} seconds"
        return ToolError(f"{said}: rate limited. Try again {when}, or use another source meanwhile.")
    if status >= 500:
        return ToolError(f"{said}: the server failed. Try it once more later, or use another source.")
    if status in (204, 205):
        return ToolError(f"{said}: there is nothing to read.")
    if 300 <= status < 400:
        return ToolError(f"{said} without a place to go to. Use another source.")
    return ToolError(f"{said}. {_ADVICE.get(status, 'Use another source.')}")


def retry_after(headers: Mapping[str, str]) -> int | None:
    """The seconds a server asks to wait, as a number; a date is not worth reading for a model."""
    value = headers.get("retry-after", "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 7 else None
