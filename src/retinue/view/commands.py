"""Commands that a person is told to type next, whole: with the database and folder that this one was given.

Whoever names a command writes it with `command`; texts of others that name one in quotes go through
`complete`. The command line says what it was given, and nobody else does.
"""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar

from retinue.masking import masked

_DB: ContextVar[str] = ContextVar("retinue_db", default="")
_CWD: ContextVar[str] = ContextVar("retinue_cwd", default="")

_OF_DB = frozenset({"acp", "ask", "doctor", "eval", "map", "run", "runs", "serve", "stats"})
_OF_CWD = frozenset(
    {"agents", "ask", "config", "doctor", "eval", "map", "mcp", "run", "serve", "skills", "tools"}
)
_EACH: dict[str, frozenset[str]] = {
    "approvals list": frozenset({"db"}),
    "approvals answer": frozenset({"db"}),
    "approvals forget": frozenset({"cwd"}),
    "mcp serve": frozenset({"db", "cwd"}),
    "config trust": frozenset(),
}
"""What the commands of a group take, where they do not take the same."""
_QUOTED = re.compile(r"'retinue ([a-z][^'\n]*)'")


def given_db(url: str | None) -> None:
    """The database that this command was given, or none."""
    _DB.set(url or "")


def given_cwd(folder: str | None) -> None:
    """The folder that this command was told to work in, or none."""
    _CWD.set(folder or "")


def takes(words: str) -> frozenset[str]:
    """Which of `db` and `cwd` a command takes, by its words without 'retinue'."""
    names = words.split(" ")
    each = _EACH.get(" ".join(names[:2]))
    if each is not None:
        return each
    known = {"db": names[0] in _OF_DB, "cwd": names[0] in _OF_CWD}
    return frozenset(name for name, taken in known.items() if taken)


def command(words: str) -> str:
    """The command of these words, as it can be typed: `command("runs show last")`."""
    taken = takes(words)
    db, folder = _DB.get(), _CWD.get()
    more = f" --db {shlex.quote(str(masked(db)))}" if db and "db" in taken and "--db" not in words else ""
    more += f" --cwd {shlex.quote(folder)}" if folder and "cwd" in taken and "--cwd" not in words else ""
    return f"retinue {words}{more}"


def complete(text: str) -> str:
    """A text with the commands that it names in quotes, each as it can be typed."""
    if not _DB.get() and not _CWD.get():
        return text
    return _QUOTED.sub(lambda found: f"'{command(found[1])}'", text)
