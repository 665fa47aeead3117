"""The fake provider's responses: checks a request as OpenAI does there, writes an answer as OpenAI does."""

from __future__ import annotations

import re
from typing import Any

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
from retinue.testing.wire_openai import (
    check_effort,
    check_service,
    check_strict,
    chosen,
    key_of,
    refuse,
    wrong_key,
)
from retinue.types import AssistantMessage, Image, Message, ToolCall, ToolMessage, ToolSpec, UserMessage

__all__ = ["in_stream", "key_of", "parse", "refuse", "write", "wrong_key"]

ENCRYPTED = "gAAAAfake"
_FIELDS = frozenset(
    {
        "model",
        "input",
        "instructions",
        "stream",
        "store",
        "include",
        "tools",
        "tool_choice",
        "temperature",
        "max_output_tokens",
        "text",
        "reasoning",
        "top_p",
        "parallel_tool_calls",
        "service_tier",
        "user",
        "metadata",
    }
)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def parse(raw: bytes, headers: dict[str, str], model: str) -> SeenRequest:
    body = parse_body(raw, "We could not parse the JSON body of your request.")
    for name in body:
        if name not in _FIELDS:
            raise Rejected(f"Unknown parameter: '{name}'.", param=name)
    if not isinstance(body.get("model"), str):
        raise Rejected("Missing required parameter: 'model'.", param="model")
    if body.get("stream") is not True:
        raise Rejected("this server only streams: stream must be true", param="stream")
    if "temperature" in body and re.match(r"gpt-[6-9]|o\d", body["model"]):
        raise Rejected("Unsupported parameter: 'temperature' is not supported with this model.")
    reasoning = object_of(body.get("reasoning", {}), "reasoning")
    for name in reasoning:
        if name not in ("effort", "summary"):
            raise Rejected(f"Unknown parameter: 'reasoning.{name}'.", param=f"reasoning.{name}")
    check_effort(reasoning.get("effort"), "reasoning.effort", body["model"])
    check_service(body)
    limit = body.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 16):
        raise Rejected("Invalid 'max_output_tokens': integer below minimum value. Expected >= 16.")
    return SeenRequest(
        wire="responses",
        model=body["model"],
        system=text_of(body.get("instructions", ""), "instructions"),
        messages=tuple(_messages(list_of(body.get("input"), "input"))),
        tools=_tools(body),
        tool_choice=chosen(body.get("tool_choice", "auto")),
        schema=_schema(body.get("text")),
        temperature=body.get("temperature"),
        max_tokens=limit,
        headers=headers,
        body=body,
    )


def _messages(items: list[Any]) -> list[Message]:
    if not items:
        raise Rejected("Invalid 'input': empty array.", param="input")
    out: list[Message] = []
    waiting: dict[str, str] = {}
    answer: dict[str, Any] | None = None
    dangling = False

    def close() -> None:
        nonlocal answer
        if answer is not None:
            out.append(
                AssistantMessage(
                    text=answer["text"],
                    calls=tuple(answer["calls"]),
                    extra={"reasoning": answer["reasoning"]},
                )
            )
            answer = None

    for place, given in enumerate(items):
        item = object_of(given, f"input[{place}]")
        kind = item.get("type", "message")
        own = kind in ("reasoning", "function_call") or item.get("role") == "assistant"
        if dangling and not own:
            raise Rejected("Item of type 'reasoning' was provided without its required following item.")
        if not own:
            close()
        elif answer is None:
            answer = {"text": "", "calls": [], "reasoning": []}
        dangling = kind == "reasoning"
        if kind == "function_call_output":
            call_id = text_of(item.get("call_id"), "call_id")
            if call_id not in waiting:
                raise Rejected(f"No tool call found for function call output with call_id {call_id}.")
            given = _user(item.get("output"), place)
            out.append(
                ToolMessage(call_id=call_id, name=waiting.pop(call_id), text=given.text, images=given.images)
            )
        elif answer is not None:
            _add(item, kind, answer, waiting)
        elif kind == "message" and item.get("role") == "user":
            if waiting:
                raise Rejected(f"No tool output found for function call {next(iter(waiting))}.")
            out.append(_user(item.get("content"), place))
        else:
            raise Rejected(f"Invalid value: {item.get('role')!r} or {kind!r} in 'input[{place}]'.")
    close()
    if waiting or dangling:
        raise Rejected(f"No tool output found for function call {', '.join(waiting)}.")
    return out


def _add(item: dict[str, Any], kind: str, answer: dict[str, Any], waiting: dict[str, str]) -> None:
    if kind == "reasoning":
        if item.get("encrypted_content") != ENCRYPTED:
            raise Rejected("The encrypted content for item rs_fake could not be verified.")
        answer["reasoning"].append(item)
    elif kind == "function_call":
        call_id, name = text_of(item.get("call_id"), "call_id"), text_of(item.get("name"), "name")
        waiting[call_id] = name
        answer["calls"].append(
            ToolCall(id=call_id, name=name, arguments=text_of(item.get("arguments"), "arguments"))
        )
    else:
        for part in list_of(item.get("content"), "content"):
            if object_of(part, "content[]").get("type") != "output_text":
                raise Rejected("Invalid value: an assistant message holds 'output_text'.")
            answer["text"] += text_of(part.get("text"), "text")


