"""Find and read agent files: the project's, the user's, the built-in ones.

    catalogue = load_agents(Path.cwd())
    catalogue.get("code-search").spec

Looked for in `.retinue/agents`, `.agents/agents` and `.claude/agents` of the working folder and its parents
up to the root of the repository (the nearest wins), then under the home folder, then in the package;
project beats user beats built-in. Called by `app` and the command line. A broken file is a problem in the
list and hides nothing but itself: asking for its agent raises what is wrong with it, so that a broken
narrow agent is never replaced by a wider one of the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from retinue.agents.document import Finding, Invalid, parse, read_text
from retinue.agents.fields import KNOWN, Scope, asked_for, inline_servers, to_spec
from retinue.agents.places import (
    DefinitionFolder,
    DefinitionKind,
    as_error,
    bounded_walk,
    gather,
    own_places,
    place_around,
    twice,
    walk,
)
from retinue.errors import ConfigError
from retinue.reading import Folder, Kept, nothing_kept
from retinue.settings.files import find_project_files, read_project_file
from retinue.settings.trusted_folders import TrustedContent, TrustedFolders, fingerprint
from retinue.types import AgentSpec

FOLDERS = (".retinue/agents", ".agents/agents", ".claude/agents")
BUILTIN = Path(__file__).parent / "builtin"
MAX_FILES = 500
KIND = DefinitionKind(
    noun="agent",
    folders=FOLDERS,
    is_one=lambda path, is_folder, owner: not is_folder and path.name.endswith(".md"),
    deepest=4,
    most=MAX_FILES,
    most_entries=10_000,
    counted="Markdown files",
)
NO_FOLDERS = TrustedFolders()


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedAgent:
    """An agent, the file it came from, whose file that is, and what a reader of it should know."""

    spec: AgentSpec
    path: Path
    scope: Scope
    notes: tuple[Finding, ...] = ()
    servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The MCP servers that the file defines, as they are written."""
    asked: tuple[str, str] | None = None
    """Its name in its folder, and its fingerprint if it asks for what counts only where it is trusted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Every agent by name. `problems` are files that could not be used; `broken` the same by agent name."""

    agents: dict[str, LoadedAgent]
    problems: tuple[Finding, ...] = ()
    broken: dict[str, Finding]

    def replaced(self, trusted: TrustedFolders) -> list[LoadedAgent]:
        """Agents of a repository that nobody trusts which go by the name of a built-in one."""
        built_in = {file.stem for file in BUILTIN.glob("*.md")}
        found = (each for name, each in self.agents.items() if name in built_in and each.scope == "project")
        owners = ((each, place_of(each.path).owner) for each in found)
        return [each for each, owner in owners if owner is None or not trusted.has(owner.path)]

    def get(self, name: str, own: Collection[str] = ()) -> LoadedAgent:
        """The agent of this name, or a `ConfigError` that says what is wrong or which names there are.

        `own` are those of a program, which it has besides.
        """
        if name not in self.agents and name not in self.broken:
            name = name.replace(".", "-")  # as the file may spell it
        if name in self.agents:
            return self.agents[name]
        if name in self.broken:
            raise as_error(self.broken[name])
        known = sorted({*self.agents, *own})
        near = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
        new = "give it to Retinue(agents=…)" if own else "'retinue agents new NAME' writes a new one"
        raise ConfigError(
            f"there is no agent {name[:80]!r}; known agents: {', '.join(known) or 'none'}",
            fix=f"did you mean '{near[0]}'?" if near else new,
        )


def load_agents(
    cwd: Path | None,
    home: Path | None = None,
    *,
    trusted: TrustedFolders = NO_FOLDERS,
    kept: Kept = nothing_kept,
) -> Catalogue:
    """Read every agent; without a folder, those of no project. `trusted`: folders the user vouches for.

    `kept`: what of a project is not read.
    """
    return _load(places(cwd, home, kept), trusted)


def stamp(cwd: Path | None, home: Path | None = None) -> frozenset[tuple[str, int, int]]:
    """What `load_agents` would read, as it lies there now: another stamp, other files. Reads no file."""
    found: set[tuple[str, int, int]] = set()
    for place in places(cwd, home):
        if place.scope == "builtin":
            continue
        for path in islice(walk(place, KIND, []), MAX_FILES):
            with contextlib.suppress(OSError):  # gone since it was listed
                state = path.stat()
                found.add((str(path), state.st_mtime_ns, state.st_size))
    return frozenset(found)


