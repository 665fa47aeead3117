"""`retinue init`: a first set of files for a project, to read and to change.

What is there stays as it is. What it writes is in `starter/`; each of them loads as it stands.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from retinue.cli import exits

FILES = {
    "retinue.toml": "retinue.toml",
    ".retinue/agents/timekeeper.md": "timekeeper.md",
    ".retinue/tools/dates.py": "dates.py",
    ".agents/skills/plain-dates/SKILL.md": "SKILL.md",
}
"""Where each goes in a project, and its name in `starter/`."""
ABOUT = {
    "retinue.toml": "settings of the project, all of them commented out",
    ".retinue/agents/timekeeper.md": "an agent, with a tool and a skill of its own",
    ".retinue/tools/dates.py": "its tool: a Python function",
    ".agents/skills/plain-dates/SKILL.md": "its skill: instructions that it reads when it needs them",
}


def init(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The project; without, this folder.")
    ] = None,
) -> int:
    """Put settings, an agent, a tool and a skill into a project, as examples to change.

    Nothing that is there is overwritten.

    \b
    Examples:
      retinue init
      retinue init ~/work/shop
    """
    from retinue.errors import ConfigError
    from retinue.view.paint import note, out

    base = (folder or Path()).absolute()
    if not base.is_dir():
        raise ConfigError(f"there is no folder {base}", fix="make it first, or name another one")
    written: list[str] = []
    width = max(map(len, FILES))
    for path, source in FILES.items():
        if os.path.lexists(base / path):
            note(f"  {path:{width}}  is there already, and stays as it is", "dim")
            continue
        _write(base, path, (Path(__file__).parent / "starter" / source).read_text("utf-8"))
        written.append(path)
        out(f"  {path:{width}}  {ABOUT[path]}")
    if not written:
        return exits.OK
    note("Read them, then:", "bold")
    for command, why in _next(folder, written):
        note(f"  {command:48}  {why}")
    return exits.OK


def _next(folder: Path | None, written: list[str]) -> list[tuple[str, str]]:
    found = [] if folder is None else [(f"cd {folder}", "")]
    if any(path.endswith(".py") for path in written):
        found.append(("retinue config trust && retinue tools trust", "let the tool run: it is code"))
    return [
        *found,
        ("retinue agents check && retinue skills check", "says what is wrong, after a change too"),
        ('retinue run timekeeper "days until 2027-03-03?"', "the agent alone; or ask for it in 'retinue'"),
    ]


def _write(base: Path, path: str, text: str) -> None:
    """Nothing outside the project is written, whatever links came with it."""
    import errno

    from retinue.errors import ConfigError
    from retinue.jail import Jail

    try:
        with Jail(base) as jail, jail.open_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        why = "a link is in the way" if error.errno in (errno.ELOOP, errno.EXDEV) else error.strerror
        raise ConfigError(f"cannot be written: {why}", file=str(base / path)) from None
