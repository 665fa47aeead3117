"""Whether the pattern of a deny or ask rule speaks of anything that a command would run.

Called by `approvals`. A rule is held against every simple command there is, in a plain form: words parted by
single blanks, without quotes, escapes, assignments, redirections and keywords; the program also by the last
part of its path; with and without the options before its first word; behind `time`, `env`, `sudo` and their
like; inside `sh -c`, `eval` and `find -exec`. What cannot be read for sure comes out as "maybe": a person is
asked, and the command never runs in silence.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import Literal

from retinue.authority.shell import programs
from retinue.authority.shell.plain import ANY, RESERVED, NotPlain, Word, names, read_plain
from retinue.authority.shell.reading import MOST, Reading, read

Forbids = Literal["no", "maybe", "yes"]

DEEPEST = 4
"""Commands within strings within commands."""

MOST_READ = 200_000
"""Characters of all the commands that may stand in one text, after which it counts as not understood."""

MOST_OPTIONS = 12
"""Options before a program's first word, and their values, that are looked behind."""

MOST_PLACES = 60
"""Words of a command in which another one is looked for."""

_EVALUATED = re.compile(r"(?:PS[0-4]|PROMPT_COMMAND|BASH_ENV|ENV|SHELLOPTS|LD_\w+|DYLD_\w+|GIT_\w+)=")
_COMMAND_SIGNS = re.compile(r"[\s;|&`(<>$]")


_WRITES = re.compile(r">|\b(?:tee|cp|mv|dd|ln|install|of)\b")
_SED_RUNS = re.compile(r"(?:^|[\s;{}0-9$/|#,:@!])[gpIiMm0-9]*e[gpIiMm0-9]*(?:[\s;}]|$)")
"""The command `e`, or `e` among the flags of `s`; now and then something else that looks like it."""
_ONLY_SAYS = programs.READERS | names("ack ag fd find printf rg")
"""Programs to which a text is a text. To any other one it may be a program to run."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A command that may run. `sure` if it does; otherwise it stands where one could."""

    words: tuple[Word, ...]
    sure: bool


@dataclass(frozen=True, slots=True)
class _Runs:
    """All that a command may run, and why there may be more."""

    runs: tuple[_Run, ...]
    unsure: str


def forbids(command: str, pattern: str) -> Forbids:
    """Whether a rule with this pattern is meant by any part of a command."""
    reading = read(command)
    found = _runs_of(command)
    readable = reading.plain is None and len(command) <= MOST
    texts = [command, *(re.split(r"&&|\|\||[;&|\n`()]", command) if readable else ())]
    if any(fnmatch.fnmatchcase(text.strip(), pattern) for text in texts):
        return "yes"
    best: Forbids = "maybe" if found.unsure else "no"
    forms = _forms(pattern)
    for run in found.runs:
        if best == "no" and any(_mentions(text, pattern) for text in _texts(run.words)):
            best = "maybe"
        for form in forms:
            meant = _meant(run.words, form)
            if meant == "yes" and run.sure:
                return "yes"
            if meant != "no":
                best = "maybe"
    if best == "no" and reading.plain is None and _mentions(command, pattern):
        return "maybe"
    return best


@lru_cache(maxsize=64)
def _runs_of(command: str) -> _Runs:
    collected = _Collector()
    collected.text(command, depth=0, sure=True)
    if _WRITES.search(command) and any(_runs_file_of(command, run.words) for run in collected.runs):
        collected.doubt("it may run a file that it writes")
    return _Runs(tuple(collected.runs), collected.unsure)


