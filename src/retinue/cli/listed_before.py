"""The names of models that providers listed when they were last asked, so that the Tab key knows them.

Written by `retinue models`, read by the completion of the shell. Names alone, in the person's cache.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

MOST = 2000


def _folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("retinue") / "models"


def keep_listed(provider: str, names: list[str]) -> None:
    """Instead of what this provider listed before. Where that cannot be written, nothing is lost."""
    if not provider.replace("-", "").replace("_", "").isalnum():
        return  # an address
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        (_folder() / f"{provider}.json").write_bytes(msgspec.json.encode(names[:MOST]))
    except OSError:
        return


def listed_before() -> list[str]:
    found: list[str] = []
    try:
        for file in sorted(_folder().glob("*.json")):
            found += msgspec.json.decode(file.read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):
        return found
    return found
