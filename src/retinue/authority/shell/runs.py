"""All that a command may run, wherever it stands in it, and why there may be more.

Called by `deny`. Goes through every simple command and the commands in its arguments: behind `time`, `env`,
`sudo` and their like, inside `sh -c`, `eval` and `find -exec`. What it cannot follow it doubts; it drops
nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise, takewhile

from retinue.authority.shell import inert, programs
from retinue.authority.shell.files import runs_own_file
from retinue.authority.shell.known import GAP, known, program_name, ways
from retinue.authority.shell.plain import ANY, RESERVED, Simple, Word, names
from retinue.authority.shell.reading import Reading, read
from retinue.authority.shell.spelling import spells
from retinue.authority.shell.variables import evaluated, evaluated_assignment

DEEPEST = 4
"""Commands within strings within commands."""

MOST_READ = 200_000
"""Characters of all the commands that may stand in one text, after which it counts as not understood."""

MOST_PLACES = 60
"""Words of a command in which another one is looked for."""

MOST_SHELLS = 4
"""Shells that stand among the words of a program of which nothing is known."""

_COMMAND_SIGNS = re.compile(r"[\s;|&`(<>$]")
_EXPANDS = re.compile(r"(?=.*\s).*(?:\$[\w({'\"@*]|`)", re.S)
"""A text of several words that a shell would make something of, for a program that may give it to one."""


@dataclass(frozen=True, slots=True)
class PossibleCommand:
    """A command that may run. `sure` if it does; otherwise it stands where one could.

    `guessed` if it is not known that anything runs from there: a word of a program of which nothing is known.
    """

    words: tuple[Word, ...]
    sure: bool
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Runs:
    """All that a command may run.

    `unsure` says why there may be more. `composes`: words may come out of it that it does not hold. `said` is
    its text as far as somebody may run it, without the names of commands that run nothing else, and `made`
    are words in it that are known in part; nothing where all of its commands are such.
    """

    runs: tuple[PossibleCommand, ...]
    unsure: str
    composes: bool
    said: str
    made: tuple[str, ...]


@lru_cache(maxsize=64)
def runs_of(command: str) -> Runs:
    """What a command may run. Never raises."""
    reading = read(command)
    collected = _Collector()
    collected.text(command, depth=0, sure=True)
    if runs_own_file(
        command,
        reading,
        sure=[run.words for run in collected.runs if run.sure],
        others=[run.words for run in collected.runs if not run.sure],
        composes=collected.composes,
    ):
        collected.doubt("it may run a file that it writes")
    if collected.composes and collected.exports:
        collected.doubt("words are put together for programs that may run them")
    said = _said(command, reading, collected)
    made = tuple(collected.made) if said else ()
    return Runs(tuple(collected.runs), collected.unsure, collected.composes, said, made)


def _said(command: str, reading: Reading, collected: _Collector) -> str:
    """The text in which a rule's own words would matter."""
    spans: list[tuple[int, int]] = []
    quiet = bool(reading.spanned) and not reading.keeps
    for simple in reading.spanned:
        harmless = inert.inert(inert.inner(simple.words), composes=collected.composes)
        quiet = quiet and harmless and not simple.assignments and not (simple.used and _stores(command))
        if harmless and simple.spans:
            texts = [known(word) for word in simple.words]
            skip = len(simple.words) - len(inert.inner(simple.words))
            name = texts[skip].rpartition("/")[2]
            spans += simple.spans[: skip + 1 + inert.head(name, texts[skip + 1 :])]
    if quiet:
        return ""
    source = bytearray(command.encode("utf-8", "replace"))
    for begin, end in spans:
        source[begin:end] = b" " * (end - begin)
    made = (known(word) for simple in reading.commands for word in simple.words if word.any)
    return "\n".join((source.decode("utf-8", "replace"), *made))


def _stores(command: str) -> bool:
    """Whether it writes a file, which something may run later."""
    return re.search(r"(?<![0-9&])>(?!&|\s*/dev/null)|\b(?:tee|dd)\b", command) is not None