class _Collector:
    """Goes through a command and the commands in its arguments."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.unsure = ""
        self.left = MOST_READ

    def doubt(self, why: str) -> None:
        self.unsure = self.unsure or why

    def text(self, command: str, *, depth: int, sure: bool) -> None:
        if depth > DEEPEST:
            self.doubt("commands stand in strings in strings")
            return
        reading: Reading = read(command)
        if reading.unsure:
            self.doubt(reading.unsure)
        for simple in reading.commands:
            if any(_EVALUATED.match(each) for each in simple.assignments):
                self.doubt("it sets a variable that programs run")
            self.words(simple.words, depth=depth, sure=sure)

    def words(self, words: tuple[Word, ...], *, depth: int, sure: bool) -> None:
        if not self._add(words, sure=sure):
            return
        name = _name(words[0])
        if name is None:
            self.doubt("the program is not named plainly")
            return
        rest = words[1:]
        if name in programs.SHELLS:
            self._shell(rest, depth=depth, sure=sure)
        elif name == "eval":
            self._string(rest[1:] if rest and rest[0].text == "--" else rest, depth=depth, sure=sure)
        elif name in ("source", ".") and (not rest or _odd_file(rest[0])):
            self.doubt("it runs what is in no plain file")
        elif name in _EVALUATING:
            self._evaluating(name, rest)
        elif name == "coproc" and rest[1:] and rest[1].text in RESERVED:
            self.doubt("the grammar takes a named coprocess for one command")
        elif name in ("sed", "gsed") and any(_SED_RUNS.search(word.text) for word in rest):
            self.doubt("sed may run what it reads")
        elif name == "git":
            self._git(rest)
        if name in programs.LOOKED_THROUGH or _runs_words(name, rest):
            self._inside(name, words, depth=depth, sure=sure)

    def _add(self, words: tuple[Word, ...], *, sure: bool) -> bool:
        self.left -= sum(len(word.text) + 1 for word in words)
        if self.left < 0:
            self.doubt("it can be read in too many ways")
            return False
        self.runs.append(_Run(words, sure))
        return True

    def _shell(self, rest: tuple[Word, ...], *, depth: int, sure: bool) -> None:
        for at, word in enumerate(rest):
            if not word.literal:
                break
            if not word.text.startswith("-"):
                if word.text.startswith("/dev/") or word.text.startswith("+"):
                    break
                return  # a file: what is in it is its own affair
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text):
                behind = (each for each in rest[at + 1 :] if not each.text.startswith(("-", "+")))
                self._string(tuple(islice(behind, 1)), depth=depth, sure=sure)
                return
            if word.text in ("-o", "-O", "--rcfile", "--init-file"):
                break
        self.doubt("a shell runs what it is given")

    def _string(self, words: tuple[Word, ...], *, depth: int, sure: bool) -> None:
        """Words that are read as a command once more."""
        if not words or not all(word.literal for word in words):
            self.doubt("a text is run that is not known")
            return
        self.text(" ".join(word.text for word in words), depth=depth + 1, sure=sure)

    def _evaluating(self, name: str, rest: tuple[Word, ...]) -> None:
        odd = any("[" in word.text or word.any for word in rest)
        if name in ("test", "["):
            odd = any(word.text in ("-v", "-R") for word in rest) or (len(rest) == 2 and not rest[0].literal)
        elif name == "printf":
            odd = bool(rest) and rest[0].text.startswith("-v")
        elif name in _ALWAYS_EVALUATES:
            odd = bool(rest)
        if odd:
            self.doubt(f"{name} evaluates its arguments")

    def _git(self, rest: tuple[Word, ...]) -> None:
        """Settings before its first word can rename any command: `git -c alias.x=push x`."""
        for at, word in enumerate(rest):
            if word.literal and not word.text.startswith("-"):
                if at == 0 or rest[at - 1].text not in (
                    "-C",
                    "-c",
                    "--git-dir",
                    "--work-tree",
                    "--namespace",
                ):
                    return
                if rest[at - 1].text == "-c" and not re.match(r"(?!alias\.)[\w.-]+=", word.text, re.I):
                    self.doubt("git is given settings")
            elif not word.literal or word.text.startswith(("--config-env", "--exec-path=")):
                self.doubt("git is given settings")

    def _inside(self, name: str, words: tuple[Word, ...], *, depth: int, sure: bool) -> None:
        """Every place in the arguments where a command may begin, and the strings that may be one."""
        if depth > DEEPEST or len(words) > MOST_PLACES:
            self.doubt("commands stand too deep in commands")
            return
        words = _filled_in(name, words)
        operands = int(name in _OPERAND_FIRST)
        plausible = name not in _EXECUTES  # whether nothing but options and their values stands before it
        for at in range(1, len(words)):
            word, before = words[at], words[at - 1]
            here = sure and (plausible or before.text in _EXEC)
            if _name(word) is None:
                if plausible or before.text in _EXEC:
                    self.doubt("the program is not named plainly")
                plausible = False
                continue
            if name in _EXECUTES and before.text not in _EXEC:
                continue
            if _EVALUATED.match(word.text):
                self.doubt("it sets a variable that programs run")
            if name == "env" and re.match(r"-[A-Za-z]*S|--s", word.text):
                self.doubt("env parts a text into words")
            if not word.text.startswith("-") and "=" not in word.text:
                self._at(words[at:], depth=depth, sure=here)
            if name in _TAKES_TEXT and _COMMAND_SIGNS.search(word.text):
                self.text(word.text, depth=depth + 1, sure=here)
            if plausible and not _before_command(word.text, before.text):
                plausible, operands = operands > 0, operands - 1

    def _at(self, words: tuple[Word, ...], *, depth: int, sure: bool) -> None:
        """A command in the arguments of another; looked through itself only where it surely runs."""
        if sure or _name(words[0]) in programs.SHELLS or _name(words[0]) == "eval":
            self.words(words, depth=depth + 1, sure=sure)
        else:
            self._add(words, sure=False)


def _before_command(text: str, before: str) -> bool:
    """Whether a word may stand between a wrapper and its command: an option or its value, a number."""
    return (
        text.startswith(("-", "+"))
        or before.startswith("-")
        or "=" in text
        or re.fullmatch(r"[\d.]+[smhd]?", text) is not None
    )


def _filled_in(name: str, words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words with what xargs, parallel and find fill in, which nobody knows."""
    if name not in ("xargs", "parallel") and name not in _EXECUTES:
        return words
    marks = {"{}"} | {word.text for before, word in pairwise(words) if before.text in ("-I", "-J", "-i")}
    marks |= {word.text[2:] for word in words if re.match(r"-[IJi].", word.text)}
    filled = tuple(ANY if any(mark in word.text for mark in marks) else word for word in words[1:])
    return (words[0], *filled, *((ANY,) if name in ("xargs", "parallel") else ()))


