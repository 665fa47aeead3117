"""Where settings are written: the user's `config.toml` and a project's `retinue.toml`, found and read.

Called by `load` and the command line. It knows no setting by name and checks no value; it says which file
counts, reads it within bounds, and says which folders the user trusts.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from retinue.errors import ConfigError
from retinue.reading import MOST_SETTINGS, Folder, read_own, real_path, text_of
from retinue.settings.kept_rules import KEPT, KeptRules
from retinue.settings.tables import declared
from retinue.settings.trusted_folders import TrustedFolders

PROJECT_FILE = "retinue.toml"
CONFIG_VARIABLE = "RETINUE_CONFIG"
TRUST = "trust"
LISTS = (TRUST, KEPT)
"""What stands in the user's file beside the settings, and counts in no other."""

STANDS_IN_SINCE = 1_000_000_000 * 10**9
"""The date of what takes the place of a missing `.git` for the sandbox, in nanoseconds."""


def user_file() -> Path:
    override = os.environ.get(CONFIG_VARIABLE)
    if override:
        return Path(override)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "retinue" / "config.toml"


def named_and_absent() -> Path | None:
    """The file that the variable names, if there is none: a slip, which would take every rule away."""
    user = user_file()
    return user if os.environ.get(CONFIG_VARIABLE) and not os.path.lexists(user) else None


def find_project_file(cwd: Path) -> Path | None:
    """The nearest of them."""
    return next(find_project_files(cwd), None)


def find_project_files(cwd: Path) -> Iterator[Path]:
    """Each `retinue.toml` above where a folder really is, upwards to the root of the repository.

    Outside a repository a file further up counts only if nobody else put it there: the way up may lead
    through /tmp.
    """
    cwd = Path(real_path(cwd))
    for folder in (cwd, *cwd.parents):
        file = folder / PROJECT_FILE
        if os.path.lexists(file) and not file.is_dir() and (folder == cwd or _is_ours(file)):
            yield file
        if (folder / ".git").exists() and not _stands_in(folder / ".git"):
            return


def _stands_in(git: Path) -> bool:
    """Whether it is there only while commands run in the sandbox (`sandbox.commands.guards`)."""
    try:
        return git.lstat().st_mtime_ns == STANDS_IN_SINCE
    except OSError:
        return True  # gone meanwhile


def _is_ours(file: Path) -> bool:
    if any((folder / ".git").exists() for folder in file.parents):
        return True  # it came with the repository, as the working folder did
    try:
        return file.lstat().st_uid in (os.geteuid(), 0)
    except OSError:
        return False  # gone meanwhile


@dataclass(frozen=True, kw_only=True, slots=True)
class UserFile:
    """The user's own settings, the folders that are trusted, and the rules that were allowed for good."""

    values: dict[str, Any]
    trusted: TrustedFolders = field(default_factory=TrustedFolders)
    kept: KeptRules = field(default_factory=KeptRules)


def read_user_file() -> UserFile:
    """A file that is not there says nothing."""
    user = user_file()
    if str(user) == os.devnull:
        return UserFile(values={})
    try:
        found = _toml(read_own(user, MOST_SETTINGS), user)
    except (FileNotFoundError, NotADirectoryError):
        return UserFile(values={})
    except OSError as error:
        raise _unread(error, user) from None
    lists = {name: found.pop(name, []) for name in LISTS}
    return UserFile(
        values=found,
        trusted=TrustedFolders.of(lists[TRUST], str(user)),
        kept=KeptRules.of(lists[KEPT], str(user)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectFile:
    """The settings in a `retinue.toml`, and the digest of the very bytes that they were read from.

    `own`: it is the folder's own. One that is a link into a repository further down is that one's.
    """

    values: dict[str, Any]
    digest: str
    own: bool


def read_project_file(path: Path) -> ProjectFile:
    folder = Folder(path.parent)
    try:
        found = folder.read(path.name, MOST_SETTINGS)
        own = not folder.is_anothers(found.name)
        digest = hashlib.sha256(found.data).hexdigest()
        return ProjectFile(values=_toml(found.data, path), digest=digest, own=own)
    except OSError as error:
        raise _unread(error, path) from None


def _toml(data: bytes, path: Path) -> dict[str, Any]:
    """A TOML file as dotted names to values."""
    try:
        return flatten(tomllib.loads(text_of(data, str(path))))
    except tomllib.TOMLDecodeError as error:
        raise invalid(error, path) from None
    except RecursionError:
        raise ConfigError("not valid TOML: nested too deeply", file=str(path)) from None


def invalid(error: tomllib.TOMLDecodeError, path: Path) -> ConfigError:
    """What is wrong with a file that is no TOML, with its line."""
    at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
    said = str(error)[: at.start()] if at else str(error)
    line = int(at[1]) if at and at[1] else None
    where = "" if line or at is None else ", at its end"
    return ConfigError(f"not valid TOML: {said}{where}", file=str(path), line=line, fix="mend it first")


def _unread(error: OSError, path: Path) -> ConfigError:
    return ConfigError(f"cannot be read: {error.strerror}", file=str(path), fix="mend it or take it away")


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables in tables as dotted names to values."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = prefix + key
        if isinstance(value, dict) and not _is_whole(name):
            found.update(flatten(cast("dict[str, Any]", value), name + "."))
        else:
            found[name] = value
    return found


def _is_whole(name: str) -> bool:
    """A setting that is a table itself, of names that nobody knows."""
    setting = declared().get(name)
    return setting is not None and isinstance(setting.default, dict)
