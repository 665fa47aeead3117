"""Whether the patterns of allow rules speak of all that a command would run.

Called by `approvals` with the patterns of every allow rule that speaks of the call: each simple command must
be meant by one of them, word by word. What a pattern means:

- words without a star are exactly these words;
- a star at the end that follows a letter or digit (`git diff*`), or stands alone (`git diff *`): any further
  words, or none. It never makes a word longer: `git difftool` is another command;
- a star alone between words: one word that is no option;
- a star elsewhere in a word, or `?`, or `[ab]`: within that word;
- a pattern that is one pipeline, or more than one command, means all of it, in this order;
- beside other commands `true`, `false` and `:` need no rule, and options of git that change nothing
  (`--no-pager`, `-C .`) are looked through;
- nor does one plain `cd` into a folder of the project, beside programs that do the same everywhere, and by
  rules that name no file: `ls*` means `cd src && ls`, `cat docs/*` does not mean `cd src && cat docs/x`.

Under a star, options that are known to run a program or write a file are not meant, nor builtins that
evaluate their arguments. A pattern without a star whose text is the command's text means it in any case.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from retinue.authority.shell import programs
from retinue.authority.shell.moving import Enters, entered, literals, mover
from retinue.authority.shell.narrowed import takes_back
from retinue.authority.shell.plain import ANY, NotPlain, Plain, Simple, Word, read_plain
from retinue.authority.shell.reading import plainly

BLANKS = " \t\n"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One simple command of a rule. `open_` when further words are meant."""

    words: tuple[Word, ...]
    open_: bool
    assignments: tuple[str, ...]

    @property
    def literal(self) -> bool:
        return not self.open_ and all(word.glob is None for word in self.words)

    @property
    def anywhere(self) -> bool:
        """Whether it names nothing that each folder has another of: a program, options and numbers alone."""
        names = (word.text for word in self.words[1:])
        bare = all(name.startswith("-") or name.isdecimal() for name in names)
        return bare and not any("/" in word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Compound:
    """A rule's pattern: its pipelines, each of one simple command or more."""

    pipelines: tuple[tuple[Pattern, ...], ...]
    shape: str


def covers(command: str, patterns: Sequence[str], enters: Enters | None = None) -> tuple[str, ...]:
    """The patterns that together mean all of the command; none if they do not."""
    text = command.strip(BLANKS)
    for pattern in patterns:
        if exact(pattern) == text:
            return (pattern,)
    rules = {pattern: found for pattern in patterns if (found := compiled(pattern)) is not None}
    plain = plainly(command) if rules else None
    if plain is None:
        return ()
    cd, where = entered(plain, enters)
    if where != "." and not programs.may_move([mover(simple) for simple in plain.commands]):
        return ()
    for pattern, found in rules.items():
        if len(found.pipelines) > 1 and _same_shape(found, plain):
            return (pattern,)
    used = _used(plain, rules)
    if used or where is None:
        return used
    return _used(plain, rules if where == "." else anywhere(rules), cd)


def _used(plain: Plain, rules: Mapping[str, Compound], cd: Simple | None = None) -> tuple[str, ...]:
    """The rules for each pipeline; `cd` needs none. None at all where one has no rule."""
    used: dict[str, None] = {}
    for pipeline in plain.pipelines:
        by = () if pipeline == (cd,) else pipeline_by(pipeline, rules)
        if by is None:
            return ()
        used.update(dict.fromkeys(by))
    return tuple(used)


def anywhere(rules: Mapping[str, Compound]) -> dict[str, Compound]:
    """The rules that mean the same in every folder."""
    return {
        text: rule
        for text, rule in rules.items()
        if all(each.anywhere for pipeline in rule.pipelines for each in pipeline)
    }


def exact(pattern: str) -> str | None:
    """The one text that a pattern without a star means; `[*]` stands for a star that is meant as one."""
    if re.search(r"[*?]", re.sub(r"\[[*?[]\]", "", pattern)):
        return None
    return re.sub(r"\[([*?[])\]", r"\1", pattern).strip(BLANKS)


def literal(command: str) -> str | None:
    """The pattern that means this text and no other; None where there is none.

    A sign behind a backslash is no sign to the shell, and what would be written for it is one to a rule.
    """
    pattern = re.sub(r"([*?[])", r"[\1]", command.strip(BLANKS))
    found = compiled(pattern)
    words = [word for line in found.pipelines for each in line for word in each.words] if found else []
    live = any(re.search(r"[*?[]", re.sub(r"\[[*?[]\]", "", word.glob or "")) for word in words)
    opens = found is not None and any(each.open_ for line in found.pipelines for each in line)
    return None if live or opens else pattern


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Compound | None:
    """A pattern that is no plain command means nothing but its own text."""
    try:
        plain = read_plain(pattern, rule=True)
    except NotPlain:
        return None
    pipelines = tuple(tuple(_of_rule(simple) for simple in pipeline) for pipeline in plain.pipelines)
    return Compound(pipelines, plain.shape)


def _of_rule(simple: Simple) -> Pattern:
    *words, last = simple.words
    glob = last.glob or ""
    if glob == "*":
        return Pattern(tuple(words), True, simple.assignments)
    stem = glob.removesuffix("*")
    if stem != glob and stem[-1:].isalnum() and not re.search(r"[*?[]", stem):
        return Pattern((*words, Word(stem, home=last.home)), True, simple.assignments)
    return Pattern(simple.words, False, simple.assignments)


def _same_shape(pattern: Compound, plain: Plain) -> bool:
    return pattern.shape == plain.shape and all(
        _all_mean(patterns, pipeline)
        for patterns, pipeline in zip(pattern.pipelines, plain.pipelines, strict=True)
    )


def _all_mean(patterns: tuple[Pattern, ...], pipeline: tuple[Simple, ...]) -> bool:
    """Whether a rule's own pipeline means this one: what it pipes into a shell, it said itself."""
    return len(patterns) == len(pipeline) and all(
        _means(pattern, simple, fed=False) for pattern, simple in zip(patterns, pipeline, strict=True)
    )


def pipeline_by(pipeline: tuple[Simple, ...], rules: Mapping[str, Compound]) -> list[str] | None:
    """The patterns that mean a pipeline: one that is a pipeline itself, or one for each of its commands."""
    used: list[str] = []
    for text, rule in rules.items():
        if len(rule.pipelines) == 1 and len(rule.pipelines[0]) > 1 and _all_mean(rule.pipelines[0], pipeline):
            return [text]
    for simple in pipeline:
        if not simple.assignments and programs.does_nothing(literals(simple)):
            continue
        by = next(
            (
                text
                for text, rule in rules.items()
                if len(rule.pipelines) == 1
                and len(rule.pipelines[0]) == 1
                and _means(rule.pipelines[0][0], simple, fed=simple.piped)
            ),
            None,
        )
        if by is None:
            return None
        used.append(by)
    return used


def _means(pattern: Pattern, simple: Simple, *, fed: bool) -> bool:
    return unmeant(pattern, simple, fed=fed) is None


def unmeant(pattern: Pattern, simple: Simple, *, fed: bool) -> str | None:
    """None if a pattern means a command; else the word that it does not mean, or nothing if it means others.

    `fed`: another command prints what this one reads, and the rule does not say so.
    """
    if pattern.assignments != simple.assignments:
        return ""
    stray = _stray(pattern, simple.words, fed=fed)
    if stray is None:
        return None
    texts = literals(simple)
    if same := programs.git_command(texts):
        words = (simple.words[0], *simple.words[1 + same :])
    elif inner := programs.wrapped(texts):
        words = simple.words[inner:]
    elif texts[0] == "xargs" and (inner := programs.xargs_command(texts)):
        return _stray(pattern, (*simple.words[inner:], ANY), fed=False)
    else:
        return stray
    return unmeant(pattern, Simple(words=words, assignments=simple.assignments), fed=fed)


def _stray(pattern: Pattern, words: tuple[Word, ...], *, fed: bool) -> str | None:
    """The same for the words alone, as they stand there."""
    free = _free(pattern, words)
    if free is None or not words[0].literal:
        return ""
    texts = [word.text for word in words]
    if fed and programs.reads_program(texts):
        return texts[0]
    if pattern.literal:
        return None
    if texts[0] in programs.EVALUATES:
        return texts[0]
    inner = 0
    if texts[0].rpartition("/")[2] in programs.WRAPPERS:
        inner = programs.named_inside([word.text for word in pattern.words] or [""])
        unknown = "xargs" in texts[:inner] and not programs.takes_anything(texts[inner])
        if inner == 0 or unknown or texts[inner] in programs.EVALUATES:
            return texts[-1] if inner == 0 else texts[inner]
    for at in programs.run_by(texts, len(pattern.words)):
        if found := programs.runs_or_writes(texts[at:], free[at:]):
            return found
    if found := takes_back(texts, free):
        return found
    return next((word.text or "…" for word in words if not _harmless(word, texts[inner])), None)


def _free(pattern: Pattern, words: tuple[Word, ...]) -> list[bool] | None:
    """Which words a star stands for; None if the words are not those of the pattern."""
    fixed = pattern.words
    if len(words) < max(len(fixed), 1) or (len(words) > len(fixed) and not pattern.open_):
        return None
    free: list[bool] = []
    for meant, word in zip(fixed, words, strict=False):
        if meant.glob is None:
            if not (
                word.text == meant.text and word.home == meant.home and not word.any and word.glob is None
            ):
                return None
        elif not _within(meant.glob, meant.home, word):
            return None
        free.append(meant.glob is not None)
    return free + [True] * (len(words) - len(fixed))


def _within(glob: str, home: bool, word: Word) -> bool:
    """Whether a word is one that a starred word means: no option, and no way out of a folder it names."""
    if word.glob is not None or word.any or word.home != home or not fnmatch.fnmatchcase(word.text, glob):
        return False
    if word.text.startswith("-") and not glob.startswith("-"):
        return False
    return "/" not in glob or ".." not in word.text.split("/") or ".." in glob.split("/")


def _harmless(word: Word, program: str) -> bool:
    """Whether a word that is not known to the letter may be handed to a program.

    A file may be called like an option: what the shell finds must be a path in a folder that is named, or
    go to a program to which no option is dangerous.
    """
    if word.any:
        return programs.takes_anything(program)
    if word.glob is None:
        return True
    ahead = re.split(r"[*?[]", word.glob, maxsplit=1)[0]
    return programs.takes_anything(program) or (
        "/" in ahead and not ahead.startswith("-") and "=" not in ahead
    )
