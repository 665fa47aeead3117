"""Turns what a provider or the network said into a `ModelError` with the right kind.

Called by `wire`, and by the readers for errors inside a stream. The message is the provider's own, cut to
a line and without keys. It decides nothing about retries: `retry` does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, AnyStr, cast

import msgspec

from retinue.errors import ModelError, ModelErrorKind
from retinue.models.keys import AUTH_REST, LIMIT_REST, QUOTA_REST, Key, KeyPool
from retinue.models.resets import quota_reset, resets_in

LONGEST_MESSAGE = 500
LONGEST_JSON = 1024 * 1024
"""Bytes of an error that are decoded: some servers send back the whole request with it."""
LOOKED_AT = 64 * 1024
"""Characters or bytes of an error in which its message and its keys are looked for."""

_TOO_LONG = re.compile(
    r"context.?length|context.?window|context.?size|maximum context|prompt is too long"
    r"|too many (?:input )?tokens|input token count|exceeds? the maximum number of tokens"
    r"|token limit|reduce the length",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient.?(?:quota|balance|credit|funds)|exceeded your current quota|credit balance is too low"
    r"|billing|payment required|PerDay|spend.?limit",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"api[ _-]?key.{0,30}(?:invalid|not valid|expired|missing|incorrect)", re.IGNORECASE)
_UNSAFE = re.compile(r"content.?filter|content management policy|content_policy", re.IGNORECASE)

# The names that providers give to errors, in the body or inside a stream that began well.
_KIND_OF_NAME: dict[str, ModelErrorKind] = {
    "authentication_error": "auth",
    "permission_error": "auth",
    "permission_denied": "auth",
    "unauthenticated": "auth",
    "invalid_api_key": "auth",
    "billing_error": "rate_limit",
    "insufficient_quota": "rate_limit",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "resource_exhausted": "rate_limit",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "not_found": "not_found",
    "request_too_large": "too_long",
    "context_length_exceeded": "too_long",
    "exceed_context_size_error": "too_long",
    "invalid_request_error": "invalid",
    "invalid_argument": "invalid",
    "failed_precondition": "invalid",
    "content_filter": "refused",
    "overloaded_error": "overloaded",
    "api_error": "overloaded",
    "server_error": "overloaded",
    "internal": "overloaded",
    "internal_server_error": "overloaded",
    "unavailable": "overloaded",
    "timeout_error": "timeout",
    "deadline_exceeded": "timeout",
}


def answered(
    status: int, headers: Mapping[str, str], body: bytes, *, keys: KeyPool, key: Key | None
) -> ModelError:
    """The error for an answer that is not 200. Sends the key to rest where it is the key's fault."""
    said = read_body(body)
    retry_after = _retry_after(headers, said)
    if retry_after is None and status in (429, 503, 529):
        retry_after = resets_in(headers)
    message = f"{keys.provider or 'the provider'} answered {status}: {said.message or 'no message'}"
    return _error(said, message, status=status, retry_after=retry_after, keys=keys, key=key)


def in_stream(data: Any, *, keys: KeyPool, key: Key | None) -> ModelError:
    """The error for an error object that came inside a stream."""
    said = _read(data)
    status = said.status if said.status is not None and said.status >= 400 else None
    message = f"{keys.provider or 'the provider'} broke off: {said.message or 'no message'}"
    return _error(said, message, status=status, retry_after=said.retry_after, keys=keys, key=key)


def lost(error: BaseException, *, keys: KeyPool, timeout: float) -> ModelError:
    """The error for a connection that could not be made, was lost, or was too slow."""
    who = keys.provider or "the provider"
    if isinstance(error, TimeoutError):
        detail = str(error) or "no answer"
        return ModelError(
            f"{who}: {keys.mask(detail)} within {timeout:g} s; for a slow model, raise limits.model_timeout",
            kind="timeout",
        )
    detail = keys.mask(str(error) or type(error).__name__)[:LONGEST_MESSAGE]
    return ModelError(f"{who}: connection failed: {detail}", kind="connection")


