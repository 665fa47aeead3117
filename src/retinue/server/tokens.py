"""The tokens of a server, kept beside the user's settings: names, roles and digests, never the secrets.

Used by `retinue serve`. A token is shown once, when it is made; a session ends when its token is revoked.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from retinue.errors import ConfigError
from retinue.server.security import ROLES, Role, Token, new_secret
from retinue.settings import user_file

VARIABLE = "RETINUE_SERVER_TOKEN"


def token_file() -> Path:
    return user_file().with_name("server-tokens.json")


def read(path: Path) -> dict[str, Token]:
    """Every token by its name."""
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["tokens"]
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
