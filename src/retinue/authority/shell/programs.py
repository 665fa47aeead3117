"""What programs do with their arguments, as far as rules for commands must know it. Tables, and no state.

Called by `allow` and `deny`. Some builtins evaluate their arguments once more, so that no pattern can say
what they run. Some programs run another one that stands in their arguments. Some have options that run a
program or write a file, which a person who allowed `git log*` did not think of. The tables hold what is
known and common: they keep a star from meaning too much, and allow nothing by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from retinue.authority.shell import compilers, databases, narrowed, scripts
from retinue.authority.shell.option_names import runs_by_name
from retinue.authority.shell.options import options_of, usual
from retinue.authority.shell.plain import names

EVALUATES = names("""
    . [ [[ alias autoload bind bg break builtin caller compgen complete compopt continue coproc declare dirs
    disown enable eval exec exit export fc fg functions getopts hash history
    integer jobs let local logout mapfile nameref popd print pushd
    read readarray readonly return set shift shopt source suspend test times trap typeset ulimit umask
    unalias unset wait
    """)
"""Builtins that evaluate their arguments, or change what later commands mean: only exact rules allow them."""

SHELLS = names("ash bash csh dash fish ksh mksh rbash sh tcsh yash zsh")

_READ_STDIN = SHELLS | names("""
    at batch bc crontab ed ex expect ghci irb julia lua mysql node osascript parallel patch perl php psql
    pwsh python python2 python3 R Rscript ruby sqlite3 tclsh xargs
    """)
"""Programs that take what they are to do from their input, where no argument says it."""

_READ_MORE = {
    **dict.fromkeys(("at", "batch"), r"-f"),
    **dict.fromkeys(("bc", "ed", "ex"), r"(?!)"),
    **dict.fromkeys(("mysql", "psql"), r"-[cef]|--(?:command|execute|file)"),
    "patch": r"-\w*i|--input",
}
"""Those to which a file or a name says nothing of that: what does."""

LOOKED_THROUGH = names("""
    ! { } builtin busybox bundle chroot chrt command conda coproc cpulimit dbus-run-session direnv do doas
    docker else elif env exec faketime firejail flock if ionice ltrace mise nice nix-shell nohup npx nsenter
    parallel pdm pipenv pkexec podman poetry proxychains pyenv rbenv rlwrap runuser rye screen script setarch
    setpriv setsid sg stdbuf strace su sudo systemd-run taskset tee then time timeout tmux toybox trap tsocks
    unbuffer unshare until uv uvx valgrind watch while xargs xvfb-run
    """)
"""Programs and words before a command: to deny that one, whatever follows them may be it."""

WRAPPERS = names("""
    bear builtin busybox bwrap caffeinate ccache cgexec choom chpst chronic chroot chrt command concurrently
    coproc cpulimit dbus-launch dbus-run-session distcc doas dumb-init eatmydata entr env exec fakeroot
    faketime firejail flock genv gnice gnohup gosu gstdbuf gtime gtimeout gxargs hyperfine ifne ionice
    linux32 linux64 ltrace nice nohup nsenter numactl parallel pkexec prlimit proxychains proxychains4
    rlwrap run0 runuser scan-build sccache screen script sem setarch setpriv setsid setuidgid sg softlimit
    ssh-agent stdbuf strace su su-exec sudo systemd-inhibit systemd-run taskset time timeout tini tmux
    torsocks toybox tsocks unbuffer unshare valgrind watch watchexec xargs xterm xvfb-run
    """)
"""Programs whose only work is to run another one: a rule must name that one too."""

READERS = names("""
    basename cat cksum cmp column comm cut df dirname du echo egrep expand false fgrep fold fmt grep head id
    jq ls md5sum nl od paste pwd readlink realpath rev seq sha1sum sha224sum sha256sum sha384sum sha512sum
    stat strings sum tac tail tr true uname unexpand wc whoami
    """)
"""Programs that no argument makes write a file or run another program."""

_MOVES = frozenset(("cd", "chdir", "pushd", "popd"))
_MOVES_WITH = READERS | _MOVES | {"find", "rg", "sed", "sort"}


_GIT_RUNS = names("""
    bisect bundle citool config credential cvsserver daemon diagnose difftool fast-export fast-import
    filter-branch for-each-repo gui help hook instaweb mailinfo mailsplit maintenance merge-index
    merge-one-file mergetool p4 remote-ext send-email shell submodule submodule--helper svn web--browse
    """)
_GIT_SHORT = {
    "archive": "o", "clone": "cu", "format-patch": "o", "grep": "O", "merge": "s", "pull": "s", "rebase": "xs"
}  # fmt: skip
_GIT_GLOBALS = frozenset(("--no-pager", "-P", "--version", "--no-optional-locks", "--literal-pathspecs"))
_GIT_FORMAT_RUNS = re.compile(r"%[-+ ]?G|%\(\*?(?:signature|describe)")
"""Placeholders for which git runs a program: gpg, or itself."""


def runs_or_writes(words: Sequence[str], free: Sequence[bool]) -> str:
    """The word that makes a program run another one or write a file; nothing where none is known to.

    Only words that are `free` are looked at: a rule that names such an option itself means it.
    """
    folder, _, name = words[0].rpartition("/")
    own = _OWN.get(name) or _OWN.get(usual(name))
    if own is not None and (found := own(words, free)):
        return found
    if name not in READERS | _NAMES_WITH_AT and (found := _options_file(words, free)):
        return found
    if found := narrowed.undone(name, words, free):
        return found
    options, commands = options_of(name), _RUN_WORDS.get(name, frozenset[str]())
    by_name = not (name in _TOLD | READERS or INTERPRETER.fullmatch(name) or _is_script(folder))
    for word, open_ in zip(words[1:], free[1:], strict=True):
        known = word in commands or (options is not None and options.has(word))
        if open_ and (known or (by_name and runs_by_name(word))):
            return word
    return ""


_RUN_WORDS = {
    "gh": names("alias extension"),
    "ip": names("exec"),
    "perf": names("ftrace kmem kwork lock mem record sched stat trace"),
    "tox": names("exec e"),
}
"""Commands of programs that run the words behind them, or keep them to be run."""
_TOLD = names("curl find gfind git gmake gsed gsort java make printf rg sed sort wget") | SHELLS
"""Programs of which the tables hold every option that counts, or to which a star gives any code."""
INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|Rscript|R|tclsh|julia)[\d.]*"
)
"""Programs that run code of a language. Their options and those of the code are not told apart by a name."""


def _is_script(folder: str) -> bool:
    """Whether a program of this folder is somebody's own: its options are for whoever allows it to know."""
    return bool(folder) and folder.rpartition("/")[2] not in ("bin", "sbin", ".bin")


def _git(words: Sequence[str], free: Sequence[bool]) -> str:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if free[at] and words[at] not in _GIT_GLOBALS:
            return words[at]
        at += 1 if words[at] not in ("-c", "-C") else 2
    if at >= len(words):
        return ""
    if free[at] and words[at] in _GIT_RUNS:
        return words[at]
    letters = _GIT_SHORT.get(words[at], "")
    for word, open_ in zip(words[at:], free[at:], strict=True):
        cluster = word[1:] if word.startswith("-") and not word.startswith("--") else ""
        runs = _GIT_FORMAT_RUNS.search(word) or word == "--help" or word.startswith("ext::")
        if open_ and (runs or any(each in cluster for each in letters)):
            return word
    return narrowed.git(words[at:], free[at:])


def _second_file(words: Sequence[str], free: Sequence[bool]) -> str:
    """The second file that it is given is written."""
    operands = [
        at
        for at, word in enumerate(words)
        if at and not word.startswith("-") and not (words[at - 1] in ("-f", "-s", "-w") and word.isdigit())
    ]
    return words[operands[1]] if len(operands) > 1 and free[operands[1]] else ""


_PYTEST_WRITES = re.compile(
    r"--[\w-]*(?:json|xml|html|svg|file|path|save|storage|update|inline-snapshot|log)"
)


def _pytest(words: Sequence[str], free: Sequence[bool]) -> str:
    """Tests of this folder: no code from elsewhere, and no file that an option names."""
    for word, open_ in zip(words, free, strict=True):
        elsewhere = word.startswith(("/", "~", "@")) or ".." in word.partition("::")[0].split("/")
        writes = _PYTEST_WRITES.match(word.partition("=")[0]) or re.match(r"--cov-report(?!=term)", word)
        if open_ and (elsewhere or writes) and word not in _PYTEST_TAME:
            return word
    return ""


_PYTEST_TAME = names("--log-cli --no-cov-on-fail --ignore-glob --log-level --log-cli-level")


def _make(words: Sequence[str], free: Sequence[bool]) -> str:
    return next((word for word, open_ in zip(words, free, strict=True) if open_ and "=" in word), "")


def _printf(words: Sequence[str], free: Sequence[bool]) -> str:
    """`-v` evaluates the name that it is given."""
    return words[1] if len(words) > 1 and free[1] and words[1].startswith("-") else ""


def _curl(words: Sequence[str], free: Sequence[bool]) -> str:
    """A format of what it tells at the end may name a file to write, or stand in a file itself."""
    free_words = (word for word, open_ in zip(words, free, strict=True) if open_)
    return next((word for word in free_words if "%output{" in word or re.match(_FORMAT_FILE, word)), "")


_FORMAT_FILE = re.compile(r"@|-\w+@|--w[\w-]*=@|--expand-")


def _date(words: Sequence[str], free: Sequence[bool]) -> str:
    """A bare number sets the clock."""
    for at, word in enumerate(words[1:], start=1):
        valued = re.fullmatch(r"-\w*[dfr]|--(?:date|file|reference)", words[at - 1])
        if free[at] and not valued and re.fullmatch(r"\d{8,12}(?:\.\d\d)?", word):
            return word
    return ""


def _options_file(words: Sequence[str], free: Sequence[bool]) -> str:
    """Options may stand in a file: compilers and checkers read them from `@file`."""
    return next((word for word, open_ in zip(words, free, strict=True) if open_ and word.startswith("@")), "")


_NAMES_WITH_AT = names("bun bunx date gh git glab hg jj npm npx pnpm yarn")
"""Programs to which `@x` is the name of something (a package, a commit, a person, a moment)."""


def _kubectl(words: Sequence[str], free: Sequence[bool]) -> str:
    """What it reads may lie at an address; what a kustomization names, too."""
    reads = re.compile(r".*://|-k|--k(?:u(?:s\w*)?)?(?:=|$)")
    return next((word for word, open_ in zip(words, free, strict=True) if open_ and reads.match(word)), "")


def _docker(words: Sequence[str], free: Sequence[bool]) -> str:
    """What it builds from its input is a program."""
    return "-" if "build" in words and any(w == "-" and f for w, f in zip(words, free, strict=True)) else ""


def _less(words: Sequence[str], free: Sequence[bool]) -> str:
    """What stands behind a `+` is typed for the person, and `!` runs a command."""
    return next((word for word, open_ in zip(words, free, strict=True) if open_ and word.startswith("+")), "")


def _tar(words: Sequence[str], free: Sequence[bool]) -> str:
    """Its first word is a bundle of letters, with a dash or without. For an archive elsewhere it runs ssh."""
    remote = (word for word, open_ in zip(words, free, strict=True) if open_ and re.match(r"[^/]*:", word))
    if found := next(remote, ""):
        return found
    first = words[1] if len(words) > 1 and free[1] else ""
    return first if not first.startswith("--") and any(each in first for each in "FIT") else ""


_OWN: dict[str, Callable[[Sequence[str], Sequence[bool]], str]] = {
    "git": _git,
    "curl": _curl,
    "date": _date,
    "docker": _docker,
    "gmake": _make,
    "kubectl": _kubectl,
    "less": _less,
    "more": _less,
    "zless": _less,
    "gsed": scripts.sed,
    "gtar": _tar,
    "json.tool": _second_file,
    "cargo": compilers.cargo,
    "cc": compilers.of_c,
    "cmake": compilers.cmake,
    "rustc": compilers.rustc,
    "vim": compilers.editor,
    "make": _make,
    "printf": _printf,
    "pytest": _pytest,
    "sed": scripts.sed,
    "sqlite3": databases.sqlite,
    "tar": _tar,
    "uniq": _second_file,
    "xxd": _second_file,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), scripts.awk),
    **dict.fromkeys(("mariadb", "mysql", "psql"), databases.client),
}


def takes_anything(program: str) -> bool:
    """Whether words that nobody knows yet may be handed to it."""
    return program in READERS


def moves(word: str) -> bool:
    """Whether a command of this name goes on in another folder."""
    return word in _MOVES


def may_move(programs: Sequence[str]) -> bool:
    """Whether these may run in another folder than the rules were written for.

    There `make test` is another one, and git runs what that folder's settings say.
    """
    return not any(each in _MOVES for each in programs) or _MOVES_WITH.issuperset(programs)


_RUNNERS = (
    re.compile(r"(?:python|pypy)[\d.]* -m"),
    re.compile(r"(?:uv|poetry|pdm|rye|hatch|pipenv|conda) run"),
    re.compile(r"(?:npm|pnpm|yarn|bundle) exec|npx|uvx|bunx"),
)


_RUNNER = re.compile(
    r"(?:python|pypy)[\d.]*|uvx?|poetry|pdm|rye|hatch|pipenv|conda|p?npm|yarn|bundle|npx|bunx"
)


def runs_others(name: str) -> bool:
    """Whether a program is there to run another one, or code that it is given."""
    return name in EVALUATES | _READ_STDIN | LOOKED_THROUGH | WRAPPERS or _RUNNER.fullmatch(name) is not None


def run_by(words: Sequence[str], named: int) -> set[int]:
    """Where the programs may stand whose options count: the first word, and what it runs, or what that runs.

    `named` is how many words the rule itself gives. Behind a runner or a wrapper each of them may be what it
    runs, since its options stand between the two (`uv run --frozen python -X dev -m pytest`).
    """
    name = words[0].rpartition("/")[2]
    runs = name in WRAPPERS or _RUNNER.fullmatch(name) is not None
    found = {0, *range(named if runs else 0)}
    for at in sorted(found):
        while step := _behind_runner(words[at:]):
            at += step
            found.add(at)
    return found


def _behind_runner(words: Sequence[str]) -> int:
    """Where the program stands that `python -m`, `uv run` and their like run, if that is the next word."""
    for count in (1, 2):
        if len(words) > count and any(
            each.fullmatch(" ".join(words[:count]).rpartition("/")[2]) for each in _RUNNERS
        ):
            return count
    return 0


def reads_program(words: Sequence[str]) -> bool:
    """Whether it would take what it is to do from its input."""
    name = words[0].rpartition("/")[2]
    operands = [word for word in words[1:] if not word.startswith("-")]
    said = bool(operands) and not {"-", "/dev/stdin", "-s"} & set(words[1:])
    if name in _READ_MORE:
        said = any(re.match(_READ_MORE[name], word) for word in words[1:])
    elif name == "sqlite3":
        said = len(operands) > 1
    return (
        name in _READ_STDIN or re.fullmatch(r"(?:python|pypy|perl|ruby|lua)[\d.]+", name) is not None
    ) and not said


_DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")


def wrapped(words: Sequence[str]) -> int:
    """Where the command begins that a wrapper runs, for the wrappers that do nothing else; 0 if unknown."""
    at = 1
    program = words[0]
    if program == "time":
        at += words[1:2] == ["-p"]
    elif program == "timeout":
        while at < len(words) and words[at].startswith("-"):
            if words[at] in ("-k", "-s") and at + 1 < len(words):
                at += 1
            elif words[at] not in ("--foreground", "--preserve-status", "-v", "--verbose"):
                return 0
            at += 1
        if at >= len(words) or not _DURATION.fullmatch(words[at]):
            return 0
        at += 1
    elif program == "nice":
        if words[1:2] == ["-n"] and len(words) > 2 and re.fullmatch(r"-?\d+", words[2]):
            at = 3
    elif program == "stdbuf":
        while at < len(words) and re.fullmatch(r"-[ioe](?:L|\d+)", words[at]):
            at += 1
    elif program not in ("command", "env", "nohup"):
        return 0
    if at >= len(words) or words[at].startswith("-") or "=" in words[at]:
        return 0
    return at


_GIT_SAME = names("--no-pager -P --no-optional-locks")


def git_command(words: Sequence[str]) -> int:
    """How many words behind `git` change nothing of what it does here: `--no-pager`, `-C .`."""
    at = 1
    while words[0] == "git" and at < len(words):
        if words[at] in _GIT_SAME:
            at += 1
        elif words[at] == "-C" and words[at + 1 : at + 2] in (["."], ["./"]):
            at += 2
        else:
            break
    return at - 1


def does_nothing(words: Sequence[str]) -> bool:
    """Whether a command only says yes or no: what stands behind `||`, mostly."""
    return list(words) in (["true"], ["false"], [":"])


def named_inside(words: Sequence[str]) -> int:
    """Where the program stands that a rule's wrapper runs, as far as the rule itself names it; 0 if not.

    `sudo -u root systemctl` names one; `timeout 60` names none, so that its star must not stand for one.
    """
    at = 0
    while words[at].rpartition("/")[2] in WRAPPERS:
        at += 1
        while at < len(words) and (
            words[at].startswith("-")
            or words[at - 1].startswith("-")
            or _DURATION.fullmatch(words[at])
            or "=" in words[at]
        ):
            at += 1
        if at >= len(words):
            return 0
    return at


def xargs_command(words: Sequence[str]) -> int:
    """Where the command begins that xargs runs for what it reads; 0 if that is not known for sure."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] in ("-n", "-P", "-L", "-d") or words[at : at + 2] == ["-I", "{}"]:
            at += 1
        elif not re.fullmatch(r"-0|-r|-t|-[nPL]\d+|-I\{\}|--null|--no-run-if-empty", words[at]):
            return 0
        at += 1
    return at if at < len(words) and "{}" not in words[at] else 0
