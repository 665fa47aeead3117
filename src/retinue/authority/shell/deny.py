"""Whether the pattern of a deny or ask rule speaks of anything that a command would run.

Called by `approvals`. A rule is held against every simple command there is, in a plain form: words parted by
single blanks, without quotes, escapes, assignments, redirections and keywords; the program also by the last
part of its path; with and without the options before its first word; behind `time`, `env`, `sudo` and their
like; inside `sh -c`, `eval` and `find -exec`.

"No" is said of a command only if it is read for sure, and either all of its programs are known to run
nothing else (`inert`), or its text neither holds the words of the rule, in any order and quoting, nor
anything that could put them together. Everything else comes out as "maybe": a person is asked, and it never
runs in silence.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal

from retinue.authority.shell import inert
from retinue.authority.shell.known import GAP, could_be, known
from retinue.authority.shell.plain import NotPlain, Word, read_plain
from retinue.authority.shell.reading import MOST, read
from retinue.authority.shell.runs import PossibleCommand, runs_of

Forbids = Literal["no", "maybe", "yes"]

MOST_OPTIONS = 100
"""Options before a program's first word, and their values, that are looked behind; more make it ask."""


def forbids(command: str, pattern: str) -> Forbids:
    """Whether a rule with this pattern is meant by any part of a command."""
    reading = read(command)
    found = runs_of(command)
    readable = reading.plain is None and len(command) <= MOST
    texts = [command, *(re.split(r"&&|\|\||[;&|\n`()]", command) if readable else ())]
    if any(fnmatch.fnmatchcase(text.strip(), pattern) for text in texts):
        return "yes"
    mentioned = _mentioned(found.said, found.made, pattern)
    best: Forbids = "maybe" if found.unsure or mentioned == "all" else "no"
    for run in found.runs:
        for form in _forms(pattern):
            meant = _meant(run, form, some=mentioned == "some")
            if meant == "yes" and run.sure:
                return "yes"
            if meant != "no":
                best = "maybe"
        if best == "no" and _by_alias(run, pattern):
            best = "maybe"
    return best


def _by_alias(run: PossibleCommand, pattern: str) -> bool:
    """`git x` may be whatever git's settings say, to a rule about git."""
    about = (_forms(pattern)[0].split(" ") or [""])[0]
    named = known(run.words[0]).rpartition("/")[2]
    return (
        not run.guessed and named == "git" and fnmatch.fnmatchcase("git", about) and inert.is_alias(run.words)
    )


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


def _meant(run: PossibleCommand, form: str, *, some: bool) -> Forbids:
    """`some`: the text holds some of the rule's words."""
    best: Forbids = "no"
    for variant in _variants(run.words, form):
        meant = _held_against(variant, form, guessed=run.guessed and not some)
        if meant == "yes" or (meant == "maybe" and best == "no"):
            best = meant
        if best == "yes":
            return best
    return _with_option(run.words, form) if best == "no" else best


def _variants(words: tuple[Word, ...], form: str) -> Iterator[list[str]]:
    """The words with the program's names, and without the options that stand before its first word."""
    texts = [known(word) for word in words]
    heads = dict.fromkeys((texts[0], base := texts[0].rpartition("/")[2], base.lower()))
    about = form.split(" ")[0]
    for head in heads:
        yield [head, *texts[1:]]
        if GAP not in head and not fnmatch.fnmatchcase(head, about) and "*" not in about:
            continue
        behind = list(islice(_after_options(texts), MOST_OPTIONS + 1))
        for at in behind[:MOST_OPTIONS]:
            yield [head, *texts[at:]]
        if len(behind) > MOST_OPTIONS:
            yield [head, GAP]
    if base.lower().startswith("git-"):
        yield ["git", base.lower().removeprefix("git-"), *texts[1:]]


def _after_options(texts: list[str]) -> Iterator[int]:
    """Where a program's first word may be, behind options which may have values."""
    at = 1
    while at < len(texts) and (_is_option(texts[at]) or _is_option(texts[at - 1])):
        at += 1
        if at < len(texts):
            yield at


def _is_option(text: str) -> bool:
    return text.startswith("-") and text != "-"


