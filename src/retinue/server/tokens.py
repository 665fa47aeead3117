"""The tokens of a server, kept beside the user's settings: names, roles and digests, never the secrets.

Used by `retinue serve`. A token is shown once, when it is made; within a second of being revoked
it lets nobody in, and the streams that it opened end with their next word.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from retinue.errors import ConfigError
from retinue.reading import MOST_SETTINGS, read_own
from retinue.server.security import ROLES, Role, Token, new_secret
from retinue.settings import user_file

VARIABLE = "RETINUE_SERVER_TOKEN"
LOOK_SECONDS = 0.5
log = logging.getLogger("retinue.server")


def token_file() -> Path:
    return user_file().with_name("server-tokens.json")


def read(path: Path) -> dict[str, Token]:
    """Every token by its name."""
    try:
        rows: list[dict[str, Any]] = json.loads(read_own(path, MOST_SETTINGS))["tokens"]
        found = [Token(name=row["name"], role=row["role"], digest=row["digest"]) for row in rows]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            "cannot be read as a list of tokens", file=str(path), fix="remove it; tokens can be made again"
        ) from None
    return {token.name: token for token in found if token.role in ROLES}


def write(path: Path, tokens: Iterable[Token]) -> None:
    """Replace the file as a whole, for its owner's eyes alone."""
    rows = [{"name": token.name, "role": token.role, "digest": token.digest} for token in tokens]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"tokens": rows}, file, indent=1)
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None


def grant(path: Path, wanted: Iterable[tuple[str, Role]]) -> dict[str, str]:
    """Make sure that these names have tokens of these roles. Returns the new secrets, to be shown once."""
    tokens, made = read(path), dict[str, str]()
    for name, role in wanted:
        held = tokens.get(name)
        if held is not None and held.role == role:
            continue
        made[name] = new_secret()
        tokens[name] = Token.of(name, role, made[name])
    if made:
        write(path, tokens.values())
    return made


def revoke(path: Path, name: str) -> None:
    tokens = read(path)
    if tokens.pop(name, None) is None:
        known = ", ".join(tokens) or "none"
        raise ConfigError(f"there is no token of {name!r}; there are: {known}")
    write(path, tokens.values())


def from_environment(environ: Mapping[str, str]) -> list[Token]:
    """A token that was set from outside has the role admin."""
    secret = environ.get(VARIABLE, "").strip()
    return [Token.of("environment", "admin", secret)] if secret else []


class Changes:
    """The tokens whenever their file has changed. Looks twice a second at most: it is asked often."""

    def __init__(self, path: Path, given: Iterable[Token] = ()) -> None:
        self.path, self.given = path, tuple(given)
        self._looked = time.monotonic()
        self._state = self._stat()

    def __call__(self, now: float | None = None) -> list[Token] | None:
        """Every token that is valid now, or None if nothing has changed since the last time."""
        now = time.monotonic() if now is None else now
        if now - self._looked < LOOK_SECONDS:
            return None
        self._looked = now
        state = self._stat()
        if state == self._state:
            return None
        self._state = state
        try:
            kept = read(self.path)
        except ConfigError as error:
            log.warning("%s; until it is mended no token of it is valid", error)
            kept = {}
        return [*kept.values(), *self.given]

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
