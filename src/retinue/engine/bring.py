"""Files of the project that a person named, for a run that sees its workspace alone: copied into that.

Called by the workflow before the first step of a run, also of one that is taken up again, and when a person
has said something to it. What a model wrote names nothing: a child is brought what its prompt names and the
person's own words name as well. Everything goes through the jail of the project, and is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from retinue.approvals import Asked
from retinue.authority.secrets import secrets_in
from retinue.engine.tree import RunTree
from retinue.errors import ToolError
from retinue.events import MessageReceived
from retinue.run import Run
from retinue.run_state import RunState
from retinue.workspace import HOME, MOST_BYTES, Files, shown

MOST_FILES = 20
MOST_WORDS = 2000
"""Words of a text that are looked at, and characters of one that could be a path."""
_QUOTED = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|“([^“”\n]+)”")
_AROUND = "\"'`“”‘’()[]{}<>,;:!?*"


def bring(run: Run, tree: RunTree) -> None:
    """Copy what is missing, and tell the run about what is new. A run that sees the project needs nothing."""
    if tree.config.project is None or run.authority.project:
        return
    project = Files(project=tree.config.project, workspace=None)
    try:
        _bring(run, project, tree.states())
    finally:
        project.close()


def _bring(run: Run, project: Files, workflow: Collection[RunState]) -> None:
    named = _named(run, project, workflow)
    told: list[str] = []
    came: list[str] = []
    for name in dict.fromkeys((*run.state.brought, *named)):
        why = _copy(run, project, name)
        if why is None:
            came += [name] if name not in run.state.brought else []
        elif name not in run.state.brought:
            told.append(f"{shown(name)} was not copied: {why}")
    if came:
        where = ", ".join(shown(f"{HOME}/{name}") for name in came)
        told.insert(0, f"Files of the project that the person named, copied for you: {where}")
    if came or (told and not _was_told(run, told)):  # that files came is a fact which no text stands for
        text = f"[{'. '.join(told)}.]"
        run.log.write(MessageReceived, text=text, sender="system", about="files", brought=tuple(came))


def _was_told(run: Run, told: list[str]) -> bool:
    """What could not be copied is said once, not whenever the run is taken up."""
    text = f"[{'. '.join(told)}.]"
    return any(getattr(message, "text", "") == text for message in (*run.state.messages, *run.state.queued))


def _named(run: Run, project: Files, workflow: Collection[RunState]) -> list[str]:
    asked: set[str] | None = None
    if run.parent_id is not None:
        began = run.state.started
        asked = set(files_in("\n".join((began.prompt if began else "", *run.state.said)), project))
        if not asked:  # most children: what people said, which may be long, is not gone through for each
            return []
    said = files_in("\n".join(text for state in workflow for text in state.said), project)
    return [name for name in said if asked is None or name in asked][:MOST_FILES]


def files_in(text: str, project: Files) -> Iterator[str]:
    """The files of the project that a text names, each once, by their one spelling."""
    seen: set[str] = set()
    words = [word for word in _words(text) if len(word) <= MOST_WORDS and "://" not in word]
    top = _top(project) if words else frozenset[str]()
    for word in words:
        if word.startswith(HOME) or not _may_be_there(word, top):
            continue
        try:
            place = project.locate(word)
            if place.name in seen or place.home:
                continue
            seen.add(place.name)
            project.open(word).close()
        except ToolError:
            continue
        yield place.name


def _top(project: Files) -> frozenset[str]:
    """The names in the folder of the project."""
    try:
        with project.at(".") as (_, jail):
            return frozenset(entry.name.casefold() for entry in jail.listdir("."))
    except (OSError, ToolError):
        return frozenset()


def _may_be_there(word: str, top: frozenset[str]) -> bool:
    """Most words of a text are no paths, and to look each up would take far longer than to read them all."""
    first = word.partition("/")[0].casefold()
    return first in top or first in ("", ".", "..") or first.startswith("~") or not first.isascii()


def _words(text: str) -> Iterable[str]:
    """What may be a path: words, what stands in quotes, whole lines, and the values of arguments."""
    lines = [line.strip() for line in text.splitlines()[:MOST_WORDS]]
    quoted = ["".join(match) for match in _QUOTED.findall(text)[:MOST_WORDS]]
    words = [word.strip(_AROUND) for word in text.split(None, MOST_WORDS)[:MOST_WORDS]]
    bare = [word.rstrip(".") for word in words]
    values = [line.partition(": ")[2] for line in lines]
    return dict.fromkeys(word for word in (*lines, *values, *quoted, *words, *bare) if word.strip())


def _kept_from(run: Run, project: Files, name: str) -> str | None:
    """Why the rules do not let the run read it where it lies: in its workspace nobody would know it again."""
    reading = Asked(
        tool="read",
        aliases=("view",),
        effect="read",
        risk="low",
        agent=run.spec.name,
        above=run.path[:-1],
        arguments={"path": name},
        files=project,
    )
    verdict = run.authority.rules.judge(reading)
    if verdict.action == "deny":
        return f"denied by {verdict.why}"
    asks = verdict.action == "ask" and verdict.by_rule
    return f"{verdict.why} wants the person asked; they can attach it" if asks else None


def _copy(run: Run, project: Files, name: str) -> str | None:
    """Why it is not there, or None if it is."""
    if secrets_in((name,), project):
        return "it usually holds secrets; the person can attach it"
    if why := _kept_from(run, project, name):
        return why
    there = f"{HOME}/{name}"
    try:
        if name not in run.state.brought or not run.files.exists(there):  # the run may have changed it since
            run.files.write(there, project.read_bytes(name, MOST_BYTES))
    except ToolError as error:
        return str(error)
    return None
