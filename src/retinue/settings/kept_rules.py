"""The rules that a person allowed for good, each in one folder: what "always" to a question writes down.

`allowed` in the user's own `config.toml` is the list: no repository can write there, and what was allowed in
one folder says nothing in another. As with trust, an entry knows the folder itself, so that another one put
in its place is allowed nothing. See docs/decisions/always-is-of-one-folder.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from retinue.errors import ConfigError
from retinue.reading import real_path
from retinue.settings.trusted_folders import identity_of, is_same

KEPT = "allowed"
"""What the list is called in the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderRules:
    """What is allowed in one folder."""

    folder: str
    identity: str
    rules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRules:
    entries: tuple[FolderRules, ...] = ()

    @classmethod
    def of(cls, listed: Any, file: str) -> KeptRules:
        """The list as it stands in the user's file."""
        if not isinstance(listed, list):
            raise _unknown(listed, file)
        return cls(entries=tuple(_entry(one, file) for one in cast("list[Any]", listed)))

    def of_folder(self, folder: Path) -> tuple[str, ...]:
        """What is allowed in this very folder."""
        entry = self._entry(folder)
        return entry.rules if entry is not None else ()

    def adding(self, folder: Path, rule: str) -> KeptRules:
        """The list with one more rule. What it had for another folder of this path is gone."""
        real = real_path(folder)
        identity = identity_of(real)
        if identity is None:
            raise ConfigError(f"there is no folder {real}", fix="a rule is kept for a folder that is there")
        rules = tuple(dict.fromkeys((*self.of_folder(folder), rule)))
        others = tuple(entry for entry in self.entries if entry.folder != real)
        return KeptRules(entries=(*others, FolderRules(folder=real, identity=identity, rules=rules)))

    def without(self, folder: Path, rule: str) -> KeptRules:
        """The list without a rule, also where its folder is gone or another one by now."""
        real = real_path(folder)
        left = (
            replace(entry, rules=tuple(one for one in entry.rules if one != rule))
            if entry.folder == real
            else entry
            for entry in self.entries
        )
        return KeptRules(entries=tuple(entry for entry in left if entry.rules))

    def listed(self) -> list[dict[str, Any]]:
        """As it is written down."""
        return [
            {"folder": entry.folder, "identity": entry.identity, "rules": list(entry.rules)}
            for entry in self.entries
        ]

    def _entry(self, folder: Path) -> FolderRules | None:
        real = real_path(folder)
        for entry in self.entries:
            if entry.folder == real and is_same(entry.identity, identity_of(real)):
                return entry
        return None


def _entry(one: Any, file: str) -> FolderRules:
    if isinstance(one, dict):
        table = cast("dict[str, Any]", one)
        folder, identity, rules = table.get("folder"), table.get("identity"), table.get("rules")
        whole = isinstance(folder, str) and isinstance(identity, str) and isinstance(rules, list)
        if whole and all(isinstance(rule, str) for rule in cast("list[Any]", rules)):
            return FolderRules(
                folder=str(folder), identity=str(identity), rules=tuple(cast("list[str]", rules))
            )
    raise _unknown(one, file)


def _unknown(one: Any, file: str) -> ConfigError:
    return ConfigError(
        f"'{KEPT}' has {one!r:.80}, which is no folder with its rules",
        file=file,
        fix="take it out; an answer of 'always' to a question writes a right one",
    )
