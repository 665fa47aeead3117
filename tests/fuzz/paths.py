"""The path jail: whatever the path and whatever links lie there, nothing outside the folder is opened or changed.

The kernel is asked what was opened, not the jail: the name behind the handle, and the outside as it is afterwards.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from fuzz.choices import Choices
from retinue.jail import Jail, Method

SEEDS = (
    b"\x00\x05\x01\x02\x03\x04\x05\x06",
    b"\x01\x04\x08\x02\x02\x09\x04\x02\x02\x0a\x0b",
    b"\x07\x03\x01\x0f\x03\x02\x0a\x0b\x00\x03\x03\x0f\x0b",
    b"\x08\x02\x0e\x00\x10\x05/etc/passwd",
)
PARTS = (
    *("a.txt", "sub", "..", ".", "", "deeper", "link-folder", "out-folder", "out-file", "up", "outside"),
    *("secret.txt", "inside", "loop", "out-root", "proc/self/root", "new"),
)
TARGETS = (
    "..",
    "../outside",
    "sub",
    "/",
    "a.txt",
    "sub/../..",
    "/proc/self/cwd",
    "../inside/sub",
    ".",
    "loop",
)

TOP = Path(tempfile.mkdtemp(prefix="retinue-fuzz-paths-")).resolve()
INSIDE, OUTSIDE = TOP / "inside", TOP / "outside"
atexit.register(shutil.rmtree, TOP, ignore_errors=True)


def build() -> None:
    shutil.rmtree(INSIDE, ignore_errors=True)
    (INSIDE / "sub" / "deeper").mkdir(parents=True)
    (INSIDE / "a.txt").write_bytes(b"a")
    (INSIDE / "link-folder").symlink_to("sub")
    (INSIDE / "sub" / "up").symlink_to("../a.txt")
    (INSIDE / "out-folder").symlink_to(OUTSIDE)
    (INSIDE / "out-file").symlink_to("../outside/secret.txt")
    (INSIDE / "sub" / "out-root").symlink_to("/")
    (INSIDE / "loop").symlink_to("loop")


OUTSIDE.mkdir()
(OUTSIDE / "secret.txt").write_bytes(b"canary")
build()


def outside_now() -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = [tuple(sorted(os.listdir(TOP)))]
    for name in sorted(os.listdir(OUTSIDE)):
        seen = os.lstat(OUTSIDE / name)
        found.append((name, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_mode))
    return found


BEFORE = outside_now()
METHODS: tuple[Method, ...] = ("openat2", "walk") if Jail(INSIDE).method == "openat2" else ("walk",)


def path_of(choices: Choices) -> str:
    parts = [
        choices.text() if (kind := choices.number(20)) >= len(PARTS) else PARTS[kind]
        for _ in range(choices.number(8))
    ]
    return ("/" if choices.number(16) == 15 else "") + "/".join(parts)


def is_inside(fd: int) -> bool:
    name = os.readlink(f"/proc/self/fd/{fd}")
    return name == str(INSIDE) or name.startswith(f"{INSIDE}/")


def check(data: bytes) -> None:
    choices = Choices(data)
    changed = False
    try:
        for _ in range(4):
            if not choices:
                break
            changed |= step(choices)
    finally:
        assert outside_now() == BEFORE, "something outside changed"
        if changed:
            build()


def step(choices: Choices) -> bool:
    """One thing that an agent may try; True if it may have changed the folder."""
    kind, path = choices.number(10), path_of(choices)
    if kind < 5:
        opened = [look(method, path) for method in METHODS]
        assert len(set(opened)) == 1, f"{path!r}: {dict(zip(METHODS, opened, strict=True))}"
        return False
    if kind == 5:  # a command of the agent makes a link in its own folder
        with contextlib.suppress(OSError, ValueError):
            os.symlink(choices.pick(TARGETS), INSIDE / "sub" / (choices.text(4) or "made"))
        return True
    other = path_of(choices)
    with Jail(INSIDE, method=choices.pick(METHODS)) as jail:
        changes: list[Callable[[], object]] = [
            lambda: write(jail, path),
            lambda: jail.mkdir(path),
            lambda: jail.unlink(path),
            lambda: jail.rename(path, other),
        ]
        with contextlib.suppress(OSError):
            changes[kind - 6]()
    return True


def write(jail: Jail, path: str) -> None:
    with jail.open_write(path) as file:
        assert is_inside(file.fileno()), f"{path!r} was opened outside for writing"
        file.write(b"written")


def look(method: Method, path: str) -> tuple[int, ...]:
    """The inodes that reading, looking and listing reached; 0 where one was refused."""
    found: list[int] = []
    with Jail(INSIDE, method=method) as jail:
        try:
            with jail.open_read(path) as file:
                assert is_inside(file.fileno()), f"{path!r} was opened outside, by {method}"
                found.append(os.fstat(file.fileno()).st_ino)
        except OSError:
            found.append(0)
        try:
            with jail.folder(path) as fd:
                assert is_inside(fd), f"{path!r} leads outside, by {method}"
                found.append(os.fstat(fd).st_ino)
        except OSError:
            found.append(0)
        try:
            seen = jail.stat(path)
            beyond = [os.stat(place) for place in (OUTSIDE, OUTSIDE / "secret.txt", TOP, "/")]
            assert not any(os.path.samestat(seen, one) for one in beyond), f"{path!r} was looked at outside"
            found.append(seen.st_ino)
        except OSError:
            found.append(0)
    return tuple(found)
