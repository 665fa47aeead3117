"""The fake provider's chat completions: checks a request as OpenAI does, writes an answer as OpenAI does."""

from __future__ import annotations

import re
from typing import Any, cast

from retinue.testing.script import (
    Rejected,
    Script,
    SeenRequest,
    counted,
    cut,
    event,
    image_at,
    list_of,
    object_of,
    parse_body,
    text_of,
)
from retinue.types import AssistantMessage, Image, Message, ToolCall, ToolMessage, ToolSpec, UserMessage

_FIELDS = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "temperature",
        "max_tokens",
        "max_completion_tokens",
        "response_format",
        "reasoning_effort",
        "top_p",
        "stop",
        "seed",
        "parallel_tool_calls",
        "service_tier",
        "user",
        "metadata",
    }
)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_PLAIN = re.compile(r"gpt-[34]")
_KEPT = ("reasoning_content", "reasoning", "reasoning_details")


def key_of(headers: dict[str, str]) -> str:
    given = headers.get("authorization", "")
    if not given.startswith("Bearer ") or not given[7:].strip():
        raise Rejected(
            "You didn't provide an API key. You need to provide your API key in an Authorization header "
            "using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            status=401,
            error="invalid_request_error",
        )
    return given[7:]


def wrong_key(key: str) -> Rejected:
    return Rejected(f"Incorrect API key provided: {key}.", status=401, error="invalid_api_key")


def check_effort(given: Any, name: str, model: str) -> None:
    """Refuse an effort that is none, and every one where a model does not reason."""
    if given is None:
        return
    if _PLAIN.match(model):
        raise Rejected(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)
    if given not in _EFFORTS:
        raise Rejected(f"Invalid value: '{given}'. Supported values are: {', '.join(_EFFORTS)}.", param=name)


def check_service(body: dict[str, Any]) -> None:
    """Refuse a class of service that is none, and a wish about calls where there are no tools."""
    if body.get("service_tier", "auto") not in ("auto", "default", "flex", "priority"):
        raise Rejected(f"Invalid value: '{body['service_tier']}'.", param="service_tier")
    if "parallel_tool_calls" in body and not body.get("tools"):
        raise Rejected("'parallel_tool_calls' is only allowed when 'tools' are specified.")


def chosen(given: Any) -> str:
    """The word for a choice of tools, or the name of the one that has to be called."""
    if not isinstance(given, dict):
        return str(given)
    found = cast("dict[str, Any]", given)
    return str(object_of(found.get("function", found), "tool_choice").get("name"))


