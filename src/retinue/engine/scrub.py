"""Secrets blanked out of texts and events: for what is exported, recorded as a test, or sent to a collector.

What looks like a key of a known kind is one, and so is the value of a variable whose name says so. Pure, but
for `known_secrets`, which asks the keyring.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from retinue.errors import ConfigError
from retinue.events import AnyEvent

log = logging.getLogger("retinue")

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


_NAME = rf"""(?: [A-Z0-9_]*(?:{"|".join(SECRET_NAMES)})
         | (?i: \w*(?: password | passwd | passphrase | secret | credentials?
                     | (?:api|access|private|secret|signing|encryption)[_-]?key
                     | (?:auth|access|refresh|session)[_-]?token | _token))
         | (?<=["'])token(?=\\?["']) )"""
"""What a secret is called: `MY_TOKEN`, `api_key`, `sessionToken`; `token` alone only as a field."""

_FIELD = re.compile(rf"(?x) [\"'] (?:[\w.-]*[.-])? {_NAME} [\"']")

_ASSIGNED = re.compile(
    rf"""(?x)
    (\b{_NAME}
       \\?["']?\s?[=:]\s?)
    (?: (\\") (?!\$[({{\w]|\[secret\]) (?:\\\\\\"|[^"\\\n]|\\(?!")){{6,}}
      | (")   (?!\$[({{\w]|\[secret\]) (?:[^"\\\n]|\\.){{6,}}
      | (')   (?!\[secret\]) [^'\n]{{6,}}
      | (?!\d+(?:[\s"'\\,;)\]}}&|]|$) | \$[({{] | \$\w+(?:[\s"'\\]|$) | [<(\[{{…])
        [^\s"'\\]{{5,}}[^\s"'\\)\]}},;&|>] )
    """
)
"""A variable or field whose name says that it is secret, given a value: `MY_TOKEN=…`, `"password": "…"`.

A text is gone through once: what begins like a value and is none is short, or holds no other name.
"""

_IN_ADDRESS = re.compile(r"""(://[^\s/?#@:"'\\<>{}]*:)[^\s/"'\\<>]+(?=@)""")
"""`scheme://user:password@host`"""

_NETRC = re.compile(r"\b((?:machine|login|account)\s+\S+\s+password\s+)\S+")


def known_secrets(environ: Mapping[str, str], keyring: Iterable[str]) -> list[str]:
    """The secrets of this person that are known: values of variables whose names say so, and the keys of
    these providers in the keyring. May wait for the keyring: not for an event loop."""
    found = [
        value
        for name, value in environ.items()
        if len(value) >= 6 and any(part in name.upper() for part in SECRET_NAMES)
    ]
    if names := list(keyring):
        from retinue.models.kept_keys import all_kept

        try:
            found += all_kept(names)
        except ConfigError as error:
            log.warning("keys of the keyring are not known here, and not blanked out: %s", error)
    return found


def scrubber(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """Blanks out in a text everything that looks like a secret, or is one of `secrets`."""
    # As it is, and as it stands in JSON: arguments of calls are texts of that. The longest first.
    own = {form for secret in secrets if len(secret) >= 6 for form in _forms(secret)}
    known = re.compile("|".join(map(re.escape, sorted(own, key=len, reverse=True)))) if own else None

    def scrubbed(text: str) -> str:
        text = _SECRET.sub("[secret]", known.sub("[secret]", text) if known else text)
        text = _NETRC.sub(r"\1[secret]", _IN_ADDRESS.sub(r"\1[secret]", text))
        return _ASSIGNED.sub(_blanked, text)

    return scrubbed


def _forms(secret: str) -> tuple[str, ...]:
    return secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]


def _blanked(assigned: re.Match[str]) -> str:
    """The name and the quote stay."""
    return "".join(filter(None, assigned.groups())) + "[secret]"


_VALUE = re.compile(r"(?=[^\d]*\d)(?=[^a-zA-Z]*[a-zA-Z])[\w+/=~-]{8,}")
"""A value that is a secret wherever it stands again: no words, and no code that makes one."""


def named_in(events: Sequence[AnyEvent]) -> set[str]:
    """The values that these events somewhere give to a name which says that they are secret."""
    found: set[str] = set()
    for text in _texts([msgspec.to_builtins(event) for event in events]):
        for match in _ASSIGNED.finditer(text):
            value = match[0].removeprefix("".join(filter(None, match.groups())))
            if _VALUE.fullmatch(value):
                found.add(value)
    # What an event is known by is no secret, and has to stay.
    return found - {name for event in events for name in (event.run_id, *_ids(event))}


def _ids(event: AnyEvent) -> Iterable[str]:
    names = ("call_id", "child_id", "approval_id", "message_id", "key")
    return (value for name in names if isinstance(value := getattr(event, name, None), str))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, Any]", value).values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            yield from _texts(each)


def scrub(events: Iterable[AnyEvent], secrets: Iterable[str] = ()) -> list[AnyEvent]:
    """The same events with everything that looks like a secret, or is one of `secrets`, blanked out; what is
    named a secret in one place is one in every other."""
    events = list(events)
    scrubbed = scrubber({*secrets, *named_in(events)})

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return scrubbed(value)
        if isinstance(value, dict):
            return {k: field(k, v) for k, v in cast("dict[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [clean(v) for v in cast("list[Any]", value)]
        return value

    def field(name: str, value: Any) -> Any:
        """By its name as well, as where the object is written in a text: a replay compares the two."""
        if isinstance(value, str) and _FIELD.fullmatch(f'"{name}"'):
            written = _ASSIGNED.search(f'"{name}": {json.dumps(value, ensure_ascii=False)}')
            if written is not None and written.start() <= len(name):
                return "[secret]"
        return clean(value)

    return [msgspec.convert(clean(msgspec.to_builtins(event)), type(event)) for event in events]
