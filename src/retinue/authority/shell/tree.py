"""Shell commands by tree-sitter's grammar of bash: every simple command in them, wherever it stands.

Called by `reading`. The grammar reads all of the language, and some of it wrongly (it takes what follows
`> file` for more files, and `{` after `!` for a program): what it says is enough to find commands that a
rule denies, and to contradict `plain`, never to allow anything by itself.

Words that the shell would make out of something else are not known but for the letters around it. `unsure`
says why commands may run that are nowhere to be seen in the text: values that are evaluated once more, or
text that is not understood. `composes` says by what the text may put words together out of letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from retinue.authority.shell.known import BRACES, GAP, around
from retinue.authority.shell.plain import NotPlain, Simple, Word, names, plain_word
from retinue.authority.shell.variables import evaluated, evaluated_assignment

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Node kinds that run nothing by themselves. A kind that is not listed makes the reader unsure.
_KNOWN = names("""
    ansi_c_string arithmetic_expansion array binary_expression brace_expression c_style_for_statement
    case_item case_statement command command_name command_substitution comment compound_statement
    concatenation declaration_command do_group elif_clause else_clause expansion extglob_pattern
    file_descriptor file_redirect for_statement function_definition heredoc_body heredoc_content heredoc_end
    heredoc_redirect heredoc_start herestring_redirect if_statement list negated_command number
    parenthesized_expression pipeline postfix_expression process_substitution program raw_string
    redirected_statement regex simple_expansion special_variable_name string string_content subscript
    subshell ternary_expression test_command test_operator translated_string unary_expression unset_command
    variable_assignment variable_assignments variable_name while_statement word
    """)
_NUMERIC = names("""
    number binary_expression unary_expression ternary_expression postfix_expression parenthesized_expression
    """)
_NAME = r"(?:[A-Za-z_]\w*|\d+|[@*#?$-])"
_INDEX = r"(?:\[(?:\d+|@|\*)\])"
_TAME_EXPANSION = re.compile(
    rf"\$\{{#?{_NAME}{_INDEX}?(?:\}}|:?[-+=?]|[#%/^,]|:\s*\d+(?::\d+)?\}})", re.ASCII
)
_TAME_SUBSCRIPT = re.compile(rf"\w+{_INDEX}", re.ASCII)
_COMPARES = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_KEEPS_WHOLE = re.compile(rf"\$\{{#?{_NAME}{_INDEX}?(?:\}}|:?[-+=?])", re.ASCII)
"""Expansions that give a variable's value or a text that stands here, and no part of it."""
_CUT = re.compile(r"\$\{(\w+)[#%]", re.ASCII)
_CUT_AT_SIGN = re.compile(r"\$\{\w+(?:%%?[./:,@+=-]|##?[^}\"'$]*[./:,@+=-]\}$)", re.ASCII)
"""Expansions that cut at a sign no word goes through: what is left stands in the text as a word."""
_ODD_VALUES = re.compile(r"\$\{?(?:_|0|BASH_?\w*|IFS|OPTARG)\b")
_WORDS = names("""
    word string raw_string ansi_c_string translated_string concatenation number simple_expansion expansion
    command_substitution process_substitution arithmetic_expansion brace_expression variable_name
    extglob_pattern regex test_operator subscript array special_variable_name
    """)
_OPERATORS = names("&& || | |& ; & ( ) { } ! if then elif else fi while until do done")


@dataclass(slots=True)
class Grammar:
    """What the grammar found: `words` and `operators` are the places of all of them in the text."""

    commands: list[Simple] = field(default_factory=list[Simple])
    words: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    operators: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    unsure: str = ""
    composes: bool = False
    """Words may come out of this text that it does not hold."""
    keeps: bool = False
    """It gives names to texts: variables, loops, functions."""
    made: list[str] = field(default_factory=list[str])
    """Values of variables and loops that are not known to the letter, with gaps."""

    def doubt(self, why: str) -> None:
        self.unsure = self.unsure or why


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def read_tree(command: str) -> Grammar:
    """Every command in a text. Places are in its UTF-8 bytes.

    The time grows with the square of the length at worst, and the parser's own means to stop it end the
    process: whoever calls this must bound the text.
    """
    source = command.encode("utf-8", "replace")
    found = Grammar()
    reader = _Reader(source, found)
    stack = [(_parser().parse(_in_reach(source)).root_node, _Place())]
    while stack:
        node, above = stack.pop()
        place = above.into(node, source)
        reader.visit(node, place)
        stack.extend((child, place) for child in reversed(node.children))
    return found


_STAND_INS = {2: "\u00d7", 3: "\u00d7x", 4: "\u00d7\u00d7"}


def _in_reach(source: bytes) -> bytes:
    """The text with a sign of the same length for each letter beyond ASCII.

    The grammar asks a table of 256 places what a letter is, whatever the letter: `{` before a sign such as an
    emoji reads memory that is not there, and now and then ends the process. To bash each of them is a part of
    a word, and of no name; so is the sign.
    """
    if source.isascii():
        return source
    letters = source.decode("utf-8")
    return "".join(
        each if each < "\x80" else _STAND_INS[len(each.encode("utf-8"))] for each in letters
    ).encode()


