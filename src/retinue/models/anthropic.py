"""Anthropic's messages format.

The prompt is marked for caching at the end of the tools, of the system prompt and of the last message, so
that a turn pays full price only for what is new. Thinking blocks are kept in `AssistantMessage.extra` and
sent back as they were, which the API requires; where it refuses old ones, the request is made again
without them. Used by `connect` through `wire`.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from retinue.errors import ModelError
from retinue.models.arguments import raw_object
from retinue.models.ids import sendable, sendable_id
from retinue.models.keys import Key
from retinue.models.prices import Tokens
from retinue.models.schemas import closed
from retinue.models.wire import (
    CALL_SIZE,
    NO_COUNT,
    Encoded,
    ReplyOutcome,
    ReplyReader,
    count,
    refuses_thoughts,
)
from retinue.types import (
    AssistantMessage,
    Effort,
    Image,
    Message,
    ModelRequest,
    ModelSettings,
    StopReason,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

VERSION = "2023-06-01"
ANSWER_TOOL = "final_answer"
_CACHE = {"type": "ephemeral"}

# Facts about model families, by the beginnings of their names. Names that are not Claude's belong to other
# providers that speak this format: they get the oldest, plainest form of everything.
_OLD = re.compile(r"claude-(?:2|3|instant|v1|4-|(?:opus|sonnet)-4-(?:0|1|2)|(?:opus|sonnet)-4$)")
_TAKES_TEMPERATURE = re.compile(r"claude-(?:2|3|instant|v1|4-|haiku-4|sonnet-4|opus-4(?:$|-[0-6]|-2))")
_NO_FORCED_TOOL = re.compile(r"claude-(?:fable|mythos)-5-1|claude-(?:opus|sonnet)-5-5")
# Haiku 4.5, Sonnet 4.5 and all before them take none.
_TAKES_EFFORT = re.compile(r"claude-(?:opus-4-[5-9]|sonnet-4-[6-9]|mythos-preview|[a-z]+-(?:[5-9]|\d\d))")

_TIERS = {"auto": "auto", "default": "standard_only"}
_STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Body(Struct):
    model: str
    max_tokens: int
    messages: list[dict[str, Any]]
    stream: bool = True
    system: list[dict[str, Any]] | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    tool_choice: dict[str, Any] | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    stop_sequences: tuple[str, ...] | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    output_config: dict[str, Any] | UnsetType = UNSET


class _Message(Struct, gc=False):
    usage: Any = None


class _Block(Struct, gc=False):
    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    input: Any = None
    thinking: str = ""
    signature: str = ""
    data: str = ""


class _Delta(Struct, gc=False):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Event(Struct, gc=False):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: Any = None
    error: Any = None


_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
BEGINNING = "(the conversation so far)"
"""What a conversation begins with whose first message is an answer: the API wants one of the person there."""
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Event)


def encode_tools(tools: tuple[ToolSpec, ...]) -> bytes:
    sent: list[dict[str, Any]] = [
        {"name": t.name, "description": t.description, "input_schema": t.schema} for t in tools
    ]
    sent[-1]["cache_control"] = _CACHE
    return _encoder.encode(sent)


class AnthropicWire:
    """Requests and answers of one messages endpoint."""

    def __init__(self, *, base_url: str, model: str, bearer: bool = False) -> None:
        base = base_url.rstrip("/")
        self.url = (base if base.endswith("/v1") else base + "/v1") + "/messages"
        self._model = model
        self._bearer = bearer
        self._tools = Encoded(encode_tools)
        claude = model.startswith("claude")
        self._schemas = claude and not _OLD.match(model)
        self._temperature = not claude or bool(_TAKES_TEMPERATURE.match(model))
        self._forces = not _NO_FORCED_TOOL.match(model)
        self._effort = bool(_TAKES_EFFORT.match(model))
        self._longest = 64_000 if self._schemas else 4096 if claude else 16_384

    def headers(self, key: Key | None) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "anthropic-version": VERSION,
        }
        if key is not None and self._bearer:
            headers["Authorization"] = f"Bearer {key.secret}"
        elif key is not None:
            headers["x-api-key"] = key.secret
        return headers

    def encode(self, request: ModelRequest) -> bytes:
        return self._encode(request, thoughts=True)

    def effort(self, request: ModelRequest) -> Effort:
        return request.effort if self._effort else ""

    def reader(self, request: ModelRequest) -> ReplyReader:
        return AnthropicReader(answer=request.schema is not None and not self._schemas)

    def mend(self, request: ModelRequest, error: ModelError) -> bytes | None:
        """Thinking blocks are bound to the conversation before them: after a change, go on without them.
        A model that takes no effort is not told one again."""
        if error.status == 400 and self.effort(request) and "effort" in str(error):
            self._effort = False
            return self._encode(request, thoughts=True)
        refused = refuses_thoughts(request, error, "anthropic", "thinking", "signature")
        return self._encode(request, thoughts=False) if refused else None

    def _encode(self, request: ModelRequest, *, thoughts: bool) -> bytes:
        body = _Body(
            model=self._model,
            max_tokens=min(request.max_tokens or self._longest, self._longest),
            messages=encode_messages(request.messages, thoughts=thoughts),
        )
        if request.system:
            body.system = [{"type": "text", "text": request.system, "cache_control": _CACHE}]
        if request.temperature is not None and self._temperature:
            body.temperature = request.temperature
        self._put_tools(body, request)
        if request.schema is not None and self._schemas:
            body.output_config = {"format": {"type": "json_schema", "schema": closed(request.schema)}}
        if effort := self.effort(request):
            body.output_config = {**(body.output_config or {}), "effort": effort}
        asked = request.settings.without(self.lacks(request.settings))
        if asked.top_p is not None:
            body.top_p = asked.top_p
        if asked.stop:
            body.stop_sequences = asked.stop
        if asked.service_tier:
            body.service_tier = _TIERS[asked.service_tier]
        return _encoder.encode(body)

    def lacks(self, settings: ModelSettings) -> frozenset[str]:
        """Newer models choose their words themselves, and some are not held to a call."""
        lacks = {"seed"}
        if not self._temperature:
            lacks |= {"temperature", "top_p"}
        if not self._effort:
            lacks.add("effort")
        if not self._forces and settings.tool_choice not in ("", "auto", "none"):
            lacks.add("tool_choice")
        if settings.service_tier and settings.service_tier not in _TIERS:
            lacks.add("service_tier")
        return frozenset(lacks)

    def _put_tools(self, body: _Body, request: ModelRequest) -> None:
        tools = request.tools
        if request.schema is not None and not self._schemas:
            answer = ToolSpec(name=ANSWER_TOOL, description="Give the final answer.", schema=request.schema)
            body.tools = self._tools((*tools, answer))
            body.tool_choice = {"type": "any"} if tools else {"type": "tool", "name": ANSWER_TOOL}
            return
        choice = request.tool_choice
        if not tools:
            # Calls in the history must belong to a tool that is declared, although none may be used now.
            tools = _used_before(request.messages)
            choice = "none"
        if not tools:
            return
        body.tools = self._tools(tools)
        single = request.settings.parallel_tool_calls is False
        if choice == "none":
            body.tool_choice = {"type": "none"}
        elif choice == "required" and self._forces:
            body.tool_choice = {"type": "any"}
        elif choice != "auto" and self._forces:
            body.tool_choice = {"type": "tool", "name": sendable(choice)}
        elif single:
            body.tool_choice = {"type": "auto"}
        if single and choice != "none" and body.tool_choice:
            body.tool_choice["disable_parallel_tool_use"] = True


def _used_before(messages: tuple[Message, ...]) -> tuple[ToolSpec, ...]:
    names = {sendable(call.name): None for m in messages if type(m) is AssistantMessage for call in m.calls}
    return tuple(
        ToolSpec(name=n, description="No longer available.", schema={"type": "object"}) for n in names
    )


def encode_messages(messages: tuple[Message, ...], *, thoughts: bool = True) -> list[dict[str, Any]]:
    """Roles alternate: everything between two answers is one user message, tool results first."""
    out: list[dict[str, Any]] = []
    content: list[Any] | None = None
    for message in messages:
        if type(message) is AssistantMessage:
            blocks = _assistant(message, thoughts)
            if blocks:  # an answer without content cannot be sent back
                out.append({"role": "assistant", "content": blocks})
                content = None
            continue
        if content is None:
            content = []
            out.append({"role": "user", "content": content})
        if type(message) is ToolMessage:
            content.append(_result(message))
        elif type(message) is UserMessage:
            _say(message, content)
    if out and out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": [{"type": "text", "text": BEGINNING}]})
    if not out or out[-1]["role"] == "assistant":
        out.append({"role": "user", "content": [{"type": "text", "text": "Go on."}]})
    last = out[-1]["content"]
    if not last:
        last.append({"type": "text", "text": "(nothing)"})
    last[-1]["cache_control"] = _CACHE
    return [message for message in out if message["content"]]


def _result(message: ToolMessage) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": sendable_id(message.call_id),
        "content": _with_images(message) if message.images else message.text,
    }
    if message.is_error:
        block["is_error"] = True
    return block


def _with_images(message: ToolMessage) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return [*text, *map(_image, message.images)]


def _image(image: Image) -> dict[str, Any]:
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _say(message: UserMessage, content: list[Any]) -> None:
    content.extend(map(_image, message.images))
    if message.text.strip():  # an empty text block is refused
        content.append({"type": "text", "text": message.text})


def _assistant(message: AssistantMessage, thoughts: bool) -> list[Any]:
    calls = [
        {
            "type": "tool_use",
            "id": sendable_id(c.id),
            "name": sendable(c.name),
            "input": raw_object(c.arguments),
        }
        for c in message.calls
    ]
    kept: list[dict[str, Any]] = (message.extra or {}).get("anthropic") or []
    if kept and thoughts:
        return _in_order(kept, message.text, calls)
    blocks: list[Any] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return blocks + calls


def _in_order(kept: list[dict[str, Any]], text: str, calls: list[Any]) -> list[Any]:
    """The blocks as they came: thinking as it was, text and calls in their places."""
    blocks: list[Any] = []
    at = 0
    left = iter(calls)
    for block in kept:
        if "text" in block:
            piece = text[at : at + block["text"]]
            at += block["text"]
            if piece.strip():
                blocks.append({"type": "text", "text": piece})
        elif "call" in block:
            call = next(left, None)
            if call is not None:
                blocks.append(call)
        else:
            blocks.append(block)
    return [*blocks, *left]


class AnthropicReader(ReplyReader):
    """Reads one message. With `answer`, a call of the hidden answer tool is the text."""

    def __init__(self, *, answer: bool = False) -> None:
        super().__init__()
        self._answer = answer
        self._answered = False
        self._blocks: dict[int, _Block] = {}
        self._parts: dict[int, list[str]] = {}
        self._lengths: dict[int, int] = {}
        self._reason: str | None = None
        self._tokens: dict[str, int] = {}

    def feed(self, data: bytes) -> None:
        if not data.strip():
            return
        event = _decoder.decode(data)
        kind = event.type
        if kind == "content_block_delta":
            if event.delta is not None:
                self._delta(event.index, event.delta)
        elif kind == "content_block_start":
            if event.content_block is not None:
                self._start(event.index, event.content_block)
        elif kind == "message_start":
            if event.message is not None and event.message.usage is not None:
                self._count(event.message.usage)
        elif kind == "message_delta":
            if event.usage is not None:
                self._count(event.usage)
            if event.delta is not None and event.delta.stop_reason:
                self._reason = event.delta.stop_reason
        elif kind == "message_stop":
            self.done = True
        elif kind == "error" or event.error is not None:
            self.error = event.error or {"message": "error without a message"}

    def _start(self, index: int, block: _Block) -> None:
        self.keep(CALL_SIZE + len(block.data) + len(block.signature))
        if block.input:
            self.keep(len(_encoder.encode(block.input)))
        self._blocks[index] = block
        self._parts[index] = []
        if block.text:
            self._say(index, block.text)
        if block.type == "thinking" and block.thinking:
            self._think(index, block.thinking)

    def _delta(self, index: int, delta: _Delta) -> None:
        kind = delta.type
        if kind == "text_delta":
            self._say(index, delta.text)
        elif kind == "input_json_delta":
            block = self._blocks.get(index)
            if block is not None and self._is_answer(block):
                self._answered = True
                self._say(index, delta.partial_json)
            else:
                self.keep(len(delta.partial_json))
                self._parts.setdefault(index, []).append(delta.partial_json)
        elif kind == "thinking_delta":
            self._think(index, delta.thinking)
        elif kind == "signature_delta":
            self.keep(len(delta.signature) + CALL_SIZE)
            self._blocks.setdefault(index, _Block(type="thinking")).signature += delta.signature

    def _say(self, index: int, text: str) -> None:
        if text:
            self._lengths[index] = self._lengths.get(index, 0) + len(text)
            self.fresh.append(text)

    def _think(self, index: int, text: str) -> None:
        self._parts.setdefault(index, []).append(text)
        if text:
            self.fresh_thinking.append(text)

    def _is_answer(self, block: _Block) -> bool:
        return self._answer and block.type == "tool_use" and block.name == ANSWER_TOOL

    def _count(self, usage: Any) -> None:
        """Later counts replace earlier ones; what is left out stays."""
        if not isinstance(usage, dict):
            self._tokens["input_tokens"] = NO_COUNT
            return
        said = cast("dict[str, Any]", usage)
        self._tokens.update({name: count(said, name) for name in _COUNTS if said.get(name) is not None})

    def finish(self) -> ReplyOutcome | None:
        if self._reason is None and not self.done:
            return None
        calls: list[ToolCall] = []
        for index, block in sorted(self._blocks.items()):
            if block.type == "tool_use" and not self._is_answer(block):
                calls.append(ToolCall(id=block.id, name=block.name, arguments=self._arguments(index, block)))
        stop = _STOPS.get(self._reason or "", "end")
        if stop in ("end", "tool_calls"):
            stop = "tool_calls" if calls else "end"
        used = self._tokens
        cached, written = used.get("cache_read_input_tokens", 0), used.get("cache_creation_input_tokens", 0)
        return ReplyOutcome(
            calls=tuple(calls),
            stop=stop,
            tokens=Tokens(
                input=used.get("input_tokens", 0) + cached + written,
                output=used.get("output_tokens", 0),
                cached=cached,
                written=written,
            ),
            extra=self._extra(),
        )

    def _arguments(self, index: int, block: _Block) -> str:
        streamed = "".join(self._parts[index])
        if streamed or not block.input:
            return streamed
        return _encoder.encode(block.input).decode()

    def _extra(self) -> dict[str, Any] | None:
        """Thinking blocks whole, and the places of the rest; None without any thinking."""
        kept: list[dict[str, Any]] = []
        thought = False
        for index, block in sorted(self._blocks.items()):
            if block.type == "thinking":
                thought = True
                whole = "".join(self._parts[index])
                kept.append({"type": "thinking", "thinking": whole, "signature": block.signature})
            elif block.type == "redacted_thinking":
                thought = True
                kept.append({"type": "redacted_thinking", "data": block.data})
            elif block.type == "tool_use" and not self._is_answer(block):
                kept.append({"call": 1})
            elif self._lengths.get(index):
                kept.append({"text": self._lengths[index]})
        return {"anthropic": kept} if thought else None
