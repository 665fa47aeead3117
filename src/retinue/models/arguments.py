"""Arguments of calls as providers take them back: JSON of an object, whatever a model wrote.

Used by wires and by `histories`. A conversation that a provider refuses could never go on.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

_object = msgspec.json.Decoder(dict[str, Raw])


def object_text(arguments: str) -> str:
    """The arguments as they are if they are an object, else wrapped in one."""
    try:
        _object.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return wrapped(arguments) if arguments.strip() else "{}"
    return arguments


def wrapped(arguments: str) -> str:
    """What is no object, as the one field of one."""
    said = arguments.encode("utf-8", "replace").decode()
    return msgspec.json.encode({"malformed": said}).decode()


def raw_object(arguments: str) -> Raw:
    """The same for wires that send arguments as an object and not as text."""
    return Raw(object_text(arguments).encode())
