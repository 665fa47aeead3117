"""Models that could be used here: by keys in the environment or the keyring, and on servers of this machine.

For the first start of the chat, and `retinue setup`. Servers are looked for on loopback alone, at their usual
ports or where the settings and the environment say; nothing is asked of anybody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from retinue.errors import ConfigError, ModelError
from retinue.models.http import Client, HttpRefused, is_loopback
from retinue.models.keys import KeyPool, find_keys
from retinue.models.listing import listed_models
from retinue.models.providers import PROVIDERS, Provider, find, key_place
from retinue.settings import Settings

LOOK_SECONDS = 1.0
"""For a server of this machine to say what it has."""
MOST_OF_A_SERVER = 6
TITLES = {"ollama": "Ollama", "lmstudio": "LM Studio", "llamacpp": "llama.cpp", "vllm": "vLLM"}
"""The servers that are looked for."""


class FoundModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its full name, and why it can be used."""

    name: str
    why: str


async def found_models(settings: Settings, environ: Mapping[str, str]) -> list[FoundModel]:
    """By keys first, then what local servers have; each server is asked at the same time."""
    async with Client() as client:
        asked = [_of_server(name, settings, environ, client) for name in TITLES]
        served = await asyncio.gather(*asked)
    return [*_by_keys(settings, environ), *(model for found in served for model in found)]


def _by_keys(settings: Settings, environ: Mapping[str, str]) -> list[FoundModel]:
    found: list[FoundModel] = []
    for name in PROVIDERS:
        provider = _known(name, settings, environ)
        if provider is None or not provider.needs_key:
            continue
        place = key_place(provider, settings, environ)
        model = environ.get(f"{name.upper()}_MODEL", "").strip() or provider.model
        if place and model:
            found.append(FoundModel(name=f"{name}:{model}", why=place))
    return found


async def _of_server(
    name: str, settings: Settings, environ: Mapping[str, str], client: Client
) -> list[FoundModel]:
    provider = _known(name, settings, environ)
    parts = urlsplit("" if provider is None else provider.base_url)
    if provider is None or not is_loopback(parts.hostname or ""):
        return []
    keys = KeyPool(find_keys(environ, provider.key_env))
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            listed = await listed_models(provider, client=client, keys=keys, seconds=LOOK_SECONDS)
    except (HttpRefused, ModelError, TimeoutError):
        return []  # nobody there, or somebody else
    why = f"{TITLES[name]} on {parts.netloc}"
    more = len(listed) - MOST_OF_A_SERVER
    found = [FoundModel(name=f"{name}:{model.id}", why=why) for model in listed[:MOST_OF_A_SERVER]]
    if more > 0:
        found[-1] = msgspec.structs.replace(found[-1], why=f"{why}, with {more} more")
    return found


def _known(name: str, settings: Settings, environ: Mapping[str, str]) -> Provider | None:
    try:
        return find(name, settings=settings, environ=environ)
    except ConfigError:
        return None