_TAKES_TEXT = names("env flock git nix-shell parallel runuser screen script sg su tmux trap watch")
"""Programs that run a text which stands in one of their arguments."""
_EXEC = frozenset(("-exec", "-execdir", "-ok", "-okdir", "--exec", "-x", "--exec-batch", "-X"))
_EXECUTES = frozenset(("find", "fd", "fdfind"))
_EVALUATING = names("""
    [ alias bind compgen complete declare enable export fc getopts hash let local mapfile printf read
    readarray readonly test typeset unset wait
    """)
_ALWAYS_EVALUATES = names("alias bind compgen complete enable fc hash let mapfile readarray")
_OPERAND_FIRST = names("chroot chrt flock nsenter runuser setarch su taskset")
"""Wrappers with a word of their own before the command."""


def _runs_words(name: str, rest: tuple[Word, ...]) -> bool:
    """Programs that run a command only with some of their arguments."""
    texts = [word.text for word in rest]
    if name == "git":
        return any(each in texts for each in ("foreach", "bisect", "--exec", "-x", "rebase", "filter-branch"))
    return name in _EXECUTES and any(each in _EXEC for each in texts)


def _texts(words: tuple[Word, ...]) -> Iterator[str]:
    """Arguments that a program may run as a text: `perl -e`, `awk`, `tar --to-command`, `ssh host` …"""
    name = _name(words[0])
    if name in _ONLY_SAYS:
        return
    for before, word in pairwise(words):
        if name != "git" or before.text == "-c" or word.text.startswith("-"):
            yield word.text


def _runs_file_of(command: str, words: tuple[Word, ...]) -> bool:
    """Whether a command runs a file whose name stands in it a second time."""
    name = _name(words[0])
    run = words[0].text if "/" in words[0].text else ""
    if name in programs.SHELLS or name in ("source", "."):
        run = next((word.text for word in words[1:] if not word.text.startswith("-")), "")
    base = run.rpartition("/")[2]
    return bool(base) and len(re.findall(rf"(?<![\w.-]){re.escape(base)}(?![\w.-])", command)) > 1


def _odd_file(word: Word) -> bool:
    return not (word.literal or word.home) or word.text.startswith(("/dev/", "/proc/", "-"))


def _name(word: Word) -> str | None:
    """A program's name without its folder, as a file system may take it; None if it is not known."""
    if word.any or word.glob is not None:
        return None
    return word.text.rpartition("/")[2]


@lru_cache(maxsize=512)
def _forms(pattern: str) -> tuple[str, ...]:
    """A pattern in the form that commands are held against, and as it is written."""
    collapsed = " ".join(pattern.split())
    try:
        words = [word for simple in read_plain(pattern, rule=True).commands for word in simple.words]
    except NotPlain:
        return (collapsed,)
    plain = " ".join(word.glob or re.sub(r"([*?[])", r"[\1]", word.text) for word in words)
    return tuple(dict.fromkeys((plain, collapsed)))


