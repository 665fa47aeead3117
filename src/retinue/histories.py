"""Conversations in the message formats of OpenAI (chat completions) and Anthropic, in and out.

`from_openai(…)` gives a `History` for `Retinue.conversation`, `to_openai(await chat.messages())` what another
library takes. What the other side has no place for is named in `left_out`, in plain words.
Pure: reads and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, cast

import msgspec
from msgspec import Struct

from retinue.errors import ConfigError
from retinue.models.anthropic import BEGINNING
from retinue.models.arguments import object_text
from retinue.models.ids import sendable, sendable_id
from retinue.models.pictures import apart
from retinue.types import AssistantMessage, Image, Message, ToolCall, ToolMessage, UserMessage

NO_RESULT = "(this call has no result)"


class History(Struct, frozen=True, kw_only=True):
    """What came in: `messages`. `system` is no message: it is an agent's prompt, for who wants to use it.
    `left_out` says what could not be taken."""

    messages: tuple[Message, ...]
    system: str = ""
    left_out: tuple[str, ...] = ()


class Exported(Struct, frozen=True, kw_only=True):
    """What goes out: messages as the other side takes them."""

    messages: list[dict[str, Any]]
    left_out: tuple[str, ...] = ()


class _Notes(dict[str, int]):
    """What was left out, each with how often."""

    def add(self, what: str) -> None:
        self[what] = self.get(what, 0) + 1

    def texts(self) -> tuple[str, ...]:
        return tuple(what if count == 1 else f"{what} ({count} times)" for what, count in self.items())


def whole(
    messages: Iterable[Message], left_out: _Notes | None = None, *, going_out: bool = False
) -> tuple[Message, ...]:
    """The messages as every provider takes them: each call has its result and an id of its own, and each
    result its call. With `going_out` ids, names and arguments are such as the strictest of them takes."""
    notes = _Notes() if left_out is None else left_out
    out: list[Message] = []
    used: set[str] = set()
    open_calls: list[tuple[str, ToolCall]] = []
    """Each with the id that its result names."""

    def close() -> None:
        for _, call in open_calls:
            notes.add("a call without a result was given one that says so")
            out.append(ToolMessage(call_id=call.id, name=call.name, text=NO_RESULT, is_error=True))
        open_calls.clear()

    for message in messages:
        if isinstance(message, ToolMessage):
            found = next((each for each in open_calls if each[0] == message.call_id), None)
            if found is None:
                notes.add("a result of a call that is not there")
                continue
            open_calls.remove(found)
            out.append(_result_of(found[1], message))
            continue
        close()
        if isinstance(message, AssistantMessage) and message.calls:
            calls = _told_apart(message.calls, used, notes)
            used |= {call.id for call in calls}
            calls = tuple(_sendable(call, notes) for call in calls) if going_out else calls
            open_calls += zip((call.id for call in message.calls), calls, strict=True)
            message = message if calls == message.calls else msgspec.structs.replace(message, calls=calls)
        out.append(message)
    close()
    return tuple(out)


def _told_apart(calls: tuple[ToolCall, ...], used: Set[str], notes: _Notes) -> tuple[ToolCall, ...]:
    """The calls of one answer, each with an id of its own: by that its result is known. `used` are those of
    the answers before."""
    taken, out = {call.id for call in calls}, dict[str, ToolCall]()
    for call in calls:
        own_id, number = call.id, 2
        while own_id in out or own_id in used or (own_id != call.id and own_id in taken):
            own_id, number = f"{call.id}-{number}", number + 1
        if own_id != call.id:
            notes.add("a call with the id of another one was given its own")
            call = msgspec.structs.replace(call, id=own_id)
        out[own_id] = call
    return tuple(out.values())


def _sendable(call: ToolCall, notes: _Notes) -> ToolCall:
    fits = ToolCall(id=sendable_id(call.id), name=sendable(call.name), arguments=object_text(call.arguments))
    if (fits.id, fits.name) != (call.id, call.name):
        notes.add("the id or the name of a call is written as the other side takes it")
    if call.arguments.strip() and fits.arguments != call.arguments:
        notes.add("arguments that are no object of JSON are in one, as 'malformed'")
    return call if fits == call else fits


def _result_of(call: ToolCall, result: ToolMessage) -> ToolMessage:
    """A result with the id and the name of its call: that may have another id by now."""
    same = (result.call_id, result.name) == (call.id, call.name)
    return result if same else msgspec.structs.replace(result, call_id=call.id, name=call.name)


def from_openai(messages: Iterable[Mapping[str, Any]]) -> History:
    """A list of chat completion messages."""
    notes, system, out = _Notes(), list[str](), list[Message]()
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        text, images = _openai_content(content, notes)
        if role in ("system", "developer"):
            system.append(text)
        elif role == "user":
            out.append(UserMessage(text=text, images=images))
        elif role == "assistant":
            calls = _openai_calls(message, notes)
            names |= {call.id: call.name for call in calls}
            out.append(AssistantMessage(text=text, calls=calls))
        elif role == "tool":
            call_id = str(message.get("tool_call_id", ""))
            out.append(ToolMessage(call_id=call_id, name=names.get(call_id, ""), text=text, images=images))
        else:
            raise _unknown(place, role, "system, developer, user, assistant and tool")
    return History(
        messages=whole(out, notes), system="\n\n".join(filter(None, system)), left_out=notes.texts()
    )


def _openai_calls(message: Mapping[str, Any], notes: _Notes) -> tuple[ToolCall, ...]:
    for field in ("refusal", "audio", "function_call", "reasoning_content"):
        if message.get(field):
            notes.add(f"{field} of an answer")
    calls: list[ToolCall] = []
    for call in _objects(message.get("tool_calls"), "call", notes):
        function = call.get("function")
        if not isinstance(function, Mapping):
            notes.add(f"a call of the type {call.get('type')}")
            continue
        asked = cast("Mapping[str, Any]", function)
        calls.append(
            ToolCall(
                id=str(call.get("id", "")),
                name=str(asked.get("name", "")),
                arguments=_arguments_text(asked.get("arguments")),
            )
        )
    return tuple(calls)


def _arguments_text(given: Any) -> str:
    """Some libraries hold the arguments as an object, and not as its JSON text."""
    return given or "{}" if given is None or isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _openai_content(content: Any, notes: _Notes) -> tuple[str, tuple[Image, ...]]:
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    images: list[Image] = []
    for part in _objects(content, "part", notes):
        if part.get("type") == "text":
            texts.append(str(part.get("text", "")))
        elif part.get("type") == "image_url":
            place = part.get("image_url")
            _take_image(
                str(_object(place).get("url", "") if place is None or isinstance(place, Mapping) else place),
                images,
                notes,
            )
        else:
            notes.add(f"a part of the type {part.get('type')}")
    return "\n\n".join(texts), tuple(images)


def _take_image(address: str, images: list[Image], notes: _Notes) -> None:
    try:
        images.append(Image.from_address(address))
    except ValueError:
        notes.add("a picture that is too large, of another type, or neither at a web address nor base64")


def to_openai(messages: Iterable[Message], *, system: str = "") -> Exported:
    """Messages for chat completions. There a result is text alone: its pictures follow as a user message."""
    notes = _Notes()
    complete = whole(messages, notes, going_out=True)
    _note_lost(complete, notes, errors=True)
    if any(isinstance(each, ToolMessage) and each.images for each in complete):
        notes.add("pictures of results are in a user message after them")
    out: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in apart(complete):
        if isinstance(message, UserMessage):
            out.append({"role": "user", "content": _openai_parts(message)})
        elif isinstance(message, ToolMessage):
            out.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
        else:
            out.append(_openai_answer(message))
    return Exported(messages=out, left_out=notes.texts())


def _openai_parts(message: UserMessage) -> str | list[dict[str, Any]]:
    if not message.images:
        return message.text
    text = [{"type": "text", "text": message.text}] if message.text else []
    return [*text, *({"type": "image_url", "image_url": {"url": each.address}} for each in message.images)]


def _openai_answer(message: AssistantMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": message.text or (None if message.calls else "")}
    if message.calls:
        out["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.calls
        ]
    return out


def from_anthropic(
    messages: Iterable[Mapping[str, Any]], *, system: str | Sequence[Mapping[str, Any]] = ""
) -> History:
    """A list of messages of the Messages API, with its `system`."""
    notes, out = _Notes(), list[Message]()
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        blocks = _blocks(message.get("content"), notes)
        if message.get("role") == "assistant":
            answer = _anthropic_answer(blocks, notes)
            names |= {call.id: call.name for call in answer.calls}
            out.append(answer)
        elif message.get("role") == "user":
            out.extend(_anthropic_user(blocks, names, notes))
        else:
            raise _unknown(place, message.get("role"), "user and assistant")
    told = "\n\n".join(str(block.get("text", "")) for block in _blocks(system, notes))
    return History(messages=whole(out, notes), system=told, left_out=notes.texts())


def _anthropic_answer(blocks: Sequence[Mapping[str, Any]], notes: _Notes) -> AssistantMessage:
    texts: list[str] = []
    calls: list[ToolCall] = []
    for block in blocks:
        if block.get("type") == "text":
            texts.append(str(block.get("text", "")))
        elif block.get("type") == "tool_use":
            arguments = json.dumps(block.get("input", {}), ensure_ascii=False)
            calls.append(
                ToolCall(id=str(block.get("id", "")), name=str(block.get("name", "")), arguments=arguments)
            )
        else:
            notes.add(f"a block of the type {block.get('type')}")
    return AssistantMessage(text="".join(texts), calls=tuple(calls))


def _anthropic_user(
    blocks: Sequence[Mapping[str, Any]], names: Mapping[str, str], notes: _Notes
) -> list[Message]:
    out: list[Message] = []
    said = [block for block in blocks if block.get("type") != "tool_result"]
    for block in blocks:
        if block.get("type") == "tool_result":
            text, images = _anthropic_content(_blocks(block.get("content", ""), notes), notes)
            call_id = str(block.get("tool_use_id", ""))
            out.append(
                ToolMessage(
                    call_id=call_id,
                    name=names.get(call_id, ""),
                    text=text,
                    is_error=bool(block.get("is_error")),
                    images=images,
                )
            )
    if said:
        text, images = _anthropic_content(said, notes)
        out.append(UserMessage(text=text, images=images))
    return out


def _anthropic_content(blocks: Sequence[Mapping[str, Any]], notes: _Notes) -> tuple[str, tuple[Image, ...]]:
    texts: list[str] = []
    images: list[Image] = []
    for block in blocks:
        source = _object(block.get("source"))
        if block.get("type") == "text":
            texts.append(str(block.get("text", "")))
        elif block.get("type") == "image" and source.get("type") == "url":
            _take_image(str(source.get("url", "")), images, notes)
        elif block.get("type") == "image" and source.get("type") == "base64":
            _take_image(f"data:{source.get('media_type')};base64,{source.get('data')}", images, notes)
        else:
            notes.add(f"a block of the type {block.get('type')}")
    return "\n\n".join(texts), tuple(images)


def to_anthropic(messages: Iterable[Message]) -> Exported:
    """Messages for the Messages API. Roles alternate there: what stands side by side becomes one message."""
    notes = _Notes()
    complete = whole(messages, notes, going_out=True)
    _note_lost(complete, notes, errors=False)
    out: list[dict[str, Any]] = []
    for message in complete:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _anthropic_blocks(message)
        if out and out[-1]["role"] == role:
            if role == "assistant" or isinstance(message, UserMessage):
                notes.add("messages of one side in a row are one")
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
        else:
            notes.add("a message without any content")
    if out and out[0]["role"] == "assistant":
        notes.add("a first message of the person was added")
        out.insert(0, {"role": "user", "content": [{"type": "text", "text": BEGINNING}]})
    return Exported(messages=out, left_out=notes.texts())


def _anthropic_blocks(message: Message) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    if isinstance(message, AssistantMessage):
        calls = [
            {"type": "tool_use", "id": c.id, "name": c.name, "input": _arguments(c)} for c in message.calls
        ]
        return [*text, *calls]
    pictures = [{"type": "image", "source": _source(each)} for each in message.images]
    if isinstance(message, UserMessage):
        return [*pictures, *text]
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": message.call_id,
        "content": [*text, *pictures] if pictures else message.text,
    }
    return [{**result, "is_error": True} if message.is_error else result]


def _source(image: Image) -> dict[str, str]:
    if image.url:
        return {"type": "url", "url": image.url}
    return {"type": "base64", "media_type": image.media_type, "data": image.data}


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):  # such as a number that is too large
        return {"malformed": call.arguments}


def _note_lost(messages: Iterable[Message], notes: _Notes, *, errors: bool) -> None:
    for message in messages:
        if isinstance(message, AssistantMessage) and message.extra:
            notes.add("what a provider wants back unchanged (signatures of thoughts)")
        if errors and isinstance(message, ToolMessage) and message.is_error:
            notes.add("that a result is an error")


def _blocks(content: Any, notes: _Notes) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return _objects(content, "block", notes)


def _objects(given: Any, what: str, notes: _Notes) -> list[Mapping[str, Any]]:
    """What is listed there. A plain string among parts or blocks is a text."""
    several = (
        cast("Iterable[Any]", given) if isinstance(given, Iterable) else () if given is None else (given,)
    )
    out: list[Mapping[str, Any]] = []
    for each in several:
        if isinstance(each, Mapping):
            out.append(cast("Mapping[str, Any]", each))
        elif isinstance(each, str) and what != "call":
            out.append({"type": "text", "text": each})
        else:
            notes.add(f"a {what} that is no object")
    return out


def _object(given: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}


def _unknown(place: int, role: object, known: str) -> ConfigError:
    return ConfigError(f"message {place} of the history has the role {role!r}", fix=f"known are {known}")
