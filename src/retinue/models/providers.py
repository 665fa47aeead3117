"""The providers that are known by name: where they live, which variables hold their keys, what to use there.

A table and the choices made from it alone: `connect` makes models from it. Settings can add providers and
change these (`[providers.NAME]`). Nothing here opens a connection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from retinue.errors import ConfigError, NoKey
from retinue.models.http import is_loopback
from retinue.models.keys import find_keys
from retinue.settings import ProviderSettings, Settings
from retinue.types import ModelSettings


class Provider(Struct, frozen=True, kw_only=True):
    """`key_env` holds keys, `base_env` another address; both are lists of environment variables.

    Without `needs_key` it is a server of one's own. `model` and `small` are what to use when nothing is said.
    """

    name: str
    base_url: str
    wire: str = "openai"
    key_env: tuple[str, ...] = ()
    base_env: tuple[str, ...] = ()
    needs_key: bool = True
    model: str = ""
    small: str = ""
    own_address: bool = True
    model_settings: ModelSettings = ModelSettings()


def _known(*providers: Provider) -> dict[str, Provider]:
    return {provider.name: provider for provider in providers}


PROVIDERS = _known(
    Provider(
        name="openai",
        base_url="https://api.openai.com/v1",
        key_env=("OPENAI_API_KEY",),
        base_env=("OPENAI_BASE_URL",),
        model="gpt-6.1-sol",
        small="gpt-6-luna",
    ),
    Provider(
        name="anthropic",
        wire="anthropic",
        base_url="https://api.anthropic.com",
        key_env=("ANTHROPIC_API_KEY",),
        base_env=("ANTHROPIC_BASE_URL",),
        model="claude-sonnet-5-5",
        small="claude-haiku-5-5",
    ),
    Provider(
        name="gemini",
        wire="gemini",
        base_url="https://generativelanguage.googleapis.com",
        key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_env=("GEMINI_BASE_URL",),
        model="gemini-3.8-flash",
        small="gemini-3.5-flash-lite",
    ),
    Provider(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_env=("OPENROUTER_API_KEY",),
        model="anthropic/claude-sonnet-5.5",
        small="anthropic/claude-haiku-5.5",
    ),
    Provider(
        name="deepseek",
        base_url="https://api.deepseek.com/v1",
        key_env=("DEEPSEEK_API_KEY",),
        model="deepseek-v4-pro",
        small="deepseek-flash",
    ),
    Provider(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        key_env=("MISTRAL_API_KEY",),
        model="mistral-large-4",
        small="mistral-small-2603",
    ),
    Provider(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        key_env=("GROQ_API_KEY",),
        model="openai/gpt-oss-120b",
        small="openai/gpt-oss-20b",
    ),
    Provider(
        name="xai",
        base_url="https://api.x.ai/v1",
        key_env=("XAI_API_KEY",),
        model="grok-4.7",
        small="grok-4.3",
    ),
    Provider(
        name="together",
        base_url="https://api.together.xyz/v1",
        key_env=("TOGETHER_API_KEY",),
        model="moonshotai/Kimi-K3",
        small="openai/gpt-oss-120b",
    ),
    Provider(
        name="fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        key_env=("FIREWORKS_API_KEY",),
        model="accounts/fireworks/models/kimi-k3",
        small="accounts/fireworks/models/gpt-oss-120b",
    ),
    Provider(
        name="cerebras",
        base_url="https://api.cerebras.ai/v1",
        key_env=("CEREBRAS_API_KEY",),
        model="qwen-3.8-27b",
        small="gpt-oss-120b",
    ),
    Provider(
        name="moonshot",
        base_url="https://api.moonshot.ai/v1",
        key_env=("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
        model="kimi-k3",
    ),
    Provider(
        name="zai",
        base_url="https://api.z.ai/api/paas/v4",
        key_env=("ZAI_API_KEY",),
        model="glm-5.3",
        small="glm-5.3-flash",
    ),
    Provider(
        name="ollama",
        base_url="http://127.0.0.1:11434/v1",
        key_env=("OLLAMA_API_KEY",),
        base_env=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        needs_key=False,
    ),
    Provider(
        name="lmstudio",
        base_url="http://127.0.0.1:1234/v1",
        base_env=("LMSTUDIO_BASE_URL",),
        needs_key=False,
    ),
    Provider(
        name="vllm",
        base_url="http://127.0.0.1:8000/v1",
        key_env=("VLLM_API_KEY",),
        base_env=("VLLM_BASE_URL",),
        needs_key=False,
    ),
    Provider(
        name="llamacpp",
        base_url="http://127.0.0.1:8080/v1",
        base_env=("LLAMACPP_BASE_URL",),
        needs_key=False,
    ),
)
OTHER_NAMES = {"google": "gemini", "google-gla": "gemini", "grok": "xai", "moonshotai": "moonshot"}
ALIASES = {"haiku": "claude-haiku-5-5", "sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5"}
_AS_PARENT = frozenset({"", "inherit", "default"})
RELATIVE = _AS_PARENT | {"small", *ALIASES}
"""What an agent may call its model without naming one."""


def find(name: str, *, settings: Settings, environ: Mapping[str, str]) -> Provider | None:
    """A provider with what the environment and the settings say about it, or None if nobody knows it."""
    known = PROVIDERS.get(OTHER_NAMES.get(name, name))
    own = own_table(name, settings)
    if own is None:
        return None if known is None else _placed(known, environ)
    if own.base_url is not None:
        return Provider(
            name=name,
            base_url=own.base_url,
            wire=own.wire or (known.wire if known else "openai"),
            key_env=own.key_env,
            needs_key=bool(own.key_env),
            own_address=False,
            model_settings=own.model_settings,
        )
    if known is None:
        raise ConfigError(f"provider '{name}' has no address", fix=f"set providers.{name}.base_url")
    placed = _placed(known, environ)
    return replace(
        placed,
        wire=own.wire or placed.wire,
        key_env=own.key_env or placed.key_env,
        needs_key=bool(own.key_env) or placed.needs_key,
        model_settings=own.model_settings,
    )


def own_table(name: str, settings: Settings) -> ProviderSettings | None:
    """What the settings say about a provider, under this name of it or another."""
    usual = OTHER_NAMES.get(name, name)
    also = (other for other, meant in OTHER_NAMES.items() if meant == usual)
    tables = (settings.providers.get(each) for each in (name, usual, *also))
    return next((table for table in tables if table is not None), None)


def _placed(known: Provider, environ: Mapping[str, str]) -> Provider:
    """A known provider where the environment says it is."""
    for variable in known.base_env:
        base = environ.get(variable, "").strip()
        if base and variable == "OLLAMA_HOST":
            base = _ollama_address(base)
        if base and base.rstrip("/") != known.base_url:
            return _moved(known, base)
    return known


def _ollama_address(host: str) -> str:
    """Ollama's own variable may lack everything but the host, and name what its server listens on."""
    parts = urlsplit(host if "://" in host else f"http://{host}")
    name = "127.0.0.1" if parts.hostname in (None, "0.0.0.0") else parts.hostname  # noqa: S104
    return f"{parts.scheme}://{name}:{parts.port or 11434}{parts.path.rstrip('/') or '/v1'}"


