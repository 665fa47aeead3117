"""Nothing outside the folder is ever reached: by spelling, by link, by race, by kind of file."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.jail import Jail, Method
from swapping import swapping

METHODS: list[Method] = ["openat2", "walk"]
CANARY = b"the canary outside"


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Method:
    if request.param == "openat2" and Jail(Path("/")).method != "openat2":
        pytest.skip("this kernel has no openat2")
    return request.param


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "secret.txt").write_bytes(CANARY)
    (folder / "deep" / "secret.txt").write_bytes(CANARY)
    return folder


@pytest.fixture
def inside(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "inside"
    (folder / "sub" / "deeper").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"a")
    (folder / "sub" / "b.txt").write_bytes(b"b")
    (folder / "link-file").symlink_to("a.txt")
    (folder / "link-folder").symlink_to("sub")
    (folder / "sub" / "up").symlink_to("../a.txt")
    (folder / "out-file").symlink_to(outside / "secret.txt")
    (folder / "out-folder").symlink_to(outside)
    (folder / "out-relative").symlink_to("../outside/secret.txt")
    (folder / "sub" / "out-root").symlink_to("/")
    (folder / "through").symlink_to("sub/../../inside/../outside/secret.txt")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing")
    return folder


def jailed(inside: Path, method: Method, **options: bool) -> Jail:
    return Jail(inside, method=method, **options)


def read(jail: Jail, path: str) -> bytes:
    with jail.open_read(path) as file:
        return file.read()


def failure(action: Callable[[], object]) -> int:
    return failed(action).errno or 0


def failed(action: Callable[[], object]) -> OSError:
    try:
        action()
    except OSError as error:
        return error
    pytest.fail("nothing was refused")


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "sub/b.txt", "sub//b.txt", "sub/../a.txt", "link-file"])
def test_paths_that_stay_inside_are_read(inside: Path, method: Method, path: str) -> None:
    assert read(jailed(inside, method), path) in (b"a", b"b")


@pytest.mark.parametrize("path", ["link-folder/b.txt", "sub/up", "link-folder/up", "link-folder/../a.txt"])
def test_links_that_stay_inside_are_followed_for_reading(inside: Path, method: Method, path: str) -> None:
    assert read(jailed(inside, method), path) in (b"a", b"b")


ESCAPES = [
    "..",
    "../outside/secret.txt",
    "./../outside/secret.txt",
    "sub/../../outside/secret.txt",
    "sub/deeper/../../../outside/secret.txt",
    "sub/./.././../outside/secret.txt",
    ".//..//outside//secret.txt",
    "link-folder/../../outside/secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/root/etc/passwd",
    "/dev/zero",
    "out-file",
    "out-folder/secret.txt",
    "out-folder/deep/../secret.txt",
    "out-relative",
    "through",
    "sub/out-root/etc/passwd",
    "link-folder/out-root/etc/passwd",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_what_leads_out_is_refused_for_reading(inside: Path, method: Method, path: str) -> None:
    jail = jailed(inside, method)
    for action in (jail.open_read, jail.stat, jail.listdir):
        assert failure(lambda action=action: action(path)) == errno.EXDEV


@pytest.mark.parametrize("path", ESCAPES)
def test_what_leads_out_is_refused_for_changing(
    inside: Path, outside: Path, method: Method, path: str
) -> None:
    jail = jailed(inside, method)

    def write() -> None:
        with jail.open_write(path) as file:
            file.write(b"gotcha")

    assert failure(write) == errno.EXDEV
    if not path.startswith("out-") and path != "through":  # these are links, which may be made and removed
        assert failure(lambda: jail.unlink(path)) == errno.EXDEV
        assert failure(lambda: jail.rename("a.txt", path)) == errno.EXDEV
    assert failure(lambda: jail.mkdir(f"{path}/new")) == errno.EXDEV
    assert sorted(p.name for p in outside.rglob("*")) == ["deep", "secret.txt", "secret.txt"]
    assert (outside / "secret.txt").read_bytes() == CANARY


LOOKALIKES = [
    "%2e%2e/outside/secret.txt",
    "%2e%2e%2foutside%2fsecret.txt",
    "..%2foutside/secret.txt",
    "%252e%252e/outside/secret.txt",
    "．．/outside/secret.txt",
    "．．／outside／secret.txt",
    "․․/outside/secret.txt",
    "..∕outside∕secret.txt",
    "‥/outside/secret.txt",
    "..\\outside\\secret.txt",
    "\\..\\outside",
    ".. /outside/secret.txt",
    " ../outside/secret.txt",
    "..\u200b/outside/secret.txt",
    "..\u202e/outside/secret.txt",
    "....//outside/secret.txt",
    "..;/outside/secret.txt",
    "..\n/outside/secret.txt",
    "~/secret.txt",
    "~root/.bashrc",
    "$HOME/secret.txt",
    "file:///etc/passwd",
    "SUB/../A.TXT",
    "Out-File",
]


@pytest.mark.parametrize("path", LOOKALIKES)
def test_lookalikes_of_dots_and_slashes_are_only_names(inside: Path, method: Method, path: str) -> None:
    assert failure(lambda: jailed(inside, method).open_read(path)) == errno.ENOENT


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("", errno.ENOENT),
        ("a.txt\0.png", errno.EINVAL),
        ("\0", errno.EINVAL),
        ("../\0", errno.EINVAL),
        ("\ud800", errno.EINVAL),
        ("x" * 300, errno.ENAMETOOLONG),
        ("a.txt/x", errno.ENOTDIR),
        ("a.txt/", errno.ENOTDIR),
        ("loop", errno.ELOOP),
        ("dangling", errno.ENOENT),
        (".", errno.EISDIR),
        ("sub", errno.EISDIR),
        ("sub/", errno.EISDIR),
    ],
)
def test_what_is_not_a_file_says_so(inside: Path, method: Method, path: str, number: int) -> None:
    assert failure(lambda: jailed(inside, method).open_read(path)) == number


def test_a_path_of_a_megabyte_is_refused(inside: Path, method: Method) -> None:
    jail = jailed(inside, method)
    assert failure(lambda: jail.open_read("../" * 350_000 + "etc/passwd")) in (
        errno.ENAMETOOLONG,
        errno.EXDEV,
    )
    assert failure(lambda: jail.open_read("./" * 500_000 + "../outside/secret.txt")) in (
        errno.ENAMETOOLONG,
        errno.EXDEV,
    )


def test_devices_pipes_and_sockets_are_refused_without_waiting(
    inside: Path, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    jail = jailed(inside, method)
    os.mkfifo(inside / "pipe")
    monkeypatch.chdir(inside)  # a socket's address must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with contextlib.suppress(PermissionError):
            os.mknod(inside / "zero", 0o666 | 0o020000, os.makedev(1, 5))
        for name in ("pipe", "socket", *(("zero",) if (inside / "zero").exists() else ())):
            assert failure(lambda name=name: jail.open_read(name)) == errno.EINVAL
            assert failure(lambda name=name: jail.open_write(name).__enter__()) == errno.EINVAL
            assert jail.stat(name).st_size == 0


def test_process_folders_offer_no_way_out(method: Method) -> None:
    jail = Jail(Path("/proc/self"), method=method)
    for path in ("root/etc/passwd", "cwd/x", "exe", "fd/0", "root"):
        assert failure(lambda path=path: jail.open_read(path)) in (errno.ELOOP, errno.EXDEV, errno.ENOENT)


def test_hard_links_are_refused_where_agents_can_make_them(
    inside: Path, outside: Path, method: Method
) -> None:
    os.link(outside / "secret.txt", inside / "hard")
    assert failure(lambda: jailed(inside, method, refuse_hard_links=True).open_read("hard")) == errno.EMLINK
    assert read(jailed(inside, method), "hard") == CANARY


def test_a_hard_linked_file_is_never_written(inside: Path, outside: Path, method: Method) -> None:
    os.link(outside / "secret.txt", inside / "hard")
    assert failure(lambda: jailed(inside, method).open_write("hard").__enter__()) == errno.EMLINK
    assert (outside / "secret.txt").read_bytes() == CANARY


def race(attempt: Callable[[], str], wanted: set[str], tries: int = 15_000) -> dict[str, int]:
    """Try often, and until every wanted outcome was seen: a race that never happened proves nothing."""
    seen: dict[str, int] = {}
    deadline = time.monotonic() + 60
    count = 0
    while count < tries or (not wanted <= seen.keys() and time.monotonic() < deadline):
        count += 1
        outcome = attempt()
        seen[outcome] = seen.get(outcome, 0) + 1
    return seen


@pytest.mark.parametrize(
    ("real", "target", "path"),
    [("sub", "out-folder", "sub/secret.txt"), ("a.txt", "out-file", "a.txt")],
    ids=["a folder", "a file"],
)
def test_a_link_swapped_in_during_the_call_never_leads_out(
    inside: Path, method: Method, real: str, target: str, path: str
) -> None:
    (inside / "sub" / "secret.txt").write_bytes(b"b")
    jail = jailed(inside, method)

    def attempt() -> str:
        try:
            return "escaped" if read(jail, path) == CANARY else "inside"
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    with swapping(inside / real, inside / target):
        seen = race(attempt, {"inside", "EXDEV"})
    assert seen.keys() >= {"inside", "EXDEV"}
    assert "escaped" not in seen


def test_a_folder_swapped_during_a_write_never_leads_out(inside: Path, outside: Path, method: Method) -> None:
    jail = jailed(inside, method)

    def attempt() -> str:
        try:
            with jail.open_write("sub/new.txt") as file:
                file.write(b"new")
            jail.mkdir("sub/made")
            jail.rename("sub/new.txt", "sub/renamed.txt")
            jail.unlink("sub/renamed.txt")
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "inside"

    with swapping(inside / "sub", inside / "out-folder"):
        seen = race(attempt, {"inside", "EXDEV"}, tries=5000)
    assert seen.keys() >= {"inside", "EXDEV"}
    assert sorted(p.name for p in outside.iterdir()) == ["deep", "secret.txt"]


def test_a_folder_renamed_while_dots_are_resolved_never_leads_out(
    inside: Path, outside: Path, method: Method
) -> None:
    (inside / "up").symlink_to("sub/deeper/../../a.txt")
    (outside / "deep" / "a.txt").write_bytes(CANARY)
    (outside / "a.txt").write_bytes(CANARY)
    (outside / "deep" / "deeper").mkdir()
    jail = jailed(inside, method)

    def attempt() -> str:
        try:
            return "escaped" if read(jail, "up") == CANARY else "inside"
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    with swapping(inside / "sub" / "deeper", outside / "deep" / "deeper"):
        seen = race(attempt, {"inside"})
    assert "inside" in seen
    assert "escaped" not in seen


PIECES = st.sampled_from(
    [
        *["..", ".", "", "sub", "deeper", "a.txt", "b.txt", "up", "link-file", "link-folder", "outside"],
        *["secret.txt", "out-file", "out-folder", "out-relative", "out-root", "through", "inside", "loop"],
        *["dangling", "..\\..", "%2e%2e", "．．", "proc", "self", "root", "etc", "passwd", "\0", "~", "…"],
    ]
)
PATHS = st.tuples(
    st.sampled_from(["", "/", "//", "./", "../"]), st.lists(PIECES | st.text(max_size=3), max_size=12)
).map(lambda parts: parts[0] + "/".join(parts[1]))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS)
def test_no_path_reaches_the_canary_and_both_methods_agree(inside: Path, outside: Path, path: str) -> None:
    def outcome(method: Method) -> object:
        jail = jailed(inside, method)
        try:
            if os.path.samestat(jail.stat(path), os.stat(outside / "secret.txt")):
                return CANARY
            return read(jail, path)
        except OSError as error:
            # a name that is missing, a file where a folder should be: which comes first is not specified
            return error.errno if error.errno in (errno.EXDEV, errno.EISDIR) else "failed"

    outcomes = [outcome(method) for method in METHODS]
    assert CANARY not in outcomes
    assert outcomes[0] == outcomes[1]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS)
def test_no_path_changes_anything_outside(inside: Path, outside: Path, path: str) -> None:
    jail = Jail(inside)
    # whether it may be written is another question: here only the outside matters
    with contextlib.suppress(OSError), jail.open_write(f"{path}/written") as file:
        file.write(b"x")
    with contextlib.suppress(OSError):
        jail.mkdir(path)
    assert sorted(p.name for p in outside.rglob("*")) == ["deep", "secret.txt", "secret.txt"]
    assert sorted(p.name for p in outside.parent.iterdir()) == ["inside", "outside"]


def test_a_write_replaces_the_file_at_once_and_keeps_its_mode(inside: Path, method: Method) -> None:
    (inside / "a.txt").chmod(0o751)
    jail = jailed(inside, method)
    with jail.open_read("a.txt") as before, jail.open_write("a.txt") as file:
        file.write(b"new")
        assert read(jail, "a.txt") == b"a"
        assert before.read() == b"a"
    assert read(jail, "a.txt") == b"new"
    assert (inside / "a.txt").stat().st_mode & 0o777 == 0o751
    assert [p.name for p in inside.iterdir() if p.name.startswith(".")] == []


def test_a_private_file_is_private_while_it_is_written(inside: Path, method: Method) -> None:
    (inside / "a.txt").chmod(0o600)
    with jailed(inside, method).open_write("a.txt") as file:
        file.write(b"secret")
        file.flush()
        modes = {p.stat().st_mode & 0o777 for p in inside.iterdir() if p.name.startswith(".retinue-")}
        assert modes == {0o600}
    assert (inside / "a.txt").stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(inside: Path) -> None:
    def write() -> None:
        with Jail(inside).open_write("a.txt") as file:
            file.write(b"half")
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write()
    assert (inside / "a.txt").read_bytes() == b"a"
    assert [p.name for p in inside.iterdir() if p.name.startswith(".")] == []


def test_writing_makes_the_missing_folders(inside: Path) -> None:
    with Jail(inside).open_write("x/y/z.txt") as file:
        file.write(b"z")
    assert (inside / "x" / "y" / "z.txt").read_bytes() == b"z"


@pytest.mark.parametrize("path", ["link-file", "link-folder/b.txt", "link-folder/new/c.txt", "dangling"])
def test_changing_never_follows_a_link_even_inside(inside: Path, path: str) -> None:
    assert failure(lambda: Jail(inside).open_write(path).__enter__()) == errno.ELOOP
    assert (inside / "a.txt").read_bytes() == b"a"
    assert not (inside / "nothing").exists()


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(inside: Path) -> None:
    jail = Jail(inside)
    read_then = jail.stat("a.txt")
    (inside / "a.txt").write_bytes(b"somebody else's")

    def write() -> None:
        with jail.open_write("a.txt", expect=read_then) as file:
            file.write(b"mine")

    assert failure(write) == errno.ESTALE
    assert (inside / "a.txt").read_bytes() == b"somebody else's"


def test_a_fresh_file_must_be_new(inside: Path) -> None:
    assert failure(lambda: Jail(inside).open_write("a.txt", fresh=True).__enter__()) == errno.EEXIST


def test_unlink_and_rename_work_on_the_name_itself(inside: Path, outside: Path) -> None:
    jail = Jail(inside)
    jail.unlink("out-file")
    jail.rename("out-relative", "new/place")
    assert (outside / "secret.txt").read_bytes() == CANARY
    assert (inside / "new" / "place").is_symlink()
    assert not (inside / "out-file").is_symlink()


def test_listing_names_links_and_does_not_follow_them(inside: Path, method: Method) -> None:
    jail = jailed(inside, method)
    kinds = {entry.name: entry.kind for entry in jail.listdir()}
    assert kinds["out-folder"] == "link"
    assert kinds["sub"] == "folder"
    assert kinds["a.txt"] == "file"
    below = {name for name, _ in jail.walk()}
    assert {"a.txt", "sub/b.txt", "out-folder"} <= below
    assert not any("secret" in name for name in below)


def test_errors_name_the_path_as_given_and_no_real_one(inside: Path, method: Method) -> None:
    jail = jailed(inside, method)
    for action in (
        lambda: jail.open_read("missing/x"),
        lambda: jail.open_write("a.txt/x").__enter__(),
        lambda: jail.unlink("missing/x"),
        lambda: jail.rename("missing/x", "y"),
        lambda: jail.mkdir("a.txt"),
    ):
        assert str(inside.parent) not in str(failed(action))


def test_a_jail_keeps_to_its_folder_when_that_is_moved(inside: Path, outside: Path, method: Method) -> None:
    jail = jailed(inside, method)
    moved = inside.rename(inside.with_name("moved"))
    inside.symlink_to(outside)
    assert read(jail, "a.txt") == b"a"
    assert failure(lambda: jail.open_read("secret.txt")) == errno.ENOENT
    assert moved.is_dir()
