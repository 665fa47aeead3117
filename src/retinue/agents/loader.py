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
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from retinue.agents.document import Finding, Invalid, parse, read_text
from retinue.agents.fields import KNOWN, Scope, to_spec
from retinue.errors import ConfigError
from retinue.reading import Folder, list_own, real_path
from retinue.settings.trusted_folders import TrustedFolders
from retinue.types import AgentSpec

FOLDERS = (".retinue/agents", ".agents/agents", ".claude/agents")
BUILTIN = Path(__file__).parent / "builtin"
MAX_FILES = 500
MAX_DEPTH = 4
MAX_ENTRIES = 10_000
"""Files and folders that are looked at in one place, whatever they are."""
NO_FOLDERS = TrustedFolders()


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedAgent:
    """An agent, the file it came from, whose file that is, and what a reader of it should know."""

    spec: AgentSpec
    path: Path
    scope: Scope
    notes: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Every agent by name. `problems` are files that could not be used; `broken` the same by agent name."""

    agents: dict[str, LoadedAgent]
    problems: tuple[Finding, ...] = ()
    broken: dict[str, Finding]

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


def as_error(finding: Finding) -> ConfigError:
    return ConfigError(finding.message, file=finding.file, line=finding.line, fix=finding.fix or None)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentFolder:
    """A folder of agent files. `owner` is the folder of the project that has it, and that no link may leave;
    None where the files are the user's own."""

    folder: Path
    scope: Scope
    owner: Folder | None = None


def load_agents(
    cwd: Path | None, home: Path | None = None, *, trusted: TrustedFolders = NO_FOLDERS
) -> Catalogue:
    """Read every agent; without a folder, those of no project. `trusted`: folders the user vouches for."""
    return _load(places(cwd, home), trusted)


def stamp(cwd: Path | None, home: Path | None = None) -> frozenset[tuple[str, int, int]]:
    """What `load_agents` would read, as it lies there now: another stamp, other files. Reads no file."""
    found: set[tuple[str, int, int]] = set()
    for place in places(cwd, home):
        if place.scope == "builtin":
            continue
        for path in islice(_walk(place, []), MAX_FILES):
            with contextlib.suppress(OSError):  # gone since it was listed
                state = path.stat()
                found.add((str(path), state.st_mtime_ns, state.st_size))
    return frozenset(found)


def builtin_agents() -> dict[str, AgentSpec]:
    """The built-in agents alone."""
    catalogue = _load([AgentFolder(folder=BUILTIN, scope="builtin")], NO_FOLDERS)
    return {name: loaded.spec for name, loaded in catalogue.agents.items()}


def _load(searched: Iterable[AgentFolder], trusted: TrustedFolders) -> Catalogue:
    agents: dict[str, LoadedAgent] = {}
    broken: dict[str, Finding] = {}
    problems: list[Finding] = []
    seen: set[str] = set()
    for place in searched:
        here: dict[str, Path] = {}
        is_trusted = place.owner is not None and trusted.has(place.owner.path)
        for path in files_in(place, problems):
            real = real_path(path)
            if real in seen:
                continue
            seen.add(real)
            loaded, name, findings = read_agent(
                path, scope=place.scope, inside=place.owner, trusted=is_trusted
            )
            errors = [finding for finding in findings if finding.level == "error"]
            problems.extend(errors)
            if name in here:
                problems.append(_duplicate(path, name, here[name]))
                continue
            here[name] = path
            if name in agents or name in broken:
                continue
            if loaded is None:
                broken[name] = errors[0]
            else:
                agents[name] = loaded
    ordered = dict(sorted(agents.items()))
    return Catalogue(agents=ordered, problems=tuple(problems), broken=broken)


def places(cwd: Path | None, home: Path | None = None) -> list[AgentFolder]:
    """Every folder that may hold agent files, the strongest first."""
    home = Path(os.path.abspath(Path.home() if home is None else home))
    found: list[AgentFolder] = []
    for folder in () if cwd is None else upwards(cwd, home):
        owner = Folder(folder)
        found.extend(AgentFolder(folder=folder / name, scope="project", owner=owner) for name in FOLDERS)
    found.extend(AgentFolder(folder=home / name, scope="user") for name in FOLDERS)
    found.append(AgentFolder(folder=BUILTIN, scope="builtin"))
    return found


