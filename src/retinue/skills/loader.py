"""Find skills: the project's, the user's, and those that an agent names by their folder.

Looked for in `.retinue/skills`, `.agents/skills` and `.claude/skills` of the working folder and its parents
up to the root of the repository (the nearest wins), then under the home folder: the same places as for agent
files. A broken skill hides nothing but itself: whoever names it is told what is wrong with it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from retinue.agents.document import Finding
from retinue.agents.loader import as_error, place_of, upwards
from retinue.errors import ConfigError
from retinue.reading import Folder, list_own, real_path
from retinue.skills.skill import FILE, Scope, Skill, read_skill
from retinue.types import AgentSpec

FOLDERS = (".retinue/skills", ".agents/skills", ".claude/skills")
MOST_SKILLS = 300
"""Skills of one place."""
MOST_ENTRIES = 5_000
DEPTH = 2
"""Folders within folders that are looked into for skills."""
ALL = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillFolder:
    """A folder of skills. `owner` as in `Skill`."""

    folder: Path
    scope: Scope
    owner: Folder | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillCatalogue:
    """Every skill by name. `problems` are those that could not be used; `broken` the same by name."""

    skills: dict[str, Skill] = field(default_factory=dict[str, Skill])
    problems: tuple[Finding, ...] = ()
    broken: dict[str, Finding] = field(default_factory=dict[str, Finding])

    def get(self, name: str) -> Skill:
        """The skill of this name, or a `ConfigError` that says what is wrong or which names there are."""
        if name in self.skills:
            return self.skills[name]
        if name in self.broken:
            raise as_error(self.broken[name])
        near = get_close_matches(name.lower(), self.skills, n=1, cutoff=0.6)
        known = ", ".join(sorted(self.skills)) or "none"
        hint = f"did you mean '{near[0]}'?" if near else f"a skill is a folder in {FOLDERS[1]} with a {FILE}"
        raise ConfigError(f"there is no skill {name[:80]!r}; known skills: {known}", fix=hint)


def load_skills(cwd: Path | None, home: Path | None = None) -> SkillCatalogue:
    """Read every skill; without a folder, those of no project."""
    skills: dict[str, Skill] = {}
    broken: dict[str, Finding] = {}
    problems: list[Finding] = []
    seen: set[str] = set()
    for place in skill_places(cwd, home):
        here: dict[str, Path] = {}
        for folder in folders_in(place, problems):
            real = real_path(folder)
            if real in seen:  # a link to it, for another program
                continue
            seen.add(real)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # gone since it was listed
                found, name, findings = read_skill(folder, scope=place.scope, owner=place.owner)
                errors = [finding for finding in findings if finding.level == "error"]
                problems.extend(errors)
                if name in here:
                    problems.append(_duplicate(folder, name, here[name]))
                    continue
                here[name] = folder
                if name in skills or name in broken:
                    continue
                if found is None:
                    broken[name] = errors[0]
                else:
                    skills[name] = found
    return SkillCatalogue(skills=dict(sorted(skills.items())), problems=tuple(problems), broken=broken)


def skill_places(cwd: Path | None, home: Path | None = None) -> list[SkillFolder]:
    """Every folder that may hold skills, the strongest first."""
    home = Path(os.path.abspath(Path.home() if home is None else home))
    found: list[SkillFolder] = []
    for folder in () if cwd is None else upwards(cwd, home):
        owner = Folder(folder)
        found.extend(SkillFolder(folder=folder / name, scope="project", owner=owner) for name in FOLDERS)
    found.extend(SkillFolder(folder=home / name, scope="user") for name in FOLDERS)
    return found


def place_of_skills(path: Path) -> SkillFolder:
    """The place that a skill or a folder of skills is in, by its own name alone."""
    whole = Path(os.path.abspath(path))
    home = real_path(Path.home())
    for above in (whole, *whole.parents):
        owner = above.parent.parent
        if any(above == owner / name for name in FOLDERS) and real_path(owner) != home:
            return SkillFolder(folder=path, scope="project", owner=Folder(owner))
    return SkillFolder(folder=path, scope="user")


def folders_in(place: SkillFolder, problems: list[Finding]) -> Iterator[Path]:
    """The folders of a place that have a `SKILL.md`, in the order of their names, up to a bound."""
    left, count = MOST_ENTRIES, 0
    ahead = [(place.folder, 0)]
    while ahead:
        folder, depth = ahead.pop()
        if depth and _has_skill(folder, place.owner):
            count += 1
            if count > MOST_SKILLS:
                problems.append(_too_many(place.folder, f"{MOST_SKILLS} skills"))
                return
            yield folder
            continue
        if depth > DEPTH:
            continue
        try:
            listing = list_own if place.owner is None else place.owner.list
            entries, whole = listing(folder.absolute(), left)
        except OSError:
            continue  # there is none, it leads out, or it is not ours to read
        left -= len(entries)
        # A link to a folder is looked at for a skill, and not gone through for more of them.
        ahead += [
            (folder / name, depth + 1 if is_folder else DEPTH + 1)
            for name, is_folder in reversed(entries)
            if not name.startswith(".")
        ]
        if not whole:
            problems.append(_too_many(place.folder, f"{MOST_ENTRIES:,} files and folders"))
            return


def _has_skill(folder: Path, owner: Folder | None) -> bool:
    """Whether there is one to read, or to say something about: one that leads out of its project is there."""
    path = folder / FILE
    if owner is None:
        return path.is_file()
    try:
        return (owner.path / owner.inside(path.absolute())).is_file()
    except OSError:
        return path.is_file()


def _too_many(folder: Path, what: str) -> Finding:
    return Finding(
        file=str(folder),
        line=None,
        level="error",
        message=f"holds more than {what}; the rest is not read",
        fix="move what is no skill elsewhere",
    )


def _duplicate(folder: Path, name: str, first: Path) -> Finding:
    return Finding(
        file=str(folder / FILE),
        line=None,
        level="error",
        message=f"'{name}' is the skill in {first.name} already; this one is not used",
        fix="give one of them another name",
    )


class SkillFiles:
    """The skills of an app: read at the start, and when told."""

    def __init__(self, project: Path | None) -> None:
        self.project = project
        self.catalogue = SkillCatalogue()
        self.reread()

    def reread(self) -> None:
        """Read them again. Runs that go on keep what they were told; a body is read when it is used."""
        self.catalogue = load_skills(self.project)

    def offered(self, spec: AgentSpec, *, root: bool) -> tuple[tuple[Skill, ...], tuple[ConfigError, ...]]:
        """The skills that an agent is offered, and why not those that it names and that cannot be had.

        A root that names none has all that models may choose; a child has what it names.
        """
        if spec.skills is None:
            # A program says by itself what its agents are told, and a list of tools is one of all tools.
            everything = root and spec.origin != "code" and (spec.tools is None or "skill" in spec.tools)
            return (self._all() if everything else ()), ()
        found: dict[str, Skill] = {}
        missing: list[ConfigError] = []
        for named in spec.skills:
            if named == ALL:
                found |= {skill.name: skill for skill in self._all()}
                continue
            try:
                skill = self._at(named, spec) if "/" in named else self.catalogue.get(named)
            except ConfigError as error:
                missing.append(error)
            else:
                found[skill.name] = skill
        return tuple(found.values()), tuple(missing)

    def _all(self) -> tuple[Skill, ...]:
        return tuple(skill for skill in self.catalogue.skills.values() if not skill.hidden)

    def _at(self, folder: str, spec: AgentSpec) -> Skill:
        """A skill by its folder. An agent of a project names none outside it."""
        place = place_of(Path(spec.origin)) if os.path.isabs(spec.origin) else None
        owner = None if place is None else place.owner
        path = Path(os.path.expanduser(folder))
        if not path.is_absolute():
            path = (self.project or Path()) / path
        try:
            found, _, findings = read_skill(path, scope="project" if owner else "user", owner=owner)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(
                f"there is no skill in {folder} (skills of {spec.name})", fix=f"it is a folder with a {FILE}"
            ) from None
        if found is None:
            raise as_error(next(finding for finding in findings if finding.level == "error"))
        return found
