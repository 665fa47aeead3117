"""What a person has said of MCP servers: that one may start, and that what it says of its tools is believed.

Written by `retinue mcp trust` and by the question at the terminal, into a file beside the user's settings.
A server of a repository starts only if it is the very one that was trusted, by the hash of its command. What
its annotations say frees calls only where a person trusts them, and only of tools whose description and
schema are still those that were there then.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from retinue.errors import ConfigError, Refused
from retinue.file_lock import locked
from retinue.mcp.command_files import read_all_anew
from retinue.mcp.config import ServerConfig
from retinue.mcp.listing import ListedTool
from retinue.reading import MOST_SETTINGS, read_own
from retinue.settings.files import user_file

FILE = "trusted-mcp.json"
State = Literal["yours", "trusted", "started", "new", "changed"]
STATES: Mapping[State, str] = {
    "yours": "yours: it starts, and every call asks until 'retinue mcp trust' believes its annotations",
    "trusted": "trusted: its annotations say which calls ask",
    "started": "starts: every call asks",
    "new": "new: read its command, then 'retinue mcp trust' lets it start",
    "changed": "changed since you trusted it: read its command, then 'retinue mcp trust' lets it start",
}


class TrustEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of one server. `tools`: the fingerprint of each, where its annotations are believed.
    `public`: that what it returns is nothing of the person's own."""

    name: str
    origin: str
    sha256: str
    tools: dict[str, str] | None = None
    public: bool = False


def fingerprint(tool: ListedTool) -> str:
    """Another description, schema or annotation is another tool."""
    what = [tool.description, tool.schema, msgspec.to_builtins(tool.annotations)]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def _file() -> Path:
    return user_file().parent / FILE


class Trust:
    """What is written down. Read once; read again when told."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], TrustEntry] = {}
        self.reread()

    def reread(self) -> None:
        self.entries = {(entry.origin, entry.name): entry for entry in _read(_file())}

    def of(self, server: ServerConfig) -> TrustEntry | None:
        found = self.entries.get((server.origin, server.name))
        return found if found is not None and found.sha256 == server.sha256 else None

    def knows(self, server: ServerConfig) -> bool:
        """Whether a person has ever let it start."""
        return (server.origin, server.name) in self.entries

    def state(self, server: ServerConfig) -> State:
        entry = self.of(server)
        if entry is not None:
            return "trusted" if entry.tools is not None else "started" if server.of_repository else "yours"
        if not server.of_repository:
            return "yours"
        return "changed" if self.knows(server) else "new"

    def may_start(self, server: ServerConfig) -> bool:
        return self.state(server) in ("yours", "trusted", "started")

    def believes(self, server: ServerConfig, tool: ListedTool) -> bool:
        """Whether the annotations of a tool count."""
        entry = self.of(server)
        return entry is not None and (entry.tools or {}).get(tool.name) == fingerprint(tool)

    def is_public(self, server: ServerConfig) -> bool:
        """Whether a person has said that what it returns is public, of the server as it is now."""
        entry = self.of(server)
        return entry is not None and entry.tools is not None and entry.public

    def changed(self, server: ServerConfig, tool: ListedTool) -> bool:
        """Whether a tool is another one than the one that was trusted, or has come since."""
        entry = self.of(server)
        return entry is not None and entry.tools is not None and not self.believes(server, tool)

    def add(
        self,
        server: ServerConfig,
        tools: Iterable[ListedTool] | None,
        sha256: str = "",
        *,
        public: bool = False,
    ) -> None:
        """Let it start; with `tools`, believe their annotations as they are now.

        `sha256`: what the person was shown or has listed, if it may have changed since. `public`: what it
        returns is nothing of the person's own.
        """
        known = None if tools is None else {tool.name: fingerprint(tool) for tool in tools}
        digest = sha256 or server.sha256
        said = TrustEntry(name=server.name, origin=server.origin, sha256=digest, tools=known, public=public)
        self._change(said)

    def require(self, server: ServerConfig) -> None:
        """Refuse a server that is not the one that was trusted, by what is written down and there now."""
        self.reread()
        read_all_anew()
        state = self.state(server)
        if state in ("new", "changed"):
            what = "has changed since it was trusted" if state == "changed" else "is not trusted"
            raise Refused(
                f"the MCP server {server.name} {what}, by its command or the files that it is started from: "
                "it was not started. Do without it; a person who has read these lets it start with "
                f"'retinue mcp trust {server.name}'."
            )

    def forget(self, server: ServerConfig) -> bool:
        key = (server.origin, server.name)
        with locked(_file()):
            self.reread()
            if self.entries.pop(key, None) is None:
                return False
            _write(_file(), self.entries.values())
        return True

    def _change(self, entry: TrustEntry) -> None:
        with locked(_file()):
            self.reread()
            self.entries[entry.origin, entry.name] = entry
            _write(_file(), self.entries.values())


def _read(path: Path) -> list[TrustEntry]:
    try:
        return msgspec.json.decode(read_own(path, MOST_SETTINGS), type=list[TrustEntry])
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(
            "is not as it was written", file=str(path), fix="take it away; 'retinue mcp trust' writes it"
        ) from None


def _write(path: Path, entries: Iterable[TrustEntry]) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "wb") as out:
            out.write(msgspec.json.format(msgspec.json.encode(list(entries)), indent=1))
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None
