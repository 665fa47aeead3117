"""What a provider says it has: the list of its models, in the format of each wire.

Asked by `connect` for a server's only model, by `retinue models`, `retinue doctor` and the first start of the
chat. A list costs nothing. It decides nothing about the models in it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from retinue.errors import ModelError
from retinue.models.http import Client, HttpRefused
from retinue.models.keys import KeyPool
from retinue.models.providers import Provider

LIST_SECONDS = 10.0
MOST_PAGES = 20


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its provider lists it. `context` are the tokens that it may be shown, where it says so."""

    id: str
    title: str = ""
    context: int | None = None


class _Entry(msgspec.Struct):
    """One of a list of OpenAI's or Anthropic's format, with what gateways and local servers add."""

    id: str = ""
    display_name: Any = None
    name: Any = None
    context_length: Any = None
    max_model_len: Any = None
    max_input_tokens: Any = None


class _Page(msgspec.Struct):
    data: list[_Entry]
    has_more: bool = False
    last_id: str | None = None


class _GeminiEntry(msgspec.Struct):
    name: str = ""
    displayName: str = ""
    inputTokenLimit: int | None = None


class _GeminiPage(msgspec.Struct):
    models: list[_GeminiEntry]
    nextPageToken: str = ""


def headers_of(wire: str, key: str | None, *, bearer: bool) -> dict[str, str]:
    """The headers with which a provider is shown a key."""
    if key is None:
        return {}
    if wire == "anthropic" and not bearer:
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    if wire == "gemini":
        return {"x-goog-api-key": key}
    version = {"anthropic-version": "2023-06-01"} if wire == "anthropic" else {}
    return {"Authorization": f"Bearer {key}", **version}


async def listed_models(
    provider: Provider, *, client: Client, keys: KeyPool, bearer: bool = False, seconds: float = LIST_SECONDS
) -> list[ListedModel]:
    """Every model that the provider lists. `HttpRefused`: it answers, and not with a list; `ModelError`: it
    does not answer, or with something else than a list."""
    base, wire = provider.base_url.rstrip("/"), provider.wire
    key = keys.take()
    headers = headers_of(wire, None if key is None else key.secret, bearer=bearer)
    first = {"anthropic": f"{base}/v1/models?limit=1000", "gemini": f"{base}/v1beta/models?pageSize=1000"}
    start = first.get(wire, f"{base}/models")
    found: list[ListedModel] = []
    url = start
    try:
        for _ in range(MOST_PAGES):
            body = await client.get(url, headers=headers, timeout=seconds)
            some, more = _gemini(body) if wire == "gemini" else _usual(body, pages=wire == "anthropic")
            found += some
            if not more:
                break
            url = f"{start}&{more}"
    except HttpRefused:
        raise
    except (OSError, msgspec.MsgspecError) as error:
        said = keys.mask(str(error) or type(error).__name__)
        raise ModelError(f"{start.partition('?')[0]} could not be read: {said}", kind="connection") from None
    return found


def _usual(body: bytes, *, pages: bool) -> tuple[list[ListedModel], str]:
    page = msgspec.json.decode(body, type=_Page)
    found = [
        ListedModel(
            id=entry.id,
            title=next((each for each in (entry.display_name, entry.name) if isinstance(each, str)), ""),
            context=next(
                (
                    each
                    for each in (entry.context_length, entry.max_model_len, entry.max_input_tokens)
                    if isinstance(each, int) and each > 0
                ),
                None,
            ),
        )
        for entry in page.data
        if entry.id
    ]
    more = pages and page.has_more and page.last_id
    return found, f"after_id={quote(page.last_id or '')}" if more else ""


def _gemini(body: bytes) -> tuple[list[ListedModel], str]:
    page = msgspec.json.decode(body, type=_GeminiPage)
    found = [
        ListedModel(
            id=entry.name.removeprefix("models/"), title=entry.displayName, context=entry.inputTokenLimit
        )
        for entry in page.models
        if entry.name
    ]
    return found, f"pageToken={quote(page.nextPageToken)}" if page.nextPageToken else ""
