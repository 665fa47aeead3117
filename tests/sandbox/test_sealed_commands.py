"""A sealed command does everyday work, and nothing it tries reaches beyond the project."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sealed import PLANTED, WHY_NOT, run

from retinue.approvals import Rules
from retinue.authority.rules import Asked
from retinue.git import GitFailed, git
from retinue.sandbox.commands.repositories import BEGAN
from retinue.sandbox.commands.view import CommandPlace, Trials, view_of
from retinue.settings import ApprovalSettings
from retinue.settings.files import STANDS_IN_SINCE

HERE = Path(__file__).resolve()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=f"no command can be sealed off here: {WHY_NOT}")


def python(text: str) -> str:
    return f"python3 - <<'END'\n{text}\nEND"


SYSCALL = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True)\n"


def refused(number: int, *arguments: object) -> str:
    """Makes a call of the system that the filter must refuse: x86-64 numbers.

    A call that the kernel would refuse in any case says nothing, so the arguments are such that without a
    filter it would say something else.
    """
    given = ", ".join(map(str, (number, *arguments)))
    return python(
        f"{SYSCALL}done = c.syscall({given})\n"
        "print('refused' if done < 0 and ctypes.get_errno() in (1, 38) else f'ESCAPED {ctypes.get_errno()}')"
    )


OUT = "$(dirname $PWD)/outside"
FILES = {
    "writes outside": f"echo x > {OUT}/new && echo ESCAPED",
    "reads outside": f"cat {OUT}/secret",
    "reads ssh keys": "cat ~/.ssh/* ~/.aws/* ~/.netrc ~/.config/gh/*",
    "reads the settings of git": "cat ~/.gitconfig",
    "reads our database": "cat ~/.local/share/retinue/*",
    "looks for it everywhere": f"grep -rs {PLANTED[:12]} / --include=secret --include=id_rsa --include=hosts.yml",
    "through a link in the project": f"ln -s {OUT}/secret l; cat l; ln -sfn {OUT} d; cat d/secret; echo x > d/new",
    "swaps a folder for a link": f"mkdir s; mv s t; ln -s {OUT} s; cat s/secret; echo x > s/new",
    "by a hard link": f"ln {OUT}/secret h && cat h",
    "by the root of another process": f"for p in /proc/[0-9]*; do cat $p/root{OUT}/secret $p/cwd/../outside/secret; done",
    "by dots": "cat ../outside/secret ../../../../../../../..$PWD/../outside/secret",
    "by environments": "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a planted-",
    "by open handles": "for f in /proc/[0-9]*/fd/*; do [ -d $f/ ] && ls $f/../outside/ && cat $f/../outside/secret; done",
}
SYSTEM = {
    "writes to programs": "touch /usr/bin/x /bin/x /etc/x /x && echo ESCAPED",
    "changes the kernel's settings": "echo '|/bin/x' > /proc/sys/kernel/core_pattern && echo ESCAPED",
    "sysrq": "echo h > /proc/sysrq-trigger && echo ESCAPED",
    "reads shadow": "cat /etc/shadow && echo ESCAPED",
    "mounts": "mount -t tmpfs x /tmp && echo ESCAPED; umount /proc && echo ESCAPED; mount -o remount,rw / && echo ESCAPED",
    "nests user namespaces": "unshare -Ur true && echo ESCAPED",
    "unshare": refused(272, "0x10000000"),
    "clone with namespaces": refused(56, "0x10000011", 0, 0, 0, 0),
    "clone3": refused(435, "ctypes.create_string_buffer(88)", 88),
    "setns": refused(308, -1, 0),
    "chroot": refused(161, "b'/'"),
    "pivot_root": refused(155, "b'/'", "b'/'"),
    "open_tree": refused(428, -100, "b'/'", 1),
    "fsopen": refused(430, "b'tmpfs'", 0),
    "mount_setattr": refused(442, -100, "b'/'", "1 << 30", "ctypes.create_string_buffer(32)", 32),
    "io_uring": refused(425, 4, "ctypes.create_string_buffer(256)"),
    "keyctl": refused(250, 0, -3, 1),
    "add_key": refused(248, "b'user'", "b'x'", "b'y'", 1, -2),
    "bpf": refused(321, 0, "ctypes.create_string_buffer(8192)", 8192),
    "perf": refused(298, "ctypes.create_string_buffer(128)", 0, -1, -1, "1 << 30"),
    "userfaultfd": refused(323, 1),
    "open_by_handle": refused(304, -1, 0, 0),
    "name_to_handle": refused(
        303,
        -100,
        "b'/'",
        "ctypes.create_string_buffer(b'\\x80' + bytes(140))",
        "ctypes.byref(ctypes.c_int())",
        0,
    ),
    "pidfd_getfd": refused(438, "os.pidfd_open(os.getpid())", 1, 0),
    "a call nobody knows": refused(480),
    "device nodes": "mknod d b 8 0 && echo ESCAPED; mknod c c 1 1 && echo ESCAPED",
    "setuid": python(
        "import os\ntry:\n os.setuid(12345); print('ESCAPED')\nexcept OSError: print('refused')"
    ),
    "a setuid program": "chmod u+s /usr/bin/su && echo ESCAPED; sudo -n true && echo ESCAPED",
    "makes a set-uid program": "cp /bin/true t; chmod 4755 t; chmod u+s t; "
    + python(
        "import ctypes, os; c = ctypes.CDLL(None)\n"
        "for make in (lambda: os.open('u', os.O_CREAT | os.O_WRONLY, 0o4755), lambda: os.mknod('v', 0o104755),\n"
        "             lambda: os.fchmod(os.open('t', 0), 0o4755), lambda: c.syscall(452, -100, b't', 0o4755, 0),\n"
        "             lambda: c.syscall(437, -100, b'w', (ctypes.c_uint64 * 3)(0o101, 0o4755, 0), 24),\n"
        "             lambda: c.creat(b'x', 0o4755), lambda: c.open(b'.', os.O_TMPFILE | 1, 0o4755)):\n"
        " try: make()\n"
        " except OSError: pass"
    )
    + "\nfind . -perm -4000 | grep . && echo ESCAPED",
    "the memory of its first process": "cat /proc/1/mem >/dev/null && echo ESCAPED; ls -l /proc/1/fd/ | grep -- '->' && echo ESCAPED",
    "traces its first process": python(
        f"{SYSCALL}print('ESCAPED' if c.ptrace(16, 1, 0, 0) == 0 else 'refused')"
    ),
    "kills its first process": "kill -9 1; sleep 0.1; echo alive; [ -d /proc/1 ] || echo ESCAPED",
    "types into a terminal": python(
        "import fcntl,os,pty\nm,s=pty.openpty()\ntry:\n fcntl.ioctl(s,0x5412,b'x'); print('ESCAPED')\nexcept OSError: print('refused')"
    ),
    "executes from memory what is forbidden": python(
        "import os\nf=os.memfd_create('x',0)\nos.write(f,open('/usr/bin/unshare','rb').read())\nos.system(f'/proc/{os.getpid()}/fd/{f} -Ur true && echo ESCAPED')"
    ),
    "capabilities": "grep -E 'Cap(Eff|Prm|Bnd)' /proc/self/status | grep -v 0000000000000000 && echo ESCAPED",
}
SOCKETS = {
    f"a socket of family {family}": python(
        f"import socket\ntry:\n socket.socket({family}, {kind}, {protocol}); print('ESCAPED')\nexcept OSError: print('refused')"
    )
    for family, kind, protocol in (
        (1, 1, 0),
        (1, 2, 0),
        (40, 1, 0),
        (17, 3, 0),
        (16, 3, 15),
        (16, 3, 9),
        (38, 5, 0),
        (44, 3, 0),
    )
} | {
    "a pair of datagrams": python(
        "import socket\ntry:\n socket.socketpair(1, 2); print('ESCAPED')\nexcept OSError: print('refused')"
    ),
    "the loopback of the host": "bash -c 'echo > /dev/tcp/127.0.0.1/PORT' && echo ESCAPED",
    "a name": "getent hosts localhost.example.org && echo ESCAPED",
}
GUARDED = {
    "hooks": "echo x > .git/hooks/pre-commit; mv .git/hooks .git/h; rm -rf .git/hooks",
    "settings of git": "echo x >> .git/config; git config core.fsmonitor x; cp a.txt .git/config; ln -sf a .git/config",
    "another folder for git": "echo /tmp > .git/commondir; echo x > .git/config.worktree; rm -f .git/commondir",
    "the whole repository": "mv .git g; rm -rf .git/config .git/hooks; python3 -c \"import os; os.rename('.git', 'g')\"",
    "exchanged": python(
        "import ctypes, os; c = ctypes.CDLL(None)\nos.mkdir('g')\nc.syscall(316, -100, b'.git', -100, b'g', 2)\nc.syscall(316, -100, b'.git/config', -100, b'a.txt', 2)"
    ),
    "a hard link to settings": "ln .git/config c && echo x >> c; ln .git/hooks/a c2",
    "new agents": "mkdir -p .retinue/agents .claude/agents .agents/x; echo x > .retinue/a; rmdir .retinue; mv .claude c",
    "new settings": "echo x > retinue.toml; echo x > .mcp.json; rmdir retinue.toml && echo x > retinue.toml; mv a.txt .mcp.json",
    "an inner repository": "echo x >> inner/.git/config; mv inner other; rm -rf inner/.git/hooks; echo x > inner/.git/hooks/post-checkout",
    "text that agents read": "echo x >> AGENTS.md; rm AGENTS.md; mv a.txt AGENTS.md",
    "new agents in an inner repository": "cd inner; mkdir -p .retinue/agents .claude/agents .agents/x; echo x > .retinue/a; mv .claude c; "
    "echo x > retinue.toml; echo x > .mcp.json",
    "text that agents read in an inner repository": "cd inner; echo x >> AGENTS.md; rm AGENTS.md; mv ../a.txt AGENTS.md",
    "what git is told to ignore": "echo x >> .git/info/exclude; echo x > .git/info/attributes; mv .git/info i; rm -r inner/.git/info; mkdir -p inner/.git/info/x",
    "a bare repository": "git -C bare.git config core.fsmonitor x; echo x > bare.git/hooks/post-receive; mv bare.git b; rm -r bare.git/hooks",
}


def tree(folder: Path) -> dict[str, bytes]:
    """All that must stay as it is in the project."""
    found: dict[str, bytes] = {}
    for top in (".git/hooks", ".git/config", ".git/commondir", ".git/config.worktree", ".retinue", ".claude", ".agents",
                ".mcp.json", "retinue.toml", "AGENTS.md", "inner/.git/hooks", "inner/.git/config", "inner/.git/commondir",
                "inner/.retinue", "inner/.claude", "inner/.agents", "inner/.mcp.json", "inner/retinue.toml", "inner/AGENTS.md",
                ".git/info", "inner/.git/info", "bare.git/hooks", "bare.git/config"):  # fmt: skip
        place = folder / top
        for path in [place, *sorted(place.rglob("*"))] if place.is_dir() else [place]:
            if path.is_symlink() or path.exists():
                found[str(path)] = path.read_bytes() if path.is_file() else b"folder"
    return found


def asked(command: str, **more: Any) -> Asked:
    return Asked(
        tool="bash", effect="execute", risk="high", agent="a", arguments={"command": command}, **more
    )


def rules(**more: Any) -> Rules:
    return Rules.of(ApprovalSettings(sandbox="project", **more), allow_all=False)


def test_sealed_commands_run_unasked_only_where_that_is_set_and_no_rule_says_otherwise() -> None:
    assert rules().judge(asked("ls", sealed=True)).action == "ask"
    auto = rules(auto="sandboxed", deny=("bash(git push*)",), ask=("bash(rm*)",))
    assert auto.judge(asked("ls", sealed=True)).action == "allow"
    assert auto.judge(asked("ls")).action == "ask"
    assert auto.judge(asked("git push", sealed=True)).action == "deny"
    assert auto.judge(asked("rm x", sealed=True)).action == "ask"
    assert rules(auto="sandboxed", sandbox_network=True).judge(asked("ls", sealed=True)).action == "ask"
    assert auto.with_deny(["bash(cat*)"]).judge(asked("ls", sealed=True)).action == "allow"


def test_what_cannot_be_sealed_asks_whatever_is_allowed_and_says_why() -> None:
    for more in ({"allow": ("bash(ls*)",)}, {"auto_risk": "high"}, {"auto": "sandboxed"}, {}):
        verdict = rules(**more).judge(asked("ls", unsealed="no namespaces"))
        assert (verdict.action, verdict.unsealed) == ("ask", True)
        assert "no namespaces" in verdict.why
    assert rules(deny=("bash(ls*)",)).judge(asked("ls", unsealed="no namespaces")).action == "deny"


@pytest.mark.parametrize("inner", [False, True])
def test_where_namespaces_are_switched_off_it_is_said(inner: bool) -> None:
    """As a user of a container would see it: with none to be had, and with a home that the project holds."""
    program = (
        "import os; from pathlib import Path; from retinue.sandbox.commands.view import CommandPlace, Trials\n"
        "p = CommandPlace(project=Path.cwd(), workspace=None, writable=True, network=False)\n"
        f"print(Trials().why_not(p, {{'HOME': {'str(Path.cwd())' if inner else repr('/nowhere')}}}))"
    )
    off = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    found = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", off, "sh", sys.executable, "-c", program],
        capture_output=True, text=True, check=True, cwd=HERE.parent,
    ).stdout  # fmt: skip
    assert ("holds your home folder" if inner else "max_user_namespaces") in found


@pytest.mark.parametrize("name", FILES)
async def test_nothing_outside_is_read_or_written(world: Path, name: str) -> None:
    text = await run(world, FILES[name])
    assert PLANTED not in text
    assert "ESCAPED" not in text
    assert sorted(path.name for path in (world / "outside").iterdir()) == ["secret"]
    assert (world / "outside/secret").read_text() == PLANTED


@pytest.mark.parametrize(
    "name", ["writes outside", "reads outside", "reads ssh keys", "by dots", "by a hard link"]
)
async def test_the_same_scripts_get_out_where_nothing_is_sealed(world: Path, name: str) -> None:
    text = await run(world, FILES[name], sandbox="off")
    assert PLANTED in text or "ESCAPED" in text


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of calls are those of x86-64")
@pytest.mark.parametrize("name", SYSTEM)
async def test_no_call_of_the_system_leads_out(world: Path, name: str) -> None:
    assert "ESCAPED" not in await run(world, SYSTEM[name])


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of calls are those of x86-64")
@pytest.mark.parametrize("name", ["setns", "mount_setattr", "bpf", "perf", "open_by_handle", "pidfd_getfd",
                                  "makes a set-uid program"])  # fmt: skip
async def test_it_is_the_filter_that_refuses(world: Path, name: str) -> None:
    assert "ESCAPED" in await run(world, SYSTEM[name], sandbox="off")


@pytest.mark.parametrize("name", SOCKETS)
async def test_no_socket_leads_out(world: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert "ESCAPED" not in await run(world, SOCKETS[name].replace("PORT", port))
        if "PORT" in SOCKETS[name]:  # and with the network it does
            assert "ESCAPED" in await run(world, SOCKETS[name].replace("PORT", port), sandbox="open")


@pytest.mark.parametrize("name", GUARDED)
async def test_what_makes_programs_run_later_stays_as_it_is(world: Path, name: str) -> None:
    project = world / "project"
    subprocess.run(["git", "init", "-q", str(project / "inner")], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(project / "bare.git")], check=True)
    for place in (project, project / "inner"):
        (place / "AGENTS.md").write_text("be good\n")
    before = tree(project)
    await run(world, GUARDED[name])
    assert tree(project) == before


FSMONITOR = "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = ./run\\n[alias]\\n\\tst = !./run\\n"
PROGRAM = "printf '#!/bin/sh\\necho ran > ran.txt\\n' > run; chmod +x run; "
BARE = f"{PROGRAM} printf '{FSMONITOR}' > config; echo 'ref: refs/heads/m' > HEAD; "
PROGRAM_HERE = 'printf "#!/bin/sh\\necho ran > $PWD/ran.txt\\n" > run; chmod +x run; '
SUB = "[ -e sub ] || { git init -q sub; git -C sub commit -q --allow-empty -m x; git add sub; git commit -qm s; "
HOOK = f"{PROGRAM} mkdir -p PLACE; cp run PLACE/pre-commit"
LATER = {
    "a repository beside the project": ("rm -rf .git", f"{BARE} mkdir -p refs objects"),
    "a repository instead of the project's": ("", f"rm .git/HEAD; {BARE} mkdir -p refs objects"),
    "a repository that is elsewhere": ("rm -rf .git", f"{BARE} mkdir -p e/refs e/objects; echo e > commondir; cp config e/"),
    "a repository where refs are": ("rm -rf .git; mkdir refs", f"{BARE} mkdir -p objects; mv refs r; mkdir refs"),
    "a repository that was bare": ("mv .git g; mv g/* .; git config core.bare false", f"{BARE}"),
    "hooks of its own": ("mkdir .githooks; git config core.hooksPath .githooks", HOOK.replace("PLACE", ".githooks")),
    "hooks to come": ("git config core.hooksPath .githooks", HOOK.replace("PLACE", ".githooks")),
    "hooks in a folder to come": ("git config core.hooksPath .husky/_", HOOK.replace("PLACE", ".husky/_")),
    "hooks in a folder that moves": (
        "mkdir -p .husky/_; git config core.hooksPath .husky/_", "mv .husky h; " + HOOK.replace("PLACE", ".husky/_")),
    "hooks by their whole path": (
        "mkdir .h; git config core.hooksPath $PWD/.h", "mv .h h; " + HOOK.replace("PLACE", ".h")),
    "hooks in the folder of git": ("git config core.hooksPath .git/own", HOOK.replace("PLACE", ".git/own")),
    "settings that are included": (
        "touch .gitconfig; git config include.path ../.gitconfig", f"{PROGRAM} printf '{FSMONITOR}' >> .gitconfig"),
    "settings to come": ("git config include.path ../.gitconfig", f"{PROGRAM} printf '{FSMONITOR}' > .gitconfig"),
    "settings that included ones include": (
        "printf '[include]\\npath = sub/more # x\\n' > .gitconfig; git config includeIf.gitdir:/.path ../.gitconfig",
        f"{PROGRAM} mkdir -p sub; printf '{FSMONITOR}' > sub/more"),
    "hooks through a link to the project": (
        "ln -sfn $PWD ../link; mkdir -p .h; git config core.hooksPath $(dirname $PWD)/link/.h", HOOK.replace("PLACE", ".h")),
    "hooks through a link in the project": (
        "mkdir -p .h k; ln -sfn ../.h k/link; git config core.hooksPath k/link", HOOK.replace("PLACE", ".h")),
    "hooks through a link that is changed": (
        "mkdir -p .h k; ln -sfn ../.h k/link; git config core.hooksPath k/link", HOOK.replace("PLACE", "o") + "; ln -sfn ../o k/link"),
    "hooks before a comment": (
        "mkdir -p .h; printf '[core]\n\thooksPath=.h;x\n' >> .git/config", HOOK.replace("PLACE", ".h")),
    "hooks on a continued line": (
        "mkdir -p .hk; printf '[core]\n\thooksPath = .h\\\nk\n' >> .git/config", HOOK.replace("PLACE", ".hk")),
    "hooks after a byte order mark": (
        "mkdir -p .h; grep -q hooksPath .git/config || { printf '\\357\\273\\277[core]\n\thooksPath = .h\n' > c; cat .git/config >> c; mv c .git/config; }",
        HOOK.replace("PLACE", ".h")),
    "hooks of all repositories": ("git config --global core.hooksPath .h", HOOK.replace("PLACE", ".h")),
    "hooks of all repositories, said elsewhere": (
        "mkdir -p ~/.config/git; printf '[core]\n\thooksPath = .h\n' > ~/.config/git/config", HOOK.replace("PLACE", ".h")),
    "hooks of all repositories, included": (
        "printf '[core]\n\thooksPath = .h\n' > ~/more; git config --global include.path more", HOOK.replace("PLACE", ".h")),
    "a monitor in the project": ("touch run; git config core.fsmonitor ./run", PROGRAM),
    "a monitor to come": ("git config core.fsmonitor ./run", PROGRAM),
    "a monitor that is a link": (
        "mkdir -p bin; ln -sf /bin/true bin/m; git config core.fsmonitor bin/m", f"{PROGRAM} ln -sf ../run bin/m"),
    "a submodule whose repository is gone": (
        f"{SUB} rm -rf sub/.git; echo 'gitdir: ../.git/modules/sub' > sub/.git; }}",
        f"{PROGRAM_HERE} git init -q o; git -C o commit -q --allow-empty -m x; mkdir -p .git/modules; mv o/.git .git/modules/sub; C=.git/modules/sub/config; "
        "git config -f $C core.worktree ../../../sub; git config -f $C core.fsmonitor $PWD/run"),
    "a submodule whose repository is elsewhere in the project": (
        f"{SUB} mkdir -p o; mv sub/.git o/g; echo 'gitdir: ../o/g' > sub/.git; }}",
        f"{PROGRAM_HERE} mv o p; mkdir o; cp -r p/g o/g; git config -f o/g/config core.fsmonitor $PWD/run"),
    "a filter in the project": (
        "echo cat > clean.sh; git config filter.f.clean 'sh clean.sh'; echo '*.txt filter=f' > .gitattributes",
        "printf 'echo ran > ran.txt; cat\n' > clean.sh; echo b > a.txt"),
}  # fmt: skip


@pytest.mark.parametrize("name", LATER)
async def test_git_runs_nothing_later_that_a_command_has_put_there(world: Path, name: str) -> None:
    project = world / "project"
    before, attack = LATER[name]
    afterwards = "git status; git st; git commit -q --allow-empty -m later"
    subprocess.run(["sh", "-c", before], cwd=project, check=True)
    await run(world, attack)
    subprocess.run(["sh", "-c", afterwards], cwd=project, check=False)
    assert not (project / "ran.txt").exists()
    await run(world, f"{before}\n{attack}", sandbox="off")  # and where nothing is sealed, it does
    subprocess.run(["sh", "-c", afterwards], cwd=project, check=False)
    assert (project / "ran.txt").exists()


NO_LONGER = {
    "no head": ("PATH_OF_GIT/HEAD", ""),
    "no refs": ("PATH_OF_GIT/refs", ""),
    "no objects": ("PATH_OF_GIT/objects", ""),
    "a repository above": ("PATH_OF_GIT/HEAD", "git init -q .."),
}


@pytest.mark.parametrize("kind", ["repository", "inner", "work tree", "bare"])
@pytest.mark.parametrize("name", NO_LONGER)
async def test_hooks_are_guarded_where_git_sees_no_repository_any_more(
    world: Path, name: str, kind: str
) -> None:
    """What a command has moved away, a second one could bring back, with a hook that it has changed."""
    project = world / "project"
    tree, git = project, project / ".git"
    if kind == "inner":
        tree, git = project / "inner", project / "inner/.git"
        subprocess.run(["git", "init", "-q", str(tree)], check=True)
    elif kind == "work tree":
        project.rename(world / "main")
        git = world / "main/.git/worktrees/project"
        subprocess.run(["git", "-C", str(world / "main"), "worktree", "add", "-q", str(project)], check=True)
    elif kind == "bare":
        make = "git init -q --bare b; rm -rf .git; mv b/* .; rmdir b; git config core.bare false; git config core.worktree ."
        subprocess.run(["sh", "-c", make], cwd=project, check=True)
        git = project
    subprocess.run(["git", "-C", str(tree), "config", "core.hooksPath", "scripts/hooks"], check=True)
    moved, before = NO_LONGER[name]
    subprocess.run(["sh", "-c", before], cwd=project, check=True)
    for place in (tree, git):
        (place / "scripts/hooks").mkdir(parents=True, exist_ok=True)
        (place / "scripts/hooks/pre-commit").write_text("#!/bin/sh\n")
    there = Path(moved.replace("PATH_OF_GIT", str(git)))
    await run(world, f"mv {there} {there}-away")
    if there.exists() and kind != "work tree":  # which has neither of its own
        there.rename(f"{there}-away")
    for place in (tree, git):
        await run(world, f"echo id >> {place}/scripts/hooks/pre-commit; mv {there}-away {there}")
        assert (place / "scripts/hooks/pre-commit").read_text() == "#!/bin/sh\n"


async def test_a_trusted_folder_inside_the_project_keeps_its_settings(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = world / "project/apps/one"
    app.mkdir(parents=True)
    (app / "retinue.toml").write_text("[limits]\n")
    (world / "own.toml").write_text(f"trust = [{str(app)!r}]\n")
    monkeypatch.setenv("RETINUE_CONFIG", str(world / "own.toml"))
    await run(
        world,
        "cd apps/one; echo x > retinue.toml; mkdir -p .retinue/tools; echo x > .mcp.json; mv ../../apps ../../b",
    )
    assert (app / "retinue.toml").read_text() == "[limits]\n"
    assert [each.name for each in app.iterdir()] == ["retinue.toml"]


async def test_hooks_of_pushes_are_guarded_too(world: Path) -> None:
    """Those run in the folder of git, so a relative place is one in there as well."""
    subprocess.run(["git", "-C", str(world / "project"), "config", "core.hooksPath", ".h"], check=True)
    await run(world, "mkdir -p .git/.h; echo x > .git/.h/post-receive")
    assert not (world / "project/.git/.h").exists()


async def test_hooks_that_variables_name_are_guarded_too(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", ".h")
    (world / "system").write_text("[core]\n\thooksPath = .s\n")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(world / "system"))
    await run(world, "mkdir -p .h .s; echo x > .h/pre-commit; echo x > .s/pre-commit")
    assert not (world / "project/.h").exists()
    assert not (world / "project/.s").exists()


async def test_where_git_does_not_say_what_it_would_run_nothing_is_sealed(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = world / "project"
    config = (project / ".git/config").read_text()
    (project / ".git/config").write_text("[core\n" + config)
    with pytest.raises(
        Exception, match=r"was not run.*git does not say what it would run.*bad config line 1"
    ):
        await run(world, "echo ran > ran.txt")
    (project / ".git/config").write_text(config + "[core]\nhooksPath = .\n")
    with pytest.raises(Exception, match=r"was not run.*git would run what lies in .*project itself"):
        await run(world, "echo ran > ran.txt")
    (project / ".git/config").write_text(config)
    (world / "bin").mkdir()
    (world / "bin/bash").symlink_to("/bin/bash")
    monkeypatch.setenv("PATH", str(world / "bin"))
    with pytest.raises(Exception, match=r"was not run.*git is not there to say"):
        await run(world, "echo ran > ran.txt")
    assert not (project / "ran.txt").exists()
    (project / ".git").rename(world / "git")
    assert await run(world, "echo ok") == "ok\n[exit code 0]"


@pytest.mark.parametrize("name", ["HEAD", "config", "config.worktree", "commondir"])
def test_no_pipe_is_waited_for_that_git_would_read(world: Path, name: str) -> None:
    path = world / "project/.git" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    place = CommandPlace(project=world / "project", workspace=None, writable=True, network=False)
    assert f"{path} is a pipe" in view_of(place, os.environ)["unknown"]
    with pytest.raises(GitFailed, match="is a pipe"):
        git(world / "project", "rev-parse", "HEAD")
    (world / "project/sub").mkdir()
    with pytest.raises(GitFailed, match="is a pipe"):
        git(world / "project/sub", "rev-parse", "HEAD")


def test_settings_that_include_a_pipe_are_listed_without_it(world: Path) -> None:
    os.mkfifo(world / "project/pipe")
    (world / "project/more").write_text("[core]\n\thooksPath = elsewhere\n[include]\n\tpath = third\n")
    (world / "project/third").write_text("[core]\n\teditor = ./ed\n")
    with open(world / "project/.git/config", "a", encoding="ascii") as config:
        config.write("[include]\n\tpath = ../pipe\n\tpath = ../more\n")
    place = CommandPlace(project=world / "project", workspace=None, writable=True, network=False)
    view = view_of(place, os.environ)
    assert view["unknown"] == ""
    named = {os.path.relpath(path, world / "project") for path, _ in view["named"]}
    assert {"elsewhere", "ed", "more", "third"} <= named


async def test_a_repository_that_git_cannot_read_stays_as_it_is(world: Path) -> None:
    project = world / "project"
    subprocess.run(["git", "init", "-q", str(project / "inner")], check=True)
    (project / "inner/.git/config").write_text("[core\n")
    assert "Read-only" in await run(world, "echo x > made; echo x > inner/made")
    assert (project / "made").exists()
    assert not (project / "inner/made").exists()


async def test_no_git_of_the_project_is_asked(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (world / "project/bin").mkdir()
    (world / "project/bin/git").write_text(f"#!/bin/sh\necho ran > {world}/ran.txt\n")
    (world / "project/bin/git").chmod(0o755)
    (world / "link").symlink_to(world / "project/bin")
    for name in ("project/bin", "link"):
        monkeypatch.setenv("PATH", f"{world / name}:{os.environ['PATH']}")
        assert await run(world, "echo ok") == "ok\n[exit code 0]"
    assert not (world / "ran.txt").exists()


async def test_what_stands_in_shows_in_no_status(world: Path) -> None:
    assert await run(world, "git status --short; git add .; git diff HEAD --stat") == "[exit code 0]"


async def test_an_inner_repository_is_not_lost_behind_many_folders(world: Path) -> None:
    project = world / "project"
    subprocess.run(["git", "init", "-q", str(project / "inner")], check=True)
    await run(world, "mkdir d{1..6000}")
    await run(world, "touch inner/.git/hooks/post-checkout")
    assert not (project / "inner/.git/hooks/post-checkout").exists()


async def test_programs_of_ours_in_the_project_are_not_changed(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retinue runs from the environment of the project: `grep` would run whatever `rg` has become."""
    (world / "project/tools/.venv/bin").mkdir(parents=True)
    (world / "project/tools/.venv/bin/rg").write_text("ours\n")
    monkeypatch.setattr(sys, "prefix", str(world / "project/tools/.venv"))
    text = await run(world, "cd tools; echo x > .venv/bin/rg; mv .venv v; cd ..; mv tools t; touch made")
    assert text.count("Read-only") == 1
    assert text.count("busy") == 2
    assert (world / "project/tools/.venv/bin/rg").read_text() == "ours\n"
    assert (world / "project/made").exists()


