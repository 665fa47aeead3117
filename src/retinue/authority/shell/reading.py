"""What a shell command says, before it is run: `read`.

Two readers go over every command. `plain` knows a small part of the language and knows it strictly;
`tree` knows all of it, by tree-sitter's grammar of bash, and less exactly. What a rule allows must be
plain, and both must have found the very same words and operators in it. What a rule denies is looked for
in all that either of them found.

Called by `allow` and `deny`, for a command that a rule with a pattern speaks of. `read` is total: it raises
nothing, whatever the text, and takes bounded time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from retinue.authority.shell.plain import SWALLOWED, NotPlain, Plain, Simple, read_plain
from retinue.authority.shell.tree import Grammar, read_tree

MOST = 5_000
"""Bytes of a command that are read. A longer one is allowed by nothing but a rule that is its text."""

_MISREAD = (
    (re.compile(r"[^\x00-\x7f]\\"), SWALLOWED),
    (re.compile(r"\{\w+\}[<>]"), "it names the handle of a redirection"),
)
"""What the grammar takes for something else than the shell does."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of a command.

    `plain` is set when all of it is understood for sure, and `why` says why it is not. `commands` are all
    the simple commands that were found, in whatever they stand. `unsure` says why others may run as well.
    `composes`, `keeps` and `made` are the grammar's, and `spanned` those of its commands whose places are in
    the text's own bytes.
    """

    plain: Plain | None
    why: str
    commands: tuple[Simple, ...]
    unsure: str
    composes: bool = True
    keeps: bool = True
    spanned: tuple[Simple, ...] = ()
    made: tuple[str, ...] = ()


@lru_cache(maxsize=128)
def read(command: str) -> Reading:
    """Take a command apart. Never raises."""
    size = len(command.encode("utf-8", "replace"))
    if size > MOST:
        why = f"it has {size:,} bytes and no more than {MOST:,} are read"
        return Reading(None, why, (), why)
    if "\0" in command:
        return Reading(None, "it holds a NUL character", (), "it holds a NUL character")
    grammar = read_tree(command)
    plain, why = _plain(command, grammar)
    found = list(plain.commands if plain else ()) + grammar.commands
    unsure = grammar.unsure or next((why for sign, why in _MISREAD if sign.search(command)), "")
    if "\\\n" in command:  # the grammar parts words there, and the shell joins them
        joined = read_tree(command.replace("\\\n", ""))
        found += joined.commands
        unsure = unsure or joined.unsure
    return Reading(
        plain,
        why,
        tuple(found),
        "" if plain else unsure,
        composes=grammar.composes,
        keeps=grammar.keeps,
        spanned=() if "\\\n" in command or unsure else tuple(grammar.commands),
        made=tuple(grammar.made),
    )


def plainly(command: str) -> Plain | None:
    """The command if all of it is understood for sure. The grammar is asked only where that may be so."""
    if len(command) > MOST:
        return None
    try:
        read_plain(command)
    except NotPlain:
        return None
    return read(command).plain


def _plain(command: str, grammar: Grammar) -> tuple[Plain | None, str]:
    try:
        plain = read_plain(command)
    except NotPlain as error:
        return None, str(error)
    words = {_in_bytes(command, span) for simple in plain.commands for span in simple.spans}
    marks = {_in_bytes(command, span) for span in plain.marks}
    if grammar.unsure or words != grammar.words or marks != grammar.operators:
        return None, "two readers do not agree on what it says"
    return plain, ""


def _in_bytes(text: str, span: tuple[int, int]) -> tuple[int, int]:
    if text.isascii():
        return span
    start, end = span
    return len(text[:start].encode()), len(text[:end].encode())
