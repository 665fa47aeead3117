"""A model behind HTTP: asks, reads the stream, makes the reply. What differs per provider is its `Wire`.

`connect` puts together a `HttpModel` from a wire format, the shared `Client`, the provider's keys and its
prices. It makes one attempt; `retry` wraps it. Closing the iterator, or cancelling the task that reads
it, closes the connection, so that the provider stops working.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from retinue.errors import ModelError, ToolError
from retinue.models import failures
from retinue.models.base import SECONDS
from retinue.models.extras import resolved_headers, unsent, with_extra, with_usual, without_values
from retinue.models.http import Client
from retinue.models.ids import unique_ids
from retinue.models.keys import Key, KeyPool
from retinue.models.pictures import UNTAKEN, as_bytes, pictures, without
from retinue.models.prices import Cost, Tokens
from retinue.models.sse import MOST_BYTES, SseParser
from retinue.replies import MOST_CHARACTERS, MOST_TOKENS, too_large
from retinue.types import (
    AssistantMessage,
    Effort,
    Image,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    Reply,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolSpec,
    Usage,
)

if TYPE_CHECKING:
    from retinue.models.line import HttpAnswer

DRAIN_SECONDS = 0.25
MOST_STREAMED = 256 * 1024 * 1024
"""Bytes of one reply on the wire, whatever they are: thirty times its longest text, since each word of it
comes in an envelope of its own, and everything that is not counted more closely."""
_MOST_DIGITS = 300
MOST_PICTURES = 64
CALL_SIZE = 200
"""Characters that a call or a block counts for beside its text: one without any takes memory too."""
NO_COUNT = -1_000 * MOST_TOKENS
"""What a provider called a number of tokens, and is none. No sum with it is a count of anything either."""


class ReplyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader made of a whole answer. `cost` where the provider itself said what it charged."""

    calls: tuple[ToolCall, ...]
    stop: StopReason
    tokens: Tokens
    extra: dict[str, Any] | None = None
    cost: float | None = None


class ReplyReader:
    """Reads one answer. `fresh` and `fresh_thinking` are the pieces since they were last collected.

    A subclass turns one event's JSON into these in `feed`, and says in `finish` what it all came to.
    `done` is set by the format's own end mark; `error` by an error object inside the stream.
    """

    def __init__(self) -> None:
        self.text: list[str] = []
        self.fresh: list[str] = []
        self.thinking: list[str] = []
        self.fresh_thinking: list[str] = []
        self.done = False
        self.error: Any = None
        self._kept = self._told = 0

    def keep(self, size: int) -> None:
        """So many more characters are kept until the answer is whole: of arguments, signatures, calls.

        What is shown as it comes (text and thoughts) is counted where it is shown.
        """
        self._kept += size
        if self._kept > MOST_CHARACTERS:
            raise too_large(
                "the provider",
                f"calls of more than {MOST_CHARACTERS:,} characters in one reply, the most that is kept",
            )

    def feed(self, data: bytes) -> None:
        raise NotImplementedError

    def finish(self) -> ReplyOutcome | None:
        """None when the answer is not complete."""
        raise NotImplementedError

    def collect(self) -> list[ModelEvent]:
        """The deltas that came with one read from the network, joined: a fast model costs no more."""
        events: list[ModelEvent] = []
        if self.fresh_thinking:
            piece = "".join(self.fresh_thinking)
            self.thinking.append(piece)
            self.fresh_thinking.clear()
            events.append(ThinkingDelta(piece))
        if self.fresh:
            piece = "".join(self.fresh)
            self.text.append(piece)
            self.fresh.clear()
            events.append(TextDelta(piece))
        if not events and self._kept > self._told:
            events.append(ThinkingDelta(""))
        self._told = self._kept
        return events


class Wire(Protocol):
    """One provider's form of a request and of an answer."""

    @property
    def url(self) -> str: ...

    def headers(self, key: Key | None) -> dict[str, str]: ...

    def encode(self, request: ModelRequest) -> bytes: ...

    def reader(self, request: ModelRequest) -> ReplyReader: ...

    def effort(self, request: ModelRequest) -> Effort:
        """How hard the model is asked to think by what `encode` makes of this request."""
        ...

    def lacks(self, settings: ModelSettings) -> frozenset[str]:
        """Settings that this model does not have, by what is set."""
        ...

    def mend(self, request: ModelRequest, error: ModelError) -> bytes | None:
        """Another body to send at once after a refusal that this format knows how to avoid."""
        ...


