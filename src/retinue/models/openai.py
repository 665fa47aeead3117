"""OpenAI chat completions: the format of OpenAI's older models and of nearly everyone else.

Spoken by Ollama, vLLM, llama.cpp, LM Studio, OpenRouter, DeepSeek, Mistral, Groq and many more, each with
small deviations that are tolerated here: indexes, ids or finish reasons that are missing, arguments as an
object, reasoning under two names, usage in the last event or nowhere. `Dialect` says what a server wants
otherwise in a request. Used by `connect` through `wire`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from retinue.errors import ModelError
from retinue.models.arguments import object_text
from retinue.models.ids import sendable
from retinue.models.keys import Key
from retinue.models.pictures import apart
from retinue.models.prices import Tokens
from retinue.models.schemas import is_strict
from retinue.models.wire import CALL_SIZE, Encoded, ReplyOutcome, ReplyReader, count
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


class Dialect(Struct, frozen=True, kw_only=True):
    """What a server wants otherwise than the rest.

    `max_tokens` is its name for that field. `schema`: how it is told the form of an answer, by a JSON
    schema, or (`object`) by a wish for JSON and the schema in words. `short_ids`: ids of nine letters and
    digits. `user_after_tool`: a person may speak right after a tool result. `charges`: its usage says what
    it cost. `longest`: a larger limit than this is not sent, since a server refuses one above its own.
    `seed` is its name for that; `lacks` are settings that it does not have.
    """

    max_tokens: str = "max_tokens"
    schema: str = "json_schema"
    short_ids: bool = False
    user_after_tool: bool = True
    charges: bool = False
    longest: int = 32_000
    seed: Literal["seed", "random_seed"] = "seed"
    lacks: frozenset[str] = frozenset()


DIALECTS: dict[str, Dialect] = {
    "openai": Dialect(max_tokens="max_completion_tokens", longest=128_000),
    "deepseek": Dialect(schema="object", lacks=frozenset({"seed", "parallel_tool_calls", "service_tier"})),
    "mistral": Dialect(
        short_ids=True, user_after_tool=False, seed="random_seed", lacks=frozenset({"service_tier"})
    ),
    "openrouter": Dialect(charges=True),
}

# Reasoning models take no temperature. GPT-5.5 and newer take tools here only if they do not reason.
_NO_TEMPERATURE = re.compile(r"o\d|gpt-5(?!-chat|\.[1-4](?!-chat))|gpt-[6-9]|codex")
_TOOLS_WITHOUT_REASONING = re.compile(r"gpt-5\.[5-9]|gpt-[6-9]")
_TAKES_EFFORT = re.compile(r"o[1-9](?!-mini$|-preview)|gpt-[5-9](?!-chat|\.\d-chat)|codex|gpt-oss")


class _Out(Struct, gc=False):
    """A message as it is sent."""

    role: str
    content: Any
    tool_calls: list[Any] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_details: list[Any] | UnsetType = UNSET


class _Body(Struct):
    model: str
    messages: list[_Out]
    stream: bool = True
    stream_options: Raw = Raw(b'{"include_usage":true}')
    tools: Raw | UnsetType = UNSET
    tool_choice: str | dict[str, Any] | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    max_completion_tokens: int | UnsetType = UNSET
    response_format: dict[str, Any] | UnsetType = UNSET
    reasoning_effort: str | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    stop: tuple[str, ...] | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    random_seed: int | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class _ToolDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: Any = None


class _Delta(Struct, gc=False):
    content: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolDelta] | None = None


class _Choice(Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: str | None = None
    message: Any = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Chunk)


def encode_tools(tools: tuple[ToolSpec, ...]) -> bytes:
    return _encoder.encode(
        [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.schema},
            }
            for t in tools
        ]
    )


class OpenAIWire:
    """Requests and answers of one chat completions endpoint."""

    def __init__(self, *, base_url: str, model: str, dialect: Dialect | None = None) -> None:
        self.url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._dialect = dialect or Dialect()
        self._tools = Encoded(encode_tools)
        self._forces = True
        official = dialect is DIALECTS["openai"]
        self._temperature = not (official and _NO_TEMPERATURE.match(model))
        self._silent = bool(official and _TOOLS_WITHOUT_REASONING.match(model))
        # Other servers are asked once: most of them know the field, and who refuses it is not asked again.
        self._effort = not official or bool(_TAKES_EFFORT.match(model))

    def headers(self, key: Key | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key.secret}"
        return headers

    def encode(self, request: ModelRequest) -> bytes:
        system = request.system
        body = _Body(model=self._model, messages=[])
        if request.tools:
            body.tools = self._tools(request.tools)
            if request.tool_choice == "none" or (request.tool_choice != "auto" and self._forces):
                body.tool_choice = _choice(request.tool_choice)
            if self._silent:
                body.reasoning_effort = "none"
        if effort := self.effort(request):
            body.reasoning_effort = effort
        if request.temperature is not None and (self._temperature or (self._silent and request.tools)):
            body.temperature = request.temperature
        if request.max_tokens is not None and request.max_tokens <= self._dialect.longest:
            setattr(body, self._dialect.max_tokens, request.max_tokens)
        if request.schema is not None:
            body.response_format, system = self._form(request.schema, system)
        if system:
            body.messages.append(_Out("system", system))
        if request.settings.given:
            self._put_settings(body, request)
        self._messages(request.messages, body.messages)
        return _encoder.encode(body)

    def _put_settings(self, body: _Body, request: ModelRequest) -> None:
        asked = request.settings.without(self.lacks(request.settings))
        if asked.top_p is not None:
            body.top_p = asked.top_p
        if asked.stop:
            body.stop = asked.stop
        if asked.seed is not None:
            setattr(body, self._dialect.seed, asked.seed)
        if asked.parallel_tool_calls is not None and request.tools:
            body.parallel_tool_calls = asked.parallel_tool_calls
        if asked.service_tier:
            body.service_tier = asked.service_tier

    def lacks(self, settings: ModelSettings) -> frozenset[str]:
        """OpenAI's own models that reason choose their words themselves."""
        lacks = set(self._dialect.lacks)
        if not self._temperature:
            lacks |= {"temperature", "top_p", "stop"}
        if not self._effort:
            lacks.add("effort")
        if not self._forces and settings.tool_choice not in ("", "auto", "none"):
            lacks.add("tool_choice")
        return frozenset(lacks)

    def effort(self, request: ModelRequest) -> Effort:
        return request.effort if self._effort and not (self._silent and request.tools) else ""

    def reader(self, request: ModelRequest) -> ReplyReader:
        return OpenAIReader(charges=self._dialect.charges)

    def mend(self, request: ModelRequest, error: ModelError) -> bytes | None:
        """Some refuse to reason and use tools here, some to be told to use one or how hard to think: ask once
        more without."""
        text = str(error)
        if error.status not in (400, 422):
            return None
        if not self._silent and "reasoning_effort" in text and "tools" in text:
            self._silent = True
        elif self.effort(request) and ("effort" in text or "think" in text):
            self._effort = False
        elif self._forces and request.tool_choice not in ("auto", "none") and "tool_choice" in text:
            self._forces = False
        else:
            return None
        return self.encode(request)

    def _form(self, schema: dict[str, Any], system: str) -> tuple[dict[str, Any], str]:
        if self._dialect.schema == "object":
            wish = "Answer with one JSON object that fits this schema:\n" + _encoder.encode(schema).decode()
            return {"type": "json_object"}, f"{system}\n\n{wish}" if system else wish
        form = {"name": "answer", "schema": schema, "strict": is_strict(schema)}
        return {"type": "json_schema", "json_schema": form}, system

    def _messages(self, messages: tuple[Message, ...], out: list[_Out]) -> None:
        role = ""
        for message in apart(messages):
            if type(message) is ToolMessage:
                out.append(_Out("tool", message.text, tool_call_id=self._id(message.call_id)))
                role = "tool"
            elif type(message) is UserMessage:
                if role == "user":  # many chat templates insist on alternating roles
                    out[-1].content = _joined(out[-1].content, message)
                    continue
                if role == "tool" and not self._dialect.user_after_tool:
                    out.append(_Out("assistant", "OK"))
                out.append(_Out("user", _parts(message) if message.images else message.text))
                role = "user"
            else:
                out.append(self._assistant(cast("AssistantMessage", message)))
                role = "assistant"

    def _assistant(self, message: AssistantMessage) -> _Out:
        if not message.calls:
            return _Out("assistant", message.text)
        extra: dict[str, Any] = (message.extra or {}).get("openai") or {}
        attached: dict[str, Any] = extra.get("calls") or {}
        calls: list[Any] = []
        for place, call in enumerate(message.calls):
            sent: dict[str, Any] = {
                "id": self._id(call.id),
                "type": "function",
                "function": {"name": sendable(call.name), "arguments": object_text(call.arguments)},
            }
            if str(place) in attached:
                sent["extra_content"] = attached[str(place)]
            calls.append(sent)
        out = _Out("assistant", message.text or None, tool_calls=calls)
        # Thinking models want the thoughts behind their calls back, under the name they gave them.
        for name in ("reasoning_content", "reasoning", "reasoning_details"):
            if extra.get(name):
                setattr(out, name, extra[name])
        return out

    def _id(self, call_id: str) -> str:
        if not self._dialect.short_ids or (len(call_id) == 9 and call_id.isalnum()):
            return call_id
        return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _choice(wanted: str) -> str | dict[str, Any]:
    if wanted in ("auto", "none", "required"):
        return wanted
    return {"type": "function", "function": {"name": sendable(wanted)}}