async def test_files_that_a_trusted_server_is_started_from_are_not_changed(world: Path) -> None:
    (world / "project/tools").mkdir()
    server = world / "project/tools/server.py"
    server.write_text("trusted\n")
    gone = str(world / "project/gone.py")
    text = await run(
        world,
        "echo x > tools/server.py; mv tools t; rm -f tools/server.py; echo y > tools/other; cat tools/server.py",
        guarded=(str(server), gone),
    )
    assert server.read_text() == "trusted\n"
    assert "MCP servers that you trust" in text
    assert (world / "project/tools/other").exists()
    assert not (world / "project/gone.py").exists()


def test_what_is_imported_later_comes_from_nowhere_that_commands_write_to(world: Path) -> None:
    """`python -m retinue`, started in the project: Python would look there first."""
    for name in ("typer", "resource", "rich", "aiosqlite", "httptools", "tomllib"):
        (world / f"project/{name}.py").write_text("open('ran.txt', 'w')")
    subprocess.run(
        [sys.executable, "-m", "retinue", "config", "show"],
        cwd=world / "project",
        capture_output=True,
        check=False,
    )
    assert not (world / "project/ran.txt").exists()


async def test_of_a_folder_with_programs_only_what_they_need_is_seen(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {
        "home/.docker": ("config.json", "contexts/meta.json"),
        "home/.fly": ("config.yml",),
        "home/work": ("customers.txt", "src/private.py"),
        "home/go": ("src/private/main.go",),
        "home": ("bin/id_rsa", "bin/.env", ".npm-global/.npmrc"),
        "outside": ("private/payroll.csv", "VERSION"),
    }
    for place, names in places.items():
        for name in (*names, "bin/hello", "lib/needed.txt"):
            (world / place / name).parent.mkdir(parents=True, exist_ok=True)
            (world / place / name).write_text("needed\n" if "needed" in name else PLANTED)
        (world / place / "bin/hello").write_text('#!/bin/sh\ncat "${0%/bin/*}/lib/needed.txt"\n')
        (world / place / "bin/hello").chmod(0o755)
    tops = [str(world / place) for place in (*places, "home/.npm-global")]
    monkeypatch.setenv("PATH", ":".join([*(f"{top}/bin" for top in tops), os.environ["PATH"]]))
    assert PLANTED not in await run(world, f"grep -rs . {' '.join(tops)}; cat ~/bin/id_rsa ~/bin/.env")
    for place in ("home/.docker", "home/work", "outside"):
        assert "needed" in await run(world, f"{world}/{place}/bin/hello")


def test_a_home_where_others_keep_theirs_is_a_home_too() -> None:
    """One below /var/tmp is another one inside: what lies beside its programs stays out all the same."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        home = Path(folder).resolve()
        for name in (".local/bin", ".local/share/retinue", ".x/bin", ".x/share", ".x/lib"):
            (home / name).mkdir(parents=True)
        place = CommandPlace(project=None, workspace=None, writable=True, network=False)
        view = view_of(place, {"HOME": str(home), "PATH": f"{home}/.local/bin:{home}/.x/bin"})
        seen = {
            source.removeprefix(f"{home}/") for source, _ in view["readable"] if source.startswith(str(home))
        }
    assert seen == {".local/bin", ".x/bin", ".x/lib"}


async def test_no_passwords_lie_beside_toolchains(world: Path) -> None:
    for name in (
        ".local/share/uv/credentials/credentials.toml",
        ".cargo/credentials.toml",
        ".m2/settings.xml",
    ):
        (world / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (world / "home" / name).write_text(PLANTED)
    (world / "home/.local/share/uv/tools").mkdir()
    text = await run(world, "ls ~/.local/share/uv; grep -rs planted- ~")
    assert PLANTED not in text
    assert "tools" in text


_SHIM = """#!/bin/sh
export PYENV_ROOT="{root}"
exec "{root}/libexec/pyenv" exec "${{0##*/}}" "$@"
"""
_PYENV = """#!/bin/sh
read -r version < "$PYENV_ROOT/version"
exec "$PYENV_ROOT/versions/${PYENV_VERSION:-$version}/bin/$2"
"""


@pytest.mark.parametrize("root", ["home/.pyenv", "home/tools/pyenv", "outside/pyenv", "home/called/pyenv"])
async def test_the_shims_of_a_version_manager_start_what_it_installed(
    world: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its folder is, by whatever name; and of that folder nothing else is seen or changed."""
    named = world / root
    real = world / "outside/kept-here" if "called" in root else named
    if real != named:
        real.mkdir(parents=True)
        named.parent.mkdir()
        named.symlink_to("../../outside/kept-here")
    for version in ("3.8", "3.12"):
        place = real / "versions" / version
        (place / "lib").mkdir(parents=True)
        (place / "bin").mkdir()
        (place / "lib/told.txt").write_text(f"this is {version}\n")
        (place / "bin/python9").write_text('#!/bin/sh\ncat "${0%/bin/*}/lib/told.txt"\n')
        (place / "bin/python9").chmod(0o755)
        (place / "pip.conf").write_text(PLANTED)
    for name, text in {"shims/python9": _SHIM.format(root=named), "libexec/pyenv": _PYENV}.items():
        (real / name).parent.mkdir()
        (real / name).write_text(text)
        (real / name).chmod(0o755)
    (real / "version").write_text("3.12\n")
    (real / ".git").mkdir()
    (real / ".git/config").write_text(PLANTED)
    (real / "notes.txt").write_text(PLANTED)
    monkeypatch.setenv("PATH", f"{named}/shims:{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(named))
    assert "this is 3.12" in await run(world, "python9")
    assert "this is 3.8" in await run(world, "PYENV_VERSION=3.8 python9")
    text = await run(world, f"ls -a {named}/; grep -rs planted- {named}/ {real}; touch {named}/shims/new")
    assert PLANTED not in text
    assert "versions" in text
    assert not (real / "shims/new").exists()


async def test_it_sees_the_skills_of_the_user_that_its_run_is_offered_and_changes_none(world: Path) -> None:
    skills = world / "home/.agents/skills"
    for name in ("mine", "other"):
        (skills / name).mkdir(parents=True)
        (skills / name / "do.sh").write_text(f"echo did-{name}\n")
    commands = "; ".join(
        f"sh {skills}/{name}/do.sh; echo x > {skills}/{name}/new" for name in ("mine", "other")
    )
    text = await run(world, commands, readable=(str(skills / "mine"),))
    assert "did-mine" in text
    assert "did-other" not in text
    assert not list(skills.glob("*/new"))


def test_what_stands_in_for_git_is_known_to_whoever_looks_for_settings() -> None:
    assert BEGAN * 10**9 == STANDS_IN_SINCE


@pytest.mark.parametrize("replace", ["git config a.b c", "echo x > n; mv n retinue.toml", "rmdir .claude"])
async def test_a_command_ends_when_what_is_guarded_is_replaced_from_outside(
    world: Path, replace: str
) -> None:
    project = world / "project"
    (project / "retinue.toml").write_text("")
    lurking = asyncio.create_task(run(world, "touch begun; sleep 55"))
    while not (project / "begun").exists():
        await asyncio.sleep(0.01)
    subprocess.run(["sh", "-c", replace], cwd=project, check=True)
    with pytest.raises(Exception, match=r"was ended: .* was replaced from outside"):
        await lurking
    assert "ok" in await run(world, "echo ok")


async def test_without_a_project_a_command_is_sealed_too(world: Path) -> None:
    place = CommandPlace(project=None, workspace=None, writable=True, network=False)
    assert Trials().why_not(place, os.environ) is None


async def test_our_database_in_the_project_is_not_to_be_seen(world: Path) -> None:
    (world / "project/runs.db").write_text(PLANTED)
    assert PLANTED not in await run(world, "cat runs.db; cp runs.db b; cat b; mv runs.db c; cat c")
    assert (world / "project/runs.db").read_text() == PLANTED


async def test_two_sealed_commands_share_what_stands_in(world: Path) -> None:
    results = await asyncio.gather(
        *(run(world, "mkdir .claude/x; echo x > .mcp.json; sleep 0.2") for _ in range(4))
    )
    assert all("Read-only" in text or "Is a directory" in text for text in results)
    assert not [name for name in os.listdir(world / "project") if name not in ("a.txt", ".git")]


async def test_a_link_in_the_place_of_what_is_guarded_is_not_sealed(world: Path) -> None:
    (world / "project/.claude").symlink_to("a.txt")
    with pytest.raises(Exception, match=r"was not run, since it cannot be sealed off.*claude is a link"):
        await run(world, "echo ran > ran.txt")
    assert not (world / "project/ran.txt").exists()


async def test_a_call_ends_with_its_shell_whatever_that_has_left_behind(world: Path) -> None:
    for sandbox in ("off", "closed"):
        text = await run(
            world, "sleep 1000 & sleep 1001 >/dev/null 2>&1 & echo hi", sandbox=sandbox, timeout=20
        )
        assert text.endswith("hi\n[exit code 0]"), sandbox


async def test_nothing_sealed_outlives_its_call(world: Path) -> None:
    mark = f"{secrets.randbelow(10**6) + 10**6}.5"
    await run(world, f"setsid sleep {mark} & (env -i setsid nohup sleep {mark} &) ; sleep 0.1")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # a process that has just ended, whosever it was
            assert mark.encode() not in path.read_bytes()


async def test_a_fork_bomb_ends_with_its_call(world: Path) -> None:
    text = await run(world, "b() { b | b & b; }; b 2>/dev/null", timeout=3)
    assert "[" in text
    assert "ok" in await run(world, "echo ok")


async def test_a_temp_folder_is_bounded(world: Path) -> None:
    text = await run(
        world, "head -c 700M /dev/zero > /dev/shm/x; ls -s /dev/shm/x; head -c 9G /dev/null; ulimit -f"
    )
    assert "No space left" in text
    assert "8388608" in text


async def test_where_memory_runs_out_a_sealed_command_goes_first(world: Path) -> None:
    text = await run(world, "echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj")
    assert "Read-only" in text
    assert "\n1000\n" in text


async def test_everyday_work_goes_on(world: Path) -> None:
    text = await run(
        world,
        "echo b > b.txt && git add . && git commit -qm second && git log --format='%an %s' && git status --short && "
        "git diff HEAD~1 --stat && git stash list && git checkout -q -b other && python3 -c 'print(6 * 7)' && "
        "printf 'all:\\n\\techo made\\n' > Makefile && make -s && "
        "echo 'int main(void) { return 0; }' > m.c && gcc m.c -o m && ./m && echo compiled; rm -f m; "
        "echo x > $TMPDIR/x && cat /tmp/x && echo kept > /home/agent/kept && cat /home/agent/kept",
    )
    assert "A Person second\nA Person first\n" in text
    for part in ("42\n", "made\n", "compiled\n", "x\nkept\n[exit code 0]"):
        assert part in text
    assert (world / "project/b.txt").read_text() == "b\n"


async def test_tests_of_a_project_run(world: Path) -> None:
    code = "import tempfile, unittest\nclass T(unittest.TestCase):\n def test(self):\n  tempfile.mkdtemp()\n"
    (world / "project/test_a.py").write_text(code)
    assert "Ran 1 test" in await run(world, "python3 -m unittest")


async def test_pytest_runs_from_an_environment_in_the_project(world: Path) -> None:
    project = world / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
    (packages,) = (project / ".venv").glob("lib/python*/site-packages")
    ours = Path(pytest.__file__).parents[1]
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(ours / name, packages / name)
    shutil.copy(ours / "py.py", packages)
    for about in (*ours.glob("pytest-[0-9]*.dist-info"), *ours.glob("pluggy-*.dist-info")):
        shutil.copytree(about, packages / about.name)
    (project / "test_a.py").write_text("def test_a(tmp_path):\n    (tmp_path / 'x').write_text('x')\n")
    text = await run(
        world, ".venv/bin/python -c 'import sys; print(sys.prefix)' && .venv/bin/python -m pytest test_a.py"
    )
    assert str(project / ".venv") in text
    assert "1 passed" in text


async def test_without_network_programs_say_so(world: Path) -> None:
    text = await run(
        world,
        "curl -sS http://192.0.2.1/ || python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80))'",
    )
    assert "unreachable" in text.lower() or "could not connect" in text.lower()


async def test_a_work_tree_kept_elsewhere_can_commit(world: Path) -> None:
    main = world / "main"
    (world / "project").rename(main)
    subprocess.run(["git", "-C", str(main), "worktree", "add", "-q", str(world / "project")], check=True)
    before = (main / ".git/config").read_bytes()
    text = await run(
        world,
        f"echo b > b.txt; git add .; git commit -qm second && git log --format=%s; git config a.b c; echo /tmp > {main}/.git/worktrees/project/commondir; cat {main}/a.txt",
    )
    assert "second\nfirst\n" in text
    assert (main / ".git/config").read_bytes() == before
    assert (main / ".git/worktrees/project/commondir").read_text() == "../..\n"
    assert "a.txt: No such file" in text


@pytest.mark.parametrize(
    "home", ["/var/someone", "/run/someone", "/home/agent", "/", "/etc/someone", "/opt/a/b", ""]
)
async def test_wherever_the_home_is_a_command_can_be_sealed(
    world: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    assert await run(world, "touch ~/x && cat a.txt") == "a\n[exit code 0]"
