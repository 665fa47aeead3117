"""What an agent writes down for itself: a vault for large values, memory, tasks and goals.

Private to one run and gone with it; the memory of a permanent agent stays if its spec says so. Every change
is a pure step from one state to the next (`apply`), so a resumed run gets its notes back by going through
its log again (`rebuild`): nothing is stored twice. Only `summary` of the notes enters a prompt.

Made per run by the app. Nothing here touches a file, a database or another run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolContext, tool
from retinue.tools.descriptions import describe
from retinue.web.framing import frame

Kind = Literal["tasks", "goals", "memory", "vault"]
TaskStatus = Literal["open", "doing", "done", "dropped"]

MAX_VALUE = 5_000_000
MAX_VAULT = 50_000_000
MAX_NAMES = 200
MAX_TEXT = 4_000
MAX_MEMORY = 500
MAX_TASKS = 200
MAX_GOALS = 20
_PAGE = 20_000
_SUMMARY = 2_000
_OF_A_FRAME = 250
"""Characters of the marks around what may be others' words, and some."""


class NoteValue(Struct, frozen=True, kw_only=True):
    text: str
    summary: str = ""


class NoteTask(Struct, frozen=True, kw_only=True):
    id: int
    text: str
    status: TaskStatus = "open"


class Goal(Struct, frozen=True, kw_only=True):
    id: int
    text: str
    done: bool = False


class NoteState(Struct, frozen=True, kw_only=True):
    """All notes of a run at one moment. Never changed: `apply` makes the next one."""

    vault: dict[str, NoteValue] = {}
    memory: tuple[str, ...] = ()
    outside: frozenset[str] = frozenset()
    """What of it was written down after others' words had been read: shown as data."""
    tasks: tuple[NoteTask, ...] = ()
    goals: tuple[Goal, ...] = ()


_NOTHING = NoteState()
Step = Callable[[NoteState, dict[str, Any]], tuple[NoteState, str]]


