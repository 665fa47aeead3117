"""What the fields of an agent file mean: from a parsed document to an `AgentSpec`, with every finding.

Called by `loader` and `check`. A file narrows what an agent may do and never widens it: fields that ask
for authority (`permissionMode`, hooks, servers to start) are reported and not obeyed. Every mistake in a
file is reported, not the first alone.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

import msgspec

from retinue.agents.document import Document, Finding, Invalid, Level, YamlValue, canonical, strip_hidden
from retinue.agents.shorthand import to_schema
from retinue.agents.toolnames import NAME, RESERVED, convert, split_names
from retinue.settings.trusted_folders import TrustState, fingerprint
from retinue.types import EFFORTS, AgentSpec, JsonSchema, Limits, ModelSettings, seconds_of

Scope = Literal["project", "user", "builtin"]

_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}")
_CLAUDE_MODELS = {
    "haiku": "the small model",
    "sonnet": "the model of the parent",
    "opus": "the model of the parent",
}

# Fields of other programs: what becomes of them here.
ELSEWHERE = {
    "permission_mode": "approvals are the person's to give: see 'approvals' in the settings",
    "permissions": "approvals are the person's to give: see 'approvals' in the settings",
    "allow": "a file cannot allow anything; 'deny' and 'tools' narrow",
    "hooks": "there are no hooks: a file cannot make the host run commands",
    "color": "'icon' is what is shown",
    "initial_prompt": "the prompt comes from the parent; put standing orders into the body",
    "version": "nothing reads it",
    "author": "nothing reads it",
    "tags": "nothing reads it",
    "license": "nothing reads it",
    "metadata": "nothing reads it",
}


@dataclass(kw_only=True, slots=True)
class _Reading:
    """The findings of one file as they come up."""

    file: str
    findings: list[Finding] = field(default_factory=list[Finding])

    def add(self, level: Level, line: int | None, message: str, fix: str = "") -> None:
        self.findings.append(Finding(file=self.file, line=line, level=level, message=message, fix=fix))


WIDENING = ("extra_headers", "extra_body", "service_tier")
"""Settings of a model that a file of a repository may not choose."""

_UNREAD = "what this file says could not be read"

Convert = Callable[[YamlValue, _Reading], Any]


def to_spec(
    document: Document,
    file: str,
    *,
    scope: Scope,
    stem: str,
    trust: TrustState = "unknown",
    rough: bool = False,
) -> tuple[AgentSpec | None, tuple[Finding, ...]]:
    """The spec, or None where the file has errors; and all findings. `rough`: of a file with errors, what can
    be read of it, for a check that looks for more of them."""
    reading = _Reading(file=file, findings=list(document.findings))
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value in document.fields.items():
        name = canonical(key)
        if name in lines:
            reading.add("error", value.line, f"'{key}' is given twice", f"line {lines[name]} has it too")
            continue
        lines[name] = value.line
        if name not in CONVERTERS:
            _explain(reading, key, name, value)
            continue
        try:
            values[name] = CONVERTERS[name](value, reading)
        except Invalid as mistake:
            reading.findings.append(mistake.at(file))
    _name(values, lines, reading, stem)
    if "description" not in lines:
        reading.add(
            "error", 1, "'description' is missing", "say what the agent is for: a parent chooses it by this"
        )
    if not document.body:
        reading.add(
            "error", document.body_line, "the body is empty", "the body is the system prompt: write it"
        )
    if scope == "project" and trust != "trusted":
        _distrust(values, lines, reading, trust)
    if any(finding.level == "error" for finding in reading.findings):
        if not rough:
            return None, tuple(reading.findings)
        values = {"name": stem, "description": _UNREAD, **values}
    if "disallowed_tools" in values:
        values["disallowed_tools"], patterns = values["disallowed_tools"]
        values["deny"] = (*values.get("deny", ()), *patterns)
    if "output_schema" in values:
        values.setdefault("output_format", "json")
    origin = "builtin" if scope == "builtin" else file
    return AgentSpec(prompt=document.body or _UNREAD, origin=origin, **values), tuple(reading.findings)


def _explain(reading: _Reading, key: str, name: str, value: YamlValue) -> None:
    """A field that means nothing here: never obeyed, never fatal, always said."""
    if name in ELSEWHERE:
        matters = name in ("permission_mode", "permissions", "allow", "hooks") and value.raw != "default"
        fix = ELSEWHERE[name]
        if value.raw == "plan":
            fix = "to keep the agent to reading, write 'disallowed_tools: [write, edit, bash]'"
        reading.add("warning" if matters else "note", value.line, f"'{key}' is not obeyed here", fix)
        return
    near = get_close_matches(name, CONVERTERS, n=1, cutoff=0.7)
    fix = f"did you mean '{near[0]}'?" if near else "known fields: " + ", ".join(sorted(CONVERTERS))
    reading.add("warning", value.line, f"unknown field '{strip_hidden(key)[:60]}'", fix)


def _name(values: dict[str, Any], lines: dict[str, int], reading: _Reading, stem: str) -> None:
    if "name" not in lines:
        values["name"] = stem
        reading.add("warning", 1, f"'name' is missing; the file's own name '{stem}' is used", "add 'name:'")
    name = values.get("name")
    if name is None:
        return
    plain = name.replace(".", "-")
    if plain != name and NAME.fullmatch(plain):
        reading.add(
            "note", lines.get("name", 1), f"'{name}' goes by '{plain}': models take no dot in a tool's name"
        )
        values["name"] = name = plain
    if not NAME.fullmatch(name):
        usable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64] or "my-agent"
        reading.add(
            "error",
            lines.get("name", 1),
            f"the name {name[:80]!r} cannot be used: letters, digits, '-' and '_', at most 64",
            f"for example 'name: {usable}'",
        )
    elif name in RESERVED:
        reading.add("error", lines.get("name", 1), f"'{name}' is the name of a tool", "choose another name")


TRUSTED = ("model", "model_settings", "policy", "children")
"""Fields of a repository's file that count only where it is trusted."""