def parse(raw: bytes, headers: dict[str, str], model: str) -> SeenRequest:
    body = parse_body(raw, "We could not parse the JSON body of your request.")
    for name in body:
        if name not in _FIELDS:
            raise Rejected(f"Unrecognized request argument supplied: {name}", param=name)
    if not isinstance(body.get("model"), str):
        raise Rejected("you must provide a model parameter", param="model")
    if body.get("stream") is not True:
        raise Rejected("this server only streams: stream must be true", param="stream")
    check_effort(body.get("reasoning_effort"), "reasoning_effort", body["model"])
    check_service(body)
    if "max_tokens" in body and "max_completion_tokens" in body:
        raise Rejected("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    system, messages = _messages(list_of(body.get("messages"), "messages"))
    tools = _tools(body)
    return SeenRequest(
        wire="openai",
        model=body["model"],
        system=system,
        messages=tuple(messages),
        tools=tools,
        tool_choice=chosen(body.get("tool_choice", "auto")),
        schema=_schema(body.get("response_format")),
        temperature=_number(body, "temperature", 0, 2),
        max_tokens=_limit(body),
        headers=headers,
        body=body,
    )


def _number(body: dict[str, Any], name: str, least: float, most: float) -> float | None:
    value = body.get(name)
    if value is not None and not (isinstance(value, int | float) and least <= value <= most):
        raise Rejected(f"Invalid '{name}': expected {least} to {most}, got {value!r}", param=name)
    return value


def _limit(body: dict[str, Any]) -> int | None:
    value = body.get("max_tokens", body.get("max_completion_tokens"))
    if value is not None and (not isinstance(value, int) or value < 1):
        raise Rejected(
            f"Invalid 'max_tokens': integer below minimum value, got {value!r}", param="max_tokens"
        )
    return value


def _messages(given: list[Any]) -> tuple[str, list[Message]]:
    if not given:
        raise Rejected("Invalid 'messages': empty array.", param="messages")
    system: list[str] = []
    out: list[Message] = []
    waiting: dict[str, str] = {}
    for place, item in enumerate(given):
        message = object_of(item, f"messages[{place}]")
        role = message.get("role")
        if role == "tool":
            out.append(_tool_result(message, waiting, place))
            continue
        if waiting:
            raise Rejected(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: "
                + ", ".join(waiting),
                param=f"messages.[{place}].role",
            )
        if role in ("system", "developer"):
            system.append(text_of(message.get("content"), f"messages[{place}].content"))
        elif role == "user":
            out.append(_user(message.get("content"), place))
        elif role == "assistant":
            answer = _assistant(message, place)
            waiting = {c.id: c.name for c in answer.calls}
            out.append(answer)
        else:
            raise Rejected(
                f"Invalid value: {role!r}. Supported values are: 'system', 'assistant', 'user', 'tool'."
            )
    if waiting:
        raise Rejected(f"tool_call_ids did not have response messages: {', '.join(waiting)}")
    return "\n\n".join(system), out


def _tool_result(message: dict[str, Any], waiting: dict[str, str], place: int) -> ToolMessage:
    call_id = text_of(message.get("tool_call_id"), f"messages[{place}].tool_call_id")
    if call_id not in waiting:
        raise Rejected(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            f"'tool_calls' (tool_call_id {call_id!r}).",
            param=f"messages.[{place}].role",
        )
    text = text_of(message.get("content"), f"messages[{place}].content")
    return ToolMessage(call_id=call_id, name=waiting.pop(call_id), text=text)


def _user(content: Any, place: int) -> UserMessage:
    if isinstance(content, str):
        return UserMessage(text=content)
    texts: list[str] = []
    images: list[Image] = []
    for part in list_of(content, f"messages[{place}].content"):
        part = object_of(part, f"messages[{place}].content[]")
        if part.get("type") == "text":
            texts.append(text_of(part.get("text"), "text"))
        elif part.get("type") == "image_url":
            url = text_of(object_of(part.get("image_url"), "image_url").get("url"), "image_url.url")
            images.append(image_at(url))
        else:
            raise Rejected(f"Invalid value: {part.get('type')!r} for a content part")
    return UserMessage(text="\n\n".join(texts), images=tuple(images))


def _assistant(message: dict[str, Any], place: int) -> AssistantMessage:
    content = message.get("content")
    calls: list[ToolCall] = []
    for item in list_of(message.get("tool_calls", []), "tool_calls"):
        given = object_of(item, "tool_calls[]")
        function = object_of(given.get("function"), "tool_calls[].function")
        if given.get("type") != "function" or not given.get("id"):
            raise Rejected(f"Missing required parameter: 'messages[{place}].tool_calls[].id' or '.type'")
        calls.append(
            ToolCall(
                id=given["id"],
                name=text_of(function.get("name"), "function.name"),
                arguments=text_of(function.get("arguments"), "function.arguments"),
            )
        )
    if content is None and not calls:
        raise Rejected(f"Invalid value for 'content': expected a string, got null. (messages[{place}])")
    kept = {name: message[name] for name in _KEPT if name in message}
    return AssistantMessage(text=content or "", calls=tuple(calls), extra=kept or None)


def _tools(body: dict[str, Any]) -> tuple[ToolSpec, ...]:
    if "tools" not in body:
        if "tool_choice" in body:
            raise Rejected("'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
        return ()
    found: list[ToolSpec] = []
    for item in list_of(body["tools"], "tools"):
        tool = object_of(item, "tools[]")
        function = object_of(tool.get("function"), "tools[].function")
        name = text_of(function.get("name"), "tools[].function.name")
        parameters = object_of(function.get("parameters", {"type": "object"}), "parameters")
        if tool.get("type") != "function" or not _NAME.fullmatch(name):
            raise Rejected(f"Invalid 'tools[].function.name': {name!r} does not match ^[a-zA-Z0-9_-]+$")
        if parameters.get("type") != "object":
            raise Rejected(
                f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"'"
            )
        found.append(ToolSpec(name=name, description=function.get("description", ""), schema=parameters))
    if not found:
        raise Rejected("Invalid 'tools': empty array.", param="tools")
    if len({tool.name for tool in found}) < len(found):
        raise Rejected("Invalid 'tools': names must be unique.", param="tools")
    if chosen(body.get("tool_choice", "auto")) not in ("auto", "none", "required", *(t.name for t in found)):
        raise Rejected(f"Invalid value: {body['tool_choice']!r} for 'tool_choice'", param="tool_choice")
    return tuple(found)


def _schema(form: Any) -> dict[str, Any] | None:
    if form is None or form == {"type": "json_object"}:
        return None
    form = object_of(form, "response_format")
    if form.get("type") != "json_schema":
        raise Rejected(f"Invalid value: {form.get('type')!r}", param="response_format.type")
    given = object_of(form.get("json_schema"), "response_format.json_schema")
    schema = object_of(given.get("schema"), "response_format.json_schema.schema")
    if not _NAME.fullmatch(str(given.get("name", ""))):
        raise Rejected("Missing required parameter: 'response_format.json_schema.name'.")
    if given.get("strict"):
        check_strict(schema)
    return schema


def check_strict(node: Any) -> None:
    if isinstance(node, list):
        for item in list_of(node, "schema"):
            check_strict(item)
    if not isinstance(node, dict):
        return
    schema = object_of(node, "schema")
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            raise Rejected(
                "Invalid schema for response_format: 'additionalProperties' is required to be false."
            )
        if sorted(schema.get("properties", {})) != sorted(schema.get("required", [])):
            raise Rejected("Invalid schema for response_format: 'required' is required to include every key.")
    for value in schema.values():
        check_strict(value)


def refuse(error: Rejected) -> Any:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    code = error.error or None
    if error.status == 429:
        kind, code = (code or "rate_limit_exceeded"), (code or "rate_limit_exceeded")
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": code}}


def in_stream(script: Script) -> bytes:
    body = {
        "message": script.message or "The server had an error while processing your request.",
        "type": script.error or "server_error",
        "code": None,
    }
    return event({"error": body})


def write(script: Script, seen: SeenRequest, raw: bytes) -> list[bytes]:
    """The events of an answer."""
    base = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": seen.model}
    out: list[bytes] = []

    def say(delta: dict[str, Any], reason: str | None = None) -> None:
        out.append(event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}))

    say({"role": "assistant", "content": None if script.calls else ""})
    for piece in cut(script.thinking, script.pieces):
        say({"reasoning_content": piece})
    for piece in cut(script.text, script.pieces):
        say({"refusal" if script.stop == "refusal" else "content": piece})
    for index, made in enumerate(script.calls):
        head = {"index": index, "id": made.id, "type": "function"}
        say({"tool_calls": [{**head, "function": {"name": made.name, "arguments": ""}}]})
        for piece in cut(made.arguments, script.pieces):
            say({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    reasons = {"length": "length", "tool_calls": "tool_calls", "refusal": "stop", "end": "stop"}
    say({}, reasons[script.stop or ("tool_calls" if script.calls else "end")])
    if object_of(seen.body.get("stream_options", {}), "stream_options").get("include_usage"):
        used = counted(script, raw)
        usage = {
            "prompt_tokens": used.input_tokens,
            "completion_tokens": used.output_tokens,
            "total_tokens": used.total_tokens,
            "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        }
        out.append(event({**base, "choices": [], "usage": usage}))
    out.append(event(b"[DONE]"))
    return out
