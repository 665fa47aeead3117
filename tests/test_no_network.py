"""Nothing in the tests leaves the machine: not by Python, whoever dials, and not by what a test starts."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import aiohttp
import pytest

import no_network

ROOT = Path(__file__).parent.parent
NOBODY = "192.0.2.1"  # for examples, and nobody's


def attempted() -> list[str]:
    """What was noticed. These tests leave on purpose, so it is forgotten then."""
    found = list(no_network.attempts)
    no_network.attempts.clear()
    return found


def test_a_connection_to_another_machine_is_refused_and_names_the_test() -> None:
    with socket.socket() as dialling, pytest.raises(no_network.LeavesTheMachine, match="names_the_test"):
        dialling.connect((NOBODY, 80))
    (noticed,) = attempted()
    assert NOBODY in noticed
    assert "names_the_test" in noticed


def test_a_datagram_and_a_look_up_are_refused_too() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sending, pytest.raises(no_network.LeavesTheMachine):
        sending.sendto(b"x", (NOBODY, 53))
    with pytest.raises(no_network.LeavesTheMachine):
        socket.getaddrinfo("docs.example", 443)
    with pytest.raises(no_network.LeavesTheMachine):
        socket.gethostbyname("docs.example")
    assert len(attempted()) == 3


def test_what_a_program_makes_of_the_error_does_not_hide_it() -> None:
    def quietly() -> None:
        try:
            socket.create_connection((NOBODY, 80))
        except OSError:
            return

    thread = threading.Thread(target=quietly)
    thread.start()
    thread.join()
    assert len(attempted()) == 1


async def test_the_http_client_cannot_leave_either() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://{NOBODY}/")
        with pytest.raises(aiohttp.ClientError):
            await session.get("http://docs.example/")
    assert len(attempted()) >= 2


async def test_this_machine_can_be_reached_and_nobodys_name_is_not_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, writer = await asyncio.open_connection("localhost", server.getsockname()[1])
        writer.close()
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("nothing.invalid", 80)
    assert attempted() == []


def test_a_test_that_leaves_fails_even_where_its_program_copes(tmp_path: Path) -> None:
    for name in ("conftest.py", "no_network.py"):
        (tmp_path / name).write_text((ROOT / "tests" / name).read_text())
    (tmp_path / "test_it.py").write_text(
        "import contextlib, socket\n"
        "def test_leaves():\n"
        "    with contextlib.suppress(OSError):\n"
        f"        socket.create_connection(('{NOBODY}', 80))\n"
        "def test_stays(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(tmp_path)]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert f"tests never leave this machine: socket.connect to {NOBODY}, port 80" in done.stdout
    assert "2 passed, 1 error" in done.stdout


DIALS = (
    "import socket, sys\n"
    "server = socket.create_server(('127.0.0.1', 0))\n"
    "socket.create_connection(server.getsockname()).close()\n"
    "try: socket.create_connection(('192.0.2.1', 80), timeout=5)\n"
    "except OSError as error: sys.exit(error.errno)\n"
)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="may not make a network namespace")
def test_what_runs_offline_reaches_this_machine_and_no_other() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "offline.py"), sys.executable, "-c", DIALS]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if "not sealed" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == errno.ENETUNREACH, done.stderr


def test_the_whole_suite_runs_offline() -> None:
    script = (ROOT / "scripts" / "test.sh").read_text()
    runs = [line for line in script.splitlines() if "bin/pytest" in line]
    assert runs
    assert all(line.startswith("scripts/offline.py ") for line in runs), runs
