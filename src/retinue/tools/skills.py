"""The tool `skill`: the instructions and files of the skills that a run is offered, and of no others.

What is in a prompt are their names and descriptions (`listed`); a body is read when it is used, and is in the
log as a result then. Nothing is run and nothing is granted here.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from retinue.agents.document import Invalid
from retinue.builtin_tools import BUILT_IN, SKILL
from retinue.errors import Refused, ToolError
from retinue.reading import Unreadable
from retinue.skills import Skill
from retinue.skills.skill import FILE
from retinue.tools.base import Tool, ToolContext, ToolResult, tool
from retinue.tools.descriptions import describe
from retinue.tools.paging import page_of
from retinue.types import Source
from retinue.workspace import Files, shown

SKILL_IS = ("read", "view")
"""Rules about these are about skills as well."""
LEAST_DESCRIPTION = 80
"""Characters that stay of a description however many skills there are."""
_HEAD = (
    "<skills>\n"
    "Instructions for kinds of task, which you read with the tool `skill`. Before you begin a task that one "
    "of them fits, call `skill` with its name, and follow it as far as the person's wishes and your rules "
    "allow. A skill gives you no rights.\n"
)
_TAIL = "</skills>"


def listed(skills: Sequence[Skill], most: int) -> str:
    """What a prompt says of skills, in about so many characters: names, and when to use each."""
    if not skills:
        return ""
    room = most - sum(len(skill.name) + 5 for skill in skills)
    share = max(LEAST_DESCRIPTION, room // len(skills))
    lines: list[str] = []
    used = 0
    for skill in skills:
        text = skill.description.replace("<", "‹").replace(">", "›")  # it must not end the list
        line = f"- {skill.name}: {text if len(text) <= share else text[: share - 1] + '…'}"
        used += len(line) + 1
        if used > most and lines:
            names = ", ".join(each.name for each in skills[len(lines) :])
            lines.append(f"- and, without descriptions for want of room: {names[:most]}")
            break
        lines.append(line)
    return _HEAD + "\n".join(lines) + "\n" + _TAIL


def skill_tool(skills: Sequence[Skill]) -> Tool:
    """The tool over these skills."""
    known = {skill.name: skill for skill in skills}

    async def skill(
        name: str, ctx: ToolContext, file: str = "", offset: int = 1, limit: int = 2000
    ) -> ToolResult:
        """Read a skill.

        Args:
            name: which skill
            file: a file of it, by its path in the skill's folder; without, the skill's instructions
            offset: the first line of the file to show
            limit: how many lines of the file to show at most
        """
        found = known.get(name)
        if found is None:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ToolError(f"there is no skill {name[:80]!r} here.{hint} Your skills: {', '.join(known)}")
        if file and file.removeprefix("./") != FILE:
            return await asyncio.to_thread(_file, found, file, ctx, max(offset, 1), max(limit, 1))
        return await asyncio.to_thread(_instructions, found, ctx)

    made = tool(
        name=SKILL,
        description=describe(SKILL),
        effect="read",
        aliases=BUILT_IN[SKILL].aliases,
        private=partial(_private, known),
    )(skill)
    schema = {**made.schema, "properties": dict(made.schema["properties"])}
    schema["properties"]["name"] = {**schema["properties"]["name"], "enum": list(known)}
    # It reads files: what a rule says of reading holds here as well.
    return replace(made, schema=schema, same=SKILL_IS)


def _private(known: dict[str, Skill], arguments: dict[str, Any], files: Files) -> tuple[str, ...]:
    name = str(arguments.get("name"))
    return (f"the skill {name}",) if name in known else ()


def _instructions(skill: Skill, ctx: ToolContext) -> ToolResult:
    """What a skill says, with the names of its files."""
    place = skill.shown_in(ctx.files.project)
    _refuse_closed(skill, FILE, ctx)
    try:
        body = skill.body()
    except (OSError, Invalid) as error:
        why = error.message if isinstance(error, Invalid) else "is gone"
        raise ToolError(f"the skill {skill.name} cannot be read: {shown(place)}/{FILE} {why}") from None
    body = body.replace("${CLAUDE_SKILL_DIR}", place).replace("</skill", "</ skill")
    names, whole = skill.files()
    lines = [f'<skill name="{skill.name}" folder="{shown(place)}">', body, "</skill>"]
    if names:
        lines.append(
            f'Files of this skill. skill(name="{skill.name}", file="…") shows one; its scripts are run with '
            f"bash from {shown(place)}/:"
        )
        lines += [f"- {shown(name)}" for name in names]
        if not whole:
            lines.append("- and more, which are not listed")
    if skill.compatibility:
        lines.append(f"It says that it needs: {' '.join(skill.compatibility.split())}")
    return ToolResult(text="\n".join(lines))


def _file(skill: Skill, file: str, ctx: ToolContext, offset: int, limit: int) -> ToolResult:
    _refuse_closed(skill, file, ctx)
    try:
        data, really = skill.read(file)
    except FileNotFoundError:
        names, _ = skill.files()
        if file in names:
            raise ToolError(f"{shown(file)} of the skill {skill.name} is a link to nothing") from None
        near = get_close_matches(file, names, 1, 0.5)
        hint = f" Did you mean {near[0]}?" if near else f" Its files: {', '.join(names[:30]) or 'none'}"
        raise ToolError(f"the skill {skill.name} has no file {shown(file)}.{hint}") from None
    except OSError as error:
        if isinstance(error, Unreadable) and error.why:
            raise ToolError(f"{shown(file)} of the skill {skill.name} {error.why}") from None
        raise ToolError(f"{shown(file)} of the skill {skill.name}: {error.strerror}") from None
    _refuse_closed(skill, really, ctx)
    page = page_of(io.BytesIO(data), offset=offset, limit=limit, column=1)
    name = f"{skill.shown_in(ctx.files.project)}/{really}"
    if page.binary:
        raise ToolError(f"{shown(name)} is not text but {page.binary}; use it with a script of the skill")
    if not page.lines:
        raise ToolError(f"{shown(name)} has {page.total:,} lines; there is nothing at offset {offset:,}")
    text = "\n".join(page.lines)
    if page.last < page.total:
        text += f"\n[lines {page.first} to {page.last} of {page.total}; go on with offset={page.last + 1}]"
    in_project = not os.path.isabs(name)
    sources = (Source(path=name, lines=(page.first, page.last), sha256=page.sha256),) if in_project else ()
    return ToolResult(text=text, sources=sources)


def spellings(skill: Skill, project: Path | None, file: str = FILE) -> tuple[str, ...]:
    """A file of a skill as rules may name it: by the skill, and by where it lies."""
    place = skill.shown_in(project)
    names = (skill.name, f"{skill.name}/{file}", f"{place}/{file}", f"{skill.folder}/{file}")
    return tuple(dict.fromkeys(names))


def _refuse_closed(skill: Skill, file: str, ctx: ToolContext) -> None:
    """Hold a file of a skill against the rules: by the skill's name, and by where it lies."""
    if ctx.closed is None:
        return
    inside = os.path.normpath(file)
    why = ctx.closed.why(spellings(skill, ctx.files.project, inside), text=True)
    if why is not None:
        ctx.denied("skill", f"{skill.name}/{inside}: {why}")
        raise Refused(f"{shown(inside)} of the skill {skill.name} is not read: {why}", not_run="denied")
