"""A PostgreSQL server to throw away: for tests and benchmarks, never for data.

    python scripts/postgres.py            start one, print its address, stop it on Ctrl-C

It listens on 127.0.0.1 at a free port and on a socket in its own temp folder, writes without fsync, and is
gone, folder and all, when it stops. A server runs as an ordinary user, so root starts it as `postgres`. Where
the server is not installed and we are root, Debian's package is installed first.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PASSWORD = "throw-away"
SETTINGS = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=64MB",
    "max_connections=200",
    "wal_level=minimal",
    "max_wal_senders=0",
    "autovacuum=off",
)


def programs() -> Path:
    """The folder of the server's programs, installed if need be."""
    found = _look()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "postgresql"]):
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        found = _look()
    if found is None:
        raise FileNotFoundError("no PostgreSQL server here: install Debian's 'postgresql' or your system's")
    return found


def _look() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parts[-3]))
    if versions:
        return versions[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


class Server:
    """A running server. `url(name)` is the address of one of its databases, made if it is not there."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes] | None = None) -> None:
        self.folder, self.port, self.process = folder, port, process

    def address(self, database: str) -> str:
        return f"postgresql://retinue:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def url(self, database: str) -> str:
        self.sql(f'CREATE DATABASE "{database}"')
        return self.address(database)

    def drop(self, database: str) -> None:
        self.sql(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def sql(self, statement: str, database: str = "postgres") -> str:
        return self._psql(database, "-c", statement)

    def run(self, script: Path, database: str) -> None:
        self._psql(database, "-f", str(script))

    def _psql(self, database: str, *what: str) -> str:
        # The server's own client: Debian's wrapper around it takes longer than most statements.
        command = [programs() / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *what]
        done = subprocess.run([*command, self.address(database)], check=True, capture_output=True, text=True)
        return done.stdout.strip()


def _user() -> tuple[int, int] | tuple[None, None]:
    """Whom to run as, user and group: ourselves, unless that is root."""
    if os.geteuid() != 0:
        return None, None
    entry = pwd.getpwnam("postgres")
    return entry.pw_uid, entry.pw_gid


def start() -> Server:
    where = programs()
    folder = Path(tempfile.mkdtemp(prefix="retinue-postgres-"))
    user, group = _user()
    if user is not None and group is not None:
        os.chown(folder, user, group)
    secret = folder / "secret"
    secret.write_text(PASSWORD)
    if user is not None and group is not None:
        os.chown(secret, user, group)
    flags = ("-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
    subprocess.run(
        [where / "initdb", "-D", folder / "data", "-U", "retinue", "--pwfile", secret, *flags],
        check=True,
        capture_output=True,
        cwd=folder,
        user=user,
        group=group,
    )
    server = Server(folder, _free_port())
    begin(server)
    return server


def begin(server: Server) -> None:
    """Start the program of a server: for the first time, or after `halt`."""
    where, folder = programs(), server.folder
    user, group = _user()
    options = [part for setting in SETTINGS for part in ("-c", setting)]
    place = ("-D", folder / "data", "-k", folder, "-h", "127.0.0.1", "-p", str(server.port))
    with (folder / "log").open("ab") as log:
        server.process = subprocess.Popen(
            [where / "postgres", *place, *options],
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            user=user,
            group=group,
        )
    try:
        _await(lambda: _ready(where, server), server.process, folder / "log")
    except BaseException:
        stop(server)
        raise


def halt(server: Server) -> None:
    """Stop the program in order, and end every connection to it. What was written stays, for `begin`."""
    if server.process is not None:
        server.process.send_signal(signal.SIGINT)
        server.process.wait()
        server.process = None


def _ready(where: Path, server: Server) -> bool:
    command = [where / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(server.port)]
    return subprocess.run(command, check=False).returncode == 0


def _await(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")
        time.sleep(0.05)


def stop(server: Server) -> None:
    if server.process is not None:
        server.process.send_signal(signal.SIGQUIT)  # at once: nothing in it is worth keeping
        server.process.wait()
    shutil.rmtree(server.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def throwaway() -> Iterator[Server]:
    server = start()
    try:
        yield server
    finally:
        stop(server)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with throwaway() as server, contextlib.suppress(KeyboardInterrupt):
        print(server.address("postgres"), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
