"""What a program hands in is looked over at once: a mistake is told with what to write, and never raw."""

from __future__ import annotations

import asyncio
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
        ({"agents": [agent(limits=Limits(turns=-1))]}, r"limits\.turns of boss is -1"),
        ({"answering": "maybe"}, "answering is 'maybe'"),
        ({"answering": True}, "answering is True"),
        ({"answering": "refuze"}, "did you mean 'refuse'"),
        ({"fallback": "none"}, "fallback is 'none'"),
        ({"agents": [agent(output_schema={"type": "objekt"})]}, "output_schema of boss .*'objekt'"),
        ({"agents": [agent(input_schema={"properties": 3})]}, "input_schema of boss"),
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
        ({"yes": "no"}, "yes is 'no', not True or False"),
        ({"yes": None}, "yes is None, not True or False"),
        ({"yes": 1}, "yes is 1, not True or False"),
        ({"project": "no"}, "project is 'no', not True or False"),
        ({"settings": "db"}, "settings is 'db', not a mapping"),
    ],
)
def test_a_wrong_type_is_told_by_the_name_of_its_parameter(tmp_path: Path, options: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        app(tmp_path, **options)


@pytest.mark.parametrize(
    ("agent_given", "prompt", "options", "says"),
    [
        ("general", 5, {}, "prompt is 5"),
        ("general", None, {}, "prompt is None"),
        ("general", ["look"], {}, "prompt is a list"),
        (5, "go", {}, "agent is 5"),
        (None, "go", {}, "agent is None"),
        (AgentSpec, "go", {}, "agent is the class AgentSpec"),
        ("general", "go", {"yes": "no"}, "yes is 'no', not True, False or None"),
        ("general", "go", {"strict_sources": "no"}, "strict_sources is 'no', not True or False"),
        ("general", "go", {"label": 3}, "label is 3, not text"),
        ("general", "go", {"settings": "yes"}, "settings is 'yes', not a mapping"),
        ("general", "go", {"attachments": "a.py"}, "attachments is text"),
        ("general", "go", {"attachments": [3]}, r"attachments holds 3.*a path"),
    ],
)
async def test_what_a_run_is_given_is_looked_over_before_it_starts(
    tmp_path: Path, agent_given: Any, prompt: Any, options: Any, says: str
) -> None:
    async with app(tmp_path) as retinue:
        with pytest.raises(TypeError, match=says):
            await retinue.run(agent_given, prompt, **options)
        with pytest.raises(TypeError, match=says):
            await anext(retinue.stream(agent_given, prompt, **options))
        assert await retinue.runs() == []
    with pytest.raises(TypeError, match=says):
        await asyncio.to_thread(app(tmp_path).run_sync, agent_given, prompt, **options)


async def test_what_a_stored_run_is_given_is_looked_over_before_it_goes_on(tmp_path: Path) -> None:
    async with app(tmp_path) as retinue:
        root = (await retinue.run("general", "go")).run_id
        mistakes: list[tuple[Any, str]] = [
            (lambda: retinue.start("general", "go", run_id=3), "run_id is 3"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.resume(root, message="on", yes="no"), "yes is 'no'"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.resume(root, message="on", take_over="no"), "take_over is 'no'"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.resume(root, message=5), "message is 5"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.resume(root, message="on", settings="x"), "settings is 'x'"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.fork(root, message=5), "message is 5"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.fork(root, at="3", message="on"), "at is '3'"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.replay(root, live_tools="read"), "live_tools is text"),
            (lambda: retinue.message(root, 5), "text is 5"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.cancel(root, 5), "reason is 5"),  # pyright: ignore[reportArgumentType]
            (lambda: anext(retinue.watch(root, after="3")), "after is '3'"),  # pyright: ignore[reportArgumentType]
            (lambda: retinue.runs("error"), "which is 'error'"),  # pyright: ignore[reportArgumentType]
        ]
        for mistake, says in mistakes:
            with pytest.raises(TypeError, match=says):
                await mistake()
        assert [row.run_id for row in await retinue.runs()] == [root]
        assert (await retinue.wait(root)).turns == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"repeatable": "no"}, "repeatable is 'no', not True, False or None"),
        ({"private": "no"}, "private is 'no', not True, False or None"),
        ({"out": "nowhere else"}, "out 'nowhere else' is none of"),
        ({"risk": "none"}, "risk 'none' is none of low, medium, high"),
        ({"effect": ["read"]}, "effect a list is none of"),
        ({"harmless": True}, "harmless is True, not a function"),
        ({"reads": "yes"}, "reads is 'yes', not a function"),
        ({"admit": True}, "admit is True, not a function"),
        ({"preview": "x"}, "preview is 'x', not a function"),
        ({"aliases": "look"}, "aliases is text"),
        ({"name": 3}, "name is 3, not text"),
        ({"description": 3}, "description is 3, not text"),
        ({"timeout": True}, "timeout is True"),
        ({"timeout": 0}, "timeout is 0: give more than 0 seconds"),
    ],
)
def test_a_tool_of_a_wrong_word_or_type_is_told_when_it_is_made(options: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        tool(**options)(other)


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_a_limit_that_is_no_number_is_told_when_it_is_made(name: str) -> None:
    mistakes: list[Any] = ["many", True, [3]]
    for wrong in mistakes:
        with pytest.raises((TypeError, ValueError), match=name):
            Limits(**{name: wrong})
    assert getattr(Limits(**{name: 3}), name) == 3


@pytest.mark.parametrize(
    ("name", "says"),
    [("bos", r"known agents: .*boss.*did you mean 'boss'"), ("zzz", r"boss.*Retinue\(agents=…\)")],
)
async def test_an_agent_that_is_not_there_is_told_with_those_of_the_program(
    tmp_path: Path, name: str, says: str
) -> None:
    async with app(tmp_path, agents=[agent()]) as retinue:
        with pytest.raises(ConfigError, match=says):
            await retinue.run(name, "go")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"status": "erorr"}, "status is 'erorr'.*did you mean 'error'"),
        ({"outcome": "done"}, "outcome is 'done'.*completed"),
        ({"roots_only": "no"}, "roots_only is 'no'"),
    ],
)
def test_a_filter_that_could_find_nothing_is_told_when_it_is_made(fields: Any, says: str) -> None:
    with pytest.raises((TypeError, ConfigError), match=says):
        RunFilter(**fields)


