"""Which settings of git run something of a project, so that whoever writes there says what runs later.

Asked before a command runs unasked. A program that is named by its path stays as it is in the sandbox; but
what `make clean` and `python -m x` run is in files that no setting names. So what counts as harmless is a
program outside of the project whose words lead nowhere into it. Errs towards harm, and runs git alone, which
takes some milliseconds: not for an event loop.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from retinue.authority.shell import inert, programs
from retinue.authority.shell.known import GAP, known
from retinue.authority.shell.plain import Simple, Word, names
from retinue.authority.shell.reading import read
from retinue.reading import lies_in
from retinue.sandbox.commands.view import git_commands

_BY_FOLDER = names("""
    act ant bazel cargo cmake composer deno dotnet eslint fab flake8 gmake go gradle grunt gulp
    husky invoke ipython jest jupyter just lefthook lerna make meson mise mkdocs mvn mypy nbconvert
    ninja nox nx phpunit pre-commit prettier pylint pytest rake rspec rubocop sbt scons sphinx-build
    stylelint task tox turbo vite vitest webpack
    """)
"""Programs that do what files of the folder say that they are started in."""
_OWN_WORDS = names("aws gh glab git-credential-cache git-crypt git-lfs git-nbdiffdriver mergiraf")
"""Programs whose words are commands of their own."""
_OF_GIT = names("config credential difftool gui help lfs mergetool")
"""Commands of git that run what other settings say."""
_FILLED_IN = re.compile(
    r"""(["']?)\\?\$(?:\{(?:LOCAL|REMOTE|BASE|MERGED)\}|LOCAL|REMOTE|BASE|MERGED|[@*\d])\1"""
)
"""What git, or a shell for it, puts names of files in place of."""
_FUNCTION = re.compile(r"(\w+)\s*\(\s*\)")


def run_from(folder: Path, environ: Mapping[str, str]) -> list[str]:
    """The settings that may run something of this folder, as people are told of them."""
    project = os.path.realpath(folder)
    commands = git_commands(project, environ)
    path = environ.get("PATH", os.defpath)
    found = (key for key, command, base in commands if leads_into(project, command, base, path))
    return [f"the command in git's setting {key}" for key in dict.fromkeys(found)]


def leads_into(project: str, command: str, base: str, path: str) -> bool:
    """Whether a command of the shell that is run in `base` may run something of a project."""
    reading = read(_FILLED_IN.sub("%f", command))
    own = {*_FUNCTION.findall(command)}
    return bool(reading.unsure) or any(
        _leads_into(project, simple, base, path) for simple in reading.commands if simple.program not in own
    )


def _leads_into(project: str, simple: Simple, base: str, path: str) -> bool:
    words = inert.inner(simple.words)
    texts = [known(word) for word in words]
    if not texts:
        return False
    name = texts[0].rpartition("/")[2]
    program = texts[0] if name != texts[0] else shutil.which(name, path=path) or "/nonexistent"
    if GAP in program or name in _BY_FOLDER or _is_in(project, base, program):
        return True
    if inert.inert(words, composes=False) or (name == "git" and texts[1:2] and texts[1] in _OF_GIT):
        return False
    if simple.assignments or programs.runs_or_writes(texts, [True] * len(texts)) or _runs_words(name):
        return True
    return any(_names_file(project, base, word, own=name in _OWN_WORDS) for word in texts[1:])


def _runs_words(name: str) -> bool:
    """Whether a program runs another one, or code that it is given."""
    return programs.runs_others(name) or inert.is_interpreter(Word(name))


def _names_file(project: str, base: str, word: str, *, own: bool) -> bool:
    """Whether a word of a program may be a file of the project, or something that it finds there."""
    if word.startswith("%") or word.isdecimal():
        return False
    if word.startswith("--"):
        value = word.partition("=")[2]
        return bool(value) and _names_file(project, base, value, own=own)
    if word.startswith("-"):
        return GAP in word or (("/" in word or "." in word) and _is_in(project, base, word[2:]))
    return GAP in word or (not own if "/" not in word else _is_in(project, base, word))


def _is_in(project: str, base: str, path: str) -> bool:
    return lies_in(os.path.join(base, os.path.expanduser(path)), project)
