"""What a value may do that comes from somebody who is not trusted: narrow, and never widen.

Two ask: `load` about a `retinue.toml` that came with a repository, and the server about the settings that
a client gives for one run. Each setting says itself what it is (`declare.Trust`). Nothing here reads a file
or checks a value: one that does not fit is left to whoever checks it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, cast, get_args

from retinue.settings.tables import declared


def adding() -> frozenset[str]:
    """Lists that narrow: what is given comes on top of what is there, and takes none of it away."""
    return frozenset(name for name, setting in declared().items() if setting.says.trust == "adds")


def narrowing() -> frozenset[str]:
    """Settings that have a narrow and a wide side."""
    return frozenset(
        name
        for name, setting in declared().items()
        if setting.says.trust in ("adds", "switch", "shorter", "ceiling")
    )


def wider(name: str, value: Any, now: Any) -> bool:
    """Whether a value allows more than the one that counts now."""
    setting = declared().get(name)
    if setting is None:
        return False
    with contextlib.suppress(ValueError):
        value = setting.convert(value)  # as it would be used: a switch in quotes is one as well
    if value == now:
        return False
    match setting.says.trust:
        case "switch":
            order = (False, True) if setting.kinds == (bool,) else get_args(setting.kinds[0])
            return value in order and now in order and order.index(value) > order.index(now)
        case "shorter":
            if value == "auto":
                return True  # what that comes to is not for the file to choose
            there = _items(setting.says.auto if now == "auto" else now)
            return isinstance(value, list | tuple) and not set(map(str, _items(value))) <= set(there)
        case "ceiling":
            return _higher(value, setting.says.auto if now == "auto" else now)
        case "trusted":
            return True
        case "adds" | "free":
            return False


def _higher(value: Any, now: Any) -> bool:
    if now is None or now == "none":  # there is no limit
        return False
    if value is None or isinstance(value, str):
        return True  # no limit, or one that is worked out: not the one that was set
    return not isinstance(now, int | float) or not isinstance(value, int | float) or value > now


def narrowed(found: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What of these settings counts beside the ones that count now, and the names of those left out.

    What is no value of its setting is not left out: whoever checks it says what is wrong with it, and where.
    """
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in found.items():
        if not _fits(name, value):
            kept[name] = value
        elif _trusted_only(name) or wider(name, value, now.get(name)):
            left_out.append(name)
        elif name in adding() and isinstance(value, list):
            there = _items(now.get(name))
            kept[name] = [*there, *(one for one in _items(cast("Any", value)) if one not in there)]
        else:
            kept[name] = value
    return kept, sorted(left_out)


def _fits(name: str, value: Any) -> bool:
    setting = declared().get(name)
    if setting is None:
        return False
    try:
        setting.convert(value)
    except ValueError:
        return False
    return True


def _trusted_only(name: str) -> bool:
    """It could send work or secrets somewhere else, let agents do more, or cost money, whatever its value."""
    setting = declared().get(name)
    return setting is not None and setting.says.trust == "trusted"


def _items(value: Any) -> list[Any]:
    return list(cast("list[Any] | tuple[Any, ...]", value)) if isinstance(value, list | tuple) else []
