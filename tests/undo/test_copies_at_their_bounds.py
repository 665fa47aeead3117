"""Copies of a project where it becomes rare: files that are links or pipes, very many, very large, half shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retinue.engine.copy_files import _is_the_same, made_ignored
from retinue.engine.merge_diffs import _joined, _one_diff, conflicts
from retinue.engine.worktrees import Conflict, MergePlan
from retinue.snapshots import Seen
from retinue.types import FileState


def laid(folder: Path) -> Path:
    """Files of every kind, each under its name."""
    folder.mkdir()
    (folder / "a").write_text("one")
    (folder / "like a").write_text("one")
    (folder / "b").write_text("two")
    (folder / "longer").write_text("one more")
    (folder / "empty").write_text("")
    os.symlink("a", folder / "link to a")
    os.symlink("a", folder / "same link")
    os.symlink("b", folder / "link to b")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "large").write_bytes(b"x" * (1 << 20) + b"1")
    (folder / "other large").write_bytes(b"x" * (1 << 20) + b"2")
    return folder


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", "like a", True),
        ("empty", "empty", True),
        ("large", "large", True),
        ("large", "other large", False),
        ("a", "b", False),
        ("a", "longer", False),
        ("a", "link to a", False),
        ("link to a", "a", False),
        ("link to a", "same link", True),
        ("link to a", "link to b", False),
        ("a", "gone", False),
        ("pipe", "pipe", False),
        ("pipe", "a", False),
        ("folder", "folder", False),
    ],
)
def test_a_file_is_as_the_project_has_it_by_what_it_holds(
    tmp_path: Path, one: str, other: str, same: bool
) -> None:
    folder = laid(tmp_path / "p")
    assert _is_the_same(folder / one, folder / other) is same


@pytest.mark.parametrize("count", [30, 31])
def test_thirty_new_files_of_an_ignored_folder_are_named(tmp_path: Path, count: int) -> None:
    copy, project = tmp_path / "copy", tmp_path / "project"
    (copy / "build").mkdir(parents=True)
    project.mkdir()
    for n in range(count):
        (copy / "build" / f"{n:02}").write_text("x")
    said = made_ignored(
        copy, project, {"build": Seen("ignored", 0, 0, "", 0, 0, 0), "kept": Seen("file", 0, 0, "", 0, 0, 0)}
    )
    if count == 30:
        assert said == [f"build/{n:02}: new, and ignored by git" for n in range(30)]
    else:
        assert said == ["build/: more than 30 new or other files, ignored by git"]


def file(size: int, sha256: str = "s", kind: str = "file") -> FileState:
    return FileState(kind=kind, mode=0o644, size=size, sha256=sha256)  # pyright: ignore[reportArgumentType]


def test_a_file_is_compared_up_to_eight_megabytes() -> None:
    texts = {"old": b"a\n", "new": b"b\n", "data": b"\0"}
    most = _one_diff("x", file(8_000_000, "old"), file(2, "new"), texts.get, None)
    assert "-a" in most.splitlines()
    more = _one_diff("x", file(8_000_001, "old"), file(2, "new"), texts.get, None)
    assert more == "x: 8,000,001 bytes become 2; too many to be compared"
    assert _one_diff("x", file(2, "old"), file(1, "data"), texts.get, None) == "x: 2 bytes become 1"
    withheld = _one_diff("x", file(2, "old"), file(2, "new"), texts.get, "it may be secret")
    assert withheld == "x: 2 bytes become 2; not shown: it may be secret"


def test_what_becomes_another_kind_is_told_and_of_a_link_its_target() -> None:
    def told(before: FileState, after: FileState, why: str | None = None) -> str:
        return _one_diff("x", before, after, {"to": b"there"}.get, why)

    assert told(file(1), file(0, "", "folder")) == "x: file becomes folder"
    assert told(FileState(), file(0, "to", "link")) == "x: nothing becomes link to there"
    assert told(file(1), file(0, "gone", "link")) == "x: file becomes link to ?"
    assert told(file(1), file(0, "to", "link"), "it may be secret") == "x: file becomes link"
    assert told(file(0, "to", "link"), FileState()) == "x: link becomes nothing"


@pytest.mark.parametrize(("size", "more"), [(60_000, 0), (60_001, 1)])
def test_of_one_change_sixty_thousand_characters_are_shown(size: int, more: int) -> None:
    made = _one_diff("x", FileState(), file(1, "new"), {"new": b"y\n"}.get, None)
    text = ("y" * (size - len(made) + 1)).encode()
    shown = _one_diff("x", FileState(), file(1, "new"), {"new": text}.get, None)
    assert len(shown.partition("\n[")[0]) == 60_000
    assert ("1 more characters of this change" in shown) is bool(more)


def test_of_all_changes_those_are_named_that_there_is_no_room_for() -> None:
    line = b"y" * 59_000 + b"\n"
    changes = [(f"f{n:02}", FileState(), file(1, "new")) for n in range(4 + 31)]
    *shown, left = _joined(changes, {"new": line}.get, None).split("\n[")
    assert left.startswith("31 more changed paths are not shown here: f04, ")
    assert left.endswith("f33, …]")
    assert len(shown) == 1
    *_, left = _joined(changes[:-1], {"new": line}.get, None).split("\n[")
    assert left.endswith("f33]")


def test_of_conflicts_so_much_is_shown_as_there_is_room_for() -> None:
    long = [Conflict(path=f"f{n}", why="both", text="t" * 60_000) for n in range(3)]
    rest = Conflict(path="g", why="both", text="t" * 20_001)
    none = Conflict(path="h", why="both", text="tt")
    empty = Conflict(path="i", why="made on both sides")
    *_, third, fourth, last, bare = conflicts(MergePlan(conflicts=(*long, rest, none, empty)))
    assert third == f"conflict in f2: both\n{'t' * 60_000}"
    assert fourth == f"conflict in g: both\n{'t' * 20_000}\n[1 more characters of this conflict]"
    assert last == "conflict in h: both\n\n[2 more characters of this conflict]"
    assert bare == "conflict in i: made on both sides"
    (cut,) = conflicts(MergePlan(conflicts=(Conflict(path="f", why="both", text="t" * 60_001),)))
    assert cut.endswith("t\n[1 more characters of this conflict]")
