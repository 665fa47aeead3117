"""Why a change cannot be taken back is said as it is."""

from __future__ import annotations

import pytest

from retinue.snapshots import Seen, difference

IGNORED = Seen("ignored", 0, 0, "", 0, 0, 0)


@pytest.mark.parametrize(
    ("path", "why"),
    [(".venv", "new, and not watched, as every .venv"), ("build", "new, and ignored by git")],
)
def test_a_folder_that_is_left_out_by_its_name_is_not_said_to_be_ignored_by_git(path: str, why: str) -> None:
    assert difference({}, {path: IGNORED}).left_out == (f"{path}: {why}",)
