"""Extras of the package that are missing, and the command that installs one.

Called where an import failed (`exits`), where an agent lacks its tools (`ask`) and by `doctor`.
"""

from __future__ import annotations

from collections.abc import Iterable

from retinue.builtin_tools import EXTRAS, lacking_extra


def install(extra: str) -> str:
    return f"pip install 'retinue[{extra}]'"


def extra_with(module: str) -> str:
    """The extra that brings a module, or an empty text."""
    top = module.partition(".")[0]
    return next((name for name, modules in EXTRAS.items() if top in modules), "")


def lacking(wanted: Iterable[str]) -> dict[str, list[str]]:
    """Those of these tools that are not there because their extra is not, by extra."""
    found: dict[str, list[str]] = {}
    for name in wanted:
        if extra := lacking_extra(name):
            found.setdefault(extra, []).append(name)
    return found
