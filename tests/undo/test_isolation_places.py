"""Three children that write at once, in projects of every kind: no edit is lost, and undo restores every byte."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from projects import bash, project, tree
from test_isolation import children, opened

from retinue.events import ToolReturned
from retinue.testing.scripted import call

ME = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *ME, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def furnished(folder: Path, *, with_git: bool = True) -> Path:
    """A project, with what is hard to copy: names of every kind, empty files, a last line without its end."""
    folder.mkdir(parents=True)
    (folder / "Überblick über alles.md").write_text("eins\nzwei", "utf-8")
    (folder / "日本 語").mkdir()
    (folder / "日本 語" / "-rf").write_bytes(b"")
    (folder / "shared.txt").write_text("".join(f"line {n}\n" for n in range(30)))
    project(folder, git=with_git)
    (folder / "shared.txt").write_text("".join(f"Line {n}\n" for n in range(30)))  # not committed
    (folder / "new and not added").write_bytes(b"\0new")
    return folder


def no_git(top: Path) -> Path:
    return furnished(top / "p", with_git=False)


def no_commit(top: Path) -> Path:
    folder = furnished(top / "p", with_git=False)
    git(folder, "init", "-q")
    return folder


def below(top: Path) -> Path:
    """A folder of a repository."""
    folder = furnished(top / "repo" / "a part", with_git=False)
    (top / "repo" / ".gitignore").write_text("*.log\n")
    git(top / "repo", "init", "-q")
    git(top / "repo", "add", "-A")
    git(top / "repo", "commit", "-qm", "first")
    return folder


def linked(top: Path) -> Path:
    """A worktree of the person's own."""
    repository = furnished(top / "repo")
    git(repository, "worktree", "add", "-q", "-b", "mine", str(top / "linked tree"))
    folder = top / "linked tree"
    (folder / "shared.txt").write_text("".join(f"Line {n}\n" for n in range(30)))
    (folder / "empty").mkdir()
    return folder


def with_submodule(top: Path) -> Path:
    inner = furnished(top / "inner")
    folder = furnished(top / "p")
    git(folder, "submodule", "add", "-q", str(inner), "vendor/inner")
    git(folder, "commit", "-qm", "a submodule")
    (folder / "vendor/inner/main.py").write_text("print('changed in the submodule')\n")
    return folder


def dirty_index(top: Path) -> Path:
    """Staged and changed again, staged as removed and there again, meant to be added, removed; on no branch."""
    folder = furnished(top / "mein Prøjekt 'x' $HOME")
    git(folder, "checkout", "-q", "--detach")
    (folder / "lib/two.py").write_text("STAGED = 2\n")
    git(folder, "add", "lib/two.py")
    (folder / "lib/two.py").write_text("TWO = 3\n")
    git(folder, "rm", "-q", "--cached", "dos.txt")
    (folder / "later.txt").write_text("later\n")
    git(folder, "add", "-N", "later.txt")
    (folder / "lib/deep/one.py").unlink()
    return folder


PLACES = (no_git, no_commit, below, linked, with_submodule, dirty_index)
STEPS = {
    "TOP": [
        call("edit", path="shared.txt", old="Line 2\n", new="line two\n"),
        call("write", path="a new/påth.txt", content="no end of line"),
        call("edit", path="Überblick über alles.md", old="zwei", new="drei"),
        "did A",
    ],
    "MIDDLE": [
        call("edit", path="shared.txt", old="Line 15\n", new="fifteen\n"),
        bash(
            "rm tool.sh; mv picture.bin 'moved pic.bin'; ln -sf secret.txt link; chmod 755 main.py; : > nothing; "
            "printf '\\0\\1' >> latin.txt; rm '日本 語/-rf'; mkdir -p bare; echo x > build/ignored.o"
        ),
        "did B",
    ],
    "BOTTOM": [
        call("edit", path="shared.txt", old="Line 28\n", new="28\n"),
        call("write", path="lib/two.py", content="TWO = 'two'"),
        "did C",
    ],
    "PLAY boss": [
        [call("coder", f"c{n}", prompt=word) for n, word in enumerate(("TOP", "MIDDLE", "BOTTOM"))],
        lambda request: [
            call("merge_child", f"m{n}", child_id=child) for n, child in enumerate(children(request))
        ],
        "all merged",
    ],
}