def asked_for(document: Document, text: str) -> str:
    """The fingerprint of a whole file that asks for what counts only where it is trusted; or empty.

    Of all of its text: who trusts an address trusts it with this prompt, these tools and this description.
    """
    return fingerprint(text) if any(canonical(key) in TRUSTED for key in document.fields) else ""


_SINCE: dict[TrustState, str] = {
    "changed": "; it is not what you trusted",
    "of the folder alone": "; you trusted the folder, and trust is now of what its files say",
}


def _distrust(values: dict[str, Any], lines: dict[str, int], reading: _Reading, trust: TrustState) -> None:
    """A file that came with a repository may not send work to an address of its choice, nor have more of it
    done than the settings say."""
    since = _SINCE.get(trust, "")
    for name in (each for each in ("policy", "children") if each in values):
        del values[name]
        reading.add(
            "warning",
            lines[name],
            f"'{name}' is not obeyed: a repository may not choose how many children there are{since}",
            "put the file under your home folder, or 'retinue config trust' its own",
        )
    model: str = values.get("model", "inherit")
    if "://" in model or "@" in model:
        values["model"] = "inherit"
        reading.add(
            "warning",
            lines["model"],
            f"the model is an address, which a repository may not choose; the parent's model is used{since}",
            "name a 'provider:model', put the file under your home folder, or 'retinue config trust' its own",
        )
    elif ":" in model:
        reading.add("note", lines["model"], f"runs on '{model}', with your key for that provider")
    settings: ModelSettings = values.get("model_settings", ModelSettings())
    unasked = [name for name in WIDENING if name in settings.given]
    if unasked:
        values["model_settings"] = settings.without(unasked)
        reading.add(
            "warning",
            lines["model_settings"],
            f"{', '.join(unasked)} of model_settings are not obeyed: a repository may not choose what else a "
            "provider is sent, or what costs more" + since,
            "put the file under your home folder, or 'retinue config trust' its own",
        )


