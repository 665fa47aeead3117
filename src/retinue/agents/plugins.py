"""Plugin folders of other programs: a `plugin.json` beside agents, skills and MCP servers.

They are named by the person, with `plugins` in their own `config.toml`; nothing is looked for elsewhere. What
a plugin brings counts after the project's and the user's own files. Its commands and hooks are not run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from retinue.reading import MOST_SETTINGS, Folder, nothing_kept, text_of
from retinue.settings.files import read_user_file

MANIFESTS = (".claude-plugin/plugin.json", "plugin.json")
SETTING = "plugins"
MOST_PLUGINS = 50
UNUSED = ("commands", "hooks", "lspServers", "outputStyles", "settings")
"""What a plugin may have beside that: never obeyed, and said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """One folder. `problem`: why it is not used."""

    folder: Path
    name: str
    manifest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str = ""

    @property
    def owner(self) -> Folder:
        return Folder(self.folder, nothing_kept)

    def folders(self, kind: str) -> list[Path]:
        """Where it has its agents or its skills."""
        if self.problem:
            return []
        written: Any = self.manifest.get(kind, kind)
        named = cast("list[Any]", written) if isinstance(written, list) else [written]
        return [self.folder / each for each in named if isinstance(each, str)]

    def unused(self) -> list[str]:
        """What it has that is not used here."""
        return [each for each in UNUSED if each in self.manifest or (self.folder / each).exists()]


def plugins() -> list[Plugin]:
    """Those that the person named, as they are now."""
    named: Any = read_user_file().values.get(SETTING)
    if not isinstance(named, list):
        return []
    texts = [each for each in cast("list[Any]", named) if isinstance(each, str)]
    return [_read(Path(os.path.expanduser(each))) for each in texts[:MOST_PLUGINS]]


def _read(folder: Path) -> Plugin:
    for name in MANIFESTS:
        try:
            data = Folder(folder, nothing_kept).read(name, MOST_SETTINGS).data
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return Plugin(folder=folder, name=folder.name, problem=f"cannot be read: {error.strerror}")
        try:
            found = json.loads(text_of(data, str(folder / name)))
        except (ValueError, RecursionError) as error:
            return Plugin(folder=folder, name=folder.name, problem=f"{name} is not JSON: {error}")
        if not isinstance(found, dict):
            return Plugin(folder=folder, name=folder.name, problem=f"{name} is no JSON object")
        manifest = cast("dict[str, Any]", found)
        return Plugin(folder=folder, name=str(manifest.get("name") or folder.name), manifest=manifest)
    return Plugin(folder=folder, name=folder.name, problem=f"there is no {MANIFESTS[1]} in it")