def apply(state: NoteState, name: str, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    """The state after a note tool's call, and what the tool answers. A `ToolError` means no change."""
    return _STEPS[name](state, arguments)


def _vault_set(state: NoteState, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    name, text = arguments["name"].strip(), arguments["value"]
    if not name or len(name) > 100:
        raise ToolError(f"a name has 1 to 100 characters, not {len(name)}")
    if len(text) > MAX_VALUE:
        raise ToolError(
            f"the value has {len(text):,} characters, at most {MAX_VALUE:,} fit; store a part of it"
        )
    if name not in state.vault and len(state.vault) >= MAX_NAMES:
        raise ToolError(f"the vault holds {MAX_NAMES} names, the most allowed; use one of them again")
    others = sum(len(value.text) for key, value in state.vault.items() if key != name)
    if others + len(text) > MAX_VAULT:
        raise ToolError(f"the vault would hold {others + len(text):,} characters, at most {MAX_VAULT:,} fit")
    value = NoteValue(text=text, summary=_line(arguments.get("summary") or "", 120))
    vault = {**state.vault, name: value}
    return msgspec.structs.replace(state, vault=vault), f"stored {name!r}, {len(text):,} characters"


def _vault_get(state: NoteState, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    name = arguments["name"].strip()
    value = state.vault.get(name)
    if value is None:
        known = ", ".join(state.vault) or "nothing yet"
        raise ToolError(f"there is no {name!r} in the vault; it holds: {known}")
    start, length = arguments.get("start") or 0, arguments.get("length") or _PAGE
    part = value.text[start : start + length]
    rest = len(value.text) - start - len(part)
    if rest > 0:
        part += f"\n[{rest:,} more characters; go on with start={start + length}]"
    return state, part


def _vault_list(state: NoteState, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    return state, vault_lines(state) or "the vault is empty"


def _memory_add(state: NoteState, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    text = _text(arguments["text"])
    if text in state.memory:
        return state, "already remembered"
    if len(state.memory) >= MAX_MEMORY:
        raise ToolError(f"the memory holds {MAX_MEMORY} entries, the most allowed")
    return msgspec.structs.replace(state, memory=(*state.memory, text)), "remembered"


def _memory_list(state: NoteState, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    return state, _remembered(state, state.memory) or "nothing is remembered yet"


def _memory_search(state: NoteState, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    words = arguments["query"].lower().split()
    ranked = [(sum(word in text.lower() for word in words), text) for text in state.memory]
    found = [text for hits, text in sorted(ranked, key=lambda pair: -pair[0]) if hits][:20]
    return state, _remembered(state, found) or f"nothing remembered about {arguments['query']!r}"


def _todo(state: NoteState, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    action = arguments["action"]
    if action == "list":
        return state, task_lines(state) or "there are no tasks"
    if action == "add":
        texts = _texts(arguments)
        if not texts:
            raise ToolError("add needs texts: one entry for each task")
        if len(state.tasks) + len(texts) > MAX_TASKS:
            raise ToolError(f"there would be {len(state.tasks) + len(texts)} tasks, at most {MAX_TASKS}")
        first = len(state.tasks) + 1
        added = tuple(NoteTask(id=first + index, text=text) for index, text in enumerate(texts))
        state = msgspec.structs.replace(state, tasks=state.tasks + added)
        return state, task_lines(state)
    number = arguments.get("id")
    if number is None or not any(task.id == number for task in state.tasks):
        raise ToolError(f"there is no task {number}; the tasks are:\n{task_lines(state) or '(none)'}")
    if not arguments.get("status") and not arguments.get("texts"):
        raise ToolError("update needs a status or a new text")

    def changed(task: NoteTask) -> NoteTask:
        texts = _texts(arguments)
        return NoteTask(
            id=task.id,
            text=texts[0] if texts else task.text,
            status=arguments.get("status") or task.status,
        )

    tasks = tuple(changed(task) if task.id == number else task for task in state.tasks)
    state = msgspec.structs.replace(state, tasks=tasks)
    return state, task_lines(state)


def _goals(state: NoteState, arguments: dict[str, Any]) -> tuple[NoteState, str]:
    action = arguments["action"]
    if action == "set":
        texts = _texts(arguments)
        if not texts or len(texts) > MAX_GOALS:
            raise ToolError(
                f"set needs texts: 1 to {MAX_GOALS} goals, not {len(texts)}; they replace the old ones"
            )
        goals = tuple(Goal(id=index, text=text) for index, text in enumerate(texts, 1))
        state = msgspec.structs.replace(state, goals=goals)
    elif action == "done":
        number = arguments.get("id")
        if not any(goal.id == number for goal in state.goals):
            raise ToolError(f"there is no goal {number}; the goals are:\n{goal_lines(state) or '(none)'}")
        goals = tuple(
            msgspec.structs.replace(goal, done=True) if goal.id == number else goal for goal in state.goals
        )
        state = msgspec.structs.replace(state, goals=goals)
    return state, goal_lines(state) or "there are no goals"


_STEPS: dict[str, Step] = {
    "vault_set": _vault_set,
    "vault_get": _vault_get,
    "vault_list": _vault_list,
    "memory_add": _memory_add,
    "memory_list": _memory_list,
    "memory_search": _memory_search,
    "todo": _todo,
    "goals": _goals,
}


def vault_lines(state: NoteState) -> str:
    return "\n".join(
        f"- {name} ({len(value.text):,} characters)" + (f": {value.summary}" if value.summary else "")
        for name, value in state.vault.items()
    )


def task_lines(state: NoteState) -> str:
    return "\n".join(f"{task.id}. [{task.status}] {task.text}" for task in state.tasks)


def goal_lines(state: NoteState) -> str:
    return "\n".join(f"{goal.id}. [{'done' if goal.done else 'open'}] {goal.text}" for goal in state.goals)


def _remembered(state: NoteState, texts: Iterable[str]) -> str:
    """Entries of the memory as a model is shown them: what others may have put there comes last, framed."""
    lines: tuple[list[str], list[str]] = ([], [])
    for text in texts:
        lines[text in state.outside].append(f"- {text}")
    framed = [frame("\n".join(lines[True]), what="kept notes")] if lines[True] else []
    return "\n".join((*lines[False], *framed))


def _text(raw: str) -> str:
    text = " ".join(raw.split())
    if not text or len(text) > MAX_TEXT:
        raise ToolError(
            f"a note has 1 to {MAX_TEXT} characters, not {len(text)}; put longer text in the vault"
        )
    return text


def _texts(arguments: dict[str, Any]) -> list[str]:
    given: list[str] = arguments.get("texts") or []
    return [_text(text) for text in given]


def _line(text: str, most: int) -> str:
    line = " ".join(text[: most * 4].split())
    return line if len(line) <= most else line[:most] + "…"


@dataclass(frozen=True, kw_only=True, slots=True)
class Persistence:
    """Where the memory of a permanent agent is kept. The app decides on the place and the key."""

    get: Callable[[], Awaitable[bytes | None]]
    change: Callable[[Callable[[bytes | None], bytes]], Awaitable[None]]
    """Read and write as one: other runs of the agent may be adding at the same moment."""


class Notes:
    """The notes of one run: the current state and, for an agent with a memory, where that is kept."""

    def __init__(
        self, persistence: Persistence | None = None, has_read: Callable[[], bool] = lambda: False
    ) -> None:
        """`has_read`: whether the run has read others' words, so that what it writes down may be theirs."""
        self.state = _NOTHING
        self._persistence, self._has_read = persistence, has_read

    async def open(self) -> None:
        """Take up what the agent remembers from earlier runs."""
        kept = _decoded(None if self._persistence is None else await self._persistence.get())
        self.state = _holding(self.state, _union(kept, _entries(self.state)))

    async def use(self, name: str, arguments: dict[str, Any]) -> str:
        before = self.state.memory
        self.state, text = apply(self.state, name, arguments)
        if self.state.memory is not before and self._persistence is not None:
            if self.state.outside or self._has_read():
                outside = self.state.outside.union(self.state.memory[len(before) :])
                self.state = msgspec.structs.replace(self.state, outside=outside)
            # Another run of the same agent may have added to the memory meanwhile: add to that, not over it.
            added = _entries(self.state)
            await self._persistence.change(lambda kept: _encoded(_union(_decoded(kept), added)))
        return text

    def rebuild(self, calls: Iterable[tuple[str, str]]) -> None:
        """Go through the finished calls of a log again: names of tools and their arguments as JSON."""
        parsers = {each.name: each.parse for each in notes_tools(self)}
        for name, arguments in calls:
            if name in parsers:
                try:
                    self.state, _ = apply(self.state, name, parsers[name](arguments))
                except ToolError:
                    continue  # it failed the first time as well, and changed nothing

    def summary(self, kind: Kind, most: int = _SUMMARY) -> str:
        """What enters the prompt, in about so many characters; empty when there is nothing to say."""
        if self.state is _NOTHING:
            return ""
        if kind == "vault":
            return _head(vault_lines(self.state), most)
        if kind == "tasks":
            return _head(task_lines(self.state), most)
        if kind == "goals":
            return _head(goal_lines(self.state), most)
        newest: list[str] = []
        older = ""
        size = _OF_A_FRAME if self.state.outside else 0
        for text in reversed(self.state.memory):
            size += len(text) + 3
            if size > most and newest:
                older = f"({len(self.state.memory) - len(newest)} older: use memory_search)"
                break
            newest.append(text)
        return "\n".join(filter(None, (_remembered(self.state, newest), older)))

    def clear(self) -> None:
        """The run has ended. A kept memory stays where it is kept."""
        self.state = _NOTHING


class _Outside(Struct, frozen=True, kw_only=True):
    """How an entry is kept that may be others' words. The others are kept as texts."""

    outside: str


_Entries = dict[str, bool]
"""What is remembered, each with whether it may be others' words."""


def _entries(state: NoteState) -> _Entries:
    return {text: text in state.outside for text in state.memory}


def _holding(state: NoteState, entries: _Entries) -> NoteState:
    outside = frozenset(text for text, is_outside in entries.items() if is_outside)
    return msgspec.structs.replace(state, memory=tuple(entries), outside=outside)


def _encoded(entries: _Entries) -> bytes:
    return msgspec.json.encode([_Outside(outside=text) if out else text for text, out in entries.items()])


def _decoded(data: bytes | None) -> _Entries:
    try:
        kept = msgspec.json.decode(data, type=tuple[str | _Outside, ...]) if data else ()
    except msgspec.DecodeError:
        return {}  # a memory that cannot be read must not keep the agent from working
    return {each if isinstance(each, str) else each.outside: not isinstance(each, str) for each in kept}


def _union(one: _Entries, other: _Entries) -> _Entries:
    both = {text: one.get(text, False) or other.get(text, False) for text in (*one, *other)}
    return dict(list(both.items())[-MAX_MEMORY:])


def _head(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    lines = text[:most].rsplit("\n", 1)[0]
    return f"{lines}\n({text.count(chr(10)) - lines.count(chr(10))} more)"


def notes_tools(notes: Notes) -> list[Tool]:
    """The tools over one run's notes. They touch nothing but those, so none of them ever asks a person."""

    async def vault_set(name: str, value: str, summary: str = "") -> str:
        return await notes.use("vault_set", {"name": name, "value": value, "summary": summary})

    async def vault_get(ctx: ToolContext, name: str, start: int = 0, length: int | None = None) -> str:
        text = await notes.use("vault_get", {"name": name, "start": max(start, 0), "length": length})
        # Code may have put others' words there without the marks they came with; what it reads itself it
        # needs as it was, and what it prints is framed where that is called for.
        return text if "/" in ctx.call_id else frame(text, what="kept text")

    async def vault_list() -> str:
        return await notes.use("vault_list", {})

    async def memory_add(text: str) -> str:
        return await notes.use("memory_add", {"text": text})

    async def memory_list() -> str:
        return await notes.use("memory_list", {})

    async def memory_search(query: str) -> str:
        return await notes.use("memory_search", {"query": query})

    async def todo(
        action: Literal["add", "update", "list"],
        texts: list[str] | None = None,
        id: int | None = None,
        status: TaskStatus | None = None,
    ) -> str:
        return await notes.use("todo", {"action": action, "texts": texts, "id": id, "status": status})

    async def goals(
        action: Literal["set", "done", "list"], texts: list[str] | None = None, id: int | None = None
    ) -> str:
        return await notes.use("goals", {"action": action, "texts": texts, "id": id})

    functions = (vault_set, vault_get, vault_list, memory_add, memory_list, memory_search, todo, goals)
    return [
        tool(description=describe(each.__name__), effect="read", private=False)(each) for each in functions
    ]
