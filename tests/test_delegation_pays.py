"""The script behind `docs/when-to-delegate.md` measures what it says, and its figures say what the page says."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "bench" / "delegation_pays.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("delegation_pays", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "delegation_pays", module)
    spec.loader.exec_module(module)
    return module


async def test_every_way_finds_every_planted_fact_and_only_delegation_keeps_the_root_small(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await script.main(["--read-ms", "0", "--write-ms", "0", "--lines", "60"])
    assert [(one.task, one.way, one.children) for one in found] == [
        ("one fact", "alone", 0),
        ("one fact", "one after the other", 1),
        ("one fact", "in parallel", 1),
        ("a chain of three", "alone", 0),
        ("a chain of three", "one after the other", 3),
        ("three parts of four files", "alone", 0),
        ("three parts of four files", "one after the other", 3),
        ("three parts of four files", "in parallel", 3),
    ]
    assert all((one.facts, one.status) == (one.planted, "completed") for one in found)
    one, one_by, _, _, _, wide, wide_by, side_by_side = found
    assert one.tokens_in < one_by.tokens_in, "one look is cheaper alone"
    assert max(wide_by.tokens_in, side_by_side.tokens_in) < wide.tokens_in, "much to read is cheaper apart"
    assert max(wide_by.largest_context, side_by_side.largest_context) * 4 < wide.largest_context
    assert capsys.readouterr().out.count("\n| ") == len(found)


async def test_a_fact_that_is_not_in_the_answer_is_not_counted(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = script.Task.facts
    monkeypatch.setattr(script.Task, "facts", lambda task: {**planted(task), "nowhere": "planted"})
    (one, *_) = await script.main(["--read-ms", "0", "--write-ms", "0", "--lines", "5", "--task", "one fact"])
    assert (one.facts, one.planted) == (1, 2)


async def test_a_run_that_did_not_complete_says_so_in_its_row(script: ModuleType) -> None:
    (one, *_) = await script.main(["--read-ms", "0", "--write-ms", "0", "--lines", "5", "--task", "one fact"])
    assert script.table([one]).endswith("1 of 1 |")
    assert script.table([replace(one, status="error", facts=0)]).endswith("0 of 1 (error) |")
