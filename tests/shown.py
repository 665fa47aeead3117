"""Texts that a model reads, kept beside the tests so that a change of them shows in review.

UPDATE_SHOWN=1 make fast     # after a change that was meant
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"


def check(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("UPDATE_SHOWN"):
        path.write_text(text)
    kept = path.read_text() if path.exists() else ""
    if kept != text:
        diff = "\n".join(
            difflib.unified_diff(kept.splitlines(), text.splitlines(), "kept", "now", lineterm="")
        )
        raise AssertionError(
            f"what the model is shown has changed ({name}); UPDATE_SHOWN=1 if meant:\n{diff}"
        )
