"""A command runs where it should, tells what it did, and nothing of it outlives its call."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.errors import ToolError
from retinue.tools import process, shell
from retinue.tools.base import Tool, ToolContext, ToolResult
from retinue.tools.process import run_child
from retinue.tools.shell import CommandOutput, environment, shell_tools
from retinue.workspace import Files
from retinue.workspace_folder import Workspace

(BASH,) = shell_tools()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


@pytest.fixture
def files(project: Path, workspace: Workspace) -> Files:
    return Files(project, workspace)


async def bash(
    files: Files,
    command: str,
    progress: Callable[[str], None] | None = None,
    tool: Tool = BASH,
    **more: Any,
) -> ToolResult:
    ctx = ToolContext(
        run_id="r1",
        root_id="r1",
        depth=0,
        agent="general",
        call_id="c1",
        files=files,
        progress=progress or (lambda text: None),
        denied=lambda what, detail: None,
    )
    result = await tool.call(tool.parse(json.dumps({"command": command, **more})), ctx)
    assert isinstance(result, ToolResult)
    return result


def tag() -> str:
    """A number of seconds to sleep that no other process sleeps."""
    return f"{secrets.randbelow(10**6) + 10**6}.{secrets.randbelow(10**9):09}"


def living(tagged: str) -> list[int]:
    """The processes with this in their command line."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and tagged.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


async def started(tagged: str, count: int) -> None:
    async with asyncio.timeout(60):
        while len(living(f"sleep\0{tagged}")) < count:
            await asyncio.sleep(0.01)


async def gone(tagged: str) -> None:
    """What was killed needs a turn of the processor to be gone; what was not killed sleeps for days."""
    async with asyncio.timeout(60):
        while living(tagged):
            await asyncio.sleep(0.01)


def test_the_tool_asks_first_and_shows_the_command(files: Files) -> None:
    assert (BASH.name, BASH.effect, BASH.risk, BASH.aliases) == ("bash", "execute", "high", ("Bash",))
    assert BASH.timeout is None
    assert not BASH.repeatable
    assert BASH.preview is not None
    assert BASH.preview({"command": "rm -rf x"}, files) == "rm -rf x"


async def test_output_and_exit_code_are_told(files: Files) -> None:
    result = await bash(files, "echo out; echo err >&2; cat a.txt")
    assert (result.text, result.is_error) == ("out\nerr\na\n[exit code 0]", False)
    result = await bash(files, "printf x; exit 3")
    assert (result.text, result.is_error) == ("x\n[exit code 3]", True)
    result = await bash(files, "true")
    assert result.text == "[exit code 0]"
    result = await bash(files, "kill -9 $$")
    assert result.text == "[ended by signal 9 (SIGKILL)]"


async def test_a_command_runs_in_the_project_without_input_or_terminal(files: Files, project: Path) -> None:
    result = await bash(files, "pwd; cat; tty; echo new > made.txt")
    assert result.text == f"{project}\nnot a tty\n[exit code 0]"
    assert (project / "made.txt").read_text() == "new\n"


async def test_the_shell_is_bash_and_reads_no_startup_files(files: Files) -> None:
    assert (await bash(files, "[[ a == a ]] && echo ${BASH_VERSION%%.*}")).text.endswith("[exit code 0]")


