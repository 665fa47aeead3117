"""Places in files that a text cites, `path:line` and its other spellings, and the files they can mean.

Called by `sources` and by `claims.report`. Only the shape of a citation and the files that were read decide:
a time of day and a host with a port are no places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from retinue.types import Source

Place = tuple[str, int, int]
"""A path, and the first and the last line."""

_PATH = re.compile(r"(?<![\w./@+~:-])([\w./@+~-]{1,300}?)(?::|#L)(\d{1,7})(?:\s?[-–]\s?L?(\d{1,7}))?(?![\w])")
_PATH_IN_WORDS = re.compile(
    r"(?<![\w./@+~:-])([\w./@+~-]{1,300})`?,?\s\(?lines?\s(\d{1,7})(?:\s?(?:[-–]|to)\s?(\d{1,7}))?"
)
_A_PATH = re.compile(r"[\w./@+~-]{1,300}")
_GONE = "\0"
_ROUND_NOTHING = re.compile(f"`{_GONE}`|{_GONE}")
_FILE_NAME = re.compile(r".*\.[A-Za-z][A-Za-z0-9+_-]{0,9}")
# Ends of host names, which look like files with a line when a port follows.
_HOST_END = re.compile(
    r"com|org|net|io|dev|edu|gov|mil|info|biz|co|uk|de|fr|eu|us|ca|au|jp|cn|ru|nl|se|no|ch|at|it|es|local|"
    r"localhost|internal|lan|corp|example|test|invalid|app|ai|cloud",
    re.IGNORECASE,
)


class ReadFiles:
    """The files that were read, found by the end of their path."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._by_name: dict[str, list[Source]] = {}
        self._endings: set[str] = set()
        for source in sources:
            for path in {source.path, source.saved_as} - {None}:
                name = str(path).rpartition("/")[2]
                self._by_name.setdefault(name, []).append(source)
                self._endings |= {_ending(name)} - {""}

    def named(self, path: str) -> list[Source]:
        wanted = path.removeprefix("./").strip("/")
        near = self._by_name.get(wanted.rpartition("/")[2], []) if wanted else []
        return [
            source
            for source in near
            if any(_same_end(str(have), wanted) for have in (source.path, source.saved_as) if have)
        ]

    def means(self, path: str) -> bool:
        """Whether a path in a text is one of a file."""
        return bool(self.named(path)) or _is_file(path)

    def names_file(self, piece: str) -> bool:
        """Whether a piece in backquotes is the name of a file, read or not, rather than code: `Class.load` is
        written as `load.py` is, so it has a folder before it, or ends as a file does that was read."""
        if not _A_PATH.fullmatch(piece):
            return False
        return "/" in piece or _ending(piece) in self._endings or bool(self.named(piece))


def places(text: str, means: Callable[[str], bool]) -> list[Place]:
    """The lines of files that a text without addresses cites, in its order, each once."""
    matches = sorted((*_PATH.finditer(text), *_PATH_IN_WORDS.finditer(text)), key=lambda match: match.start())
    found: dict[Place, None] = {}
    for match in matches:
        first = int(match[2])
        if means(match[1]):
            found.setdefault((match[1], first, max(first, int(match[3] or first))))
    return list(found)


def shown(path: str, first: int, last: int) -> str:
    return f"{path}:{first}" + (f"-{last}" if last > first else "")


def without_places(text: str, means: Callable[[str], bool]) -> str:
    """A text without its citations of lines."""

    def gone(match: re.Match[str]) -> str:
        return _GONE if means(match[1]) else match[0]

    return _ROUND_NOTHING.sub("", _PATH_IN_WORDS.sub(gone, _PATH.sub(gone, text.replace(_GONE, ""))))


def _same_end(one: str, other: str) -> bool:
    one = one.removeprefix("./").strip("/")
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def _ending(path: str) -> str:
    """What stands behind the last dot of a file's name."""
    before, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending.casefold() if dot and before else ""


def _is_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    return bool(_FILE_NAME.fullmatch(name)) and not _HOST_END.fullmatch(name.rpartition(".")[2])