def _all(root: Node) -> Iterator[Node]:
    """Every node, parents first, in the order of the text; without recursion, since text nests at will."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


class _Reader:
    """Collects commands and doubts, one node at a time."""

    def __init__(self, source: bytes, found: Grammar) -> None:
        self.source = source
        self.found = found
        self.after: dict[int, list[Node]] = {}
        """By where a command ends: words of it that stand behind its redirections."""

    def visit(self, node: Node, place: _Place) -> None:
        if node.type == "ERROR" or node.is_missing:
            self.found.doubt("it is not understood")
        elif not node.is_named:
            if node.type in _OPERATORS:
                self.found.operators.add((node.start_byte, node.end_byte))
        elif node.type not in _KNOWN:
            self.found.doubt(f"it holds a {node.type}")
        elif node.type == "command":
            self._command(node, place)
        elif node.type in ("declaration_command", "unset_command", "test_command"):
            self._builtin(node)
        elif node.type == "redirected_statement":
            redirects = [child for child in node.children if child.type.endswith("_redirect")]
            more = [word for child in redirects for word in self._more(child)]
            self.after.setdefault(node.children[0].end_byte, []).extend(more)
            if more and node.children[0] in redirects:
                self.found.doubt("redirections stand before what it runs")
        self._doubts(node, place)
        self._composes(node)

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _command(self, node: Node, place: _Place) -> None:
        words: list[Node] = []
        assigned: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assigned.append(self._text(child))
            elif child.type.endswith("_redirect"):
                words += self._more(child)
            elif child.type in _WORDS or child.type == "command_name":
                words.append(child)
            elif self._text(child) != child.type:  # `-$` of `-$""n`: a part of the next word
                self.found.doubt("the grammar parts a word")
        words += self.after.pop(node.end_byte, ())
        words.sort(key=lambda each: each.start_byte)
        spans = tuple((each.start_byte, each.end_byte) for each in words)
        self.found.words.update(spans)
        if words:
            read = tuple(self._word(each) for each in words)
            self.found.commands.append(
                Simple(
                    words=read,
                    spans=spans,
                    assignments=tuple(assigned),
                    fed="\n".join(place.fed),
                    piped=place.piped,
                    used=place.used,
                    caught=place.caught,
                    given=place.given,
                )
            )

    def _more(self, redirect: Node) -> list[Node]:
        """What the grammar takes for a part of a redirection, and bash for further words of the command."""
        words = [child for child in redirect.children if child.type in _WORDS]
        return words if redirect.type == "heredoc_redirect" else words[1:]

    def _builtin(self, node: Node) -> None:
        """`export`, `unset`, `[` and their like, which the grammar does not count as commands."""
        if node.type == "test_command":
            words = [Word(part) for part in self._text(node).split()]
        else:
            words = [self._word(child) for child in node.children]
        self.found.commands.append(Simple(words=tuple(words)))

    def _word(self, node: Node) -> Word:
        raw = self._text(node)
        if raw.startswith(("$'", '$"')) and "\\" not in raw:
            raw = raw[1:]
        try:
            return plain_word(raw) if raw not in ("{", "}", "!") else Word(raw)
        except NotPlain:
            return Word("", any=True, around=around(node, self.source))

    def _doubts(self, node: Node, place: _Place) -> None:
        """Whether values are evaluated here that the text does not show."""
        text = self._text(node) if node.type in _DOUBTFUL else ""
        arithmetic = node.type in ("arithmetic_expansion", "c_style_for_statement") or (
            node.type == "compound_statement" and node.children[0].type == "(("
        )
        if arithmetic and not _only_numbers(node):
            self.found.doubt("arithmetic evaluates what variables hold")
        elif node.type == "expansion" and ("`" in text or not _TAME_EXPANSION.match(text)):
            self.found.doubt("an expansion evaluates what a variable holds")
        elif (node.type == "subscript" and not _TAME_SUBSCRIPT.fullmatch(text)) or (
            node.type == "array" and "[" in text
        ):
            self.found.doubt("a subscript is evaluated")
        elif node.type == "test_command" and self._test_evaluates(node):
            self.found.doubt("a comparison evaluates what variables hold")
        elif node.type == "heredoc_start" and re.search(r"[;&|<>()]", self._text(node)):
            self.found.doubt("the grammar takes a sign for a part of a here-document's name")
        elif self._sets(node, text, place.above):
            self.found.doubt("it sets a variable that programs run")
        elif node.type == "heredoc_redirect" and "`" in text and not re.match(r"<<-?\s*\S*['\"\\]", text):
            self.found.doubt("a here-document runs commands")
        elif node.type in ("declaration_command", "unset_command") and self._declares(node, text):
            self.found.doubt("a declaration evaluates its arguments")

    def _sets(self, node: Node, text: str, above: Node | None) -> bool:
        """Whether a variable gets a value here that is more than a text to somebody."""
        if node.type == "variable_assignment":
            name = (
                next((each for each in above.children if each.type == "command_name"), None)
                if above
                else None
            )
            return evaluated_assignment(text, program=self._text(name) if name else "")
        if node.type == "expansion":
            named = re.match(r"\$\{(\w+)(?:\[[^\]]*\])?:?=", text)
            return named is not None and evaluated(named[1])
        return node.type == "for_statement" and any(
            evaluated(self._text(each)) for each in node.named_children if each.type == "variable_name"
        )

    def _composes(self, node: Node) -> None:
        """Whether letters are put together here, or taken apart."""
        found = self.found
        text = self._text(node) if node.type in ("expansion", "simple_expansion") else ""
        if node.type in _KEEPING:
            found.keeps = True
        if node.type in ("for_statement", "array", "variable_assignment"):
            values = (around(each, self.source) for each in node.named_children)
            found.made += [each for each in values if GAP in each and each != GAP]
        if node.type == "expansion":
            found.composes = found.composes or not self._whole(text)
        elif node.type == "simple_expansion":
            found.composes = found.composes or _ODD_VALUES.match(text) is not None
        elif node.type == "string":
            found.composes = found.composes or GAP * 2 in around(node, self.source)
        elif node.type == "concatenation":
            parts = (
                self._text(each) if each.type == "word" else around(each, self.source)
                for each in node.children
            )
            found.composes = found.composes or GAP * 2 in BRACES.sub(GAP, "".join(parts))
        elif node.type == "variable_assignment":
            found.composes = found.composes or any(each.type == "+=" for each in node.children)

    def _whole(self, text: str) -> bool:
        """Whether an expansion gives a value that stands in the text, or a word of it."""
        if _ODD_VALUES.match(text):
            return False
        cut = _CUT.match(text)
        elsewhere = cut is not None and re.search(rf"(?<![${{\w]){cut[1]}\b".encode(), self.source)
        named = cut is not None and not cut[1].isdigit() and elsewhere is None
        return bool(named or _CUT_AT_SIGN.match(text) or _KEEPS_WHOLE.match(text))

    def _test_evaluates(self, node: Node) -> bool:
        operators = {self._text(each) for each in _all(node) if each.type == "test_operator"}
        compared = bool(operators & _COMPARES) and node.children[0].type != "["
        return bool(operators & {"-v", "-R"}) or (compared and not _only_numbers(node))

    def _declares(self, node: Node, text: str) -> bool:
        """Names with subscripts, names out of variables, and kinds (-i, -n) that evaluate values later."""
        named = any(each.type in ("simple_expansion", "expansion", "concatenation") for each in node.children)
        return "[" in text or named or re.search(r"\s-\w*[inA]", text) is not None


_DOUBTFUL = names(
    "expansion subscript array test_command variable_assignment declaration_command unset_command"
    " heredoc_redirect"
)
_KEEPING = names(
    "variable_assignment for_statement c_style_for_statement function_definition declaration_command"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """What a command reads and who reads it, by all that it stands in. `fed` are here-documents and
    here-strings that it may read, its own first.

    Handed down from node to node: the library finds a parent by going down from the root again.
    """

    node: Node | None = None
    above: Node | None = None
    piped: bool = False
    used: bool = False
    caught: bool = False
    given: bool = False
    fed: tuple[str, ...] = ()

    def into(self, node: Node, source: bytes) -> _Place:
        """The place of a child of this one."""
        above = self.node
        piped, used, caught, given, fed = self.piped, self.used, self.caught, self.given, self.fed
        if node.type in ("command", "redirected_statement"):
            texts: list[str] = []
            for redirect in node.children:
                if redirect.type == "file_redirect":
                    text = source[redirect.start_byte : redirect.end_byte]
                    used = used or (b">" in text and _NOWHERE.fullmatch(text) is None)
                    piped = piped or b"<(" in text
                elif redirect.type in ("herestring_redirect", "heredoc_redirect"):
                    given = given or any(each.type in _MADE for each in _all(redirect))
                    used = used or redirect.type == "heredoc_redirect"
                    texts += _texts(redirect, source)
            fed = (*texts, *fed) if texts else fed
        elif node.type in ("command_substitution", "process_substitution", "function_definition"):
            used, caught = True, caught or node.type == "command_substitution"
        elif node.type == "heredoc_redirect":
            piped = True
        if above is not None and above.type == "pipeline":
            used = used or node.end_byte != above.end_byte
            piped = piped or node.start_byte != above.start_byte
        return _Place(node, above, piped, used, caught, given, fed)


def _texts(redirect: Node, source: bytes) -> list[str]:
    """The text of a here-string, or of a here-document."""
    if redirect.type == "herestring_redirect":
        return [around(each, source) for each in redirect.named_children]
    bodies = (each for each in redirect.named_children if each.type == "heredoc_body")
    return [source[each.start_byte : each.end_byte].decode("utf-8", "replace") for each in bodies]


_NOWHERE = re.compile(rb"\d?>&\s*\d|&?\d?>>?\s*/dev/null")
_MADE = names("simple_expansion expansion command_substitution arithmetic_expansion")


def _only_numbers(node: Node) -> bool:
    return all(
        each.type in _NUMERIC or not each.is_named or each.type == "test_operator"
        for each in list(_all(node))[1:]
    )
