"""A target with a mistake in it: the driver must find this one."""

from __future__ import annotations

SEEDS = (b"begin",)


def check(data: bytes) -> None:
    assert b"\0" not in data, "the planted mistake"
