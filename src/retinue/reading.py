"""Reads the files that Retinue looks at by itself: instructions, settings, agent files, tokens, recordings.

Everything that reads such a file comes here, so that none of them can hang, eat the memory or lead elsewhere:
only regular files, never more than a bound, and no pipe or device is waited for. `read_own` is for what the
user keeps. `Folder` is for what came with a repository: nothing outside the folder is ever opened, whatever
links say and whatever is swapped meanwhile. `read_named` is for what a person names, which may be either.
What agents read goes through `workspace`, not here.

Failures are `OSError`s; an `Unreadable` says in its `why` what is wrong, to stand behind the file's name:

    EXDEV   leads out of its folder, by a link or by its name
    EINVAL  is not a regular file
    EFBIG   is larger than the bound
    ESTALE  changes while it is read
    EACCES  is kept from being read: it is a file of secrets under another name, or a rule denies it
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from retinue.jail import Jail
from retinue.secret_names import is_secret

MOST_SETTINGS = 1_000_000
"""Bytes of a file of settings, tokens or the like: a thousand times what anybody writes."""

MOST_NAMES = 100_000
"""Entries of a folder that are looked through for the other names of a file with hard links."""

Kept = Callable[[Path, str, bool], str | None]
"""Why nobody is shown a file: its folder, its name in there, and whether that is another name than the one it
was found by. In words that follow "is"; None for any file that may be shown."""

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Unreadable(OSError):
    """A file that is there and is not read."""

    @property
    def why(self) -> str:
        return str(self.strerror)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What was read. `name` is where in its folder the file really is; `cut`: there is more of it."""

    data: bytes
    name: str
    cut: bool = False


def read_own(path: str | Path, most: int) -> bytes:
    """A whole file of the user's. Links are followed, wherever they lead."""
    try:
        # Looked at before it is opened: opening a device can already do something.
        _require_regular(os.stat(path), str(path))
        fd = os.open(path, _OPEN)
    except ValueError:  # a NUL in the name
        raise Unreadable(errno.EINVAL, "is not the name of a file", str(path)) from None
    with open(fd, "rb") as file:
        return _read(file, str(path), most).data


def read_named(path: str | Path, most: int, *, project: Path | None) -> bytes:
    """A whole file that a person named. One that is named as a file of the `project` has to be in there
    really: a link that came with a repository must not pick another file than the one a person sees, nor may
    a hard link to a file of secrets."""
    if project is not None:
        folder = Folder(project, nothing_kept)
        whole = os.path.abspath(path)
        above, name = os.path.split(whole)
        if Path(whole).is_relative_to(os.path.abspath(project)):
            return folder.read(whole, most, named=True).data
        if name and lies_in(above, project):  # by a link to the project, or to a folder of it
            return folder.read(os.path.join(real_path(above), name), most, named=True).data
    return read_own(path, most)


def text_of(data: bytes, name: str) -> str:
    """UTF-8, with or without a mark at the beginning, or `Unreadable`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(errno.EILSEQ, f"is not UTF-8 text (line {line})", name) from None


def real_path(path: str | Path) -> str:
    """Where a path leads, as far as can be told. Unlike Python's, it bears links that change meanwhile."""
    try:
        return os.path.realpath(path)
    except OSError:
        return os.path.abspath(path)


def lies_in(path: str | Path, folder: str | Path) -> bool:
    """Whether a path is really this folder, or below it."""
    return f"{real_path(path)}/".startswith(f"{real_path(folder).rstrip('/')}/")


def list_own(path: Path, most: int) -> tuple[list[tuple[str, bool]], bool]:
    """What `Folder.list` tells, of a folder of the user's."""
    with os.scandir(path) as found:
        return _some(found, most)


def nothing_kept(folder: Path, name: str, other: bool) -> None:
    """For what a model is shown where no rules are known. Files of secrets are kept from it all the same."""