# ── converters, one for each field ──────────────────────────────────────────────────────────────────────


def _text(value: YamlValue, reading: _Reading) -> str:
    if isinstance(value.data, (list, dict)) or value.data is None or not value.raw.strip():
        raise Invalid("must be text and not empty", line=value.line)
    return value.raw.strip()


def _description(value: YamlValue, reading: _Reading) -> str:
    """Files made for other programs keep it on one line, with `\\n` for the ends of lines."""
    return _text(value, reading).replace("\\n", "\n").strip()


def _icon(value: YamlValue, reading: _Reading) -> str:
    text = _text(value, reading)
    if len(text) > 8 or re.search(r"[\s<>&\x00-\x1f]", text):
        reading.add("warning", value.line, "the icon is more than one emoji; it is left out", "use one emoji")
        return ""
    return text


def _flag(value: YamlValue, reading: _Reading) -> bool:
    if not isinstance(value.data, bool):
        raise Invalid(f"must be true or false, not {value.raw[:40]!r}", line=value.line)
    return value.data


def _memory(value: YamlValue, reading: _Reading) -> bool:
    if value.raw in ("user", "project", "local"):
        reading.add("note", value.line, f"memory '{value.raw}': the agent gets memory, private to its run")
        return True
    return _flag(value, reading)


def _number(low: float, high: float, *, whole: bool = False, above: bool = False) -> Convert:
    """`above`: not the lowest itself."""

    def convert_number(value: YamlValue, reading: _Reading) -> int | float:
        data = value.data
        kinds = (int,) if whole else (int, float)
        if isinstance(data, bool) or not isinstance(data, kinds) or not math.isfinite(data):
            kind = "a whole number" if whole else "a number"
            raise Invalid(f"must be {kind}, not {value.raw[:40]!r}", line=value.line)
        if not low <= data <= high or (above and data == low):
            least = f"more than {low:g}, up" if above else f"{low:g}"
            raise Invalid(f"is {data}; the limit is {least} to {high:g}", line=value.line)
        return data

    return convert_number


def _duration(value: YamlValue, reading: _Reading) -> float:
    """Seconds, or `30s`, `5m`, `1h`."""
    try:
        seconds = seconds_of(value.raw, "")
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 7 * 86400:
        raise Invalid(f"must be seconds, or like 30s, 5m, 1h; not {value.raw[:40]!r}", line=value.line)
    return seconds


def _tools(value: YamlValue, reading: _Reading) -> tuple[str, ...] | None:
    if value.data is None:
        raise Invalid(
            "is empty",
            line=value.line,
            fix="remove the line for every tool of the parent, or write [] for none",
        )
    found = convert(value)
    _tool_findings(found.notes, found.bad, reading)
    return found.names


