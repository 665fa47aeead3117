"""How a replayed workflow differs from its record: by facts, and so that a person can read it.

Called by `replay`. Clocks and machines do not count, nor the order among siblings, nor how often a run was
taken up again, nor a question to a model that a cancel cut off. It never reads what a text says: a text is
the same or it is not. What a fork's model was told of its children in the old workflow is left out, since it
says what they used there; what they reported is a fact of their own runs.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import zip_longest
from typing import Any, cast

import msgspec

from retinue.builtin_tools import DELEGATION_TOOLS
from retinue.events import (
    ApprovalRequested,
    Beside,
    CallCut,
    ChildEnded,
    ChildStarted,
    Event,
    GuardSpoke,
    LimitPassed,
    LimitReached,
    ModelReplied,
    RunFinished,
    RunQueued,
    RunResumed,
    RunStarted,
    StepRetried,
    StepStarted,
    ToolReturned,
)
from retinue.types import HANDED_ON, AgentSpec

_VOLATILE = frozenset(
    {
        "at",
        "pos",
        "seq",
        "used",
        "v",
        "duration_ms",
        "timed",
        "pid",
        "host",
        "owner",
        "cwd",
        "options",
        "forked_from",
        "forked_at",
        "preview",
        "answer_by",
        "limits",
        "reserved",
        "as_tool",
        "cut",
        "outcome",
        "unmet",
        "concern",
        "of_copy",
        "of_call",
        "digest",
        "uncovered",
    }
)
"""Fields of an event that hold clocks, machines and the files of the moment (what a call would change, as a
person was shown it), what was allowed, and what other fields say as well and earlier versions
left to them. Everything else has to come out the same."""
_COUNTED = ("wrong", "meant", "corrects")
"""How a call that started no child was counted. Earlier versions did not say so."""
_WITHIN = {"report": ("duration_ms", "claims", "uncited", "uncited_at", "failed_calls")}
"""The same within its parts: how long a run took, and what its text and its sources say already."""
_SETS = ("tools", "disallowed_tools", "shown", "mcp_servers", "skills", "deny")
"""What a definition lists in whatever order."""
MOST_SHOWN = 30
"""Differences that are written out, the first ones: the rest mostly follows from them."""
MOST_LINES = 14
MOST_WIDE = 200

Group = tuple[str, str, Any, Any, Any, Any]
Facts = dict[str, Any]


def difference(before: Sequence[Event], after: Sequence[Event]) -> str:
    """How two logs differ, as a unified diff with a hunk for each fact; empty if they do not."""
    copied = told_before(before)
    old, new, titles = _grouped(before, copied), _grouped(after, copied), _Titles((*before, *after))
    hunks: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for group in dict.fromkeys((*old, *new)):
        mine, theirs = _known_to(old.get(group, []), new.get(group, []))
        gone, come = [e for e in mine if e not in theirs], [e for e in theirs if e not in mine]
        for a, b in zip_longest(gone, come):
            for what, lines in _hunks(a, b):
                hunks.setdefault((group[1], what, tuple(lines)), []).append(titles.of(a or b))
    if not hunks:
        return ""
    shown = ["\n".join([_head(where, what), *_bounded(lines)]) for (_, what, lines), where in hunks.items()]
    more = len(shown) - MOST_SHOWN
    rest = [f"@@ and {more} more differences @@"] if more > 0 else []
    return "\n".join(["--- recorded", "+++ replayed", *shown[:MOST_SHOWN], *rest])


def _known_to(mine: list[Facts], theirs: list[Facts]) -> tuple[list[Facts], list[Facts]]:
    """Two groups without what the record may be too old to say."""
    if any(each.get(name) for each in mine for name in _COUNTED):
        return mine, theirs
    kept = (
        [{k: v for k, v in each.items() if k not in _COUNTED} for each in some] for some in (mine, theirs)
    )
    return next(kept), next(kept)


def _head(where: Sequence[str], what: str) -> str:
    """Where something differs; what does so in the same way elsewhere is said once, for all of them."""
    more = len(where) - 1
    often = f" (and {'once' if more == 1 else f'{more} times'} more in the same way)" if more else ""
    return f"@@ {where[0]}, {what}{often} @@"


def told_before(events: Sequence[Event]) -> frozenset[tuple[str, str]]:
    """What a run was told of its children before it was copied: calls and children, each by run and id."""
    copied = {e.run_id: e.forked_at or 0.0 for e in events if isinstance(e, RunStarted)}
    began = [e for e in events if isinstance(e, ChildStarted)]
    calls = {(e.run_id, call_id) for e in began for call_id in (e.call_id, e.call_id.split("/")[0])}
    told: set[tuple[str, str]] = set()
    for event in events:
        if event.at >= copied.get(event.run_id, 0.0):
            continue
        if isinstance(event, ChildEnded):
            told.add((event.run_id, event.child_id))
        elif isinstance(event, ToolReturned):
            call = (event.run_id, event.call_id)
            if call in calls or event.name in DELEGATION_TOOLS:
                told.add(call)
    return frozenset(told)


def _grouped(events: Sequence[Event], copied: Set[tuple[str, str]]) -> dict[Group, list[Facts]]:
    """What the events say, by run, kind and place."""
    groups: dict[Group, list[Facts]] = {}
    stopped = {e.run_id for e in events if isinstance(e, RunFinished) and e.report.status == "cancelled"}
    replied = {(e.run_id, e.step) for e in events if isinstance(e, ModelReplied)}
    for event in events:
        if isinstance(event, RunResumed | RunQueued | StepRetried | CallCut | LimitReached | LimitPassed):
            continue  # how it got there is not what came out
        if isinstance(event, Beside):
            continue  # a replay changes no file, and nobody names it
        if (
            isinstance(event, StepStarted)
            and event.run_id in stopped
            and (event.run_id, event.step) not in replied
        ):
            continue  # nor whether a run that was stopped had just begun to ask
        facts = _facts(event)
        if isinstance(event, ToolReturned) and (event.run_id, event.call_id) in copied:
            facts.pop("text")
            facts.pop("fields", None)  # the same, for code
        elif isinstance(event, ChildEnded) and (event.run_id, event.child_id) in copied:
            del facts["notice"]
        place = (facts.get(name) for name in ("step", "call_id", "child_id", "approval_id"))
        group = cast("Group", (event.run_id, facts["type"], *place))
        groups.setdefault(group, []).append(facts)
    return groups


def _facts(event: Event) -> Facts:
    facts: Facts = {k: v for k, v in msgspec.to_builtins(event).items() if k not in _VOLATILE}
    for part, volatile in _WITHIN.items():
        if part in facts:
            facts[part] = {k: v for k, v in facts[part].items() if k not in volatile}
    if isinstance(event, GuardSpoke):
        del facts["about"]  # the place of an event, as its own
    if isinstance(event, RunStarted):
        facts["tools"] = sorted(event.tools)  # which ones it was shown, in whatever order
        facts["spec"] = msgspec.to_builtins(unordered(event.spec))
    return facts


def unordered(spec: AgentSpec) -> AgentSpec:
    """A definition wherever its file lies, and in whatever order it lists things."""
    listed = {name: tuple(sorted(found)) for name in _SETS if (found := getattr(spec, name)) is not None}
    own = spec.model_settings.without(HANDED_ON)  # what comes from above depends on whose models they are
    return msgspec.structs.replace(spec, origin="", model_settings=own, given={}, **listed)


class _Titles:
    """Says of which run, step and call a fact is."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._agents = {e.run_id: e.spec.name for e in events if isinstance(e, RunStarted)}
        self._steps = {
            (e.run_id, call.id): e.step
            for e in events
            if isinstance(e, ModelReplied)
            for call in e.message.calls
        }
        self._asked = {e.approval_id: e.tool for e in events if isinstance(e, ApprovalRequested)}

    def of(self, facts: Facts) -> str:
        run_id, kind = facts["run_id"], facts["type"].replace("_", " ")
        words = [f"{self._agents.get(run_id, 'run')} {run_id}"]
        call_id = facts.get("call_id") if kind != "run started" else None
        step = facts.get("step") or self._steps.get((run_id, str(call_id).split("/")[0]))
        if step:
            words.append(f"step {step}")
        tool = facts.get("name") or facts.get("tool") or self._asked.get(facts.get("approval_id", ""))
        if call_id:
            words.append(f"call {call_id}" + (f" of {tool}" if tool else ""))
        if "child_id" in facts:
            words.append(f"child {facts['agent']} {facts['child_id']}")
        return f"{', '.join(words)}: {kind}"


