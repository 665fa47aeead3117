"""Wolfram|Alpha: short and full answers, what it did not understand, and keys it does not like."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from retinue.tools.knowledge.causes import SourceError

from .wiring import Reply, Wire, World

Make = Callable[..., World]
SHORT, FULL = "/wolfram/v1/result", "/wolfram_llm/api/v1/llm-api"
KEY = {"WOLFRAM_APP_ID": "TEST-APPID99"}


def text(body: str, status: int = 200) -> Reply:
    return Reply(body, status=status, type="text/plain;charset=utf-8")


async def test_a_short_answer_is_text(world: Make, wire: Wire) -> None:
    wire.on(SHORT, text("about 384400 kilometers"))
    result = await world(environ=KEY).ask("wolfram_query", query="distance Earth & Moon?")
    assert wire.seen[0].query["appid"] == "TEST-APPID99"
    assert wire.seen[0].query["i"] == "distance Earth & Moon?"
    assert wire.seen[0].query["units"] == "metric"
    assert "about 384400 kilometers" in result.text
    assert result.sources[0].url == "https://www.wolframalpha.com/input?i=distance+Earth+%26+Moon%3F"
    assert "TEST-APPID99" not in repr(result)


async def test_a_full_answer_is_asked_for_with_a_bearer_key(world: Make, wire: Wire) -> None:
    wire.on(FULL, text('Query:\n"2+2"\n\nResult:\n4\n\nWolfram|Alpha website result for "2+2":\nhttps://x'))
    result = await world(environ=KEY).ask("wolfram_query", query="2+2", mode="full")
    assert wire.seen[0].headers["authorization"] == "Bearer TEST-APPID99"
    assert wire.seen[0].query["input"] == "2+2"
    assert int(wire.seen[0].query["maxchars"]) > 1000
    assert "appid" not in wire.seen[0].query
    assert "Result:\n4" in result.text


async def test_without_a_key_nothing_is_sent_and_the_variable_is_named(world: Make, wire: Wire) -> None:
    one = world()
    for mode in ("short", "full"):
        with pytest.raises(SourceError, match=r"set WOLFRAM_APP_ID in the environment \(free at") as caught:
            await one.ask("wolfram_query", query="2+2", mode=mode)
        assert caught.value.cause == "needs_key"
    assert wire.seen == []
    assert "Not usable now: WOLFRAM_APP_ID is not set" in one.tools["wolfram_query"].description
    assert "Not usable" not in world(environ=KEY).tools["wolfram_query"].description


async def test_no_short_answer_is_a_501_that_offers_the_full_one(world: Make, wire: Wire) -> None:
    wire.on(SHORT, text("No short answer available", 501))
    with pytest.raises(SourceError, match="ask again with mode='full'") as caught:
        await world(environ=KEY).ask("wolfram_query", query="life")
    assert caught.value.cause == "no_result"
    assert len(wire.seen) == 1  # not taken for a broken server


async def test_what_it_did_not_understand_comes_with_its_alternatives(world: Make, wire: Wire) -> None:
    said = "Wolfram|Alpha could not understand: flurb.\nThings to try instead:\nblurb"
    wire.on(FULL, text(said, 501))
    with pytest.raises(SourceError, match=r"did not understand 'flurb'[\s\S]*Things to try instead:\nblurb"):
        await world(environ=KEY).ask("wolfram_query", query="flurb", mode="full")
    wire.on(SHORT, text("Wolfram|Alpha did not understand your input", 501))
    with pytest.raises(SourceError, match=r"(?s)did not understand 'flurb'.*Wolfram"):
        await world(environ=KEY).ask("wolfram_query", query="flurb")


@pytest.mark.parametrize(
    "reply",
    [text("Error 1: Invalid appid", 200), text("Error 1: Invalid appid TEST-APPID99", 403), text("", 403)],
)
@pytest.mark.parametrize(("path", "mode"), [(SHORT, "short"), (FULL, "full")])
async def test_a_bad_key_is_known_by_status_or_body(
    world: Make, wire: Wire, reply: Reply, path: str, mode: str
) -> None:
    wire.on(path, reply)
    with pytest.raises(SourceError, match="rejected the key in WOLFRAM_APP_ID") as caught:
        await world(environ=KEY).ask("wolfram_query", query="2+2", mode=mode)
    assert "TEST-APPID99" not in str(caught.value)


async def test_a_missing_input_is_a_bad_query(world: Make, wire: Wire) -> None:
    wire.on(SHORT, text("Error 2: No input provided", 400))
    with pytest.raises(SourceError, match=r"(?s)rejected the query.*Error 2: No input provided"):
        await world(environ=KEY).ask("wolfram_query", query="?")
