"""Server-sent events: the same events however the bytes are cut, and never more kept than the limit."""

from __future__ import annotations

import re
from itertools import pairwise

from fuzz.choices import Choices
from retinue.errors import ModelError
from retinue.models import sse
from retinue.models.sse import SseParser

SEEDS = (
    b"\x03\x05\x09\x02data: {}\n\ndata: x\r\n\r\ndata:y\r\r",
    b"\x01\x02\xef\xbb\xbfevent: a\ndata: 1\ndata: 2\n\n: note\n\ndata: [DONE]",
    b"\x00data: half\r",
)
FEW = 24


def check(data: bytes) -> None:
    choices = Choices(data)
    cuts = [choices.number(256) for _ in range(choices.number(6))]
    whole = choices.rest()
    expected = by_the_book(whole)
    assert read(whole, [len(whole)]) == expected
    assert read(whole, list(range(len(whole)))) == expected
    assert read(whole, cuts) == expected
    keeps_to_its_limit(whole, cuts)


def pieces(whole: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(whole)), len(whole)]
    return [whole[a:b] for a, b in pairwise(places)]


def read(whole: bytes, cuts: list[int]) -> list[bytes]:
    stream = SseParser()
    found = [event for piece in pieces(whole, cuts) for event in stream.feed(piece)]
    return found + stream.finish()


def by_the_book(whole: bytes) -> list[bytes]:
    """One line at a time, as the standard has it; the last event counts without its blank line."""
    found: list[bytes] = []
    held: list[bytes] = []
    for line in [*re.split(rb"\r\n|\r|\n", whole.removeprefix(b"\xef\xbb\xbf")), b""]:
        if line.startswith(b"data:"):
            held.append(line[5:].removeprefix(b" "))
        elif not line and held:
            found.append(b"\n".join(held))
            held = []
    return found


def keeps_to_its_limit(whole: bytes, cuts: list[int]) -> None:
    """With a limit of a few bytes: what is kept between two pieces is within it, or it was refused."""
    usual, sse.MOST_BYTES = sse.MOST_BYTES, FEW
    stream = SseParser()
    try:
        for piece in pieces(whole, cuts):
            stream.feed(piece)
            kept = sum(len(getattr(stream, name)) for name in stream.__slots__ if name != "_fresh")
            assert kept <= FEW, kept
    except ModelError as error:
        assert error.kind == "protocol"
    finally:
        sse.MOST_BYTES = usual