def _user(content: Any, place: int) -> UserMessage:
    if isinstance(content, str):
        return UserMessage(text=content)
    texts: list[str] = []
    images: list[Image] = []
    for part in list_of(content, f"input[{place}].content"):
        part = object_of(part, "content[]")
        if part.get("type") == "input_text":
            texts.append(text_of(part.get("text"), "text"))
            continue
        if part.get("type") != "input_image":
            raise Rejected(f"Invalid value: {part.get('type')!r} in 'input[{place}].content'.")
        images.append(image_at(str(part.get("image_url"))))
    return UserMessage(text="\n\n".join(texts), images=tuple(images))


def _tools(body: dict[str, Any]) -> tuple[ToolSpec, ...]:
    found: list[ToolSpec] = []
    for item in list_of(body.get("tools", []), "tools"):
        tool = object_of(item, "tools[]")
        name = text_of(tool.get("name"), "tools[].name")
        schema = object_of(tool.get("parameters"), "tools[].parameters")
        if tool.get("type") != "function" or not _NAME.fullmatch(name):
            raise Rejected(f"Invalid 'tools[].name': {name!r} does not match ^[a-zA-Z0-9_-]+$")
        if schema.get("type") != "object":
            raise Rejected(f"Invalid schema for function '{name}': must be of 'type: \"object\"'")
        if tool.get("strict", True):
            check_strict(schema)
        found.append(ToolSpec(name=name, description=tool.get("description", ""), schema=schema))
    if "tool_choice" in body and not found:
        raise Rejected("Tool choices were given without tools.", param="tool_choice")
    return tuple(found)


def _schema(text: Any) -> dict[str, Any] | None:
    form = object_of(text, "text").get("format") if text is not None else None
    if form is None:
        return None
    if form.get("type") != "json_schema" or not _NAME.fullmatch(str(form.get("name"))):
        raise Rejected("Missing required parameter: 'text.format.name'.")
    schema = object_of(form.get("schema"), "text.format.schema")
    if form.get("strict"):
        check_strict(schema)
    return schema


def in_stream(script: Script) -> bytes:
    message = script.message or "An error occurred while processing your request."
    error = {"code": script.error or "server_error", "message": message}
    return event(
        {"type": "response.failed", "response": {"status": "failed", "error": error}}, "response.failed"
    )


def write(script: Script, seen: SeenRequest, raw: bytes) -> list[bytes]:
    """The events of an answer."""
    out: list[bytes] = []
    index = -1

    def send(kind: str, **data: Any) -> None:
        name = f"response.{kind}"
        out.append(event({"type": name, "sequence_number": len(out), **data}, name))

    send("created", response={"id": "resp_fake", "status": "in_progress"})
    if script.thinking:
        index += 1
        item: dict[str, Any] = {"id": "rs_fake", "type": "reasoning", "summary": []}
        send("output_item.added", output_index=index, item=item)
        for piece in cut(script.thinking, script.pieces):
            send("reasoning_summary_text.delta", output_index=index, summary_index=0, delta=piece)
        summary = [{"type": "summary_text", "text": script.thinking}]
        send(
            "output_item.done",
            output_index=index,
            item={**item, "summary": summary, "encrypted_content": ENCRYPTED},
        )
    if script.text:
        index += 1
        item = {"id": "msg_fake", "type": "message", "role": "assistant", "content": []}
        send("output_item.added", output_index=index, item=item)
        kind = "refusal" if script.stop == "refusal" else "output_text"
        for piece in cut(script.text, script.pieces):
            send(f"{kind}.delta", output_index=index, content_index=0, delta=piece)
        send("output_item.done", output_index=index, item=item)
    for made in script.calls:
        index += 1
        item = {
            "id": f"fc_{index}",
            "type": "function_call",
            "call_id": made.id,
            "name": made.name,
            "arguments": "",
        }
        send("output_item.added", output_index=index, item=item)
        for piece in cut(made.arguments, script.pieces):
            send("function_call_arguments.delta", output_index=index, delta=piece)
        send("output_item.done", output_index=index, item={**item, "arguments": made.arguments})
    used = counted(script, raw)
    usage = {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens},
        "output_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
    }
    cut_off = script.stop == "length"
    details = {"reason": "max_output_tokens"} if cut_off else None
    status = "incomplete" if cut_off else "completed"
    send(
        status, response={"id": "resp_fake", "status": status, "incomplete_details": details, "usage": usage}
    )
    return out
