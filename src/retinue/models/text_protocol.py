"""Tools for models that have none: calls and answers as tags in plain text.

`TextProtocol` wraps any model. It writes the tools into the system prompt and earlier calls and results into
the messages, and reads calls (`<tool name="grep">{…}</tool>`, or `<code>…</code>` when `run_code` is offered)
and the answer (`<answer>…</answer>`) out of the reply. A reply without an operation is the answer. The rest
of Retinue sees ordinary tool calls.

Whatever a model writes is read as well as possible and never raises: what cannot be mended is passed on as
it is, and the tool's own message tells the model what is wrong. Only the text of the answer is streamed.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec

from retinue.models.base import Model, identify, lacking
from retinue.models.text_reading import CODE_TOOL, AnswerFeed, TextReading, read
from retinue.types import (
    AssistantMessage,
    Image,
    Message,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    Reply,
    Retrying,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)


@dataclass(frozen=True, slots=True)
class TextProtocol:
    """A model without native tool calls, made to use tools."""

    model: Model

    @property
    def name(self) -> str:
        return f"text:{self.model.name}"

    async def identify(self) -> None:
        await identify(self.model)

    def lacks(self, settings: ModelSettings) -> Mapping[str, str]:
        """Its calls are read out of text: nobody holds it to one of them, or to one at a time."""
        own = {"parallel_tool_calls"} & {*settings.given}
        if settings.tool_choice not in ("", "auto", "none", "required"):
            own.add("tool_choice")
        return {**dict.fromkeys(own, self.name), **lacking(self.model, settings.without({"tool_choice"}))}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        tools = () if request.tool_choice == "none" else request.tools
        if not tools or request.tool_choice != "required":
            async with aclosing(self._asked(request, tools)) as events:
                async for event in events:
                    yield event
            return
        # No provider holds this model to a call, so an answer before a look is held back, and asked for anew.
        early: Reply | None = None
        async with aclosing(self._asked(request, tools)) as events:
            async for event in events:
                if isinstance(event, Reply) and not event.message.calls:
                    early = event
                else:
                    yield ThinkingDelta("") if isinstance(event, TextDelta) else event
        if early is None:
            return
        said = (AssistantMessage(text=early.message.text), UserMessage(text=_text("text_protocol_look")))
        again = msgspec.structs.replace(request, messages=(*request.messages, *said))
        async with aclosing(self._asked(again, tools)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    event = msgspec.structs.replace(event, usage=early.usage + event.usage)
                yield event

    async def _asked(self, request: ModelRequest, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelEvent]:
        """One answer of the model, read."""
        feed, parts, shown = AnswerFeed(tools), list[str](), 0
        async with aclosing(self.model.stream(_plain(request, tools))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    parts.append(event.text)
                    ready = feed.add(event.text)
                    shown += len(ready)
                    yield TextDelta(ready) if ready else ThinkingDelta("")
                elif isinstance(event, Retrying):
                    yield msgspec.structs.replace(event, text_shown=shown > 0)
                    feed, parts, shown = AnswerFeed(tools), list[str](), 0
                elif isinstance(event, Reply):
                    whole = "".join(parts) or event.message.text
                    reading = read(whole, tools, cut=event.stop == "length")
                    if not reading.operations and reading.text[shown:]:
                        yield TextDelta(reading.text[shown:])
                    yield _reply(event, reading)
                else:
                    yield event


def _reply(event: Reply, reading: TextReading) -> Reply:
    calls = tuple(
        ToolCall(id=f"text_{secrets.token_hex(6)}", name=each.name, arguments=each.arguments)
        for each in reading.operations
    )
    stop: StopReason = "end" if event.stop == "tool_calls" else event.stop
    return msgspec.structs.replace(
        event,
        message=AssistantMessage(text=reading.text, calls=calls),
        stop="tool_calls" if calls else stop,
        thinking="\n".join(part for part in (event.thinking, reading.thinking) if part),
    )


def _plain(request: ModelRequest, tools: Sequence[ToolSpec]) -> ModelRequest:
    """The same request for a model that only reads and writes text."""
    system = "\n\n".join(part for part in (request.system, *_instructions(request, tools)) if part)
    return msgspec.structs.replace(
        request,
        system=system,
        messages=tuple(_messages(request.messages)),
        tools=(),
        tool_choice="auto",
        # A provider that holds the model to a schema would not let it write a tag.
        schema=None if tools else request.schema,
    )


@cache
def _text(name: str) -> str:
    return files("retinue.models").joinpath(f"{name}.md").read_text("utf-8").strip()


def _instructions(request: ModelRequest, tools: Sequence[ToolSpec]) -> Iterable[str]:
    if not tools:
        return
    yield _text("text_protocol")
    if any(each.name == CODE_TOOL for each in tools):
        yield _text("text_protocol_code")
    if request.tool_choice == "required":
        yield "In this reply you must use a tool."
    if request.schema is not None:
        yield "Your final answer must be one JSON value that fits this schema:\n" + json.dumps(request.schema)
    yield "# Tools\n\n" + "\n\n".join(_described(each) for each in tools)


def _described(each: ToolSpec) -> str:
    if each.name == CODE_TOOL:
        return f"## {each.name}\n{each.description}"
    schema = json.dumps(each.schema, ensure_ascii=False, separators=(",", ":"))
    return f"## {each.name}\n{each.description}\nArguments, as a JSON schema: {schema}"


def _messages(messages: Iterable[Message]) -> list[Message]:
    """Calls and results as text; neighbours of the same side in one message, as many models insist on."""
    written: list[Message] = []
    pending: list[str] = []
    images: list[Image] = []

    def flush() -> None:
        if pending or images:
            written.append(UserMessage(text="\n\n".join(pending), images=tuple(images)))
            pending.clear()
            images.clear()

    for message in messages:
        if isinstance(message, UserMessage):
            pending.append(message.text)
            images.extend(message.images)
        elif isinstance(message, ToolMessage):
            pending.append(write_result(message))
            images.extend(message.images)
        else:
            flush()
            written.append(AssistantMessage(text=write_calls(message)))
    flush()
    return written


def write_calls(message: AssistantMessage) -> str:
    """What the model would have written to make these calls."""
    return "\n".join(
        [*([message.text] if message.text else []), *(_write_call(each) for each in message.calls)]
    )


def _write_call(call: ToolCall) -> str:
    if call.name == CODE_TOOL:
        try:
            code = json.loads(call.arguments)["code"]
        except (ValueError, KeyError, TypeError, RecursionError):
            code = None
        if isinstance(code, str) and not re.search(r"</\s*code", code, re.IGNORECASE):
            return f"<code>\n{code}\n</code>"
    name = call.name.replace('"', "'")
    return f'<tool name="{name}">{call.arguments}</tool>'


def write_result(message: ToolMessage) -> str:
    """A result as the model reads it. Its text cannot close the tag: it is data."""
    text = re.sub(r"<(/?\s*result)", r"<\\\1", message.text, flags=re.IGNORECASE)
    status = ' status="error"' if message.is_error else ""
    return f'<result name="{message.name}"{status}>\n{text}\n</result>'
