"""One name, one idea: a newcomer who looks for a class by its name finds one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import retinue
import retinue.testing

SOURCE = Path(retinue.__file__).parent


def test_no_public_class_name_exists_twice() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert len(places) > 300
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_an_old_name_still_works_and_says_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match="ReplyRule"):
        assert retinue.testing.Rule is retinue.testing.ReplyRule


def test_no_two_test_files_have_one_name() -> None:
    """pytest takes the second for the first, and ends."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
