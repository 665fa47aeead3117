"""Git as we call it ourselves: nothing of a repository is run, and nobody's settings count.

No hooks, no filters (only commands that have none), no monitors, no pagers, no network. Called by `ignored`
to ask which names are ignored, and by `engine.worktrees` for branches and merges of three texts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from retinue.programs import find_program, path_outside

_NOTHING_RUNS = tuple(
    word
    for name, value in {
        "core.hooksPath": os.devnull,
        "core.fsmonitor": "false",
        "core.untrackedCache": "false",
        "core.pager": "cat",
        "core.sshCommand": "false",
        "core.askPass": "false",
        "core.attributesFile": os.devnull,
        "commit.gpgSign": "false",
        "gc.auto": "0",
        "maintenance.auto": "false",
        "protocol.allow": "never",
        "submodule.recurse": "false",
    }.items()
    for word in ("-c", f"{name}={value}")
)

_COMMITTER = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in {"NAME": "Retinue", "EMAIL": "retinue@localhost"}.items()
}


SECONDS = 30.0
"""How long one command of git may take."""
MOST_ENTRIES = 5000
"""Entries of a folder of git that are looked at before git is: what lies behind them, its time bounds."""


class GitFailed(Exception):
    """What git said."""


def has_git(*projects: Path) -> bool:
    """Whether there is one that does not lie in these folders."""
    return find_program("git", *projects) is not None


def environment(more: Mapping[str, str], *projects: Path | str | None) -> dict[str, str]:
    return {
        "PATH": path_outside(*projects),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "HOME": os.devnull,
        "LC_ALL": "C",
        **more,
    }


def waits_for(folder: Path) -> str:
    """What git would wait for in the repository of a folder before it does anything: a pipe or a device in
    the place of a file, in words. Empty if there is none. Opens nothing but files that lead to a `.git`."""
    for above in (folder, *folder.parents):
        place = above / ".git"
        if place.is_file():  # of a linked work tree, or a submodule
            place = above / _told(place).removeprefix("gitdir:").strip()
        elif not place.is_dir():
            if not all((above / name).is_dir() for name in ("objects", "refs")):
                continue
            place = above  # a bare one
        common = place / (_told(place / "commondir") or ".") if (place / "commondir").is_file() else place
        beside = (above / name for name in (".gitignore", ".gitattributes", ".gitmodules", ".mailmap"))
        for path in (*beside, *(path for each in dict.fromkeys((place, common)) for path in _entries(each))):
            with contextlib.suppress(OSError, ValueError):
                kind = path.stat().st_mode
                if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                    return f"{path} is {'a pipe' if stat.S_ISFIFO(kind) else 'not a regular file'}"
        return ""
    return ""


def _told(path: Path) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return os.fsdecode(file.read(4096).strip())
    return ""


def _entries(git: Path) -> Iterator[Path]:
    """What git opens by its name in a folder of its own: whatever lies there but hooks, logs and objects."""
    ahead = [git, git / "info", git / "objects" / "info", git / "refs"]
    seen = 0
    while ahead:
        folder = ahead.pop(0)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                seen += 1
                if seen > MOST_ENTRIES:
                    return
                if not entry.is_dir(follow_symlinks=False):
                    if not entry.is_file(follow_symlinks=False):
                        yield Path(entry.path)
                elif folder != git and folder.is_relative_to(git / "refs"):
                    ahead.append(Path(entry.path))


def git(
    folder: Path,
    *words: str,
    feed: bytes = b"",
    codes: tuple[int, ...] = (0,),
    env: Mapping[str, str] | None = None,
    project: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command of git in a folder. `codes` are no failures; `env` comes on top.

    It is no git that lies in the folder, in the one that it is a work tree of, or in `project`.
    """
    common = (env or {}).get("GIT_COMMON_DIR")
    theirs = (folder, project, os.path.dirname(common) if common else None)
    found = find_program("git", *theirs)
    if found is None:
        raise GitFailed("git is not installed")
    if why := "" if env and "GIT_DIR" in env else waits_for(folder):
        raise GitFailed(f"git would wait: {why}")
    try:
        ended = subprocess.run(
            [found, *_NOTHING_RUNS, *words],
            input=feed,
            capture_output=True,
            cwd=folder,
            env=environment(env or {}, *theirs),
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:  # it may wait for a pipe that stands where it looks for a file
        raise GitFailed(f"git {words[0]} took longer than {SECONDS:g} s") from None
    if ended.returncode not in codes:
        raise GitFailed(ended.stderr.decode("utf-8", "replace").strip() or f"git {words[0]} failed")
    return ended


def global_excludes(project: Path) -> Path | None:
    """The file of names that this person ignores everywhere. Their settings are read for nothing else."""
    home = os.environ.get("HOME", "")
    if not home:
        return None
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    files = os.environ.get("GIT_CONFIG_GLOBAL")
    for file in [files] if files else [f"{home}/.gitconfig", f"{config}/git/config"]:
        words = ("config", "--file", file, "--includes", "--type=path", "--get", "core.excludesFile")
        if not os.path.isfile(file):
            continue
        said = git(Path("/"), *words, codes=tuple(range(256)), env={"HOME": home}, project=project).stdout
        if said.strip():
            return Path(home, os.fsdecode(said.rstrip(b"\n")))
    return Path(config, "git", "ignore")


def empty_repository(folder: Path) -> Path:
    """A repository that knows nothing, for commands that want one."""
    if not (folder / "HEAD").exists():
        for each in (folder, folder / "objects", folder / "refs"):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
    return folder


def merge_texts(ours: bytes, base: bytes, theirs: bytes, scratch: Path, project: Path) -> tuple[bytes, int]:
    """Three texts of a project as one, and how many conflicts are marked in it."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = ("project", "before", "child")
    for name, data in zip(names, (ours, base, theirs), strict=True):
        (scratch / name).write_bytes(data)
    ended = git(
        scratch,
        *("merge-file", "-p", "--diff3"),
        *(word for name in names for word in ("-L", name)),
        *names,
        codes=tuple(range(128)),
        env={"GIT_DIR": str(empty_repository(scratch / "git"))},
        project=project,
    )
    return ended.stdout, ended.returncode


_Git = Callable[..., subprocess.CompletedProcess[bytes]]


def commit_files(
    target: Path,
    branch: str,
    paths: Iterable[str],
    message: str,
    *,
    env: Mapping[str, str],
    unless_new: Callable[[str], bool],
) -> None:
    """What these files are, as one more commit of a branch, if it is anything new. No filter is run.

    `unless_new` says which paths are not committed unless the last commit has them already.
    """
    run, tip = partial(git, target, env={**env, **_COMMITTER}), f"refs/heads/{branch}"
    if run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).stdout.decode().strip() != tip:
        # Somebody works on another branch there, and has an index for that: it is left alone.
        apart = str(Path(env["GIT_DIR"]) / "index-of-branch")
        run = partial(git, target, env={**env, **_COMMITTER, "GIT_INDEX_FILE": apart})
        run("read-tree", tip)
    listed = _listed(run, tip)
    lines: list[bytes] = []
    files: list[tuple[bytes, bytes]] = []
    for path in paths:
        here, name = target / path, os.fsencode(path)
        if name not in listed and unless_new(path):
            continue
        if here.is_symlink():
            data = os.fsencode(os.readlink(here))
            sha = run("hash-object", "-w", "--no-filters", "--stdin", feed=data).stdout.strip()
            lines.append(b"120000 " + sha + b"\t" + name)
        elif here.is_file():
            mode = b"100755 " if os.access(here, os.X_OK) else b"100644 "
            if listed.get(name) != (mode.strip(), _blob(here.read_bytes())):
                files.append((mode, name))
        elif name in listed:
            lines.append(b"0 " + b"0" * 40 + b"\t" + name)
    if files:
        names = b"".join(_quoted(name) + b"\n" for _, name in files)
        shas = run("hash-object", "-w", "--no-filters", "--stdin-paths", feed=names).stdout.split()
        pairs = zip(files, shas, strict=True)
        lines += [mode + sha + b"\t" + name for (mode, name), sha in pairs]
    if lines:
        run("update-index", "-z", "--index-info", feed=b"\0".join(lines) + b"\0")
    tree = run("write-tree").stdout.decode().strip()
    parent = run("rev-parse", tip).stdout.decode().strip()
    if tree == run("rev-parse", f"{parent}^{{tree}}").stdout.decode().strip():
        return
    made = run("commit-tree", tree, "-p", parent, "-m", message).stdout.decode().strip()
    run("update-ref", tip, made, parent)


def _quoted(name: bytes) -> bytes:
    """A name as git reads it from a line: it takes quotes off, and ends at the line's end."""
    if not name.startswith(b'"') and b"\n" not in name:
        return name
    return b'"' + b"".join(b"\\%03o" % byte for byte in name) + b'"'


def _listed(run: _Git, tip: str) -> dict[bytes, tuple[bytes, bytes]]:
    """What the last commit of a branch holds: mode and hash by name."""
    found: dict[bytes, tuple[bytes, bytes]] = {}
    for line in run("ls-tree", "-r", "-z", tip).stdout.split(b"\0"):
        facts, _, name = line.partition(b"\t")
        if name:
            mode, _, sha = facts.split(b" ")
            found[name] = (mode, sha)
    return found


def _blob(data: bytes) -> bytes:
    """The hash by which git knows a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest().encode()
