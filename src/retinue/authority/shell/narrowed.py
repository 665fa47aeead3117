"""Words under a star that undo what a rule says: `bash -n` is to read a script, and `+n` runs it.

Called by `programs` and `allow` for rules that name more than a program. A rule that names an option means
what the program does with it: words that take the option back, or that make the program do something else
beside it, are not meant. A rule for a program alone (`bash *`) says nothing that could be undone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from retinue.authority.shell.plain import names

Words = Sequence[str]
Free = Sequence[bool]


def takes_back(texts: Words, free: Free) -> str:
    """The word under a star that undoes an option of the rule, or says it once more and otherwise.

    `git branch --list --no-list -D x`, `kubectl apply --dry-run=client --dry-run=none`, `bash -n +n x`.
    """
    said = [text for text, open_ in zip(texts, free, strict=True) if not open_ and text.startswith("-")]
    long = {_name(text) for text in said if _name(text)[1:]}
    letters = {letter for text in said if re.fullmatch(r"-[A-Za-z]+", text) for letter in text[1:]}
    return _first(texts, free, lambda text: _undoes(text, long, letters))


def _undoes(text: str, long: set[str], letters: set[str]) -> bool:
    if re.fullmatch(r"\+[A-Za-z]+", text):
        return not letters.isdisjoint(text[1:])
    name = _name(text)
    if not name or not text.startswith("-"):
        return False
    if text.startswith("--no") and _is_taken_back(name.removeprefix("no"), long, letters):
        return True
    again = text.startswith("--") or "=" in text
    return again and (name in letters or (len(name) > 1 and any(each.startswith(name) for each in long)))


def _is_taken_back(name: str, long: set[str], letters: set[str]) -> bool:
    if not name:
        return False
    dry = "n" in letters and "dryrun".startswith(name)
    return dry or name[0] in letters or any(each.startswith(name) for each in long)


def _name(text: str) -> str:
    """The name of an option in one spelling: `--dry-run=x` and `--dryRun` are the same to many programs."""
    return text.lstrip("-").partition("=")[0].replace("-", "").lower() if text.startswith("-") else ""


def undone(name: str, words: Words, free: Free) -> str:
    """The word that makes a program do something else than a rule with words says; nothing if none does."""
    own = _OWN.get(name)
    return own(words, free) if own is not None and not all(free[1:]) else ""


def _shell(words: Words, free: Free) -> str:
    """Options before the script: none but those that change nothing about what is run."""
    for word, open_ in zip(words[1:], free[1:], strict=True):
        if not word.startswith(("-", "+")) or word in ("-", "--"):
            return ""
        if open_ and not re.fullmatch(r"-[efnuvx]+|--norc|--noprofile|--version|--help", word):
            return word
    return ""


def _interpreter(words: Words, free: Free) -> str:
    """Options before the script that bring code along: `ruby -c -r ./x`, `node --check -r ./x`."""
    for word, open_ in zip(words[1:], free[1:], strict=True):
        if not word.startswith("-") or word in ("-", "--"):
            return ""
        if open_ and not re.fullmatch(r"-[wWTtuvcn]+|--version|--help|--warnings", word):
            return word
    return ""


_MODES = re.compile(r"-\w*[cdkfzo]|--(?:d|c|z|s|u|k|f|rm|o)")


def _packer(words: Words, free: Free) -> str:
    """The last of several modes counts: `xz -l -d x` unpacks."""
    return _first(words, free, _MODES.match)


_UNZIP_TAME = re.compile(r"-[qv1hC]+")


def _unzip(words: Words, free: Free) -> str:
    """A second dash takes any option back (`--l`, `-q-l`)."""
    return _first(words, free, lambda word: word.startswith("-") and not _UNZIP_TAME.fullmatch(word))


_GIT_LISTS = re.compile(
    r"--(?:list|contains|no-contains|merged|no-merged|points-at|show-current)(?:=.*)?|-[a-z]*l[a-z]*"
)
_GIT_NOT_LISTED = {
    "branch": (
        "copy create-reflog delete edit-description force move set-upstream-to track unset-upstream",
        "cCdDfmMtu",
    ),
    "tag": (
        "annotate cleanup create-reflog delete edit file force local-user message sign trailer verify",
        "adefFmsuv",
    ),
}
"""What changes a branch or a tag, beside an option that lists them."""
_GIT_KINDS = names("""
    bisect bundle commit-graph lfs maintenance multi-pack-index notes reflog remote rerere sparse-checkout
    stash submodule worktree
    """)
"""Commands with commands of their own."""
_GIT_KINDS_TELL = {"remote": names("show get-url"), "reflog": names("show list exists HEAD")}
_GIT_GETS = re.compile(r"--get(?:-all|-regexp|-urlmatch|-color|-colorbool)?|--list|-l|get|list")
_GIT_SETS = names("""
    add comment default-set e edit remove-section rename-section replace-all unset unset-all
    """)


def git(words: Words, free: Free) -> str:
    """A git command, from its own name on, whose rule says more than that name."""
    if not words or all(free[1:]) or free[0]:
        return ""
    command, said = words[0], [word for word, open_ in zip(words, free, strict=True) if not open_][1:]
    operands = [
        word for word, open_ in zip(words[1:], free[1:], strict=True) if open_ and not word.startswith("-")
    ]
    if command in _GIT_NOT_LISTED:
        lists = any(_GIT_LISTS.fullmatch(word) or (command == "tag" and word[:2] == "-n") for word in said)
        long, short = _GIT_NOT_LISTED[command]
        changes = _first(words, free, lambda word: _is_option(word, names(long), short))
        return changes or ("" if lists else "".join(operands[:1]))
    if command in _GIT_KINDS and all(word.startswith("-") for word in said):
        tells = _GIT_KINDS_TELL.get(command, frozenset())
        return "" if operands[:1] and operands[0] in tells else "".join(operands[:1])
    if command == "config":
        gets = any(map(_GIT_GETS.fullmatch, said))
        sets = _first(words, free, lambda word: _is_option(word, _GIT_SETS, "e"))
        return sets or ("" if gets else "".join(operands[:1]))
    if command == "symbolic-ref":
        named = sum(not word.startswith("-") for word in said)
        changes = _first(words, free, lambda word: _is_option(word, names("delete"), "dm"))
        return changes or "".join(operands[1 - min(named, 1) :][:1])
    return ""


def _is_option(word: str, long: frozenset[str], short: str) -> bool:
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return bool(name) and any(each.startswith(name) for each in long)
    return word.startswith("-") and any(letter in word[1:] for letter in short)


def _first(words: Words, free: Free, undoes: Callable[[str], object]) -> str:
    return next((word for word, open_ in zip(words[1:], free[1:], strict=True) if open_ and undoes(word)), "")


_OWN: dict[str, Callable[[Words, Free], str]] = {
    **dict.fromkeys(names("ash bash csh dash fish ksh mksh rbash sh tcsh yash zsh"), _shell),
    **dict.fromkeys(names("lua node nodejs perl php ruby"), _interpreter),
    **dict.fromkeys(names("bzip2 gzip lz4 lzma xz zstd"), _packer),
    "unzip": _unzip,
}
