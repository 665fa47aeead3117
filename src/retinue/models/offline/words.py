"""From a question to what to search for: names, quoted texts, and words cut to their stems.

`Where are retries decided?` gives `retr(?:y|ie[sd]?|ying)` and `decid`; `where is ClientSession defined?`
gives the name `ClientSession` alone. Called by the roles that search code or texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

READ = 4000
"""Characters of a question that are read."""
Kind = Literal["name", "exact", "word"]


@cache
def stop_words() -> frozenset[str]:
    """Words that say nothing about what to search for."""
    return frozenset(_data("stopwords.txt").split())


@cache
def kin() -> dict[str, tuple[str, ...]]:
    """Other words that programmers use for the same idea, by stem. They count less than the word itself."""
    pairs = (line.partition(":") for line in _data("kin.txt").splitlines() if ":" in line)
    return {stem.strip(): tuple(others.split()) for stem, _, others in pairs}


def _data(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|(?<!\w)'([^'\n]{2,80})'(?!\w)")
_NAME = re.compile(
    r"(?<![\w/.@-])(?:"
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\(\)"  # called()
    r"|[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+"  # dotted.name
    r"|_*[A-Za-z]\w*_\w*"  # snake_case, _private
    r"|[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+"  # CamelCase
    r"|[A-Z]{2,}[a-z0-9]+[A-Za-z0-9]*"  # SSEParser
    r"|[a-z]+[a-z0-9]*[A-Z]\w*"  # camelCase
    r"|--?[a-z][\w-]{2,}"  # a flag
    r")(?!\w)"
)
_PATH = re.compile(r"(?<![\w:/])(?:\.{0,2}/)?(?:[\w.@-]+/)+[\w.*@-]*|(?<![\w/.])[\w-]+\.[a-z]{1,4}\b(?!\()")
_SUFFIXES = """
py pyi js mjs cjs ts tsx jsx go rs rb java kt c h cc cpp hpp cs php swift scala sh sql toml yaml yml json
md rst txt cfg ini html css vue svelte lua ex exs erl hs ml proto tf lock
"""
_EXTENSIONS = frozenset(_SUFFIXES.split())
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Term:
    """`pattern` is a regular expression, `stem` the plain part of it that kin are looked up by."""

    text: str
    kind: Kind
    pattern: str
    stem: str = ""

    @property
    def weight(self) -> float:
        acronym = self.kind == "word" and len(self.text) > 1 and self.text.isupper()
        return 1.6 if acronym else {"name": 4.0, "exact": 3.0, "word": 1.0}[self.kind]

    @property
    def grep(self) -> str:
        """A pattern for grep that finds a word only where a word, or a part of a name, begins."""
        if self.kind != "word":
            return self.pattern
        capital = self.pattern[0].upper() + self.pattern[1:]
        plain = f"(?i:\\b{self.pattern}|_{self.pattern})|{capital}"
        return f"{plain}|{self.text}" if self.text.isupper() else plain

    def found_in(self, text: str) -> bool:
        """Whether a line speaks of this: a word must begin at the beginning of a part of a name."""
        if self.kind == "exact":
            return self.text.lower() in text.lower()
        if self.kind == "name":
            return re.search(rf"(?<!\w){self.pattern}(?!\w)", text) is not None
        return any(
            match.start() == 0 or not text[match.start() - 1].isalpha() or text[match.start()].isupper()
            for match in _compiled(self.pattern).finditer(text)
        )


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What a question is about. `paths` are files and folders that it names."""

    names: tuple[Term, ...]
    words: tuple[Term, ...]
    paths: tuple[str, ...]

    @property
    def all(self) -> tuple[Term, ...]:
        return self.names + self.words

    def __bool__(self) -> bool:
        return bool(self.names or self.words)


def terms_of(question: str) -> Terms:
    """Names and quoted texts first, then words, each once, in the order of the question."""
    question = re.sub(r"https?://\S+", " ", question[:READ])
    found: dict[str, Term] = {}
    rest = _QUOTED.sub(lambda match: _quoted(match, found), question)
    paths = [match[0] for match in _PATH.finditer(rest) if _is_path(match[0])]
    for path in paths:
        rest = rest.replace(path, " ")
    for match in _NAME.finditer(rest):
        name = match[0].removesuffix("()").replace("::", ".").split(".")[-1]
        if len(name) > 2:
            found.setdefault(name, Term(name, "name", re.escape(name)))
    rest = _NAME.sub(" ", rest)
    words: dict[str, Term] = {}
    for match in _WORD.finditer(rest):
        word = match[0]
        if word.lower() in stop_words() or (len(word) < 3 and not word.isupper()):
            continue
        stem, pattern = stem_of(word.lower())
        words.setdefault(stem, Term(word, "word", pattern, stem))
    return Terms(names=tuple(found.values())[:5], words=tuple(words.values())[:7], paths=tuple(paths[:3]))


def _quoted(match: re.Match[str], found: dict[str, Term]) -> str:
    text = next(group for group in match.groups() if group is not None).strip()
    if _is_path(text):
        return f" {text} "
    bare = text.removesuffix("()").split(".")[-1]
    if re.fullmatch(r"\w+", bare):
        found.setdefault(bare, Term(bare, "name", re.escape(bare)))
    elif text:
        found.setdefault(text, Term(text, "exact", re.escape(text)))
    return " "


def _is_path(text: str) -> bool:
    if " " in text or text.startswith("--"):
        return False
    return "/" in text or (text.rsplit(".", 1)[-1] in _EXTENSIONS and "." in text)


def stem_of(word: str) -> tuple[str, str]:
    """The stem of an English word, and a pattern for its forms."""
    for ending, cut in (("ies", 3), ("ied", 3), ("ying", 4), ("y", 1)):
        base = word[:-cut]
        if word.endswith(ending) and len(base) >= 3 and base[-1] not in "aeiou":
            return base, f"{base}(?:y|ie[sd]?|ying)"
    stem = word
    if word.endswith("ing") and len(word) > 5 and re.search("[aeiouy]", word[:-3]):
        stem = _undouble(word[:-3])
    elif word.endswith("ed") and len(word) > 4 and not word.endswith("eed"):
        stem = _undouble(word[:-2])
    elif re.search(r"(?:s|x|z|ch|sh)es$", word) and len(word) > 4:
        stem = word[:-2]
    elif word.endswith("s") and len(word) > 3 and not re.search(r"(?:ss|us|is)$", word):
        stem = word[:-1]
    elif word.endswith("ion") and len(word) > 7:
        stem = word[:-3]
    if stem.endswith("e") and len(stem) > 4:
        stem = stem[:-1]
    return stem, stem


def _undouble(stem: str) -> str:
    return stem[:-1] if re.search(r"([bdgmnprt])\1$", stem) else stem


def kin_of(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Other words for the same ideas."""
    own = {term.stem for term in terms}
    return tuple(
        Term(other, "word", re.escape(other), other)
        for term in terms
        for other in kin().get(term.stem, ())
        if other not in own
    )


def parts_of(name: str) -> list[str]:
    """`getClientSession` and `get_client_session` as their words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return [part.lower() for part in re.split(r"[\W_]+", spaced) if len(part) > 2]
