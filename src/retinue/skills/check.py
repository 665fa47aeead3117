"""Look skills over and say everything there is to say about them: `retinue skills check`.

Uses the same reading as `loader`, so a skill that passes here is offered, and one that does not never is. It
changes nothing and runs nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from retinue.agents.document import Finding, Invalid, Level
from retinue.agents.places import DefinitionFolder
from retinue.authority.secrets import is_secret
from retinue.reading import Unreadable
from retinue.skills.loader import FOLDERS, folders_in, place_of_skills
from retinue.skills.skill import FILE, MOST_FILES, Skill, read_skill

_ORDER = {"error": 0, "warning": 1, "note": 2}
LONG_LINES, LONG_CHARACTERS = 500, 20_000
"""What the format recommends at most: 500 lines, about 5,000 tokens."""
_LINK = re.compile(r"\]\(\s*<?([^)\s>#]+)")
_COMMAND = re.compile(r"(?m)(?:^|\s)!`[^`\n]+`")


def check_skills(paths: Iterable[Path]) -> list[Finding]:
    """Every finding about these skills, or about those in and under these folders."""
    findings: list[Finding] = []
    names: dict[tuple[Path, str], Path] = {}
    for place, folder in _expand(paths, findings):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            skill, name, found = read_skill(folder, scope=place.scope, owner=place.owner)
            findings.extend(found)
            first = names.setdefault((folder.parent, name), folder)
            if first != folder:
                message = f"'{name}' is the name of the skill in {first.name} too"
                findings.append(_finding(folder, "error", message, "give one of them another name"))
            if skill is not None:
                findings.extend(_advice(skill, folder))
    return sorted(findings, key=lambda one: (one.file, _ORDER[one.level], one.line or 0))


def _finding(folder: Path, level: Level, message: str, fix: str = "") -> Finding:
    return Finding(file=str(folder / FILE), line=None, level=level, message=message, fix=fix)


def _expand(paths: Iterable[Path], findings: list[Finding]) -> list[tuple[DefinitionFolder, Path]]:
    """Skills by their folder or by their file, and folders of skills, as single skills with their places."""
    folders: dict[Path, DefinitionFolder] = {}
    for path in paths:
        folder = path.parent if path.name == FILE else path
        if (folder / FILE).exists():
            folders[folder] = place_of_skills(folder)
        elif folder.is_dir():
            within = [folder / name for name in FOLDERS if (folder / name).is_dir()]
            for each in within or [folder]:
                place = place_of_skills(each)
                folders.update(dict.fromkeys(folders_in(place, findings), place))
        else:
            findings.append(
                Finding(file=str(path), line=None, level="error", message="there is no such skill", fix="")
            )
    return [(place, folder) for folder, place in folders.items()]


def _advice(skill: Skill, folder: Path) -> list[Finding]:
    """What is allowed and still likely not meant."""
    found: list[Finding] = []

    def say(level: Level, message: str, fix: str = "") -> None:
        found.append(_finding(folder, level, message, fix))

    if len(skill.description) < 20:
        say("warning", "the description is very short", "a model chooses the skill by it: say when to use it")
    try:
        body = skill.body()
    except (Invalid, OSError):  # changed since it was read
        return found
    lines = body.count("\n") + 1
    if lines > LONG_LINES or len(body) > LONG_CHARACTERS:
        size = f"{lines:,} lines, {len(body):,} characters"
        say("note", f"the instructions are long ({size})", "move what is not always needed to references/")
    if _COMMAND.search(body):
        say("warning", "commands in the text (!`…`) are not run here", "say which command to run instead")
    files, whole = skill.files()
    if not whole:
        say("note", f"only the first {MOST_FILES} of its files are listed")
    for name in files:
        if is_secret(name):
            say("warning", f"'{name}' usually holds secrets and is not shown", "take it out of the skill")
        elif why := _unread(skill, name):
            say("warning", f"'{name}' {why}, and is not read", "copy what is meant into the skill")
    for name in dict.fromkeys(_LINK.findall(body)):
        if _is_file(name) and not (skill.folder / name).exists():
            say("warning", f"the text links to '{name[:80]}', which is not there")
    return found


def _is_file(name: str) -> bool:
    return "://" not in name and not name.startswith(("mailto:", "/", "$", "{", "~")) and "." in name


def _unread(skill: Skill, name: str) -> str:
    """Why a file of a skill is not read that is more than a file of its own, in words behind its name."""
    try:
        found = os.lstat(skill.folder / name)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            skill.read(name)
    except Unreadable as error:
        return error.why
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return ""
