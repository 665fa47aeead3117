"""Turns bytes into choices, so that a fuzzer that only knows bytes can drive a target that takes more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Takes bytes from the front. When none are left every number is 0 and every text is empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, below: int) -> int:
        return (self._take(1) or b"\0")[0] % below

    def pick(self, among: Sequence[T]) -> T:
        return among[self.number(len(among))]

    def text(self, most: int = 16) -> str:
        return self._take(self.number(most)).decode("utf-8", "surrogateescape")

    def rest(self) -> bytes:
        return self._take(len(self._data))

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += len(taken)
        return taken
