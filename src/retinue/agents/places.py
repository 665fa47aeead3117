"""Where definitions lie, agent files and skills alike, and the walk through such a place.

Looked for in `.retinue/KIND`, `.agents/KIND` and `.claude/KIND` of the working folder and its parents up to
the root of the repository (the nearest wins), then under the home folder, then in plugins. Called by
`agents.loader` and `skills.loader`, which know what a definition is and how one is read. What is broken
hides nothing but itself, and no link leads out of the folder that a place belongs to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from retinue.agents.document import Finding
from retinue.agents.fields import Scope
from retinue.agents.plugins import plugins
from retinue.errors import ConfigError
from retinue.reading import Folder, Kept, list_own, nothing_kept, real_path

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class DefinitionKind:
    """A kind of definition: what it is called, how one is told by its path, and how much is looked at.

    `is_one` is asked about a path, whether that is a folder and no link, and the owner of its place.
    `deepest`: folders within folders that are gone through. `most`, and `most_entries` of whatever kind, are
    bounds for one place.
    """

    noun: str
    folders: tuple[str, ...]
    is_one: Callable[[Path, bool, Folder | None], bool]
    deepest: int
    most: int
    most_entries: int
    counted: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DefinitionFolder:
    """A folder of definitions. `owner` is the folder of the project that has it, and that no link may leave;
    None where the files are the user's own."""

    folder: Path
    scope: Scope
    owner: Folder | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Definitions(Generic[T]):
    """What was read, by name. `problems` are those that could not be used; `broken` the same by name."""

    found: dict[str, T] = field(default_factory=dict[str, T])
    problems: tuple[Finding, ...] = ()
    broken: dict[str, Finding] = field(default_factory=dict[str, Finding])


def as_error(finding: Finding) -> ConfigError:
    return ConfigError(finding.message, file=finding.file, line=finding.line, fix=finding.fix or None)


def own_places(
    kind: DefinitionKind, cwd: Path | None, home: Path | None = None, kept: Kept = nothing_kept
) -> list[DefinitionFolder]:
    """Every folder of a project and of the user that may hold definitions, the strongest first.

    `kept`: what of a project is not read.
    """
    home = Path(os.path.abspath(Path.home() if home is None else home))
    found: list[DefinitionFolder] = []
    for folder in () if cwd is None else upwards(cwd, home):
        owner = Folder(folder, kept)
        found += [
            DefinitionFolder(folder=folder / name, scope="project", owner=owner) for name in kind.folders
        ]
    found += [DefinitionFolder(folder=home / name, scope="user") for name in kind.folders]
    what = kind.folders[0].rpartition("/")[2]
    return found + [
        DefinitionFolder(folder=folder, scope="user", owner=plugin.owner)
        for plugin in plugins()
        for folder in plugin.folders(what)
    ]


def place_around(path: Path, kind: DefinitionKind, *, outside: Scope) -> DefinitionFolder:
    """The place that a definition or a folder of them is in, by its own name alone.

    `outside`: whose it is where no project has it.
    """
    whole = Path(os.path.abspath(path))
    home = real_path(Path.home())
    for above in (whole, *whole.parents):
        owner = above.parent.parent
        if any(above == owner / name for name in kind.folders) and real_path(owner) != home:
            return DefinitionFolder(folder=path, scope="project", owner=Folder(owner, nothing_kept))
    return DefinitionFolder(folder=path, scope=outside)


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


def repository_root(cwd: Path) -> Path:
    """The nearest folder with a `.git`. Without one the working folder itself: a shared parent such as
    /tmp must not hand out agents."""
    for folder in (cwd, *cwd.parents):
        if (folder / ".git").exists():
            return folder
    return cwd


def gather(
    places: Iterable[DefinitionFolder],
    paths: Callable[[DefinitionFolder, list[Finding]], Iterable[Path]],
    read: Callable[[DefinitionFolder, Path], tuple[T | None, str, tuple[Finding, ...]]],
    refuse: Callable[[Path, str, Path], Finding],
) -> Definitions[T]:
    """Read all that lies in some places. The first of a name counts; `refuse`: a second one in its place."""
    found: dict[str, T] = {}
    broken: dict[str, Finding] = {}
    problems: list[Finding] = []
    seen: set[str] = set()
    for place in places:
        here: dict[str, Path] = {}
        for path in paths(place, problems):
            real = real_path(path)
            if real in seen:  # a link to it, for another program
                continue
            seen.add(real)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # gone since it was listed
                one, name, findings = read(place, path)
                errors = [finding for finding in findings if finding.level == "error"]
                problems.extend(errors)
                if name in here:
                    problems.append(refuse(path, name, here[name]))
                    continue
                here[name] = path
                if name in found or name in broken:
                    continue
                if one is None:
                    broken[name] = errors[0]
                else:
                    found[name] = one
    return Definitions(found=dict(sorted(found.items())), problems=tuple(problems), broken=broken)


def bounded_walk(place: DefinitionFolder, kind: DefinitionKind, problems: list[Finding]) -> Iterator[Path]:
    """As `walk`, up to the bound of the kind."""
    for count, path in enumerate(walk(place, kind, problems)):
        if count == kind.most:
            problems.append(_too_many(place, kind, f"{kind.most} {kind.counted}"))
            return
        yield path


def walk(place: DefinitionFolder, kind: DefinitionKind, problems: list[Finding]) -> Iterator[Path]:
    """Every definition of a place, in the order of their names. A link to a folder is looked at and not gone
    through; neither is a folder that is a definition."""
    left = kind.most_entries
    ahead = [(place.folder, True, 0)]
    while ahead:
        path, is_folder, depth = ahead.pop()
        if depth and kind.is_one(path, is_folder, place.owner):
            yield path
            continue
        if not is_folder or depth > kind.deepest:
            continue
        try:
            listing = list_own if place.owner is None else place.owner.list
            entries, whole = listing(path.absolute(), left)
        except OSError:
            continue  # there is none, it leads out, or it is not ours to read
        left -= len(entries)
        ahead += [
            (path / name, inner, depth + 1) for name, inner in reversed(entries) if not name.startswith(".")
        ]
        if not whole:
            problems.append(_too_many(place, kind, f"{kind.most_entries:,} files and folders"))
            return


def _too_many(place: DefinitionFolder, kind: DefinitionKind, what: str) -> Finding:
    return Finding(
        file=str(place.folder),
        line=None,
        level="error",
        message=f"holds more than {what}; the rest is not read",
        fix=f"move what is no {kind.noun} elsewhere",
    )


def twice(path: Path, name: str, kind: DefinitionKind, first: Path) -> Finding:
    """A second definition of a name in one place."""
    return Finding(
        file=str(path),
        line=None,
        level="error",
        message=f"'{name}' is the {kind.noun} in {first.name} already; this one is not used",
        fix="give one of them another name",
    )
