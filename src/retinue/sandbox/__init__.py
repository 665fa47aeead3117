"""Where code and commands of a model run: `cpython` and `monty` for code, `commands` for the shell."""

from __future__ import annotations

TYPE_CHECKING = False  # the process that starts commands imports this package with the bare standard library

if TYPE_CHECKING:
    from typing import Literal

    from retinue.sandbox.base import Engine
    from retinue.settings import CodeSettings


def engine_here(settings: CodeSettings) -> tuple[Literal["monty", "cpython"], str | None]:
    """The engine that these settings come to on this machine, and a notice when it is another one."""
    if settings.engine == "monty":
        return "monty", None
    from retinue.sandbox.cpython import why_not

    missing = why_not()
    if missing is None:
        return "cpython", None
    asked = settings.engine == "cpython"  # auto is content with either
    return "monty", f"code.engine = cpython is not possible here ({missing}); using monty" if asked else None


def open_engine(settings: CodeSettings) -> tuple[Engine, str | None]:
    """The engine that the settings ask for, and a notice when this machine cannot provide it.

    Chosen before any code runs, never after: code that has had an effect is not run a second time.
    """
    name, notice = engine_here(settings)
    if name == "cpython":
        from retinue.sandbox.cpython import CPythonEngine

        return CPythonEngine(), notice
    from retinue.sandbox.monty import MontyEngine

    return MontyEngine(), notice
