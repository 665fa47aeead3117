"""A program's agents have what the program gave them, and a program without a model is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import AgentSpec, ConfigError, Retinue, tool
from retinue.errors import ModelError
from retinue.events import RunStarted
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.types import GivenObjects

FILE = "---\nname: {name}\ndescription: Use it for everything that there is.\n---\nYou help.\n"
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


@tool
def population(city: str) -> int:
    """How many people live in a city."""
    return len(city)


def agent(name: str, **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"the agent {name}", prompt=f"PLAY {name}", **fields)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with instructions, an agent and settings of its own."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "AGENTS.md").write_text("SPEAK LIKE A PIRATE\n")
    for folder, name in ((".claude", "pirate"), (".retinue", "parrot")):
        (tmp_path / folder / "agents").mkdir(parents=True)
        (tmp_path / folder / "agents" / f"{name}.md").write_text(FILE.format(name=name))
    (tmp_path / "retinue.toml").write_text("[limits]\nmax_turns = 3\n")
    return tmp_path


async def begun(spec: AgentSpec | str, steps: Any = ("done",), **options: Any) -> list[RunStarted]:
    """How every run of a workflow began."""
    options = {"db": "memory:", "environ": {}, **options}
    async with Retinue(model=ScriptedModel(steps), **options) as retinue:
        return [event async for event in retinue.stream(spec, "go") if isinstance(event, RunStarted)]


async def test_an_agent_without_tools_has_what_its_program_gave_and_no_more(project: Path) -> None:
    clerk = agent("clerk")
    root, *_ = await begun(agent("boss"), cwd=project, tools=[population], agents=[clerk])
    assert set(root.tools) == {"population", "clerk"}
    assert "PIRATE" not in root.system


async def test_an_agent_of_a_program_that_gave_nothing_has_nothing(project: Path) -> None:
    root, *_ = await begun(agent("boss"), cwd=project)
    assert root.tools == ()
    assert "PIRATE" not in root.system


async def test_ways_to_delegate_that_the_program_set_are_given(project: Path) -> None:
    settings = {"delegation.tools": ["spawn_agent"]}
    root, *_ = await begun(agent("boss"), cwd=project, settings=settings, agents=[agent("clerk")])
    assert set(root.tools) == {"spawn_agent"}


async def test_an_agent_that_names_tools_has_those(project: Path) -> None:
    root, *_ = await begun(agent("boss", tools=("read", "population")), cwd=project, tools=[population])
    assert set(root.tools) == {"read", "population"}


async def test_a_star_is_every_tool_there_is(project: Path) -> None:
    root, *_ = await begun(agent("boss", tools=("*",)), cwd=project, tools=[population])
    assert {"read", "bash", "web_search", "population", "pirate", "spawn_agent"} <= set(root.tools)


async def test_below_an_agent_of_the_program_one_without_tools_has_all_of_its_parents(project: Path) -> None:
    steps = {"PLAY boss": [call("clerk", prompt="count"), "done"], "PLAY clerk": ["3"]}
    boss = agent("boss", tools=("clerk", "read"))
    runs = await begun(boss, steps, cwd=project, agents=[agent("clerk")], tools=[population])
    assert [run.tools for run in runs] == [("read", "clerk"), ("read",)]


async def test_below_an_agent_of_a_file_one_without_tools_has_what_the_program_gave(project: Path) -> None:
    steps = {"PLAY clerk": ["3"], "": [call("clerk", prompt="count"), "done"]}
    root, clerk = await begun("general", steps, cwd=project, agents=[agent("clerk")], tools=[population])
    assert {"bash", "read", "population"} <= set(root.tools)
    assert clerk.tools == ("population",)


async def test_agents_of_files_keep_their_meaning_in_a_program(project: Path) -> None:
    root, *_ = await begun("pirate", cwd=project, tools=[population])
    assert {"read", "bash", "web_search", "population", "parrot", "spawn_agent"} <= set(root.tools)
    assert "SPEAK LIKE A PIRATE" in root.system


async def test_what_was_made_up_for_an_agent_of_the_program_has_its_parents_tools(project: Path) -> None:
    steps = {
        "PLAY boss": [call("spawn_agent", name="temp", prompt="count", system_prompt="PLAY temp"), "done"],
        "PLAY temp": ["3"],
    }
    boss = agent("boss", tools=("read", "spawn_agent"))
    _, temp = await begun(boss, steps, cwd=project, settings={"delegation.tools": ["spawn_agent"]}, yes=True)
    assert "read" in temp.tools


async def test_without_a_project_nothing_of_it_is_read_or_offered(project: Path) -> None:
    async with Retinue(
        model=ScriptedModel(["done"]), db="memory:", environ={}, cwd=project, project=False
    ) as retinue:
        assert {"pirate", "parrot"}.isdisjoint(retinue.agents.agents)
        assert retinue.settings.limits.max_turns != 3
        (project / ".claude" / "agents" / "late.md").write_text(FILE.format(name="late"))
        await retinue.reread_agents()
        assert "late" not in retinue.agents.agents
        retinue.reload()
        assert retinue.settings.limits.max_turns != 3
        begun = [event async for event in retinue.stream("general", "go") if isinstance(event, RunStarted)]
    assert {"pirate", "parrot"}.isdisjoint(begun[0].tools)
    assert "PIRATE" not in begun[0].system
    assert begun[0].cwd == ""


async def test_the_agents_of_a_project_are_there_where_there_is_one(project: Path) -> None:
    async with Retinue(model=ScriptedModel(["done"]), db="memory:", environ={}, cwd=project) as retinue:
        assert {"pirate", "parrot"} <= retinue.agents.agents.keys()
        assert retinue.settings.limits.max_turns == 3


def test_a_program_without_a_key_and_a_model_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='model="offline"') as told:
        Retinue(db="memory:", cwd=tmp_path, environ={})
    assert "OPENAI_API_KEY" in str(told.value)


@pytest.mark.parametrize("variable", KEYS)
def test_a_key_is_enough(tmp_path: Path, variable: str) -> None:
    assert Retinue(db="memory:", cwd=tmp_path, environ={variable: "k"}).settings.model is None


@pytest.mark.parametrize(
    "options",
    [
        {"model": "offline"},
        {"model": ScriptedModel([])},
        {"settings": {"model": "offline"}},
        {"environ": {"RETINUE_MODEL": "offline"}},
        {"environ": {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}},
        {"fallback": "offline"},
    ],
    ids=["name", "object", "setting", "variable", "address", "fallback"],
)
def test_whoever_says_which_model_needs_no_key(tmp_path: Path, options: dict[str, Any]) -> None:
    assert Retinue(**{"db": "memory:", "cwd": tmp_path, "environ": {}, **options})


SET = {"RETINUE_MODEL": "openai:set", "RETINUE_SMALL_MODEL": "openai:small", "OPENAI_API_KEY": "k"}
NOWHERE = {**SET, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
"""What a person has set who runs a program. Nobody is there: a program that asks it, fails."""


@pytest.mark.parametrize("settings", [{}, {"model": "openai:other"}], ids=["variable", "setting"])
@pytest.mark.parametrize("chain", [False, True], ids=["object", "chain"])
async def test_the_model_that_a_program_gives_is_asked_whatever_is_set(
    tmp_path: Path, settings: dict[str, Any], chain: bool
) -> None:
    model = ScriptedModel(["said"] * 4)
    given = [model, "offline"] if chain else model
    async with Retinue(
        model=given, db="memory:", cwd=tmp_path, environ=NOWHERE, settings=settings, agents=[agent("own")]
    ) as retinue:
        assert [(await retinue.run(name, "go")).text for name in ("own", "general")] == ["said", "said"]
        chat = retinue.conversation("own")
        assert (await chat.send("go")).text == "said"
        retinue.reload()
        await retinue.resume(chat.run_id or "", message="and?")
        assert (await retinue.wait(chat.run_id or "")).text == "said"
        assert retinue.model_name.startswith("scripted")


def small_of(retinue: Retinue[Any], spec: AgentSpec, settings: dict[str, Any] | None = None) -> str:
    """The cheap model beside an agent's own."""
    models = retinue.services.models
    chosen = msgspec.structs.replace(retinue.settings, **(settings or {}))
    known = {} if not isinstance(spec.given, GivenObjects) else spec.given.models
    return models.small(chosen, models.of(chosen, spec.model, None, known)).name


