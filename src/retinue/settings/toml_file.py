"""A TOML file that is changed one setting at a time: comments, order and everything else stay.

Used by `retinue config`, the page and answers of "always". Saving replaces the file as a whole, so that no
reader ever sees half of one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import tomllib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from retinue.errors import ConfigError
from retinue.file_lock import locked
from retinue.reading import MOST_SETTINGS, Folder, read_own, real_path, text_of
from retinue.settings.files import TRUST, flatten, invalid, read_user_file, user_file
from retinue.settings.kept_rules import KEPT, KeptRules
from retinue.settings.trusted_folders import TrustedFolders


class TomlFile:
    """One file. A missing one is empty until it is saved. `of_repository`: it must not lead elsewhere."""

    def __init__(self, path: Path, *, of_repository: bool = False) -> None:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError

        self.path = path
        try:
            self._target = _target(path, of_repository=of_repository)  # a link stays a link
            data = read_own(self._target, MOST_SETTINGS) if self._target.exists() else b""
            self._text = text_of(data, str(path))
            tomllib.loads(self._text)  # says the line of a mistake, which the other does not always know
            self._document = tomlkit.parse(self._text)
        except tomllib.TOMLDecodeError as error:
            raise invalid(error, path) from None
        except (TOMLKitError, RecursionError) as error:
            raise ConfigError(f"not valid TOML: {error}", file=str(path), fix="mend it first") from None
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from None

    def values(self) -> dict[str, Any]:
        """Every value by its dotted name."""
        return flatten(self._document.unwrap())

    def put(self, name: str, value: Any) -> None:
        import tomlkit

        *tables, key = name.split(".")
        place: Any = self._document
        for table in tables:
            if table not in place:
                place[table] = tomlkit.table()
            place = place[table]
        place[key] = value

    def remove(self, name: str) -> bool:
        """False if it was not there."""
        *tables, key = name.split(".")
        place: Any = self._document
        for table in tables:
            if table not in place:
                return False
            place = place[table]
        if key not in place:
            return False
        del place[key]
        return True

    def put_list(self, name: str, listed: Sequence[Any]) -> None:
        """Put a whole list in the place of another; an empty one goes."""
        self.remove(name)
        if listed:
            self.put(name, list(listed))

    def save(self) -> None:
        """Does nothing where nothing was changed."""
        import tomlkit

        target, text = self._target, tomlkit.dumps(self._document)
        if text == self._text:
            return
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o644)
                os.replace(temporary, target)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(self.path)) from None


@contextlib.contextmanager
def changing_own() -> Generator[TomlFile]:
    """The user's own file, as it is now; saved in the end. Nobody else changes it meanwhile: whoever writes
    back what they read earlier takes away what another process has written since, rules and trust too."""
    path = user_file()
    if str(path) == os.devnull:
        raise ConfigError("nothing is kept: RETINUE_CONFIG names no file", fix="name one")
    with locked(path):
        file = TomlFile(path)
        yield file
        file.save()


def keep_rule(folder: Path, rule: str) -> bool:
    """Allow for good, in this folder, what a rule covers. False if it was allowed before."""
    return _change_kept(lambda kept: kept.adding(folder, rule))


def forget_rule(folder: Path, rule: str) -> bool:
    """Ask again about what a rule covers in this folder. False if it was not kept."""
    return _change_kept(lambda kept: kept.without(folder, rule))


def _change_kept(change: Callable[[KeptRules], KeptRules]) -> bool:
    with changing_own() as file:
        before = read_user_file().kept
        after = change(before)
        if after != before:
            file.put_list(KEPT, after.listed())
    return after != before


def change_trust(change: Callable[[TrustedFolders], TrustedFolders]) -> bool:
    """Write the list of trusted folders anew. False if it is as it was."""
    with changing_own() as file:
        before = read_user_file().trusted
        after = change(before)
        if after != before:
            file.put_list(TRUST, after.listed())
    return after != before


def _target(path: Path, *, of_repository: bool) -> Path:
    """The file that a path leads to. Raises `OSError` if that is out of its folder and may not be."""
    if not of_repository:
        return Path(real_path(path))
    folder = Folder(path.parent)
    return folder.path / folder.inside(path.name)
