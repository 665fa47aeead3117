"""Gemini's streamGenerateContent format.

Thought signatures are kept in `AssistantMessage.extra` and sent back with the part they came with: newer
models refuse a call without one. A call that another model made gets the placeholder that Google documents
for that. Used by `connect` through `wire`.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from retinue.errors import ModelError
from retinue.models.arguments import raw_object
from retinue.models.ids import sendable
from retinue.models.keys import Key
from retinue.models.pictures import apart
from retinue.models.prices import Tokens
from retinue.models.schemas import gemini_schema
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

LONGEST = 65_536
FOREIGN_CALL = "skip_thought_signature_validator"
_REFUSALS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "LANGUAGE",
        "IMAGE_SAFETY",
        "MODEL_ARMOR",
    }
)
_GARBLED = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"}
)
_THINKS = re.compile(r"gemini-(?:2\.5|[3-9]|\d\d|(?:pro|flash|flash-lite)-latest)")
_BUDGETS: dict[Effort, int] = {"low": 1024, "medium": 8192, "high": 24_576}
"""Tokens to think with, for Gemini 2.5, which knows no levels: what Google itself takes these words for."""
_TIERS = {"default": "standard", "flex": "flex", "priority": "priority"}
"""Its own names; for `auto` it has none, and chooses if nothing is said."""
_OLDER = re.compile(r"gemini-(?:pro|flash|exp|1|2)|gemma|learnlm")


class _Body(Struct, rename="camel"):
    contents: list[dict[str, Any]]
    system_instruction: dict[str, Any] | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    tool_config: dict[str, Any] | UnsetType = UNSET
    generation_config: dict[str, Any] | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET


class _Call(Struct, gc=False):
    name: str = ""
    id: str | None = None
    args: Raw = Raw(b"{}")


class _Part(Struct, rename="camel", gc=False):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _Call | None = None


class _Content(Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(Struct, rename="camel", gc=False):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(Struct, rename="camel", gc=False):
    block_reason: str | None = None


class _Chunk(Struct, rename="camel", gc=False):
    candidates: list[_Candidate] | None = None
    usage_metadata: Any = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Chunk)


def encode_tools(tools: tuple[ToolSpec, ...]) -> bytes:
    declared: list[dict[str, Any]] = []
    for tool in tools:
        one: dict[str, Any] = {"name": tool.name, "description": tool.description}
        if tool.schema.get("properties"):
            one["parametersJsonSchema"] = gemini_schema(tool.schema)
        declared.append(one)
    return _encoder.encode([{"functionDeclarations": declared}])


class GeminiWire:
    """Requests and answers of one Gemini model."""

    def __init__(self, *, base_url: str, model: str) -> None:
        base = base_url.rstrip("/")
        if not re.search(r"/v\d\w*$", base):
            base += "/v1beta"
        path = model if "/" in model else f"models/{model}"
        self.url = f"{base}/{quote(path)}:streamGenerateContent?alt=sse"
        self._tools = Encoded(encode_tools)
        name = model.rsplit("/", 1)[-1]
        self._older = bool(_OLDER.match(name))
        self._effort = bool(_THINKS.match(name))
        self._counts = name.startswith("gemini-2.5")

    def headers(self, key: Key | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if key is not None:
            headers["x-goog-api-key"] = key.secret
        return headers

    def encode(self, request: ModelRequest) -> bytes:
        body = _Body(contents=encode_contents(request.messages, signed=not self._older))
        system = request.system
        config: dict[str, Any] = {}
        if request.temperature is not None:
            config["temperature"] = request.temperature
        if request.max_tokens is not None and request.max_tokens <= LONGEST:
            config["maxOutputTokens"] = request.max_tokens
        if effort := self.effort(request):
            told = {"thinkingBudget": _BUDGETS[effort]} if self._counts else {"thinkingLevel": effort}
            config["thinkingConfig"] = told
        if request.schema is not None:
            schema = gemini_schema(request.schema)
            if self._older and request.tools:
                # Older models take either tools or a schema: the schema goes into words.
                wish = f"Answer with JSON that fits this schema:\n{_encoder.encode(schema).decode()}"
                system = f"{system}\n\n{wish}" if system else wish
            else:
                config["responseMimeType"] = "application/json"
                config["responseJsonSchema"] = schema
        if request.tools:
            body.tools = self._tools(request.tools)
            if request.tool_choice != "auto":
                calling: dict[str, Any] = {"mode": "NONE" if request.tool_choice == "none" else "ANY"}
                if request.tool_choice not in ("none", "required"):
                    calling["allowedFunctionNames"] = [sendable(request.tool_choice)]
                body.tool_config = {"functionCallingConfig": calling}
        asked = request.settings
        if asked.top_p is not None:
            config["topP"] = asked.top_p
        if asked.stop:
            config["stopSequences"] = asked.stop
        if asked.seed is not None:
            config["seed"] = asked.seed
        if asked.service_tier in _TIERS:
            body.service_tier = _TIERS[asked.service_tier]
        if system:
            body.system_instruction = {"parts": [{"text": system}]}
        if config:
            body.generation_config = config
        return _encoder.encode(body)

    def lacks(self, settings: ModelSettings) -> frozenset[str]:
        return frozenset({"parallel_tool_calls"} if self._effort else {"parallel_tool_calls", "effort"})

    def effort(self, request: ModelRequest) -> Effort:
        return request.effort if self._effort else ""

    def reader(self, request: ModelRequest) -> ReplyReader:
        return GeminiReader()

    def mend(self, request: ModelRequest, error: ModelError) -> bytes | None:
        """Some models know fewer levels than others, or none."""
        if error.status != 400 or not self.effort(request) or "think" not in str(error).lower():
            return None
        self._effort = False
        return self.encode(request)


def encode_contents(messages: tuple[Message, ...], *, signed: bool = True) -> list[dict[str, Any]]:
    """The conversation. Results of one answer's calls go back together, in one user turn."""
    out: list[dict[str, Any]] = []
    parts: list[Any] | None = None
    ids: dict[str, str] = {}
    for message in apart(messages):
        if type(message) is AssistantMessage:
            made = _model_parts(message, ids, signed)
            if made:
                out.append({"role": "model", "parts": made})
                parts = None
            continue
        if parts is None:
            parts = []
            out.append({"role": "user", "parts": parts})
        if type(message) is ToolMessage:
            parts.append({"functionResponse": _response(message, ids)})
        elif type(message) is UserMessage:
            parts.extend({"inlineData": {"mimeType": i.media_type, "data": i.data}} for i in message.images)
            parts.append({"text": message.text or " "})
    if not out or out[0]["role"] == "model":
        out.insert(0, {"role": "user", "parts": [{"text": "(the conversation so far)"}]})
    return out


