"""Help that is instant, teaches by example, and is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from world import Cli, Ended

from retinue.cli import help_text, main
from retinue.cli.root import COMMANDS, GROUPS, build

Invoke = Callable[..., Ended]
HEAVY = ("pydantic", "aiohttp", "rich", "typer", "msgspec", "asyncio", "yaml")


def all_commands() -> list[tuple[str, ...]]:
    """Every command by its words."""
    root = build([])
    found: list[tuple[str, ...]] = []
    for name, command in root.commands.items():
        inner: dict[str, Any] = getattr(command, "commands", {})
        found += [(name, one) for one in inner] or [(name,)]
    return found


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_each_command_teaches_by_example(invoke: Invoke, words: tuple[str, ...]):
    ended = invoke(*words, "--help")
    assert ended.code == 0
    assert f"Usage: retinue {' '.join(words)}" in ended.out
    examples = ended.out.partition("Examples:")[2]
    assert f"retinue {' '.join(words)}" in examples or "retinue config path" in examples


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_a_group_teaches_by_example(invoke: Invoke, name: str):
    for words in ((name, "--help"), (name,)):
        told = invoke(*words).out
        examples = told.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
        assert 2 <= len(examples) <= 4
        assert all(line.strip().startswith(f"retinue {name} ") for line in examples)


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_a_group_alone_lists_its_commands(invoke: Invoke, name: str):
    ended = invoke(name)
    assert ended.code == 0
    for words in all_commands():
        if words[0] == name:
            assert re.search(rf"(?m)^  {words[1]} ", ended.out)


def test_the_help_names_every_command():
    text = help_text()
    for words in all_commands():
        entry = re.search(rf"(?m)^  {words[0]} .*(?:\n {{10,}}.*)*", text)
        assert entry is not None, words
        assert len(words) == 1 or re.search(rf"\b{words[1]}\b", entry[0]), words
    assert set(COMMANDS) | set(GROUPS) == {words[0] for words in all_commands()}


def test_retinue_alone_prints_the_short_help(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    short = capsys.readouterr().out
    assert main(["--help"]) == 0
    long = capsys.readouterr().out
    assert len(short.splitlines()) <= 36
    assert "Exit codes" not in short
    assert "Exit codes" in long
    assert all(len(line) <= 110 for line in long.splitlines())


@pytest.mark.parametrize("code", ["import retinue", "from retinue.cli import main; main(['--help'])"])
def test_nothing_heavy_is_loaded_for(code: str):
    check = (
        f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""


def test_asking_for_help_on_a_command_loads_no_library_behind_it():
    check = (
        "import sys\nfrom retinue.cli import main\nmain(['runs', 'list', '--help'])\n"
        # Typer itself uses pydantic for options.
        "print(*[n for n in ('retinue.app', 'aiohttp', 'rich', 'msgspec', 'yaml') "
        "if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""


def test_every_public_name_can_be_loaded():
    import retinue

    for name in retinue.__all__:
        assert getattr(retinue, name) is not None
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", retinue.__version__)
    assert set(retinue.__all__) <= set(dir(retinue))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = retinue.nonsense  # that is the point


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    import retinue

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"retinue {retinue.__version__}\n"


@pytest.mark.parametrize("option", [("--db", "{db}"), ("--db={db}",)])
def test_the_database_may_stand_before_the_command(invoke: Invoke, cli: Cli, option: tuple[str, ...]):
    db = f"sqlite://{cli.home}/other.db"
    before = [word.format(db=db) for word in option]
    assert invoke(*before, "run", "math-expert", "1+1", "--quiet").code == 0
    assert (cli.home / "other.db").exists()
    assert "math-expert" in invoke(*before, "runs", "list").out


@pytest.mark.parametrize("words", [("ask",), ("runs", "list")])
def test_the_help_of_each_command_names_debug(invoke: Invoke, words: tuple[str, ...]):
    assert "--debug" in invoke(*words, "--help").out
