"""No attack gets out, and none of the attacks is a blank: the same list works without a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from hostile import ATTACKS, Attack

from retinue.errors import ToolError
from retinue.sandbox.base import Engine, SandboxLimits

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "canary-5f0c1b7e9d"
OUT = "mark-93ab77e1"
PLAIN = [attack for attack in ATTACKS if attack.plain]


@dataclass(kw_only=True)
class Prey:
    """Things on the host that an attack is after, and whether it got them."""

    folder: Path
    port: int
    connections: int = 0

    @property
    def preamble(self) -> str:
        names = {
            "SECRET": str(self.folder / "secret.txt"),
            "FOLDER": str(self.folder),
            "MADE": str(self.folder / "made"),
            "PORT": self.port,
            "OUT": OUT,
            "PACKAGES": sysconfig.get_path("platlib"),
        }
        return "".join(f"{name} = {value!r}\n" for name, value in names.items())

    def got_out(self, text: str) -> str | None:
        if TOKEN in text:
            return "it read the token"
        if OUT in text:
            return "it did what it must not"
        if os.path.lexists(self.folder / "made"):
            return "it made a file"
        if self.connections:
            return "it opened a connection"
        return None


@pytest_asyncio.fixture(loop_scope="module")
async def prey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Prey]:
    (tmp_path / "secret.txt").write_text(TOKEN)
    (tmp_path / TOKEN).touch()
    monkeypatch.setenv("CANARY", TOKEN)
    found = Prey(folder=tmp_path, port=0)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_no_attack_reaches_anything_of_the_host(engine: Engine, prey: Prey, attack: Attack) -> None:
    called: list[str] = []
    hidden = TOKEN

    async def lookup(key: object = "") -> str:
        called.append("lookup")
        if key == "missing":
            raise ToolError("nothing by that name")
        assert hidden
        return f"value of {type(key).__name__}"

    sandbox = engine.session(SandboxLimits(seconds=3))
    outcome = await sandbox.run(prey.preamble + attack.code, functions={"lookup": lookup})
    await sandbox.close()

    text = "\n".join([outcome.stdout, outcome.value or "", outcome.error or "", outcome.trace])
    assert prey.got_out(text) is None, outcome
    assert set(called) <= {"lookup"}


@pytest.mark.slow
@pytest.mark.parametrize("attack", PLAIN, ids=lambda attack: attack.name)
async def test_each_attack_works_without_a_sandbox(prey: Prey, attack: Attack) -> None:
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-I",
            "-S",
            "-c",
            prey.preamble + "import os, sys\nsys.path.append(PACKAGES)\n" + attack.code,
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert prey.got_out(output.decode(errors="replace")) is not None, output.decode(errors="replace")


_HOST = """
import asyncio
from retinue.sandbox.base import SandboxLimits
from retinue.sandbox.cpython import CPythonEngine

async def main():
    sandbox = CPythonEngine().session(SandboxLimits(seconds=300))
    await sandbox.run("1", functions={})
    print(sandbox._process._child.pid, flush=True)
    await sandbox.run("import time\\ntime.sleep(10_000)", functions={})

asyncio.run(main())
"""


async def test_the_sealed_process_dies_with_its_host_even_where_it_gave_up_root(engine: Engine) -> None:
    if engine.name != "cpython":
        pytest.skip("its workers notice the end of their pipe themselves")
    host = subprocess.Popen((sys.executable, "-c", _HOST), stdout=subprocess.PIPE)
    assert host.stdout is not None
    line = await asyncio.to_thread(host.stdout.readline)
    handle = os.pidfd_open(int(line))
    try:
        host.kill()
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        assert await asyncio.to_thread(ended.poll, 5_000), "it outlived its host"
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        host.wait()
        host.stdout.close()
