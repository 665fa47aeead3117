"""ARCHITECTURE.md is a map: what it names is there, and what is there can be found on it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import retinue

SOURCE = Path(retinue.__file__).parent
ROOT = SOURCE.parent.parent
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w./-]+(?:\.py|\.js|/))`", MAP)))
NO_CLASS = {"Step", "Approval"}  # a turn of the loop; a question and its answer, which are two events
OBJECT = re.compile(r"^\| `(\w+)` \|.*\| (`[^|]+`) \|$", re.MULTILINE)


def classes(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("path", NAMED)
def test_a_path_on_the_map_is_there(path: str) -> None:
    assert (SOURCE / path).exists() or (ROOT / path).exists()


def test_the_objects_on_the_map_are_the_classes_there_are() -> None:
    objects = OBJECT.findall(MAP)
    assert {"AgentSpec", "Run", "Tool", "Report", "Workflow", "RunTree", "Inbox", "Signal"} <= {
        name for name, _ in objects
    }
    missing: list[tuple[str, str]] = []
    for name, where in objects:
        files = [SOURCE / one for one in re.findall(r"`([\w/]+\.py)`", where)]
        if name not in NO_CLASS and name not in set[str]().union(*map(classes, files)):
            missing.append((name, where))
    assert missing == []


def test_every_module_of_the_engine_is_on_the_map() -> None:
    block = MAP.split("Inside `engine/`", 1)[1].split("```", 2)[1]
    modules = {path.stem for path in (SOURCE / "engine").glob("*.py")} - {"__init__"}
    assert modules - set(re.findall(r"\w+", block)) == set()


def test_every_package_and_module_at_the_top_is_on_the_map() -> None:
    block = MAP.split("## Layers", 1)[1].split("```", 2)[1]
    there = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert there - {"__init__", "__main__"} - set(re.findall(r"\w+", block)) == set()