def _hunks(before: Facts | None, after: Facts | None) -> Iterator[tuple[str, list[str]]]:
    """What differs between two facts, and the lines that say how."""
    if before is None or after is None:
        facts, sign, where = (after, "+", "replay") if before is None else (before, "-", "record")
        told = [f"{sign}{path}: {_short(value)}" for path, value in _flat(_told(facts or {})) if value]
        yield f"only in the {where}", told
        return
    yield from _differing(before, after, "")


def _differing(old: Any, new: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    """The plain values that differ, by where they stand. Of a list, what was added and what was removed."""
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        was, now = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
        for key in dict.fromkeys((*was, *now)):
            yield from _differing(was.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        had, has = cast("Sequence[Any]", old), cast("Sequence[Any]", new)
        if len(had) == len(has) and any(isinstance(each, Mapping) for each in (*had, *has)):
            for index, (a, b) in enumerate(zip(had, has, strict=True)):
                yield from _differing(a, b, f"{path}[{index}]")
            return
        removed = [f"-{_short(each)}" for each in had if each not in has]
        added = [f"+{_short(each)}" for each in has if each not in had]
        # With the same in it, another order or number of them: then that is the difference.
        yield path, [*removed, *added] or _changed(_short(had), _short(has))
    else:
        yield path, _changed(old, new)


def _told(facts: Facts) -> Facts:
    """What the title of a fact does not say yet."""
    known = ("run_id", "root_id", "parent_id", "depth", "type", "spec", "parts", "system", "limits")
    return {name: value for name, value in facts.items() if name not in known}


def _changed(old: Any, new: Any) -> list[str]:
    """Two values as the lines that differ, with a line around them; without the heads of a diff."""
    lines = list(difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=1))[3:]
    return [" …" if line.startswith("@@") else line for line in lines]  # those of the values have a sign


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, str):
        return [json.dumps(value, ensure_ascii=False)]
    if value[:1] in "{[":  # arguments and results in JSON: a line for each part
        try:
            value = json.dumps(json.loads(value), ensure_ascii=False, indent=1)
        except (ValueError, RecursionError):
            return value.splitlines()
    return value.splitlines() or [""]


def _bounded(lines: Sequence[str]) -> list[str]:
    shown = [line if len(line) <= MOST_WIDE else f"{line[: MOST_WIDE - 1]}…" for line in lines[:MOST_LINES]]
    more = len(lines) - MOST_LINES
    return [*shown, f" … and {more} more lines"] if more > 0 else shown


def _short(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value in a nested one, by where it stands."""
    if isinstance(value, Mapping) and value:
        for key, each in cast("Mapping[str, Any]", value).items():
            yield from _flat(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list | tuple) and value:
        for index, each in enumerate(cast("Sequence[Any]", value)):
            yield from _flat(each, f"{path}[{index}]")
    else:
        yield path, value
