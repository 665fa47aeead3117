"""Files of a project that say what runs later, with the person's rights: nobody changes one unasked.

Hooks and settings of git, what these name elsewhere (git is asked), folders that would become repositories,
what agents and servers are made of, and what agents are told in every run (`AGENTS.md`, at any depth). The
sandbox for commands keeps the same places as they are, of the last those at the top of repositories; this is
for tools that write. Looks at paths, wherever their links lead. Takes some milliseconds: not for an event
loop.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from retinue.authority.places import places
from retinue.sandbox.commands.gitsettings import GitDoesNotSay
from retinue.sandbox.commands.guards import TEXTS
from retinue.sandbox.commands.repositories import is_bare
from retinue.sandbox.commands.view import git_names
from retinue.workspace import HOME, Files

PLACES = frozenset({".git", ".retinue", ".claude", ".agents", ".mcp.json", "retinue.toml"})
_TEXTS = frozenset(name.casefold() for name in TEXTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsLater:
    """One such file that a call would change."""

    name: str
    """What a person is told that it changes: the file, or the link that leads to it."""
    path: str
    spell_out: tuple[str, ...]
    """Paths whose last part a rule has to say without a star, to mean this file: its folder `.git`, or it."""

    @property
    def why(self) -> str:
        """What a person is told of it."""
        if self.name.casefold().rpartition("/")[2] in _TEXTS:
            return f"{self.name} says what agents are told in later runs"
        return f"{self.name} says what runs later, with your rights"


def run_later(targets: Iterable[str], files: Files, environ: Mapping[str, str]) -> dict[str, RunsLater]:
    """Those of the paths that lead to such a file when all of them are written, each with what it changes;
    what is in a workspace is none. `environ` is that of the person whose settings of git count.
    """
    found: dict[str, RunsLater] = {}
    others: dict[str, str] = {}
    for target in targets:
        spelled, real = places(target, files)
        if any(name == HOME or name.startswith(f"{HOME}/") for name in (*spelled[1:2], real[0])):
            continue
        names = [name for name in (real[0], *spelled) if not posixpath.isabs(name)] or spelled
        named = {name: guarded for name in names if (guarded := _guarded(name))}
        if named:
            spell_out = tuple(dict.fromkeys(each for guarded in named.values() for each in guarded))
            found[target] = RunsLater(name=next(iter(named)), path=next(iter(named)), spell_out=spell_out)
        elif files.project is not None:
            others[target] = os.path.realpath(files.project / spelled[0])
    if others and files.project is not None:
        found |= _by_place(others, files.project, environ)
    return found


def _guarded(name: str) -> list[str]:
    """The guarded places that a path goes through, and the path itself if it is one of the texts."""
    parts = name.split("/")
    texts = [name] if parts[-1].casefold() in _TEXTS else []
    return ["/".join(parts[: n + 1]) for n, part in enumerate(parts) if part.casefold() in PLACES] + texts


def _by_place(targets: dict[str, str], project: Path, environ: Mapping[str, str]) -> dict[str, RunsLater]:
    """By where they really are: what a place leads to by a link, what git names, what makes a repository."""
    top = os.path.realpath(project)
    coming = {above for whole in targets.values() for above in _upwards(whole, top)}
    links = [*_links(project), *_linked_texts(coming, top)]
    try:
        named = [path for path, _ in git_names(top, environ)]
    except GitDoesNotSay:  # so it may be any of them
        return {target: _itself(os.path.relpath(whole, top)) for target, whole in targets.items()}
    found: dict[str, RunsLater] = {}
    for target, whole in targets.items():
        path = os.path.relpath(whole, top)
        name = next((name for name, place in links if f"{whole}/".startswith(place)), None)
        folders = _upwards(os.path.dirname(whole), top)
        of_git = any(_makes_repository(whole, each, coming) or is_bare(each, coming) for each in folders)
        if of_git or any(_is_in(whole, each, top) for each in named):
            name = name or path
        if name is not None:
            found[target] = _itself(path, name)
    return found


def _itself(path: str, name: str = "") -> RunsLater:
    """Nothing in its path tells that it runs: a rule means it only by its own name, not by a folder's."""
    return RunsLater(name=name or path, path=path, spell_out=(path,))


def _makes_repository(whole: str, folder: str, coming: Container[str]) -> bool:
    """Whether a file is one of those that make a folder a repository. Each is looked at by itself: several
    calls are judged before the first of them has written, so whoever completes it cannot be told."""
    head = f"{folder}/HEAD"
    if whole == head:
        return True
    part = whole[len(folder) + 1 :].partition("/")[0]
    return part in ("objects", "refs", "commondir") and (head in coming or os.path.lexists(head))


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
