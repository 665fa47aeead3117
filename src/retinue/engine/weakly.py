"""Methods handed to those whom an object owns, without handing them the object.

What belongs to a workflow calls back into it. If it held the workflow too, the two would keep each other in
memory, with all that the runs have read, until the collector looks; and that of a busy server looks seldom.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def weakly(method: Callable[P, R]) -> Callable[P, R]:
    """The same method, which does not keep its object alive. Nobody calls it once that is gone."""
    found = weakref.WeakMethod(method)

    def call(*args: P.args, **named: P.kwargs) -> R:
        alive = found()
        if alive is None:
            raise ReferenceError("the workflow is gone")
        return alive(*args, **named)

    return call
