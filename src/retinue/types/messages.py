"""What passes between a run and a model: messages, tools as it sees them, a request, what comes back.

Every provider takes a `ModelRequest` and gives `ModelEvent`s, the last of which is the whole `Reply`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from retinue.types.model_settings import Effort, ModelSettings

StopReason = Literal["end", "tool_calls", "length", "refusal"]
JsonSchema = dict[str, Any]


def round_money(record: Struct, *names: str) -> None:
    """Write an amount in one way only: sums of the same prices differ in their last digits."""
    for name in names:
        amount = getattr(record, name)
        if amount and (rounded := round(amount, 10)) != amount:
            msgspec.structs.force_setattr(record, name, rounded)


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens and money. `cached_tokens` are those of the input that the provider had kept, at a lower price;
    `cost` is in US dollars; None means the price is not known, never zero."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0

    def __post_init__(self) -> None:
        round_money(self, "cost")

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )

    def __sub__(self, earlier: Usage) -> Usage:
        """What was used since."""
        return Usage(
            input_tokens=self.input_tokens - earlier.input_tokens,
            output_tokens=self.output_tokens - earlier.output_tokens,
            cached_tokens=self.cached_tokens - earlier.cached_tokens,
            cost=None if self.cost is None or earlier.cost is None else self.cost - earlier.cost,
        )

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {**msgspec.to_builtins(self), "total_tokens": self.total_tokens}


class ToolCall(Struct, frozen=True, kw_only=True):
    """What the model asked for. `arguments` is the raw JSON text: it may be malformed."""

    id: str
    name: str
    arguments: str


MAX_IMAGE = 3_750_000
"""Bytes of a picture: what every provider takes."""
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}

IMAGE_TYPES = (*_IMAGES.values(), "image/webp")


def image_type(data: bytes) -> str | None:
    """What kind of picture these bytes are, by how they begin; None if they are none."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), None)


class Image(Struct, frozen=True, kw_only=True):
    """A picture: its bytes in base64 (`data`, of a `media_type` such as `image/png`), or the `url` that it
    is at, which the provider fetches by itself."""

    media_type: str = ""
    data: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        if bool(self.data) == bool(self.url):
            raise ValueError("an Image has data or a url: Image.from_bytes(…), from_path(…) or from_url(…)")
        if self.data and not self.media_type:
            raise ValueError("an Image with data has a media_type, such as image/png")

    @classmethod
    def from_bytes(cls, data: bytes) -> Image:
        """A PNG, JPEG, GIF or WebP. What kind it is, its bytes say."""
        kind = image_type(data)
        if kind is None:
            raise ValueError("these bytes are no picture: PNG, JPEG, GIF and WebP are")
        if len(data) > MAX_IMAGE:
            raise ValueError(
                f"the picture has {len(data):,} bytes, of {MAX_IMAGE:,} at most: make it smaller"
            )
        return cls(media_type=kind, data=base64.b64encode(data).decode("ascii"))

    @classmethod
    def from_path(cls, path: str | Path) -> Image:
        """A picture of a file."""
        return cls.from_bytes(Path(path).read_bytes())

    @classmethod
    def from_url(cls, url: str) -> Image:
        """A picture that is on the web. The provider fetches it; we do so where it takes bytes alone."""
        if not url.lower().startswith(("https://", "http://")):
            raise ValueError(f"{url[:80]!r} is no address of the web: https://…")
        return cls(url=url)

    @classmethod
    def from_address(cls, address: str) -> Image:
        """A picture by its URL, also by one that holds it (`data:image/png;base64,…`)."""
        held = re.fullmatch(r"data:(image/[\w.+-]+);base64,([A-Za-z0-9+/=]+)", address)
        return cls(media_type=held[1], data=held[2]).checked() if held else cls.from_url(address)

    def checked(self) -> Image:
        """Itself, if it is one that models take; a `ValueError` says why not. Whoever hands a picture on that
        a program made calls this: logs hold what was let pass once, and are read whatever is in them."""
        if self.url:
            return self
        if self.media_type not in IMAGE_TYPES:
            raise ValueError(f"{self.media_type[:80]!r} is none of {', '.join(IMAGE_TYPES)}")
        if self.size > MAX_IMAGE:
            raise ValueError(
                f"the picture has {self.size:,} bytes, of {MAX_IMAGE:,} at most: make it smaller"
            )
        try:
            base64.b64decode(self.data, validate=True)
        except ValueError:
            raise ValueError("the data of the picture is not base64") from None
        return self

    @property
    def size(self) -> int:
        """Its bytes, as far as they are here."""
        return len(self.data) * 3 // 4 - self.data[-2:].count("=")

    @property
    def address(self) -> str:
        """Its URL, one that holds it (`data:`) where it has none."""
        return self.url or f"data:{self.media_type};base64,{self.data}"


class UserMessage(Struct, frozen=True, kw_only=True, tag="user"):
    text: str
    images: tuple[Image, ...] = ()


class AssistantMessage(Struct, frozen=True, kw_only=True, tag="assistant"):
    """`extra` is what a provider wants back unchanged (thinking signatures), opaque to everyone else."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    extra: dict[str, Any] | None = None


class ToolMessage(Struct, frozen=True, kw_only=True, tag="tool"):
    call_id: str
    name: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


Message = UserMessage | AssistantMessage | ToolMessage


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it."""

    name: str
    description: str
    schema: JsonSchema


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One question to a model. `schema` asks for an answer in JSON that fits it.

    `timeout` is in seconds; None leaves it to the model, which knows how slow its server may be.
    `tool_choice` is `auto`, `none`, `required` or the name of a tool. `settings` are how else it is asked:
    what has a field of its own here (effort, temperature, max_tokens, timeout, tool_choice) is read there.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    temperature: float | None = None
    max_tokens: int | None = None
    schema: JsonSchema | None = None
    timeout: float | None = None
    effort: Effort = ""
    settings: ModelSettings = ModelSettings()


class TextDelta(Struct, frozen=True):
    """A piece of the answer, as it arrives."""

    text: str


class ThinkingDelta(Struct, frozen=True):
    """A piece of the model's visible reasoning. An empty one says that the model writes what is not
    shown as it comes, like the arguments of a call: a sign of life for a patient agent's clock."""

    text: str


class Retrying(Struct, frozen=True, kw_only=True):
    """The call failed and is made again. Text that was already shown is void if `text_shown`.

    `model` is who is asked instead, if it is another one; `begun`: then a reply had begun, which the provider
    of the first may charge for.
    """

    reason: str
    attempt: int
    wait: float
    text_shown: bool
    model: str = ""
    begun: bool = False


class Reply(Struct, frozen=True, kw_only=True):
    """The whole answer: always the last item of a model's stream.

    `effort` is what was sent of the wish for one, and taken: empty where the model does not have it.
    """

    message: AssistantMessage
    usage: Usage
    stop: StopReason
    model: str
    thinking: str = ""
    effort: Effort = ""


ModelEvent = TextDelta | ThinkingDelta | Retrying | Reply


class Model(Protocol):
    """What a model is to the rest of Retinue. `models/base` says more."""

    @property
    def name(self) -> str:
        """The full name, `provider:model`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]: ...


ModelGiven = str | Model | Sequence[str | Model]
"""How a program may name a model: by its name, by giving it, or several of which the next is asked where one
fails for good."""
