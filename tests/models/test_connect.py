"""From a name to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from asking import ask, asked
from msgspec.structs import replace

from retinue.app import Retinue
from retinue.errors import ConfigError, ModelError
from retinue.events import RunStarted, StepStarted
from retinue.models.connect import connect, wire_of
from retinue.models.http import Client, proxy_for
from retinue.models.providers import PROVIDERS, default_model, find, resolve, small_model
from retinue.models.retry import RetryPolicy
from retinue.settings import Price, ProviderSettings, Settings
from retinue.store.memory import MemoryStore
from retinue.testing import FakeProvider
from retinue.types import AgentSpec, ModelSettings

USUAL = ProviderSettings(model_settings={"seed": 7})  # pyright: ignore[reportArgumentType] # as a file has it


def name_of(name: str, client: Client, environ: dict[str, str], **settings: Any) -> str:
    return connect(name, settings=Settings(**settings), client=client, environ=environ).name


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-6-luna", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-5-5", "ANTHROPIC_API_KEY"),
        ("anthropic:claude-sonnet-5-5", "ANTHROPIC_AUTH_TOKEN"),
        ("gemini:gemini-3.8-flash", "GEMINI_API_KEY"),
        ("gemini:gemini-3.8-flash", "GOOGLE_API_KEY"),
        ("openrouter:openai/gpt-6-luna", "OPENROUTER_API_KEY"),
        ("groq:openai/gpt-oss-20b", "GROQ_API_KEY"),
        ("mistral:mistral-large-4", "MISTRAL_API_KEY"),
        ("deepseek:deepseek-v4-pro", "DEEPSEEK_API_KEY"),
        ("xai:grok-4.7", "XAI_API_KEY"),
        ("together:moonshotai/Kimi-K3", "TOGETHER_API_KEY"),
    ],
)
def test_a_provider_needs_its_key(name: str, variable: str, client: Client) -> None:
    assert name_of(name, client, {variable: "a-key"}) == name
    with pytest.raises(ConfigError) as caught:
        name_of(name, client, {})
    assert "_API_KEY" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["ollama:llama3", "lmstudio:qwen", "vllm:m", "llamacpp:m"])
def test_a_server_of_ones_own_needs_no_key(name: str, client: Client) -> None:
    assert name_of(name, client, {}) == name


async def test_a_server_on_this_machine_is_given_more_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    async def post(url: str, *, timeout: float, **_: object) -> None:
        given.append(timeout)
        raise ConnectionError("that is all that was asked")

    monkeypatch.setattr(client, "post", post)
    once = RetryPolicy(attempts=1)
    for name, limit in (("ollama:m", None), ("groq:m", None), ("ollama:m", 5.0)):
        model = connect(name, settings=Settings(), client=client, environ={"GROQ_API_KEY": "k"}, policy=once)
        with pytest.raises(ModelError):
            await ask(model, asked("Hello", timeout=limit))
    assert given == [600, 120, 5]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.7", "http://10.0.0.7:11434/v1"),
        ("0.0.0.0:5000", "http://127.0.0.1:5000/v1"),
        ("https://ollama.example/v1/", "https://ollama.example:11434/v1"),
    ],
)
def test_ollamas_own_variable_is_understood(host: str, address: str) -> None:
    found = find("ollama", settings=Settings(), environ={"OLLAMA_HOST": host})
    assert found is not None
    assert found.base_url == address
    assert default_model(Settings(), {"OLLAMA_HOST": host})[0] == "offline"


def test_google_is_another_name_of_gemini(client: Client) -> None:
    assert name_of("google:gemini-3.8-flash", client, {"GEMINI_API_KEY": "k"}) == "gemini:gemini-3.8-flash"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("claude-opus-5-5", "anthropic:claude-opus-5-5"),
        ("gpt-6-luna", "openai:gpt-6-luna"),
        ("gemini-x", "gemini:gemini-x"),
    ],
)
def test_a_name_that_gives_its_maker_away_needs_no_provider(name: str, full: str, client: Client) -> None:
    keys = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k"}
    assert name_of(name, client, keys) == full


@pytest.mark.parametrize("name", ["nonsense:model", "nonsense"])
def test_an_unknown_provider_is_an_error_that_lists_the_known(name: str, client: Client) -> None:
    with pytest.raises(ConfigError) as caught:
        name_of(name, client, {})
    text = str(caught.value)
    assert "nonsense" in text
    assert "anthropic" in text
    assert "ollama" in text
    assert "\n" not in text


async def test_a_provider_of_ones_own_comes_from_the_settings(server: FakeProvider, client: Client) -> None:
    urls: dict[Literal["openai", "anthropic", "gemini"], str] = {
        "openai": server.openai_url,
        "anthropic": server.anthropic_url,
        "gemini": server.gemini_url,
    }
    for wire, url in urls.items():
        own = ProviderSettings(wire=wire, base_url=url, key_env=("HOUSE_KEY",))
        settings = Settings(providers={"house": own}, prices={"house:m": Price(input=1, output=1)})
        model = connect("house:m", settings=settings, client=client, environ={"HOUSE_KEY": "from-the-house"})
        server.reply("hi")
        reply = await ask(model, asked())
        assert reply.model == "house:m"
        assert reply.usage.cost
        assert server.requests[-1].wire == wire
        assert server.requests[-1].key == "from-the-house"


def test_the_key_of_a_provider_of_ones_own_is_asked_for_by_name(client: Client) -> None:
    own = ProviderSettings(base_url="https://models.example/v1", key_env=("HOUSE_KEY",))
    with pytest.raises(ConfigError, match="HOUSE_KEY"):
        name_of("house:m", client, {}, providers={"house": own})


def test_a_known_provider_can_get_other_keys(client: Client) -> None:
    own = ProviderSettings(key_env=("WORK_KEY",))
    found = find("anthropic", settings=Settings(providers={"anthropic": own}), environ={})
    assert found is not None
    assert (found.wire, found.base_url, found.key_env) == (
        "anthropic",
        "https://api.anthropic.com",
        ("WORK_KEY",),
    )


async def test_an_address_with_a_model(server: FakeProvider, client: Client) -> None:
    name = f"{server.openai_url}#some/model"
    server.reply("hi")
    environ = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "k"}
    reply = await ask(connect(name, settings=Settings(), client=client, environ=environ), asked())
    assert reply.model == name
    assert server.requests[0].model == "some/model"


async def test_an_address_alone_is_asked_for_its_only_model(server: FakeProvider, client: Client) -> None:
    environ = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "k"}
    model = connect(server.openai_url, settings=Settings(), client=client, environ=environ)
    assert model.name == server.openai_url
    server.reply("hi")
    assert (await ask(model, asked())).model == f"{server.openai_url}#fake-model"
    assert model.name == f"{server.openai_url}#fake-model"


async def test_an_address_with_several_models_lists_them(client: Client) -> None:
    async with FakeProvider(models=["one", "two"]) as server:
        model = connect(server.openai_url, settings=Settings(), client=client, environ={})
        with pytest.raises(ModelError, match="one, two") as caught:
            await ask(model, asked())
    assert caught.value.kind == "not_found"


async def test_a_key_is_shown_to_no_other_address_than_its_own(server: FakeProvider, client: Client) -> None:
    model = connect(
        f"{server.openai_url}#m", settings=Settings(), client=client, environ={"OPENAI_API_KEY": "private"}
    )
    with pytest.raises(ModelError) as caught:
        await ask(model, asked())
    assert caught.value.kind == "auth", "the fake wants a key and was given none"
    assert not server.requests


def test_an_unknown_address_is_only_an_error_when_it_is_asked(client: Client) -> None:
    assert name_of("http://127.0.0.1:9/v1#m", client, {}) == "http://127.0.0.1:9/v1#m"


def test_offline_needs_nothing(client: Client) -> None:
    assert name_of("offline", client, {}) == "offline"


def test_openai_itself_is_asked_through_responses() -> None:
    def endpoint(name: str, model: str, **moved: object) -> str:
        environ = {"OPENAI_BASE_URL": "https://gateway.example/v1"} if moved else {}
        provider = find(name, settings=Settings(), environ=environ)
        assert provider is not None
        return wire_of(provider, model).url

    assert endpoint("openai", "gpt-6.1-sol") == "https://api.openai.com/v1/responses"
    assert endpoint("openai", "gpt-4o") == "https://api.openai.com/v1/chat/completions"
    assert endpoint("openai", "gpt-6.1-sol", moved=True) == "https://gateway.example/v1/chat/completions"
    assert endpoint("groq", "openai/gpt-oss-20b") == "https://api.groq.com/openai/v1/chat/completions"


# --- which model when none is named


def test_what_is_set_comes_first() -> None:
    assert default_model(Settings(model="groq:x"), {"OPENAI_API_KEY": "k"}) == ("groq:x", "set as model")


@pytest.mark.parametrize(
    ("environ", "name", "because"),
    [
        ({}, "offline", "no key"),
        ({"OPENAI_API_KEY": "k"}, f"openai:{PROVIDERS['openai'].model}", "OPENAI_API_KEY"),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "gpt-5"}, "openai:gpt-5", "OPENAI_API_KEY"),
        ({"ANTHROPIC_API_KEY": "k"}, f"anthropic:{PROVIDERS['anthropic'].model}", "ANTHROPIC_API_KEY"),
        ({"ANTHROPIC_AUTH_TOKEN": "k"}, f"anthropic:{PROVIDERS['anthropic'].model}", "ANTHROPIC_AUTH_TOKEN"),
        ({"GOOGLE_API_KEY": "k"}, f"gemini:{PROVIDERS['gemini'].model}", "GOOGLE_API_KEY"),
        ({"GROQ_API_KEY": "k"}, f"groq:{PROVIDERS['groq'].model}", "GROQ_API_KEY"),
        (
            {"OPENAI_BASE_URL": "http://127.0.0.1:8081/v1", "OPENAI_MODEL": "qwen"},
            "openai:qwen",
            "OPENAI_BASE_URL",
        ),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:8081/v1"}, "openai:", "asked which model"),
        ({"OPENAI_BASE_URL": "https://api.openai.com/v1/"}, "offline", "no key"),
        (
            {"OLLAMA_BASE_URL": "http://10.0.0.7:11434/v1", "OLLAMA_MODEL": "llama3"},
            "ollama:llama3",
            "OLLAMA_BASE_URL",
        ),
        ({"OPENAI_API_KEY": ""}, "offline", "no key"),
    ],
)
def test_keys_and_addresses_decide_otherwise(environ: dict[str, str], name: str, because: str) -> None:
    chosen, why = default_model(Settings(), environ)
    assert chosen == name
    assert because in why


@pytest.mark.parametrize(
    ("name", "environ", "base_url"),
    [
        (provider.name, {variable: "http://10.0.0.7:9/v1"}, "http://10.0.0.7:9/v1")
        for provider in PROVIDERS.values()
        for variable in provider.base_env
    ],
)
def test_a_table_of_settings_does_not_move_a_provider_from_the_address_of_the_environment(
    name: str, environ: dict[str, str], base_url: str
) -> None:
    found = find(name, settings=Settings(providers={name: USUAL}), environ=environ)
    assert found is not None
    assert (found.base_url, found.own_address, found.model_settings.seed) == (base_url, False, 7)
    plain = find(name, settings=Settings(), environ=environ)
    assert plain is not None
    assert replace(found, model_settings=ModelSettings()) == plain


def test_an_address_in_the_settings_goes_before_that_of_the_environment() -> None:
    own = Settings(providers={"openai": ProviderSettings(base_url="https://corp.example/v1")})
    found = find("openai", settings=own, environ={"OPENAI_BASE_URL": "https://gateway.example/v1"})
    assert found is not None
    assert (found.base_url, found.key_env) == ("https://corp.example/v1", ())


@pytest.mark.parametrize(("table", "name"), [("google", "gemini"), ("gemini", "google"), ("grok", "xai")])
def test_a_provider_has_the_settings_of_its_other_names(table: str, name: str) -> None:
    own = Settings(providers={table: USUAL})
    found = find(name, settings=own, environ={})
    assert found is not None
    assert found.model_settings.seed == 7


def test_a_table_of_settings_is_no_address() -> None:
    own = Settings(providers={"openai": USUAL})
    environ = {"OPENAI_BASE_URL": "https://api.openai.com/v1/"}
    assert default_model(own, environ)[0] == "offline"


async def test_a_local_server_is_found_by_its_address_alone(server: FakeProvider, client: Client) -> None:
    environ = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "x"}
    name, _ = default_model(Settings(), environ)
    server.reply("hello")
    reply = await ask(connect(name, settings=Settings(), client=client, environ=environ), asked())
    assert (reply.message.text, reply.model) == ("hello", "openai:fake-model")


def test_the_small_model_is_its_providers_unless_set() -> None:
    def small(model: str, **environ: str) -> str:
        return small_model(model, settings=Settings(), environ=environ)

    assert small("anthropic:claude-opus-5-5") == f"anthropic:{PROVIDERS['anthropic'].small}"
    assert small("openai:gpt-6.1-sol") == "openai:gpt-6-luna"
    assert small("ollama:llama3") == "ollama:llama3"
    assert small("offline") == "offline"
    assert small("http://127.0.0.1:1/v1#m") == "http://127.0.0.1:1/v1#m"
    assert small("openai:qwen", OPENAI_BASE_URL="http://127.0.0.1:8081/v1") == "openai:qwen"
    assert small_model("openai:x", settings=Settings(small_model="groq:y"), environ={}) == "groq:y"


@pytest.mark.parametrize(
    ("name", "current", "meant"),
    [
        ("inherit", "openai:x", "openai:x"),
        ("small", "openai:x", "small"),
        ("haiku", "anthropic:claude-opus-5-5", "anthropic:claude-haiku-5-5"),
        ("opus", "anthropic:claude-haiku-5-5", "anthropic:claude-opus-5-5"),
        ("sonnet", "anthropic:claude-haiku-5-5", "anthropic:claude-sonnet-5-5"),
        ("haiku", "openai:x", "small"),
        ("sonnet", "openai:x", "openai:x"),
        ("opus", "offline", "offline"),
        ("haiku", "offline", "small"),
        ("groq:y", "openai:x", "groq:y"),
    ],
)
def test_aliases(name: str, current: str, meant: str) -> None:
    assert resolve(name, current=current) == meant


# --- the way out


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://api.openai.com/v1", {}, None),
        ("https://api.openai.com/v1", {"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://api.openai.com/v1", {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ("https://api.openai.com/v1", {"ALL_PROXY": "http://all:1"}, "http://all:1"),
        ("https://api.openai.com/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".openai.com"}, None),
        (
            "https://api.openai.com/v1",
            {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "openai.com:8443"},
            "http://p:1",
        ),
        (
            "https://api.openai.com/v1",
            {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "notopenai.com"},
            "http://p:1",
        ),
        ("https://api.openai.com/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ("http://127.0.0.1:8081/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://localhost:8081/v1", {"HTTP_PROXY": "http://p:1"}, None),
    ],
)
def test_the_proxy_of_an_address(url: str, environ: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, environ) == proxy


async def test_calls_go_through_a_configured_proxy(server: FakeProvider) -> None:
    """The fake stands in for the proxy: it is asked for the whole address of the real host."""
    async with Client(environ={"HTTP_PROXY": server.url}) as client:
        own = ProviderSettings(base_url="http://models.invalid/v1", key_env=("K",))
        model = connect("far:m", settings=Settings(providers={"far": own}), client=client, environ={"K": "k"})
        server.reply("through the proxy")
        assert (await ask(model, asked())).message.text == "through the proxy"
        assert server.requests[0].headers["host"] == "models.invalid"


async def test_unreadable_certificates_are_a_clear_error(tmp_path) -> None:
    missing = str(tmp_path / "missing.pem")
    async with Client(environ={"SSL_CERT_FILE": missing}) as client:
        model = connect("openai:gpt-4o", settings=Settings(), client=client, environ={"OPENAI_API_KEY": "k"})
        with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
            await ask(model, asked())


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
async def test_a_private_certificate_authority_is_trusted_when_named(variable: str, tmp_path) -> None:
    """A real TLS server with a certificate of its own."""
    import asyncio
    import ssl
    import subprocess

    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    await asyncio.to_thread(
        subprocess.run,
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    events = b'data: {"choices":[{"delta":{"content":"safe"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
        writer.write(head + b"content-length: %d\r\n\r\n" % len(events) + events)
        await writer.drain()
        writer.close()

    tls = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    url = f"https://localhost:{tls.sockets[0].getsockname()[1]}/v1#m"
    async with tls:
        async with Client(environ={variable: str(certificate)}) as client:
            model = connect(url, settings=Settings(), client=client, environ={})
            assert (await ask(model, asked())).message.text == "safe"
        async with Client(environ={}) as client:
            from retinue.models.retry import RetryPolicy

            policy = RetryPolicy(attempts=1)
            model = connect(url, settings=Settings(), client=client, environ={}, policy=policy)
            with pytest.raises(ModelError) as caught:
                await ask(model, asked())
            assert caught.value.kind == "connection"


@pytest.mark.parametrize(
    "name", ["http://bob:hunter2@127.0.0.1:9/v1#m", "HTTPS://hunter2@h/v1", "corp:m", "openai:m"]
)
def test_an_address_with_a_password_is_refused_and_the_password_not_repeated(
    name: str, client: Client
) -> None:
    corp = {"corp": ProviderSettings(base_url="https://eve:hunter2@llm.corp/v1")}
    with pytest.raises(ConfigError) as caught:
        name_of(
            name, client, {"OPENAI_BASE_URL": "http://u:hunter2@h/v1", "OPENAI_API_KEY": "k"}, providers=corp
        )
    assert "user name or password" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "text:"])
async def test_a_servers_only_model_has_one_name_in_the_whole_log(
    server: FakeProvider, prefix: str, tmp_path: Path
) -> None:
    environ = {"OPENAI_BASE_URL": server.openai_url}
    server.reply("hello")
    store = MemoryStore()
    async with Retinue(db=store, model=f"{prefix}openai:", environ=environ, cwd=tmp_path) as retinue:
        report = await retinue.run(AgentSpec(name="a", description="a", prompt="answer"), "hi")
        events = await store.events(report.run_id)
        names = {e.model for e in events if isinstance(e, RunStarted | StepStarted)}
        assert names == {report.model, retinue.model_name} == {f"{prefix}openai:fake-model"}
        assert (await retinue.replay(report.run_id)).diff == ""


async def test_a_server_that_comes_up_late_makes_no_difference_to_a_replay(
    server: FakeProvider, tmp_path: Path
) -> None:
    """Its model was not known when the run started, and is since its first reply."""
    server.reply("hello")
    store = MemoryStore()
    environ = {"OPENAI_BASE_URL": server.openai_url}
    async with Retinue(db=store, environ=environ, cwd=tmp_path) as retinue:
        report = await retinue.run(AgentSpec(name="a", description="a", prompt="answer"), "hi")
        events = [
            msgspec.structs.replace(e, model="openai:") if isinstance(e, RunStarted | StepStarted) else e
            for e in await store.events(report.run_id)
        ]
        assert (await retinue.replay_events(events)).diff == ""