class _Collector:
    """Goes through a command and the commands in its arguments."""

    def __init__(self) -> None:
        self.runs: list[PossibleCommand] = []
        self.unsure = ""
        self.composes = False
        self.exports = False
        self.made: list[str] = []
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
        self.composes = self.composes or reading.composes or any(map(spells, reading.commands))
        self.made += reading.made
        for simple in reading.commands:
            self.made += [text for word in simple.words if GAP in (text := known(word)) and text != GAP]
            if any(evaluated_assignment(each, program=simple.program) for each in simple.assignments):
                self.doubt("it sets a variable that programs run")
            self.words(simple.words, depth=depth, sure=sure)
            self._loose(simple, depth=depth)
        self._fed(reading, depth=depth)
        others = [simple.words for simple in reading.commands if simple.words] if depth else []
        if runs_own_file(command, reading, sure=[], others=others, composes=self.composes):
            self.doubt("it may run a file that it writes")

    def _loose(self, simple: Simple, *, depth: int) -> None:
        """What a program may run of which nothing is known but that it is not harmless."""
        if inert.runs_unknown_code(simple):
            self.doubt("code is run that is not known")
        words = inert.inner(simple.words)
        if not words or inert.inert(words, composes=self.composes):
            return
        if (simple.given or (simple.piped and self.composes)) and inert.reads_code(simple):
            self.doubt("a program reads what the shell makes up")
        name = program_name(simple.words[0]) or ""
        words = _filled_in(name, simple.words)[-len(words) - (name in _FEEDS) :]
        if program_name(words[0]) not in _TAKES_TEXT | programs.SHELLS:
            for word in takewhile(lambda each: not inert.is_interpreter(each), words):
                self._maybe(known(word).replace(GAP, ""), depth=depth)
        if program_name(words[0]) not in programs.LOOKED_THROUGH:
            shells = [at for at, word in enumerate(words) if at and program_name(word) in programs.SHELLS]
            if shells[MOST_SHELLS:]:
                self.doubt("commands stand too deep in commands")
            for at in shells[:MOST_SHELLS]:
                self.words(words[at:], depth=depth + 1, sure=False)
        given = any("$" in each or "`" in each for each in simple.assignments)
        if program_name(words[0]) in _NAMING or not (
            given or any(word.any or word.glob is not None for word in words)
        ):
            return
        if self.composes:
            self.doubt("words are put together and given to a program that may run them")
        elif len(words) > MOST_PLACES:
            self.doubt("commands stand too deep in commands")
        else:
            for at in range(1, len(words)):
                self._add(words[at:], sure=False, guessed=True)

    def _fed(self, reading: Reading, *, depth: int) -> None:
        """What a program is given to read that may run it, as far as it stands in the text."""
        said = [
            word.text
            for simple in reading.commands
            if simple.used and simple.program in ("echo", "printf")
            for word in simple.words[1:]
        ]
        for simple in reading.commands:
            words = inert.inner(simple.words)
            harmless = not words or inert.inert(words, composes=self.composes)
            if harmless or inert.is_interpreter(words[0]) or not inert.reads_code(simple):
                continue
            for text in (simple.fed, *(said if simple.piped else ())):
                self._maybe(text, depth=depth)

    def _maybe(self, text: str, *, depth: int) -> None:
        """A text that a program may give to a shell. What no shell understands is none, unless it expands."""
        several = re.search(r"\s", text.strip()) is not None
        if depth >= DEEPEST or not (_EXPANDS.match(text) or (several and not read(text).unsure)):
            return
        inside = _Collector()
        inside.text(text, depth=depth + 1, sure=False)
        self.runs += inside.runs
        self.made += inside.made
        if inside.unsure:
            self.doubt(inside.unsure)

    def words(self, words: tuple[Word, ...], *, depth: int, sure: bool) -> None:
        if not self._add(words, sure=sure):
            return
        name = program_name(words[0])
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
        elif name == "set" and any(
            re.match(r"-\w*a|allexport", each) for each in ways([*map(known, rest)])[-1]
        ):
            self.exports = True
        elif name in ("sed", "gsed") and inert.sed_runs([known(word) for word in rest]):
            self.doubt("sed may run what it reads")
        elif name == "git":
            self._git(rest)
        if name in programs.LOOKED_THROUGH or _runs_words(name, rest):
            self._inside(name, words, depth=depth, sure=sure)

    def _add(self, words: tuple[Word, ...], *, sure: bool, guessed: bool = False) -> bool:
        self.left -= sum(len(word.text) + 1 for word in words)
        if self.left < 0:
            self.doubt("it can be read in too many ways")
            return False
        self.runs.append(PossibleCommand(words, sure, guessed))
        by_git = _GIT_PROGRAM.fullmatch(program_name(words[0]) or "")
        if by_git is not None:  # `git-send-pack`, by whatever path, is `git send-pack`
            self.runs.append(PossibleCommand((Word("git"), Word(by_git[1]), *words[1:]), sure, guessed))
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
        odd = any("[" in _variable(word) or GAP in _variable(word) for word in rest)
        if name in _NAMING and any(evaluated(_variable(word).partition("[")[0]) for word in rest):
            self.doubt("it sets a variable that programs run")
        if name in _DECLARING and any(not re.fullmatch(rf"-\w+|\w+=[^{GAP}]*", known(word)) for word in rest):
            self.exports = True
        closed = ways([*map(known, rest)])[-1]
        if name in _DECLARING and any(re.match(r"-\w*[inA]", each) for each in closed):
            odd = True
        elif name in ("test", "["):
            odd = any(each in ("-v", "-R") for each in closed) or (len(rest) == 2 and not rest[0].literal)
        elif name == "printf":
            odd = inert.sets_name([known(word) for word in rest])
        elif name in _ALWAYS_EVALUATES:
            odd = bool(rest)
        if odd:
            self.doubt(f"{name} evaluates its arguments")

    def _git(self, rest: tuple[Word, ...]) -> None:
        """Settings before its first word can rename any command: `git -c alias.x=push x`."""
        for at, word in enumerate(rest):
            before = rest[at - 1].text if at else ""
            if before == "-c" and not _TAME_SETTING.match(known(word)):
                self.doubt("git is given settings")
            if word.literal and not word.text.startswith("-") and before not in _GIT_VALUED:
                return
            unknown = not word.literal and before not in _GIT_VALUED
            if unknown or word.text.startswith(("--config-env", "--exec-path=")):
                self.doubt("git is given settings")

    def _inside(self, name: str, words: tuple[Word, ...], *, depth: int, sure: bool) -> None:
        """Every place in the arguments where a command may begin, and the strings that may be one."""
        if depth > DEEPEST or len(words) > MOST_PLACES:
            self.doubt("commands stand too deep in commands")
            return
        begin = programs.xargs_command([known(word) for word in words]) if name == "xargs" else 0
        words = _filled_in(name, words)
        if begin:
            self._at(words[begin:], depth=depth, sure=sure)
            return
        operands = int(name in _OPERAND_FIRST)
        plausible = name not in _EXECUTES  # whether nothing but options and their values stands before it
        for at in range(1, len(words)):
            word, before = words[at], words[at - 1]
            here = sure and (plausible or before.text in _EXEC)
            if program_name(word) is None:
                set_ = re.match(r"(\w+)=", known(word))
                if set_ and plausible and not evaluated(set_[1]):
                    continue
                if plausible or before.text in _EXEC:
                    self.doubt("the program is not named plainly")
                plausible = False
                continue
            if name in _EXECUTES and before.text not in _EXEC:
                continue
            if evaluated_assignment(word.text):
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
        if sure or program_name(words[0]) in programs.SHELLS or program_name(words[0]) == "eval":
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
    if name not in _FEEDS and name not in _EXECUTES:
        return words
    own = [word.text for word in words[1 : _own_options(words)] if name not in _EXECUTES]
    marks = {text for before, text in pairwise(own) if before in ("-I", "-J", "-i", "--replace")}
    marks |= {text[2:] for text in own if re.match(r"-[IJi].", text)}
    marks |= {text.partition("=")[2] for text in own if text.startswith("--r")} - {""}
    sign = re.compile("|".join((r"\{[^{}\s]*\}", *map(re.escape, marks))))
    filled = (
        Word("", any=True, around=sign.sub(GAP, word.text)) if sign.search(word.text) else word
        for word in words[1:]
    )
    return (words[0], *filled, *((ANY,) if name in _FEEDS else ()))


