"""What a person typed as the prompt of an agent: words, standard input, attached files, further inputs.

Called by `ask` and `run`. Reads the files that are named and nothing else.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from retinue.errors import ConfigError
from retinue.types import AgentSpec, Image

MOST_TEXT = 400_000
MOST_IMAGE = 20_000_000
PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


@dataclass(frozen=True, kw_only=True)
class Attachments:
    """Attached files: texts to be put after the prompt, and pictures."""

    text: str = ""
    images: tuple[Image, ...] = ()


def read_words(words: Sequence[str]) -> str:
    """The prompt. A word '-' stands for standard input; so does no word at all when something is piped in."""
    given = list(words)
    if not given and not sys.stdin.isatty():
        given = ["-"]
    if "-" not in given:
        return " ".join(given)
    piped = sys.stdin.buffer.read(MOST_TEXT * 4).decode("utf-8", "replace")
    if len(piped) > MOST_TEXT:
        raise ConfigError(
            f"standard input has more than {MOST_TEXT:,} characters",
            fix="give the agent the path of a file to read instead",
        )
    said = " ".join(word for word in given if word != "-")
    return f"{said}\n\n{piped}" if said else piped


def read_attachments(paths: Sequence[Path]) -> Attachments:
    texts: list[str] = []
    images: list[Image] = []
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot attach {path}: {error.strerror}") from None
        media_type = _picture(data)
        if media_type is not None:
            images.append(_image(path, data, media_type))
        else:
            texts.append(f"Attached file {path.name}:\n\n{_text(path, data)}")
    return Attachments(text="\n\n".join(texts), images=tuple(images))


def _picture(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in PICTURES.items() if data.startswith(start)), None)


def _image(path: Path, data: bytes, media_type: str) -> Image:
    if len(data) > MOST_IMAGE:
        raise ConfigError(f"{path} has {len(data):,} bytes; a picture may have {MOST_IMAGE:,}")
    return Image(media_type=media_type, data=base64.b64encode(data).decode("ascii"))


def _text(path: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigError(
            f"cannot attach {path}: neither a picture (PNG, JPEG, GIF, WebP) nor UTF-8 text",
            fix="put it into the project and name its path in the prompt",
        )
    if len(text) > MOST_TEXT:
        raise ConfigError(
            f"{path} has {len(text):,} characters; an attached text may have {MOST_TEXT:,}",
            fix="name its path in the prompt, and the agent reads what it needs",
        )
    return text


def arguments(spec: AgentSpec, prompt: str, inputs: Sequence[str]) -> str | Mapping[str, Any]:
    """The prompt as it is, or with `--input`, the arguments of the agent's input schema."""
    if not inputs:
        return prompt
    from retinue.delegate import arguments_for

    given: dict[str, Any] = arguments_for(spec, prompt) if prompt.strip() else {}
    fields = cast("dict[str, Any]", (spec.input_schema or {}).get("properties", {}))
    for item in inputs:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--input {item!r} is not KEY=VALUE", fix="for example --input focus=security")
        given[name.strip()] = _value(text, fields.get(name.strip()))
    return given


def _value(text: str, field: Any) -> Any:
    """A text where the schema wants a text; else JSON where it is JSON."""
    if isinstance(field, dict) and cast("dict[str, Any]", field).get("type", "string") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
