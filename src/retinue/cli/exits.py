"""Exit codes, and every error as one line and a code.

0    done
1    the run ended with an error, the command failed, or a case of 'eval' did not pass
2    wrong usage, or a mistake in a setting or an agent file
3    there is a report, but it is incomplete, a child failed, or (--strict-sources) a source is not verified
4    a call was rejected, or nobody was there to approve it; or an approval was answered before
5    the model could not be asked (key, address, limits, an outage of its provider), or it did not answer:
     it refused, or said that it cannot
6    the database cannot be read or written
129  its terminal was closed (SIGHUP)
130  cancelled (Ctrl-C, or 'retinue runs cancel')
141  the reader of the output went away
143  asked to terminate (SIGTERM)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retinue.cli.extras import extra_with, install
from retinue.errors import ConfigError, ModelError, NoKey, RetinueError, StoreError

if TYPE_CHECKING:
    from retinue.types import Outcome

OK = 0
FAILED = 1
USAGE = 2
INCOMPLETE = 3
REFUSED = 4
MODEL = 5
DATABASE = 6
HUNG_UP = 129
CANCELLED = 130
TERMINATED = 143
CLOSED_PIPE = 141
OF_OUTCOME: dict[Outcome, int] = {"incomplete": INCOMPLETE, "refused": REFUSED, "rejected": REFUSED}
"""Of a run that completed and still lacks something."""


IN_FLAGS = {
    r"'runs\(\)' lists them": "'retinue runs list' shows them",
    r"'approvals\(\)' lists those that wait": "'retinue approvals list' shows those that wait",
    r"'at' is the pos of an event: watch\(run_id\) yields them": "'retinue runs events RUN' shows the places",
    r"\bmessage=…": "--message TEXT",
    r"\bat=…": "--at PLACE",
    r'\bsettings=\{"limits\.max_turns": …\}': "--max-turns N",
    r"\btake_over=True\b": "--take-over",
    r"\bdb= ": "--db ",
    r"\(db=\)": "(--db)",
}
"""How errors of the library name parameters and methods, and what the command line calls the same."""


def in_flags(text: str) -> str:
    """A message of the library in words of the command line."""
    for parameter, flag in IN_FLAGS.items():
        text = re.sub(parameter, flag, text)
    return text


def code_of(error: BaseException) -> int:
    match error:
        case NoKey() | ModelError():
            return MODEL
        case ConfigError():
            return USAGE
        case StoreError():
            return DATABASE
        case ModuleNotFoundError() if extra_with(error.name or ""):
            return USAGE
        case KeyboardInterrupt():
            return CANCELLED
        case _:
            return FAILED


def line_of(error: BaseException) -> str:
    """The error in one line, with what to do about it."""
    match error:
        case RetinueError():
            from retinue.view.commands import complete

            text = complete(in_flags(str(error)))
        case ModuleNotFoundError() if extra := extra_with(error.name or ""):
            text = f"this needs the package {error.name}, which is not installed ({install(extra)})"
        case OSError() if error.strerror:
            text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        case KeyboardInterrupt():
            return "cancelled"
        case _:
            text = (
                f"internal error: {type(error).__name__}: {error} "
                "(run it again with --debug to see where, and please report it)"
            )
    return " ".join(text.split())
