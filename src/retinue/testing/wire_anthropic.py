"""The fake provider's messages: checks a request as Anthropic does, writes an answer as Anthropic does."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from retinue.testing.script import (
    Rejected,
    Script,
    SeenRequest,
    counted,
    cut,
    event,
    list_of,
    object_of,
    parse_body,
    text_of,
)
from retinue.types import AssistantMessage, Image, Message, ToolCall, ToolMessage, ToolSpec, UserMessage

SIGNATURE = "c2lnbmVkIGJ5IHRoZSBmYWtl"
_FIELDS = frozenset(
    {
        "model",
        "max_tokens",
        "messages",
        "stream",
        "system",
        "tools",
        "tool_choice",
        "temperature",
        "output_config",
        "thinking",
        "metadata",
        "stop_sequences",
        "top_p",
        "service_tier",
    }
)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_NO_TEMPERATURE = re.compile(r"claude-\w+-5")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_NO_EFFORT = re.compile(r"claude-(?:2|3|haiku-4|sonnet-4-[0-5]|opus-4-[0-4])")
_NO_FORCING = re.compile(r"claude-(opus|sonnet)-5-5")


def key_of(headers: dict[str, str]) -> str:
    bearer = headers.get("authorization", "")
    key = headers.get("x-api-key") or (bearer[7:] if bearer.startswith("Bearer ") else "")
    if not key:
        raise Rejected("x-api-key header is required", status=401, error="authentication_error")
    if headers.get("anthropic-version") != "2023-06-01":
        raise Rejected("anthropic-version: header is required")
    return key


def wrong_key(key: str) -> Rejected:
    return Rejected("invalid x-api-key", status=401, error="authentication_error")


def parse(raw: bytes, headers: dict[str, str], model: str) -> SeenRequest:
    body = parse_body(raw, "The request body is not valid JSON")
    for name in body:
        if name not in _FIELDS:
            raise Rejected(f"{name}: Extra inputs are not permitted")
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            raise Rejected(f"{name}: Field required")
    if body.get("stream") is not True:
        raise Rejected("stream: this server only streams")
    if not isinstance(body["max_tokens"], int) or not 1 <= body["max_tokens"] <= 128_000:
        raise Rejected(f"max_tokens: {body['max_tokens']} > 128000, the maximum of {body['model']}")
    for name in ("temperature", "top_p"):
        if name in body and _NO_TEMPERATURE.match(body["model"]):
            raise Rejected(f"`{name}` is deprecated for this model: {body['model']}")
    if body.get("service_tier", "auto") not in ("auto", "standard_only"):
        raise Rejected("service_tier: Input should be 'auto' or 'standard_only'")
    if _breakpoints(body) > 4:
        raise Rejected("A maximum of 4 blocks with cache_control may be provided.")
    messages = _messages(list_of(body["messages"], "messages"))
    tools = _tools(body, messages)
    return SeenRequest(
        wire="anthropic",
        model=body["model"],
        system=_system(body.get("system", "")),
        messages=tuple(messages),
        tools=tools,
        tool_choice=_choice(body),
        schema=_schema(_config(body)),
        temperature=body.get("temperature"),
        max_tokens=body["max_tokens"],
        headers=headers,
        body=body,
    )


def _breakpoints(node: Any) -> int:
    if isinstance(node, list):
        return sum(_breakpoints(item) for item in cast("list[Any]", node))
    if not isinstance(node, dict):
        return 0
    found = cast("dict[str, Any]", node)
    own = found.get("cache_control")
    if own is not None and own.get("type") != "ephemeral":
        raise Rejected("cache_control.type: Input should be 'ephemeral'")
    return (own is not None) + sum(_breakpoints(value) for value in found.values())


def _system(given: Any) -> str:
    if isinstance(given, str):
        return given
    return "\n\n".join(_text(object_of(block, "system"), "system") for block in list_of(given, "system"))


def _text(block: dict[str, Any], where: str) -> str:
    if block.get("type") != "text":
        raise Rejected(f"{where}: Input should be a text block")
    if not text_of(block.get("text"), where).strip():
        raise Rejected(f"{where}: text content blocks must be non-empty")
    return block["text"]


def _messages(given: list[Any]) -> list[Message]:
    if not given:
        raise Rejected("messages: at least one message is required")
    out: list[Message] = []
    waiting: dict[str, str] = {}
    role = ""
    for place, item in enumerate(given):
        message = object_of(item, f"messages.{place}")
        if message.get("role") not in ("user", "assistant"):
            raise Rejected(f"messages.{place}.role: Input should be 'user' or 'assistant'")
        if message["role"] == role:
            raise Rejected(
                f'messages: roles must alternate between "user" and "assistant", but found two "{role}"'
            )
        role = message["role"]
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = list_of(blocks, f"messages.{place}.content")
        if not blocks:
            raise Rejected(f"messages.{place}: all messages must have non-empty content")
        if role == "user":
            out.extend(_user(blocks, waiting, place))
            waiting = {}
        elif place == 0:
            raise Rejected('messages: first message must use the "user" role')
        else:
            answer = _assistant(blocks, place)
            waiting = {c.id: c.name for c in answer.calls}
            out.append(answer)
    if role != "user":
        raise Rejected(
            "This model does not support assistant message prefill. The last message must be the user's."
        )
    return out


def _user(blocks: list[Any], waiting: dict[str, str], place: int) -> list[Message]:
    left = dict(waiting)
    results: list[Message] = []
    texts: list[str] = []
    images: list[Image] = []
    for index, item in enumerate(blocks):
        block = object_of(item, f"messages.{place}.content.{index}")
        where = f"messages.{place}.content.{index}"
        if block.get("type") == "tool_result":
            if texts or images:
                raise Rejected(f"{where}: `tool_result` blocks must come first in the content")
            call_id = str(block.get("tool_use_id"))
            if call_id not in left:
                raise Rejected(
                    f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
            text, shown = _result_content(block.get("content", ""), f"{where}.content")
            wrong = bool(block.get("is_error"))
            results.append(
                ToolMessage(call_id=call_id, name=left.pop(call_id), text=text, is_error=wrong, images=shown)
            )
        elif block.get("type") == "image":
            images.append(_image(block, where))
        else:
            texts.append(_text(block, where))
    if left:
        raise Rejected(
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(left)}. Each `tool_use` block must have a corresponding `tool_result` block."
        )
    if texts or images:
        results.append(UserMessage(text="\n\n".join(texts), images=tuple(images)))
    return results


def _result_content(content: Any, where: str) -> tuple[str, tuple[Image, ...]]:
    if isinstance(content, str):
        return content, ()
    blocks = [object_of(item, where) for item in list_of(content, where)]
    texts = [_text(block, where) for block in blocks if block.get("type") != "image"]
    return "\n".join(texts), tuple(_image(block, where) for block in blocks if block.get("type") == "image")


def _image(block: dict[str, Any], where: str) -> Image:
    source = object_of(block.get("source"), f"{where}.source")
    if source.get("type") == "url":
        return Image(url=text_of(source.get("url"), f"{where}.source.url"))
    if source.get("type") != "base64" or not str(source.get("media_type")).startswith("image/"):
        raise Rejected(f"{where}.source: Input should be a base64 image")
    return Image(media_type=source["media_type"], data=source["data"])


def _assistant(blocks: list[Any], place: int) -> AssistantMessage:
    texts: list[str] = []
    calls: list[ToolCall] = []
    thoughts: list[Any] = []
    for index, item in enumerate(blocks):
        where = f"messages.{place}.content.{index}"
        block = object_of(item, where)
        kind = block.get("type")
        if kind == "thinking":
            if block.get("signature") != SIGNATURE:
                raise Rejected(f"{where}: Invalid `signature` in `thinking` block")
            thoughts.append(block)
        elif kind == "tool_use":
            call_id, name = str(block.get("id")), str(block.get("name"))
            if not _NAME.fullmatch(call_id) or not _NAME.fullmatch(name):
                raise Rejected(f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            arguments = msgspec.json.encode(object_of(block.get("input"), f"{where}.input")).decode()
            calls.append(ToolCall(id=call_id, name=name, arguments=arguments))
        elif calls:
            raise Rejected(f"{where}: text after `tool_use` in an assistant message")
        else:
            texts.append(_text(block, where))
    kept = {"thinking": thoughts} if thoughts else None
    return AssistantMessage(text="".join(texts), calls=tuple(calls), extra=kept)


def _tools(body: dict[str, Any], messages: list[Message]) -> tuple[ToolSpec, ...]:
    found: list[ToolSpec] = []
    for place, item in enumerate(list_of(body.get("tools", []), "tools")):
        tool = object_of(item, f"tools.{place}")
        name = text_of(tool.get("name"), f"tools.{place}.name")
        schema = object_of(tool.get("input_schema"), f"tools.{place}.input_schema")
        if not _NAME.fullmatch(name):
            raise Rejected(f"tools.{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if schema.get("type") != "object":
            raise Rejected(f"tools.{place}.input_schema.type: Input should be 'object'")
        found.append(ToolSpec(name=name, description=tool.get("description", ""), schema=schema))
    if len({tool.name for tool in found}) < len(found):
        raise Rejected("tools: Tool names must be unique.")
    if not found and any(isinstance(m, AssistantMessage) and m.calls for m in messages):
        raise Rejected("Requests which include `tool_use` or `tool_result` blocks must define tools")
    return tuple(found)


def _choice(body: dict[str, Any]) -> str:
    given = body.get("tool_choice")
    if given is None:
        return "auto"
    kind = given.get("type")
    if kind not in ("auto", "any", "none", "tool") or not body.get("tools"):
        raise Rejected("tool_choice: may only be specified while providing tools")
    if kind in ("any", "tool") and _NO_FORCING.match(body["model"]):
        raise Rejected("tool_choice: forcing tool use is not supported for this model")
    return str(given.get("name")) if kind == "tool" else {"any": "required"}.get(kind, kind)


def _config(body: dict[str, Any]) -> dict[str, Any]:
    config = object_of(body.get("output_config", {}), "output_config")
    for name in config:
        if name not in ("format", "effort"):
            raise Rejected(f"output_config.{name}: Extra inputs are not permitted")
    effort = config.get("effort")
    if effort is not None and _NO_EFFORT.match(body["model"]):
        raise Rejected("This model does not support the effort parameter.")
    if effort is not None and effort not in _EFFORTS:
        raise Rejected(f"output_config.effort: Input should be one of {', '.join(map(repr, _EFFORTS))}")
    return config


def _schema(config: dict[str, Any]) -> dict[str, Any] | None:
    form = config.get("format")
    if form is None:
        return None
    if form.get("type") != "json_schema":
        raise Rejected("output_config.format.type: Input should be 'json_schema'")
    schema = object_of(form.get("schema"), "output_config.format.schema")
    _check_closed(schema)
    return schema


def _check_closed(node: Any) -> None:
    if isinstance(node, list):
        for item in cast("list[Any]", node):
            _check_closed(item)
    if isinstance(node, dict):
        schema = cast("dict[str, Any]", node)
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            raise Rejected(
                "output_config.format.schema: 'additionalProperties' must be explicitly set to false"
            )
        for name in ("minLength", "maxLength", "minimum", "maximum", "multipleOf"):
            if name in schema and not isinstance(schema[name], dict):
                raise Rejected(f"output_config.format.schema: property '{name}' is not supported")
        for value in schema.values():
            _check_closed(value)


_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def refuse(error: Rejected) -> Any:
    kind = error.error or _KINDS.get(
        error.status, "api_error" if error.status >= 500 else "invalid_request_error"
    )
    return {"type": "error", "error": {"type": kind, "message": str(error)}, "request_id": "req_fake"}


def in_stream(script: Script) -> bytes:
    body = {"type": script.error or "overloaded_error", "message": script.message or "Overloaded"}
    return event({"type": "error", "error": body}, "error")


def write(script: Script, seen: SeenRequest, raw: bytes) -> list[bytes]:
    """The events of an answer."""
    used = counted(script, raw)
    fresh = used.input_tokens - used.cached_tokens
    usage = {
        "input_tokens": fresh,
        "cache_read_input_tokens": used.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    message: dict[str, Any] = {
        "id": "msg_fake",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": seen.model,
    }
    out: list[bytes] = []

    def send(name: str, **data: Any) -> None:
        out.append(event({"type": name, **data}, name))

    send("message_start", message={**message, "stop_reason": None, "usage": usage})
    send("ping")
    for index, block in enumerate(_blocks(script, seen)):
        start, deltas = block
        send("content_block_start", index=index, content_block=start)
        for delta in deltas:
            send("content_block_delta", index=index, delta=delta)
        send("content_block_stop", index=index)
    reasons = {"length": "max_tokens", "tool_calls": "tool_use", "refusal": "refusal", "end": "end_turn"}
    stop = script.stop or ("tool_calls" if script.calls else "end")
    send(
        "message_delta",
        delta={"stop_reason": reasons[stop], "stop_sequence": None},
        usage={"output_tokens": used.output_tokens},
    )
    send("message_stop")
    return out


def _blocks(script: Script, seen: SeenRequest) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if script.thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in cut(script.thinking, script.pieces)
        ]
        deltas.append({"type": "signature_delta", "signature": SIGNATURE})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if script.text:
        forced = object_of(seen.body.get("tool_choice", {}), "tool_choice").get("name")
        kind, name = ("input_json_delta", "partial_json") if forced else ("text_delta", "text")
        start: dict[str, Any] | None = (
            {"type": "tool_use", "id": "toolu_answer", "name": forced, "input": {}} if forced else None
        )
        deltas = [{"type": kind, name: piece} for piece in cut(script.text, script.pieces)]
        blocks.append((start or {"type": "text", "text": ""}, deltas))
    for made in script.calls:
        deltas = [
            {"type": "input_json_delta", "partial_json": p} for p in ["", *cut(made.arguments, script.pieces)]
        ]
        blocks.append(({"type": "tool_use", "id": made.id, "name": made.name, "input": {}}, deltas))
    return blocks