def _moved(provider: Provider, base_url: str) -> Provider:
    """The provider's format at another address: a gateway, or a server of one's own."""
    return Provider(
        name=provider.name,
        base_url=base_url,
        wire=provider.wire,
        key_env=provider.key_env,
        base_env=provider.base_env,
        needs_key=False,
        # On this machine it is another server with other models; elsewhere it is probably a gateway.
        model="" if is_loopback(urlsplit(base_url).hostname or "") else provider.model,
        small="" if is_loopback(urlsplit(base_url).hostname or "") else provider.small,
        own_address=False,
    )


def providers_of(name: str) -> frozenset[str]:
    """Whose models a full name is of: several where it is a chain."""
    found: set[str] = set()
    for part in name.split(","):
        one = part.strip().removeprefix("text:")
        first = one.partition("#")[0] if "://" in one else one.partition(":")[0]
        found.add(OTHER_NAMES.get(first, first))
    return frozenset(found)


def names(settings: Settings) -> list[str]:
    """Every provider that can be named."""
    return sorted({*PROVIDERS, *settings.providers, "offline"})


def split(name: str, *, settings: Settings) -> tuple[str, str]:
    """A model's name as provider and model. A bare name that gives its maker away needs no provider."""
    provider, colon, model = name.partition(":")
    if colon and "/" not in provider:
        return provider, model
    for beginning, maker in (("claude-", "anthropic"), ("gemini-", "gemini"), ("gpt-", "openai")):
        if name.startswith(beginning):
            return maker, name
    if name in PROVIDERS or name in settings.providers or name in OTHER_NAMES:
        return name, ""
    raise ConfigError(
        f"the model '{name}' names no provider",
        fix=f"write provider:model; known providers: {', '.join(names(settings))}",
    )


