"""Find skills: the project's, the user's, and those that an agent names by their folder.

Looked for in `.retinue/skills`, `.agents/skills` and `.claude/skills` of the working folder and its parents
up to the root of the repository (the nearest wins), then under the home folder: the same places as for agent
files. A broken skill hides nothing but itself: whoever names it is told what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from retinue.agents.document import Finding
from retinue.agents.loader import place_of
from retinue.agents.places import (
    DefinitionFolder,
    DefinitionKind,
    as_error,
    bounded_walk,
    gather,
    own_places,
    place_around,
    twice,
)
from retinue.errors import ConfigError
from retinue.reading import Folder, Kept, nothing_kept
from retinue.skills.skill import FILE, Skill, read_skill
from retinue.types import AgentSpec

FOLDERS = (".retinue/skills", ".agents/skills", ".claude/skills")
ALL = "*"


def _has_skill(folder: Path, _is_folder: bool, owner: Folder | None) -> bool:
    """Whether there is one to read, or to say something about: one that leads out of its project is there."""
    path = folder / FILE
    if owner is None:
        return path.is_file()
    try:
        return (owner.path / owner.inside(path.absolute())).is_file()
    except OSError:
        return path.is_file()


KIND = DefinitionKind(
    noun="skill",
    folders=FOLDERS,
    is_one=_has_skill,
    deepest=2,
    most=300,
    most_entries=5_000,
    counted="skills",
)


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


def load_skills(cwd: Path | None, home: Path | None = None, *, kept: Kept = nothing_kept) -> SkillCatalogue:
    """Read every skill; without a folder, those of no project. `kept`: what of a project is not read."""
    read_now = gather(
        skill_places(cwd, home, kept),
        folders_in,
        lambda place, folder: read_skill(folder, scope=place.scope, owner=place.owner),
        lambda folder, name, first: twice(folder / FILE, name, KIND, first),
    )
    return SkillCatalogue(skills=read_now.found, problems=read_now.problems, broken=read_now.broken)


def skill_places(
    cwd: Path | None, home: Path | None = None, kept: Kept = nothing_kept
) -> list[DefinitionFolder]:
    """Every folder that may hold skills, the strongest first."""
    return own_places(KIND, cwd, home, kept)


def place_of_skills(path: Path) -> DefinitionFolder:
    """The place that a skill or a folder of skills is in, by its own name alone."""
    return place_around(path, KIND, outside="user")


def folders_in(place: DefinitionFolder, problems: list[Finding]) -> Iterator[Path]:
    """The folders of a place that have a `SKILL.md`, in the order of their names, up to a bound."""
    return bounded_walk(place, KIND, problems)


class SkillFiles:
    """The skills of an app: read at the start, and when told."""

    def __init__(self, project: Path | None, kept: Kept = nothing_kept) -> None:
        self.project, self._kept = project, kept
        self.catalogue = SkillCatalogue()
        self.reread()

    def reread(self) -> None:
        """Read them again. Runs that go on keep what they were told; a body is read when it is used."""
        self.catalogue = load_skills(self.project, kept=self._kept)

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
        owner = None if place is None or place.owner is None else Folder(place.owner.path, self._kept)
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