def _meant(words: tuple[Word, ...], form: str) -> Forbids:
    best: Forbids = "no"
    for variant in _variants(words):
        meant = _held_against(variant, form)
        if meant == "yes" or (meant == "maybe" and best == "no"):
            best = meant
        if best == "yes":
            return best
    return _with_option(words, form) if best == "no" else best


def _variants(words: tuple[Word, ...]) -> Iterator[list[str | None]]:
    """The words with the program's names, and without the options that stand before its first word."""
    texts = [None if word.any or word.glob is not None else word.text for word in words]
    heads = [texts[0]]
    if texts[0] is not None:
        base = texts[0].rpartition("/")[2]
        heads += [base, base.lower()]
    for head in dict.fromkeys(heads):
        yield [head, *texts[1:]]
        for at in islice(_after_options(texts), MOST_OPTIONS):
            yield [head, *texts[at:]]
    base = heads[-1]
    if base is not None and base.startswith("git-"):
        yield ["git", base.removeprefix("git-"), *texts[1:]]


def _after_options(texts: list[str | None]) -> Iterator[int]:
    """Where a program's first word may be, behind options which may have values."""
    at = 1
    while at < len(texts) and (_is_option(texts[at]) or _is_option(texts[at - 1])):
        at += 1
        if at < len(texts):
            yield at


def _is_option(text: str | None) -> bool:
    return text is not None and text.startswith("-") and text != "-"


def _with_option(words: tuple[Word, ...], form: str) -> Forbids:
    """`git push --force*` also means `git push origin --force`: an option has no place of its own."""
    head, *rest = form.split(" ")
    options = [each for each in rest if each.startswith("-")]
    if not options or not all(word.literal or word.home for word in words):
        return "no"
    begin = " ".join([head, *(each for each in rest if not each.startswith("-") and each != "*")])
    for variant in _variants(words):
        texts = [text or "" for text in variant]
        present = all(any(fnmatch.fnmatchcase(text, each) for text in texts[1:]) for each in options)
        bare = " ".join(text for text in texts if not text.startswith("-"))
        if present and fnmatch.fnmatchcase(bare, f"{begin}*"):
            return "yes"
    return "no"


def _held_against(texts: list[str | None], form: str) -> Forbids:
    if None not in texts:
        return "yes" if fnmatch.fnmatchcase(" ".join(text or "" for text in texts), form) else "no"
    known = " ".join(text or "" for text in texts[: texts.index(None)])
    if known and form.endswith("*") and not form.endswith("[*]") and fnmatch.fnmatchcase(known, form):
        return "yes"
    return "maybe" if _could_be(texts, form) else "no"


def _could_be(texts: list[str | None], form: str) -> bool:
    """Whether some text in place of the unknown words would be in the pattern."""
    signs = _signs(form)
    states = _closure({0}, signs)
    unknown = True  # no blank before the first word, nor beside a word that may be none
    for text in texts:
        if text is None:
            states = set(range(min(states), len(signs) + 1)) if states else states
            unknown = True
            continue
        for letter in text if unknown else f" {text}":
            states = {
                at if signs[at] == "*" else at + 1
                for at in states
                if at < len(signs) and (signs[at] == "*" or fnmatch.fnmatchcase(letter, signs[at]))
            }
            states = _closure(states, signs)
        unknown = False
        if not states:
            return False
    return len(signs) in states


@lru_cache(maxsize=512)
def _signs(form: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\[[^\]]+\]|.", form, re.S))


def _closure(states: set[int], signs: tuple[str, ...]) -> set[int]:
    found = set(states)
    for at in sorted(states):
        while at < len(signs) and signs[at] == "*":
            at += 1
            found.add(at)
    return found


def _mentions(command: str, pattern: str) -> bool:
    """Whether the words of a pattern stand anywhere in a text that could not be read as plain."""
    said = re.split(r"[*?[]", _forms(pattern)[0], maxsplit=1)[0].strip()
    bare = re.sub(r"[\\'\"]", "", command.replace("\\\n", ""))
    bare = " ".join(re.sub(r"[;|&`(){}<>$=,:[\]]", " ", bare).split())
    return bool(said) and re.search(rf"(?:^|[\s/]){re.escape(said)}(?![\w-])", bare, re.I) is not None
