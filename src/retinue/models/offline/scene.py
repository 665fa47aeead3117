"""What the offline model has before it: the request, read once into a `Scene`.

A scene holds the task, the calls made for it so far with their results, and the tools on offer. The rules
of every role are functions of a scene and keep nothing between calls, so the same request always gets the
same answer. Nothing here trusts a result: all of it may be malformed or hostile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from retinue.types import (
    AssistantMessage,
    JsonSchema,
    Message,
    ModelRequest,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

MAX_RESULT = 60_000
_ATTACHMENT = re.compile(r'<attachment name="([^"]*)"[^>]*>\n(.*?)\n</attachment>', re.DOTALL)
KNOWN = "## External Knowledge\n"
"""How the section begins that stands before the first step when the question was looked up already."""
LABELS = (
    *("query", "target", "task", "prompt", "problem", "question", "source", "sources"),
    *("scope", "focus", "constraints", "url", "points"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A call that was made, and what came of it."""

    name: str
    arguments: dict[str, Any]
    text: str
    failed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A call to make."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SceneItem:
    """One finding in a form that can fill a schema."""

    title: str
    path: str = ""
    line: int = 0
    url: str = ""
    text: str = ""
    severity: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """The next move: call tools."""

    wishes: tuple[Wish, ...]
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Say:
    """The next move: answer."""

    text: str
    items: tuple[SceneItem, ...] = ()
    unable: bool = False
    """It is no answer: it says that there is none."""


Move = Ask | Say


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """`role` is the name the system prompt gives; `said` the last answer, if this is about one.

    `known` is the report of an agent that looked the question up before this one began; `attached` are the
    files that came with the question, by name.
    """

    role: str
    task: str
    fields: dict[str, str]
    done: tuple[Done, ...]
    tools: dict[str, ToolSpec]
    turn: int
    final: bool
    said: str = ""
    known: str = ""
    attached: dict[str, str] = field(default_factory=dict[str, str])

    def offers(self, *names: str) -> bool:
        return any(name in self.tools for name in names)

    def results(self, *names: str) -> list[Done]:
        """Calls of these tools that gave something."""
        return [one for one in self.done if one.name in names and not one.failed]

    def failures(self) -> list[Done]:
        return [one for one in self.done if one.failed]

    def wish(self, tool: str, **wanted: Any) -> Wish | None:
        """A call of a tool that is on offer, with the arguments it knows, if it was not made already."""
        spec = self.tools.get(tool)
        if spec is None:
            return None
        arguments = _fit(spec.schema, wanted)
        if arguments is None or any(one.name == tool and one.arguments == arguments for one in self.done):
            return None
        return Wish(name=tool, arguments=arguments)

    def ask(self, wishes: Iterable[Wish | None], most: int = 8) -> Ask | None:
        """The wishes that can be had, each once, or None if there are none or this is the last turn."""
        if self.final:
            return None
        found: list[Wish] = []
        for wish in wishes:
            if wish is not None and wish not in found:
                found.append(wish)
        return Ask(wishes=tuple(found[:most])) if found else None


def read(request: ModelRequest) -> Scene:
    """The scene of a request."""
    start, turns = _episode(request.messages)
    done = _calls(request.messages[start:])
    final = not request.tools or request.tool_choice == "none" or request.schema is not None
    said = ""
    if final and not done and start > 0:
        # Asked to sum up or to mend an answer: the work was done before that message.
        start, done = 0, _calls(request.messages)
        said = _last_answer(request.messages)
    first = request.messages[start] if request.messages else None
    text = first.text if isinstance(first, UserMessage) else ""
    attached: dict[str, str] = dict(_ATTACHMENT.findall(text))
    text = _ATTACHMENT.sub("", text).strip() if attached else text
    told = [message.text for message in request.messages[start + 1 :] if isinstance(message, UserMessage)]
    known = [text for text in told if text.startswith(KNOWN)]
    steering = [text for text in told if not text.lstrip().startswith(("[", "<", KNOWN))]
    fields = labelled(text)
    task = next((fields[name] for name in LABELS if name in fields), text)
    if steering and not final:
        task = "\n".join([task, *steering])
    return Scene(
        role=_role(request.system),
        task=question_of(task),
        fields=fields,
        done=done,
        tools={spec.name: spec for spec in request.tools},
        turn=turns,
        final=final,
        said=said,
        attached=attached,
        known="\n".join(text.split("\n", 2)[-1] for text in known),
    )


