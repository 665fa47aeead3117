"""A page of a text file: some of its lines, numbered, without ever holding all of it in memory.

`read` calls it, in a thread if the file is large.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 1 << 20
LINE = 2000
"""Bytes of a line that are shown when several are asked for."""
MOST_BYTES = 40_000
"""Bytes of a whole page."""

_KINDS = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a ZIP archive or an office document",
    b"\x1f\x8b": "a gzip archive",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite database",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePage:
    """`lines` are numbered and cut where they are too long; `first` to `last` are their numbers."""

    lines: tuple[str, ...]
    first: int
    last: int
    total: int
    size: int
    sha256: str
    binary: str = ""
    """What the file is, if it is not text."""


def page_of(file: BinaryIO, *, offset: int, limit: int, column: int) -> LinePage:
    """Lines `offset` and following, each from byte `column` on. All counted from 1."""
    reader = _Reader(offset=offset, limit=limit, column=column)
    digest = hashlib.sha256()
    size = 0
    binary = ""
    while block := file.read(BLOCK):
        if size == 0:
            binary = _binary(block)
        size += len(block)
        digest.update(block)
        if not binary:
            reader.take(block)
    reader.finish()
    return LinePage(
        lines=tuple(reader.lines),
        first=offset,
        last=offset + len(reader.lines) - 1,
        total=reader.number - 1,
        size=size,
        sha256=digest.hexdigest(),
        binary=binary,
    )


class _Reader:
    def __init__(self, *, offset: int, limit: int, column: int) -> None:
        self.lines: list[str] = []
        self.number = 1
        self._offset, self._end, self._column = offset, offset + limit, column
        self._most = LINE if limit > 1 else MOST_BYTES
        self._room = MOST_BYTES
        self._line = bytearray()
        self._length = 0
        self._returned = False
        """Whether the last byte was a carriage return, which may belong to the line's end."""

    def take(self, block: bytes) -> None:
        count = block.count(b"\n")
        if self.number + count < self._offset or self.number >= self._end or self._room <= 0:
            self.number += count  # nothing of it is shown
            self._length = len(block) - block.rfind(b"\n") - 1 if count else self._length + len(block)
            return
        *ended, rest = block.split(b"\n")
        for piece in ended:
            self._part(piece)
            self._length -= self._returned
            self._ended()
        self._part(rest)

    def finish(self) -> None:
        if self._length:
            self._ended()

    def _part(self, piece: bytes) -> None:
        """A line, or what a block holds of it."""
        if self._offset <= self.number < self._end and self._room > 0:
            start = max(self._column - 1 - self._length, 0)
            self._line += piece[start : start + self._most - len(self._line)]
        self._length += len(piece)
        self._returned = piece.endswith(b"\r") if piece else self._returned

    def _ended(self) -> None:
        if self._offset <= self.number < self._end and self._room > 0:
            self.lines.append(f"{self.number:4}\t{self._text()}")
            self._room -= len(self._line) + 6
        self.number += 1
        self._line.clear()
        self._length = 0
        self._returned = False

    def _text(self) -> str:
        left = max(self._length - (self._column - 1), 0)
        if left <= self._most:
            return self._decoded(bytes(self._line[:left]))
        data = _whole(bytes(self._line[: self._most]))
        return (
            f"{self._decoded(data)}… [line {self.number} has {self._length:,} bytes; go on with "
            f"offset={self.number}, limit=1, column={self._column + len(data)}]"
        )

    def _decoded(self, data: bytes) -> str:
        if self._column > 1:  # the page before may have ended within a character
            while data and 0x80 <= data[0] < 0xC0:
                data = data[1:]
        text = data.decode("utf-8", "replace").replace("\0", "␀")  # some stores cannot hold a NUL
        return text.removeprefix("\ufeff") if self.number == 1 else text


def _whole(data: bytes) -> bytes:
    """Without the beginning of a character that was cut at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if back < needed else data
        if byte < 0x80:
            break
    return data


def _binary(head: bytes) -> str:
    for start, kind in _KINDS.items():
        if head.startswith(start):
            return kind
    return "a binary file" if b"\0" in head[:8192] else ""
