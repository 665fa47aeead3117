"""kill -9 in the middle of a fetch: the next start leaves no workspace behind, and no reader of pages lives on."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path

from local_web import Asked, Site

from retinue.testing import FakeProvider, Script, SeenRequest, call
from retinue.types import ToolMessage

SECONDS = 60.0


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not what():  # other processes are watched: there is nothing to await
            await asyncio.sleep(0.01)


def children(pid: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def retinue(environ: dict[str, str], cwd: Path, *arguments: str) -> Process:
    command = (sys.executable, "-m", "retinue", *arguments)
    return await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=environ, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )


async def test_kill_9_during_a_fetch_leaves_no_folder_after_the_next_start(
    site: Site, tmp_path: Path
) -> None:
    temp, project = tmp_path / "temp", tmp_path / "project"
    temp.mkdir()
    project.mkdir()
    site.add("/large", "<p>" + "many words are here. " * 5000 + "</p>")
    asked, never = asyncio.Event(), asyncio.Event()

    @site.serve("/slow")
    async def slow(request: Asked) -> None:
        await request.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 90000\r\n\r\n<p>so "
        )
        asked.set()
        await never.wait()

    def play(request: SeenRequest) -> Script:
        seen = [m for m in request.messages if isinstance(m, ToolMessage)]
        return Script(calls=(call("web_fetch", url=site.url("/slow" if seen else "/large")),))

    async with FakeProvider(play) as provider:
        environ = {
            **provider.environ(),
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "TMPDIR": str(temp),
            "RETINUE_MODEL": "openai:fake-model",
            "RETINUE_SMALL_MODEL": "openai:fake-model",
            "RETINUE_WEB_ALLOW_HOSTS": site.authority,
            "RETINUE_WEB_ROBOTS": "false",
            "RETINUE_WEB_TIMEOUT": str(SECONDS),
        }
        process = await retinue(environ, project, "run", "agentic-fetch", "what is there?")
        await until(lambda: asked.is_set() or process.returncode is not None)
        assert process.returncode is None, (await process.communicate())[1].decode()
        (folder,) = temp.glob("retinue-ws-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list((folder / "web").iterdir()), "the large page was saved before"
        readers = children(process.pid)
        assert readers, "a process of its own reads pages"
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        never.set()
        assert list(temp.glob("retinue-ws-*")) == [folder], "nobody was left to delete it"
        await until(lambda: not any(map(is_alive, readers)))
        again = await retinue(environ | {"RETINUE_MODEL": "offline"}, project, "ask", "hello")
        async with asyncio.timeout(SECONDS):
            said, wrong = await again.communicate()
    assert again.returncode == 0, wrong.decode()
    assert said.strip()
    assert list(temp.glob("retinue-ws-*")) == []