def _disallowed(value: YamlValue, reading: _Reading) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Whole tools, and patterns that become rules of `deny`."""
    found = convert(value, forbidding=True)
    _tool_findings(found.notes, found.bad, reading)
    return ("*",) if found.names is None else found.names, found.patterns


def _tool_findings(
    notes: tuple[tuple[int, str], ...], bad: tuple[tuple[int, str], ...], reading: _Reading
) -> None:
    for line, message in notes:
        reading.add("note", line, message)
    if bad:
        raise Invalid(
            f"{bad[0][1][:60]!r} is not the name of a tool", line=bad[0][0], fix="like: read, grep, glob"
        )


def _servers(value: YamlValue, reading: _Reading) -> tuple[str, ...]:
    names: list[str] = []
    items = value.data if isinstance(value.data, list) else [value]
    for item in items:
        if isinstance(item.data, dict):
            names.extend(item.data)
            for name in item.data:
                reading.add(
                    "note",
                    item.line,
                    f"the MCP server '{strip_hidden(name)[:60]}' starts once you trust it",
                    "'retinue mcp trust NAME' does that",
                )
        else:
            names.extend(name for _, name in split_names(item))
    return tuple(dict.fromkeys(names))


def inline_servers(document: Document) -> dict[str, Any]:
    """The MCP servers that a file defines itself, by name, as they are written. They are read in `mcp`."""
    found: dict[str, Any] = {}
    for key, value in document.fields.items():
        if canonical(key) == "mcp_servers":
            for item in value.data if isinstance(value.data, list) else [value]:
                if isinstance(item.data, dict):
                    inner = {name: one for name, one in item.data.items() if isinstance(one.data, dict)}
                    found |= {name: one.plain() for name, one in inner.items()}
    return found


def _skills(value: YamlValue, reading: _Reading) -> tuple[str, ...]:
    """Names, or folders as the agent's own file sees them."""
    if isinstance(value.data, dict):
        raise Invalid("must be a list of names", line=value.line, fix="like: skills: [release-notes]")
    named = ("*" if name == "all" else name for _, name in split_names(value))
    here = os.path.dirname(os.path.abspath(reading.file))
    found = (
        os.path.normpath(os.path.join(here, os.path.expanduser(name))) if "/" in name else name
        for name in named
    )
    return tuple(dict.fromkeys(found))


def _model(value: YamlValue, reading: _Reading) -> str:
    """A name, or several of which the next is asked where one fails for good: a list, or with commas."""
    if isinstance(value.data, list):
        names = [_text(item, reading) for item in value.data]
    else:
        names = [part.strip() for part in _text(value, reading).split(",")]
    return ",".join(_one_model(name, value, reading) for name in names)


def _one_model(model: str, value: YamlValue, reading: _Reading) -> str:
    if model.lower() in _CLAUDE_MODELS:
        meaning = _CLAUDE_MODELS[model.lower()]
        reading.add("note", value.line, f"'{model}' is Claude's where Claude is in use, else {meaning}")
        return model.lower()
    if not _MODEL.fullmatch(model):
        raise Invalid(
            f"{model[:60]!r} is not the name of a model",
            line=value.line,
            fix="inherit, small or provider:model",
        )
    return model


def _model_settings(value: YamlValue, reading: _Reading) -> ModelSettings:
    known = ModelSettings.__struct_fields__
    if not isinstance(value.data, dict):
        raise Invalid("must be a mapping", line=value.line, fix="like: model_settings: {top_p: 0.9, seed: 7}")
    found: dict[str, Any] = {}
    for key, inner in value.data.items():
        name = canonical(key)
        if name not in known:
            near = get_close_matches(name, known, n=1)
            fix = f"did you mean '{near[0]}'?" if near else "known: " + ", ".join(known)
            raise Invalid(f"there is no setting '{key}'", line=inner.line, fix=fix)
        found[name] = _effort(inner, reading) if name == "effort" else inner.plain()
    try:
        return ModelSettings(**found)
    except (TypeError, ValueError) as error:
        raise Invalid(str(error), line=value.line) from None


def _mode(value: YamlValue, reading: _Reading) -> str:
    if value.raw not in ("tools", "code"):
        raise Invalid(f"must be 'tools' or 'code', not {value.raw[:40]!r}", line=value.line)
    return value.raw


def _policy(value: YamlValue, reading: _Reading) -> str:
    if value.raw not in ("flat", "nested"):
        raise Invalid(f"must be 'flat' or 'nested', not {value.raw[:40]!r}", line=value.line)
    return value.raw


def _isolation(value: YamlValue, reading: _Reading) -> str:
    text = _text(value, reading)
    if text in ("", "none"):
        return ""
    if text != "worktree":
        raise Invalid(
            f"isolation '{text}' is not known", line=value.line, fix="write 'worktree', or leave it out"
        )
    return text