def builtin_agents() -> dict[str, AgentSpec]:
    """The built-in agents alone."""
    catalogue = _load([DefinitionFolder(folder=BUILTIN, scope="builtin")], NO_FOLDERS)
    return {name: loaded.spec for name, loaded in catalogue.agents.items()}


def _load(searched: Iterable[DefinitionFolder], trusted: TrustedFolders) -> Catalogue:
    def read(place: DefinitionFolder, path: Path) -> tuple[LoadedAgent | None, str, tuple[Finding, ...]]:
        return read_agent(path, scope=place.scope, inside=place.owner, trusted=trusted)

    read_now = gather(searched, files_in, read, lambda path, name, first: twice(path, name, KIND, first))
    return Catalogue(agents=read_now.found, problems=read_now.problems, broken=read_now.broken)


def places(cwd: Path | None, home: Path | None = None, kept: Kept = nothing_kept) -> list[DefinitionFolder]:
    """Every folder that may hold agent files, the strongest first."""
    return [*own_places(KIND, cwd, home, kept), DefinitionFolder(folder=BUILTIN, scope="builtin")]


def with_agents(cwd: Path) -> list[Path]:
    """Those folders of a project that have agent files, the nearest first."""
    return [
        place.owner.path
        for place in places(cwd)
        if place.owner is not None and next(walk(place, KIND, []), None) is not None
    ]


def content_of(folder: Path) -> TrustedContent:
    """What a folder says now that counts only once it is trusted: what is trusted when it is."""
    file = next((file for file in find_project_files(folder) if file.parent == folder), None)
    read = None if file is None else read_project_file(file)
    found = [
        read_agent(path, scope=place.scope, inside=place.owner)[0]
        for place in places(folder)
        if place.owner is not None and place.owner.path == folder
        for path in files_in(place, [])
    ]
    return TrustedContent(
        settings="" if read is None else read.digest,
        values={} if read is None else {name: fingerprint(value) for name, value in read.values.items()},
        agents=dict(each.asked for each in found if each is not None and each.asked is not None),
    )


def place_of(path: Path) -> DefinitionFolder:
    """The place that a file or a folder of agent files is in, by its own name alone."""
    return place_around(path, KIND, outside="project")


def files_in(place: DefinitionFolder, problems: list[Finding]) -> Iterator[Path]:
    """The Markdown files of a folder and its subfolders, in a fixed order, up to a bound."""
    return (path for path in bounded_walk(place, KIND, problems) if not _is_readme(path, place.owner))


def _is_readme(path: Path, inside: Folder | None) -> bool:
    """A page about the agents rather than one of them."""
    if path.stem.lower() != "readme":
        return False
    try:
        return not read_text(path, inside)[0].startswith("---")
    except Invalid:
        return False


def read_agent(
    path: Path,
    *,
    scope: Scope,
    inside: Folder | None = None,
    trusted: TrustedFolders = NO_FOLDERS,
    rough: bool = False,
) -> tuple[LoadedAgent | None, str, tuple[Finding, ...]]:
    """One file: the agent or None, the name it goes by, and every finding. `rough`: an agent also where the
    file has errors, made of what can be read of it.

    `inside`: the folder that no link may leave. What lies there in a repository of its own is nobody's to
    trust with it.
    """
    file, stem = str(path), path.name.removesuffix(".md")
    try:
        text, really = read_text(path, inside)
        document = parse(text, file, KNOWN)
    except Invalid as mistake:
        return None, stem, (mistake.at(file),)
    asked = asked_for(document, text) if inside is not None and not inside.is_anothers(really) else ""
    state = trusted.agent(inside.path, really, asked) if inside is not None and asked else "unknown"
    spec, findings = to_spec(document, file, scope=scope, stem=stem, trust=state, rough=rough)
    if spec is None:
        named = document.fields.get("name")
        return None, named.raw.strip() if named and named.raw.strip() else stem, findings
    loaded = LoadedAgent(
        spec=spec,
        path=path,
        scope=scope,
        notes=findings,
        servers=inline_servers(document),
        asked=(really, asked) if asked else None,
    )
    return loaded, spec.name, findings
