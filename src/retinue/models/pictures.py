"""What becomes of pictures on their way to a model that takes them otherwise, or takes none.

Called by wires and models. Fetches nothing by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable

import msgspec

from retinue.types import AssistantMessage, Image, Message, ModelRequest, ToolMessage, UserMessage

UNTAKEN = frozenset({400, 404, 415, 422})
"""Answers of a server that may mean that it does not take a picture."""


def pictures(messages: Iterable[Message]) -> list[Image]:
    return [
        image
        for message in messages
        if not isinstance(message, AssistantMessage) and message.images
        for image in message.images
    ]


def apart(messages: Iterable[Message]) -> list[Message]:
    """The conversation for wires whose results are texts alone: pictures of results follow as a message."""
    out: list[Message] = []
    shown: list[Image] = []
    names: list[str] = []

    def show() -> None:
        if shown:
            said = f"[The pictures that {', '.join(dict.fromkeys(names))} returned:]"
            out.append(UserMessage(text=said, images=tuple(shown)))
            shown.clear()
            names.clear()

    for message in messages:
        if type(message) is not ToolMessage:
            show()
            out.append(message)
        elif message.images:
            shown.extend(message.images)
            names.append(message.name)
            out.append(msgspec.structs.replace(message, images=()))
        else:
            out.append(message)
    show()
    return out


def without(request: ModelRequest, left_out: Collection[Image], why: str) -> ModelRequest:
    """The request without these pictures, with words in their places."""
    if not left_out:
        return request

    def told(message: Message) -> Message:
        if isinstance(message, AssistantMessage) or not message.images:
            return message
        kept = tuple(image for image in message.images if image not in left_out)
        gone = len(message.images) - len(kept)
        if not gone:
            return message
        count = "a picture is" if gone == 1 else f"{gone} pictures are"
        said = f"[{count} not shown to you: {why}]"
        text = f"{message.text}\n\n{said}" if message.text else said
        return msgspec.structs.replace(message, text=text, images=kept)

    return msgspec.structs.replace(request, messages=tuple(map(told, request.messages)))


async def as_bytes(request: ModelRequest, fetch: Callable[[str], Awaitable[Image | str]]) -> ModelRequest:
    """The request with the bytes of pictures that it names by their addresses. `fetch` gives a picture, or
    why there is none."""
    found = {image.url: await fetch(image.url) for image in pictures(request.messages) if image.url}
    if not found:
        return request
    for url, got in found.items():
        if isinstance(got, str):
            request = without(request, [Image(url=url)], got)

    def held(message: Message) -> Message:
        if isinstance(message, AssistantMessage) or not message.images:
            return message
        images = tuple(_held(image, found) for image in message.images)
        return msgspec.structs.replace(message, images=images)

    return msgspec.structs.replace(request, messages=tuple(map(held, request.messages)))


def _held(image: Image, found: dict[str, Image | str]) -> Image:
    got = found.get(image.url)
    return got if isinstance(got, Image) else image
