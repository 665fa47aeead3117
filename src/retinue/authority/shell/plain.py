"""The plain part of the shell's language, read strictly: what an allow rule may speak of.

Plain is a command whose words are known without running anything: letters, quotes and escapes, parted by
`;`, `&&`, `||`, `|` and line ends, in groups, subshells, `if`, `while` and `until`. Whatever else the shell
knows (expansions, assignments alone, loops over words, functions, here-documents, files to write to) is
refused with a reason, by a list of what is known to be plain and not of what is dangerous.

Called by `reading`, which holds the result against a second grammar's. Never raises anything but `NotPlain`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

DEEPEST = 20
"""Groups within groups."""


def names(text: str) -> frozenset[str]:
    """The words of a text, for tables."""
    return frozenset(text.split())


RESERVED = names(
    "! { } [[ ]] case coproc do done elif else esac fi for function if in select then time until while"
)
"""Words that are no program where a command begins. `time` is looked through as if it were one."""

_BARE = re.compile(r"[A-Za-z0-9_./:=@%+,^-]+")
_BRACES = re.compile(r"\{[A-Za-z0-9_-]*\}")
_NULL = re.compile(
    r"(?:[012]?<|[12]?>>?|&>>?)[ \t]*/dev/null(?=[ \t\n;|&()]|$)|[12]?>&[12](?=[ \t\n;|&()]|$)"
)
_OPERATOR = re.compile(r"&&|\|\||\|&|\||;|\n|\(|\)")
_COMMENT = re.compile(r"#[^\n]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ENDS_WORD = frozenset(" \t\n;|&()<>")
_HARMLESS_AFTER_DOLLAR = frozenset('" |)/')
"""In double quotes a `$` before one of these stands for itself."""

SWALLOWED = "in some locales a backslash is half of the character before it"
"""Under GBK, Big5 and Shift-JIS the shell reads `"你\\"` as a whole string, and what follows as a command."""


class NotPlain(Exception):
    """Why a command is more than plain words, said to people."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word. `text` is what the program gets, if that is known.

    `glob` is set when the shell would look for files: the pattern, with its quoted signs escaped. `home` is
    set when the word begins with the person's home folder. `any` is a word that is not known: it may be
    several, or none. `around` is then what is known of it, with a NUL for each part that is not.
    """

    text: str
    glob: str | None = None
    home: bool = False
    any: bool = False
    around: str | None = None

    @property
    def literal(self) -> bool:
        return self.glob is None and not self.home and not self.any


ANY = Word("", any=True)


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple command: its words, what is assigned for it, and where they stand in the text.

    `piped` is set when it reads what another command prints, `used` when another may read what it prints, or
    a file keeps it; `caught` when that is the shell, in `$(…)`; `given` when it reads a here-document that
    the shell makes up, and `fed` is what it reads of such. These four are known by the grammar alone.
    """

    words: tuple[Word, ...]
    spans: tuple[tuple[int, int], ...] = ()
    assignments: tuple[str, ...] = ()
    piped: bool = False
    used: bool = False
    caught: bool = False
    given: bool = False
    fed: str = ""

    @property
    def program(self) -> str:
        return self.words[0].text if self.words and self.words[0].literal else ""


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain command: its pipelines in the order in which they are written, and what stands around them.

    `shape` is the command with every simple command as `_`; `marks` are the places of operators and keywords.
    """

    pipelines: tuple[tuple[Simple, ...], ...]
    shape: str
    marks: frozenset[tuple[int, int]]

    @property
    def commands(self) -> tuple[Simple, ...]:
        return tuple(simple for pipeline in self.pipelines for simple in pipeline)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "word", "operator", "redirect"
    raw: str
    start: int
    end: int
    word: Word = ANY


def read_plain(command: str, *, rule: bool = False) -> Plain:
    """The command, if it is plain; `NotPlain` says why not. In a `rule`, the program may have a star."""
    return _Parser(_tokens(command), rule=rule).whole()


def plain_word(raw: str) -> Word:
    """One word as it is written, with its quotes removed; `NotPlain` if it is not plain."""
    word, end = _word(raw, 0)
    if end != len(raw):
        raise NotPlain("more than one word")
    return word


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        if text[at] in " \t":
            at += 1
        elif comment := _COMMENT.match(text, at):
            _check_characters(comment[0])
            at = comment.end()
        else:
            token = _token(text, at)
            found.append(token)
            at = token.end
    return found


def _token(text: str, at: int) -> _Token:
    if match := _NULL.match(text, at):
        return _Token("redirect", match[0], at, match.end())
    if match := _OPERATOR.match(text, at):
        if text.startswith("((", at) or text.startswith(";;", at):
            raise NotPlain(f"it holds {text[at : at + 2]!r}")
        return _Token("operator", match[0], at, match.end())
    ends = _ENDS_WORD if text[at] == "}" else frozenset(" \t\n")
    if text[at] in "{}!" and (at + 1 == len(text) or text[at + 1] in ends):
        return _Token("word", text[at], at, at + 1, Word(text[at]))
    word, end = _word(text, at)
    if end < len(text) and text[end] in "<>":
        raise NotPlain("it redirects")
    if end < len(text) and text[end] == "&" and not text.startswith("&&", end):
        raise NotPlain("it holds '&'")
    if end == at:
        _refuse(text[at])
    return _Token("word", text[at:end], at, end, word)


def _refuse(sign: str) -> NoReturn:
    names = {"&": "it runs in the background", "<": "it redirects", ">": "it redirects"}
    raise NotPlain(names.get(sign, f"it holds {sign!r}"))


def _check_characters(text: str) -> None:
    """No control characters, and nothing that cannot be written to a program in UTF-8."""
    for sign in text:
        if (sign < " " and sign not in "\t\n") or sign == "\x7f" or "\ud800" <= sign <= "\udfff":
            _refuse(sign)


def _word(text: str, at: int) -> tuple[Word, int]:
    start = at
    said: list[str] = []
    glob: list[str] = []
    home = stars = braces = commas = False
    while at < len(text) and text[at] not in _ENDS_WORD:
        sign = text[at]
        if match := _BARE.match(text, at):
            piece, at = match[0], match.end()
            commas = commas or "," in piece
        elif sign == "'" or sign == '"':
            piece, at = _single(text, at) if sign == "'" else _double(text, at)
        elif sign == "\\":
            piece, at = _escaped(text, at)
        elif sign in "*?[]":
            said.append(sign)
            glob.append(sign)
            stars, at = stars or sign != "]", at + 1
            continue
        elif sign == "~":
            home = home or at == start
            _check_tilde(text, start, at)
            piece, at = "~", at + 1
        elif match := _BRACES.match(text, at):
            piece, at, braces = match[0], match.end(), True
        else:
            _refuse(sign)
        said.append(piece)
        glob.append(_escape(piece))
    if braces and commas:
        raise NotPlain("braces with commas")
    return Word("".join(said), glob="".join(glob) if stars else None, home=home), at


def _escape(piece: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", piece)


def _check_tilde(text: str, start: int, at: int) -> None:
    """`~/x` is the home folder and `HEAD~2` is what it looks like; every other tilde is too clever."""
    if at == start:
        if at + 1 < len(text) and text[at + 1] not in _ENDS_WORD and text[at + 1] != "/":
            raise NotPlain("it holds '~'")
    elif not (text[at - 1].isascii() and (text[at - 1].isalnum() or text[at - 1] in "_@^~")):
        raise NotPlain("it holds '~'")


def _single(text: str, at: int) -> tuple[str, int]:
    end = text.find("'", at + 1)
    if end < 0:
        raise NotPlain("a quote is not closed")
    _check_characters(text[at + 1 : end])
    return text[at + 1 : end], end + 1


def _double(text: str, at: int) -> tuple[str, int]:
    at += 1
    said: list[str] = []
    while at < len(text) and text[at] != '"':
        sign = text[at]
        after = text[at + 1 : at + 2]
        if sign == "\\":
            if after == "\n" or not after:
                raise NotPlain("a line is continued")
            if not text[at - 1].isascii():
                raise NotPlain(SWALLOWED)
            said.append(after if after in '$`"\\' else sign + after)
            _check_characters(after)
            at += 2
            continue
        if sign == "`" or (sign == "$" and after not in _HARMLESS_AFTER_DOLLAR):
            raise NotPlain("something is expanded")
        _check_characters(sign)
        said.append(sign)
        at += 1
    if at >= len(text):
        raise NotPlain("a quote is not closed")
    return "".join(said), at + 1


def _escaped(text: str, at: int) -> tuple[str, int]:
    after = text[at + 1 : at + 2]
    if not " " <= after <= "~" or not after:
        raise NotPlain("a line is continued" if after == "\n" else "a lone backslash")
    return after, at + 2


class _Parser:
    """Commands out of tokens, by the shell's own rules for the few words and operators that are plain."""

    def __init__(self, tokens: list[_Token], *, rule: bool) -> None:
        self.tokens = tokens
        self.rule = rule
        self.at = 0
        self.depth = 0
        self.pipelines: list[tuple[Simple, ...]] = []
        self.shape: list[str] = []
        self.marks: set[tuple[int, int]] = set()

    def whole(self) -> Plain:
        self._list(())
        if self.at < len(self.tokens):
            raise NotPlain(f"{self.tokens[self.at].raw!r} is not expected here")
        if not self.pipelines:
            raise NotPlain("it is empty")
        return Plain(tuple(self.pipelines), " ".join(self.shape), frozenset(self.marks))

    def _next(self) -> str:
        """The next operator or bare word; nothing at the end."""
        return self.tokens[self.at].raw if self.at < len(self.tokens) else ""

    def _take(self, *raws: str) -> bool:
        if self.at >= len(self.tokens) or self._next() not in raws:
            return False
        token = self.tokens[self.at]
        self.shape.append(";" if token.raw == "\n" else token.raw)
        if token.raw != "\n":
            self.marks.add((token.start, token.end))
        self.at += 1
        return True

    def _need(self, raw: str) -> None:
        if not self._take(raw):
            raise NotPlain(f"{raw!r} is missing")

    def _skip_lines(self) -> None:
        while self._next() == "\n":
            self.at += 1

    def _list(self, until: tuple[str, ...]) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise NotPlain("it is nested too deeply")
        self._skip_lines()
        while self.at < len(self.tokens) and self._next() not in until:
            self._and_or()
            if self._next() in until or not self._take(";", "\n"):
                break
            self._skip_lines()
        self.depth -= 1

    def _and_or(self) -> None:
        self._pipeline()
        while self._take("&&", "||"):
            self._skip_lines()
            self._pipeline()

    def _pipeline(self) -> None:
        self._take("!")
        before = len(self.pipelines)
        stages: list[Simple] = []
        while True:
            simple = self._command(piped=bool(stages) or len(self.pipelines) > before)
            if simple is not None:
                stages.append(simple)
            if not self._take("|", "|&"):
                break
            self._skip_lines()
        if stages:
            self.pipelines.append(tuple(stages))

    def _command(self, *, piped: bool) -> Simple | None:
        """A simple command; or None where it is a group, whose commands are counted by themselves."""
        raw = self._next()
        if raw not in ("(", "{", "if", "while", "until"):
            return self._simple(piped=piped)
        if piped:
            raise NotPlain("a group reads what another command prints")
        self._take(raw)
        before = len(self.pipelines)
        if raw == "(":
            self._list((")",))
            self._need(")")
        elif raw == "{":
            self._list(("}",))
            self._need("}")
        elif raw == "if":
            self._if()
        else:
            self._list(("do",))
            self._need("do")
            self._list(("done",))
            self._need("done")
        if len(self.pipelines) == before:
            raise NotPlain("a group is empty")
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "redirect":
            self.at += 1
        return None

    def _if(self) -> None:
        self._list(("then",))
        self._need("then")
        self._list(("elif", "else", "fi"))
        while self._take("elif"):
            self._list(("then",))
            self._need("then")
            self._list(("elif", "else", "fi"))
        if self._take("else"):
            self._list(("fi",))
        self._need("fi")

    def _simple(self, *, piped: bool) -> Simple:
        words: list[_Token] = []
        assigned: list[str] = []
        while self.at < len(self.tokens) and self.tokens[self.at].kind != "operator":
            token = self.tokens[self.at]
            self.at += 1
            if token.kind == "redirect":
                continue
            if not words and _ASSIGNMENT.match(token.raw):
                if not token.word.literal:
                    raise NotPlain("it assigns what is not plain")
                assigned.append(token.word.text)
            else:
                words.append(token)
        if not words:
            raise NotPlain("it assigns a variable" if assigned else f"{self._next()!r} is not expected here")
        _check_first(words, rule=self.rule)
        if self._next() == "(":
            raise NotPlain("'(' is not expected here")
        self.shape.append("_")
        return Simple(
            words=tuple(token.word for token in words),
            spans=tuple((token.start, token.end) for token in words),
            assignments=tuple(assigned),
            piped=piped,
        )


def _check_first(words: list[_Token], *, rule: bool) -> None:
    first = words[0]
    if first.raw in RESERVED and (first.raw != "time" or (len(words) > 1 and words[1].raw in RESERVED)):
        raise NotPlain(f"{first.raw!r} is not expected here")
    if first.raw == "time" and len(words) > 1 and words[1].word.text.startswith("-") and words[1].raw != "-p":
        raise NotPlain("'time' takes an option in quotes for a program")
    if not first.word.text or not (first.word.literal or rule):
        raise NotPlain("the program is not named plainly")
    if any(token.raw in ("{", "}") for token in words):
        raise NotPlain("a brace stands alone")
