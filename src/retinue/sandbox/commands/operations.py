"""What git has under way in a repository (a rebase, a merge, a bisect …), and what of it is not harmless.

Git goes on from files in its folder, and some of them name programs: steps of a rebase, a strategy that is a
program of that name, options of `git apply`. Others may come with a new git, so this knows the files that do
no harm and how they look, and tells of all others. For `leftovers`, before and after a sealed command. Reads
what a command may have written: nothing is believed, no link is followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from retinue.sandbox.commands.repositories import ASIDE, make_accessible, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 1_000_000
"""Bytes of a file whose lines are looked at."""
_OBJECTS = re.compile(r"objects/[0-9a-f]{2}|modules|worktrees")
"""Objects, and what no command can write to."""
FOLDERS = frozenset({"rebase-merge", "rebase-apply", "sequencer"})
_STATE = re.compile(r"(?:MERGE|BISECT|CHERRY_PICK|REVERT|REBASE|AUTO|SQUASH)_\w*|rebase\b.*|sequencer\b.*")
"""Names in a folder of git for what is under way; everything else there is of no concern here."""
_CHANGING = frozenset({b""})
"""Stands for the lines of what is never as it was: a link, a folder where a file should be."""

_NOTHING = re.compile(rb"(?!)")
_PLAIN = re.compile(rb"(?!-)[\w./+:@{}~^, \t\x80-\xff-]*")
"""A commit, a number, the name of a branch: not an option."""
_TODO = re.compile(
    rb"[ \t]*(?:(?:pick|p|reword|r|edit|e|squash|s|fixup|f|break|b|drop|d|noop|label|l|reset|t|merge|m|"
    rb"update-ref|u|revert)(?:[ \t][^\0]*)?|[#;@!$%^&|:][^\0]*)?\r?"
)
_STRATEGY = rb"(?:ort|recursive|resolve|octopus|ours|subtree)"
_STRATEGY_OPTION = rb"(?:--)?[a-z]+(?:-[a-z]+)*(?:=[\w%/-]*)?"
_OPTS = re.compile(
    rb"\[options\]|\s*(?:[a-z-]+ = (?:true|false|\d+)|strategy = %b|strategy-option = %b|"
    rb"default-msg-cleanup = [a-z]+|gpg-sign = [0-9A-Fa-f]*)?" % (_STRATEGY, _STRATEGY_OPTION)
)
_APPLY = re.compile(
    rb"\s*(?:'(?:--whitespace=[\w-]+|-[Cp]\d+|--ignore-space-change|--ignore-whitespace|--3way|--reject|"
    rb"--directory=\w[\w/-]*)'\s*)*"
)
_AUTHOR = re.compile(rb"(?:GIT_AUTHOR_(?:NAME|EMAIL|DATE)='[^'\0]*(?:'\\''[^'\0]*)*')?")
_QUOTED = re.compile(rb"(?:\s*'[^'\0]*(?:'\\''[^'\0]*)*')*\s*")


_KNOWN: dict[str, re.Pattern[bytes] | None] = {
    **dict.fromkeys(
        str.split("""
        MERGE_HEAD MERGE_MODE MERGE_AUTOSTASH AUTO_MERGE CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD BISECT_HEAD
        BISECT_START BISECT_TERMS BISECT_EXPECTED_REV BISECT_ANCESTORS_OK BISECT_FIRST_PARENT
        """),
        _PLAIN,
    ),
    **dict.fromkeys(str.split("MERGE_MSG MERGE_RR SQUASH_MSG BISECT_LOG BISECT_RUN rebased-patches")),
    "BISECT_NAMES": _QUOTED,
}
"""How each line of a file looks that makes git run nothing; None: as it likes."""
_KNOWN_INSIDE: dict[str, re.Pattern[bytes] | None] = {
    **dict.fromkeys(
        str.split("""
        onto orig-head head-name head end msgnum interactive quiet verbose amend stopped-sha
        squash-onto drop_redundant_commits keep_redundant_commits reschedule-failed-exec
        no-reschedule-failed-exec cdate_is_adate ignore_date autostash update-refs refs-to-delete dropped
        next last applying rebasing threeway sign utf8 keep scissors messageid quoted-cr no-inbody-headers
        abort-safety dirtyindex original-commit current-fixups rewritten rewritten-list rewritten-pending
        """),
        _PLAIN,
    ),
    **dict.fromkeys(
        str.split(
            "message message-squash message-fixup fixup-message patch patch-merge-index done final-commit "
            "msg msg-clean info"
        )
    ),
    **dict.fromkeys(("git-rebase-todo", "git-rebase-todo.backup", "todo"), _TODO),
    "opts": _OPTS,
    "strategy": re.compile(rb"%b?" % _STRATEGY),
    "strategy_opts": re.compile(rb"(?:\s*'?%b'?)*\s*" % _STRATEGY_OPTION),
    "gpg_sign_opt": re.compile(rb"(?:-S[0-9A-Fa-f]*)?"),
    "allow_rerere_autoupdate": re.compile(rb"(?:--(?:no-)?rerere-autoupdate)?"),
    "signoff": re.compile(rb"(?:--signoff)?"),
    "apply-opt": _APPLY,
    "author-script": _AUTHOR,
}
_MAIL = re.compile(r"\d{4,9}")


def harmful(git: str) -> dict[str, frozenset[bytes]]:
    """What is under way in a folder of git and not known to be harmless: by path in there, the lines that

    are not. What was there before with the same lines is a person's.
    """
    found: dict[str, frozenset[bytes]] = {}
    for name in _listed(git) or ():
        if not _STATE.fullmatch(name) or ASIDE in name:
            continue
        if name not in FOLDERS:
            found[name] = _lines(f"{git}/{name}", name, _KNOWN)
            continue
        inner = _listed(f"{git}/{name}")
        if inner is None:
            found[name] = _CHANGING
        for file in inner or ():
            if ASIDE not in file:
                known = {file: None} if _MAIL.fullmatch(file) else _KNOWN_INSIDE
                found[f"{name}/{file}"] = _lines(f"{git}/{name}/{file}", file, known)
    return {path: lines for path, lines in found.items() if lines}


def harmful_since(before: dict[str, frozenset[bytes]], git: str) -> list[str]:
    """The paths in a folder of git of what has become harmful since then."""
    return [
        path
        for path, lines in harmful(git).items()
        if lines == _CHANGING or not lines <= before.get(path, frozenset())
    ]


def links(git: str) -> dict[str, tuple[int, int]]:
    """The symbolic links in a folder of git, each with what it is known again by. Git writes through them.

    `COMMIT_EDITMSG`, a reflog, the index, a folder of objects: whatever a person does next would change a
    file elsewhere. Objects themselves are never written to again.
    """
    found: dict[str, tuple[int, int]] = {}
    folders = [""]
    while folders:
        above = folders.pop()
        with contextlib.suppress(OSError):  # gone since it was listed
            if not os.access(f"{git}/{above}", os.R_OK | os.X_OK):
                make_accessible(f"{git}/{above}")
            with os.scandir(f"{git}/{above}") as entries:
                for entry in entries:
                    path = f"{above}{entry.name}"
                    if entry.is_symlink() and ASIDE not in entry.name:
                        status = entry.stat(follow_symlinks=False)
                        found[path] = status.st_ino, status.st_ctime_ns
                    elif entry.is_dir(follow_symlinks=False) and not _OBJECTS.fullmatch(path):
                        folders.append(f"{path}/")
    return found


def _lines(path: str, name: str, known: Mapping[str, re.Pattern[bytes] | None]) -> frozenset[bytes]:
    try:
        found = os.lstat(path)
    except OSError:  # gone since it was listed
        return frozenset()
    if not stat.S_ISREG(found.st_mode):
        return _CHANGING
    look = known.get(name, _NOTHING)
    if look is None:
        return frozenset()
    if found.st_size >= MOST or not os.access(path, os.R_OK):
        return _CHANGING
    text = text_of(path, MOST)
    return frozenset(line for line in text.split(b"\n") if not look.fullmatch(line)) or (
        frozenset({b"unknown"}) if look is _NOTHING else frozenset()
    )


def _listed(folder: str) -> list[str] | None:
    """None for what is no folder. One that a command has closed is opened: git needs no list of it."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return None
        if not os.access(folder, os.R_OK | os.X_OK):
            make_accessible(folder)
        return sorted(os.listdir(folder))
    except OSError:
        return None
