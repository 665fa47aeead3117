"""What a fake provider is told to answer, and what it saw.

`Script` is one answer, good or bad. `SeenRequest` is one request that passed every check, in the same form
for all wire formats. `Rejected` is a request that a real provider would refuse. Used by the wire formats
beside this file and by `provider`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Struct

from retinue.types import (
    AssistantMessage,
    Image,
    JsonSchema,
    Message,
    StopReason,
    ToolCall,
    ToolSpec,
    Usage,
    UserMessage,
)


class Script(Struct, frozen=True, kw_only=True):
    """One answer of the fake provider. All fields have defaults: `Script(text="hello")` is an answer.

    What it says: `text`, `calls`, `thinking`, `usage` (counted from the text if left out), `stop` (worked
    out if left out; "refusal" refuses the way the wire format does).

    How it comes: `pieces` is the number of deltas a text or an argument is cut into; `split` cuts the bytes
    on the wire after every so many, in disregard of events and characters; `delay` waits that many seconds
    before each event (without it the whole answer goes out at once and may arrive as one delta); `gate` is
    an `asyncio.Event` to wait for before anything is sent; `crlf` and `comments` write the events in other
    allowed ways; `headers` are sent along.

    What goes wrong: `status` other than 200, with `message`, `retry_after` (a Retry-After header) and
    `error` (the provider's name for it); `empty` is a well-formed answer that says nothing, `nothing` is a
    stream that ends before it began. Inside the stream, after so many events: `drop_after` breaks the
    connection, `hang_after` never sends another byte, `garbage_after` sends broken JSON, `error_after` sends
    the provider's error object. `rewrite` is a function from the bytes of an event to those that are sent in
    its place: for what no well-formed answer holds.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    usage: Usage | None = None
    stop: StopReason | None = None
    pieces: int = 4
    split: int | None = None
    delay: float = 0.0
    gate: Any = None
    crlf: bool = False
    comments: bool = False
    status: int = 200
    message: str = ""
    error: str = ""
    retry_after: float | str | None = None
    headers: dict[str, str] = {}
    empty: bool = False
    nothing: bool = False
    drop_after: int | None = None
    hang_after: int | None = None
    garbage_after: int | None = None
    error_after: int | None = None
    rewrite: Any = None


class SeenRequest(Struct, frozen=True, kw_only=True):
    """A request the fake provider accepted, whatever its wire format.

    `wire` is that format. `system`, `messages`, `tools`, `tool_choice`, `schema` (of the answer),
    `temperature` and `max_tokens` are what it asks for, `key` and `headers`, with lower-case names, what it
    came with; `body` is all of it as it was sent.
    """

    wire: str
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    schema: JsonSchema | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    key: str = ""
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}

    @property
    def turn(self) -> int:
        """How many answers are already in the conversation: 0 for a first question."""
        return sum(isinstance(message, AssistantMessage) for message in self.messages)

    @property
    def asked(self) -> str:
        """The first thing a user said: what the conversation is about."""
        return next((m.text for m in self.messages if isinstance(m, UserMessage)), "")


class Rejected(Exception):
    """A request that a real provider would refuse. `error` is the provider's name for the mistake."""

    def __init__(self, message: str, *, status: int = 400, error: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.error, self.param = status, error, param


def call(name: str, id: str = "", /, **arguments: Any) -> ToolCall:
    """A tool call for a script: `call("read", path="a.py")`.

    All that is named is one of the tool's `arguments`. The call's own `id` may stand second; without one, the
    provider invents it.
    """
    return ToolCall(id=id, name=name, arguments=json.dumps(arguments))


def object_of(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Rejected(f"{where}: expected an object, got {type(value).__name__}")
    return value  # pyright: ignore[reportUnknownVariableType]  # JSON objects have text keys


def list_of(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise Rejected(f"{where}: expected an array, got {type(value).__name__}")
    return value  # pyright: ignore[reportUnknownVariableType]


def text_of(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Rejected(f"{where}: expected a string, got {type(value).__name__}")
    return value


def image_at(address: str) -> Image:
    try:
        return Image.from_address(address)
    except ValueError:
        raise Rejected(f"Invalid image URL: {address[:80]}") from None


def parse_body(raw: bytes, message: str) -> dict[str, Any]:
    try:
        return object_of(msgspec.json.decode(raw), "body")
    except msgspec.DecodeError:
        raise Rejected(message) from None


def cut(text: str, pieces: int) -> list[str]:
    """A text in about so many pieces."""
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[i : i + size] for i in range(0, len(text), size)]


def counted(script: Script, raw: bytes) -> Usage:
    """The usage to report: the script's, or four characters to a token."""
    if script.usage is not None:
        return script.usage
    said = len(script.text) + len(script.thinking) + sum(len(c.arguments) for c in script.calls)
    return Usage(input_tokens=len(raw) // 4 + 1, output_tokens=said // 4 + 1)


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    payload = data if isinstance(data, bytes) else msgspec.json.encode(data)
    return head + b"data: " + payload + b"\n\n"
