"""A run's `/home/agent` is private, bounded and gone afterwards; `Files` speaks only of paths it may."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.errors import ForbiddenPath, Refused, ToolError
from retinue.jail import Jail
from retinue.workspace import HOME, Files
from retinue.workspace_folder import PREFIX, Workspace, sweep

CANARY = b"the canary outside"

OWNER = """
import sys, pathlib
from retinue.workspace_folder import Workspace
workspace = Workspace(root=pathlib.Path(sys.argv[1]))
workspace.write("a.txt", b"a")
print(workspace.folder, flush=True)
sys.stdin.read()
"""

SWEEPER = """
import sys, pathlib, os
from retinue.workspace_folder import sweep
print("ready", flush=True)
while os.getppid() == int(sys.argv[2]):
    sweep(pathlib.Path(sys.argv[1]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspaces"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root=root)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a = 1\n")
    (tmp_path / "canary.txt").write_bytes(CANARY)
    (folder / "out").symlink_to(tmp_path)
    (folder / "in").symlink_to("src")
    return folder


def owner(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def made(child: subprocess.Popen[str]) -> Path:
    assert child.stdout is not None
    return Path(child.stdout.readline().strip())


def told(action: Callable[[], object]) -> str:
    """What a model would read, and everything that hangs on it."""
    try:
        return str(action())
    except ToolError as error:
        return f"{error} {error.__cause__}"


def test_the_folder_is_made_at_the_first_write_and_is_private(root: Path, workspace: Workspace) -> None:
    assert list(root.iterdir()) == []
    workspace.write("notes/a.txt", b"a")
    (folder,) = root.iterdir()
    assert folder.name.startswith(PREFIX)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "notes" / "a.txt").read_bytes() == b"a"


def test_closing_deletes_everything_and_may_be_done_twice(root: Path, workspace: Workspace) -> None:
    workspace.write("deep/er/a.txt", b"a")
    workspace.close()
    workspace.close()
    assert list(root.iterdir()) == []
    with pytest.raises(ToolError, match="the run it belonged to has ended"):
        workspace.write("a.txt", b"a")


def test_a_forgotten_workspace_is_deleted_with_its_object(root: Path) -> None:
    workspace = Workspace(root=root)
    workspace.write("a.txt", b"a")
    del workspace
    gc.collect()
    assert list(root.iterdir()) == []


def test_a_process_that_ends_takes_its_workspace_along(root: Path) -> None:
    child = owner(root)
    folder = made(child)
    assert folder.is_dir()
    child.communicate("")
    assert child.returncode == 0
    assert not folder.exists()


def test_a_forked_child_does_not_delete_its_parents_workspace(root: Path, workspace: Workspace) -> None:
    workspace.write("a.txt", b"a")
    pid = os.fork()
    if pid == 0:
        try:
            workspace.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert workspace.folder is not None
    assert (workspace.folder / "a.txt").read_bytes() == b"a"


def test_deleting_does_not_follow_links_out(root: Path, workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_bytes(CANARY)
    workspace.write("sub/a.txt", b"a")
    assert workspace.folder is not None
    (workspace.folder / "link").symlink_to(tmp_path / "precious")
    (workspace.folder / "sub" / "link").symlink_to(tmp_path / "precious" / "file")
    workspace.close()
    assert list(root.iterdir()) == []
    assert (tmp_path / "precious" / "file").read_bytes() == CANARY


def test_a_tree_deeper_than_any_path_is_deleted(root: Path, workspace: Workspace) -> None:
    workspace.write("a.txt", b"a")
    assert workspace.folder is not None
    here = os.open(workspace.folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("down", dir_fd=here)
        below = os.open("down", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    workspace.recount()
    workspace.close()
    assert list(root.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="drops root's rights, which only root can")
def test_folders_that_were_locked_up_are_deleted_by_an_ordinary_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for above in list(tmp_path.parents)[:-1]:
        if above.stat().st_uid == os.geteuid() and above.stat().st_mode & 0o077 == 0:
            above.chmod(0o711)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.seteuid(65534)
            root = tmp_path / "theirs"
            workspace = Workspace(root=root)
            workspace.write("shut/inner/a.txt", b"a")
            assert workspace.folder is not None
            (workspace.folder / "shut" / "inner").chmod(0)
            (workspace.folder / "shut").chmod(0)
            workspace.close()
            code = 0 if list(root.iterdir()) == [] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_quota_counts_what_is_there_and_not_what_was_overwritten(root: Path) -> None:
    workspace = Workspace(root=root, quota=100)
    workspace.write("a", b"x" * 60)
    with pytest.raises(ToolError, match=r"/home/agent is full: 60 of 100 bytes are used .* needs 50"):
        workspace.write("b", b"x" * 50)
    workspace.write("a", b"x" * 90)
    workspace.write("b", b"x" * 10)
    assert workspace.used == 100
    assert workspace.folder is not None
    (workspace.folder / "a").unlink()
    workspace.write("c", b"x" * 90)
    assert workspace.used == 100


def test_what_commands_wrote_counts_after_a_recount(root: Path) -> None:
    workspace = Workspace(root=root, quota=100)
    workspace.write("a", b"x")
    assert workspace.folder is not None
    (workspace.folder / "big").write_bytes(b"x" * 100)
    workspace.recount()
    with pytest.raises(ToolError, match="is full: 101 of 100"):
        workspace.write("b", b"x")


def test_a_sweep_deletes_what_a_killed_process_left_and_nothing_that_is_in_use(
    root: Path, workspace: Workspace
) -> None:
    workspace.write("mine.txt", b"a")
    killed, living = owner(root), owner(root)
    left, used = made(killed), made(living)
    assert sweep(root) == 0
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left.is_dir()
    assert sweep(root) == 1
    assert set(root.iterdir()) == {used, workspace.folder}
    living.communicate("")


def test_a_sweep_is_not_fooled_by_links_files_modes_or_other_owners(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").write_bytes(CANARY)
    (root / f"{PREFIX}link").symlink_to(precious)
    (root / f"{PREFIX}file").write_bytes(b"")
    (root / f"{PREFIX}open").mkdir(mode=0o755)
    (root / "another").mkdir(mode=0o700)
    expected = 4
    if os.geteuid() == 0:
        (root / f"{PREFIX}theirs").mkdir(mode=0o700)
        os.chown(root / f"{PREFIX}theirs", 65534, 65534)
        expected += 1
    assert sweep(root) == 0
    assert len(list(root.iterdir())) == expected
    assert (precious / "file").read_bytes() == CANARY


def test_a_sweep_of_a_missing_folder_is_nothing(root: Path) -> None:
    assert sweep(root / "missing") == 0


def test_a_workspace_made_during_a_sweep_survives(root: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SWEEPER, str(root), str(os.getpid())], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for _ in range(300):
            workspace = Workspace(root=root)
            workspace.write("a.txt", b"a")
            assert workspace.folder is not None
            assert (workspace.folder / "a.txt").read_bytes() == b"a"
            workspace.close()
    finally:
        child.kill()
        child.communicate()


# --- Files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "display"),
    [
        ("src/a.py", "src/a.py"),
        ("./src//a.py", "src/a.py"),
        ("src/../src/a.py", "src/a.py"),
        (".", "."),
        ("../project/src/a.py", "src/a.py"),
        ("/home/agent/x.md", "/home/agent/x.md"),
        ("/home/agent", "/home/agent"),
        ("/home/agent/../agent/x", "/home/agent/x"),
        ("~/x.md", "/home/agent/x.md"),
        ("~", "/home/agent"),
    ],
)
def test_a_path_has_one_way_to_be_shown(project: Path, workspace: Workspace, path: str, display: str) -> None:
    assert Files(project, workspace).display(path) == display


def test_absolute_paths_inside_the_project_are_shown_relative(project: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(project)
    files = Files(tmp_path / "alias", None)
    for spelling in (project, tmp_path / "alias"):
        assert files.display(str(spelling / "src" / "a.py")) == "src/a.py"
        assert files.read_bytes(str(spelling / "src" / "a.py")) == b"a = 1\n"


def test_without_a_project_relative_paths_are_in_the_workspace(workspace: Workspace) -> None:
    files = Files(None, workspace)
    assert files.cwd == HOME
    assert files.write("x.md", b"x") == "/home/agent/x.md"
    assert files.read_bytes("/home/agent/x.md") == b"x"
    assert files.display("notes/../x.md") == "/home/agent/x.md"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "/home/agents/x", "/HOME/AGENT/x", "/home/agent/../x"]
)
def test_a_path_outside_the_workspace_is_a_forbidden_request(workspace: Workspace, path: str) -> None:
    with pytest.raises(ForbiddenPath) as caught:
        Files(None, workspace).read_bytes(path)
    assert str(caught.value) == f"forbidden request: {path} is outside the workspace /home/agent"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../canary.txt", "out/canary.txt", "/proc/self/environ", "/"]
)
def test_a_path_outside_the_project_is_a_forbidden_request(
    project: Path, workspace: Workspace, path: str
) -> None:
    files = Files(project, workspace)
    for action in (files.read_bytes, files.list, files.stat, files.exists, lambda p: files.write(p, b"x")):
        with pytest.raises(ForbiddenPath) as caught:
            action(path)
        assert str(caught.value) == f"forbidden request: {path} is outside the project"


def test_without_a_workspace_its_paths_are_forbidden(project: Path) -> None:
    with pytest.raises(ForbiddenPath):
        Files(project, None).read_bytes("/home/agent/x")
    with pytest.raises(ToolError, match="no workspace"):
        Files(project, None).save("x", b"")
    with pytest.raises(ForbiddenPath):
        Files(None, None).read_bytes("x")


def test_a_project_below_the_virtual_home_keeps_its_own_paths(workspace: Workspace) -> None:
    files = Files(Path("/home/agent/code"), workspace)
    assert files.display("/home/agent/code/x.py") == "x.py"
    assert files.display("/home/agent/notes.md") == "/home/agent/notes.md"
    assert Files(Path("/home/agent"), workspace).display("/home/agent/x") == "/home/agent/x"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "the path is empty"),
        ("a\0b", r"forbidden request: a\\x00b is not a path"),
        ("\ud800", r"forbidden request: \\ud800 is not a path"),
        ("missing.txt", "there is no file or folder missing.txt"),
        ("src", "src is a folder"),
        ("src/a.py/x", "a part of this path is a file"),
        ("x" * 5000, r"xxx… \(5,000 characters\): the path is too long"),
        ("a\x1b[31mb", r"there is no file or folder a\\x1b\[31mb"),
    ],
)
def test_failures_are_told_in_one_clear_line(
    project: Path, workspace: Workspace, path: str, words: str
) -> None:
    with pytest.raises(ToolError, match=words) as caught:
        Files(project, workspace).read_bytes(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_real_place_of_a_workspace_never_shows(root: Path, workspace: Workspace) -> None:
    files = Files(None, workspace)
    files.write("a.txt", b"a")
    folder = workspace.folder
    assert folder is not None
    (folder / "out").symlink_to("/etc")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    os.link(folder / "a.txt", folder / "hard")
    for path in ("missing", "out/passwd", "loop", "pipe", "hard", ".", "a.txt/b", "x" * 300, "../x"):
        for action in (
            files.read_bytes,
            lambda p: files.write(p, b"x"),
            lambda p: files.write(f"{p}/y", b"x"),
        ):
            text = told(lambda action=action, path=path: action(path))
            assert str(root) not in text
            assert folder.name not in text
    with pytest.raises(ToolError) as caught:
        Workspace(root=folder / "a.txt").write("x", b"x")
    assert str(caught.value) == "/home/agent cannot be made: File exists"


def test_a_workspace_nothing_was_written_to_is_empty(project: Path, workspace: Workspace) -> None:
    files = Files(project, workspace)
    assert files.list("/home/agent") == []
    assert not files.exists("/home/agent/x")
    with pytest.raises(ToolError, match="there is no file or folder /home/agent/x"):
        files.read_bytes("/home/agent/x")
    assert workspace.folder is None


def test_a_run_that_may_only_read_still_has_its_workspace(project: Path, workspace: Workspace) -> None:
    files = Files(project, workspace, writable=False)
    with pytest.raises(Refused, match=r"src/a\.py cannot be written: this run may only read the project"):
        files.write("src/a.py", b"")
    assert files.write("/home/agent/a.py", b"") == "/home/agent/a.py"
    assert (project / "src" / "a.py").read_text() == "a = 1\n"


def test_saving_never_overwrites(workspace: Workspace, project: Path) -> None:
    files = Files(project, workspace)
    assert files.save("page.md", b"1") == "/home/agent/page.md"
    assert files.save("page.md", b"2") == "/home/agent/page-2.md"
    assert files.save("../../etc/pass wd?.md", b"3") == "/home/agent/etc-pass-wd-.md"
    assert files.save("..", b"4") == "/home/agent/file"
    assert files.save("x" * 500 + ".html", b"5") == f"/home/agent/{'x' * 80}.html"
    assert files.read_bytes("/home/agent/page.md") == b"1"


def test_reading_is_bounded(project: Path) -> None:
    (project / "big").write_bytes(b"x" * 100)
    assert Files(project, None).read_bytes("big", 100) == b"x" * 100
    with pytest.raises(ToolError, match="big is larger than the 99 bytes"):
        Files(project, None).read_bytes("big", 99)


def test_hard_links_in_the_workspace_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    files = Files(None, workspace)
    files.write("a.txt", b"a")
    assert workspace.folder is not None
    (tmp_path / "canary").write_bytes(CANARY)
    os.link(tmp_path / "canary", workspace.folder / "hard")
    with pytest.raises(ToolError, match="it has hard links"):
        files.read_bytes("hard")


def test_a_child_process_starts_in_the_folder_of_a_handle(project: Path, workspace: Workspace) -> None:
    with Files(project, workspace).folder("src") as fd:
        listed = subprocess.run(["ls"], cwd=f"/proc/self/fd/{fd}", capture_output=True, check=True)
    assert listed.stdout == b"a.py\n"
    with Files(None, workspace).folder() as fd:
        assert os.path.samestat(os.fstat(fd), os.stat(workspace.folder or ""))


PIECES = st.sampled_from(
    [
        *["..", ".", "", "src", "a.py", "out", "in", "canary.txt", "project", "home", "agent", "~", "link"],
        *["%2e%2e", "．．", "..\\", "\0", "etc", "passwd", "proc", "self", "root", "workspaces"],
    ]
)
PATHS = st.tuples(
    st.sampled_from(["", "/", "//", "./", "../", "~/", f"{HOME}/", f"{HOME}/../"]),
    st.lists(PIECES | st.text(max_size=3), max_size=10),
).map(lambda parts: parts[0] + "/".join(parts[1]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS)
def test_no_path_reaches_a_file_outside_project_and_workspace(
    project: Path, root: Path, tmp_path: Path, path: str
) -> None:
    workspace = Workspace(root=root)
    workspace.write("a.py", b"a = 1\n")
    assert workspace.folder is not None
    (workspace.folder / "link").symlink_to(tmp_path)
    for files in (Files(project, workspace), Files(None, workspace)):
        with contextlib.suppress(ToolError):
            assert files.read_bytes(path) == b"a = 1\n"
            assert files.display(path).lstrip("/").split("/")[0] in ("src", "a.py", "in", "home")
        assert str(tmp_path) not in told(lambda files=files: files.read_bytes(path))
        assert str(tmp_path) not in told(lambda files=files: files.write(f"{path}/evil", b"x"))
    workspace.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["canary.txt", "project", "workspaces"]
    assert list(root.iterdir()) == []
    assert (tmp_path / "canary.txt").read_bytes() == CANARY


def test_the_jail_of_a_project_is_opened_when_it_is_needed(tmp_path: Path) -> None:
    files = Files(tmp_path / "missing", None)
    with pytest.raises(ToolError, match="there is no file or folder a"):
        files.read_bytes("a")
    assert isinstance(Files(tmp_path, None).jail(files.locate("a")), Jail)
