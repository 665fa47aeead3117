"""What goes to a provider beside what every wire format has: its usual settings, more headers, more fields.

Called by `wire` and by `pydantic_ai`. What a header holds is in no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from retinue.errors import ModelError
from retinue.models.keys import SHORTEST_KEY
from retinue.types import HIDDEN, ModelRequest, ModelSettings


def with_usual(request: ModelRequest, usual: ModelSettings) -> ModelRequest:
    """The request, asked as is usual for its provider where it does not say."""
    choice = usual.tool_choice if request.tool_choice == "auto" and usual.tool_choice == "none" else ""
    return msgspec.structs.replace(
        request,
        effort=request.effort or usual.effort,
        temperature=usual.temperature if request.temperature is None else request.temperature,
        max_tokens=usual.max_tokens if request.max_tokens is None else request.max_tokens,
        timeout=usual.timeout if request.timeout is None else request.timeout,
        tool_choice=choice or request.tool_choice,
        settings=request.settings.over(usual),
    )


def unsent(settings: ModelSettings, usual: ModelSettings) -> frozenset[str]:
    """Usual settings that are not sent: a call that every request must make would never end in an answer."""
    forced = not settings.tool_choice and usual.tool_choice not in ("", "auto", "none")
    return frozenset({"tool_choice"} if forced else ())


def resolved_headers(settings: ModelSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The extra headers of a request, or the error that a variable is missing or that none is known."""
    if missing := settings.headers.missing():
        raise ModelError(f"no log keeps what the headers {', '.join(missing)} hold", kind="invalid")
    try:
        return settings.headers.resolved(environ)
    except KeyError as error:
        raise ModelError(
            f"an extra header wants ${{{error.args[0]}}}, which is not set", kind="invalid"
        ) from None


def without_values(error: ModelError, headers: Mapping[str, str]) -> ModelError:
    """The error without what extra headers held: a provider may quote it."""
    text = str(error)
    for value in headers.values():
        for part in (value, *value.split()):
            text = text.replace(part, HIDDEN) if len(part) >= SHORTEST_KEY else text
    return ModelError(text, kind=error.kind, status=error.status, retry_after=error.retry_after)


def with_extra(body: bytes, extra: Mapping[str, Any]) -> bytes:
    """A request's body with what else its provider is to be told. What the request says itself, stands."""
    return msgspec.json.encode(_below(msgspec.json.decode(body), extra))


def _below(ours: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    found = {**extra, **ours}
    for name, value in extra.items():
        if isinstance(value, dict) and isinstance(ours.get(name), dict):
            found[name] = _below(ours[name], cast("dict[str, Any]", value))
    return found
