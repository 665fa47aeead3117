"""Tools without a program: nothing of a file runs before a person trusted these very bytes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue import ConfigError, Retinue
from retinue.events import ToolReturned
from retinue.settings.trusted_folders import TrustedFolders
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.tool_files import ToolFile, ToolFiles, find_tool_files, load_tools, trust_file

CENSUS = '''\
from pathlib import Path
Path(__file__).with_name("ran").touch()

def population(city: str, year: int = 2026) -> dict[str, int]:
    """How many people live in a city.

    Args:
        city: its name
    """
    return {city: len(city) * year}

def _helper() -> None: ...
'''
DECORATED = '''\
from retinue import tool

def helper(x):
    return x

@tool(name="file_it", effect="write")
def file_away(text: str) -> str:
    """Files a text away."""
    return helper(text)
'''


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.delenv("RETINUE_CONFIG", raising=False)
    return folder


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    put(folder, "census.py", CENSUS)
    return folder


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / ".retinue/tools" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def trusting(*folders: Path) -> TrustedFolders:
    found = TrustedFolders()
    for folder in folders:
        found = found.adding(folder)
    return found


def ran(folder: Path) -> bool:
    return (folder / ".retinue/tools/ran").exists()


def trust_all(project: Path) -> None:
    for file in find_tool_files(project, trusting(project)):
        trust_file(file)


# -- trust ---------------------------------------------------------------------


def test_a_file_runs_only_with_the_bytes_that_were_trusted_whatever_else_of_its_folder_is(
    project: Path,
) -> None:
    def states(trusted: TrustedFolders) -> list[str]:
        loaded = load_tools(project, trusted=trusted)
        return [*(tool.name for tool in loaded.tools), *(file.state for file in loaded.waiting)]

    assert states(TrustedFolders()) == ["folder"]
    assert states(trusting(project)) == ["new"]
    assert not ran(project)
    trust_all(project)
    assert not ran(project)
    assert states(TrustedFolders()) == ["population"]
    assert ran(project)
    assert states(trusting(project)) == ["population"]
    put(project, "census.py", CENSUS + "# harmless\n")
    assert states(trusting(project)) == ["changed"]
    assert states(TrustedFolders()) == ["folder"]


def test_what_waits_says_its_names_and_what_to_do(project: Path) -> None:
    withheld = load_tools(project, trusted=TrustedFolders()).withheld
    assert set(withheld) == {"population"}
    assert "'retinue tools trust'" in withheld["population"]
    assert "config trust" not in withheld["population"], "that would turn on far more"
    assert "'retinue tools trust'" in load_tools(project, trusted=trusting(project)).withheld["population"]


def test_a_person_is_asked_once_for_each_content_of_a_file(project: Path, home: Path) -> None:
    put(home, "mine.py", CENSUS.replace("population", "mine"))
    asked: list[str] = []

    def load(answer: bool) -> set[str]:
        def ask(file: ToolFile) -> bool:
            asked.append(f"{file.path.name} {file.state}")
            return answer

        return {tool.name for tool in load_tools(project, trusted=trusting(project), ask=ask).tools}

    assert load(False) == set()
    assert not ran(project)
    assert not ran(home)
    assert load(True) == {"population", "mine"}
    assert load(True) == {"population", "mine"}
    put(home, "mine.py", CENSUS.replace("population", "mine2"))
    assert load(True) == {"population", "mine2"}
    assert asked == ["census.py new", "mine.py new"] * 2 + ["mine.py changed"]


def test_a_link_that_leads_out_of_the_project_is_not_read_and_stops_no_strangers_folder(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.py").write_text(CENSUS)
    (project / ".retinue/tools/away.py").symlink_to(tmp_path / "elsewhere.py")
    assert load_tools(project, trusted=TrustedFolders()).tools == ()
    with pytest.raises(ConfigError, match="leads out of its folder"):
        load_tools(project, trusted=trusting(project))


def test_what_is_decorated_is_a_tool_and_what_is_beside_it_is_not(project: Path) -> None:
    put(project, "census.py", DECORATED)
    assert set(load_tools(project, trusted=trusting(project)).withheld) == {"helper", "file_it"}
    trust_all(project)
    (tool,) = load_tools(project, trusted=trusting(project)).tools
    assert (tool.name, tool.effect) == ("file_it", "write")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def broken(:\n", r"census.py:1: is not Python"),
        ("x = 1\nimport no_such_module_here\n", r"census.py:2: cannot be loaded: ModuleNotFoundError"),
        ("import sys\nsys.exit('no')\n", r"census.py:2: cannot be loaded: SystemExit: no"),
        ("import asyncio\nraise asyncio.CancelledError\n", r"census.py:2: cannot be loaded: CancelledError"),
        ("x = 1\n", "has no tools"),
        ("def bash(command: str) -> str:\n    '''Runs.'''\n    return ''\n", "a tool of Retinue's own"),
        ("def untyped(x):\n    '''D.'''\n", "untyped"),
    ],
)
def test_a_trusted_file_that_cannot_be_loaded_stops_with_its_place(
    project: Path, text: str, says: str
) -> None:
    put(project, "census.py", text)
    trust_all(project)
    with pytest.raises(ConfigError, match=says):
        load_tools(project, trusted=trusting(project))


def test_the_nearest_file_wins_and_two_of_one_folder_do_not_share_a_name(project: Path, home: Path) -> None:
    put(home, "census.py", CENSUS.replace("How many", "My own: how many"))
    trust_all(project)
    (tool,) = load_tools(project, trusted=trusting(project)).tools
    assert tool.description.startswith("How many")
    put(project, "again.py", CENSUS)
    trust_all(project)
    with pytest.raises(ConfigError, match="two tools are named 'population'"):
        load_tools(project, trusted=trusting(project))


# -- named ---------------------------------------------------------------------


def test_tools_are_named_by_module_or_file(project: Path) -> None:
    (project / "my_census_tools.py").write_text(CENSUS)
    (project / "my_leaving_tools.py").write_text("import sys\nsys.exit()\n")

    def names(*named: str) -> list[str]:
        return [tool.name for tool in load_tools(project, named, trusted=TrustedFolders()).tools]

    assert names("my_census_tools:population") == ["population"]
    assert names("my_census_tools.py:population") == ["population"]
    assert names("my_census_tools.py") == ["population"]
    for spec, says in (
        ("my_census_tools:populatoin", "did you mean 'population'"),
        ("no_such_module:f", "no_such_module cannot be loaded"),
        ("nowhere.py:f", "nowhere.py"),
        (":f", "names no module"),
        ("my_leaving_tools", r"my_leaving_tools.py:2: my_leaving_tools cannot be loaded: SystemExit"),
        ("my_leaving_tools.py", r"my_leaving_tools.py:2: my_leaving_tools.py cannot be loaded: SystemExit"),
        ("my_census_tools:Path", "cannot be a tool"),
    ):
        with pytest.raises(ConfigError, match=says):
            names(spec)


# -- in a run ------------------------------------------------------------------


def app(project: Path, model: Any, **options: Any) -> Retinue:
    return Retinue(**{"model": model, "db": "memory:", "cwd": project, "environ": {}, **options})


def loaded(project: Path) -> ToolFiles:
    trust_all(project)
    return load_tools(project, trusted=trusting(project))


def put_agent(project: Path, tools: str) -> None:
    folder = project / ".retinue/agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "clerk.md").write_text(f"---\nname: clerk\ndescription: A clerk.\ntools: {tools}\n---\nWork.\n")


async def test_the_main_agent_and_a_child_that_names_it_use_a_tool_of_a_file(project: Path) -> None:
    put_agent(project, "[population]")

    def play(request: Any) -> Any:
        if len(request.messages) > 1:
            return "done"
        if "Work." in request.system:
            return [call("population", city="Ur")]
        return [call("population", city="Rome"), call("clerk", prompt="go")]

    async with app(project, ScriptedModel(play), tool_files=loaded(project)) as retinue:
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
    texts = [event.text for event in events if isinstance(event, ToolReturned) and event.name == "population"]
    assert [json.loads(text) for text in texts] == [{"Rome": 8104}, {"Ur": 4052}]


async def test_an_agent_that_names_a_tool_that_is_missing_does_not_begin_and_says_why(project: Path) -> None:
    put_agent(project, "[read, population]")
    waiting = load_tools(project, trusted=trusting(project))
    async with app(project, ScriptedModel(["done"]), tool_files=waiting) as retinue:
        with pytest.raises(ConfigError, match=r"no tool and no agent 'population'.*census\.py is new"):
            await retinue.run("clerk", "go")
        assert not await retinue.runs()
    put_agent(project, "[read, populatoin]")
    async with app(project, ScriptedModel(["done"]), tool_files=loaded(project)) as retinue:
        with pytest.raises(ConfigError, match="did you mean 'population'"):
            await retinue.run("clerk", "go")


async def test_a_child_that_names_a_missing_tool_is_an_error_of_the_call(project: Path) -> None:
    put_agent(project, "[population]")
    model = ScriptedModel([[call("clerk", prompt="go")], "done"])
    async with app(project, model) as retinue:
        report = await retinue.run("general", "go")
        events = await retinue.store.events(report.run_id)
    (got,) = [event for event in events if isinstance(event, ToolReturned)]
    assert got.is_error
    assert "population" in got.text


async def test_a_resumed_run_finds_its_tools_again_or_says_which_is_missing(project: Path) -> None:
    store = MemoryStore()
    model = ScriptedModel(["done", [call("population", city="Rome")], "done"])
    async with app(project, model, db=store, tool_files=loaded(project)) as retinue:
        report = await retinue.run("general", "go")
    put(project, "census.py", CENSUS + "#\n")
    changed = load_tools(project, trusted=trusting(project))
    async with app(project, model, db=store, tool_files=changed) as retinue:
        with pytest.raises(ConfigError, match=r"the tool 'population', which is missing now.*changed since"):
            await retinue.resume(report.run_id, message="again")
    async with app(project, model, db=store, tool_files=loaded(project)) as retinue:
        await retinue.wait(await retinue.resume(report.run_id, message="again"))
        events = await retinue.store.events(report.run_id)
    assert [event.text for event in events if isinstance(event, ToolReturned)] == ['{"Rome":8104}']