def default_model(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str]:
    """The model to use, and why: as set, else by the keys and addresses in the environment, else offline."""
    return found_model(settings, environ) or ("offline", "no key and no address of a model is set")


def found_model(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The model that is set, or that keys and addresses in the environment say, and why; or None."""
    if settings.model:
        return settings.model, "set as model"
    for provider in PROVIDERS.values():
        found = find(provider.name, settings=settings, environ=environ)
        if found is None:
            continue
        wanted = environ.get(f"{provider.name.upper()}_MODEL", "").strip()
        # OLLAMA_HOST does not count: many have it who do not mean to be asked through it.
        address = next((name for name in provider.base_env[:1] if environ.get(name, "").strip()), None)
        if address is not None and found.base_url != provider.base_url:
            if wanted or found.model:
                return f"{provider.name}:{wanted or found.model}", f"{address} is set"
            return f"{provider.name}:", f"{address} is set; the server is asked which model it has"
        place = key_place(found, settings, environ)
        if place and provider.needs_key:
            return f"{provider.name}:{wanted or found.model}", place
    return None


_TOKENS = {"anthropic": ("ANTHROPIC_AUTH_TOKEN",)}


def key_variables(provider: Provider) -> tuple[str, ...]:
    """The variables that its keys are looked for in, those of tokens last."""
    return *provider.key_env, *_TOKENS.get(provider.name, ())


def key_place(provider: Provider, settings: Settings, environ: Mapping[str, str]) -> str:
    """Where a key of a provider is, in words, or nothing. Asks no keyring."""
    variable = next((name for name in key_variables(provider) if find_keys(environ, (name,))), None)
    if variable is not None:
        return f"{variable} is set"
    return "its key is in the keyring" if provider.name in settings.keyring else ""


def kept_accounts(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """What `keys_of` would ask the keyring for: keys that the environment has not."""
    from retinue.models.kept_keys import account

    found: list[str] = []
    for name in settings.keyring:
        with contextlib.suppress(ConfigError):  # whoever uses it is told
            provider = find(name, settings=settings, environ=environ)
            if provider is not None and not find_keys(environ, key_variables(provider)):
                found.append(account(provider.name, provider.base_url))
    return found


def small_model(model: str, *, settings: Settings, environ: Mapping[str, str]) -> str:
    """The cheaper model beside another one: as set, else its provider's, else the same."""
    if settings.small_model:
        return settings.small_model
    if "://" in model or model == "offline":
        return model
    provider, _ = split(model, settings=settings)
    found = find(provider, settings=settings, environ=environ)
    return f"{provider}:{found.small}" if found is not None and found.small else model


def resolve(name: str, *, current: str) -> str:
    """The full name of what an agent calls its model: `inherit`, a Claude alias, or a name. `small` is left
    as it is: the small model may be an object.

    Claude's aliases mean Claude's models where those are in use; elsewhere `haiku` is the small model and the
    others are the model of the parent, `current`.
    """
    if name in _AS_PARENT:
        return current
    if name in ALIASES:
        if current.partition(":")[0] == "anthropic":
            return f"anthropic:{ALIASES[name]}"
        return "small" if name == "haiku" else current
    return name


def keys_of(
    provider: Provider, environ: Mapping[str, str], *, keyring: Sequence[str] = ()
) -> tuple[tuple[str, ...], bool]:
    """The provider's keys, and whether they are tokens that go into an Authorization header. `keyring` are
    the providers whose key is kept there; the environment counts first."""
    found = find_keys(environ, provider.key_env)
    if not found and provider.name in _TOKENS:
        tokens = find_keys(environ, _TOKENS[provider.name])
        if tokens:
            return tokens, True
    if not found and provider.name in keyring:
        from retinue.models.kept_keys import account, kept

        found = find_keys({"": kept(account(provider.name, provider.base_url))}, ("",))
    if not found and provider.needs_key:
        raise NoKey(
            f"no key for {provider.name}",
            fix=f"set {' or '.join(provider.key_env)} in the environment, "
            f"or 'retinue keys set {provider.name}'",
        )
    return found, False
