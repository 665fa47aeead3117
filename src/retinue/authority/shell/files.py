"""Whether a command runs a file that it writes itself: what is in it then stands nowhere in plain.

Called by `runs`. A file that somebody else wrote is that file's affair.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.authority.shell import inert, programs
from retinue.authority.shell.known import program_name
from retinue.authority.shell.plain import Simple, Word, names
from retinue.authority.shell.reading import Reading
from retinue.authority.shell.spelling import spells

_WRITES = re.compile(r">|\b(?:tee|cp|mv|dd|ln|install|of)\b")
_LEAVES_FILES = programs.READERS | names("""
    [ [[ c++ cargo cc cd chmod clang clang++ command file g++ gcc git go make mkdir rm rustc test touch type
    which
    """)
"""Programs that write no file out of their arguments or their input."""


def runs_own_file(
    command: str,
    reading: Reading,
    *,
    sure: Sequence[tuple[Word, ...]],
    others: Sequence[tuple[Word, ...]],
    composes: bool,
) -> bool:
    """Whether one of the commands that run for `sure`, or of `others` that may, is a file written here.

    If the text `composes`, a file that is given to a program which may run it counts as well, and if another
    command than the one that runs it composes, every file may be one that was written here.
    """
    written = _without_readers(command.replace("\\\n", ""), reading)
    in_path = re.search(r"\bPATH\+?=", command) is not None
    stores = _WRITES.search(command) is not None
    files = [_file_run(words, in_path=in_path) for words in (*sure, *(others if stores else ()))]
    composed = composes and (reading.composes or any(map(_spells_for_others, reading.commands)))
    if any(file and (composed or _twice(written, file)) for file in files):
        return True
    return composes and stores and any(_reads_file_of(written, simple.words) for simple in reading.commands)


def _spells_for_others(simple: Simple) -> bool:
    return bool(simple.words) and not _file_run(simple.words, in_path=False) and spells(simple)


def _without_readers(command: str, reading: Reading) -> str:
    """The text without the words of commands that write no file; what they are redirected to is no word."""
    source = bytearray(command.encode("utf-8", "replace"))
    for simple in reading.spanned:
        if simple.program in _LEAVES_FILES:
            for word, (begin, end) in zip(simple.words, simple.spans, strict=False):
                if not word.any:
                    source[begin:end] = b" " * (end - begin)
    return _TEST.sub(" ", source.decode("utf-8", "replace"))


_TEST = re.compile(r"\[\[?\s+(?:!\s+)?-[a-z]\s+[^\s\]$`]+\s+\]\]?")
"""`[ -f x ]`, whose words have no places."""


def _file_run(words: tuple[Word, ...], *, in_path: bool) -> str:
    """The file that a command runs; nothing if it runs none, or a program that is found elsewhere."""
    name = program_name(words[0])
    if name in programs.SHELLS or name in ("source", "."):
        return next((word.text for word in words[1:] if not word.text.startswith("-")), "")
    return words[0].text if "/" in words[0].text or in_path else ""


def _reads_file_of(written: str, words: tuple[Word, ...]) -> bool:
    """Whether a program that may run it is given a file whose name stands in the text a second time."""
    named = (part for word in words[1:] for part in re.findall(r"[\w./-]+", word.text))
    return not inert.inert(inert.inner(words), composes=False) and any(
        _twice(written, part) for part in named
    )


def _twice(written: str, path: str) -> bool:
    """A name may also stand behind the letters of an option or of a script: `-oFILE`, `sed wFILE`."""
    base = path.rpartition("/")[2]
    return bool(base) and len(re.findall(rf"{re.escape(base)}(?![\w.-])", written)) > 1
