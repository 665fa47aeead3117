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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from retinue.agents.document import Finding, Invalid, parse, read_text
from retinue.agents.fields import KNOWN, Scope, to_spec
from retinue.errors import ConfigError
from retinue.types import AgentSpec

FOLDERS = (".retinue/agents", ".agents/agents", ".claude/agents")
BUILTIN = Path(__file__).parent / "builtin"
MAX_FILES = 500
MAX_DEPTH = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """An agent, the file it came from, whose file that is, and what a reader of it should know."""

    spec: AgentSpec
    path: Path
    scope: Scope
    notes: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Every agent by name. `problems` are files that could not be used; `broken` the same by agent name."""

    agents: dict[str, Loaded]
    problems: tuple[Finding, ...] = ()
    broken: dict[str, Finding]

    def get(self, name: str) -> Loaded:
        """The agent of this name, or a `ConfigError` that says what is wrong or which names there are."""
        if name in self.agents:
            return self.agents[name]
        if name in self.broken:
            raise as_error(self.broken[name])
        near = get_close_matches(name.lower(), self.agents, n=1, cutoff=0.6)
        known = ", ".join(sorted(self.agents)) or "none"
        hint = f"did you mean '{near[0]}'?" if near else "'retinue agents new NAME' writes a new one"
        raise ConfigError(f"there is no agent {name[:80]!r}; known agents: {known}", fix=hint)


def as_error(finding: Finding) -> ConfigError:
    return ConfigError(finding.message, file=finding.file, line=finding.line, fix=finding.fix or None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """A folder of agent files. `inside`: where links may lead; None where the owner is trusted."""

    folder: Path
    scope: Scope
    inside: Path | None


def load_agents(cwd: Path, home: Path | None = None, *, trusted: bool = False) -> Catalogue:
    """Read every agent. `trusted`: the user vouches for the files of this project."""
    return _load(places(cwd, home), trusted=trusted)


def stamp(cwd: Path, home: Path | None = None) -> frozenset[tuple[str, int, int]]:
    """What `load_agents` would read, as it lies there now: another stamp, other files. Reads no file."""
    found: set[tuple[str, int, int]] = set()
    for place in places(cwd, home):
        if place.scope == "builtin":
            continue
        for path in islice(_walk(place.folder, 0), MAX_FILES):
            with contextlib.suppress(OSError):  # gone since it was listed
                state = path.stat()
                found.add((str(path), state.st_mtime_ns, state.st_size))
    return frozenset(found)


def builtin_agents() -> dict[str, AgentSpec]:
    """The built-in agents alone."""
    catalogue = _load([_Place(folder=BUILTIN, scope="builtin", inside=None)])
    return {name: loaded.spec for name, loaded in catalogue.agents.items()}


def _load(searched: Iterable[_Place], *, trusted: bool = False) -> Catalogue:
    agents: dict[str, Loaded] = {}
    broken: dict[str, Finding] = {}
    problems: list[Finding] = []
    seen: set[Path] = set()
    for place in searched:
        here: dict[str, Path] = {}
        for path in files_in(place.folder, problems):
            real = path.resolve()
            if real in seen:
                continue
            seen.add(real)
            loaded, name, findings = read_agent(path, scope=place.scope, inside=place.inside, trusted=trusted)
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


def places(cwd: Path, home: Path | None = None) -> list[_Place]:
    """Every folder that may hold agent files, the strongest first."""
    cwd = Path(os.path.abspath(cwd))
    home = Path(os.path.abspath(Path.home() if home is None else home))
    found: list[_Place] = []
    root = repository_root(cwd)
    for folder in (cwd, *cwd.parents):
        if folder != home:  # what lies in the home folder is the user's, even when that is a repository
            found.extend(_Place(folder=folder / name, scope="project", inside=root) for name in FOLDERS)
        if folder == root:
            break
    found.extend(_Place(folder=home / name, scope="user", inside=None) for name in FOLDERS)
    found.append(_Place(folder=BUILTIN, scope="builtin", inside=None))
    return found


def repository_root(cwd: Path) -> Path:
    """The nearest folder with a `.git`. Without one the working folder itself: a shared parent such as
    /tmp must not hand out agents."""
    for folder in (cwd, *cwd.parents):
        if (folder / ".git").exists():
            return folder
    return cwd


def files_in(folder: Path, problems: list[Finding]) -> Iterator[Path]:
    """The Markdown files of a folder and its subfolders, in a fixed order, up to a bound."""
    for count, path in enumerate(_walk(folder, 0)):
        if count == MAX_FILES:
            problems.append(
                Finding(
                    file=str(folder),
                    line=None,
                    level="error",
                    message=f"holds more than {MAX_FILES} Markdown files; the rest is not read",
                    fix="move what is not an agent elsewhere",
                )
            )
            return
        if not _is_readme(path):
            yield path


def _is_readme(path: Path) -> bool:
    """A page about the agents rather than one of them."""
    if path.stem.lower() != "readme":
        return False
    try:
        return not read_text(path).startswith("---")
    except Invalid:
        return False


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth < MAX_DEPTH:
                yield from _walk(Path(entry.path), depth + 1)
        elif entry.name.endswith(".md") and not entry.is_dir():
            yield Path(entry.path)


def read_agent(
    path: Path, *, scope: Scope, inside: Path | None = None, trusted: bool = False
) -> tuple[Loaded | None, str, tuple[Finding, ...]]:
    """One file: the agent or None, the name it goes by, and every finding."""
    file, stem = str(path), path.name.removesuffix(".md")
    try:
        if inside is not None and not path.resolve().is_relative_to(inside.resolve()):
            raise Invalid(
                "leads out of the project by a link and is not read", fix="copy the file into the project"
            )
        document = parse(read_text(path), file, KNOWN)
    except Invalid as mistake:
        return None, stem, (mistake.at(file),)
    spec, findings = to_spec(document, file, scope=scope, stem=stem, trusted=trusted)
    if spec is None:
        named = document.fields.get("name")
        return None, named.raw.strip() if named and named.raw.strip() else stem, findings
    return Loaded(spec=spec, path=path, scope=scope, notes=findings), spec.name, findings


def _duplicate(path: Path, name: str, first: Path) -> Finding:
    return Finding(
        file=str(path),
        line=None,
        level="error",
        message=f"'{name}' is the agent in {first.name} already; this file is not used",
        fix="give one of them another name",
    )
