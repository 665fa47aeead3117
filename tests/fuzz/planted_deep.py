"""A mistake behind five right bytes, one condition each: chance needs a million million tries, coverage few."""

from __future__ import annotations

SEEDS = (b"begin",)


WORD = b"Sesam"


def check(data: bytes) -> None:
    right = 0
    if data[:1] == WORD[:1]:
        right += 1
        if data[1:2] == WORD[1:2]:
            right += 1
            if data[2:3] == WORD[2:3]:
                right += 1
                if data[3:4] == WORD[3:4]:
                    right += 1
                    if data[4:5] == WORD[4:5]:
                        right += 1
    assert right < len(WORD), "the deep mistake"
