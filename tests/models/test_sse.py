"""The reader of server-sent events gives the same events however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.errors import ModelError
from retinue.models import sse
from retinue.models.sse import SseParser

PAYLOADS = st.lists(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), min_size=1).map(str.encode),
    max_size=6,
)
NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])


def read(whole: bytes, cuts: list[int]) -> list[bytes]:
    stream = SseParser()
    found: list[bytes] = []
    at = 0
    for cut in sorted({c % (len(whole) + 1) for c in cuts}):
        found += stream.feed(whole[at:cut]) if cut > at else []
        at = cut
    if at < len(whole):
        found += stream.feed(whole[at:])
    return found + stream.finish()


@given(PAYLOADS, NEWLINES, st.lists(st.integers(0, 10_000)), st.booleans(), st.booleans(), st.booleans())
def test_any_cut_gives_the_same_events(
    payloads: list[bytes], newline: bytes, cuts: list[int], named: bool, noise: bool, bom: bool
) -> None:
    whole = b"\xef\xbb\xbf" if bom else b""
    for payload in payloads:
        if noise:
            whole += b": a comment" + newline + newline
        if named:
            whole += b"event: something" + newline + b"id: 7" + newline
        whole += b"data: " + payload + newline + newline
    assert read(whole, cuts) == payloads
    assert read(whole, list(range(len(whole)))) == payloads


@given(st.lists(PAYLOADS.filter(bool), min_size=1, max_size=4), st.lists(st.integers(0, 10_000)))
def test_data_lines_of_one_event_are_joined(events: list[list[bytes]], cuts: list[int]) -> None:
    whole = b"".join(b"".join(b"data:" + b" " + line + b"\n" for line in lines) + b"\n" for lines in events)
    assert read(whole, cuts) == [b"\n".join(lines) for lines in events]


def test_a_last_event_without_its_blank_line_still_counts() -> None:
    stream = SseParser()
    assert stream.feed(b'data: {"a": 1}\n') == []
    assert stream.finish() == [b'{"a": 1}']


def test_the_space_after_the_colon_is_optional() -> None:
    assert SseParser().feed(b"data:[DONE]\n\n") == [b"[DONE]"]


def test_other_fields_are_no_events() -> None:
    stream = SseParser()
    assert stream.feed(b"retry: 3000\n\n:\n\nevent: ping\n\n") == []
    assert stream.finish() == []


def test_an_event_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_BYTES", 1000)
    stream = SseParser()
    stream.feed(b"data: " + b"x" * 900)
    with pytest.raises(ModelError, match="without ending an event"):
        stream.feed(b"x" * 200)
