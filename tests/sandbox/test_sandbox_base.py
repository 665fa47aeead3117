"""The parts that both engines share, the choice between them, and the filter that locks the cpython engine."""

from __future__ import annotations

import contextlib
import os
import platform
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.sandbox import open_engine, seal
from retinue.sandbox.base import Printed, SandboxLimits, keep_value, short_trace
from retinue.settings import CodeSettings


@pytest.mark.parametrize("engine_name", ["monty", "cpython"])
def test_a_process_that_forgets_to_close_still_exits_cleanly(engine_name: str) -> None:
    script = f"""
        import asyncio
        from retinue.sandbox import open_engine
        from retinue.sandbox.base import SandboxLimits
        from retinue.settings import CodeSettings

        async def main():
            engine, _ = open_engine(CodeSettings(engine={engine_name!r}))
            sandbox = engine.session(SandboxLimits())
            print((await sandbox.run("6 * 7", functions={{}})).value)

        asyncio.run(main())
    """
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_keeping_the_value_never_fails_and_never_moves_a_line(code: str) -> None:
    kept, valued = keep_value(code)
    if valued:
        compile(kept, "x", "exec", flags=0x2000)
    else:
        assert kept == code


def test_the_last_expression_is_kept_where_it_stands() -> None:
    assert keep_value("a = 1\na + 1  # two") == ("a = 1\n_ = (a + 1\n)  # two", True)
    assert keep_value("'é'; f('é')") == ("'é'; _ = (f('é')\n)", True)
    assert keep_value("if True:\n    3") == ("if True:\n    3", False)


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(0, 100))
def test_what_is_kept_and_what_is_cut_add_up(parts: list[str], limit: int) -> None:
    printed = Printed(limit)
    for part in parts:
        printed.add(part)
    assert printed.text == "".join(parts)[:limit]
    assert len(printed.text) + printed.cut == len("".join(parts))


def test_a_traceback_is_of_bounded_size() -> None:
    assert len(short_trace("\n".join("x" * 1000 for _ in range(1000)))) < 5000
    assert short_trace("Traceback\n  one\nE: two\n") == "Traceback\n  one\nE: two"


async def test_the_engine_is_the_one_that_was_asked_for() -> None:
    engine, notice = open_engine(CodeSettings(engine="monty"))
    assert (engine.name, notice) == ("monty", None)
    engine, notice = open_engine(CodeSettings())
    assert (engine.name, notice) == ("cpython" if seal.missing() is None else "monty", None)
    engine, notice = open_engine(CodeSettings(engine="cpython"))
    if seal.missing() is None:
        assert (engine.name, notice) == ("cpython", None)


async def test_a_machine_without_the_locks_says_so_and_stays_with_monty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seal, "landlock_version", lambda: -1)
    engine, notice = open_engine(CodeSettings(engine="cpython"))
    assert engine.name == "monty"
    assert notice == "code.engine = cpython is not possible here (the kernel has no Landlock); using monty"
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "this is riscv64" in str(seal.missing())


@pytest.mark.skipif(seal.missing() is not None, reason="the kernel has no such locks")
async def test_the_kernel_holds_the_locks_before_any_code_runs() -> None:
    engine, _ = open_engine(CodeSettings(engine="cpython"))
    sandbox = engine.session(SandboxLimits())
    await sandbox.run("1", functions={})
    sealed = [status for status in _children() if status["Seccomp"] == "2"]
    assert sealed
    assert all(each["NoNewPrivs"] == "1" and not each["Uid"].startswith("0\t") for each in sealed)
    await sandbox.close()
    await engine.close()


def _children() -> list[dict[str, str]]:
    """What the kernel says of each child of this process that is a sandbox."""
    found: list[dict[str, str]] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"sandbox/child.py" in (entry / "cmdline").read_bytes():
                lines = [line.partition(":") for line in (entry / "status").read_text().splitlines()]
                found.append({name: value.strip() for name, _, value in lines})
    return [status for status in found if status["PPid"] == str(os.getpid())]


