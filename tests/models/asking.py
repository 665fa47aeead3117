"""Shared by the tests of models: how to reach the fake provider in each wire format, and how to ask."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec

from retinue.models.base import Model
from retinue.models.connect import connect, wire_of
from retinue.models.http import Client
from retinue.models.prices import Cost
from retinue.models.providers import Provider
from retinue.models.retry import RetryPolicy
from retinue.models.wire import HttpModel
from retinue.settings import ProviderSettings, Settings
from retinue.testing import FakeProvider
from retinue.types import ModelEvent, ModelRequest, Reply, TextDelta, ToolSpec, UserMessage

WIRES = ("openai", "responses", "anthropic", "gemini")
MODEL_OF = {
    "openai": "fake-model",
    "responses": "gpt-6.1-sol",
    "anthropic": "claude-sonnet-5-5",
    "gemini": "gemini-3.8-flash",
}
READ = ToolSpec(
    name="read",
    description="Read a file.",
    schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def url_of(wire: str, server: FakeProvider) -> str:
    return {"anthropic": server.anthropic_url, "gemini": server.gemini_url}.get(wire, server.openai_url)


def one_shot(
    wire: str, server: FakeProvider, client: Client, *, keys: tuple[str, ...] = ("key-one",), model: str = ""
) -> HttpModel:
    """A model without retries."""
    provider = Provider(name=wire, wire=wire, base_url=url_of(wire, server), own_address=False)
    return HttpModel(
        name=f"{wire}:{model or MODEL_OF[wire]}",
        wire=wire_of(provider, model or MODEL_OF[wire]),
        client=client,
        keys=client.keys(wire, keys),
        cost=Cost(),
    )


def connected(
    wire: str, server: FakeProvider, client: Client, *, settings: Settings | None = None, key: str = "key-one"
) -> Model:
    """A model as users get it, with retries that wait next to nothing."""
    settings = settings or Settings()
    if wire == "responses":
        own = ProviderSettings(wire="responses", base_url=server.openai_url, key_env=("OPENAI_API_KEY",))
        settings = msgspec.structs.replace(settings, providers={"responses": own})
    return connect(
        f"{wire}:{MODEL_OF[wire]}",
        settings=settings,
        client=client,
        environ=server.environ(key),
        policy=RetryPolicy(first_wait=0.001),
    )


def asked(text: str = "What is it about?", **more: Any) -> ModelRequest:
    return ModelRequest(system="You read.", messages=(UserMessage(text=text),), **more)


async def listen(model: Model, request: ModelRequest) -> list[ModelEvent]:
    async with aclosing(model.stream(request)) as stream:
        return [event async for event in stream]


async def ask(model: Model, request: ModelRequest) -> Reply:
    last = (await listen(model, request))[-1]
    assert isinstance(last, Reply)
    return last


def shown(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))