class HttpModel:
    """One model of one provider, over one wire format."""

    def __init__(
        self,
        *,
        name: str,
        wire: Wire,
        client: Client,
        keys: KeyPool,
        cost: Cost,
        patience: float = SECONDS,
        advise: Callable[[int], str] = lambda status: "",
        by_address: bool = True,
        settings: ModelSettings | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._by_address = by_address
        """Whether it takes pictures by their addresses, and not only their bytes."""
        self._advise = advise
        self._settings = settings or ModelSettings()
        """How this provider's models are asked where a request does not say."""
        self._environ = os.environ if environ is None else environ
        self._name = name
        self._wire = wire
        self._client = client
        self._keys = keys
        self._cost = cost
        self._patience = patience
        self._untaken: dict[frozenset[Image], None] = {}
        """Pictures that the server did not take together, and took the same request without. Other workflows
        ask this model too: what it said of one's request is not kept."""
        self._fetched: dict[str, Image] = {}

    def __repr__(self) -> str:
        return f"HttpModel({self._name})"

    @property
    def name(self) -> str:
        return self._name

    def lacks(self, settings: ModelSettings) -> dict[str, str]:
        asked = settings.over(self._settings)
        has_not = self._wire.lacks(asked) | unsent(settings, self._settings)
        return {name: self._name for name in asked.given if name in has_not}

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self._settings.given:
            request = with_usual(request, self._settings)
        return self._with_headers(request) if request.settings.extra_headers else self._stream(request, {})

    async def _with_headers(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        headers = resolved_headers(request.settings, self._environ)
        try:
            async with aclosing(self._stream(request, headers)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            raise without_values(error, headers) from None

    async def _stream(
        self, request: ModelRequest, headers: Mapping[str, str]
    ) -> AsyncGenerator[ModelEvent, None]:
        request = await self._with_pictures(request)
        key = self._keys.take()
        self._cost.prepare()
        reader = self._wire.reader(request)
        response, effort = await self._ask(request, key, headers)
        events: SseParser | _OneBody = SseParser()
        if "json" in response.headers.get("content-type", ""):
            events = _OneBody()  # some servers answer in one piece although asked to stream
        whole, size = False, 0
        try:
            while True:
                chunk = await self._read(response, request)
                size += len(chunk)
                if size > MOST_STREAMED:
                    raise too_large(self._name, f"more than the {MOST_STREAMED:,} bytes a reply may take")
                for data in events.feed(chunk) if chunk else events.finish():
                    self._feed(reader, data)
                for event in reader.collect():
                    yield event
                if reader.error is not None:
                    raise failures.in_stream(reader.error, keys=self._keys, key=key)
                if reader.done or not chunk:
                    break
            whole = response.complete or await _drain(response)
        finally:
            if whole:
                response.release()
            else:
                response.close()
        yield await self._reply(reader, effort)

    def _seconds(self, request: ModelRequest) -> float:
        return self._patience if request.timeout is None else request.timeout

    async def _ask(
        self, request: ModelRequest, key: Key | None, more: Mapping[str, str]
    ) -> tuple[HttpAnswer, Effort]:
        """The answer's beginning with the effort that was asked for, or the error it is."""
        headers = {**more, **self._wire.headers(key)}
        effort = self._wire.effort(request)
        response = await self._post(self._wire.encode(request), headers, request)
        if response.status == 200:
            return response, effort
        error = await self._refusal(response, request, key)
        mended = self._wire.mend(request, error)
        other = mended or self._pictureless(request, error)
        if other is None:
            raise error
        effort = self._wire.effort(request)
        response = await self._post(other, headers, request)
        if response.status == 200:
            if mended is None:
                self._remember_untaken(frozenset(pictures(request.messages)))
            return response, effort
        raise await self._refusal(response, request, key)

    async def _with_pictures(self, request: ModelRequest) -> ModelRequest:
        """The request with the pictures that this server takes, as it takes them."""
        shown = pictures(request.messages)
        if not shown:
            return request
        left_out = {image for together in self._untaken if together.issubset(shown) for image in together}
        request = without(request, left_out, f"{self._name} did not take it")
        return request if self._by_address else await as_bytes(request, self._fetch)

    async def _fetch(self, url: str) -> Image | str:
        if url not in self._fetched:
            try:
                image = await self._client.picture(url)
            except ToolError as error:
                return str(error)
            if len(self._fetched) >= MOST_PICTURES:
                del self._fetched[next(iter(self._fetched))]
            self._fetched[url] = image
        return self._fetched[url]

    def _pictureless(self, request: ModelRequest, error: ModelError) -> bytes | None:
        """The request without its pictures, after a refusal that they may have caused."""
        shown = pictures(request.messages)
        if not shown or error.status not in UNTAKEN or error.kind == "too_long":
            return None
        why = f"{self._name} did not take it ({str(error)[:200]})"
        return self._wire.encode(without(request, shown, why))

    def _remember_untaken(self, together: frozenset[Image]) -> None:
        self._untaken[together] = None
        while sum(map(len, self._untaken)) > MOST_PICTURES and len(self._untaken) > 1:
            del self._untaken[next(iter(self._untaken))]

    async def _post(self, body: bytes, headers: dict[str, str], request: ModelRequest) -> HttpAnswer:
        if request.settings.extra_body:
            body = with_extra(body, request.settings.extra_body)
        try:
            return await self._client.post(
                self._wire.url, headers=headers, body=body, timeout=self._seconds(request)
            )
        except OSError as error:
            raise failures.lost(error, keys=self._keys, timeout=self._seconds(request)) from None

    async def _refusal(self, response: HttpAnswer, request: ModelRequest, key: Key | None) -> ModelError:
        try:
            body = await response.read()
        except OSError as error:
            return failures.lost(error, keys=self._keys, timeout=self._seconds(request))
        finally:
            response.release()
        error = failures.answered(response.status, response.headers, body, keys=self._keys, key=key)
        advice = self._advise(response.status)
        if not advice:
            return error
        text = f"{str(error).rstrip('.')}. {advice}"
        return ModelError(text, kind=error.kind, status=error.status, retry_after=error.retry_after)

    async def _read(self, response: HttpAnswer, request: ModelRequest) -> bytes:
        try:
            return await response.chunk()
        except OSError as error:
            raise failures.lost(error, keys=self._keys, timeout=self._seconds(request)) from None

    def _feed(self, reader: ReplyReader, data: bytes) -> None:
        try:
            try:
                reader.feed(data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                reader.feed(legible(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # Masked before it is cut: half a key would not be known for one.
            shown = self._keys.mask(data[:4000].decode("utf-8", "replace"))[:200]
            raise ModelError(
                f"{self._name} sent something that cannot be understood ({error}): {shown}", kind="protocol"
            ) from None

    async def _reply(self, reader: ReplyReader, effort: Effort) -> Reply:
        outcome = reader.finish()
        if outcome is None:
            raise ModelError(f"{self._name}: the answer ended before it was complete", kind="connection")
        tokens = outcome.tokens
        cost = outcome.cost if outcome.cost is not None else await self._cost.of(tokens)
        return Reply(
            message=AssistantMessage(
                text="".join(reader.text),
                calls=unique_ids(outcome.calls),
                extra=outcome.extra,
            ),
            usage=Usage(
                input_tokens=tokens.input,
                output_tokens=tokens.output,
                cached_tokens=tokens.cached,
                cost=cost,
            ),
            stop=outcome.stop,
            model=self._name,
            thinking="".join(reader.thinking),
            effort=effort,
        )


def legible(data: bytes) -> bytes:
    """The JSON of an event as every reader takes it: with half a character as "?", and no number as null.

    Servers cut characters in two, and some write NaN. Such an answer is paid for, and the rest of it is
    sound. What is no JSON at all stays as it is.
    """
    try:
        found = json.loads(
            data.decode("utf-8", "replace"), parse_constant=lambda _: None, parse_int=_int, parse_float=_float
        )
        whole = json.dumps(found, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return data
    return whole.encode("utf-8", "replace")


def _int(digits: str) -> int | None:
    return int(digits) if len(digits) < _MOST_DIGITS else None


def _float(digits: str) -> float | None:
    found = float(digits)
    return found if isfinite(found) else None


def count(usage: Any, *path: str) -> int:
    """A number of tokens in what a provider says it used: 0 if it says nothing, `NO_COUNT` if it is none."""
    found = usage
    for name in path:
        if found is None:
            return 0
        if not isinstance(found, dict):
            return NO_COUNT
        found = cast("dict[str, Any]", found).get(name)
    if found is None:
        return 0
    return found if type(found) is int and 0 <= found <= MOST_TOKENS else NO_COUNT


class _OneBody:
    """A whole JSON body in place of a stream of events, if it is not too long to be one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        self._parts.append(chunk)
        self._size += len(chunk)
        if self._size > MOST_BYTES:
            raise ModelError(
                f"the provider sent {self._size:,} bytes in one piece, "
                f"more than the {MOST_BYTES:,} that are kept",
                kind="protocol",
            )
        return []

    def finish(self) -> list[bytes]:
        return [b"".join(self._parts)]


async def _drain(response: HttpAnswer) -> bool:
    """Read to the end of a finished answer, so that its connection can be used again.

    The answer is already complete: a server that keeps the line open must not hold it up for long.
    """
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while await response.chunk():
                pass
    except Exception:  # whatever happens to a connection that is no longer needed
        return False
    return True


def refuses_thoughts(request: ModelRequest, error: ModelError, wire: str, *words: str) -> bool:
    """Whether a provider refuses, in these words, thoughts that it wrote itself into the conversation."""
    if error.status != 400 or not any(word in str(error) for word in words):
        return False
    return any(type(m) is AssistantMessage and (m.extra or {}).get(wire) for m in request.messages)


class Encoded:
    """Remembers the encoded form of tool lists: they are large, and the same in every turn of a run."""

    def __init__(self, encode: Callable[[tuple[ToolSpec, ...]], bytes], size: int = 256) -> None:
        self._encode = encode
        self._size = size
        self._found: dict[tuple[Any, ...], tuple[tuple[ToolSpec, ...], msgspec.Raw]] = {}

    def __call__(self, tools: tuple[ToolSpec, ...]) -> msgspec.Raw:
        # A schema is a dict, so it is known by identity; the entry keeps it alive, so its id stays its own.
        key = tuple((tool.name, tool.description, id(tool.schema)) for tool in tools)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= self._size:
                self._found.pop(next(iter(self._found)))
            found = self._found[key] = (tools, msgspec.Raw(self._encode(tools)))
        return found[1]
