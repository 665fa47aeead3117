"""Makes a model from its name. The only place that puts wires, keys, prices and retries together.

`app` calls `connect` for the root's model and for every other model an agent names; all of them share one
`Client`. Names: `provider:model` (see `providers`), `offline`, the address of an OpenAI-compatible server
(`http://host:port/v1#model`, or without a model if it has only one), `pydantic-ai:provider:model`. A name
of a provider that only pydantic-ai knows goes there too. No connection is made before the first call.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from retinue.errors import ConfigError, ModelError
from retinue.masking import has_login, masked_text
from retinue.models import providers
from retinue.models.base import LOCAL_SECONDS, SECONDS, Model, lacking
from retinue.models.http import Client, HttpRefused, is_loopback
from retinue.models.keys import KeyPool
from retinue.models.listing import listed_models
from retinue.models.prices import cost_of
from retinue.models.providers import Provider
from retinue.models.retry import RetryingModel, RetryPolicy
from retinue.settings import Settings
from retinue.types import ModelEvent, ModelRequest, ModelSettings

if TYPE_CHECKING:
    from retinue.models.wire import Wire


def connect(
    name: str,
    *,
    settings: Settings,
    client: Client,
    environ: Mapping[str, str] | None = None,
    policy: RetryPolicy | None = None,
) -> Model:
    """The model of that name, with its keys, its prices and its retries."""
    environ = os.environ if environ is None else environ
    _check_address(name)
    if name == "offline":
        from retinue.models.offline import OfflineModel

        return OfflineModel()
    if name.startswith(("http://", "https://")):
        return _at_address(name, settings=settings, client=client, environ=environ, policy=policy)
    provider_name, model = providers.split(name, settings=settings)
    if provider_name == "pydantic-ai":
        return _through_pydantic_ai(model, settings=settings, policy=policy, environ=environ)
    provider = providers.find(provider_name, settings=settings, environ=environ)
    if provider is None:
        check_provider(name, settings=settings)
        return _through_pydantic_ai(name, settings=settings, policy=policy, environ=environ)
    _check_address(provider.base_url)
    check_scheme(provider)
    keys, bearer = providers.keys_of(provider, environ, keyring=settings.keyring)
    pool = client.keys(provider.name, keys)
    made = _Maker(provider, pool, bearer, settings, client, policy, environ)
    model = model or provider.model
    if not model:
        if provider.wire not in ("openai", "responses"):
            raise ConfigError(f"'{name}' names no model", fix=f"write {provider_name}:MODEL")
        return _Found(f"{provider_name}:", made)
    return made.model(model)


def check_provider(name: str, *, settings: Settings) -> None:
    """Raises a `ConfigError` for the name of a model, or of several, that no provider can be asked for."""
    if "," in name:
        for part in filter(None, map(str.strip, name.split(","))):
            check_provider(part, settings=settings)
        return
    if name == "offline" or name.startswith(("http://", "https://")):
        return
    provider, _ = providers.split(name, settings=settings)
    known = providers.names(settings)
    if provider in (*known, "pydantic-ai") or _pydantic_ai_knows(provider):
        return
    near = get_close_matches(provider, known, 1, 0.7)
    meant = f"did you mean '{near[0]}'? " if near else ""
    if re.match(r"(localhost|[\w-]+(\.[\w-]+)+|\[[0-9a-f:]+\]):\d", name, re.IGNORECASE):
        meant = f"for a server write {_with_scheme(name)}; "
    raise ConfigError(
        f"unknown provider '{provider}' in model '{name}'",
        fix=f"{meant}known: {', '.join(known)}, or the address of a server" + _more_providers(),
    )


def _check_address(address: str) -> None:
    """A name or password in an address would not be sent, and would stand in every log."""
    if has_login(address):
        raise ConfigError(
            f"the address of a model has a user name or password in it: {masked_text(address)}",
            fix="take it out; a key goes into the environment, and providers.NAME.key_env says where",
        )


def check_scheme(provider: Provider) -> None:
    """An address without one would be taken for the name of a host that nobody finds."""
    if urlsplit(provider.base_url).scheme not in ("http", "https") or "://" not in provider.base_url:
        where = f"{provider.base_env[0]} or " if provider.base_env else ""
        raise ConfigError(
            f"the address of {provider.name} does not begin with http:// or https://: {provider.base_url}",
            fix=f"write {_with_scheme(provider.base_url)} in {where}providers.{provider.name}.base_url",
        )


def _with_scheme(address: str) -> str:
    """The address that was probably meant. What stands before a colon and a number is a host."""
    found = re.fullmatch(r"(?:(?P<scheme>[A-Za-z][\w+.-]*):(?!\d))?/*(?P<rest>.*)", address, re.S)
    scheme, rest = (found["scheme"], found["rest"]) if found else (None, address)
    near = get_close_matches((scheme or "").lower(), ("https", "http"), 1)
    return f"{near[0] if near else 'http'}://{rest}"


class _Maker:
    """Makes the models of one provider."""

    def __init__(
        self,
        provider: Provider,
        keys: KeyPool,
        bearer: bool,
        settings: Settings,
        client: Client,
        policy: RetryPolicy | None,
        environ: Mapping[str, str],
    ) -> None:
        self.provider = provider
        self.keys = keys
        self.client = client
        self._bearer = bearer
        self._settings = settings
        self._policy = policy
        self._environ = environ

    def model(self, model: str, name: str | None = None) -> Model:
        from retinue.models.wire import HttpModel

        provider = self.provider
        # A gateway elsewhere passes the bill on; a server on this machine has no known price.
        here = is_loopback(urlsplit(provider.base_url).hostname or "")
        priced = provider.own_address or not here
        made = HttpModel(
            name=name or f"{provider.name}:{model}",
            wire=wire_of(provider, model, bearer=self._bearer),
            client=self.client,
            keys=self.keys,
            cost=cost_of(provider.name, model, prices=self._settings.prices, known=priced),
            patience=LOCAL_SECONDS if here else SECONDS,
            advise=partial(advice, provider),
            by_address=provider.wire != "gemini" and not here,  # most local servers take bytes alone
            settings=provider.model_settings,
            environ=self._environ,
        )
        return RetryingModel(made, keys=self.keys, policy=self._policy)


def advice(provider: Provider, status: int) -> str:
    """What to do about an answer that has to do with the key or the address."""
    if status in (401, 403) and provider.key_env:
        return f"Look at the key in {' or '.join(provider.key_env)}"
    base = provider.base_url.rstrip("/")
    moved = not provider.own_address and provider.wire in ("openai", "responses")
    if status in (404, 405) and moved and not re.search(r"/v\d", urlsplit(base).path):
        return f"Such servers mostly want /v1 at the end of their address: {base}/v1"
    return ""


def wire_of(provider: Provider, model: str, *, bearer: bool = False) -> Wire:
    """The wire format of a provider's model."""
    if provider.wire == "anthropic":
        from retinue.models.anthropic import AnthropicWire

        return AnthropicWire(base_url=provider.base_url, model=model, bearer=bearer)
    if provider.wire == "gemini":
        from retinue.models.gemini import GeminiWire

        return GeminiWire(base_url=provider.base_url, model=model)
    from retinue.models.openai import DIALECTS, OpenAIWire
    from retinue.models.responses import SPEAKS, ResponsesWire

    official = provider.own_address or provider.name != "openai"
    if provider.wire == "responses" or (provider.name == "openai" and official and SPEAKS.match(model)):
        return ResponsesWire(base_url=provider.base_url, model=model)
    dialect = DIALECTS.get(provider.name) if official else None
    return OpenAIWire(base_url=provider.base_url, model=model, dialect=dialect)


