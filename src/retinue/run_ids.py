"""The ids of runs: of a root by its time, of a child by its parent and the call that started it."""

from __future__ import annotations

import hashlib
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def _base32(number: int, length: int) -> str:
    digits: list[str] = []
    for _ in range(length):
        number, rest = divmod(number, 32)
        digits.append(_ALPHABET[rest])
    return "".join(reversed(digits))


def new_id() -> str:
    """A root's id: sorts by time, cannot be guessed."""
    return "r" + _base32(int(time.time() * 1000), 9) + _base32(secrets.randbits(40), 8)


def child_id(parent_id: str, call_id: str, key: str = "") -> str:
    """A child's id follows from its parent's call, so a resumed parent finds the child it started.

    `key` tells the children of one call apart.
    """
    digest = hashlib.sha256(f"{parent_id}\0{call_id}\0{key}".encode()).digest()
    return "c" + _base32(int.from_bytes(digest[:11], "big"), 17)


def batch_run_id(scope: str, name: str, key: str, prompt: str, nth: int) -> str:
    """The id of one run of a batch follows from what it is to do, so a second start finds the first.

    `nth` tells equal inputs of one batch apart.
    """
    digest = hashlib.sha256("\0".join((scope, name, key, prompt, str(nth))).encode()).digest()
    return "m" + _base32(int.from_bytes(digest[:11], "big"), 17)
