"""Every fuzz target says no to a program that breaks its promise: each promise is broken here once."""

from __future__ import annotations

import os
from functools import lru_cache

import pytest

from fuzz import addresses, agent_files, events, markdown, paths, replies
from retinue.agents import document
from retinue.jail import Jail
from retinue.models import text_reading
from retinue.models.sse import SseParser
from retinue.web import guard


def path_seed(kind: int, *parts: str) -> bytes:
    return bytes([kind, len(parts), *(paths.PARTS.index(part) for part in parts), 0])


def test_a_jail_that_opens_what_lies_outside_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = path_seed(0, "..", "outside", "secret.txt")
    paths.check(seed)
    monkeypatch.setattr(Jail, "_open", lambda jail, path, flags: os.open(paths.INSIDE / path, flags))
    with pytest.raises(AssertionError, match="outside"):
        paths.check(seed)


def test_a_jail_that_writes_through_a_link_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = path_seed(6, "out-folder", "new")
    paths.check(seed)
    monkeypatch.setattr(Jail, "_descend", lambda jail, *_, **__: os.open(paths.OUTSIDE, os.O_RDONLY))
    try:
        with pytest.raises(AssertionError, match="outside"):
            paths.check(seed)
    finally:
        (paths.OUTSIDE / "new").unlink(missing_ok=True)


def test_a_stream_that_depends_on_the_cuts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = b"\x00data: 1\r\ndata: 2\r\n\r\n"
    events.check(seed)
    feed = SseParser.feed
    monkeypatch.setattr(SseParser, "feed", lambda stream, chunk: feed(stream, chunk.replace(b"\r", b"\n")))
    with pytest.raises(AssertionError):
        events.check(seed)


def test_a_stream_that_keeps_everything_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hoard(stream: SseParser, chunk: bytes) -> list[bytes]:
        stream._rest += chunk
        return []

    monkeypatch.setattr(SseParser, "feed", hoard)
    with pytest.raises(AssertionError):
        events.keeps_to_its_limit(b"data: x\n\n" * 9, [9, 18, 27])


def test_markdown_that_is_not_cleaned_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = b"<script>alert(1)</script>"
    markdown.check(seed)
    monkeypatch.setattr(markdown, "to_html", lru_cache(lambda text: text))
    for text in (seed, b"<p onclick=1>", b"<a href='java\tscript:1'>", b"<img src=x>", b"<!--x-->"):
        with pytest.raises(AssertionError):
            markdown.check(text)


def test_a_guard_that_lets_a_private_address_through_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses.check(b"http://10.0.0.1/")
    monkeypatch.setattr(guard, "closed", lambda address: None)
    with pytest.raises(AssertionError):
        addresses.check(b"http://10.0.0.1/")


def test_hidden_text_in_an_agent_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = "---\nname: a\ndescription: b\n---\nsee\u202ethis".encode()
    agent_files.check(seed)
    monkeypatch.setattr(document, "strip_hidden", lambda text: text)
    with pytest.raises(AssertionError):
        agent_files.check(seed)


def test_an_answer_shown_before_it_is_sure_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = b"\x02\x0c\x0e<answer>it is</answer> so"
    replies.check(seed)
    monkeypatch.setattr(text_reading.AnswerFeed, "add", lambda feed, delta: delta)
    with pytest.raises(AssertionError):
        replies.check(seed)
