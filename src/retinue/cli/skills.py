"""`retinue skills`: which skills there are, what they say, and whether they are in order."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.definitions import print_definitions, print_findings, print_head
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.skills import Skill, SkillCatalogue

app = new_group(
    "The skills there are: folders with a SKILL.md that agents read when a task needs it.",
    (
        "skills list",
        "skills show release-notes",
        "skills check .agents/skills",
    ),
)


def _catalogue(cwd: Path | None) -> SkillCatalogue:
    from retinue.kept_files import kept_here
    from retinue.skills import load_skills

    here = (cwd or Path()).absolute()
    return load_skills(here, kept=kept_here(here))


@app.command("list")
def list_skills(cwd: o.Cwd = None, json: o.Json = False) -> int:
    """List the skills of this folder and your own.

    \b
    Examples:
      retinue skills list
      retinue skills list --json | jq -r .name
    """
    from retinue.view.paint import note, out_json
    from retinue.view.table import TableColumn
    from retinue.view.words import one_line

    catalogue = _catalogue(cwd)
    skills = list(catalogue.skills.values())
    if json:
        for skill in skills:
            out_json(json_format.dumps(_facts(skill), ensure_ascii=False))
    elif not skills and not catalogue.problems:
        note("no skills here: a skill is a folder in .agents/skills with a SKILL.md", "dim")
    heads = (
        TableColumn(title="SKILL"),
        TableColumn(title="FROM", rank=1),
        TableColumn(title="WHEN TO USE IT", flexible=True),
    )
    rows = [[(one.name, "bold"), (one.scope, "dim"), (one_line(one.description), "")] for one in skills]
    return print_definitions(heads, [] if json else rows, catalogue.problems)


@app.command("show")
def show_skill(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    cwd: o.Cwd = None,
    json: o.Json = False,
) -> int:
    """Show one skill: where it is, its fields, its files and its instructions.

    \b
    Examples:
      retinue skills show release-notes
      retinue skills show release-notes --json | jq -r .body
    """
    from retinue.agents.document import Invalid
    from retinue.errors import ConfigError
    from retinue.view.paint import out, out_json

    skill = _catalogue(cwd).get(name)
    try:
        body = skill.body()
    except (Invalid, OSError) as error:
        raise ConfigError(f"{skill.folder} cannot be read: {error}") from None
    files, whole = skill.files()
    if json:
        facts = _facts(skill) | {"files": files, "all_files": whole, "body": body}
        out_json(json_format.dumps(facts, ensure_ascii=False, indent=2))
        return exits.OK
    print_head(skill.scope, skill.folder, skill.notes)
    for title, text in (
        ("name", skill.name),
        ("description", skill.description),
        ("license", skill.license),
        ("needs", skill.compatibility),
        ("allowed-tools", f"{' '.join(skill.allowed_tools)} (grants nothing)" if skill.allowed_tools else ""),
        ("metadata", ", ".join(f"{key}: {value}" for key, value in skill.metadata.items())),
        ("files", ", ".join(files) + ("" if whole else ", …")),
    ):
        if text:
            out(f"{title}: {text}")
    out(f"\n{body}")
    return exits.OK


def _facts(skill: Skill) -> dict[str, Any]:
    return {
        "name": skill.name,
        "description": skill.description,
        "scope": skill.scope,
        "path": str(skill.folder),
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": skill.metadata,
        "allowed_tools": list(skill.allowed_tools),
        "hidden": skill.hidden,
        "notes": [str(finding) for finding in skill.notes],
    }


@app.command("check")
def check_skill_folders(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Skills or folders of them; without, all that are found here."),
    ] = None,
    cwd: o.Cwd = None,
) -> int:
    """Look skills over and say what is wrong, not obeyed here, or likely not meant.

    \b
    Examples:
      retinue skills check
      retinue skills check .claude/skills/pdf
    """
    from retinue.skills import check_skills
    from retinue.skills.loader import folders_in, skill_places

    given = list(paths or ())
    found = given or [
        folder for place in skill_places((cwd or Path()).absolute()) for folder in folders_in(place, [])
    ]
    return print_findings(check_skills(found), checked=len(found))
