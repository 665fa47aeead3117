"""Files of a project that say what runs later, with the person's rights: nobody changes one unasked.

Hooks and settings of git, what these name elsewhere (git is asked), folders that would become repositories,
what agents and servers are made of, and what agents are told in every run (`AGENTS.md`, at any depth). The
sandbox for commands keeps the same places as they are, of the last those at the top of repositories; this is
for tools that write. Looks at paths, wherever their links lead. Takes some milliseconds: not for an event
loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from retinue.authority.places import places
from retinue.sandbox.commands.gitsettings import GitDoesNotSay
from retinue.sandbox.commands.guards import TEXTS
from retinue.sandbox.commands.repositories import is_bare
from retinue.sandbox.commands.view import git_names
from retinue.workspace import HOME, Files

PLACES = frozenset({".git", ".retinue", ".claude", ".agents", ".mcp.json", "retinue.toml"})
_TEXTS = frozenset(name.casefold() for name in TEXTS)


def said_of(name: str) -> str:
    """What a person is told of such a file."""
    if name.casefold().rpartition("/")[2] in _TEXTS:
        return f"{name} says what agents are told in later runs"
    return f"{name} says what runs later, with your rights"


def run_later(targets: Iterable[str], files: Files, environ: Mapping[str, str]) -> dict[str, str]:
    """Those of the paths that lead to such a file when all of them are written, each with the name of what
    it changes; what is in a workspace is none. `environ` is that of the person whose settings of git count.
    """
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    for target in targets:
        spelled, real = places(target, files)
        if any(name == HOME or name.startswith(f"{HOME}/") for name in (*spelled[1:2], real[0])):
            continue
        named = next((name for name in (real[0], *spelled) if _is_meant(name.casefold().split("/"))), None)
        if named is not None:
            found[target] = named
        elif files.project is not None:
            others[target] = os.path.realpath(files.project / spelled[0])
    if others and files.project is not None:
        found |= _by_place(others, files.project, environ)
    return found


def _is_meant(parts: list[str]) -> bool:
    return parts[-1] in _TEXTS or not PLACES.isdisjoint(parts)


def _by_place(targets: dict[str, str], project: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """By where they really are: what a place leads to by a link, what git names, what makes a repository."""
    top = os.path.realpath(project)
    coming = {above for whole in targets.values() for above in _upwards(whole, top)}
    links = [*_links(project), *_linked_texts(coming, top)]
    try:
        named = [path for path, _ in git_names(top, environ)]
    except GitDoesNotSay:  # so it may be any of them
        return {target: os.path.relpath(whole, top) for target, whole in targets.items()}
    found: dict[str, str] = {}
    for target, whole in targets.items():
        name = next((name for name, place in links if f"{whole}/".startswith(place)), None)
        folders = _upwards(os.path.dirname(whole), top)
        if any(_is_in(whole, path, top) for path in named) or any(is_bare(each, coming) for each in folders):
            name = name or os.path.relpath(whole, top)
        if name is not None:
            found[target] = name
    return found


def _links(project: Path) -> Iterator[tuple[str, str]]:
    """Such places that are links themselves, and where they lead: that is changed by another name."""
    hooks = project / ".git" / "hooks"
    inner = sorted(hooks.iterdir()) if hooks.is_dir() else []
    for path in (*(project / name for name in sorted(PLACES)), hooks, project / ".git" / "config", *inner):
        if path.is_symlink():
            yield str(path.relative_to(project)), os.path.realpath(path) + "/"


def _linked_texts(folders: Iterable[str], top: str) -> Iterator[tuple[str, str]]:
    for path in (f"{folder}/{name}" for folder in folders for name in TEXTS):
        if os.path.islink(path):
            yield os.path.relpath(path, top), os.path.realpath(path) + "/"


def _is_in(whole: str, path: str, project: str) -> bool:
    """Whether a file is one that git names, or in such a folder; of a project's own folder, right in it."""
    if f"{project}/".startswith(f"{path}/"):
        return os.path.dirname(whole) == path
    return f"{whole}/".startswith(f"{path}/")


def _upwards(path: str, project: str) -> Iterator[str]:
    """A path of the project and the folders above it, up to the project's own."""
    while f"{path}/".startswith(f"{project}/"):
        yield path
        if path == project:
            return
        path = os.path.dirname(path)