def _parts(message: UserMessage) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text else []
    for image in message.images:
        parts.append({"type": "image_url", "image_url": {"url": image.address}})
    return parts


def _joined(content: Any, message: UserMessage) -> Any:
    if type(content) is str and not message.images:
        return f"{content}\n\n{message.text}"
    before = [{"type": "text", "text": content}] if type(content) is str else cast("list[Any]", content)
    return [*before, *_parts(message)]


class _Slot:
    """A tool call that is still arriving."""

    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: Any = None


class OpenAIReader(ReplyReader):
    """Reads one chat completion."""

    def __init__(self, *, charges: bool = False) -> None:
        super().__init__()
        self._charges = charges
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._reason: str | None = None
        self._refused = False
        self._usage: Any = None
        self._field = ""
        self._details: list[Any] = []

    def feed(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        if not data.strip():
            return
        chunk = _decoder.decode(data)
        if chunk.error is not None or chunk.object == "error":
            self.error = chunk.error if chunk.error is not None else {"message": chunk.message}
            return
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices or ():
            delta = choice.delta or choice.message
            if delta is not None:
                self._read(delta)
            if choice.finish_reason:
                self._reason = choice.finish_reason

    def _read(self, delta: _Delta) -> None:
        content = delta.content
        if content:
            if type(content) is str:
                self.fresh.append(content)
            else:
                self._read_parts(content)
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._field = "reasoning_content" if delta.reasoning_content else "reasoning"
            self.fresh_thinking.append(thought)
        if delta.refusal:
            self._refused = True
            self.fresh.append(delta.refusal)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._read_call(call)
        if delta.reasoning_details:
            for item in delta.reasoning_details:
                self.keep(len(_encoder.encode(item)))
                self._details.append(item)

    def _read_parts(self, content: Any) -> None:
        """Mistral sends a list of parts, some of them thoughts."""
        for part in cast("list[Any]", content) if isinstance(content, list) else ():
            found = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
            if isinstance(found.get("text"), str):
                self.fresh.append(found["text"])
            elif isinstance(found.get("thinking"), list):
                pieces = cast("list[dict[str, Any]]", found["thinking"])
                self.fresh_thinking.extend(str(piece.get("text") or "") for piece in pieces)

    def _read_call(self, call: _ToolDelta) -> None:
        function = call.function or _Function()
        slot = self._slot(call, function)
        if call.id and not slot.id:
            slot.id = call.id
        if function.name and not slot.name:
            slot.name = function.name
        if call.extra_content is not None:
            self.keep(len(_encoder.encode(call.extra_content)))
            slot.extra = call.extra_content
        if function.arguments is not None:
            text = function.arguments
            piece = text if type(text) is str else _encoder.encode(text).decode()
            self.keep(len(piece))
            slot.arguments.append(piece)

    def _slot(self, call: _ToolDelta, function: _Function) -> _Slot:
        """Which call a fragment belongs to, where its index, its id or both may be missing or wrong."""
        known = self._by_index.get(call.index) if call.index is not None else None
        if call.index is None and self._slots:
            known = self._slots[-1]
        starts = bool(function.name) and known is not None and bool(known.name)
        if known is None or (starts and (call.index is None or (call.id and call.id != known.id))):
            known = _Slot()
            self.keep(CALL_SIZE)
            self._slots.append(known)
            if call.index is not None:
                self._by_index[call.index] = known
        return known

    def finish(self) -> ReplyOutcome | None:
        # A finish reason or the end mark, and with the latter alone at least something to show.
        if not (self._reason or (self.done and (self.text or self._slots))):
            return None
        calls = tuple(ToolCall(id=s.id, name=s.name, arguments="".join(s.arguments)) for s in self._slots)
        usage = self._usage
        cached = count(usage, "prompt_tokens_details", "cached_tokens")
        return ReplyOutcome(
            calls=calls,
            stop=self._stop(calls),
            tokens=Tokens(
                input=count(usage, "prompt_tokens"),
                output=count(usage, "completion_tokens"),
                cached=cached or count(usage, "prompt_cache_hit_tokens"),
                written=count(usage, "prompt_tokens_details", "cache_write_tokens"),
            ),
            extra=self._extra(),
            cost=self._charged() if self._charges else None,
        )

    def _charged(self) -> float | None:
        usage = self._usage
        return cast("dict[str, Any]", usage).get("cost") if isinstance(usage, dict) else None

    def _stop(self, calls: tuple[ToolCall, ...]) -> StopReason:
        if self._refused or self._reason == "content_filter":
            return "refusal"
        if self._reason == "length":
            return "length"
        return "tool_calls" if calls else "end"

    def _extra(self) -> dict[str, Any] | None:
        """What the provider wants back with the calls of this answer."""
        if not self._slots:
            return None
        kept: dict[str, Any] = {}
        attached = {str(i): slot.extra for i, slot in enumerate(self._slots) if slot.extra is not None}
        if attached:
            kept["calls"] = attached
        if self._details:
            kept["reasoning_details"] = merge_details(self._details)
        elif self._field:
            kept[self._field] = "".join(self.thinking) + "".join(self.fresh_thinking)
        return {"openai": kept} if kept else None


def merge_details(items: Iterable[Any]) -> list[dict[str, Any]]:
    """OpenRouter's reasoning as it was before it was streamed: each piece joined to those it continues."""
    found: list[dict[str, Any]] = []
    texts: list[dict[str, list[str]]] = []
    for item in items:
        if not isinstance(item, dict):
            continue
        piece = cast("dict[str, Any]", item)
        last = found[-1] if found else None
        if last is None or (last.get("type"), last.get("index")) != (piece.get("type"), piece.get("index")):
            found.append(last := {})
            texts.append({})
        for name, value in piece.items():
            if name in ("text", "summary", "data") and isinstance(value, str):
                texts[-1].setdefault(name, []).append(value)
                last[name] = ""
            elif value is not None or name not in last:
                last[name] = value
    for whole, pieces in zip(found, texts, strict=True):
        whole.update({name: "".join(each) for name, each in pieces.items()})
    return found