def _own_options(words: tuple[Word, ...]) -> int:
    """Where the command begins behind a wrapper's own options, as far as they may reach."""
    at = 1
    while at < len(words) and (words[at].text.startswith("-") or re.match(r"-\w$", words[at - 1].text)):
        at += 1
    return at


_TAKES_TEXT = names("env flock git nix-shell parallel runuser screen script sg su tmux trap watch")
"""Programs that run a text which stands in one of their arguments."""
_EXEC = frozenset(("-exec", "-execdir", "-ok", "-okdir", "--exec", "-x", "--exec-batch", "-X"))
_EXECUTES = frozenset(("find", "fd", "fdfind"))
_FEEDS = frozenset(("xargs", "parallel"))
"""Programs that put what they read behind the words of a command."""
_EVALUATING = names("""
    [ alias bind compgen complete declare enable export fc getopts hash let local mapfile printf read
    readarray readonly test typeset unset wait
    """)
_NAMING = names("declare export getopts local mapfile read readarray readonly typeset unset wait")
"""Builtins whose words are names of variables, with values or without."""
_DECLARING = names("declare export local readonly typeset")
_ALWAYS_EVALUATES = names("alias bind compgen complete enable fc hash let mapfile readarray")
_GIT_PROGRAM = re.compile(r"(?i:git-)(.+)", re.S)
_GIT_VALUED = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace"))
_TAME_SETTING = re.compile(
    r"(?:user|color|advice|log|gc|init|safe|pull|push|fetch|rerere|i18n|http)\.\w+="
    r"|core\.(?:quotepath|autocrlf|eol|safecrlf|filemode|ignorecase|symlinks|abbrev|pager=(?:cat|less)$)"
    r"|(?:commit|tag)\.gpgsign=|diff\.(?:renames|algorithm|renamelimit|context)=|merge\.(?:renames|conflictstyle)=",
    re.I,
)
"""Settings that neither run anything nor rename a command."""
_OPERAND_FIRST = names("chroot chrt flock nsenter runuser setarch su taskset")
"""Wrappers with a word of their own before the command."""


def _runs_words(name: str, rest: tuple[Word, ...]) -> bool:
    """Programs that run a command only with some of their arguments."""
    texts = [word.text for word in rest]
    if name == "git":
        return any(each in texts for each in ("foreach", "bisect", "--exec", "-x", "rebase", "filter-branch"))
    return name in _EXECUTES and any(each in _EXEC for each in texts)


def _variable(word: Word) -> str:
    """The name in `NAME=value` and `NAME`; with its subscript, if it has one."""
    return re.split(r"\+?=", known(word), maxsplit=1)[0]


def _odd_file(word: Word) -> bool:
    return not (word.literal or word.home) or word.text.startswith(("/dev/", "/proc/", "-"))
