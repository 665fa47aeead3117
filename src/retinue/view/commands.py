"""Commands that a person is told to type next, whole: with the database and folder that this one was given.

Whoever names a command writes it with `command`; texts of others that name one in quotes go through
`complete`. The command line says what it was given, and nobody else does.
"""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar
from itertools import islice

from retinue.masking import masked

_DB: ContextVar[str] = ContextVar("retinue_db", default="")
_CWD: ContextVar[str] = ContextVar("retinue_cwd", default="")

_OF_DB = frozenset(
    {"acp", "ask", "chat", "doctor", "eval", "map", "research", "run", "runs", "serve", "stats", "worker"}
    | {"workers"}
)
_OF_CWD = frozenset(
    {"agents", "ask", "chat", "config", "doctor", "eval", "keys", "map", "mcp", "models", "research", "run"}
    | {"serve", "setup", "skills", "tools", "worker"}
)
_EACH: dict[str, frozenset[str]] = {
    "approvals list": frozenset({"db"}),
    "approvals answer": frozenset({"db"}),
    "approvals forget": frozenset({"cwd"}),
    "mcp serve": frozenset({"db", "cwd"}),
    "config trust": frozenset(),
    "config untrust": frozenset(),
}
"""What the commands of a group take, where they do not take the same."""
_BEGINS = re.compile(r"'retinue (?=[a-z])")
_MAY_END = re.compile(r"(?<! )'(?!\w)")
_MOST_QUOTES = 20
"""So many in a command are looked at: who writes more names none."""


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
    """A text with the commands that it names in quotes, each as it can be typed, and copied: one that holds
    quotes itself stands between backticks, or alone."""
    done, at = list[str](), 0
    while found := _BEGINS.search(text, at):
        end = _end(text, found.end())
        done.append(text[at : found.start()])
        done.append(text[found.start() : found.end()] if end < 0 else _set_off(text[found.end() : end]))
        at = found.end() if end < 0 else end + 1
    return "".join((*done, text[at:]))


def _end(text: str, start: int) -> int:
    """Where the quote ends a command: where a shell could read what is before it. -1: nowhere on its line."""
    line = text.find("\n", start)
    ends = _MAY_END.finditer(text, start, len(text) if line < 0 else line)
    return next((e.start() for e in islice(ends, _MOST_QUOTES) if _is_whole(text[start : e.start()])), -1)


def _is_whole(words: str) -> bool:
    try:
        return bool(shlex.split(words))
    except ValueError:  # a quote is open
        return False


def _set_off(words: str) -> str:
    typed = command(words)
    mark = next((mark for mark in ("'", "`") if mark not in typed), "")
    return f"{mark}{typed}{mark}"
