"""What `retinue doctor` says of skills and of files of tools: what is found, not trusted, broken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from retinue.cli.checks import Check
from retinue.errors import ConfigError

if TYPE_CHECKING:
    from retinue.settings.trusted_folders import TrustedFolders
    from retinue.tool_files import ToolFile


def own_things(cwd: Path, trusted: TrustedFolders) -> list[Check]:
    return [*_skills(cwd), *_tools(cwd, trusted)]


def _skills(cwd: Path) -> list[Check]:
    from retinue.kept_files import kept_here
    from retinue.skills import load_skills

    catalogue = load_skills(cwd, kept=kept_here(cwd))
    names = ", ".join(sorted(catalogue.skills)) or "none"
    found = [Check(group="skills", name="found", state="ok", text=names)]
    return found + [
        Check(
            group="skills",
            name="broken",
            state="problem",
            text=f"{problem.file}{f':{problem.line}' if problem.line else ''}: {problem.message}",
            fix=problem.fix,
        )
        for problem in catalogue.problems
    ]


def _tools(cwd: Path, trusted: TrustedFolders) -> list[Check]:
    from retinue.kept_files import kept_here
    from retinue.tool_files import find_tool_files

    try:
        files = find_tool_files(cwd, trusted, kept=kept_here(cwd))
    except ConfigError as error:
        return [_broken(error)]
    if not files:
        return [Check(group="own tools", name="found", state="ok", text="none")]
    return [_tool_file(file) for file in files]


def _tool_file(file: ToolFile) -> Check:
    from retinue.tool_files import STATES, tools_of_file

    names = ", ".join(file.names) or "no tools"
    if file.state != "trusted":
        state, _, fix = STATES[file.state].partition(": ")
        return Check(
            group="own tools",
            name="not loaded",
            state="note",
            text=f"{file.path} ({names}) is {state}",
            fix=fix,
        )
    try:
        loaded = ", ".join(tool.name for tool in tools_of_file(file))
    except ConfigError as error:
        return _broken(error)
    return Check(group="own tools", name="trusted", state="ok", text=f"{file.path}: {loaded}")


def _broken(error: ConfigError) -> Check:
    return Check(group="own tools", name="broken", state="problem", text=str(error))
