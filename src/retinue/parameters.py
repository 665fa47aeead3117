"""What a program wrote for a parameter, held against what may stand there.

Called where the library is entered, before anything is done: Python would take `yes="no"` for a yes, and a
word that nobody knows for one that nothing fits. A wrong type is a `TypeError`, a wrong word a `ConfigError`;
both name the parameter, what was given and what to write. Changes nothing that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast, get_args

from retinue.errors import ConfigError

_MAPPING: Any = Mapping
_CALLABLE: Any = Callable
_KINDS: tuple[tuple[Any, str], ...] = (
    (bool, "True or False"),
    (bool | None, "True, False or None"),
    (str, "text"),
    (str | None, "text or None"),
    (int, "a whole number"),
    (int | None, "a whole number or None"),
    (_MAPPING, "a mapping of names"),
    (_MAPPING | None, "a mapping of names"),
    (_CALLABLE | None, "a function or None"),
)


def check(kind: Any, **given: object) -> None:
    """Raise for the first of these parameters that is not of this kind, one of `_KINDS`."""
    words = next(words for each, words in _KINDS if each == kind)
    for name, value in given.items():
        of_another = isinstance(value, bool) and kind in (int, int | None)
        if not isinstance(value, kind) or of_another:
            raise TypeError(f"{name} is {shown(value)}, not {words}")


def check_word(name: str, value: object, words: Any) -> None:
    """Raise for what is none of the words of a `Literal`."""
    known: tuple[str, ...] = get_args(words)
    if value in known:
        return
    near = get_close_matches(value.lower(), known, n=1) if isinstance(value, str) else []
    fix = f"did you mean {near[0]!r}? It is one of " if near else "one of "
    raise ConfigError(f"{name} is {shown(value)}", fix=fix + ", ".join(known))


def listed(what: str, given: object, each: str) -> tuple[Any, ...]:
    """What is given as a list of something. A text is none, though Python would take it apart."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{what} is text, {given!r}: give a list of {each}")
    if not isinstance(given, Iterable) or isinstance(given, type):
        kind = "a function" if type(given).__name__ == "function" else f"a {type(given).__name__}"
        raise TypeError(f"{what} is {kind}: give a list of {each}")
    return tuple(cast("Iterable[Any]", given))


def shown(value: object) -> str:
    """What was given, as it would be written if that is short; else what it is."""
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


_TRACE = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def sound_traceparent(given: str | None) -> str:
    """A `traceparent` as W3C writes it, or nothing: one that is not sound is to be ignored."""
    check(str | None, traceparent=given)
    found = (given or "").strip()
    return found[:55] if _TRACE.fullmatch(found[:200]) and not found.startswith("ff") else ""


METADATA_BYTES = 4096
_KEY = re.compile(r"[\w.-]{1,64}", re.ASCII)


def texts(given: Mapping[str, object]) -> dict[str, str]:
    """What a program says of a run, as texts. Raises for what is none, and for more than a little."""
    check(Mapping, metadata=given)
    found: dict[str, str] = {}
    for key, value in given.items():
        if not isinstance(cast("Any", key), str) or not _KEY.fullmatch(key):
            raise ValueError(f"metadata has the key {key!r}: letters, digits, '.', '_' and '-', at most 64")
        if not isinstance(value, str | int | float):
            raise TypeError(f"metadata has {key}={shown(value)}: give a text, a number, True or False")
        found[key] = str(value).lower() if isinstance(value, bool) else str(value)
    size = sum(len(key.encode()) + len(value.encode("utf-8", "replace")) for key, value in found.items())
    if size > METADATA_BYTES:
        raise ValueError(
            f"metadata has {size:,} bytes, of {METADATA_BYTES:,} at most: keep the rest elsewhere"
        )
    return found
