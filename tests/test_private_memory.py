"""A process that is Retinue's own lets no other process of the same user read its memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

READER = """
import os, subprocess, sys
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
import ctypes
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as any program is that did not change its user
from retinue.sandbox.commands.hide import refuse_to_be_read
if sys.argv[1] == "private":
    refuse_to_be_read()
look = "import sys; open(f'/proc/{sys.argv[1]}/mem', 'rb'); open(f'/proc/{sys.argv[1]}/environ', 'rb').read(); print('read')"
print(subprocess.run(["python3", "-c", look, str(os.getpid())], capture_output=True, text=True).stdout.strip())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no such file elsewhere")
@pytest.mark.parametrize(("kind", "expected"), [("private", ""), ("open", "read")])
def test_other_processes_of_the_user_cannot_read_our_memory(kind: str, expected: str) -> None:
    source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-S", "-c", READER, kind],
        env={"PYTHONPATH": source, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if kind == "open" and done.stdout.strip() != expected:
        pytest.skip("this kernel lets no process read another one anyway")
    assert done.stdout.strip() == expected, done.stderr