def _verdict(program: bytes, arch: int, number: int, *args: int) -> int:
    """Run a filter as the kernel would: BPF over the number, the architecture and the arguments of a call."""
    data = struct.pack("iIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    at = accumulator = 0
    while True:
        code, yes, no, value = struct.unpack_from("HBBI", program, at * 8)
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            accumulator = struct.unpack_from("I", data, value)[0]
        elif code == 0x15:
            at += yes if accumulator == value else no
        elif code == 0x35:
            at += yes if accumulator >= value else no
        elif code == 0x45:
            at += yes if accumulator & value else no
        else:
            raise AssertionError(f"an instruction that the filter should not use: {code:#x}")


REFUSED, ALLOWED, KILLED = 0x00050001, 0x7FFF0000, 0x80000000
MACHINES = {
    "x86_64": (
        0xC000003E,
        {"read": 0, "write": 1, "mmap": 9, "mprotect": 10, "futex": 202, "exit_group": 231},
        {"open": 2, "stat": 4, "pipe": 22, "dup": 32, "socket": 41, "connect": 42, "clone": 56, "fork": 57}
        | {
            "vfork": 58,
            "execve": 59,
            "kill": 62,
            "ptrace": 101,
            "prctl": 157,
            "openat": 257,
            "newfstatat": 262,
        }
        | {
            "prlimit64": 302,
            "process_vm_readv": 310,
            "memfd_create": 319,
            "execveat": 322,
            "io_uring_setup": 425,
        }
        | {"clone3": 435, "openat2": 437, "ioctl": 16, "bpf": 321, "unshare": 272, "mount": 165, "close": 3},
    ),
    "aarch64": (
        0xC00000B7,
        {"read": 63, "write": 64, "mmap": 222, "mprotect": 226, "futex": 98, "exit_group": 94},
        {"ioctl": 29, "openat": 56, "pipe2": 59, "newfstatat": 79, "prctl": 167, "kill": 129, "tgkill": 131}
        | {"socket": 198, "connect": 203, "clone": 220, "execve": 221, "ptrace": 117, "prlimit64": 261}
        | {
            "process_vm_readv": 270,
            "memfd_create": 279,
            "execveat": 281,
            "io_uring_setup": 425,
            "clone3": 435,
        }
        | {"openat2": 437, "bpf": 280, "unshare": 97, "mount": 40, "dup": 23, "statx": 291, "close": 57},
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_lets_through_computing_and_two_pipes_and_nothing_else(machine: str) -> None:
    arch, own, others = MACHINES[machine]
    program = seal.filter_program(machine)
    assert _verdict(program, arch, own["futex"]) == ALLOWED
    assert _verdict(program, arch, own["exit_group"]) == ALLOWED
    for name, pipe in (("read", 0), ("write", 1)):
        assert _verdict(program, arch, own[name], pipe) == ALLOWED
        assert all(_verdict(program, arch, own[name], fd) == REFUSED for fd in range(20) if fd != pipe)
    for name in ("mmap", "mprotect"):
        assert _verdict(program, arch, own[name], 0, 4096, 3) == ALLOWED
        assert _verdict(program, arch, own[name], 0, 4096, 7) == REFUSED
    for name, number in others.items():
        assert _verdict(program, arch, number) == REFUSED, name


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_is_a_short_list_and_another_architecture_is_death(machine: str) -> None:
    arch, _, _ = MACHINES[machine]
    program = seal.filter_program(machine)
    allowed = [number for number in range(600) if _verdict(program, arch, number) == ALLOWED]
    assert len(allowed) < 30
    for other in (0xC000003E, 0xC00000B7, 0x40000003):
        if other != arch:
            assert _verdict(program, other, allowed[0]) == KILLED
    if machine == "x86_64":
        assert _verdict(program, arch, 0x40000000 + allowed[0]) == KILLED
