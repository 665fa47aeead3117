"""A TOML file that is changed one setting at a time: comments, order and everything else stay.

Used by `retinue config`. Saving replaces the file as a whole, so that no reader ever sees half of one.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from retinue.errors import ConfigError
from retinue.settings import flatten


class TomlFile:
    """One file. A missing one is empty until it is saved."""

    def __init__(self, path: Path) -> None:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError

        self.path = path
        try:
            text = path.read_text("utf-8") if path.exists() else ""
            self._document = tomlkit.parse(text)
        except TOMLKitError as error:
            raise ConfigError(f"not valid TOML: {error}", file=str(path), fix="mend it first") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", file=str(path)) from None

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

    def save(self) -> None:
        import tomlkit

        target = self.path.resolve()  # a link stays a link
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(tomlkit.dumps(self._document))  # pyright: ignore[reportUnknownMemberType]  # untyped parameters there
                os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o644)
                os.replace(temporary, target)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(self.path)) from None