async def test_beside_a_model_object_no_other_is_asked_that_was_only_set(tmp_path: Path) -> None:
    options: dict[str, Any] = {"db": "memory:", "cwd": tmp_path, "environ": NOWHERE}
    plain = agent("plain")
    async with Retinue(model=ScriptedModel([]), **options) as retinue:
        assert small_of(retinue, plain) == "scripted"
        assert small_of(retinue, agent("quick", model="haiku")) == "scripted"
    async with Retinue(model=ScriptedModel([]), settings={"small_model": "offline"}, **options) as retinue:
        assert small_of(retinue, plain) == "offline"
    small = ScriptedModel([], name="little")
    async with Retinue(model="openai:x", small_model=small, **options) as retinue:
        assert small_of(retinue, plain) == "little"
        assert small_of(retinue, plain, {"small_model": "offline"}) == "offline"


async def test_an_agents_own_model_object_is_its_small_one(tmp_path: Path) -> None:
    async with Retinue(model="offline", db="memory:", cwd=tmp_path, environ={}) as retinue:
        for model in (ScriptedModel([]), [ScriptedModel([]), "offline"]):
            assert small_of(retinue, agent("own", model=model)).startswith("scripted")


async def test_a_model_that_one_run_sets_is_asked_in_place_of_the_programs(tmp_path: Path) -> None:
    model = ScriptedModel(["said"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, environ=NOWHERE) as retinue:
        report = await retinue.run(agent("own"), "go", settings={"model": "offline"})
        assert (report.model, model.requests) == ("offline", [])


async def test_a_run_that_another_program_takes_up_holds_what_it_held(tmp_path: Path) -> None:
    store = MemoryStore()
    script = [ModelError("no", kind="auth")]
    settings = {"delegation.tools": ["parallel_tasks"]}
    async with Retinue(
        model=ScriptedModel(script), db=store, cwd=tmp_path, environ={}, settings=settings
    ) as first:
        root = (await first.run(agent("boss"), "go")).run_id
    model = ScriptedModel(["done"])
    async with Retinue(model=model, db=store, cwd=tmp_path, environ={}, settings=settings) as second:
        await second.resume(root)
        await second.wait(root)
    assert [spec.name for spec in model.requests[0].tools] == ["parallel_tasks"]


async def test_an_agent_holds_what_the_program_gave_it_below_one_that_names_no_tools(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("found it")
    shown: dict[str, set[str]] = {}

    def say(request: Any) -> Any:
        me = "clerk" if "You are the clerk" in request.system else "boss"
        shown[me] = {tool.name for tool in request.tools}
        if len(request.messages) > 1:
            return request.messages[-1].text
        return call("read", path="a.txt") if me == "clerk" else call("clerk", prompt="look")

    clerk = AgentSpec(name="clerk", description="c", prompt="You are the clerk", tools=("read",))
    boss = AgentSpec(name="boss", description="b", prompt="You are the boss")
    async with Retinue(
        model=ScriptedModel(say), db="memory:", cwd=tmp_path, environ={}, agents=[clerk]
    ) as retinue:
        report = await retinue.run(boss, "go")
    assert "found it" in report.text
    assert shown == {"boss": {"clerk"}, "clerk": {"read"}}
