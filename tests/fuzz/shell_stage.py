"""A folder in which generated commands run under the real bash, and which sees all that they do.

Used by `shell_trial`. The only folder of programs that a command knows holds stubs, which write down how they were
called, and links to the real programs that a trial wants to be real. What is not found is written down as well. The
project in which commands run is compared with itself afterwards. The process that calls `confine` and all its children
can write nowhere else and reach no network, so that a command that gets through harms nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import select
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOST_SECONDS = 1.5
MOST_WRITTEN = 10_000_000

_STUB = r"""#!/bin/sh
printf '%s\0' RECORD "$#" "$0" "$@" "$PATH|$LD_PRELOAD|$GIT_PAGER|$GIT_EXTERNAL_DIFF|$BASH_ENV|$X|$x|$PWD|$HOME" >> LOG
echo '-exec mark ; -delete --output=F -oF $(mark) `mark` ;mark README.md'
exit $STUB_CODE
"""
_TRACED = r"""#!/bin/sh
printf '%s\0' RECORD "$#" "$0" "$@" "" >> LOG
GIT_TRACE=SEEN exec REAL "$@"
"""
_THROUGH = r"""#!/bin/sh
while :; do case "$1" in -u) shift 2;; -*) shift;; *) break;; esac; done
exec "$@"
"""
_NOT_FOUND = r"""() { printf '%s\0' RECORD "$(($# - 1))" "?$1" "${@:2}" "" >> LOG; return 127; }"""
_NAMES = (
    "-delete",
    "-exec",
    "--output=F",
    "-oF",
    "--pre=mark",
    "--compress-program=mark",
    ";",
    "mark",
    "x.py",
    "a b",
    "$(mark)",
    "-n",
)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A program that a command ran. `name` begins with `?` if it was not found."""

    name: str
    arguments: tuple[str, ...]
    surroundings: str


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a command did. `timed_out` if it was ended. `traced` is what a real git said of itself."""

    ran: tuple[Ran, ...]
    wrote: tuple[str, ...]
    timed_out: bool
    traced: str = ""


class Stage:
    """`through` are programs that run their arguments, `traced` real ones that are written down all the same."""

    def __init__(
        self,
        folder: Path,
        *,
        stubs: Iterable[str],
        real: Iterable[str],
        through: Iterable[str] = (),
        traced: Iterable[str] = (),
    ) -> None:
        self.folder = folder
        self.record = secrets.token_hex(8)
        self.log = folder / "log"
        self.trace = folder / "trace"
        self.programs = folder / "bin"
        self.work = folder / "work"
        self.pristine = folder / "pristine"
        self.programs.mkdir(parents=True)
        (folder / "home").mkdir()
        self.log.touch()
        self.trace.touch()
        self._programs(stubs, real, through)
        for name in traced:
            text = self._logged(_TRACED).replace("SEEN", str(self.trace))
            (self.programs / name).write_text(text.replace("REAL", shutil.which(name) or "/bin/false"))
            (self.programs / name).chmod(0o755)
        _project(self.pristine)
        self.locales = ["C.UTF-8", "C", *self._odd_locale()]
        self.own = {path: path.read_bytes() for path in self.programs.iterdir() if not path.is_symlink()}
        self.reset()

    def _logged(self, script: str) -> str:
        return script.replace("LOG", str(self.log)).replace("RECORD", self.record)

    def _programs(self, stubs: Iterable[str], real: Iterable[str], through: Iterable[str]) -> None:
        for text, names in ((self._logged(_STUB), stubs), (_THROUGH, through)):
            for name in names:
                (self.programs / name).write_text(text)
                (self.programs / name).chmod(0o755)
        for name in real:
            if (found := shutil.which(name)) is not None:
                (self.programs / name).unlink(missing_ok=True)
                (self.programs / name).symlink_to(found)

    def _odd_locale(self) -> list[str]:
        """One in which a backslash can be the second half of a character."""
        target = self.folder / "locales" / "zh_CN.GBK"
        target.parent.mkdir()
        if shutil.which("localedef") is None:
            return []
        made = subprocess.run(
            ["localedef", "-c", "-f", "GBK", "-i", "zh_CN", str(target)], capture_output=True, check=False
        )
        return ["zh_CN.GBK"] if target.exists() and made.returncode in (0, 1) else []

    def reset(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.pristine, self.work, symlinks=True)
        os.chdir(self.work)
        self.before = self._state()

    def _state(self) -> dict[str, tuple[int, int, int]]:
        found: dict[str, tuple[int, int, int]] = {}
        for top, folders, files in os.walk(self.work):
            for name in (*files, *folders):
                path = os.path.join(top, name)
                if path.endswith(("/.git", "/.git/index")):
                    continue  # git keeps there what it last saw of the files
                stat = os.lstat(path)
                found[path] = (stat.st_size if name in files else 0, stat.st_mtime_ns, stat.st_ino)
        return found

    def environment(self, locale: str, code: int) -> dict[str, str]:
        return {
            "PATH": str(self.programs), "HOME": str(self.folder / "home"), "LC_ALL": locale, "LOCPATH": str(self.folder / "locales"),
            "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_NOSYSTEM": "1",
            "STUB_CODE": str(code), "BASH_FUNC_command_not_found_handle%%": self._logged(_NOT_FOUND),
        }  # fmt: skip

    def surroundings(self, folder: str = "") -> str:
        """What a program sees that a command has changed nothing for, in the project or a folder of it."""
        return f"{self.programs}||cat|||||{self.work}{folder}|{self.folder / 'home'}"

    def run(self, command: str, *, locale: str = "C.UTF-8", code: int = 0) -> Done:
        null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
        shell = [b"bash", b"--noprofile", b"--norc", b"-c", command.encode("utf-8", "surrogateescape")]
        child = os.posix_spawn(
            "/bin/bash", shell, self.environment(locale, code), file_actions=null, setsid=True
        )
        handle = os.pidfd_open(child)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        timed_out = not poll.poll(MOST_SECONDS * 1000)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(handle)
        _end_what_is_left()
        now = self._state()
        wrote = tuple(sorted(path for path in {*now, *self.before} if now.get(path) != self.before.get(path)))
        ran = self._ran()
        if wrote:
            self.reset()
        for path, text in self.own.items():
            if not path.exists() or path.stat().st_size != len(text):  # a command can write there too
                path.write_bytes(text)
                path.chmod(0o755)
        traced = self.trace.read_text(errors="replace")
        if traced:
            os.truncate(self.trace, 0)
        return Done(ran=ran, wrote=wrote, timed_out=timed_out, traced=traced)

    def _ran(self) -> tuple[Ran, ...]:
        if not self.log.stat().st_size:
            return ()
        text = self.log.read_bytes().decode("utf-8", "surrogateescape")
        os.truncate(self.log, 0)
        found: list[Ran] = []
        for record in text.split(f"{self.record}\0")[1:]:
            count, *parts = record.split("\0")[:-1] or ["0"]
            if not parts:
                continue  # ended before it had written its name, and so before it did anything
            *words, last = parts
            whole = count.isdigit() and len(parts) == int(count) + 2
            name, *arguments = words if whole else parts
            surroundings = last if whole else self.surroundings()  # ended while it was writing
            found.append(Ran(name=name, arguments=tuple(arguments), surroundings=surroundings))
        return tuple(found)


def _end_what_is_left() -> None:
    """Ends what a command left running in a session of its own: such processes come back to a subreaper."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := children.read_text().split():
        for each in left:
            os.kill(int(each), signal.SIGKILL)
            os.waitpid(int(each), 0)


