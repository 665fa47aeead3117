"""Lists of words, one file each: what can be said in words is not said in code."""

from __future__ import annotations

from importlib.resources import files


def lines_of(name: str) -> list[str]:
    """The lines of a list; those that begin with `#` say what it is."""
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def listed(name: str) -> list[str]:
    """The words of a list."""
    return [word for line in lines_of(name) for word in line.split()]
