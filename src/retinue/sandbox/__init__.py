"""Where code written by a model runs: an interpreter that can reach nothing of the host."""

from __future__ import annotations

from retinue.sandbox.base import Engine
from retinue.settings import CodeSettings


def open_engine(settings: CodeSettings) -> tuple[Engine, str | None]:
    """The engine that the settings ask for, and a notice when this machine cannot provide it.

    Chosen before any code runs, never after: code that has had an effect is not run a second time.
    """
    from retinue.sandbox.monty import MontyEngine

    if settings.engine == "cpython":
        from retinue.sandbox.cpython import CPythonEngine, why_not

        missing = why_not()
        if missing is None:
            return CPythonEngine(), None
        return MontyEngine(), f"code.engine = cpython is not possible here ({missing}); using monty"
    return MontyEngine(), None
