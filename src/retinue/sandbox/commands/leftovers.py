"""What a sealed command has left in the project that would have git run a program later: put aside.

A command may make repositories, and their settings can name programs; `git status` of the person looks into
each that was added to the project's own. Nothing keeps a command from making a folder of some name, so this
looks afterwards, before anybody is told that the command has ended, and while it runs whenever the index has
changed. A repository as `git init` makes it stays. A name is all that is changed: nothing is removed.
"""

from __future__ import annotations

import os
import re
import stat
import time

from retinue.sandbox.commands.guards import CannotSeal
from retinue.sandbox.commands.opening import opened
from retinue.sandbox.commands.repositories import MOST_FOLDERS, Folders, gitlinks, is_harmless, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ASIDE = ".from-sandbox"
MOST_EVERYWHERE = 200_000
MOST_TODO = 1_000_000
MOST_NAMED = 5
_RUNS = re.compile(rb"^[ \t]*(?:exec|x)(?:[ \t][^\n]*|$)", re.MULTILINE)
"""A line of an unfinished rebase that runs a program."""


class Leftovers:
    """Of one command. Made before it begins."""

    def __init__(
        self,
        project: str,
        repositories: Iterable[str],
        gits: Iterable[str],
        *,
        folders: Folders,
        complete: bool,
    ) -> None:
        """`repositories` are guarded, and `gits` their folders of git; `complete`: those are all.

        `folders` are those of the project before the command.
        """
        self._project = project
        self._known = set(repositories)
        self._gits = list(gits)
        self._began = time.time() - 1
        self._folders, self._complete = folders, complete
        self._indexes = {git: _stamp(git) for git in self._gits}
        self._todos = {git: set(_RUNS.findall(_todo(git))) for git in self._gits}

    def linked(self) -> str:
        """A repository that this command has made and added to the project's, as far as an index tells."""
        for git, before in self._indexes.items():
            self._indexes[git] = _stamp(git)
            if self._indexes[git] != before and (found := self._linked_by(git)):
                return os.path.relpath(found[0], self._project)
        return ""

    def settle(self) -> str:
        """Put aside what is there. What was, in words."""
        linked = [self._linked_by(git) for git in self._gits]
        if None in linked:  # an index that only git can read, perhaps
            folders = self._walked(MOST_EVERYWHERE, frozenset())
        else:
            folders = self._walked(2 * MOST_FOLDERS)
        folders += [folder for found in linked for folder in found or ()]
        moved = [
            f"{folder}/.git"
            for folder in dict.fromkeys(folders)
            if not is_harmless(f"{folder}/.git") and _put_aside(folder, ".git")
        ]
        for git, before in self._todos.items():
            moved += _settled_rebase(git, before)
        if not moved:
            return ""
        shown = [os.path.relpath(path, self._project) for path in moved[:MOST_NAMED]]
        more = f" and {len(moved) - MOST_NAMED} more" if len(moved) > MOST_NAMED else ""
        return (
            f"put aside, since git would run programs for it outside the sandbox: {', '.join(shown)}{more}, "
            f"now named *{ASIDE}. A repository stays if it is as 'git init' makes it; a person may rename it"
        )

    def _linked_by(self, git: str) -> list[str] | None:
        top = os.path.dirname(git) if os.path.basename(git) == ".git" else self._project
        names = gitlinks(git)
        if names is None:
            return None
        found = [os.path.normpath(os.path.join(top, name)) for name in names]
        return [path for path in found if path not in self._known and os.path.lexists(f"{path}/.git")]

    def _walked(self, most: int, skip: frozenset[str] | None = None) -> list[str]:
        """Repositories that were not there before: where not all folders were looked into, by their dates."""
        look = self._folders.inner
        names, _ = look(self._project, most) if skip is None else look(self._project, most, skip=skip)
        found = [f"{self._project}/{name}" for name in names]
        return [
            folder
            for folder in found
            if folder not in self._known and (self._complete or self._is_new(folder))
        ]

    def _is_new(self, folder: str) -> bool:
        return any(
            os.path.lexists(path) and os.lstat(path).st_ctime >= self._began
            for path in (f"{folder}/.git", f"{folder}/.git/config", f"{folder}/.git/hooks")
        )


def _stamp(git: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(f"{git}/index")
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _todo(git: str) -> bytes:
    return text_of(f"{git}/rebase-merge/git-rebase-todo", MOST_TODO)


def _settled_rebase(git: str, before: set[bytes]) -> list[str]:
    """An unfinished rebase whose next steps run something, since this command."""
    folder = f"{git}/rebase-merge"
    if not os.path.lexists(folder):
        return []
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        return [folder] if _put_aside(git, "rebase-merge") else []
    path = f"{folder}/git-rebase-todo"
    if not os.path.lexists(path):
        return []
    found = os.lstat(path)
    plain = stat.S_ISREG(found.st_mode) and found.st_size < MOST_TODO
    if plain and set(_RUNS.findall(_todo(git))) <= before:
        return []
    return [path] if _put_aside(folder, "git-rebase-todo") else []


def _put_aside(folder: str, name: str) -> bool:
    """Another command may run at the same time, and put links in the way: none is followed."""
    try:
        handle = opened(folder)
    except (CannotSeal, OSError):
        return False
    try:
        for number in ("", *map(str, range(2, 100))):
            try:
                os.stat(f"{name}{ASIDE}{number}", dir_fd=handle, follow_symlinks=False)
            except FileNotFoundError:
                os.rename(name, f"{name}{ASIDE}{number}", src_dir_fd=handle, dst_dir_fd=handle)
                return True
        return False
    except OSError:
        return False
    finally:
        os.close(handle)
