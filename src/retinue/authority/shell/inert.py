"""Which commands are known to run nothing else, whatever their words are. Tables, and no state.

Called by `runs`. To a program that stands here a text is a text, so that a deny rule need not look into it.
Every other program may run its words, or one of them as code: what is not known to be harmless counts as
not harmless. A program that is missing here costs a question now and then; one that should not be here
costs a rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.authority.shell import programs
from retinue.authority.shell.known import GAP, known, ways
from retinue.authority.shell.plain import Simple, Word, names

_ONLY_SAYS = programs.READERS | names("""
    : arch b2sum base32 base64 break cal cd chgrp chmod chown clear continue cp date dirs exit false file
    free getconf getent groups gunzip gzip hexdump hostname ifconfig join kill killall ln locale logname
    look lsblk lscpu lsof mkdir mkfifo mktemp mv netstat nproc numfmt pathchk pgrep pidof ping pkill popd
    printenv printf ps ptx pushd return rm rmdir shasum shift shuf sleep ss stty sync tee test touch tput
    truncate tsort tty type umask uniq unlink unset uptime users vmstat w wait which who xxd zcat [ [[
    """)
"""No word makes one of them run another program."""

_WITH_OPTIONS = names("ack ag bat curl diff fd fdfind find mypy pytest rg ruff sort tar tree wget yq zip")
"""The same but for options that `programs` knows."""

_COMMANDS = {
    "docker": names("""
        build cp diff history images info inspect kill load login logout logs network port ps pull push
        restart rm rmi save start stats stop system tag top version volume
        """),
    "gh": names("issue label pr release run search workflow"),
    "git": names("""
        add apply blame clone push branch bundle cat-file check-ignore checkout cherry cherry-pick clean
        commit count-objects describe diff diff-tree fetch for-each-ref format-patch fsck gc grep
        hash-object init log ls-files ls-remote ls-tree merge merge-base mv name-rev notes prune pull
        range-diff rebase reflog remote reset restore rev-list rev-parse revert rm shortlog show show-branch
        show-ref stash status switch symbolic-ref tag update-index update-ref var verify-commit version
        worktree
        """),
    "kubectl": names("apply delete describe get logs rollout scale top version"),
}
"""Programs of many commands, with those that run none of their words. Hooks and settings are files."""

_GIT_OTHERS = names("""
    am archive bisect bugreport citool config credential daemon difftool fast-export fast-import
    filter-branch fmt-merge-msg gui help imap-send instaweb interpret-trailers ls-remote maintenance
    mergetool merge-file merge-tree multi-pack-index pack-objects pack-refs read-tree receive-pack replace
    request-pull rerere send-email sparse-checkout stripspace submodule unpack-objects update-server-info
    upload-pack verify-pack verify-tag whatchanged write-tree commit-tree commit-graph diff-files diff-index
    check-attr check-mailmap check-ref-format checkout-index mktag mktree patch-id lfs annotate archimport
    cvsimport p4 svn quiltimport
    """)


def inner(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """What a wrapper runs that does nothing else."""
    texts = [word.text if word.literal else "" for word in words]
    while texts and (
        at := programs.wrapped(texts) or (texts[0] == "xargs" and programs.xargs_command(texts))
    ):
        words, texts = words[at:], texts[at:]
    return words


def inert(words: Sequence[Word], *, composes: bool) -> bool:
    """Whether none of these words can run. `composes`: what is not known in them may be anything."""
    texts = [known(word) for word in words]
    if not texts or GAP in texts[0]:
        return False
    name = texts[0].rpartition("/")[2]
    if composes and name not in _ONLY_SAYS and any(GAP in each for each in texts):
        return False
    return all(_inert(name, each[1:]) for each in ways(texts))


def _inert(name: str, rest: list[str]) -> bool:
    if name in _ONLY_SAYS:
        return not (name == "printf" and sets_name(rest))
    if name == "set":
        return all(re.fullmatch(r"[-+][a-z]+|pipefail|errexit|nounset|xtrace", each) for each in rest)
    if name in ("sed", "gsed"):
        return not sed_runs(rest)
    at = head(name, rest)
    if name in _COMMANDS:
        return at > 0 and not _runs([name, *rest[at - 1 :]])
    return (name in _WITH_OPTIONS or name in _AWKS) and not _runs([name, *rest])


def _runs(texts: list[str]) -> bool:
    return bool(programs.runs_or_writes(texts, [True] * len(texts)))


_AWKS = names("awk gawk mawk nawk")


def head(name: str, rest: Sequence[str]) -> int:
    """How many words name one of a program's harmless commands, options included; 0 if it is none of them."""
    at = 0
    if name == "git":
        while rest[at : at + 1] and (rest[at] in ("-P", "--no-pager") or rest[at] == "-C"):
            at += 1 if rest[at] != "-C" else 2
    return at + 1 if rest[at : at + 1] and rest[at] in _COMMANDS.get(name, ()) else 0


def is_alias(words: Sequence[Word]) -> bool:
    """Whether git is asked for something that is none of its commands: settings say what that runs."""
    operands = [known(word) for word in words[1:]]
    at = 0
    while at < len(operands) and operands[at].startswith("-"):
        at += 2 if operands[at] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") else 1
    if at >= len(operands) or GAP in operands[at]:
        return False
    return operands[at] not in _COMMANDS["git"] | _GIT_OTHERS and operands[at].isascii()


def sets_name(rest: Sequence[str]) -> bool:
    """Whether `printf` may be told to set a variable, whose name it evaluates: `-v` first, or behind what may
    come to nothing; or a first word that may be `-v` before one that would be evaluated."""
    for each in rest:
        bare = each.replace(GAP, "")
        if bare.startswith("-v") or (bare == "-" and GAP in each):
            return True
        if bare:
            break
    return bool(rest) and GAP in rest[0][:2] and any(re.search(r"\[.*[$`]", each) for each in rest[1:])


def is_interpreter(word: Word) -> bool:
    """Whether a program runs code of a language that is not the shell's."""
    name = known(word).rpartition("/")[2]
    return programs.INTERPRETER.fullmatch(name) is not None or name in _AWKS or name in ("sed", "gsed")


def runs_unknown_code(simple: Simple) -> bool:
    """Whether an interpreter is given code that is not known to the letter."""
    texts = [known(word) for word in simple.words]
    name, rest = texts[0].rpartition("/")[2], texts[1:]
    if name in _AWKS:
        code = next(
            (at for at, each in enumerate(rest) if not each.startswith("-") and rest[at - 1] != "-v"), None
        )
        return code is not None and GAP in rest[code]
    if not programs.INTERPRETER.fullmatch(name):
        return False
    if simple.given and not any(not each.startswith("-") for each in rest):
        return True
    for at, each in enumerate(rest):
        if re.match(r"-[A-Za-z]*[ceErp]|--eval|--print|--execute", each):
            return GAP in each or any(GAP in after for after in rest[at + 1 : at + 2])
        if not each.startswith("-"):
            return False
    return False


_NAMED_DATA = names("docker git kubectl npm npx patch pnpm yarn pytest")


def reads_code(simple: Simple) -> bool:
    """Whether a command may take what it is to do from its input. With a script of its own it does not."""
    texts = [known(word) for word in simple.words]
    name = texts[0].rpartition("/")[2]
    if name in _NAMED_DATA or name in programs.LOOKED_THROUGH:
        return False
    return not (programs.INTERPRETER.fullmatch(name) and any(not each.startswith("-") for each in texts[1:]))


_BRACKET = r"\[\^?(?:\[:\w+:\]|[^\[\]/|#,:@!%\\\n])+\]"  # whether a delimiter in it counts, readers differ
_PART = rf"(?:(?!{{end}})[^\\\n\[]|\\.|{_BRACKET})*"
_S_COMMAND = re.compile(
    r"s([^\w\s\\])"
    + _PART.replace("{end}", r"\1")
    + r"\1"
    + _PART.replace("{end}", r"\1")
    + r"\1([gpIiMm0-9]*)(?:w [^\n;]*)?",
    re.S,
)
_SED_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\.|{_BRACKET})*/[IM]*)"
_SED_COMMAND = re.compile(
    rf"[\s;{{}}]*(?:{_SED_ADDRESS}(?:\s*,\s*(?:{_SED_ADDRESS}|[+~]\d+))?)?\s*!?\s*", re.S
)
_SED_OTHERS = re.compile(
    r"[pdPDGHhgxNnlz=F]|[qQ]\d*|y/(?:[^/\\]|\\.)*/(?:[^/\\]|\\.)*/|[aic](?:[^\n\\]|\\.)*"
    r"|[rRwW] ?[^\n;]*|[bt]\s*\w*|:\s*\w+|#[^\n]*",
    re.S,
)


_SED_OPTION = re.compile(
    r"-[nErsuz]*(?:i(?:\.\w+)?)?|--in-place(?:=\.\w+)?"
    r"|--(?:quiet|silent|regexp-extended|separate|unbuffered|null-data|posix|sandbox|debug)"
)
"""Options that take no further word. Others do, or begin a longer one: what they hide is not read."""


def sed_runs(rest: Sequence[str]) -> bool:
    """Whether sed may run what it reads: its scripts are not all of commands that are known not to (`e`)."""
    scripts: list[str] = []
    at = 0
    while at < len(rest):
        word = rest[at]
        if word in ("-e", "--expression"):
            scripts += rest[at + 1 : at + 2]
            at += 1
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif word.startswith("-") and word != "-":
            if not _SED_OPTION.fullmatch(word):
                return True
        elif not scripts:
            scripts.append(word)
        at += 1
    return not all(map(_tame, scripts))


def _tame(script: str) -> bool:
    """A gap in a script is taken for a text in it, which the rest of the command is then searched for."""
    at = 0
    while at < len(script):
        before = at
        if match := _SED_COMMAND.match(script, at):
            at = match.end()
        if script[at : at + 1] == "{":
            at += 1
            continue
        if match := _S_COMMAND.match(script, at) or _SED_OTHERS.match(script, at):
            at = match.end()
        elif at == len(script):
            return True
        if at == before or (at < len(script) and not re.match(r"[ \t]*(?:[;\n}]|$)", script[at:])):
            return False
        at += len(script[at:]) - len(script[at:].lstrip(" \t"))
    return True