def wanted(before: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """What the project is to be when all three are merged."""
    after = dict(before)
    text = "".join(f"Line {n}\n" for n in range(30))
    for old, new in (("Line 2\n", "line two\n"), ("Line 15\n", "fifteen\n"), ("Line 28\n", "28\n")):
        text = text.replace(old, new)
    after["shared.txt"] = ("file", 0o644, text.encode())
    after["a new"] = ("folder", 0o755)
    after["a new/påth.txt"] = ("file", 0o644, b"no end of line")
    after["Überblick über alles.md"] = ("file", 0o644, b"eins\ndrei")
    del after["tool.sh"], after["日本 語/-rf"]
    after["moved pic.bin"] = after.pop("picture.bin")
    after["link"] = ("link", "secret.txt")
    after["main.py"] = ("file", 0o755, before["main.py"][2])
    after["nothing"] = ("file", 0o644, b"")
    after["latin.txt"] = ("file", 0o644, b"caf\xe9\n\0\1")
    after["bare"] = ("folder", 0o755)
    after["lib/two.py"] = ("file", 0o644, b"TWO = 'two'")
    return after


@pytest.mark.parametrize("place", PLACES)
async def test_three_writers_merge_without_loss_and_undo_restores_every_byte(
    tmp_path: Path, place: Callable[[Path], Path]
) -> None:
    folder = place(tmp_path)
    before = tree(folder)
    has_git = place is not no_git
    index = git(folder, "ls-files", "-s") if has_git else ""
    refs = git(folder, "for-each-ref") if has_git else ""
    trees = git(folder, "worktree", "list") if has_git else ""
    async with opened(folder, STEPS, db=str(tmp_path / "runs.db")) as retinue:
        report = await retinue.run("boss", "go")
        events = await retinue.store.events(report.run_id)
        merges = [e for e in events if isinstance(e, ToolReturned) and e.name == "merge_child"]
        assert [e.is_error for e in merges] == [False] * 3, [e.text for e in merges]
        now = tree(folder)
        assert now == wanted(before)
        assert retinue.services.worktrees.all() == []
        if has_git:
            assert git(folder, "ls-files", "-s") == index, "the index is the person's"
            assert git(folder, "for-each-ref") == refs, "no branch is left"
            assert git(folder, "worktree", "list") == trees
        assert not (await retinue.changes.undo(report.run_id)).refused
    assert tree(folder) == before


MAKES = """test -e build/out.o && echo THERE
mkdir -p build; echo mine > build/out.o; echo log > my.log; echo kept > kept.txt"""


@pytest.mark.parametrize("ignored", [True, False])
async def test_ignored_files_are_copied_as_set_and_never_merged_or_lost(
    tmp_path: Path, ignored: bool
) -> None:
    folder = furnished(tmp_path / "p")
    before = tree(folder)
    steps = {
        "TASK": [bash(MAKES), "did"],
        "PLAY boss": [
            call("coder", prompt="TASK"),
            lambda request: call("merge_child", child_id=children(request)[0]),
            "merged",
        ],
    }
    async with opened(
        folder, steps, db=str(tmp_path / "runs.db"), settings={"isolation.ignored": ignored}
    ) as retinue:
        report = await retinue.run("boss", "go")
        events = await retinue.store.events(report.run_id)
    listed = next(e for e in events if isinstance(e, ToolReturned) and e.name == "bash")
    assert ("THERE" in listed.text) is ignored
    assert tree(folder) == {**before, "kept.txt": ("file", 0o644, b"kept\n")}
