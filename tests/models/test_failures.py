"""What is made of error bodies that no provider should send."""

from __future__ import annotations

import pytest

from counting import assert_linear
from retinue.models.failures import LONGEST_JSON, LONGEST_MESSAGE, LOOKED_AT, answered
from retinue.models.keys import KeyPool

SECRET = "0f9e8d7c6b5a49382716050a1b2c3d4e"


def told(body: bytes, status: int = 502) -> str:
    return str(answered(status, {}, body, keys=KeyPool((SECRET,), provider="openai"), key=None))


class Page(bytes):
    """One of which only a part may be looked at. A part of it is plain bytes."""

    def decode(self, *_: object, **__: object) -> str:
        raise AssertionError("all of it is looked at")


@pytest.mark.parametrize("piece", [b"<", b"<a ", b"<>", b"> <"])
def test_only_the_beginning_of_a_huge_error_page_is_looked_at(piece: bytes) -> None:
    page = Page(piece * (20_000_000 // len(piece)))
    assert len(told(page)) <= LONGEST_MESSAGE
    assert_linear(lambda size: told(page[:size]), LOOKED_AT)


def test_the_page_of_a_gateway_is_its_text() -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>try later</h1></body></html>"
    assert told(page) == "openai answered 502: 502 Bad Gateway try later"


@pytest.mark.parametrize("before", [*range(LONGEST_MESSAGE - 60, LONGEST_MESSAGE + 1, 6)])
def test_no_half_of_a_key_is_left_where_a_message_is_cut(before: int) -> None:
    assert SECRET[:4] not in told(b"x" * (before - 1) + b" " + SECRET.encode() + b" is no key of ours")


@pytest.mark.parametrize("cut", range(LOOKED_AT - 40, LOOKED_AT + 4, 4))
def test_no_half_of_a_key_is_left_where_the_reading_ends(cut: int) -> None:
    body = b"no" + b" " * (cut - 2) + SECRET.encode() + b" and so on" * 10
    assert SECRET[:4] not in told(body)


def test_a_json_error_too_long_to_decode_still_says_how_it_begins() -> None:
    body = b'{"error": {"message": "no such thing", "input": "' + b"x " * LONGEST_JSON + b'"}}'
    error = answered(400, {}, body, keys=KeyPool((), provider="openai"), key=None)
    assert error.kind == "invalid"
    assert "no such thing" in str(error)
