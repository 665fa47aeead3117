"""What a program hands in is looked over at once: a mistake is told with what to write, and never raw."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, ConfigError, Limits, Retinue, RetinueError, RunFilter, tool
from retinue import app as front
from retinue.cli.exits import line_of
from retinue.events import decode, encode
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.tools.base import Tool


@tool
def population(city: str) -> int:
    """How many people live in a city."""
    return len(city)


def other(city: str) -> int:
    """The same, by another way."""
    return len(city)


def plain(city: str) -> int:
    """The same, no tool yet."""
    return len(city)


def agent(name: str = "boss", **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"the agent {name}", prompt=f"PLAY {name}", **fields)


def app(folder: Path, **options: Any) -> Retinue:
    return Retinue(**{"model": "offline", "db": "memory:", "cwd": folder, "environ": {}, **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tools": [population, tool(name="population")(other)]}, "two tools are named 'population'"),
        ({"tools": [tool(name="bash")(other)]}, "'bash' is a tool of Retinue's own"),
        ({"agents": [agent("my agent")]}, "'my agent' cannot be used"),
        ({"agents": [agent("")]}, "cannot be used"),
        ({"agents": [agent("population")], "tools": [population]}, "'population' is the name of a tool"),
        ({"agents": [agent("bash")]}, "'bash' is the name of a tool"),
        ({"agents": [agent(), agent()]}, "two agents are named 'boss'"),
        ({"agents": [agent(tools=("populatoin",))], "tools": [population]}, "did you mean 'population'"),
        ({"agents": [agent(tools=("read", "grpe"))]}, "did you mean 'grep'"),
        ({"agents": [agent(disallowed_tools=("bahs",))]}, "did you mean 'bash'"),
        ({"agents": [agent(shown=("rread",))]}, "did you mean 'read'"),
        ({"agents": [agent(tools=("clrek",)), agent("clerk")]}, "did you mean 'clerk'"),
        ({"agents": [agent(tools=("code-serach",))]}, "did you mean 'code-search'"),
        ({"agents": [agent(deny=("bash(",))]}, "cannot read the rule"),
        ({"agents": [agent(max_turns=0)]}, "max_turns"),
        ({"agents": [agent(timeout=-1)]}, "timeout"),
    ],
)
def test_a_wrong_name_is_told_when_it_is_handed_in(tmp_path: Path, options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        app(tmp_path, **options)


@pytest.mark.parametrize(
    "spec",
    [agent("my agent"), agent("bash"), agent(tools=("populatoin",)), agent("population")],
    ids=lambda s: s.name,
)
async def test_an_agent_that_is_run_directly_is_looked_over_too(tmp_path: Path, spec: AgentSpec) -> None:
    async with app(tmp_path, tools=[population]) as retinue:
        with pytest.raises(ConfigError):
            await retinue.run(spec, "go")
        assert await retinue.runs() == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tools": "heavy"}, "tools is text"),
        ({"tools": plain}, "tools is a function"),
        ({"tools": population}, "tools is a Tool"),
        ({"agents": agent()}, "agents is a AgentSpec|agents is an AgentSpec"),
        ({"agents": ["clerk"]}, "'clerk' is no agent"),
        ({"model": 3}, "model is int"),
        ({"small_model": 3}, "small_model is int"),
        ({"db": 3}, "db is int"),
    ],
)
def test_a_wrong_type_is_told_by_the_name_of_its_parameter(tmp_path: Path, options: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        app(tmp_path, **options)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tools": "heavy"}, r"tools is one text: write \('heavy',\)"),
        ({"disallowed_tools": "bash"}, r"disallowed_tools is one text: write \('bash',\)"),
        ({"deny": "bash"}, r"deny is one text"),
        ({"tools": (plain,)}, r"Retinue\(tools=\[plain\]\).*'plain'"),
        ({"tools": (population,)}, r"Retinue\(tools=\[population\]\).*'population'"),
        ({"model": ScriptedModel([])}, r"Retinue\(model=…\)"),
        ({"name": 7}, "name is int, not text"),
        ({"max_turns": "5"}, "max_turns is str, not a whole number"),
        ({"temperature": "hot"}, "temperature is str, not a number"),
        ({"timeout": "soon"}, "timeout 'soon'"),
        ({"limits": {"turns": 3}}, r"limits is dict: write Limits\(…\)"),
        ({"memory": "yes"}, "memory is str, not True or False"),
        ({"mode": "fast"}, "mode 'fast'"),
    ],
)
def test_a_field_of_a_wrong_type_is_told_when_the_agent_is_made(fields: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        AgentSpec(**{"name": "boss", "description": "d", "prompt": "p", **fields})


def test_durations_and_lists_may_be_written_as_people_do() -> None:
    spec = agent(timeout="5m", tools=["read"], limits=Limits(seconds="90s"))  # pyright: ignore[reportArgumentType]
    assert spec.timeout == 300
    assert spec.tools == ("read",)
    assert spec.limits.seconds == 90
    made: Tool = tool(name="slow", timeout="2m")(other)
    assert made.timeout == 120


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"effect": "reed"}, "effect 'reed'"),
        ({"risk": "none"}, "risk 'none'"),
        ({"timeout": "soon"}, "timeout 'soon'"),
    ],
)
def test_a_wrong_word_about_a_tool_is_told_when_it_is_made(options: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        tool(**options)(other)


@pytest.mark.parametrize(
    "name",
    [
        "read",
        "Read",
        "mcp__github__*",
        "mcp__github__list",
        "w*",
        "*",
        "todo",
        "clerk",
        "code-search",
        "agents",
    ],
)
def test_every_name_that_means_something_is_taken(tmp_path: Path, name: str) -> None:
    assert app(tmp_path, agents=[agent(tools=(name,), disallowed_tools=(name,)), agent("clerk")])


def test_agents_of_the_projects_files_may_be_named(tmp_path: Path) -> None:
    (tmp_path / ".retinue" / "agents").mkdir(parents=True)
    file = tmp_path / ".retinue" / "agents" / "parrot.md"
    file.write_text("---\nname: parrot\ndescription: Use it to repeat what was said.\n---\nRepeat.\n")
    assert app(tmp_path, agents=[agent(tools=("parrot",))])
    with pytest.raises(ConfigError, match="there is no tool and no agent 'parrot'"):
        app(tmp_path, agents=[agent(tools=("parrot",))], project=False)


async def test_a_file_cannot_take_the_name_of_a_programs_tool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".retinue" / "agents").mkdir(parents=True)
    file = tmp_path / ".retinue" / "agents" / "population.md"
    file.write_text("---\nname: population\ndescription: Use it to count.\n---\nCount.\n")
    model = ScriptedModel([call("population", city="Ulm"), "3"])
    async with app(tmp_path, model=model, tools=[population]) as retinue:
        assert (await retinue.run(agent(tools=("population",)), "go")).tool_calls == 1
    assert [m.text for m in model.requests[1].messages][-1] == "3"
    assert "population" in caplog.text


def test_an_agent_of_an_old_log_is_read_whatever_its_name() -> None:
    from retinue.events import RunStarted

    began = RunStarted(
        run_id="r",
        root_id="r",
        parent_id=None,
        depth=0,
        seq=1,
        at=0.0,
        spec=agent("my agent", max_turns=0),
        prompt="go",
    )
    assert decode(encode(began)) == began


async def test_a_second_run_of_one_id_is_refused_by_name(tmp_path: Path) -> None:
    store = MemoryStore()
    async with app(tmp_path, db=store) as retinue:
        await retinue.wait(await retinue.start("general", "go", run_id="mine"))
        with pytest.raises(ConfigError, match="the run_id 'mine' is taken"):
            await retinue.start("general", "go", run_id="mine")
    async with app(tmp_path, db=store) as retinue:
        with pytest.raises(ConfigError, match="the run_id 'mine' is taken"):
            await retinue.start("general", "go", run_id="mine")


async def test_of_two_that_start_under_one_id_at_once_one_is_told(tmp_path: Path) -> None:
    import asyncio

    async with app(tmp_path) as retinue:
        both = await asyncio.gather(
            *(retinue.start("general", "go", run_id="mine") for _ in range(2)), return_exceptions=True
        )
        assert both.count("mine") == 1
        assert ["the run_id 'mine' is taken" in str(one) for one in both].count(True) == 1
        await retinue.wait("mine")


@pytest.mark.parametrize(
    ("schema", "given", "format"),
    [
        ({"type": "object"}, {}, "json"),
        ({"type": "object"}, {"output_format": "markdown"}, "markdown"),
        (None, {}, "markdown"),
    ],
)
async def test_a_report_with_a_schema_is_json(tmp_path: Path, schema: Any, given: Any, format: str) -> None:
    async with app(tmp_path, model=ScriptedModel(["{}"])) as retinue:
        report = await retinue.run(agent(output_schema=schema, **given), "go")
    assert report.format == format


async def test_a_list_of_runs_says_that_it_is_not_all_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with app(tmp_path, model=ScriptedModel(lambda request: "done")) as retinue:
        for _ in range(51):
            await retinue.run(agent(), "go")
        rows = await retinue.runs()
        assert (len(rows), rows.more) == (50, True)
        assert "RunFilter(limit=" in caplog.text
        caplog.clear()
        every = await retinue.runs(RunFilter(limit=51))
        assert (len(every), every.more) == (51, False)
        assert not caplog.text


async def test_errors_of_the_library_name_parameters_and_those_of_the_command_line_flags(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    async with app(tmp_path) as retinue:
        root = (await retinue.run("general", "go")).run_id
        for mistake in (
            lambda: retinue.resume(root),
            lambda: retinue.fork(root),
            lambda: retinue.fork(root, at=0),
            lambda: retinue.wait("nobody"),
            lambda: retinue.answer("nothing", "approve"),
        ):
            with pytest.raises(RetinueError) as error:
                await mistake()
            told.append(str(error.value))
            assert "--" not in str(error.value)
            assert "'retinue " not in str(error.value)
            assert line_of(error.value) != str(error.value)
            assert not re.search(r"\w=…|\w\(\)", line_of(error.value))
    assert "message=…" in told[0]
    assert "message=…" in told[1]


def test_no_message_of_the_library_names_a_flag_of_the_command_line() -> None:
    flags = "--take-over|--db|--yes|--message|--model|--wait-approvals|--timeout|--max-turns"
    source = Path(front.__file__).parent
    own = [
        path
        for path in source.rglob("*.py")
        if path.parts[len(source.parts)] not in ("cli", "server", "view")
    ]
    named = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in own
        for line in path.read_text().splitlines()
        if re.search(rf"(?:{flags})\b", line) and path.name != "inbox.py"
    ]
    assert named == []
