"""What a tool's function holds: the values of its closure, its object, what a partial has bound.

Two tools of one factory differ in nothing else. Asked when a tool is made; `same_work` tells by it whose work
a stored report is. Holds on to nothing, and calls nothing of the function.
"""

from __future__ import annotations

import functools
import types
from enum import Enum
from pathlib import PurePath

MOST_LEVELS = 20


def held_by(function: object) -> tuple[str, ...] | None:
    """What it holds, written down; None if something of that cannot be: it may change, or hide what it is."""
    try:
        return tuple(_held(function, 0))
    except _Unknown:
        return None


class _Unknown(Exception):
    pass


def _held(what: object, level: int) -> list[str]:
    if level > MOST_LEVELS:
        raise _Unknown
    if isinstance(what, functools.partial):
        bound = [*what.args, *(part for item in sorted(what.keywords.items()) for part in item)]
        return [*_held(what.func, level + 1), *(text for each in bound for text in _value(each, level + 1))]
    if isinstance(what, types.FunctionType):
        return [text for cell in what.__closure__ or () for text in _in_cell(cell, what, level + 1)]
    if isinstance(what, type | types.ModuleType | types.BuiltinFunctionType):
        return []
    raise _Unknown  # a method of an object, or an object that can be called


def _in_cell(cell: types.CellType, holder: object, level: int) -> list[str]:
    try:
        value = cell.cell_contents
    except ValueError:  # not set yet
        return ["unset"]
    return [] if value is holder else _value(value, level)


def _value(value: object, level: int) -> list[str]:
    if value is None or isinstance(value, str | bytes | int | float | complex | PurePath | Enum):
        return [f"{type(value).__qualname__} {value!r}"]
    if isinstance(value, tuple):
        inner: tuple[object, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return ["(", *(text for each in inner for text in _value(each, level + 1)), ")"]
    return _held(value, level)
