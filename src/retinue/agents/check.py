"""Look agent files over and say everything there is to say about them: `retinue agents check`.

Uses the same reading as `loader`, so a file that passes here loads, and one that does not never will. It
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from retinue.agents.document import Finding, Invalid, canonical, parse, read_text, strip_hidden
from retinue.agents.fields import CONVERTERS, ELSEWHERE, KNOWN
from retinue.agents.loader import BUILTIN, FOLDERS, LoadedAgent, files_in, place_of, read_agent
from retinue.agents.missing import missing_parts, missing_tools, only_agents
from retinue.errors import ConfigError
from retinue.models.base import WHO_HAS
from retinue.types import AgentSpec

_ORDER = {"error": 0, "warning": 1, "note": 2}


def check(
    paths: Iterable[Path],
    *,
    known_tools: Collection[str] | None = None,
    withheld: Mapping[str, str] | None = None,
    lacks: Callable[[AgentSpec], Mapping[str, str]] = lambda spec: {},
    missing: Callable[[AgentSpec], Iterable[tuple[str, ConfigError]]] = lambda spec: (),
    agents: Collection[str] = (),
    nested: bool = True,
) -> list[Finding]:
    """Every finding about these files, or about the agent files in and under these folders.

    With `known_tools`, names of tools that nobody offers are found too, as a run finds them; `withheld` says
    why some are not there. `lacks` says which settings of an agent its model does not have, `missing` which
    skills, servers or model it names that are not here. `agents` are those there are, `nested` whether one
    that another has started may start some itself.
    """
    findings: list[Finding] = []
    names: dict[tuple[Path, str], Path] = {}
    for path in _expand(paths, findings):
        scope = "builtin" if path.parent == BUILTIN else "project"
        loaded, name, found = read_agent(path, scope=scope, inside=place_of(path).owner, rough=True)
        findings.extend(found)
        first = names.setdefault((path.parent, name), path)
        if first != path:
            findings.append(
                Finding(
                    file=str(path),
                    line=None,
                    level="error",
                    message=f"'{name}' is the name of the agent in {first.name} too",
                    fix="give one of them another name",
                )
            )
        if loaded is not None:
            broken = any(each.level == "error" for each in found)
            # Of what could not be read, nobody knows whether it would be there.
            findings.extend(each for each in _advice(loaded) if not broken or each.level == "warning")
            if known_tools is not None:
                findings.extend(missing_tools(loaded.spec, known_tools, withheld))
            findings.extend(missing_parts(loaded.spec, missing(loaded.spec)))
            findings.extend(only_agents(loaded.spec, agents, nested=nested))
            findings.extend(_unmet(loaded.path, lacks(loaded.spec)))
    return sorted(findings, key=lambda one: (one.file, _ORDER[one.level], one.line or 0))


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldUse:
    """Of one file: the fields that are used, and why the others are not."""

    file: str
    used: tuple[str, ...]
    unused: Mapping[str, str]


def field_uses(paths: Iterable[Path]) -> list[FieldUse]:
    """What of these files is used. One that cannot be read is left out: `check` says why."""
    found: list[FieldUse] = []
    for path in _expand(paths, []):
        try:
            text, _ = read_text(path, place_of(path).owner)
            document = parse(text, str(path), KNOWN)
        except Invalid:
            continue
        names = {key: canonical(key) for key in document.fields}
        used = tuple(strip_hidden(key)[:60] for key, name in names.items() if name in CONVERTERS)
        unused = {
            strip_hidden(key)[:60]: ELSEWHERE.get(name, "it is not known here")
            for key, name in names.items()
            if name not in CONVERTERS
        }
        found.append(FieldUse(file=str(path), used=used, unused=unused))
    return found


def _expand(paths: Iterable[Path], findings: list[Finding]) -> list[Path]:
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            within = [path / name for name in FOLDERS if (path / name).is_dir()]
            for folder in within or [path]:
                files.update(dict.fromkeys(files_in(place_of(folder), findings)))
        elif path.exists():
            files[path] = None
        else:
            findings.append(
                Finding(file=str(path), line=None, level="error", message="there is no such file", fix="")
            )
    return list(files)


def _advice(loaded: LoadedAgent) -> list[Finding]:
    """What is allowed and still likely not meant."""
    spec, found = loaded.spec, list[Finding]()

    def say(level: str, message: str, fix: str) -> None:
        found.append(
            Finding(
                file=str(loaded.path),
                line=None,
                level="warning" if level == "warning" else "note",
                message=message,
                fix=fix,
            )
        )

    if len(spec.description) < 20:
        say(
            "warning",
            "the description is very short",
            "a parent model chooses the agent by it: say when to use it",
        )
    if "…" in spec.description and "Use when …" in spec.description:
        say(
            "warning",
            "the description is still the template's",
            "say when to use the agent and what it returns",
        )
    if spec.tools is None:
        say("note", "no 'tools': the agent may use every tool of its parent", "list what it needs")
    elif not spec.tools:
        say("note", "the agent has no tools: it answers from its prompt alone", "list what it needs")
    if spec.name != loaded.path.name.removesuffix(".md"):
        say("note", f"the file is not called '{spec.name}.md'", "rename it, so that it is found by its name")
    return found


def _unmet(path: Path, lacks: Mapping[str, str]) -> list[Finding]:
    return [
        Finding(
            file=str(path),
            line=None,
            level="warning",
            message=f"{model} has no {name}: it is not sent",
            fix=f"models that have it: {WHO_HAS.get(name, 'none is known')}",
        )
        for name, model in lacks.items()
    ]