@pytest.mark.parametrize(
    "name",
    [
        *["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DB_PASSWORD"],
        *[
            "DATABASE_URL",
            "SSH_AUTH_SOCK",
            "HTTPS_PROXY",
            "RETINUE_DB",
            "BASH_ENV",
            "LD_PRELOAD",
            "PYTHONPATH",
        ],
        *["KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "MY_STUFF"],
    ],
)
async def test_nothing_that_may_be_a_secret_reaches_a_command(
    files: Files, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "/dev/null/hunter2")
    result = await bash(files, "env; cat /proc/self/environ")
    assert "hunter2" not in result.text
    assert f"{name}=" not in result.text


async def test_a_command_gets_the_environment_that_the_program_gives_cut_to_what_is_harmless(
    files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("USER", "whoever-runs-the-program")
    monkeypatch.setenv("LANG", "C.UTF-8")
    given = {"HOME": str(tmp_path), "USER": "tenant", "TZ": "Asia/Tokyo", "OPENAI_API_KEY": "sk-1"}
    (own,) = shell_tools(environ=given)
    result = await bash(files, "echo ~ $USER $TZ $LANG $OPENAI_API_KEY; command -v ls", tool=own)
    assert result.text.startswith(f"{tmp_path} tenant Asia/Tokyo C.UTF-8\n/")


EVERY_ENVIRONMENT = (
    "cat /proc/$PPID/environ /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a planted"
)

SHOWN = """
import asyncio, json, os, subprocess, sys
from pathlib import Path
from retinue.tools.base import ToolContext
from retinue.tools.shell import shell_tools
from retinue.workspace import Files
from retinue.workspace_folder import Workspace

async def main():
    (bash,) = shell_tools()
    ctx = ToolContext(run_id="r", root_id="r", depth=0, agent="a", call_id="c", files=Files(Path.cwd(), Workspace()),
                      progress=lambda text: None, denied=lambda what, detail: None)
    print((await bash.call({"command": sys.argv[1]}, ctx)).text)
    inherited = subprocess.run(["sh", "-c", "echo $PLANTED_KEY"], capture_output=True, text=True).stdout
    print("ours:", os.environ["PLANTED_KEY"] == inherited.strip() == os.environ["HOME"] + "-planted-7")

asyncio.run(main())
"""


def test_no_process_of_ours_shows_a_command_our_keys(tmp_path: Path) -> None:
    """By the kernel's window on the environment: of the command's parent, and of every process it can find."""
    value = f"{tmp_path}-planted-7"
    done = subprocess.run(
        [sys.executable, "-c", SHOWN, EVERY_ENVIRONMENT],
        env={**os.environ, "PLANTED_KEY": value, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout == "[exit code 1]\nours: True\n", done.stderr


def test_the_environment_keeps_what_programs_need() -> None:
    kept = environment(
        {"PATH": "/bin", "LC_ALL": "C", "LANG": "C", "HOME": "/h", "X_KEY": "x", "TERM": "dumb"}
    )
    assert {"PATH", "LC_ALL", "LANG", "HOME", "TERM"} <= kept.keys()
    assert "X_KEY" not in kept


async def test_a_timeout_ends_the_command_with_all_it_started(files: Files) -> None:
    mark = tag()
    command = f"""
        echo begun
        sleep {mark} &
        (sleep {mark} & sleep {mark}) &
        setsid sleep {mark} &
        (setsid bash -c 'sleep {mark} & sleep {mark}' >/dev/null 2>&1 </dev/null &)
        set -m; sleep {mark} &
        wait; wait
    """
    result = await bash(files, command, timeout=3)
    assert result.is_error
    assert result.text == ("begun\n[timed out after 3 s; the command and all it started were ended]")
    await gone(mark)


async def test_cancelling_ends_the_command_with_all_it_started(files: Files) -> None:
    mark = tag()
    command = f"trap '' TERM; sleep {mark} & setsid sleep {mark} & (setsid nohup sleep {mark} >/dev/null 2>&1 &); wait"
    running = asyncio.create_task(bash(files, command))
    await started(mark, 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(mark)


async def test_cancelling_twice_leaves_nothing_behind(files: Files) -> None:
    mark = tag()
    running = asyncio.create_task(
        bash(files, f"(trap '' TERM; sleep {mark} & exec sleep {mark}) & trap '' TERM; wait")
    )
    await started(mark, 2)
    running.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not running.done()  # it gives the command time to end
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(mark)


async def test_what_ignores_being_asked_is_killed(files: Files) -> None:
    mark = tag()
    result = await bash(files, f"trap '' TERM; while :; do sleep {mark}; done", timeout=1)
    assert "timed out" in result.text
    await gone(mark)


async def test_a_command_has_a_moment_to_clean_up(
    files: Files, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE", 60)
    mark = tag()
    command = f"trap 'echo cleaned > done.txt; exit' TERM; sleep {mark} & wait"
    running = asyncio.create_task(bash(files, command))
    await started(mark, 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (project / "done.txt").read_text() == "cleaned\n"


async def test_what_is_left_in_the_background_neither_blocks_nor_stays(files: Files) -> None:
    mark = tag()
    result = await bash(files, f"sleep {mark} & (setsid sleep {mark} &) ; echo done")
    assert result.text == "done\n[exit code 0]"
    await gone(mark)


async def test_background_output_that_never_ends_does_not_block(files: Files) -> None:
    mark = tag()
    result = await bash(files, f"(while :; do echo {mark}; sleep 0.01; done &) ; sleep 0.1; exit 4")
    assert result.text.endswith("[exit code 4]")
    await gone(mark)


WAYS_OUT = {
    "a new session": "setsid sleep {0} &",
    "no environment": "env -i setsid sh -c 'sleep {0} &' &",
    "no environment, twice forked": "(env -i setsid sh -c '(setsid sleep {0} &) &' </dev/null >/dev/null 2>&1 &)",
    "nohup": "env -i nohup setsid sleep {0} >/dev/null 2>&1 &",
    "a main thread that ended": """python3 -c '
import ctypes, threading, time
threading.Thread(target=time.sleep, args=({0},)).start()
ctypes.CDLL(None).syscall(60 if __import__("platform").machine() == "x86_64" else 93, 0)' sleep {0} &""",
    "a daemon": """python3 -c '
import os, time
for _ in range(3):
    if os.fork(): os._exit(0)
    os.setsid()
os.closerange(0, 1000)
os.execve("/bin/sleep", ["sleep", "{0}"], dict())' &""",
    "it kills its supervisor": "setsid sleep {0} & env -i setsid sleep {0} & kill -9 $PPID; sleep {0}",
}


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_nothing_outlives_its_call_however_it_goes_away(files: Files, way: str) -> None:
    mark = tag()
    await bash(files, f"{WAYS_OUT[way].format(mark)}\nuntil pgrep -f 'sleep.{mark}' >/dev/null; do :; done")
    await gone(mark)


async def test_a_command_that_stops_its_supervisor_is_ended_with_all_it_started(files: Files) -> None:
    mark = tag()
    result = await bash(files, f"(setsid sleep {mark} &); kill -STOP $PPID; exit", timeout=1)
    assert result.text == "[timed out after 1 s; the command and all it started were ended]"
    await gone(mark)


async def test_a_command_that_kills_its_supervisor_has_an_unknown_outcome(files: Files) -> None:
    result = await bash(files, "echo before; kill -9 $PPID; sleep 1000000")
    assert result.is_error
    assert "outcome unknown" in result.text


async def test_a_command_gets_three_handles_and_no_others(files: Files) -> None:
    """Neither ours nor those of what starts it; `ls` has one of its own for the folder that it lists."""
    with socket.socketpair()[0] as ours, open("/dev/null", "rb") as file:
        for handle in (ours.fileno(), file.fileno()):
            os.set_inheritable(handle, True)
        assert (await bash(files, "ls /proc/self/fd")).text == "0\n1\n2\n3\n[exit code 0]"


KILLED = """
import asyncio, sys
from pathlib import Path
from retinue.sandbox.commands.launch import Commands
from retinue.tools.process import run_command

async def main():
    import os
    folder = os.open(".", os.O_RDONLY)
    await run_command(Commands(), ["/bin/bash", "-c", sys.argv[1]], folder=folder, env=dict(os.environ),
                      feed=lambda data: True, timeout=600)

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["a new session", "no environment, twice forked", "a daemon"])
async def test_nothing_outlives_a_retinue_that_is_killed(way: str) -> None:
    mark = tag()
    command = f"trap '' TERM; {WAYS_OUT[way].format(mark)}\nsleep {mark}; true"
    killed = subprocess.Popen([sys.executable, "-c", KILLED, command])
    await started(mark, 2)
    killed.kill()
    killed.wait()
    await gone(mark)


async def test_what_forks_as_fast_as_it_can_is_ended_too(files: Files) -> None:
    """Each process lives for a moment only: whoever looks for it finds the next one."""
    mark = tag()
    program = "import os\nwhile True:\n    if os.fork(): os._exit(0)\n    os.setsid()"
    result = await bash(
        files, f"(python3 -c '{program}' {mark} &) ; until pgrep -f 'fork.*{mark}' >/dev/null; do :; done"
    )
    assert result.text == "[exit code 0]"
    await gone(mark)


@pytest.mark.parametrize("last", ["cat", "sort | uniq | cat", "seq 30000 | sort -R | tail -1 | wc -l"])
async def test_output_through_a_process_substitution_arrives(files: Files, last: str) -> None:
    """However long what takes it works on it: as long as it works, and does not wait."""
    text = (await bash(files, f"echo hi > >({last})")).text
    assert text == ("1\n" if "wc" in last else "hi\n") + "[exit code 0]"


async def test_long_output_keeps_its_beginning_and_its_end(files: Files) -> None:
    text = (await bash(files, "seq 1 300000")).text
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("299999\n300000\n[exit code 0]")
    assert " bytes left out]\n" in text
    assert len(text) < 31_000


async def test_endless_output_ends_the_command(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MOST_PRINTED", 2_000_000)
    text = (await bash(files, "yes", timeout=60)).text
    assert text.endswith("[ended: it printed more than 2,000,000 bytes; send long output to a file]")


async def test_output_that_is_not_text_is_shown_as_far_as_it_is(files: Files) -> None:
    text = (await bash(files, r"printf 'a\xff\x00b\n'")).text
    assert text == "a\ufffd␀b\n[exit code 0]"


async def test_progress_shows_the_last_line(files: Files) -> None:
    told: list[str] = []
    await bash(files, "echo first; echo second", progress=told.append)
    assert told[0] in ("first", "second")


@pytest.mark.parametrize("command", ["", "   ", "a\0b"])
async def test_a_command_that_is_none_is_refused(files: Files, command: str) -> None:
    with pytest.raises(ToolError, match=r"empty|NUL"):
        await bash(files, command)


async def test_a_command_too_long_for_the_system_is_refused(files: Files) -> None:
    with pytest.raises(ToolError, match="could not be started: Argument list too long"):
        await bash(files, "# " + "x" * 3_000_000)


async def test_without_a_project_commands_live_in_the_virtual_home(
    workspace: Workspace, tmp_path: Path
) -> None:
    files = Files(None, workspace)
    result = await bash(
        files,
        'pwd; echo $HOME ~ "$PWD"; echo x > /home/agent/f.txt; cat "/home/agent/f.txt"; ls /home/agent/; '
        "echo /home/agents /x/home/agent; realpath f.txt; cat /home/agent/none",
    )
    assert result.text == (
        "/home/agent\n/home/agent /home/agent /home/agent\nx\nf.txt\n/home/agents /x/home/agent\n/home/agent/f.txt\n"
        "cat: /home/agent/none: No such file or directory\n[exit code 1]"
    )
    assert files.read_bytes("f.txt") == b"x\n"
    assert str(tmp_path) not in str(result)


async def test_in_a_project_commands_reach_what_was_saved(files: Files) -> None:
    path = files.save("page.md", b"treasure\n")
    assert (await bash(files, f"grep -c treasure {path}; cp {path} here.md")).text == "1\n[exit code 0]"
    assert files.read_bytes("here.md") == b"treasure\n"


async def test_the_virtual_home_is_there_for_commands_before_anything_was_saved(files: Files) -> None:
    assert (await bash(files, "ls -d /home/agent")).text == "/home/agent\n[exit code 0]"


async def test_a_home_with_a_blank_in_its_name_is_one_word_in_every_quotation(tmp_path: Path) -> None:
    files = Files(None, Workspace(root=tmp_path / "my own $x" / "ws"))
    with pytest.raises(ToolError, match="cannot name /home/agent"):
        await bash(files, "cat /home/agent/f.txt")
    files = Files(None, Workspace(root=tmp_path / "my own" / "ws"))
    result = await bash(
        files,
        """printf '%s|' /home/agent "/home/agent/a b" '/home/agent' \\"/home/agent "it's"/home/agent/c""",
    )
    assert result.text == (
        "/home/agent|/home/agent/a b|/home/agent|\"/home/agent|it's/home/agent/c|\n[exit code 0]"
    )


@pytest.mark.parametrize(
    ("project", "has_home"),
    [("/srv/p", True), ("/home/agents/p", True), ("/home/agent", False), ("/home/agent/p", False)],
)
def test_only_a_project_inside_the_virtual_home_takes_its_place(
    workspace: Workspace, project: str, has_home: bool
) -> None:
    files = Files(Path(project), workspace)
    assert bool(shell._real_home(files, "cat /home/agent/x.md")) is has_home


async def test_what_a_command_writes_counts_against_the_quota(tmp_path: Path) -> None:
    files = Files(None, Workspace(root=tmp_path / "ws", quota=1000))
    await bash(files, "head -c 2000 /dev/zero > big")
    with pytest.raises(ToolError, match="is full: 2,000 of 1,000"):
        files.write("x", b"x")


async def test_commands_run_side_by_side_and_leave_no_handles(files: Files) -> None:
    await bash(files, "true")
    before = len(os.listdir("/proc/self/fd"))
    results = await asyncio.gather(*(bash(files, f"sleep 0.2; echo {n}") for n in range(8)))
    assert [result.text for result in results] == [f"{n}\n[exit code 0]" for n in range(8)]
    assert len(os.listdir("/proc/self/fd")) <= before, "earlier tests may still be closing some of theirs"


async def test_a_child_that_is_cancelled_leaves_no_handles_or_zombies(files: Files) -> None:
    await bash(files, "true")
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = len(os.listdir("/proc/self/fd"))
    others = set(children.read_text().split()) if children.exists() else set[str]()  # of other tests
    for _ in range(5):
        mark = tag()
        running = asyncio.create_task(bash(files, f"sleep {mark}; true"))
        await started(mark, 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert len(os.listdir("/proc/self/fd")) <= before, "earlier tests may still be closing some of theirs"
    if children.exists():
        assert set(children.read_text().split()) <= others


SCARCE = """
import asyncio, os, resource
from retinue.sandbox.commands.launch import Commands
from retinue.tools.process import run_command

def handles():
    return len(os.listdir("/proc/self/fd"))

async def main():
    folder = os.open(".", os.O_RDONLY)
    commands = Commands()
    run = lambda: run_command(commands, ["/bin/sh", "-c", "true"], folder=folder, env={}, feed=lambda data: True,
                              timeout=60)
    await run()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    before, ends = handles(), set()
    for free in range(1, 16):
        held = []
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for fd in held[-free:]:
            os.close(fd)
        try:
            ends.add((await run()).code)
        except OSError:
            ends.add("refused")
        for fd in held[:-free]:
            os.close(fd)
        assert handles() == before, free
    assert ends == {"refused", 0}, ends
    await commands.close()

asyncio.run(main())
"""


def test_a_command_that_too_few_handles_are_left_for_leaves_none_open() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCARCE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


async def test_a_child_without_descendants_is_stopped_once_it_has_said_enough(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    heard: list[bytes] = []

    def feed(data: bytes) -> bool:
        heard.append(data)
        return False

    try:
        ended = await run_child(["yes"], folder=folder, env={"PATH": os.defpath}, feed=feed, timeout=30)
    finally:
        os.close(folder)
    assert ended.stopped
    assert len(heard) == 1


HIDDEN = b"/tmp/retinue-ws-0123456789abcdef"


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from([b"x", b"\n", b"/", b"/tmp", HIDDEN, HIDDEN + b"/f", HIDDEN[:9]])
        | st.binary(max_size=5)
    ),
    cut=st.integers(1, 40),
    most=st.integers(2, 200),
)
def test_the_real_home_is_hidden_however_the_output_arrives(pieces: list[bytes], cut: int, most: int) -> None:
    data = b"".join(pieces)
    output = CommandOutput(most, hide=HIDDEN)
    whole = CommandOutput(10**6, hide=HIDDEN)
    for start in range(0, len(data), cut):
        assert output.feed(data[start : start + cut])
        assert whole.feed(data[start : start + cut])
    assert "retinue-ws" not in output.text()
    expected = data.replace(HIDDEN, b"/home/agent").decode("utf-8", "replace").replace("\0", "␀")
    assert whole.text().rstrip("\n") == expected.rstrip("\n")
