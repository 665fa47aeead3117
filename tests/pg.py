"""One PostgreSQL server per test session, shared by all its workers, and a new database for each test.

    from pg import postgres_url  # noqa: F401  # a fixture

The first worker that asks starts a keeper process, which starts the server. Every worker holds a shared
lock on a file; the keeper waits for that lock, so the server is gone when the last worker is, even if it
was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

import postgres

_held: list[IO[str]] = []


@functools.cache
def server() -> postgres.Server:
    """The session's server. Skips the test where there is none to be had."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    folder = Path(tempfile.gettempdir()) / f"retinue-pg-{session}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "starting").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        user = (folder / "users").open("a")
        fcntl.flock(user, fcntl.LOCK_SH)
        _held.append(user)
        known = folder / "server.json"
        if not known.exists():
            try:
                postgres.programs()
            except (FileNotFoundError, subprocess.CalledProcessError) as error:
                pytest.skip(str(error))
            keeper = subprocess.Popen(
                [sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, start_new_session=True
            )
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == b"ready\n", "the PostgreSQL server did not start"
            keeper.stdout.close()
        found = json.loads(known.read_text())
    return postgres.Server(Path(found["folder"]), found["port"])


@contextlib.contextmanager
def database() -> Iterator[str]:
    """The address of a new, empty database."""
    name = f"test_{uuid.uuid4().hex}"
    where = server()
    yield where.url(name)
    where.drop(name)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    with database() as url:
        yield url


def keep(folder: Path) -> None:
    """Run the server until nobody needs it any more."""
    with postgres.throwaway() as running:
        found = {"folder": str(running.folder), "port": running.port}
        (folder / "server.json").write_text(json.dumps(found))
        print("ready", flush=True)
        with (folder / "users").open("a") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / "server.json").unlink()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
