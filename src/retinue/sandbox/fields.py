"""Fields of results in an interpreter that knows no attributes of texts.

What a host function gives code is a text with fields (`base.CallResult`): `answer.success` beside
`answer[:100]` and `json.loads(answer)`. In the cpython engine that is a text of a class of its own. Monty
has no such classes, so there `answer.success` is read as a call of a function that asks the host what the
field of this very text is; lines keep their numbers. Called by `monty` for each snippet.
"""

from __future__ import annotations

import ast
import copy
import re

from retinue.sandbox.base import FIELDS

ASK = "__field_of__"
"""The function of the host that knows fields: a text and a name give a list, empty if there is none."""

_GATHER = "__gather__"

PRELUDE = (
    f"""
__asked__ = {{}}
import asyncio as __asyncio__
def __field__(thing, name):
    if isinstance(thing, (str, Exception)):
        key = (str(thing), name)
        if key not in __asked__:
            __asked__[key] = {ASK}(key[0], name)
        if __asked__[key]:
            return __asked__[key][0]
    return getattr(thing, name)
async def __caught__(call):
    try:
        return await call
    except Exception as error:
        return error
async def {_GATHER}(*calls, return_exceptions=False):
    if not return_exceptions:
        return await __asyncio__.gather(*calls)
    return await __asyncio__.gather(*[__caught__(call) for call in calls])
"""
    + "".join(f"def __field_{name}__(thing):\n    return __field__(thing, {name!r})\n" for name in FIELDS)
    + "None\n"
)


def with_fields(code: str) -> str | None:
    """The code with its fields as calls of the functions of `PRELUDE`; None if it reads no field.

    `gather(..., return_exceptions=True)`, which the interpreter does not know either, is there too.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    edits = _Edits(code, tree).edits
    if not edits:
        return None
    raw = code.encode()
    pieces: list[bytes] = []
    at = 0
    for start, _, end, new in sorted(edits):
        pieces += [raw[at:start], new]
        at = end
    return b"".join([*pieces, raw[at:]]).decode()


def as_written(trace: str, code: str, run: str) -> str:
    """A traceback with the lines that the model wrote, and without what `PRELUDE` does in between."""
    trace = re.sub(
        r'(?m)^  File "[^"\n]*", line \d+, in __(?:field|gather|caught)\w*\n(?:    .*\n)*', "", trace
    )
    for written, rewritten in zip(code.splitlines(), run.splitlines(), strict=False):
        if written != rewritten and rewritten.strip():
            line = rf"(?m)^    {re.escape(rewritten.strip())}(?:\n +~+)?$"
            trace = re.sub(line, lambda match, written=written: f"    {written.strip()}", trace)
    return trace


class _Edits(ast.NodeVisitor):
    """What to change in a source: places in its bytes, and what to put there."""

    def __init__(self, code: str, tree: ast.Module) -> None:
        self._raw = code.encode()
        self._lines = [0]
        for line in self._raw.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.edits: list[tuple[int, int, int, bytes]] = []
        """Start, what of several at the same place comes first, end, what to put there."""
        self._imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        self.visit(tree)

    def _span(self, node: ast.expr) -> tuple[int, int]:
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[end_line - 1] + end

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        for each in node.body:  # and not the kinds of errors, which are of modules
            self.visit(each)

    def visit_Call(self, node: ast.Call) -> None:
        named = any(keyword.arg == "return_exceptions" for keyword in node.keywords)
        if named and ast.unparse(node.func) in ("asyncio.gather", "gather"):
            start, end = self._span(node.func)
            self.edits.append((start, 0, end, _GATHER.encode()))
        elif isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)  # `x.error(...)` is a method of something else
        else:
            self.visit(node.func)
        for each in (*node.args, *node.keywords):
            self.visit(each)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        if not _is_field(node, self._imported):
            return
        start, end = self._span(node)
        after = self._span(node.value)[1]
        dot = re.search(rb"\.\s*" + node.attr.encode() + rb"\Z", self._raw[after:end])
        if dot is None:
            return
        lines = b"\n" * self._raw[after + dot.start() : end].count(b"\n")
        self.edits.append((start, -end, start, f"__field_{node.attr}__(".encode()))
        self.edits.append((after + dot.start(), 0, end, lines + b")"))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Before Python 3.12 nobody knows where the parts of one are, so it is written anew as a whole."""
        start, end = self._span(node)
        changed = _Fields(self._imported)
        new = changed.visit(copy.deepcopy(node))
        if not changed.found:
            return
        try:
            written = ast.unparse(ast.fix_missing_locations(new))
        except ValueError:  # what it cannot write, it leaves as it is
            return
        lines = "\n" * (self._raw[start:end].count(b"\n") - written.count("\n"))
        self.edits.append((start, 0, end, f"({written}{lines})".encode()))


class _Fields(ast.NodeTransformer):
    def __init__(self, imported: set[str]) -> None:
        self._imported = imported
        self.found = False

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.visit(node.value)
        if not _is_field(node, self._imported):
            return node
        self.found = True
        function = ast.Name(id=f"__field_{node.attr}__", ctx=ast.Load())
        return ast.Call(func=function, args=[node.value], keywords=[])


def _is_field(node: ast.Attribute, imported: set[str]) -> bool:
    of_module = isinstance(node.value, ast.Name) and node.value.id in imported
    return node.attr in FIELDS and isinstance(node.ctx, ast.Load) and not of_module
