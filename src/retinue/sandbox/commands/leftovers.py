"""What a sealed command has left in the project that would have git run a program later: put aside.

A command may make repositories, and their settings can name programs; `git status` of the person looks into
each that was added to the project's own. Nothing keeps a command from making a folder of some name, so this
looks afterwards, before anybody is told that the command has ended, and while it runs whenever the index has
changed. A repository as `git init` makes it stays. A name is all that is changed: nothing is removed.
"""

from __future__ import annotations

import os
import time

from retinue.sandbox.commands.guards import CannotSeal
from retinue.sandbox.commands.opening import opened
from retinue.sandbox.commands.operations import harmful, harmful_since, links
from retinue.sandbox.commands.repositories import (
    ASIDE,
    MOST_FOLDERS,
    MOST_LAST,
    Folders,
    gitlinks,
    is_bare,
    is_harmless,
    is_last,
    make_accessible,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_EVERYWHERE = 200_000
MOST_NAMED = 5


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
        everywhere: list[str],
    ) -> None:
        """`repositories` are guarded, and `gits` their folders of git; `complete`: those are all.

        `folders` are those of the project before the command. `everywhere`: what git would run in any
        repository, by where it is in there.
        """
        self._project = project
        self._known = set(repositories)
        self._gits = list(gits)
        self._everywhere = everywhere
        self._began = time.time() - 1
        self._folders, self._complete = folders, complete
        folders.opens_since = self._began
        self._indexes = {git: _stamp(git) for git in self._gits}
        self._under_way = {git: harmful(git) for git in self._gits}
        self._links = {git: links(git) for git in self._gits}

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
            folders = self._walked(MOST_EVERYWHERE, MOST_EVERYWHERE)
        else:
            folders = self._walked(2 * MOST_FOLDERS, 2 * MOST_LAST)
        folders += [folder for found in linked for folder in found or ()]
        moved = [path for folder in dict.fromkeys(folders) for path in self._settled(folder)]
        for git, before in self._under_way.items():
            new = [path for path, link in links(git).items() if self._links[git].get(path) != link]
            for path in dict.fromkeys((*harmful_since(before, git), *new)):
                above, _, name = f"{git}/{path}".rpartition("/")
                moved += [f"{git}/{path}"] if _put_aside(above, name) else []
        if not moved:
            return ""
        shown = [os.path.relpath(path, self._project) for path in moved[:MOST_NAMED]]
        more = f" and {len(moved) - MOST_NAMED} more" if len(moved) > MOST_NAMED else ""
        return (
            "put aside, since git would run programs for it, or write through it, outside the sandbox: "
            f"{', '.join(shown)}{more}, "
            f"now named *{ASIDE}. A repository stays if it is as 'git init' makes it; a person may rename it"
        )

    def _linked_by(self, git: str) -> list[str] | None:
        top = os.path.dirname(git) if os.path.basename(git) == ".git" else self._project
        names = gitlinks(git)
        if names is None:
            return None
        found = [os.path.normpath(os.path.join(top, name)) for name in names]
        return [path for path in found if path not in self._known and os.path.lexists(f"{path}/.git")]

    def _walked(self, most: int, most_last: int) -> list[str]:
        """Repositories that were not there before: where not all folders were looked into, by their dates."""
        names, _ = self._folders.inner(self._project, most, most_last=most_last)
        found = {f"{self._project}/{name}": self._complete and not is_last(name) for name in names}
        return [
            folder
            for folder, was_missing in found.items()
            if folder not in self._known and (was_missing or self._is_new(folder))
        ]

    def _settled(self, folder: str) -> list[str]:
        """Of a bare repository, which lies among other files, `HEAD` alone: without it, it is none."""
        git = f"{folder}/.git"
        moved = (
            [git] if os.path.lexists(git) and self._runs(folder, git) and _put_aside(folder, ".git") else []
        )
        bare = is_bare(folder) and self._runs(folder, folder) and _put_aside(folder, "HEAD")
        return [*moved, f"{folder}/HEAD"] if bare else moved

    def _runs(self, folder: str, git: str) -> bool:
        """Whether git might run a program for it. Hooks of pushes run in the folder of git."""
        places = [f"{top}/{place}" for place in self._everywhere for top in (folder, git)]
        return any(map(os.path.lexists, places)) or not is_harmless(git) or bool(harmful(git) or links(git))

    def _is_new(self, folder: str) -> bool:
        git = f"{folder}/.git"
        paths = [git, f"{git}/config", f"{git}/hooks"]
        if is_bare(folder):
            paths += [f"{folder}/{name}" for name in ("HEAD", "config", "hooks", "commondir")]
        found = [status for status in map(_status, paths) if status is not None]
        return any(status.st_ctime >= self._began for status in found)


def _status(path: str) -> os.stat_result | None:
    """None also if another command has just removed it."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _stamp(git: str) -> tuple[int, int, int] | None:
    found = _status(f"{git}/index")
    return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)


def _put_aside(folder: str, name: str) -> bool:
    """Another command may run at the same time, and put links in the way: none is followed."""
    try:
        handle = opened(folder)
    except (CannotSeal, OSError):
        return False
    try:
        make_accessible(folder)
        aside = next(aside for aside in _names_for(name) if not _is_in(handle, aside))
        os.rename(name, aside, src_dir_fd=handle, dst_dir_fd=handle)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _names_for(name: str) -> Iterator[str]:
    """The last ones cannot be taken: nobody knows them before."""
    yield from (f"{name}{ASIDE}{number}" for number in ("", *range(2, 10)))
    while True:
        yield f"{name}{ASIDE}-{os.urandom(8).hex()}"


def _is_in(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