def upwards(cwd: Path, home: Path | None = None) -> Iterator[Path]:
    """The folders of a project: where one really works and those above it, up to the root of the repository.

    What lies in the home folder is the user's, even when that is a repository.
    """
    cwd = Path(real_path(cwd))
    home = Path(real_path(Path.home() if home is None else home))
    root = repository_root(cwd)
    for folder in (cwd, *cwd.parents):
        if folder != home:
            yield folder
        if folder == root:
            return


def with_agents(cwd: Path) -> list[Path]:
    """Those folders of a project that have agent files, the nearest first."""
    return [
        place.owner.path
        for place in places(cwd)
        if place.owner is not None and next(_walk(place, []), None) is not None
    ]


def place_of(path: Path) -> AgentFolder:
    """The place that a file or a folder of agent files is in, by its own name alone."""
    whole = Path(os.path.abspath(path))
    home = real_path(Path.home())
    for above in (whole, *whole.parents):
        owner = above.parent.parent
        if any(above == owner / name for name in FOLDERS) and real_path(owner) != home:
            return AgentFolder(folder=path, scope="project", owner=Folder(owner))
    return AgentFolder(folder=path, scope="project")


def repository_root(cwd: Path) -> Path:
    """The nearest folder with a `.git`. Without one the working folder itself: a shared parent such as
    /tmp must not hand out agents."""
    for folder in (cwd, *cwd.parents):
        if (folder / ".git").exists():
            return folder
    return cwd


def files_in(place: AgentFolder, problems: list[Finding]) -> Iterator[Path]:
    """The Markdown files of a folder and its subfolders, in a fixed order, up to a bound."""
    for count, path in enumerate(_walk(place, problems)):
        if count == MAX_FILES:
            problems.append(_too_many(place.folder, f"{MAX_FILES} Markdown files"))
            return
        if not _is_readme(path, place.owner):
            yield path


def _too_many(folder: Path, what: str) -> Finding:
    return Finding(
        file=str(folder),
        line=None,
        level="error",
        message=f"holds more than {what}; the rest is not read",
        fix="move what is not an agent elsewhere",
    )


def _is_readme(path: Path, inside: Folder | None) -> bool:
    """A page about the agents rather than one of them."""
    if path.stem.lower() != "readme":
        return False
    try:
        return not read_text(path, inside)[0].startswith("---")
    except Invalid:
        return False


def _walk(place: AgentFolder, problems: list[Finding]) -> Iterator[Path]:
    """Every Markdown file of a place, in the order of their names; links to folders are not followed."""
    left = MAX_ENTRIES
    ahead = [(place.folder, True, 0)]
    while ahead:
        path, is_folder, depth = ahead.pop()
        if not is_folder:
            yield path
            continue
        try:
            listing = list_own if place.owner is None else place.owner.list
            entries, are_all = listing(path.absolute(), left)
        except OSError:
            continue  # there is none, it leads out, or it is not ours to read
        left -= len(entries)
        ahead += [
            (path / name, is_folder, depth + 1)
            for name, is_folder in reversed(entries)
            if not name.startswith(".") and (depth < MAX_DEPTH if is_folder else name.endswith(".md"))
        ]
        if not are_all:
            problems.append(_too_many(place.folder, f"{MAX_ENTRIES:,} files and folders"))
            return


def read_agent(
    path: Path, *, scope: Scope, inside: Folder | None = None, trusted: bool = False
) -> tuple[LoadedAgent | None, str, tuple[Finding, ...]]:
    """One file: the agent or None, the name it goes by, and every finding.

    `inside`: the folder that no link may leave. What lies there in a repository of its own is not `trusted`.
    """
    file, stem = str(path), path.name.removesuffix(".md")
    try:
        text, really = read_text(path, inside)
        document = parse(text, file, KNOWN)
    except Invalid as mistake:
        return None, stem, (mistake.at(file),)
    trusted = trusted and not (inside is not None and inside.is_anothers(really))
    spec, findings = to_spec(document, file, scope=scope, stem=stem, trusted=trusted)
    if spec is None:
        named = document.fields.get("name")
        return None, named.raw.strip() if named and named.raw.strip() else stem, findings
    return LoadedAgent(spec=spec, path=path, scope=scope, notes=findings), spec.name, findings


def _duplicate(path: Path, name: str, first: Path) -> Finding:
    return Finding(
        file=str(path),
        line=None,
        level="error",
        message=f"'{name}' is the agent in {first.name} already; this file is not used",
        fix="give one of them another name",
    )
