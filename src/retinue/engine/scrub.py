"""Secrets blanked out of texts and events: for what is exported, recorded as a test, or sent to a collector.

Pure. What looks like a key of a known kind is one, and so is the value of a variable whose name says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from retinue.events import (
    AnyEvent,
)

_SECRET = re.compile(
    r"""(?x)
    \b(?: sk-[\w-]{16,} | sk_live_\w{16,} | gh[pousr]_\w{20,} | github_pat_\w{20,} | xox[abprs]-[\w-]{10,}
        | AKIA[0-9A-Z]{16} | AIza[\w-]{30,} | ya29\.[\w-]{20,} | hf_\w{20,}
        | eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,} )
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[^-]*-----END[ ][A-Z ]*PRIVATE[ ]KEY-----
    | (?i:\bbearer\s+)[\w.~+/-]{16,}=*
    """
)


SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


_ASSIGNED = re.compile(
    rf"""(\b[A-Z0-9_]*(?:{"|".join(SECRET_NAMES)})\s?[=:]\s?\\?["']?)(?!\d+\b)[^\s"'\\$<>(){{}}\[\],;&|…]{{6,}}"""
)
"""A variable whose name says that it is secret, given a value: `MY_TOKEN=…`."""


def secrets_of(environ: Iterable[tuple[str, str]]) -> list[str]:
    """Values of variables whose names say that they are secret."""
    return [
        value
        for name, value in environ
        if len(value) >= 6 and any(part in name.upper() for part in SECRET_NAMES)
    ]


def scrubber(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """Blanks out in a text everything that looks like a secret, or is one of `secrets`."""
    own = [re.escape(json.dumps(secret)[1:-1]) for secret in secrets if len(secret) >= 6]
    known = re.compile("|".join(own)) if own else None

    def scrubbed(text: str) -> str:
        text = _ASSIGNED.sub(r"\1[secret]", _SECRET.sub("[secret]", text))
        return known.sub("[secret]", text) if known else text

    return scrubbed


def scrub(events: Iterable[AnyEvent], secrets: Iterable[str] = ()) -> list[AnyEvent]:
    """The same events with everything that looks like a secret, or is one of `secrets`, blanked out."""
    scrubbed = scrubber(secrets)

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return scrubbed(value)
        if isinstance(value, dict):
            return {k: clean(v) for k, v in cast("dict[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [clean(v) for v in cast("list[Any]", value)]
        return value

    return [msgspec.convert(clean(msgspec.to_builtins(event)), type(event)) for event in events]
