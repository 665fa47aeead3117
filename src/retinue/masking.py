"""Takes passwords out of addresses before anybody is shown them: settings, errors, the server's answers.

Called by whoever shows a value that a person set. It hides too much rather than too little, and it is no
guard for keys of providers: those are never in an address (see `models.keys`).
"""

from __future__ import annotations

import re
from typing import Any, cast

STARS = "***"
# All up to the last @ before the path; or, where a password holds a slash itself, up to the last @ at all.
# A port is no password. It is looked for in words up to their last @: so a text is gone through once, however
# many addresses are in it and however long a password is.
_LOGIN = re.compile(r"(?<=://)(?:[^/?#@\s:]*:(?!\d{1,5}(?:[/?#\s]|$))\S*|[^/?#\s]*)@")
_WORD = re.compile(r"\S++")
_NAMED = re.compile(
    r"((?:\b(?:password|passwd|pwd|sslpassword)|[?&;](?:[\w.-]*(?:secret|token|key|auth|sig|signature|pass)))=)"
    r"('[^']*'|[^\s&;#'\"]+)",
    re.IGNORECASE,
)
_LONGEST_NAME = 19


def masked(value: Any) -> Any:
    """The same value, however deep, with `***` for each password in it."""
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, dict):
        return {key: masked(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [masked(one) for one in cast("list[Any]", value)]
    return value


def masked_text(text: str) -> str:
    return _NAMED.sub(rf"\1{STARS}", _WORD.sub(_without_logins, text) if "@" in text else text)


def _without_logins(word: re.Match[str]) -> str:
    end = word[0].rfind("@") + 1
    return _LOGIN.sub(_without_password, word[0][:end]) + word[0][end:]


def _without_password(login: re.Match[str]) -> str:
    """A short name before a password may stay: it says whose address it is. One alone may be a token."""
    name, colon, password = login[0][:-1].partition(":")
    if colon and password and 0 < len(name) <= _LONGEST_NAME:
        return f"{name}:{STARS}@"
    return f"{STARS}@"


def without_login(address: str) -> str:
    """An address that can be cited: without the user name and password it was asked with."""
    return re.sub(r"(?<=://)[^/?#\s]*@", "", address, count=1)


def has_login(address: str) -> bool:
    """Whether an address has a user name or a password in front of its host."""
    return any(_LOGIN.search(word[0][: word[0].rfind("@") + 1]) for word in _WORD.finditer(address))


def is_masked(value: Any) -> bool:
    """Whether something in a value was taken out here: it must not be written back."""
    return any(mark in str(value) for mark in (f"{STARS}@", f"={STARS}"))