def _response(message: ToolMessage, ids: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": sendable(message.name),
        "response": {"error" if message.is_error else "result": message.text},
    }
    if message.call_id in ids:
        found["id"] = ids[message.call_id]
    return found


def _model_parts(message: AssistantMessage, ids: dict[str, str], signed: bool) -> list[Any]:
    kept: dict[str, Any] = (message.extra or {}).get("gemini") or {}
    signatures: dict[str, str] = kept.get("signatures") or {}
    own: dict[str, str] = kept.get("ids") or {}
    parts: list[Any] = []
    if message.text:
        text: dict[str, Any] = {"text": message.text}
        if "text" in signatures:
            text["thoughtSignature"] = signatures["text"]
        parts.append(text)
    for place, call in enumerate(message.calls):
        function: dict[str, Any] = {"name": sendable(call.name), "args": raw_object(call.arguments)}
        if str(place) in own:
            function["id"] = ids[call.id] = own[str(place)]
        part: dict[str, Any] = {"functionCall": function}
        signature = signatures.get(str(place))
        if signature is None and place == 0 and signed:
            signature = FOREIGN_CALL
        if signature is not None:
            part["thoughtSignature"] = signature
        parts.append(part)
    return parts


class GeminiReader(ReplyReader):
    """Reads one answer."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[_Call] = []
        self._signatures: dict[str, str] = {}
        self._reason: str | None = None
        self._said = ""
        self._blocked = False
        self._usage: Any = None

    def feed(self, data: bytes) -> None:
        if not data.strip():
            return
        chunk = _decoder.decode(data)
        if chunk.error is not None:
            self.error = chunk.error
            return
        if chunk.usage_metadata is not None:
            self._usage = chunk.usage_metadata
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._blocked = True
        for candidate in chunk.candidates or ():
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    self._part(part)
            if candidate.finish_reason:
                self._reason = candidate.finish_reason
                self._said = candidate.finish_message or ""

    def _part(self, part: _Part) -> None:
        if part.thought_signature:
            self.keep(len(part.thought_signature))
        if part.function_call is not None:
            if part.thought_signature:
                self._signatures[str(len(self._calls))] = part.thought_signature
            self.keep(CALL_SIZE + len(bytes(part.function_call.args)))
            self._calls.append(part.function_call)
        elif part.thought:
            if part.text:
                self.fresh_thinking.append(part.text)
        else:
            if part.text:
                self.fresh.append(part.text)
            if part.thought_signature:
                self._signatures["text"] = part.thought_signature

    def finish(self) -> ReplyOutcome | None:
        if self._reason is None and not self._blocked:
            return None
        if self._reason in _GARBLED and not self._calls:
            raise ModelError(
                f"the model wrote a call that Gemini could not read ({self._reason}): {self._said[:200]}",
                kind="protocol",
            )
        calls = tuple(
            ToolCall(id=call.id or "", name=call.name, arguments=bytes(call.args).decode("utf-8", "replace"))
            for call in self._calls
        )
        used = self._usage
        return ReplyOutcome(
            calls=calls,
            stop=self._stop(),
            tokens=Tokens(
                input=count(used, "promptTokenCount") + count(used, "toolUsePromptTokenCount"),
                output=count(used, "candidatesTokenCount") + count(used, "thoughtsTokenCount"),
                cached=count(used, "cachedContentTokenCount"),
            ),
            extra=self._extra(),
        )

    def _stop(self) -> StopReason:
        if self._blocked or self._reason in _REFUSALS:
            return "refusal"
        if self._reason == "MAX_TOKENS":
            return "length"
        return "tool_calls" if self._calls else "end"

    def _extra(self) -> dict[str, Any] | None:
        kept: dict[str, Any] = {}
        if self._signatures:
            kept["signatures"] = self._signatures
        ids = {str(i): call.id for i, call in enumerate(self._calls) if call.id}
        if ids:
            kept["ids"] = ids
        return {"gemini": kept} if kept else None