def _at_address(
    name: str, *, settings: Settings, client: Client, environ: Mapping[str, str], policy: RetryPolicy | None
) -> Model:
    base, _, model = name.partition("#")
    base = base.rstrip("/")
    # The key of OPENAI_API_KEY belongs to the server of OPENAI_BASE_URL: nobody else is shown it.
    own = environ.get("OPENAI_BASE_URL", "").rstrip("/") == base
    provider = Provider(
        name=base,
        base_url=base,
        key_env=("OPENAI_API_KEY",) if own else (),
        needs_key=False,
        own_address=False,
    )
    keys, bearer = providers.keys_of(provider, environ)
    pool = client.keys(urlsplit(base).netloc, keys)
    made = _Maker(provider, pool, bearer, settings, client, policy, environ)
    return made.model(model, name) if model else _Found(base, made)


class _Found:
    """A server's only model: which one that is, is asked before the first call."""

    def __init__(self, name: str, maker: _Maker) -> None:
        self._name = name
        self._maker = maker
        self._model: Model | None = None
        self._asking = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._name if self._model is None else self._model.name

    async def identify(self) -> None:
        await self._known()

    def lacks(self, settings: ModelSettings) -> Mapping[str, str]:
        return {} if self._model is None else lacking(self._model, settings)

    async def _known(self) -> Model:
        async with self._asking:
            if self._model is None:
                self._model = self._make(await self._ask())
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        stream = (await self._known()).stream(request)
        try:
            async for event in stream:
                yield event
        finally:
            await stream.aclose()

    def _make(self, model: str) -> Model:
        at_address = self._name.startswith("http")
        return self._maker.model(model, f"{self._name}#{model}" if at_address else None)

    async def _ask(self) -> str:
        base = self._maker.provider.base_url.rstrip("/")
        maker = self._maker
        try:
            found = await listed_models(maker.provider, client=maker.client, keys=maker.keys)
            served = [each.id for each in found]
        except HttpRefused as error:
            fix = advice(maker.provider, error.status)
            told = f"{base} does not say which models it has: {maker.keys.mask(str(error))}"
            raise ModelError(f"{told}. {fix}" if fix else told, kind="not_found") from None
        if len(served) == 1:
            return served[0]
        how = f"{base}#MODEL" if self._name.startswith("http") else f"{self._name}MODEL"
        shown = ", ".join(served[:20]) or "none"
        raise ModelError(f"{base} has {len(served)} models, name one as {how}: {shown}", kind="not_found")


def _more_providers() -> str:
    if find_spec("pydantic_ai") is not None:
        return ""
    return "; bedrock, cohere and many more with pip install 'retinue[providers]'"


def _pydantic_ai_knows(provider: str) -> bool:
    try:
        from pydantic_ai.providers import infer_provider_class
    except ImportError:
        return False
    try:
        infer_provider_class(provider)
    except (ValueError, ImportError) as error:
        # An ImportError means that it is known, and that its own package is missing.
        return isinstance(error, ImportError)
    return True


def _through_pydantic_ai(
    name: str, *, settings: Settings, policy: RetryPolicy | None, environ: Mapping[str, str]
) -> Model:
    from retinue.models.pydantic_ai import PydanticModel

    provider, _, model = name.partition(":")
    own = providers.own_table(provider, settings)
    made = PydanticModel.named(
        name,
        cost=cost_of(provider, model, prices=settings.prices),
        settings=own.model_settings if own is not None else ModelSettings(),
        environ=environ,
    )
    return RetryingModel(made, policy=policy)
