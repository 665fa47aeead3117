"""The tokens of a server, kept beside the user's settings: names, roles and digests, never the secrets.

Used by `retinue serve`. A token is shown once, when it is made; within a second of being revoked
it lets nobody in, and the streams that it opened end with their next word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from retinue.errors import ConfigError
from retinue.file_lock import locked
from retinue.server import kept_file
from retinue.server.security import ROLES, Role, Token, new_secret
from retinue.settings import user_file

VARIABLE = "RETINUE_SERVER_TOKEN"
WHAT = "tokens"
log = logging.getLogger("retinue.server")


def token_file() -> Path:
    return user_file().with_name("server-tokens.json")


def session_file() -> Path:
    return user_file().with_name("server-sessions.json")


def read(path: Path) -> dict[str, Token]:
    """Every token by its name."""
    rows = kept_file.read(path, WHAT)
    try:
        found = [Token(name=row["name"], role=row["role"], digest=row["digest"]) for row in rows]
    except KeyError:
        raise ConfigError(
            "cannot be read as a list of tokens", file=str(path), fix="remove it; tokens can be made again"
        ) from None
    return {token.name: token for token in found if token.role in ROLES}


def write(path: Path, tokens: Iterable[Token]) -> None:
    """Replace the file as a whole, for its owner's eyes alone."""
    rows = [{"name": token.name, "role": token.role, "digest": token.digest} for token in tokens]
    kept_file.write(path, WHAT, rows)


def grant(path: Path, wanted: Iterable[tuple[str, Role]]) -> dict[str, str]:
    """Make sure that these names have tokens of these roles. Returns the new secrets, to be shown once."""
    made = dict[str, str]()
    with locked(path):
        tokens = read(path)
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
    """Take a token away. Its sessions end with it: they are bound to its digest."""
    with locked(path):
        tokens = read(path)
        if tokens.pop(name, None) is None:
            known = ", ".join(tokens) or "none"
            raise ConfigError(f"there is no token of {name!r}; there are: {known}")
        write(path, tokens.values())


def from_environment(environ: Mapping[str, str]) -> list[Token]:
    """A token that was set from outside has the role admin."""
    secret = environ.get(VARIABLE, "").strip()
    return [Token.of("environment", "admin", secret)] if secret else []


class TokenChanges:
    """The tokens whenever their file has changed."""

    def __init__(self, path: Path, given: Iterable[Token] = ()) -> None:
        self.path, self.given = path, tuple(given)
        self._changed = kept_file.FileChanges(path)

    def __call__(self, now: float | None = None) -> list[Token] | None:
        """Every token that is valid now, or None if nothing has changed since the last time."""
        if not self._changed(now):
            return None
        try:
            kept = read(self.path)
        except ConfigError as error:
            log.warning("%s; until it is mended no token of it is valid", error)
            kept = {}
        return [*kept.values(), *self.given]
