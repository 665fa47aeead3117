"""How a model is asked, as each provider spells it, over real sockets; and what no log may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from asking import READ, WIRES, ask, asked, one_shot

from retinue import AgentSpec, ConfigError, ModelError, ModelSettings, Retinue, tool
from retinue.engine.root_checks import check_settings
from retinue.events import RunStarted
from retinue.models.base import lacking
from retinue.models.http import Client
from retinue.models.wire import with_extra
from retinue.settings import ProviderSettings, Settings
from retinue.testing import FakeProvider, ScriptedModel, call
from retinue.types import ModelRequest

PLAIN = {
    "openai": "some-model",
    "responses": "gpt-4.1",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-3.8-flash",
}
SECRET = "s3cr3t-of-the-gateway"
SETTINGS = ModelSettings(
    top_p=0.5, stop="END", seed=7, parallel_tool_calls=False, service_tier="default", tool_choice="read"
)
SPELT: dict[str, dict[str, Any]] = {
    "openai": {
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 7,
        "parallel_tool_calls": False,
        "service_tier": "default",
        "tool_choice": {"type": "function", "function": {"name": "read"}},
    },
    "responses": {
        "top_p": 0.5,
        "parallel_tool_calls": False,
        "service_tier": "default",
        "tool_choice": {"type": "function", "name": "read"},
    },
    "anthropic": {
        "top_p": 0.5,
        "stop_sequences": ["END"],
        "service_tier": "standard_only",
        "tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
    },
    "gemini": {
        "generationConfig": {"topP": 0.5, "stopSequences": ["END"], "seed": 7},
        "serviceTier": "standard",
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}},
    },
}
LACKS = {
    "openai": set[str](),
    "responses": {"stop", "seed"},
    "anthropic": {"seed"},
    "gemini": {"parallel_tool_calls"},
}


def with_settings(settings: ModelSettings, **more: Any) -> ModelRequest:
    choice = settings.tool_choice or "auto"
    return asked(tools=(READ,), settings=settings, tool_choice=choice, **more)


@pytest.mark.parametrize("wire", WIRES)
async def test_every_setting_is_sent_as_its_provider_spells_it_and_no_other(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("ok")
    model = one_shot(wire, server, client, model=PLAIN[wire])
    await ask(model, with_settings(SETTINGS))
    body = server.requests[0].body
    names = ("model", "messages", "input", "contents", "system", "systemInstruction", "instructions", "tools")
    ours = {*names, "stream", "stream_options", "store", "include", "max_tokens"}
    assert {name: value for name, value in body.items() if name not in ours} == SPELT[wire]
    assert {*lacking(model, SETTINGS)} == LACKS[wire]


@pytest.mark.parametrize("wire", WIRES)
async def test_more_headers_and_fields_reach_the_provider_and_override_nothing(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.reply("ok")
    more: dict[str, Any] = {"safetySettings": []} if wire == "gemini" else {"metadata": {"user_id": "7"}}
    settings = ModelSettings(extra_headers={"X-Team": SECRET}, extra_body=more)
    await ask(one_shot(wire, server, client, model=PLAIN[wire]), with_settings(settings))
    seen = server.requests[0]
    assert seen.headers["x-team"] == SECRET
    assert more.items() <= seen.body.items()
    assert seen.key == "key-one"


def test_what_a_request_says_itself_stands_whatever_is_added() -> None:
    body = msgspec.json.encode({"messages": [1], "stream": True, "text": {"format": 1}})
    extra = {"messages": [], "stream": False, "text": {"format": 2, "verbosity": "low"}}
    found = msgspec.json.decode(with_extra(body, extra))
    assert found == {"messages": [1], "stream": True, "text": {"format": 1, "verbosity": "low"}}


@pytest.mark.parametrize(
    "name", ["messages", "input", "contents", "system_instruction", "Tools", "tool_choice", "stream", "model"]
)
def test_a_field_that_is_the_requests_own_cannot_be_given(name: str) -> None:
    with pytest.raises(ValueError, match="not yours to set"):
        ModelSettings(extra_body={name: []})


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "Host", "content-length"])
def test_a_header_that_is_the_requests_own_cannot_be_given(name: str) -> None:
    with pytest.raises(ValueError, match="not yours to set"):
        ModelSettings(extra_headers={name: SECRET})


def test_an_error_about_a_header_does_not_say_what_it_holds() -> None:
    with pytest.raises(ValueError, match="no text of one line") as told:
        ModelSettings(extra_headers={"X-Team": f"{SECRET}\r\nX-Other: 1"})
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_provider_that_quotes_a_header_is_not_quoted(
    wire: str, server: FakeProvider, client: Client
) -> None:
    server.fail(400, f"bad token {SECRET}")
    settings = ModelSettings(extra_headers={"X-Team": f"Bearer {SECRET}"})
    with pytest.raises(ModelError) as failed:
        await ask(one_shot(wire, server, client, model=PLAIN[wire]), with_settings(settings))
    assert "bad token ***" in str(failed.value)


async def test_a_header_may_name_a_variable_of_the_environment(server: FakeProvider, client: Client) -> None:
    server.reply("ok")
    usual = {"extra_headers": {"X-Team": "${TEAM_TOKEN}"}}
    own = ProviderSettings(base_url=server.openai_url, key_env=("K",), model_settings=usual)  # pyright: ignore[reportArgumentType] # as a file has it
    from retinue.models.connect import connect

    environ = {"K": "key-one", "TEAM_TOKEN": SECRET}
    model = connect("corp:m", settings=Settings(providers={"corp": own}), client=client, environ=environ)
    await ask(model, asked())
    assert server.requests[0].headers["x-team"] == SECRET
    del environ["TEAM_TOKEN"]
    with pytest.raises(ModelError, match=r"\$\{TEAM_TOKEN\}, which is not set"):
        await ask(model, asked())


async def test_settings_of_a_provider_hold_where_a_request_does_not_say(
    server: FakeProvider, client: Client
) -> None:
    for _ in range(2):
        server.reply("ok")
    own = ProviderSettings(model_settings={"top_p": 0.1, "temperature": 0.2, "seed": 1})  # pyright: ignore[reportArgumentType] # as a file has it
    settings = Settings(providers={"openai": own})
    environ = {"OPENAI_API_KEY": "key-one"}
    at = msgspec.structs.replace(own, base_url=server.openai_url, key_env=("OPENAI_API_KEY",))
    from retinue.models.connect import connect

    model = connect(
        "openai:m",
        settings=msgspec.structs.replace(settings, providers={"openai": at}),
        client=client,
        environ=environ,
    )
    await ask(model, asked())
    await ask(model, asked(temperature=0.9, settings=ModelSettings(top_p=0.8)))
    sent = [{n: seen.body.get(n) for n in ("top_p", "temperature", "seed")} for seen in server.requests]
    assert sent == [
        {"top_p": 0.1, "temperature": 0.2, "seed": 1},
        {"top_p": 0.8, "temperature": 0.9, "seed": 1},
    ]


async def test_a_call_that_takes_longer_than_its_agent_allows_is_given_up(
    server: FakeProvider, client: Client
) -> None:
    server.reply("slow", hang_after=0)
    with pytest.raises(ModelError) as failed:
        await ask(one_shot("openai", server, client), asked(timeout=0.2))
    assert failed.value.kind == "timeout"


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def looking(**fields: Any) -> AgentSpec:
    return AgentSpec(name="looks", description="looks", prompt="You look.", tools=[look], **fields)


@pytest.mark.parametrize(
    ("model", "settings", "lacks"),
    [
        ("openai:gpt-6.1-sol", ModelSettings(seed=1), "seed"),
        ("anthropic:claude-sonnet-5-5", ModelSettings(top_p=0.5), "top_p"),
        ("gemini:gemini-3.8-flash", ModelSettings(parallel_tool_calls=False), "parallel_tool_calls"),
        ("offline", ModelSettings(temperature=0.5), "temperature"),
        (["offline", "openai:gpt-4.1"], ModelSettings(stop="x"), "stop"),
    ],
)
async def test_a_setting_of_a_program_that_the_provider_does_not_have_is_told_before_anything_starts(
    model: Any, settings: ModelSettings, lacks: str, tmp_path: Path
) -> None:
    keys: dict[str, str] = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "k")
    async with Retinue(model=model, db="memory:", cwd=tmp_path, environ=keys) as retinue:
        for agent, given in ((looking(model_settings=settings), None), (looking(), settings)):
            with pytest.raises(ConfigError, match=rf"has no {lacks}, which is set for looks"):
                await retinue.run(agent, "go", model_settings=given)
        assert list(await retinue.runs()) == []


async def test_a_setting_of_a_file_that_the_provider_does_not_have_is_noted_in_the_log(
    tmp_path: Path,
) -> None:
    agents = tmp_path / ".retinue" / "agents"
    agents.mkdir(parents=True)
    head = "---\nname: writer\ndescription: Writes things down for others to read.\ntools: []\n"
    (agents / "writer.md").write_text(f"{head}model_settings: {{seed: 7, top_p: 0.3}}\n---\nYou write.\n")
    async with Retinue(model="offline", db="memory:", cwd=tmp_path) as retinue:
        report = await retinue.run("writer", "hello")
        began = (await retinue.store.events(report.run_id))[0]
    assert isinstance(began, RunStarted)
    assert began.unmet == {"seed": "offline", "top_p": "offline"}


async def test_no_event_holds_what_a_header_holds_and_a_run_that_goes_on_needs_it_again(
    tmp_path: Path,
) -> None:
    db, settings = f"sqlite://{tmp_path}/log.db", ModelSettings(extra_headers={"X-Team": SECRET}, top_p=0.3)
    first = ScriptedModel(["one"])
    async with Retinue(model=first, db=db, cwd=tmp_path) as retinue:
        report = await retinue.run(looking(), "go", model_settings=settings)
        assert first.requests[0].settings.headers.sent == {"X-Team": SECRET}
        assert SECRET not in repr(await retinue.store.events(report.run_id))
    assert SECRET.encode() not in (tmp_path / "log.db").read_bytes()
    second = ScriptedModel(["two"])
    async with Retinue(model=second, db=db, cwd=tmp_path, tools=[look]) as retinue:
        with pytest.raises(ConfigError, match=r"given the headers X-Team, .*extra_headers="):
            await retinue.resume(report.run_id, message="and then?")
        again = {"X-Team": "another"}
        await retinue.resume(report.run_id, message="and then?", extra_headers=again)
        assert (await retinue.wait(report.run_id)).text == "two"
    asks = second.requests[0].settings
    assert (asks.headers.sent, asks.top_p) == (again, 0.3), "the rest is as the run was started"


async def test_a_run_is_asked_with_its_own_settings_over_those_of_its_agent(tmp_path: Path) -> None:
    model = ScriptedModel([call("look", what="x"), "done"])
    agent = looking(temperature=0.9, model_settings=ModelSettings(top_p=0.1, seed=3, tool_choice="look"))
    async with Retinue(model=model, db="memory:", cwd=tmp_path) as retinue:
        own = ModelSettings(temperature=0.2, top_p=0.5, timeout="9s")
        report = await retinue.run(agent, "go", model_settings=own)
        replayed = await retinue.replay(report.run_id)
    first, second = model.requests
    assert (first.temperature, first.settings.top_p, first.settings.seed, first.timeout) == (0.2, 0.5, 3, 9.0)
    assert (first.tool_choice, second.tool_choice) == ("look", "auto"), (
        "only the first reply is held to a call"
    )
    assert replayed.same, replayed.diff


def _headers_that_arrive(child: list[ScriptedModel], asked: ScriptedModel) -> list[dict[str, str]]:
    kid = AgentSpec(name="kid", description="d", prompt="You are kid", tools=(), model=child)
    settings = ModelSettings(extra_headers={"X-Team": SECRET})
    parent = AgentSpec(
        name="parent", description="d", prompt="You are parent", tools=[kid], model_settings=settings
    )
    main = ScriptedModel([call("kid", prompt="go"), "done"], name="corp:a")
    Retinue(model=main, db="memory:", agents=[parent]).run_sync("parent", "go")
    return [dict(request.settings.headers.sent) for request in asked.requests]


def test_a_header_of_a_parent_goes_to_no_other_provider_of_its_childs_chain() -> None:
    refused = ScriptedModel(lambda request: ModelError("no", kind="auth"), name="corp:b")
    other = ScriptedModel(["kid done"], name="other:c")
    assert _headers_that_arrive([refused, other], other) == [{}]


def test_a_header_of_a_parent_goes_to_a_child_whose_models_are_all_of_its_provider() -> None:
    refused = ScriptedModel(lambda request: ModelError("no", kind="auth"), name="corp:b")
    other = ScriptedModel(["kid done"], name="corp:c")
    assert _headers_that_arrive([refused, other], other) == [{"X-Team": SECRET}]


async def test_what_a_table_of_a_provider_asks_for_in_vain_is_told(
    server: FakeProvider, client: Client
) -> None:
    from retinue.models.connect import connect

    usual = {"seed": 7, "top_p": 0.5, "tool_choice": "required"}
    own = ProviderSettings(base_url=server.anthropic_url, key_env=("K",), model_settings=usual)  # pyright: ignore[reportArgumentType] # as a file has it
    name = "anthropic:claude-haiku-4-5"
    model = connect(name, settings=Settings(providers={"anthropic": own}), client=client, environ={"K": "k"})
    assert set(lacking(model, ModelSettings())) == {"seed", "tool_choice"}
    agent = AgentSpec(name="a", description="d", prompt="p", tools=())
    check_settings(agent, model, ModelSettings(top_p=0.3))
    with pytest.raises(ConfigError, match="has no seed"):
        check_settings(agent, model, ModelSettings(seed=3))
