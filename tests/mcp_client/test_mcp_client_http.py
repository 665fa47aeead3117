"""A server of the current revision, made with the official package, reached over streamable HTTP."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import pytest
import uvicorn
from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from mcp_world import World, questions
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested
from retinue.testing import call


class Colour(BaseModel):
    colour: str


def which() -> Elicit[Colour]:
    return Elicit("Which colour?", Colour)


def made() -> MCPServer[Any]:
    server = MCPServer("shop", instructions="A shop.")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def price(thing: str) -> dict[str, int]:
        """What a thing costs."""
        return {"price": len(thing)}

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def paint(thing: str, colour: Annotated[Colour, Resolve(which)]) -> str:
        """Paints a thing in a colour that the person says."""
        return f"{thing} is {colour.colour} now"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def much() -> str:
        """Too much."""
        return "x" * 3_000_000

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def deep() -> dict[str, Any]:
        """What is nested more deeply than a reader of JSON takes it."""
        found: dict[str, Any] = {}
        for _ in range(230):
            found = {"a": found}
        return found

    return server


@contextlib.asynccontextmanager
async def served(heard: list[dict[str, str]], *, sse: bool = False) -> AsyncGenerator[str]:
    app = made().sse_app() if sse else made().streamable_http_app()

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            heard.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, receive, send)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(listening, log_level="error", lifespan="on"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/{'sse' if sse else 'mcp'}"
        finally:
            server.should_exit = True
            await task


async def test_a_server_of_the_current_revision_is_used_over_http(world: World, monkeypatch: Any) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "very-secret-token")
    heard: list[dict[str, str]] = []
    asked: list[ApprovalRequested] = []
    answer = Answer(decision="approve", arguments='{"colour": "green"}')
    async with served(heard) as url:
        world.add("shop", {"type": "http", "url": url, "headers": {"Authorization": "Bearer ${SHOP_TOKEN}"}})
        found = await world.ask(
            call("mcp__shop__price", thing="lamp"),
            call("mcp__shop__paint", thing="lamp"),
            call("mcp__shop__much"),
            approve=lambda question: answer,
            tell=questions(asked),
            settings={"mcp.message_mb": 1, "approvals.allow": ["mcp__shop__*"]},
        )
        async with world.open() as retinue:
            listing = retinue.services.mcp.listings["shop"]
    assert listing.protocol == "2026-07-28"
    assert '"price": 4' in found[0].text or '"price":4' in found[0].text
    assert "lamp is green now" in found[1].text
    assert [each.form is not None for each in asked] == [True]
    assert found[2].is_error
    assert all(each["authorization"] == "Bearer very-secret-token" for each in heard)


async def test_an_address_that_nobody_answers_at_is_a_clear_error(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        world.add("gone", {"url": url})
        async with world.open(settings={"mcp.start_timeout": 10}) as retinue:
            app = retinue.services.mcp
            app.trust.add(app.servers["gone"], None)
            await retinue.run("general", "go")
            assert "could not be started" in app.status()[0].problem


async def test_an_older_server_is_used_over_sse(world: World) -> None:
    async with served([], sse=True) as url:
        world.add("shop", {"type": "sse", "url": url})
        found = await world.ask(call("mcp__shop__price", thing="lamp"))
    assert '"price": 4' in found[0].text or '"price":4' in found[0].text


@pytest.mark.parametrize("sse", [False, True])
async def test_an_answer_that_is_nested_too_deeply_is_told_at_once(world: World, sse: bool) -> None:
    async with served([], sse=sse) as url:
        world.add("shop", {"type": "sse" if sse else "http", "url": url})
        found = await world.ask(
            call("mcp__shop__deep"),
            call("mcp__shop__price", thing="lamp"),
            settings={"limits.tool_timeout": 5, "approvals.allow": ["mcp__shop__*"]},
        )
    assert found[0].is_error
    assert "cannot be read" in found[0].text
    assert '"price": 4' in found[1].text or '"price":4' in found[1].text
