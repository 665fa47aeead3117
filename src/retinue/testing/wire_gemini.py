"""The fake provider's generateContent: checks a request as Gemini does, writes an answer as Gemini does."""

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

SIGNATURE = "ZmFrZSB0aG91Z2h0"
FOREIGN = "skip_thought_signature_validator"
_FIELDS = frozenset(
    {
        *("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"),
        "serviceTier",
    }
)
_PART = ("text", "inlineData", "functionCall", "functionResponse")
_SCHEMA = frozenset(
    {
        "type",
        "description",
        "enum",
        "properties",
        "required",
        "items",
        "prefixItems",
        "anyOf",
        "additionalProperties",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "nullable",
        "$ref",
        "$defs",
    }
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_THINKS = re.compile(r"gemini-(?:2\.5|[3-9])")
_SIGNED = re.compile(r"gemini-[3-9]")


def key_of(headers: dict[str, str]) -> str:
    key = headers.get("x-goog-api-key", "")
    if not key:
        raise Rejected(
            "Method doesn't allow unregistered callers (callers without established identity). "
            "Please use API Key or other form of API consumer identity to call this API.",
            status=403,
            error="PERMISSION_DENIED",
        )
    return key


def wrong_key(key: str) -> Rejected:
    return Rejected("API key not valid. Please pass a valid API key.", status=400, error="INVALID_ARGUMENT")


def parse(raw: bytes, headers: dict[str, str], model: str) -> SeenRequest:
    body = parse_body(raw, "Invalid JSON payload received. Expected an object.")
    _only(body, _FIELDS, "")
    config = object_of(body.get("generationConfig", {}), "generationConfig")
    _only(
        config,
        frozenset(
            {
                *("temperature", "maxOutputTokens", "responseMimeType", "responseJsonSchema"),
                *("thinkingConfig", "topP", "stopSequences", "seed"),
            }
        ),
        "generation_config",
    )
    _check_thinking(object_of(config.get("thinkingConfig", {}), "thinkingConfig"), model)
    schema = config.get("responseJsonSchema")
    if schema is not None:
        if config.get("responseMimeType") != "application/json":
            raise Rejected("response_json_schema requires response_mime_type application/json")
        _check_schema(schema, "generation_config.response_json_schema")
    tools = _tools(body)
    if schema is not None and tools and not _SIGNED.match(model):
        raise Rejected("Function calling with a response mime type: 'application/json' is unsupported")
    return SeenRequest(
        wire="gemini",
        model=model,
        system=_system(body.get("systemInstruction")),
        messages=tuple(_contents(list_of(body.get("contents"), "contents"), bool(_SIGNED.match(model)))),
        tools=tools,
        tool_choice=_choice(body),
        schema=schema,
        temperature=config.get("temperature"),
        max_tokens=config.get("maxOutputTokens"),
        headers=headers,
        body=body,
    )


def _check_thinking(given: dict[str, Any], model: str) -> None:
    """Levels are for Gemini 3 and later, budgets for 2.5, and older models know neither."""
    _only(given, frozenset({"thinkingLevel", "thinkingBudget", "includeThoughts"}), "thinking_config")
    if given and not _THINKS.match(model):
        raise Rejected("Thinking is not enabled for this model")
    if "thinkingLevel" in given and "thinkingBudget" in given:
        raise Rejected("You can only set only one of thinking budget and thinking level.")
    level, budget = given.get("thinkingLevel"), given.get("thinkingBudget")
    if level is not None and not _SIGNED.match(model):
        raise Rejected("Thinking level is not supported for this model.")
    if level is not None and str(level).lower() not in ("minimal", "low", "medium", "high"):
        raise Rejected(f'Invalid value at "generation_config.thinking_config.thinking_level": "{level}"')
    if budget is not None and not (type(budget) is int and -1 <= budget <= 24_576):
        raise Rejected("The thinking budget is invalid. Please choose a value between 0 and 24576.")


def _only(given: dict[str, Any], known: frozenset[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise Rejected(
                f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
            )


def _system(given: Any) -> str:
    if given is None:
        return ""
    parts = list_of(object_of(given, "systemInstruction").get("parts"), "systemInstruction.parts")
    return "\n\n".join(text_of(object_of(part, "part").get("text"), "text") for part in parts)


def _contents(given: list[Any], signed: bool) -> list[Message]:
    if not given:
        raise Rejected("* GenerateContentRequest.contents: contents is not specified")
    out: list[Message] = []
    waiting: list[ToolCall] = []
    for place, item in enumerate(given):
        content = object_of(item, f"contents[{place}]")
        parts = [
            object_of(part, f"contents[{place}].parts") for part in list_of(content.get("parts"), "parts")
        ]
        if content.get("role") not in ("user", "model"):
            raise Rejected("Please use a valid role: user, model.")
        if not parts:
            raise Rejected(
                f"* GenerateContentRequest.contents[{place}].parts: contents.parts must not be empty."
            )
        for part in parts:
            if sum(name in part for name in _PART) != 1:
                raise Rejected(f"contents[{place}].parts: a part must have exactly one of {', '.join(_PART)}")
        if content["role"] == "model":
            answer = _model(parts, place, signed)
            waiting = list(answer.calls)
            out.append(answer)
        else:
            out.extend(_user(parts, waiting, place))
            waiting = []
    if waiting or given[0].get("role") == "model":
        raise Rejected(
            "Please ensure that function call turn comes immediately after a user turn and is answered."
        )
    return out


def _user(parts: list[dict[str, Any]], waiting: list[ToolCall], place: int) -> list[Message]:
    answered = [part["functionResponse"] for part in parts if "functionResponse" in part]
    if len(answered) != len(waiting):
        raise Rejected(
            "Please ensure that the number of function response parts is equal to the number of function "
            f"call parts of the function call turn. ({len(answered)} of {len(waiting)} in contents[{place}])"
        )
    results: list[Message] = []
    for made, given in zip(waiting, answered, strict=True):
        if given.get("name") != made.name or (given.get("id") or made.id) != made.id:
            raise Rejected(
                f"functionResponse {given.get('name')!r} does not answer the call of {made.name!r}"
            )
        response = object_of(given.get("response"), "functionResponse.response")
        text = str(response.get("result", response.get("error", "")))
        results.append(ToolMessage(call_id=made.id, name=made.name, text=text, is_error="error" in response))
    texts = [text_of(part["text"], "text") for part in parts if "text" in part]
    images = tuple(
        Image(media_type=part["inlineData"]["mimeType"], data=part["inlineData"]["data"])
        for part in parts
        if "inlineData" in part
    )
    if texts or images:
        results.append(UserMessage(text="\n\n".join(texts), images=images))
    return results


def _model(parts: list[dict[str, Any]], place: int, signed: bool) -> AssistantMessage:
    calls: list[ToolCall] = []
    signatures: list[str | None] = []
    for part in parts:
        signature = part.get("thoughtSignature")
        if signature not in (None, SIGNATURE, FOREIGN):
            raise Rejected("Thought signature is not valid.")
        signatures.append(signature)
        if "functionCall" not in part:
            continue
        function = object_of(part["functionCall"], "functionCall")
        if signed and not calls and signature is None:
            raise Rejected(
                "Function call is missing a thought_signature in functionCall parts. This is required for "
                f"tools to work correctly. Function call `{function.get('name')}`, position {place}."
            )
        arguments = msgspec.json.encode(object_of(function.get("args", {}), "args")).decode()
        name = text_of(function.get("name"), "functionCall.name")
        calls.append(
            ToolCall(id=function.get("id") or f"{place}-{len(calls)}", name=name, arguments=arguments)
        )
    text = "".join(part.get("text", "") for part in parts)
    return AssistantMessage(text=text, calls=tuple(calls), extra={"signatures": signatures})


def _tools(body: dict[str, Any]) -> tuple[ToolSpec, ...]:
    found: list[ToolSpec] = []
    for item in list_of(body.get("tools", []), "tools"):
        for declared in list_of(
            object_of(item, "tools[]").get("functionDeclarations"), "functionDeclarations"
        ):
            function = object_of(declared, "functionDeclarations[]")
            _only(function, frozenset({"name", "description", "parametersJsonSchema"}), "tools[0]")
            name = text_of(function.get("name"), "name")
            if not _NAME.fullmatch(name):
                raise Rejected(f"Invalid function name {name!r}. Must start with a letter or an underscore.")
            schema = object_of(function.get("parametersJsonSchema", {"type": "object"}), "parameters")
            _check_schema(schema, f"tools[0].function_declarations[{len(found)}].parameters")
            found.append(ToolSpec(name=name, description=function.get("description", ""), schema=schema))
    return tuple(found)


def _check_schema(node: Any, where: str) -> None:
    schema = object_of(node, where)
    _only(schema, _SCHEMA, where)
    for name in ("properties", "$defs"):
        for value in cast("dict[str, Any]", schema.get(name, {})).values():
            _check_schema(value, where)
    for value in cast("list[Any]", schema.get("anyOf", [])):
        _check_schema(value, where)
    if "items" in schema:
        _check_schema(schema["items"], where)


def _choice(body: dict[str, Any]) -> str:
    config = object_of(body.get("toolConfig", {}), "tool_config")
    calling = object_of(config.get("functionCallingConfig", {}), "function_calling_config")
    mode = calling.get("mode", "AUTO")
    if calling.get("allowedFunctionNames"):
        return str(calling["allowedFunctionNames"][0])
    if mode not in ("AUTO", "ANY", "NONE", "VALIDATED"):
        raise Rejected(f"Invalid value at 'tool_config.function_calling_config.mode': {mode!r}")
    return {"ANY": "required", "NONE": "none"}.get(mode, "auto")


_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def refuse(error: Rejected) -> Any:
    status = error.error or _STATUS.get(error.status, "UNKNOWN")
    return {"error": {"code": error.status, "message": str(error), "status": status}}


def in_stream(script: Script) -> bytes:
    message = script.message or "The model is overloaded. Please try again later."
    return event({"error": {"code": 503, "message": message, "status": script.error or "UNAVAILABLE"}})


def write(script: Script, seen: SeenRequest, raw: bytes) -> list[bytes]:
    """The events of an answer."""
    used = counted(script, raw)
    usage: dict[str, Any] = {"promptTokenCount": used.input_tokens, "totalTokenCount": used.total_tokens}
    if used.cached_tokens:
        usage["cachedContentTokenCount"] = used.cached_tokens
    if script.stop == "refusal" and not script.text:
        return [event({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage})]
    usage["candidatesTokenCount"] = used.output_tokens
    parts: list[dict[str, Any]] = []
    parts += [{"text": piece, "thought": True} for piece in cut(script.thinking, script.pieces)]
    parts += [{"text": piece} for piece in cut(script.text, script.pieces)]
    last: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": ""}]}, "index": 0}
    last["finishReason"] = {"length": "MAX_TOKENS", "refusal": "SAFETY"}.get(script.stop or "end", "STOP")
    for index, made in enumerate(script.calls):
        try:
            arguments = msgspec.json.decode(made.arguments)
        except msgspec.DecodeError:  # Gemini never shows such a call, it only says that there was one
            last["finishReason"] = "MALFORMED_FUNCTION_CALL"
            last["finishMessage"] = f"Malformed function call: {made.name}({made.arguments})"
            continue
        part: dict[str, Any] = {"functionCall": {"name": made.name, "args": arguments, "id": made.id}}
        if index == 0:  # only the first of parallel calls is signed
            part["thoughtSignature"] = SIGNATURE
        parts.append(part)
    base = {"usageMetadata": usage, "modelVersion": seen.model, "responseId": "fake"}
    spoken = [{"content": {"role": "model", "parts": [part]}, "index": 0} for part in parts]
    return [event({"candidates": [candidate], **base}) for candidate in (*spoken, last)]
