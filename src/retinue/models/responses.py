"""OpenAI's responses format: what its reasoning models want to be asked through.

Since GPT-5.5 OpenAI's chat completions refuse tools to a model that reasons, so `connect` asks OpenAI's own
GPT-5 and later here; everyone else is asked through `openai`. Nothing is stored at the provider: the
reasoning comes back encrypted, is kept in `AssistantMessage.extra` and goes back in its place.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from retinue.errors import ModelError
from retinue.models.arguments import object_text
from retinue.models.ids import sendable
from retinue.models.keys import Key
from retinue.models.prices import Tokens
from retinue.models.schemas import is_strict
from retinue.models.wire import CALL_SIZE, Encoded, ReplyOutcome, ReplyReader, count, refuses_thoughts
from retinue.types import (
    AssistantMessage,
    Effort,
    Message,
    ModelRequest,
    ModelSettings,
    StopReason,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

SPEAKS = re.compile(r"gpt-[5-9](?!-chat)|o\d|codex")
LONGEST = 128_000
_TAKES_TEMPERATURE = re.compile(r"gpt-5(?:\.[1-4](?!-chat))|gpt-4")


class _Body(Struct):
    model: str
    input: list[Any]
    stream: bool = True
    store: bool = False
    include: Raw = Raw(b'["reasoning.encrypted_content"]')
    instructions: str | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    tool_choice: str | dict[str, Any] | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    max_output_tokens: int | UnsetType = UNSET
    text: dict[str, Any] | UnsetType = UNSET
    reasoning: dict[str, str] | UnsetType = UNSET


class _Item(Struct, gc=False):
    """An output item. `content` stays undecoded: it is only sent back, never read."""

    type: str = ""
    id: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    phase: str | None = None
    encrypted_content: str | None = None
    summary: list[Any] | None = None


class _Incomplete(Struct, gc=False):
    reason: str | None = None


class _Response(Struct, gc=False):
    usage: Any = None
    error: Any = None
    incomplete_details: _Incomplete | None = None


class _Event(Struct, gc=False):
    type: str = ""
    output_index: int = 0
    delta: Any = None
    item: _Item | None = None
    response: _Response | None = None
    message: str | None = None
    code: Any = None
    error: Any = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Event)


def encode_tools(tools: tuple[ToolSpec, ...]) -> bytes:
    return _encoder.encode(
        [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.schema,
                "strict": False,
            }
            for t in tools
        ]
    )


class ResponsesWire:
    """Requests and answers of the responses endpoint."""

    def __init__(self, *, base_url: str, model: str) -> None:
        self.url = base_url.rstrip("/") + "/responses"
        self._model = model
        self._tools = Encoded(encode_tools)
        self._temperature = bool(_TAKES_TEMPERATURE.match(model)) or not SPEAKS.match(model)
        self._effort = bool(SPEAKS.match(model))

    def headers(self, key: Key | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key.secret}"
        return headers

    def encode(self, request: ModelRequest) -> bytes:
        return self._encode(request, thoughts=True)

    def effort(self, request: ModelRequest) -> Effort:
        return request.effort if self._effort else ""

    def reader(self, request: ModelRequest) -> ReplyReader:
        return ResponsesReader()

    def mend(self, request: ModelRequest, error: ModelError) -> bytes | None:
        """Reasoning that another account or model wrote cannot be decrypted: go on without it. Some models
        take one effort alone, or none."""
        if error.status == 400 and self.effort(request) and "effort" in str(error):
            self._effort = False
            return self._encode(request, thoughts=True)
        refused = refuses_thoughts(request, error, "responses", "encrypted", "reasoning")
        return self._encode(request, thoughts=False) if refused else None

    def _encode(self, request: ModelRequest, *, thoughts: bool) -> bytes:
        body = _Body(model=self._model, input=encode_input(request.messages, thoughts=thoughts))
        if request.system:
            body.instructions = request.system
        if request.tools:
            body.tools = self._tools(request.tools)
            if request.tool_choice != "auto":
                body.tool_choice = _choice(request.tool_choice)
        if effort := self.effort(request):
            body.reasoning = {"effort": effort}
        if request.temperature is not None and self._temperature:
            body.temperature = request.temperature
        if request.max_tokens is not None and request.max_tokens <= LONGEST:
            body.max_output_tokens = max(16, request.max_tokens)  # a smaller one is refused
        if request.schema is not None:
            schema = request.schema
            form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}
            body.text = {"format": form}
        asked = request.settings.without(self.lacks(request.settings))
        if asked.top_p is not None:
            body.top_p = asked.top_p
        if asked.parallel_tool_calls is not None and request.tools:
            body.parallel_tool_calls = asked.parallel_tool_calls
        if asked.service_tier:
            body.service_tier = asked.service_tier
        return _encoder.encode(body)

    def lacks(self, settings: ModelSettings) -> frozenset[str]:
        """This format has neither of the first two, and models that reason choose their words themselves."""
        lacks = {"stop", "seed"}
        if not self._temperature:
            lacks |= {"temperature", "top_p"}
        if not self._effort:
            lacks.add("effort")
        return frozenset(lacks)


def _choice(wanted: str) -> str | dict[str, Any]:
    if wanted in ("auto", "none", "required"):
        return wanted
    return {"type": "function", "name": sendable(wanted)}


def encode_input(messages: tuple[Message, ...], *, thoughts: bool = True) -> list[Any]:
    """The conversation as a flat list of items."""
    items: list[Any] = []
    for message in messages:
        if type(message) is ToolMessage:
            output = _parts(message) if message.images else message.text
            items.append({"type": "function_call_output", "call_id": message.call_id, "output": output})
        elif type(message) is UserMessage:
            items.append({"role": "user", "content": _parts(message) if message.images else message.text})
        else:
            _answer(cast("AssistantMessage", message), items, thoughts)
    return items


def _parts(message: UserMessage | ToolMessage) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": message.text}] if message.text else []
    for image in message.images:
        parts.append({"type": "input_image", "image_url": image.address})
    return parts


def _answer(message: AssistantMessage, items: list[Any], thoughts: bool) -> None:
    """An earlier answer, its reasoning, text and calls in the order they came."""
    kept: list[dict[str, Any]] = (message.extra or {}).get("responses") or []
    left = iter(message.calls)
    at = 0
    for item in kept if thoughts else ():
        if "text" in item:
            piece = message.text[at : at + item["text"]]
            at += item["text"]
            if piece:
                items.append(_said(piece, item.get("phase")))
        elif "call" in item:
            call = next(left, None)
            if call is not None:
                items.append(_called(call))
        else:
            items.append(item)
    if at == 0 and message.text:
        items.append(_said(message.text, None))
    items.extend(_called(call) for call in left)


def _said(text: str, phase: str | None) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }
    if phase is not None:
        item["phase"] = phase
    return item


def _called(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": sendable(call.name),
        "arguments": object_text(call.arguments),
    }


class ResponsesReader(ReplyReader):
    """Reads one response."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, _Item] = {}
        self._lengths: dict[int, int] = {}
        self._arguments: dict[int, list[str]] = {}
        self._ended: _Response | None = None
        self._refused = False

    def feed(self, data: bytes) -> None:
        if data == b"[DONE]" or not data.strip():
            return
        event = _decoder.decode(data)
        kind = event.type
        if kind == "response.output_text.delta":
            self._say(event.output_index, event.delta)
        elif kind == "response.function_call_arguments.delta":
            piece = str(event.delta)
            self.keep(len(piece))
            self._arguments.setdefault(event.output_index, []).append(piece)
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self.fresh_thinking.append(str(event.delta))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            if event.item is not None:
                self._item(event.output_index, event.item)
        elif kind == "response.refusal.delta":
            self._refused = True
            self._say(event.output_index, event.delta)
        elif kind in ("response.completed", "response.incomplete"):
            self._ended = event.response or _Response()
            self.done = True
        elif kind == "response.failed":
            self.error = (event.response.error if event.response else None) or {"message": "failed"}
        elif kind == "error" or event.error is not None:
            self.error = event.error or {"message": event.message or "", "code": event.code}

    def _item(self, index: int, item: _Item) -> None:
        self.keep(CALL_SIZE + len(item.encrypted_content or ""))
        if index not in self._arguments:  # else they were counted as they came
            self.keep(len(item.arguments))
        self._items[index] = item

    def _say(self, index: int, text: Any) -> None:
        if type(text) is str and text:
            self._lengths[index] = self._lengths.get(index, 0) + len(text)
            self.fresh.append(text)

    def finish(self) -> ReplyOutcome | None:
        if self._ended is None:
            return None
        calls = tuple(
            ToolCall(id=item.call_id or item.id, name=item.name, arguments=self._whole(index, item))
            for index, item in sorted(self._items.items())
            if item.type == "function_call"
        )
        usage = self._ended.usage
        return ReplyOutcome(
            calls=calls,
            stop=self._stop(calls),
            tokens=Tokens(
                input=count(usage, "input_tokens"),
                output=count(usage, "output_tokens"),
                cached=count(usage, "input_tokens_details", "cached_tokens"),
                written=count(usage, "input_tokens_details", "cache_write_tokens"),
            ),
            extra=self._extra(),
        )

    def _whole(self, index: int, item: _Item) -> str:
        return item.arguments or "".join(self._arguments.get(index, ()))

    def _stop(self, calls: tuple[ToolCall, ...]) -> StopReason:
        cut = self._ended.incomplete_details if self._ended else None
        if self._refused or (cut is not None and cut.reason == "content_filter"):
            return "refusal"
        if cut is not None and cut.reason is not None:
            return "length"
        return "tool_calls" if calls else "end"

    def _extra(self) -> dict[str, Any] | None:
        """Reasoning whole, and the places of the rest; None where there is nothing to keep."""
        kept: list[dict[str, Any]] = []
        needed = False
        for index, item in sorted(self._items.items()):
            if item.type == "reasoning" and item.encrypted_content:
                needed = True
                kept.append(
                    {
                        "type": "reasoning",
                        "id": item.id,
                        "summary": item.summary or [],
                        "encrypted_content": item.encrypted_content,
                    }
                )
            elif item.type == "function_call":
                kept.append({"call": 1})
            elif self._lengths.get(index):
                needed = needed or item.phase is not None
                said: dict[str, Any] = {"text": self._lengths[index]}
                if item.phase is not None:
                    said["phase"] = item.phase
                kept.append(said)
        return {"responses": kept} if needed else None