def _episode(messages: tuple[Message, ...]) -> tuple[int, int]:
    """Where the newest task begins, and how many turns it has had: a task follows a finished answer."""
    start = 0
    for index in range(1, len(messages)):
        before = messages[index - 1]
        if (
            isinstance(messages[index], UserMessage)
            and isinstance(before, AssistantMessage)
            and not before.calls
        ):
            start = index
    turns = sum(isinstance(message, AssistantMessage) for message in messages[start:])
    return start, turns


def _calls(messages: Iterable[Message]) -> tuple[Done, ...]:
    wanted: dict[str, tuple[str, dict[str, Any]]] = {}
    done: list[Done] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            wanted.update({call.id: (call.name, _object(call.arguments)) for call in message.calls})
        elif isinstance(message, ToolMessage):
            name, arguments = wanted.get(message.call_id, (message.name, dict[str, Any]()))
            text = message.text[:MAX_RESULT]
            done.append(Done(name=name, arguments=arguments, text=text, failed=message.is_error))
    return tuple(done)


def _last_answer(messages: Iterable[Message]) -> str:
    said = [m.text for m in messages if isinstance(m, AssistantMessage) and not m.calls and m.text.strip()]
    return said[-1] if said else ""


def _object(raw: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _role(system: str) -> str:
    match = re.search(r"\bYou are (?:the )?(?:agent )?`?([A-Za-z][\w-]{1,63})`?", system[:2000])
    return match[1].lower() if match else ""


def labelled(text: str) -> dict[str, str]:
    """The inputs of a task written as `name: value` lines or as one JSON object."""
    stripped = text.strip()
    if stripped.startswith("{"):
        found = {key: str(value) for key, value in _object(stripped).items() if key in LABELS}
        if found:
            return found
    fields: dict[str, str] = {}
    current = ""
    for line in stripped.split("\n"):
        match = re.match(r"\s*[-*]*\s*\**(\w{3,20})\**\s*:\**\s(.*)", line)
        if match and match[1].lower() in LABELS and match[1].lower() not in fields:
            current = match[1].lower()
            fields[current] = match[2].strip()
        elif current:
            fields[current] = f"{fields[current]}\n{line}".strip()
        else:
            return {}  # text before the first label: this is prose, not a form
    return fields


def question_of(text: str) -> str:
    """The question alone, where a prompt has sections or tags around it."""
    match = re.search(r"<(question|task)>\s*(.*?)\s*</\1>", text, re.DOTALL)
    if match:
        return match[2]
    match = re.search(r"(?ims)^#{1,4}\s*(?:the\s+)?(?:question|task)\s*$\n(.*?)(?=^#{1,4}\s|\Z)", text)
    return match[1].strip() if match and match[1].strip() else text.strip()


def _fit(schema: JsonSchema, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """The wanted arguments that a schema knows, and something for each other one it requires."""
    known = schema.get("properties")
    properties = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    arguments = {name: value for name, value in wanted.items() if name in properties and value is not None}
    main = next((str(value) for value in wanted.values() if isinstance(value, str)), "")
    required = schema.get("required")
    for name in cast("list[Any]", required) if isinstance(required, list) else []:
        if isinstance(name, str) and name not in arguments:
            about: Any = properties.get(name, {})
            value = _guess(cast("dict[str, Any]", about) if isinstance(about, dict) else {}, main)
            if value is None:
                return None
            arguments[name] = value
    return arguments


def _guess(about: dict[str, Any], main: str) -> Any:
    options = about.get("enum")
    if isinstance(options, list) and options:
        return cast("list[Any]", options)[0]
    if "default" in about:
        return about["default"]
    kind = about.get("type", "string")
    return {"string": main, "integer": 1, "number": 1, "boolean": False, "array": [main]}.get(
        kind if isinstance(kind, str) else "string"
    )
