"""A command that kills all who watch over it leaves nothing behind, and nothing else is ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retinue.sandbox.commands import ending, marks
from retinue.workspace import Files
from retinue.workspace_folder import Workspace
from test_shell import bash, gone, living, started, tag

BEHIND = (
    "behind=$(awk '/^PPid/ {print $2}' /proc/$PPID/status); "
    "grep -q commands.spawner /proc/$behind/cmdline || behind=; "  # it may be these tests, if that is gone
)
KILL = "kill -9 $behind $PPID; "
AWAY = BEHIND + "until pgrep -f 'sleep.{0}' >/dev/null; do :; done; " + KILL

WAYS_OUT = {
    "at once": BEHIND + KILL + "sleep {0}",
    "in the background": "sleep {0} & " + AWAY,
    "another program in the place of the shell": BEHIND + KILL + "exec sleep {0}",
    "a new session": "setsid sleep {0} & " + AWAY,
    "no environment, twice forked": "(env -i setsid sh -c '(setsid sleep {0} &) &' >/dev/null 2>&1 &); "
    + AWAY,
    "nohup": "env -i nohup setsid sleep {0} >/dev/null 2>&1 & " + AWAY,
    "a group of its own": "set -m; sleep {0} & " + AWAY,
    "the spawner first": "setsid sleep {0} & "
    + BEHIND
    + "kill -9 $behind; sleep 0.1; kill -9 $PPID; sleep {0}",
    "the supervisor first": "setsid sleep {0} & " + BEHIND + "kill -9 $PPID; kill -9 $behind; sleep {0}",
    "a limit that it lowered": "(ulimit -x 7; setsid sleep {0} &); " + AWAY,
    "all handles closed": "(setsid sleep {0} <&- >&- 2>&- &); " + AWAY,
    "deaf to every signal but one": "(trap '' TERM HUP INT USR1; setsid sleep {0} &); " + AWAY,
    "stopped": "setsid sleep {0} & stray=$!; " + AWAY.replace(KILL, "kill -STOP $stray; " + KILL),
    "whoever comes to watch, again and again": BEHIND
    + """
setsid sh -c 'while :; do for stat in /proc/[0-9]*/stat; do
  read -r pid name state parent rest <$stat && [ "$parent" = "$1" ] && [ "$pid" != "$$" ] && kill -9 $pid
done; done' sleep.{0} ${{behind:-none}} 2>/dev/null &
sleep 0.2; """
    + KILL,
    "a new process every moment": BEHIND
    + """
export behind own=$PPID; python3 -c '
import os
if os.fork(): os._exit(0)
os.kill(int(os.environ["behind"]), 9)
os.kill(int(os.environ["own"]), 9)
while True:
    if os.fork(): os._exit(0)
    os.setsid()' sleep.{0} & sleep {0}""",
}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "project").mkdir()
    return Files(tmp_path / "project", Workspace(root=tmp_path / "ws"))


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_nothing_is_left_of_a_command_that_killed_its_watchers(files: Files, way: str) -> None:
    mark = tag()
    before = ending.adopts_orphans()
    command = WAYS_OUT[way].replace("{0}", mark).replace("{{", "{").replace("}}", "}")
    result = await bash(files, command)
    assert living(mark) == []
    assert result.text.endswith("what it left was ended]")
    assert ending.adopts_orphans() == before


async def test_another_call_goes_on_when_one_kills_its_watchers(files: Files) -> None:
    other, mark = tag(), tag()
    going = asyncio.create_task(bash(files, f"setsid sleep {other} & sleep {other}; echo no"))
    await started(other, 2)
    result = await bash(files, f"setsid sleep {mark} & {AWAY.replace('{0}', mark)}")
    assert result.text.endswith("what it left was ended]")
    assert len(living(f"sleep\0{other}")) == 2
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    await gone(other)


async def test_calls_that_kill_the_watchers_of_all_end_what_each_of_them_left(files: Files) -> None:
    marks = [tag() for _ in range(6)]
    commands = [f"(ulimit -x {n}; setsid sleep {m} &); {AWAY.replace('{0}', m)}" for n, m in enumerate(marks)]
    results = await asyncio.gather(*(bash(files, command) for command in commands))
    assert [result.text for result in results if "may still run" in result.text] == []
    assert [m for m in marks if living(m)] == []