async def test_a_path_is_taken_as_an_attachment_from_the_folder_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("ANSWER = 42\n")
    model = ScriptedModel(["one", "two"])
    async with app(tmp_path, model=model) as retinue:
        for path in ("a.py", tmp_path / "a.py"):
            await retinue.run(agent(), "what is in it?", attachments=[path])
        with pytest.raises(ConfigError, match=r"b\.py"):
            await retinue.run(agent(), "what is in it?", attachments=["b.py"])
    shown = ["".join(m.text for m in request.messages) for request in model.requests]
    assert ["ANSWER = 42" in text for text in shown] == [True, True]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tools": "heavy"}, r"tools is one text: write \('heavy',\)"),
        ({"disallowed_tools": "bash"}, r"disallowed_tools is one text: write \('bash',\)"),
        ({"deny": "bash"}, r"deny is one text"),
        ({"tools": (7,)}, r"tools holds int: write names, or for tools the tools themselves"),
        ({"skills": (plain,)}, r"skills holds function: write names"),
        ({"model": 7}, "model is int: give a name, an object with 'name' and 'stream', or several"),
        ({"model": []}, "model is an empty list"),
        ({"model_settings": {"top_p": 1}}, r"model_settings is dict: write ModelSettings\(…\)"),
        ({"name": 7}, "name is int, not text"),
        ({"max_turns": "5"}, "max_turns is str, not a whole number"),
        ({"temperature": "hot"}, "temperature is str, not a number"),
        ({"timeout": "soon"}, "timeout 'soon'"),
        ({"limits": {"turns": 3}}, r"limits is dict: write Limits\(…\)"),
        ({"memory": "yes"}, "memory is str, not True or False"),
        ({"mode": "fast"}, "mode 'fast'"),
        ({"files": "all"}, "files 'all'"),
        ({"lifecycle": "forever"}, "lifecycle 'forever'"),
    ],
)
def test_a_field_of_a_wrong_type_is_told_when_the_agent_is_made(fields: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        AgentSpec(**{"name": "boss", "description": "d", "prompt": "p", **fields})


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90), ("30s", 30), ("10 m", 600), ("1.5min", 90), ("2H", 7200), ("7d", 604_800), ("1w", 604_800)],
)
def test_a_duration_may_be_written_in_every_unit(written: str, seconds: float) -> None:
    assert agent(timeout=written).timeout == seconds


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
        root = (await retinue.run("general", "hello")).run_id
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
        if re.search(rf"(?:{flags})\b", line) and path.name != "offers.py"
    ]
    assert named == []