class Said(msgspec.Struct, frozen=True):
    """What could be read from an error body."""

    message: str = ""
    names: tuple[str, ...] = ()
    status: int | None = None
    retry_after: float | None = None


def read_body(body: bytes) -> Said:
    """An error body of any shape: JSON of every known form, or HTML of a gateway."""
    if len(body) <= LONGEST_JSON:
        try:
            return _read(msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    text = _beginning(body).decode("utf-8", "replace")
    return Said(message=" ".join(re.sub(r"<[^<>]*>", " ", text).split()))


def _beginning(text: AnyStr) -> AnyStr:
    """What is looked at of a text, cut between words: half a key would not be known for one."""
    return text if len(text) <= LOOKED_AT else text[:LOOKED_AT].rsplit(None, 1)[0]


def _read(data: Any) -> Said:
    if isinstance(data, list) and data:  # Gemini wraps its errors in an array
        data = cast("list[Any]", data)[0]
    if isinstance(data, str):
        return Said(message=data)
    if not isinstance(data, dict):
        return Said()
    outer = cast("dict[str, Any]", data)
    inner = outer.get("error", outer)
    if isinstance(inner, str):
        inner = {"message": inner}
    if not isinstance(inner, dict):
        return Said()
    found = cast("dict[str, Any]", inner)
    message = next((found[k] for k in ("message", "detail", "error", "msg") if found.get(k)), "")
    names = tuple(v.lower() for k in ("type", "code", "status") if isinstance(v := found.get(k), str))
    number = next((v for k in ("code", "status", "status_code") if isinstance(v := found.get(k), int)), None)
    return Said(
        message=message if isinstance(message, str) else msgspec.json.encode(message).decode(),
        names=names,
        status=number,
        retry_after=quota_reset(found.get("details")) or _retry_info(found.get("details")),
    )


def _error(
    said: Said,
    message: str,
    *,
    status: int | None,
    retry_after: float | None,
    keys: KeyPool,
    key: Key | None,
) -> ModelError:
    kind = _kind(said, status)
    if kind == "auth":
        keys.rest(key, AUTH_REST)
    elif kind == "rate_limit":
        spent = status == 402 or _QUOTA.search(said.message) or "insufficient_quota" in said.names
        guessed = QUOTA_REST if spent else LIMIT_REST
        keys.rest(key, guessed if retry_after is None else retry_after, told=retry_after is not None)
    return ModelError(
        keys.mask(" ".join(_beginning(message).split()))[:LONGEST_MESSAGE],
        kind=kind,
        status=status,
        retry_after=retry_after,
    )


def _kind(said: Said, status: int | None) -> ModelErrorKind:
    named: ModelErrorKind | None = None
    for name in said.names:
        named = named or _KIND_OF_NAME.get(name)
    if named == "too_long" or status == 413:
        return "too_long"
    if status in (400, 422, None) or named == "invalid":
        if _TOO_LONG.search(said.message):
            return "too_long"
        if _BAD_KEY.search(said.message):
            return "auth"
        if _UNSAFE.search(said.message) or named == "refused":
            return "refused"
        if _QUOTA.search(said.message):
            return "rate_limit"
    if status is None:
        return named or "overloaded"
    return _kind_of_status(status)


def _kind_of_status(status: int) -> ModelErrorKind:
    if status in (401, 403):
        return "auth"
    if status == 404:
        return "not_found"
    if status == 408:
        return "timeout"
    if status in (402, 429):
        return "rate_limit"
    if status >= 500:
        return "overloaded"
    return "invalid"


def _retry_after(headers: Mapping[str, str], said: Said) -> float | None:
    """Seconds to wait: `retry-after-ms`, `Retry-After` as seconds or as a date, or Gemini's RetryInfo."""
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None:
        try:
            return max(0.0, float(milliseconds) / 1000)
        except ValueError:
            pass
    value = headers.get("retry-after")
    if value is None:
        return said.retry_after
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return said.retry_after


def _retry_info(details: Any) -> float | None:
    if not isinstance(details, list):
        return None
    for item in cast("list[Any]", details):
        delay = cast("dict[str, Any]", item).get("retryDelay") if isinstance(item, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return None
