"""Projects to be changed and put back, and how they are compared: every byte, link and right."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

from retinue.app import Retinue
from retinue.testing.scripted import ScriptedModel, call
from retinue.types import AgentSpec, ToolCall

WRITER = AgentSpec(
    name="writer", description="writes", prompt="PLAY writer", tools=("read", "write", "edit", "bash")
)


def tree(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder but what belongs to git."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".git":
            continue
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", mode)
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


def project(folder: Path, *, git: bool = True) -> Path:
    """A small project with something of every kind."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text("print('one')\n")
    (folder / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "mixed.txt").write_bytes(b"one\r\ntwo\nthree")
    (folder / "picture.bin").write_bytes(bytes(range(256)) * 20)
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "tool.sh").write_text("#!/bin/sh\necho hi\n")
    (folder / "tool.sh").chmod(0o750)
    (folder / "secret.txt").write_text("mine\n")
    (folder / "secret.txt").chmod(0o600)
    (folder / "lib" / "deep").mkdir(parents=True)
    (folder / "lib" / "deep" / "one.py").write_text("ONE = 1\n")
    (folder / "lib" / "two.py").write_text("TWO = 2\n")
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("main.py")
    (folder / "dangling").symlink_to("nowhere")
    (folder / ".gitignore").write_text("build/\n*.log\n")
    (folder / "build").mkdir()
    (folder / "build" / "out.o").write_bytes(b"object")
    if git:
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            subprocess.run(
                ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=folder, check=True
            )
    return folder


def opened(folder: Path, steps: Any, **options: Any) -> Retinue:
    """A `Retinue` on that project whose writer plays these steps, with its database beside the project."""
    options.setdefault("db", str(folder.parent / "runs.db"))
    return Retinue(model=ScriptedModel(steps), agents=[WRITER], cwd=folder, environ={}, yes=True, **options)


def bash(command: str) -> ToolCall:
    return call("bash", command=command)
