"""Rows from the bare pages of an SQLite file whose own index of tables is lost. Called by `salvage` alone.

Every page that looks like a leaf of a table is read for rows with the right number of columns, newer pages
from the write-ahead log before older ones. What was deleted but not overwritten yet can turn up again.

The format: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LEAF = 0x0D
_HEADER = 100
_WAL_HEADER, _FRAME_HEADER = 32, 24
_SIZES = frozenset(2**n for n in range(9, 17))
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def rows(path: Path, *, columns: int) -> Iterator[tuple[Any, ...]]:
    if path.stat().st_size == 0:
        return
    pages = _Pages(path)
    for number in range(1, pages.count + 1):
        for payload in pages.cells(number):
            try:
                found = _record(payload, columns)
            except (IndexError, struct.error, UnicodeDecodeError):
                continue
            if found is not None:
                yield found


class _Pages:
    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        size = int.from_bytes(self._data[16:18], "big")
        self.size = size if size in _SIZES else 4096
        log = path.with_name(path.name + "-wal")
        self._newer = self._frames(log.read_bytes()) if log.is_file() else {}
        self.count = max(len(self._data) // self.size, max(self._newer, default=0))

    def _frames(self, log: bytes) -> dict[int, bytes]:
        """The newest version of each page in the write-ahead log, of transactions that were finished."""
        found: dict[int, bytes] = {}
        open_: dict[int, bytes] = {}
        salt = log[16:24]
        whole = _FRAME_HEADER + self.size
        for start in range(_WAL_HEADER, len(log) - whole + 1, whole):
            number, commit = struct.unpack_from(">II", log, start)
            if log[start + 8 : start + 16] != salt:
                break
            open_[number] = log[start + _FRAME_HEADER : start + whole]
            if commit:
                found.update(open_)
                open_ = {}
        return found

    def _page(self, number: int) -> bytes:
        return self._newer.get(number) or self._data[(number - 1) * self.size : number * self.size]

    def cells(self, number: int) -> Iterator[bytes]:
        page = self._page(number)
        start = _HEADER if number == 1 else 0
        if len(page) < self.size or page[start] != _LEAF:
            return
        (count,) = struct.unpack_from(">H", page, start + 3)
        for index in range(min(count, self.size // 4)):
            try:
                (at,) = struct.unpack_from(">H", page, start + 8 + 2 * index)
                length, at = _varint(page, at)
                _, at = _varint(page, at)
                payload = self._payload(page, at, length)
            except (IndexError, struct.error):
                continue
            if payload is not None:
                yield payload

    def _payload(self, page: bytes, at: int, length: int) -> bytes | None:
        local = self._local(length)
        found = bytearray(page[at : at + local])
        if local < length:
            (following,) = struct.unpack_from(">I", page, at + local)
            while following and len(found) < length and following <= self.count:
                overflow = self._page(following)
                (following,) = struct.unpack_from(">I", overflow)
                found += overflow[4:]
        return bytes(found[:length]) if len(found) >= length else None

    def _local(self, length: int) -> int:
        """How much of a row is on its own page; the rest overflows onto others."""
        if length <= self.size - 35:
            return length
        least = (self.size - 12) * 32 // 255 - 23
        some = least + (length - least) % (self.size - 4)
        return some if some <= self.size - 35 else least


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(9):
        byte = data[at + index]
        if index == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    raise IndexError


def _record(payload: bytes, columns: int) -> tuple[Any, ...] | None:
    end, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if len(kinds) != columns or at != end:
        return None
    values: list[Any] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        size = _INTEGERS[kind]
        return int.from_bytes(payload[at : at + size], "big", signed=True), at + size
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    if kind >= 12:
        size = (kind - 12) // 2
        raw = payload[at : at + size]
        return (raw.decode() if kind % 2 else raw), at + size
    return {8: 0, 9: 1}.get(kind), at
