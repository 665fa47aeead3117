"""What is known of words that a shell makes out of something else, and whether a rule's pattern could be
them.

Called by `tree`, which writes down what stands around the unknown parts of a word, and by `deny`. An unknown
part is written as `GAP`. Nothing here decides: it says what is possible.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from retinue.authority.shell.plain import Word

if TYPE_CHECKING:
    from tree_sitter import Node

GAP = "\0"
"""Stands for text that nobody knows: any, or none. A command with this sign itself is never read."""

_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))", re.S
)
_NAMED = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_GLOB = re.compile(r"\[([^\]!^])\]|\[[^\]]*\]|[*?]")
BRACES = re.compile(r"\{[^{}]*\}")


def around(node: Node, source: bytes) -> str:
    """A word as the grammar read it: its letters, and a gap for each part that is not known.

    `source` is the command: the grammar itself is shown signs in place of some letters.
    """
    text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "ansi_c_string":
        return decoded(text[2:-1])
    if node.type in ("word", "number", "command_name") and not node.named_children:
        return BRACES.sub(GAP, re.sub(r"\\(.)", r"\1", _GLOB.sub(_letter, text), flags=re.S))
    if node.type in ("variable_name", "=", "+="):
        return text
    if node.type in ("concatenation", "command_name", "variable_assignment"):
        return BRACES.sub(GAP, "".join(around(child, source) for child in node.children))
    if node.type == "translated_string":
        return around(node.children[-1], source)
    if node.type == "string":
        return _string(node, source)
    return GAP


def _letter(match: re.Match[str]) -> str:
    """`[g]` is a `g`; every other sign for file names may be any text."""
    return match[1] or GAP


def _string(node: Node, source: bytes) -> str:
    parts: list[str] = []
    at = node.start_byte + 1
    for child in node.named_children:
        if child.type == "string_content":
            continue
        parts += [_quoted(source[at : child.start_byte]), GAP]
        at = child.end_byte
    return "".join((*parts, _quoted(source[at : node.end_byte - 1])))


def _quoted(source: bytes) -> str:
    return re.sub(r'\\([$`"\\])', r"\1", source.decode("utf-8", "replace"))


def decoded(text: str) -> str:
    """What bash makes of the text between `$'` and `'`."""

    def one(match: re.Match[str]) -> str:
        octal, *codes, control, other = match.groups()
        if control is not None:
            return chr(ord(control) & 0x1F)
        if other is not None:
            return _NAMED.get(other, other)
        code = int(octal, 8) & 0xFF if octal is not None else int(next(filter(None, codes)), 16)
        return chr(code) if 0 < code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else GAP

    return _ESCAPE.sub(one, text)


def known(word: Word) -> str:
    """The text of a word, with gaps where it is not known."""
    if word.any:
        return GAP if word.around is None else word.around
    return word.text if word.glob is None else _GLOB.sub(_letter, word.glob)


def ways(texts: Sequence[str]) -> list[list[str]]:
    """Words with gaps in two ways: as they are, and as if nothing stood there (`--upload-$@pack`)."""
    closed = [text.replace(GAP, "") for text in texts]
    return [list(texts)] if closed == list(texts) else [list(texts), closed]


def program_name(word: Word) -> str | None:
    """A program's name without its folder, as a file system may take it; None if it is not known."""
    if word.any or word.glob is not None:
        return None
    return word.text.rpartition("/")[2]


Could = Literal["no", "bare", "spelled"]


def could_be(texts: list[str], form: str) -> Could:
    """Whether some text in place of the gaps would be in a pattern.

    `bare` if that text alone would have to be all that the pattern says, `spelled` if the words that are
    known say some of it.
    """
    signs = _signs(form)
    end = len(signs)
    vanished = True  # every word so far may be none at all
    states = _Places(bare={0}, spelled=set())
    for text in texts:
        begun = _stepped(states, " ", signs, counts=False)
        if vanished:
            begun = _Places(bare=begun.bare | {0}, spelled=begun.spelled)
        after = _through(begun, text, signs)
        states = after.joined(states) if text == GAP else after
        vanished = vanished and text == GAP
        if not states.bare and not states.spelled:
            return "no"
    if end in _closure(states.spelled, signs):
        return "spelled"
    return "bare" if end in _closure(states.bare, signs) else "no"


class _Places:
    """Places in a pattern that a text may have reached, without or with the help of known letters."""

    __slots__ = ("bare", "spelled")

    def __init__(self, *, bare: set[int], spelled: set[int]) -> None:
        self.bare = bare
        self.spelled = spelled

    def joined(self, other: _Places) -> _Places:
        return _Places(bare=self.bare | other.bare, spelled=self.spelled | other.spelled)


def _through(states: _Places, text: str, signs: tuple[str, ...]) -> _Places:
    for letter in text:
        if letter == GAP:
            states = _Places(bare=_from(states.bare, signs), spelled=_from(states.spelled, signs))
        else:
            states = _stepped(states, letter, signs, counts=True)
        if not states.bare and not states.spelled:
            break
    return states


def _from(places: set[int], signs: tuple[str, ...]) -> set[int]:
    return set(range(min(places), len(signs) + 1)) if places else places


def _stepped(states: _Places, letter: str, signs: tuple[str, ...], *, counts: bool) -> _Places:
    bare: set[int] = set()
    spelled: set[int] = set()
    for source, same in ((states.bare, bare), (states.spelled, spelled)):
        for at in _closure(source, signs):
            if at == len(signs):
                continue
            if signs[at] == "*":
                same.add(at)
            elif fnmatch.fnmatchcase(letter, signs[at]):
                (spelled if counts else same).add(at + 1)
    return _Places(bare=bare, spelled=spelled)


@lru_cache(maxsize=512)
def _signs(form: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\[[^\]]+\]|.", form, re.S))


def _closure(states: set[int], signs: tuple[str, ...]) -> set[int]:
    found = set(states)
    for at in states:
        while at < len(signs) and signs[at] == "*":
            at += 1
            found.add(at)
    return found
