"""Completion at the shell: commands, options and what is there right now, in a real bash."""

from __future__ import annotations

import asyncio
import shlex

import pytest
from world import COMMAND, Cli

from retinue.cli.completing import SHELLS, split
from retinue.cli.live_values import NAMES, VALUES
from retinue.cli.root import build
from retinue.testing import FakeProvider, Script

BREAKS = " \t\n\"'@><=;|&(:"
"""What bash takes for the end of a word, as it begins with it."""


class Bash:
    """Presses Tab at the end of a line."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        folder = cli.home / "bin"
        folder.mkdir()
        program = folder / "retinue"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        program.chmod(0o755)
        self.env = cli.env | {"PATH": f"{folder}:{cli.env['PATH']}"}

    async def tab(self, line: str) -> list[str]:
        script = (
            'eval "$(retinue --show-completion bash)" || exit 9\n'
            f"COMP_WORDBREAKS={shlex.quote(BREAKS)} COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}\n"
            '_retinue_completion retinue && printf "%s\\n" "${COMPREPLY[@]}"'
        )
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            env=self.env,
            cwd=self.cli.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        return out.decode().split("\n")[:-1]


@pytest.fixture
def bash(cli: Cli) -> Bash:
    return Bash(cli)


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_script_of_each_shell_is_printed_and_installed(cli: Cli, shell: str) -> None:
    shown = await cli("--show-completion", shell)
    assert shown.code == 0
    assert "_RETINUE_COMPLETE" in shown.out
    installed = await cli("--install-completion", shell)
    assert installed.code == 0
    assert str(cli.home) in installed.err


async def test_a_shell_that_is_not_known_is_said(cli: Cli) -> None:
    ended = await cli("--show-completion", "tcsh")
    assert ended.code == 2
    assert "bash | zsh | fish" in ended.err


async def test_commands_options_and_settings_are_completed(bash: Bash) -> None:
    assert await bash.tab("retinue mo") == ["models"]
    assert "resume" in await bash.tab("retinue runs ")
    assert await bash.tab("retinue ask --small") == ["--small-model"]
    assert await bash.tab("retinue config set limits.max_c") == ["limits.max_cost"]
    assert await bash.tab("retinue config set approvals.sandbox pro") == ["project"]


async def test_agents_tools_and_skills_of_the_project_are_completed(bash: Bash, cli: Cli) -> None:
    assert (await cli("init")).code == 0
    assert await bash.tab("retinue run time") == ["timekeeper"]
    assert await bash.tab("retinue tools show days") == ["days_until"]
    assert await bash.tab("retinue skills show pl") == ["plain-dates"]


async def test_runs_and_models_are_completed_also_behind_a_colon(bash: Bash, cli: Cli) -> None:
    async with FakeProvider(models=("fake-model", "other")) as provider:
        cli.use(provider)
        provider.add(Script(text="done"))
        ended = await cli("ask", "hello", "--json")
        assert ended.code == 0
        assert (await cli("models")).code == 0
    run_id = ended.lines[0]["run_id"]
    assert await bash.tab(f"retinue runs show {run_id[:8]}") == [run_id]
    assert "last" in await bash.tab("retinue runs resume ")
    assert "openai:fake-model" in await bash.tab("retinue ask --model ")
    assert await bash.tab("retinue ask --model openai:ot") == ["other"]  # the rest, as bash wants it


async def test_where_nothing_is_known_the_shell_offers_files(bash: Bash) -> None:
    assert await bash.tab("retinue eval ") == [""]
    assert await bash.tab("retinue nonsense ") == [""]


async def test_what_it_is_stands_beside_a_value_for_zsh_and_fish(cli: Cli) -> None:
    for shell in ("zsh", "fish"):
        ended = await cli(_RETINUE_COMPLETE=shell, _RETINUE_LINE="retinue approvals an")
        assert ended.out.startswith("answer\t")
        assert ended.out.count("\n") == 1


def test_a_line_is_split_as_a_shell_does() -> None:
    assert split("retinue runs show ") == (["runs", "show"], "")
    assert split("retinue ask 'two words' --mo") == (["ask", "two words"], "--mo")
    assert split("retinue ask it's") == (["ask"], "it's")
    assert split("retinue") == ([], "")


def test_every_parameter_of_the_table_is_one_of_a_command() -> None:
    known: set[str] = set()
    paths: set[str] = set()

    def walk(command: object, path: tuple[str, ...]) -> None:
        for name, each in getattr(command, "commands", {}).items():
            walk(each, (*path, name))
        paths.update((" ".join(path), *path[:1]))
        if not hasattr(command, "commands"):
            known.update(str(parameter.name) for parameter in getattr(command, "params", ()))

    walk(build([]), ())
    assert known >= set(VALUES)
    assert paths >= set(NAMES)
