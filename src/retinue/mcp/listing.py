"""What a server offers, as it was last listed: kept in the user's folder, so that a run need not wait for it.

The file is named by the hash of the server's configuration; it holds names, descriptions and schemas, and
none of the values that the server is given.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Any

import msgspec

from retinue.mcp.config import ServerConfig
from retinue.reading import read_own

MOST_TOOLS = 1000
"""Tools of one server."""
MOST_DESCRIPTION = 4000
"""Characters of a tool's description."""
MOST_INSTRUCTIONS = 4000
MOST_BYTES = 20_000_000
FAILED_FOR = 60.0
"""Seconds after which a server that could not be listed is tried again."""


class Annotations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server says of a tool. None: it says nothing of that."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class ListedTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    annotations: Annotations | None = None


class ListedPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()


class Listing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server offers. `failed`: why it could not be listed, and then there is nothing else."""

    at: float = 0.0
    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[ListedPrompt, ...] = ()
    resources: bool = False
    instructions: str = ""
    protocol: str = ""
    title: str = ""
    failed: str = ""

    @property
    def stale(self) -> bool:
        return bool(self.failed) and time.time() - self.at > FAILED_FOR


def _path(server: ServerConfig) -> Path:
    from platformdirs import user_state_path

    name = re.sub(r"[^\w-]", "_", server.name)
    return user_state_path("retinue", appauthor=False) / "mcp" / f"{name}-{server.sha256[:24]}.json"


def known_listing(server: ServerConfig) -> Listing | None:
    """What it offered when it was last listed."""
    try:
        return msgspec.json.decode(read_own(_path(server), MOST_BYTES), type=Listing)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def keep_listing(server: ServerConfig, listing: Listing) -> None:
    """Write it down. Where that cannot be done, it is listed again next time."""
    path = _path(server)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.write_bytes(msgspec.json.encode(listing))
        part.replace(path)