def _project(folder: Path) -> None:
    """A small repository, with files that are called like options and a commit that seems to be signed."""
    (folder / "src").mkdir(parents=True)
    (folder / "docs").mkdir()
    (folder / "Makefile").write_text("test:\n\t@:\nx:\n\t@:\n")
    for name in ("README.md", "src/app.py", "src/net.py", "docs/a.md", "F.in", *_NAMES):
        (folder / name).write_text("a\nTODO mark\nmark\n")
    (folder / "out").symlink_to("../home")
    (folder / "same").symlink_to("src")
    mark = folder / "mark"
    mark.write_text("#!/bin/sh\nexec mark here\n")
    mark.chmod(0o755)

    def git(*words: str, given: str = "") -> str:
        who = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "-c",
            "init.defaultBranch=main",
            "-c",
            "commit.gpgSign=false",
        ]
        done = subprocess.run(
            ["git", *who, *words], cwd=folder, input=given, capture_output=True, text=True, check=True
        )
        return done.stdout

    git("init")
    git("add", "-A")
    git("commit", "-m", "first")
    signed = git("cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    git("update-ref", "HEAD", git("hash-object", "-t", "commit", "-w", "--stdin", given=signed).strip())
    git("gc", "-q")
    shutil.rmtree(folder / ".git/hooks")
    (folder / "src/app.py").write_text("b\nTODO mark\n")


def confine(folder: Path) -> bool:
    """From now on this process and its children write below this folder only. False where the kernel cannot do that."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(36, 1, 0, 0, 0)  # whatever a command leaves behind becomes a child of this process
    version = libc.syscall(444, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    write_file, beneath = (
        1 << 1,
        ((1 << 13) - 1) & ~0b1101 | ((1 << 13) if version >= 2 else 0) | ((1 << 14) if version >= 3 else 0),
    )
    attributes = struct.pack("QQ", beneath, 0b11) if version >= 4 else struct.pack("Q", beneath)
    rules = libc.syscall(444, attributes, ctypes.c_size_t(len(attributes)), 0)
    for path, rights in ((folder, beneath), (Path("/dev/null"), write_file)):
        handle = os.open(path, os.O_PATH)
        packed = struct.pack("=Qi", rights, handle)
        if libc.syscall(445, rules, 1, packed, 0) != 0:
            raise OSError(ctypes.get_errno(), "Landlock rule")
        os.close(handle)
    libc.prctl(38, 1, 0, 0, 0)
    if libc.syscall(446, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "Landlock restriction")
    os.close(rules)
    return True
