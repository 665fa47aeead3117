"""Files of a project that say what runs later, with the person's rights: nobody changes one unasked.

Hooks and settings of git, and what agents and servers are made of. The sandbox for commands keeps the same
places as they are; this is for tools that write. Looks at paths alone, wherever their links lead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from retinue.authority.places import places
from retinue.workspace import HOME, Files

PLACES = frozenset({".git", ".retinue", ".claude", ".agents", ".mcp.json", "retinue.toml"})


def run_later(targets: Iterable[str], files: Files) -> list[str]:
    """Those of the paths that lead to such a file, each named once; what is in a workspace is none."""
    found: dict[str, None] = {}
    for target in targets:
        if "://" in target:
            continue
        spelled, real = places(target, files)
        if any(name == HOME or name.startswith(f"{HOME}/") for name in (*spelled[1:2], real[0])):
            continue
        named = next((name for name in (real[0], *spelled) if PLACES & {*name.casefold().split("/")}), None)
        if named is None and files.project is not None:
            whole = os.path.realpath(files.project / spelled[0])
            named = next((name for name, led in _links(files.project) if f"{whole}/".startswith(led)), None)
        if named is not None:
            found[named] = None
    return list(found)


def _links(project: Path) -> Iterator[tuple[str, str]]:
    """Such places that are links themselves, and where they lead: that is changed by another name."""
    hooks = project / ".git" / "hooks"
    inner = sorted(hooks.iterdir()) if hooks.is_dir() else []
    for path in (*(project / name for name in sorted(PLACES)), hooks, project / ".git" / "config", *inner):
        if path.is_symlink():
            yield str(path.relative_to(project)), os.path.realpath(path) + "/"