def _with_option(words: tuple[Word, ...], form: str) -> Forbids:
    """`git push --force*` also means `git push origin --force`: an option has no place of its own."""
    head, *rest = form.split(" ")
    options = [each for each in rest if each.startswith("-")]
    if not options or not all(word.literal or word.home for word in words):
        return "no"
    begin = " ".join([head, *(each for each in rest if not each.startswith("-") and each != "*")])
    for texts in _variants(words, form):
        present = all(any(fnmatch.fnmatchcase(text, each) for text in texts[1:]) for each in options)
        bare = " ".join(text for text in texts if not text.startswith("-"))
        if present and fnmatch.fnmatchcase(bare, f"{begin}*"):
            return "yes"
    return "no"


def _held_against(texts: list[str], form: str, *, guessed: bool) -> Forbids:
    gap = next((at for at, text in enumerate(texts) if GAP in text), None)
    if gap is None:
        return "yes" if fnmatch.fnmatchcase(" ".join(texts), form) else "no"
    sure = " ".join(texts[:gap])
    if sure and form.endswith("*") and not form.endswith("[*]") and fnmatch.fnmatchcase(sure, form):
        return "yes"
    could = could_be(texts, form)
    return "maybe" if could == "spelled" or (could == "bare" and not guessed) else "no"


def _mentioned(text: str, made: Sequence[str], pattern: str) -> Literal["none", "some", "all"]:
    """How many of a rule's own words stand in a text, in any order, quoted, behind an option or escaped.

    For all of them, one may also be a word that is `made`, of which some letters are known.
    """
    if not text:
        return "none"
    joined = _LONG_OPTION.sub(" ", text.replace("\\\n", ""))
    where = "\n".join((joined, re.sub(r"[\\'\"]", "", joined)))
    unread = (each for each in _BETWEEN_WORDS.split(_EXPANDED.sub(GAP, where)) if GAP in each)
    parts = {part.rpartition("/")[2].lower() for each in (*made, *unread) for part in each.split()}
    if any(could_be([each], form) == "spelled" for each in made for form in _forms(pattern)):
        return "all"
    needles = _needles(pattern)
    literal = [sign.search(where) is not None for sign, _ in needles]
    alone = len(needles) == 1
    possible = (any(_could_stand(part, word, alone=alone) for part in parts) for _, word in needles)
    if all(stands or could for stands, could in zip(literal, possible, strict=True)):
        return "all"
    return "some" if any(literal) else "none"


def _could_stand(part: str, word: str, *, alone: bool) -> bool:
    """Whether a word could be one of the rule; if that is `alone`, half of its letters must be known."""
    if not alone:
        return could_be([part], word) == "spelled"
    word = word.strip("*")
    return len(part.replace(GAP, "")) * 2 >= len(word) and could_be([part], word) == "spelled"


_EXPANDED = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|`[^`]*`|\$[\w@*#?!-]\w*|[*?.]|\[[^\[\]]*\]|\{[^{}\s]*\}")
"""What a shell makes something else of, in a text that another program gives to one."""
_BETWEEN_WORDS = re.compile(r"[\s();|&<>=,^$\\]+")
_LONG_OPTION = re.compile(r"(?<!\S)--[A-Za-z][\w-]*(?=[\s=]|$)")
"""The name of an option is no word to run: `docker run --rm`."""
_BEFORE = (
    r"(?:(?<![A-Za-z0-9_])|(?<=\\[abefnrtv])|(?<=\\x[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2})|(?<=\\[0-7]{3})"
    r"|(?<=\\u[0-9A-Fa-f]{4}))"
)
"""What may stand before a word in a text that another program reads: no letter, or an escape."""
_LETTERS = r"(?:(?<=[\s'\"])|^)-[A-Za-z0-9]{1,12}?"
"""Options in one word with their value: `-qc'git push'`."""


@lru_cache(maxsize=512)
def _needles(pattern: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """What to look for: the words of a pattern that are no options, without their stars; and each word."""
    found: list[tuple[re.Pattern[str], str]] = []
    for whole in _forms(pattern)[0].split(" "):
        word = re.sub(r"\[([*?[])\]", lambda sign: f"\\{sign[1]}", whole)
        if word.startswith("-"):
            continue
        for part in re.finditer(r"(?:\\.|[^*?[\]\\])+", word):
            said = re.escape(re.sub(r"\\(.)", r"\1", part[0]))
            before = rf"(?:{_BEFORE}|{_LETTERS})" if part.start() == 0 else ""
            after = r"(?![A-Za-z0-9_])" if part.end() == len(word) else ""
            found.append((re.compile(f"{before}{said}{after}", re.I | re.M), whole.lower()))
    return tuple(found)
