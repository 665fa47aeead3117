"""A `cd` before or between other commands: whether it is a plain one, and what they say then.

Called by `allow`, which lets one through that no rule names, and by `approvals`, which holds the commands
beside it against rules that forbid. Looks at words alone: where a folder leads is for others to say.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Iterator

from retinue.authority.shell import programs
from retinue.authority.shell.plain import Plain, Simple, Word
from retinue.authority.shell.reading import plainly

Enters = Callable[[str], str | None]
"""Where in the project a folder is that may be gone into by a `cd` which no rule names; `.`: it is there."""


def literals(simple: Simple) -> list[str]:
    """Its words; empty where one is not known to the letter."""
    return [word.text if word.literal else "" for word in simple.words]


def mover(simple: Simple) -> str:
    """The program of a command; behind `time` and its like, a word that goes to another folder."""
    moves = (word.text for word in simple.words if programs.moves(word.text))
    return next(moves, simple.program) if simple.program in programs.WRAPPERS else simple.program


def moving(plain: Plain) -> Simple | None:
    """The one command that goes to another folder, if it is `cd` with a plain name that leads nowhere up."""
    moves = [simple for simple in plain.commands if programs.moves(mover(simple))]
    if len(moves) != 1 or (moves[0],) not in plain.pipelines or moves[0].assignments:
        return None
    texts = literals(moves[0])
    named = len(texts) == 2 and texts[0] == "cd" and texts[1] and not texts[1].startswith("-")
    return moves[0] if named and ".." not in texts[1].split("/") else None


def entered(plain: Plain, enters: Enters | None) -> tuple[Simple | None, str | None]:
    """The `cd` that needs no rule, and where it leads; None and None if there is none."""
    cd = None if enters is None else moving(plain)
    where = None if cd is None or enters is None else enters(cd.words[1].text)
    return (None, None) if where is None else (cd, where)


def rebased(command: str, folder: str) -> str:
    """The commands beside such a `cd` as they would be written without it, in words that may be paths."""
    plain = plainly(command)
    cd = moving(plain) if plain is not None else None
    others = (simple for simple in plain.commands if simple != cd) if plain is not None else ()
    return " ; ".join(each for simple in others for each in _further_down(simple, folder))


def _further_down(simple: Simple, folder: str) -> Iterator[str]:
    """Its words below a folder, and the folder as one more word: a command without a path is about that."""
    first, *rest = simple.words
    yield " ".join((_written(first), *(_written(word, folder) for word in rest)))
    for itself in (posixpath.normpath(folder), posixpath.normpath(folder) + "/"):  # a rule may name either
        yield " ".join((*map(_written, simple.words), shlex.quote(itself)))


def _written(word: Word, folder: str = "") -> str:
    text = word.text
    if folder and not text.startswith("-"):
        text = posixpath.normpath(posixpath.join(folder, text))
    return text if word.glob is not None else shlex.quote(text)
