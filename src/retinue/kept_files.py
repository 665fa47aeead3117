"""Which files the rules keep from being read by ourselves, as `reading.Folder` asks: what `read` is denied.

A rule about a path holds for agent files, skills, instructions and files of tools like for any file, under
each of its names. Made by `assembly` and the command line from the settings. Asks nobody.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

from retinue.approvals import Rules
from retinue.authority.rules import Asked
from retinue.errors import ConfigError
from retinue.reading import Kept, nothing_kept, real_path


def kept_by(rules: Rules, project: Path | None) -> Kept:
    """What these rules keep. Paths in them are relative to the project.

    A rule for one agent counts as well: who will be shown a file is not known when it is read. Where a rule
    wants a person asked, a file that only another name leads to is not read: nobody can be asked.
    """
    tops = () if project is None else tuple(dict.fromkeys((real_path(project), os.path.abspath(project))))
    reading = Asked(tool="read", aliases=("view",), effect="read", risk="low", agent="", arguments={})
    deny, ask = (tuple(replace(rule, agent=None) for rule in some) for some in (rules.deny, rules.ask))
    denied = Rules(deny=deny).closed(reading)
    closed = Rules(deny=deny, ask=ask).closed(reading)
    if not closed.deny and not closed.ask:
        return nothing_kept

    def why(folder: Path, name: str, other: bool) -> str | None:
        whole = os.path.join(folder, name)
        spelled = [name, whole]
        if tops:
            within = os.path.relpath(whole, tops[0])
            spelled += [within, *(os.path.normpath(os.path.join(top, within)) for top in tops)]
        return (closed if other else denied).why(spelled)

    return why


def kept_here(project: Path) -> Kept:
    """What the settings of a folder keep. Those that cannot be read are somebody else's to complain about."""

    @cache
    def loaded() -> Kept:  # with the first file that there is: most folders have none
        from retinue.settings import load

        try:
            return kept_by(Rules.of(load(cwd=project).settings.approvals), project)
        except ConfigError:
            return nothing_kept

    def why(folder: Path, name: str, other: bool) -> str | None:
        return loaded()(folder, name, other)

    return why
