"""The rules for what is to be done, not found: write a file, run a command, run the tests, list commits.

Only what is said word for word is done: the name and the text of the file, the command in quotes. So a
person without a key can see what asks for approval. The root agent calls this before it looks for staff.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from retinue.models.offline.results import clip, paths_in, unique
from retinue.models.offline.scene import Done, Move, Say, Scene, Wish
from retinue.models.offline.tour import BUILD

_FILE = r"[`'\"]?(?P<path>[\w.@-]+(?:/[\w.@-]+)*\.\w{1,8})[`'\"]?"
_POLITE = r"(?is)^\s*(?:please\s+|can you\s+|could you\s+)?"
_WRITES = (
    re.compile(
        _POLITE
        + r"(?:write|create|make|save|add)\s+(?:me\s+)?(?:(?:a|the)\s+)?(?:new\s+)?(?:text\s+)?(?:file\s+)?"
        rf"(?:called\s+|named\s+)?{_FILE}\s*,?\s*"
        r"(?:saying|that\s+says|which\s+says|containing|with\s+(?:the\s+)?(?:texts?|contents?|words?|lines?)"
        r"(?:\s+of)?|with|:)\s*(?P<text>.+?)\s*$"
    ),
    re.compile(
        _POLITE + r"(?:write|save|put)\s+(?P<text>.+?)\s+(?:to|into|in|as)\s+"
        rf"(?:(?:the|a)\s+(?:file\s+)?)?{_FILE}\W*$"
    ),
)
_RUNS = re.compile(
    _POLITE
    + r"(?:run|execute)\s+(?:the\s+)?(?:shell\s+)?(?:command\s*)?:?\s*(?:`(?P<a>[^`]+)`|\"(?P<b>[^\"]+)\""
    r"|'(?P<c>[^']+)')\W*$"
)
_TESTS = re.compile(
    _POLITE + r"(?:run|execute)\s+(?:all\s+)?(?:the\s+|my\s+|its\s+)?(?:unit\s+)?tests?(?:\s+suite)?\W*$"
)
# What a result begins with that was made with other arguments: a note to the model, not to people.
_NOT_ALLOWED = re.compile(r"refused|denied|this call of \S+ was not approved|.{0,40}rejected")
_CHANGED = re.compile(
    r"\A\[the person changed the arguments of this call to (?P<arguments>.*?)(?<=[}…])\]\n", re.DOTALL
)
_RANGE = re.compile(r"(?<![\w./~^-])(?P<range>[\w./~^-]*\w\.\.\.?[\w./~^-]+)(?![\w/])")


def decide(scene: Scene) -> Move | None:
    """The call that the task spells out, then what came of it; None if it spells out none."""
    if _TESTS.match(scene.task) and scene.offers("bash"):
        return _tests(scene)
    wish = _spelled_out(scene)
    if wish is None:
        return None
    made = [one for one in scene.done if one.name == wish.name]
    if made:
        return _told(made[-1])
    return scene.ask([wish])


def commits(scene: Scene) -> Move | None:
    """The commits of a range that the task names, for an agent that has nothing else to go by."""
    named = _RANGE.search(scene.task)
    if named is None or not scene.offers("bash"):
        return None
    made = [one for one in scene.done if one.name == "bash"]
    if made:
        return _told(made[-1])
    return scene.ask([scene.wish("bash", command=f"git log --oneline --no-decorate {named['range']}")])


def _spelled_out(scene: Scene) -> Wish | None:
    """As `Scene.wish`, but also for a call that was made: whether it was is asked afterwards."""
    ran = _RUNS.match(scene.task)
    if ran and "bash" in scene.tools:
        command = next(text for text in ran.group("a", "b", "c") if text)
        return Wish(name="bash", arguments={"command": command.strip()})
    for pattern in _WRITES:
        wrote = pattern.match(scene.task)
        if wrote and "write" in scene.tools:
            text = re.sub(r"^([`'\"])(.*)\1$", r"\2", wrote["text"].strip(), flags=re.DOTALL)
            return Wish(name="write", arguments={"path": wrote["path"], "content": f"{text}\n"})
    return None


def _tests(scene: Scene) -> Move:
    ran = [one for one in scene.done if one.name == "bash"]
    if ran:
        return _told(ran[-1])
    ask = scene.ask([scene.wish("ls", path=".")])
    if ask is not None:
        return ask
    top = unique(path for one in scene.results("ls") for path in paths_in(one.text))
    command = next((command for name, command in BUILD.items() if name in top), "")
    ask = scene.ask([scene.wish("bash", command=command)]) if command else None
    if ask is not None:
        return ask
    known = ", ".join(f"`{name}`" for name in BUILD)
    return Say(
        text=f"**Not run:** how the tests run is not known: none of {known} is here. Say: run `COMMAND`.",
        unable=True,
    )


def _told(one: Done) -> Say:
    """What came of it. A command that ran and failed is an answer; what was not done is none, and what was
    not allowed is counted as that."""
    changed = _CHANGED.match(one.text)
    text = one.text[changed.end() :] if changed else one.text
    what = (_command(changed["arguments"]) if changed else "") or one.arguments.get("command") or one.name
    edited = ", as a person changed it" if changed else ""
    if one.name == "bash":
        if one.failed and _NOT_ALLOWED.match(text):
            return Say(text=f"**Not run:** `{clip(str(what), 200)}`: {clip(text, 600)}")
        shown = text.strip()[-2500:].replace("```", "'''")
        said = "**Ran, and failed:**" if one.failed else "**Ran:**"
        return Say(text=f"{said} `{clip(str(what), 200)}`{edited}\n\n```\n{shown}\n```")
    told = f"**{'Not done' if one.failed else 'Done'}{edited}:** {clip(text, 600)}"
    return Say(text=told, unable=one.failed and not _NOT_ALLOWED.match(text))


def _command(written: str) -> str:
    """The command in the arguments that a person wrote, if they can be read."""
    try:
        value: Any = json.loads(written)
    except (ValueError, RecursionError):
        return ""
    return str(cast("dict[str, Any]", value).get("command") or "") if isinstance(value, dict) else ""