@contextlib.contextmanager
def child(mark: str, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """A child of this program in a session of its own; and whatever sleeps as it does, ended afterwards."""
    started_it = subprocess.Popen(argv or ("sleep", mark), start_new_session=True)
    try:
        yield started_it
    finally:
        started_it.kill()
        started_it.wait()
        for pid in living(mark):
            os.kill(pid, signal.SIGKILL)


async def older(mark: str) -> None:
    """Until a process that starts now is younger than this one, as the kernel counts."""
    await started(mark, 1)
    (pid,) = living(f"sleep\0{mark}")
    began = int(ending.everything()[pid][1])
    async with asyncio.timeout(60):
        while time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") < began + 1:
            await asyncio.sleep(0.001)


async def test_a_child_of_the_program_is_not_ended_with_a_command(files: Files) -> None:
    mark, alone, orphan = tag(), tag(), tag()
    with child(alone) as before, child(orphan, "sh", "-c", f"(setsid sleep {orphan} &); exit") as parent:
        parent.wait()
        await older(alone)
        await older(orphan)
        result = await bash(files, f"setsid sleep {mark} & {AWAY.replace('{0}', mark)}")
        assert (before.poll(), len(living(f"sleep\0{orphan}"))) == (None, 1)
        assert result.text.endswith("what it left was ended]")


async def test_what_cannot_be_told_from_a_child_of_the_program_is_left_and_said(files: Files) -> None:
    mark, alone = tag(), tag()
    command = f"touch begun; until [ -e on ]; do :; done; {BEHIND}{KILL}sleep {mark}"
    going = asyncio.create_task(bash(files, command))
    assert files.project is not None
    async with asyncio.timeout(60):
        while not (files.project / "begun").exists():
            await asyncio.sleep(0.01)
    with child(alone) as meanwhile:
        (files.project / "on").touch()
        result = await going
        assert meanwhile.poll() is None
        assert result.text.endswith("what it left may still run]")
        assert living(mark) == []


ANOTHER = """
import asyncio, os, sys
from retinue.sandbox.commands.launch import Commands
async def main():
    commands, folder, nothing = Commands(), os.open(".", os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
    running = await commands.start(
        ["/bin/sh", "-c", sys.argv[1]], folder=folder, env={"PATH": os.environ["PATH"]},
        stdout=nothing, stderr=nothing, grace=1, adopting=True,
    )
    await running.exited()
    print(await running.end(), running.lost)
    await commands.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("lowered", ["", "ulimit -x 7; "])
async def test_a_command_of_another_retinue_below_this_one_is_not_ended(
    files: Files, tmp_path: Path, lowered: str
) -> None:
    mark = tag()
    command = f"{lowered}touch there; until [ -e on ]; do sleep 0.01; done; exit 7"
    argv = (sys.executable, "-c", ANOTHER, command)
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as other:
        async with asyncio.timeout(60):
            while not (tmp_path / "there").exists():
                await asyncio.sleep(0.01)
        result = await bash(files, f"setsid sleep {mark} & {AWAY.replace('{0}', mark)}")
        (tmp_path / "on").touch()
        assert other.communicate(timeout=60)[0].split() == ["7", "False"]
    assert living(mark) == []
    assert result.text.endswith("what it left was ended]")


async def test_an_orphan_of_another_retinue_is_left_and_that_is_said(files: Files) -> None:
    mark, theirs = tag(), tag()
    command = f"touch begun; until [ -e on ]; do :; done; {BEHIND}{KILL}sleep {mark}"
    going = asyncio.create_task(bash(files, command))
    assert files.project is not None
    async with asyncio.timeout(60):
        while not (files.project / "begun").exists():
            await asyncio.sleep(0.01)
    limit = marks.mark_of(7, 7, marks.own_limit())
    with child(theirs, "bash", "-c", f"ulimit -x {limit}; setsid sleep {theirs} & exit") as parent:
        parent.wait()
        await started(theirs, 1)
        (files.project / "on").touch()
        result = await going
        assert len(living(f"sleep\0{theirs}")) == 1
    assert result.text.endswith("what it left may still run]")
    assert living(mark) == []


async def test_the_dead_of_others_that_came_meanwhile_are_let_go_and_those_of_the_program_kept(
    files: Files, tmp_path: Path
) -> None:
    going = asyncio.create_task(bash(files, "touch begun; until [ -e on ]; do sleep 0.01; done"))
    assert files.project is not None
    async with asyncio.timeout(60):
        while not (files.project / "begun").exists():
            await asyncio.sleep(0.01)
    leave = (
        "sh -c 'echo $$ > orphan.tmp; mv orphan.tmp orphan; until [ -e die ]; do sleep 0.01; done' & exit 5"
    )
    own = subprocess.Popen(("sh", "-c", leave), cwd=tmp_path, start_new_session=True)
    async with asyncio.timeout(60):
        while not ((tmp_path / "orphan").exists() and ending.is_zombie(own.pid)):
            await asyncio.sleep(0.01)
    orphan = int((tmp_path / "orphan").read_text())
    (tmp_path / "die").touch()
    async with asyncio.timeout(60):
        while not ending.is_zombie(orphan):
            await asyncio.sleep(0.01)
    (files.project / "on").touch()
    await going
    assert orphan not in ending.everything()
    assert own.wait() == 5


async def waiting_for(found: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not found():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("when", ["while a command runs", "afterwards"])
async def test_orphans_of_our_own_session_are_let_go_and_children_of_the_program_kept(
    files: Files, tmp_path: Path, when: str
) -> None:
    """An orphan comes to us since we take them in; a child that is dead for longer is the program's to reap."""
    assert files.project is not None
    leave = "sh -c 'echo $$ > tmp; mv tmp orphan; until [ -e die ]; do sleep 0.01; done' & read line; exit 5"
    own = subprocess.Popen(("sh", "-c", leave), cwd=tmp_path, stdin=subprocess.PIPE)
    other = subprocess.Popen(("sh", "-c", "exit 6"))
    await waiting_for(lambda: (tmp_path / "orphan").exists() and ending.is_zombie(other.pid))
    orphan = int((tmp_path / "orphan").read_text())
    assert os.getsid(orphan) == os.getsid(0)
    going = asyncio.create_task(bash(files, "touch begun; until [ -e on ]; do sleep 0.01; done"))
    await waiting_for((files.project / "begun").exists)
    assert own.stdin is not None
    own.stdin.close()
    await waiting_for(lambda: ending.is_zombie(own.pid))
    assert orphan in ending.children_of_ours()
    if when == "while a command runs":
        (tmp_path / "die").touch()
        await waiting_for(lambda: ending.is_zombie(orphan))
    (files.project / "on").touch()
    await going
    (tmp_path / "die").touch()
    await waiting_for(lambda: orphan not in ending.everything())
    assert (own.wait(), other.wait()) == (5, 6)
