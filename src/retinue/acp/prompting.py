"""What a person wrote in an editor: text, and the files and selections that they named with it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from acp import RequestError, schema

from retinue.attachments import Attachment
from retinue.types import Image

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)


def written(blocks: Sequence[Block]) -> tuple[str, list[Attachment]]:
    """The question, and what is attached to it. A file that is only named stays a name."""
    parts: list[str] = []
    attached: list[Attachment] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                parts.append(block.text)
            case schema.ResourceContentBlock():
                parts.append(_place(block.uri))
            case schema.EmbeddedResourceContentBlock():
                name = _place(block.resource.uri)
                if not isinstance(block.resource, schema.TextResourceContents):
                    raise _refused(f"{name} is not text")
                parts.append(name)
                attached.append(Attachment(name=name, kind="text", text=block.resource.text))
            case schema.ImageContentBlock():
                attached.append(_picture(block))
            case schema.AudioContentBlock():
                raise _refused("sound cannot be sent")
    text = "".join(parts).strip()
    if not text:
        raise _refused("the prompt is empty")
    return text, attached


def _picture(block: schema.ImageContentBlock) -> Attachment:
    try:
        image = Image.from_bytes(base64.b64decode(block.data, validate=True))
    except ValueError as error:
        raise _refused(f"a picture cannot be used: {error}") from None
    return Attachment(name=_place(block.uri) if block.uri else "picture", kind="image", image=image)


def _place(uri: str) -> str:
    """A file by its path, with the lines that were chosen; anything else by its address."""
    found = urlsplit(uri)
    if found.scheme != "file":
        return uri
    return unquote(found.path) + (f" ({found.fragment})" if found.fragment else "")


def _refused(why: str) -> RequestError:
    return RequestError.invalid_params({"details": why})