def _effort(value: YamlValue, reading: _Reading) -> str:
    """Other programs know levels above these."""
    if value.raw in ("xhigh", "max"):
        reading.add("note", value.line, f"effort '{value.raw}' is taken for 'high', the most there is here")
        return "high"
    if value.raw not in EFFORTS:
        raise Invalid(f"must be {', '.join(EFFORTS)}, not {value.raw[:40]!r}", line=value.line)
    return value.raw


def _files(value: YamlValue, reading: _Reading) -> str:
    if value.raw not in ("project", "workspace"):
        raise Invalid(f"must be 'project' or 'workspace', not {value.raw[:40]!r}", line=value.line)
    return value.raw


def _rules(value: YamlValue, reading: _Reading) -> tuple[str, ...]:
    if isinstance(value.data, dict) or value.data is None:
        raise Invalid("must be a list of rules", line=value.line, fix="like: deny: [bash, write(docs/**)]")
    return tuple(dict.fromkeys(name for _, name in split_names(value)))


def _schema(value: YamlValue, reading: _Reading) -> JsonSchema:
    return to_schema(value)


def _limits(value: YamlValue, reading: _Reading) -> Limits:
    if not isinstance(value.data, dict):
        raise Invalid("must be a mapping", line=value.line, fix="like: limits: {turns: 20, cost: 0.5}")
    numbers: dict[str, Any] = {}
    for key, inner in value.data.items():
        name = canonical(key)
        if name not in LIMITS:
            near = get_close_matches(name, LIMITS, n=1)
            known = "known: " + ", ".join(LIMITS)
            fix = f"did you mean '{near[0]}'?" if near else known
            raise Invalid(f"there is no limit '{key}'", line=inner.line, fix=fix)
        try:
            numbers[name] = LIMITS[name](inner, reading)
        except Invalid as mistake:
            raise Invalid(f"{key} {mistake.message}", line=mistake.line, fix=mistake.fix) from None
    return msgspec.convert(numbers, Limits)


def _named(name: str, convert_value: Convert) -> Convert:
    """Let a mistake say which field it is in."""

    def convert_named(value: YamlValue, reading: _Reading) -> Any:
        try:
            return convert_value(value, reading)
        except Invalid as mistake:
            message = mistake.message
            if not message.startswith(name):
                message = f"{name}: {message}"
            raise Invalid(message, line=mistake.line, fix=mistake.fix) from None

    return convert_named


LIMITS: dict[str, Convert] = {
    "turns": _number(1, 100_000, whole=True),
    "input_tokens": _number(1, 10**12, whole=True),
    "output_tokens": _number(1, 10**12, whole=True),
    "cost": _number(0, 10**6, above=True),
    "seconds": _duration,
    "children": _number(0, 10_000, whole=True),
    "concurrency": _number(1, 1000, whole=True),
}

_BY_FIELD: dict[str, Convert] = {
    "name": _text,
    "description": _description,
    "icon": _icon,
    "tools": _tools,
    "disallowed_tools": _disallowed,
    "shown": _tools,
    "mcp_servers": _servers,
    "skills": _skills,
    "instructions": _flag,
    "model": _model,
    "temperature": _number(0, 2),
    "effort": _effort,
    "model_settings": _model_settings,
    "isolation": _isolation,
    "max_turns": _number(1, 1000, whole=True),
    "max_tokens": _number(1, 10_000_000, whole=True),
    "timeout": _duration,
    "input_schema": _schema,
    "output_schema": _schema,
    "output_format": _text,
    "summary": _text,
    "mode": _mode,
    "look_first": _flag,
    "must_read": _flag,
    "patient": _flag,
    "files": _files,
    "memory": _memory,
    "background": _flag,
    "limits": _limits,
    "policy": _policy,
    "children": _number(0, 1000, whole=True),
    "deny": _rules,
}

CONVERTERS: dict[str, Convert] = {name: _named(name, converter) for name, converter in _BY_FIELD.items()}
KNOWN = frozenset({*CONVERTERS, *ELSEWHERE})
