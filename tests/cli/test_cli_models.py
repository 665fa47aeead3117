"""`retinue models` lists what a provider has, in each wire format, with prices where anybody knows them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from world import Cli

from retinue.testing import FakeProvider

KEY = "k-12345678"


class Lists:
    """The lists of Anthropic and Gemini, in pages, as these two serve them."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []

    async def anthropic(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if request.headers.get("x-api-key") != KEY or "anthropic-version" not in request.headers:
            return web.json_response({"error": {}}, status=401)
        if request.query.get("after_id") != "claude-a":
            first = {
                "type": "model",
                "id": "claude-a",
                "display_name": "Claude A",
                "max_input_tokens": 200_000,
            }
            return web.json_response({"data": [first], "has_more": True, "last_id": "claude-a"})
        return web.json_response({"data": [{"id": "claude-b"}], "has_more": False, "last_id": "claude-b"})

    async def gemini(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if request.headers.get("x-goog-api-key") != KEY:
            return web.json_response({"error": {}}, status=403)
        if request.query.get("pageToken") != "next/1":
            one = {"name": "models/gemini-a", "displayName": "Gemini A", "inputTokenLimit": 1000}
            return web.json_response({"models": [one], "nextPageToken": "next/1"})
        return web.json_response({"models": [{"name": "models/gemini-b"}]})


@pytest.fixture
async def lists() -> AsyncIterator[Lists]:
    found = Lists()
    app = web.Application()
    app.router.add_get("/v1/models", found.anthropic)
    app.router.add_get("/v1beta/models", found.gemini)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


async def test_anthropic_is_asked_for_every_page(cli: Cli, lists: Lists) -> None:
    ended = await cli("models", "anthropic", "--json", ANTHROPIC_BASE_URL=lists.url, ANTHROPIC_API_KEY=KEY)
    assert [line["name"] for line in ended.lines] == ["anthropic:claude-a", "anthropic:claude-b"]
    assert ended.lines[0]["title"] == "Claude A"
    assert ended.lines[0]["context"] == 200_000
    assert len(lists.asked) == 2


async def test_gemini_is_asked_for_every_page(cli: Cli, lists: Lists) -> None:
    ended = await cli("models", "google", "--json", GEMINI_BASE_URL=lists.url, GEMINI_API_KEY=KEY)
    assert [line["name"] for line in ended.lines] == ["google:gemini-a", "google:gemini-b"]


async def test_a_key_that_is_refused_is_named_by_its_variable_and_not_shown(cli: Cli, lists: Lists) -> None:
    ended = await cli("models", "anthropic", ANTHROPIC_BASE_URL=lists.url, ANTHROPIC_API_KEY="k-wrong-wrong")
    assert ended.code == 5
    assert "ANTHROPIC_API_KEY" in ended.err
    assert "k-wrong" not in ended.err


async def test_prices_are_those_of_the_settings_or_free_or_unknown(cli: Cli) -> None:
    config = cli.home / "config" / "retinue" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[prices."openai:mine"]\ninput = 1.5\noutput = 6\n')
    async with FakeProvider(models=("mine", "other")) as provider:
        ended = await cli("models", "openai", "--json", OPENAI_BASE_URL=provider.openai_url)
        local = await cli("models", "ollama", OLLAMA_HOST=f"127.0.0.1:{provider.port}")
        found = await cli("models", provider.openai_url, "--find", "OTH", "--json")
    assert [(line["name"], line["input"], line["output"]) for line in ended.lines] == [
        ("openai:mine", 1.5, 6.0),
        ("openai:other", None, None),
    ]
    assert "ollama:mine" in local.out
    assert "free" in local.out
    assert [line["name"] for line in found.lines] == [f"{provider.openai_url}#other"]


async def test_without_a_provider_it_is_that_of_the_model_in_use(cli: Cli) -> None:
    async with FakeProvider() as provider:
        cli.use(provider)
        assert "openai:fake-model" in (await cli("models")).out


async def test_what_serves_no_list_is_said_with_what_to_do(cli: Cli, lists: Lists) -> None:
    ended = await cli("models", f"{lists.url}/nowhere")
    assert ended.code == 5
    assert "404" in ended.err
    assert f"{lists.url}/nowhere/v1" in ended.err
    ended = await cli("models", "opnai")
    assert ended.code == 2
    assert "did you mean openai?" in ended.err