class Folder:
    """A folder that somebody else may have filled. A link may lead to anywhere in it, and not out of it.

    No name stands for a file of secrets: such a file is read only under its own name, if a person `named` it.
    With `kept`, what is read is shown to a model: rules about paths hold for every name of a file, those of
    hard links too.
    """

    def __init__(self, path: Path, kept: Kept | None = None) -> None:
        self.path, self._given = Path(real_path(path)), os.path.abspath(path)
        self.kept = kept
        self._shared: tuple[dict[tuple[int, int], list[str]], bool] | None = None

    def _jail(self) -> Jail:
        return Jail(self.path, method="walk")  # the other one needs ctypes, and this is read at every start

    def inside(self, path: str | Path) -> str:
        """Where a path really leads, below the folder. Only a hint: what lies there may change at once.

        The path is a whole one, or relative to the folder.
        """
        try:
            real = os.path.realpath(self.path / path)
        except ValueError:  # a NUL in the name
            raise Unreadable(errno.EINVAL, "is not the name of a file", str(path)) from None
        except OSError:
            raise Unreadable(errno.ESTALE, "changes while it is read", str(path)) from None
        if real != str(self.path) and not real.startswith(str(self.path).rstrip("/") + "/"):
            raise Unreadable(errno.EXDEV, self._leads_out(path), str(path))
        return os.path.relpath(real, self.path)

    def _leads_out(self, path: str | Path) -> str:
        """What is said of a path that leads out: a name such as `../x` does so without a link."""
        top = str(self.path).rstrip("/") + "/"
        named = os.path.normpath(os.path.join(top, path))
        return "leads out of its folder by a link" if named.startswith(top) else "is outside of its folder"

    def read(self, path: str | Path, most: int, *, whole: bool = True, named: bool = False) -> Found:
        """A file of at most so many bytes; without `whole`, the beginning of a larger one."""
        try:
            really = self.inside(path)
            # All links are resolved by now. One that is met has just been swapped in.
            with self._jail() as jail, jail.open_read(really, follow=False) as file:
                found = _read(file, really, most, whole=whole)
                self._refuse_kept(str(path), really, os.fstat(file.fileno()), named=named)
                return found
        except OSError as error:
            raise _in_words(error, str(path), self._leads_out(path)) from None

    def _refuse_kept(self, path: str, really: str, found: os.stat_result, *, named: bool) -> None:
        asked = self._asked(path)
        linked = {} if asked == really else {really: f"a link to {really!r}, which "}
        others, whole = self._other_names(really, found)
        same = {name: f"the same file as {name!r}, which " for name in others if name != asked}
        for name, which in {**({} if named else {asked: ""}), **linked, **same}.items():
            if is_secret(name) and not (named and is_secret(asked)):
                why = f"is {which}usually holds secrets" if which else "has the name of a file of secrets"
                raise Unreadable(errno.EACCES, why, path)
            why = None if self.kept is None else self.kept(self.path, name, bool(which))
            if why is not None:
                raise Unreadable(errno.EACCES, f"is {which}is {why}" if which else f"is {why}", path)
        if not whole:
            why = f"has other names, and not all of more than {MOST_NAMES:,} files were looked at for them"
            raise Unreadable(errno.EACCES, why, path)

    def _asked(self, path: str) -> str:
        """The name in here that a path says, its links not followed."""
        plain = os.path.normpath(path)
        for top in (str(self.path), self._given):
            if plain.startswith(top.rstrip("/") + "/"):
                return os.path.relpath(plain, top)
        return plain

    def _other_names(self, really: str, found: os.stat_result) -> tuple[list[str], bool]:
        """The other names in here of a file that a model is to be shown, and whether these are all."""
        if self.kept is None or found.st_nlink < 2:
            return [], True
        if self._shared is None:
            self._shared = self._all_shared()
        known, whole = self._shared
        names = known.get((found.st_dev, found.st_ino), [])
        return [name for name in names if name != really], whole or len(names) >= found.st_nlink

    def _all_shared(self) -> tuple[dict[tuple[int, int], list[str]], bool]:
        names: dict[tuple[int, int], list[str]] = {}
        with self._jail() as jail:
            for number, (name, entry) in enumerate(jail.walk()):
                if number >= MOST_NAMES:
                    return names, False
                if entry.kind == "file" and entry.links > 1:
                    names.setdefault(entry.file, []).append(name)
        return names, True

    def anew(self) -> Folder:
        """The same folder, without what was found out about it."""
        return Folder(self.path, self.kept)

    def list(self, path: str | Path, most: int) -> tuple[list[tuple[str, bool]], bool]:
        """The names in a folder, sorted, each with whether it is a folder; and whether these are all."""
        with self._jail() as jail, jail.folder(self.inside(path)) as fd, os.scandir(fd) as found:
            return _some(found, most)

    def names_of(self, found: os.stat_result, most: int) -> tuple[list[str], bool]:
        """The names in the folder of one file with hard links, and whether all of it was looked at."""
        names: list[str] = []
        with self._jail() as jail:
            for number, (name, entry) in enumerate(jail.walk()):
                if number >= most:
                    return names, False
                with contextlib.suppress(OSError):  # gone meanwhile
                    if entry.kind == "file" and os.path.samestat(jail.stat(name), found):
                        names.append(name)
        return names, True

    def is_anothers(self, really: str) -> bool:
        """Whether a file (by its real name, as `read` tells it) is of a repository further down."""
        return any(os.path.lexists(self.path / above / ".git") for above in _upwards(os.path.dirname(really)))


def _some(found: Iterator[os.DirEntry[str]], most: int) -> tuple[list[tuple[str, bool]], bool]:
    entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(found, most + 1)]
    return sorted(entries[:most]), len(entries) <= most


def _upwards(name: str) -> Iterator[str]:
    """`a/b`, then `a`."""
    while name not in ("", "."):
        yield name
        name = os.path.dirname(name)


def _read(file: BinaryIO, name: str, most: int, *, whole: bool = True) -> Found:
    found = os.fstat(file.fileno())
    _require_regular(found, name)
    too_large = Unreadable(errno.EFBIG, f"is larger than the {most:,} bytes that are read of it", name)
    if whole and found.st_size > most:
        raise too_large
    data = file.read(most + 1)  # it may grow while it is read
    if whole and len(data) > most:
        raise too_large
    return Found(data=data[:most], name=name, cut=len(data) > most)


def _require_regular(found: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise Unreadable(errno.EISDIR, "is a folder", name)
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable(errno.EINVAL, "is not a regular file", name)


def _in_words(error: OSError, name: str, leads_out: str) -> OSError:
    """The same failure under the name that was asked for; `leads_out` is what is said if it is outside."""
    if isinstance(error, Unreadable):
        return Unreadable(error.errno, error.strerror, name)
    words = {
        errno.EINVAL: "is not a regular file",
        errno.EISDIR: "is a folder",
        errno.EXDEV: leads_out,
        errno.ELOOP: "goes through links that lead nowhere or change meanwhile",
    }.get(error.errno or 0)
    return (
        OSError(error.errno, error.strerror, name) if words is None else Unreadable(error.errno, words, name)
    )
