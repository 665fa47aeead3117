"""The tools that read and change files: `read`, `write`, `edit`; and all file tools together.

They see only what `ToolContext.files` shows them. A path that leaves it is never answered; whoever makes
the call logs the attempt for audit.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import io
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from retinue.builtin_tools import BUILT_IN
from retinue.errors import ToolError
from retinue.tools.base import (
    AsyncFunction,
    Preview,
    Private,
    ShownCall,
    Tool,
    ToolContext,
    ToolResult,
    tool,
)
from retinue.tools.changing import FoundFile, replace_file, unhurried
from retinue.tools.descriptions import describe
from retinue.tools.diff import CutDiff, diff
from retinue.tools.left_out import LeftOut
from retinue.tools.paging import LinePage, page_of
from retinue.tools.ripgrep import list_files, scope_of
from retinue.tools.search import as_data, glob, grep, ls, size
from retinue.types import Effect, Source
from retinue.workspace import MOST_BYTES, Files, shown

HUGE = 256 * 1024 * 1024


async def read(
    path: str, ctx: ToolContext, offset: int = 1, limit: int = 2000, column: int = 1
) -> ToolResult:
    """Read a file.

    Args:
        path: the file
        offset: the first line to read
        limit: how many lines to read at most
        column: the first byte to show of each line, for very long ones
    """
    try:
        file = ctx.files.open(path)
    except ToolError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise ToolError(f"{error}{await _similar(ctx, path)}") from None
        raise
    display = ctx.files.display(path)
    with file:
        length = os.fstat(file.fileno()).st_size
        if length > HUGE:
            raise ToolError(
                f"{display} has {size(length)}; at most {size(HUGE)} can be read. Search it with grep."
            )
        held = await ctx.files.unsaved(path)
        page = await unhurried(
            length,
            page_of,
            file if held is None else io.BytesIO(held),
            offset=max(offset, 1),
            limit=max(limit, 1),
            column=max(column, 1),
        )
    return ToolResult(text=_told(display, page, offset), sources=_sources(display, page))


def _told(display: str, page: LinePage, offset: int) -> str:
    if page.binary:
        raise ToolError(f"{display} is not text but {page.binary} ({size(page.size)}); it cannot be read")
    if not page.total:
        return f"{display} is empty"
    if not page.lines:
        raise ToolError(f"{display} has {page.total:,} lines; offset {offset:,} is past its end")
    text = as_data("\n".join(page.lines), display)
    if page.last < page.total:
        text += f"\n[lines {page.first} to {page.last} of {page.total}; go on with offset={page.last + 1}]"
    return text


def _sources(display: str, page: LinePage) -> tuple[Source, ...]:
    lines = (page.first, page.last) if page.lines else None
    return (Source(path=display, lines=lines, sha256=page.sha256),)


async def _similar(ctx: ToolContext, path: str) -> str:
    """Where the file that was meant may be."""
    files = ctx.files
    parent, name = os.path.split(files.display(path))
    near: list[str] = []
    try:
        entries = await asyncio.to_thread(files.list, parent or ".")
        scope = scope_of(files, parent or ".")  # a link to a folder is where it leads
        out = LeftOut(scope, ctx.closed)
        names = [entry.name for entry in entries[:2000] if not out.has(f"{scope.top}{entry.name}")]
        lower = {other.lower(): other for other in names}
        close = difflib.get_close_matches(name.lower(), lower, 3, 0.6)
        near = [os.path.join(parent, lower[other]) for other in close]
    except ToolError:
        pass  # the folder is missing too
    if not near:
        scope = scope_of(files, ".")
        everywhere, _ = await list_files(scope)
        same = (other for other in everywhere if os.path.basename(other) == name)
        near = sorted(scope.show(other) for other in LeftOut(scope, ctx.closed).rest(same))[:3]
    return f". Did you mean {' or '.join(shown(other) for other in near)}?" if near else ""


async def write(path: str, content: str, ctx: ToolContext) -> ToolResult:
    """Create or replace a file.

    Args:
        path: the file; missing folders are made
        content: all of its text
    """
    data = _encoded(content)
    display, found, _ = await replace_file(ctx.files, ctx.changes, path, lambda found: data)
    written = Source(path=display, sha256=hashlib.sha256(data).hexdigest())
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    size = f"{_count(lines, 'line')}, {_count(len(data), 'byte')}"
    text = f"{'created' if found is None else 'replaced'} {display}: {size}"
    return ToolResult(text=text, files=(display,), sources=(written,))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


async def edit(path: str, old: str, new: str, ctx: ToolContext, replace_all: bool = False) -> ToolResult:
    """Replace text in a file.

    Args:
        path: the file
        old: the text to replace, exactly as it is in the file
        new: the text to put in its place
        replace_all: replace every place where it occurs, not one only
    """
    ctx.files.open(path).close()  # what is not there, or not ours to read, is told as such
    name = ctx.files.display(path)
    counts: list[int] = []

    def make(found: FoundFile | None) -> bytes:
        text = _text(name, found.data if found else b"")
        changed, count = _replaced(name, text, old, new, replace_all)
        counts.append(count)
        try:
            return changed.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ToolError("new is not valid Unicode") from None

    display, found, data = await replace_file(ctx.files, ctx.changes, path, make)
    count, before = counts[-1], _text(name, found.data if found else b"")
    lines = _changed_lines(before, data.decode("utf-8", "surrogateescape"))
    return ToolResult(
        text=f"edited {display}: {count} {'place' if count == 1 else 'places'} replaced",
        files=(display,),
        sources=(Source(path=display, lines=lines, sha256=hashlib.sha256(data).hexdigest()),),
    )


def _changed_lines(old: str, new: str) -> tuple[int, int]:
    """From the first line that is another one to the last, as they are numbered now."""
    before, after = old.split("\n"), new.split("\n")
    first = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(after) - 1)
    pairs = zip(reversed(before), reversed(after), strict=False)
    same = next((at for at, (a, b) in enumerate(pairs) if a != b), 0)
    return first + 1, max(first + 1, len(after) - same)


def _text_of(files: Files, path: str, held: bytes | None = None) -> str:
    with files.open(path) as file:
        data = file.read(MOST_BYTES + 1) if held is None else held
    return _text(files.display(path), data if len(data) <= MOST_BYTES else None)


def _text(display: str, data: bytes | None) -> str:
    """A file's text, with bytes that are not UTF-8 kept as they are. None: there is too much of it."""
    if data is None:
        raise ToolError(f"{display} is larger than the {size(MOST_BYTES)} that can be edited")
    if b"\0" in data:
        raise ToolError(f"{display} is a binary file; it cannot be edited as text")
    return data.decode("utf-8", "surrogateescape")


def _replaced(display: str, text: str, old: str, new: str, replace_all: bool) -> tuple[str, int]:
    if not old:
        raise ToolError("old is empty; write creates a file or replaces all of it")
    if old == new:
        raise ToolError("old and new are the same, so there is nothing to change")
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):
        # The model was shown lines without their endings: give it the file's own.
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    count = text.count(old)
    if count == 0:
        raise ToolError(
            f"old is not in {display}{_almost(text, old)}. Read the file and copy the text exactly."
        )
    if count > 1 and not replace_all:
        lines = [str(text.count("\n", 0, found.start()) + 1) for found in re.finditer(re.escape(old), text)]
        where = ", ".join(lines[:20]) + (" …" if len(lines) > 20 else "")
        raise ToolError(
            f"old is in {display} {count} times (lines {where}). Give more of the text around the one you "
            "mean, or set replace_all."
        )
    return text.replace(old, new), count


def _almost(text: str, old: str) -> str:
    """Whether it is there but for blanks: the commonest mistake."""
    wanted = [line.strip() for line in old.strip().splitlines()]
    lines = [line.strip() for line in text.splitlines()]
    for number in range(len(lines) - len(wanted) + 1):
        if wanted and lines[number : number + len(wanted)] == wanted:
            return f" like that, but with other blanks at line {number + 1}"
    return ""


def preview_write(arguments: dict[str, Any], files: Files) -> ShownCall | Awaitable[ShownCall]:
    """The change as a diff, for the person who is asked."""
    return _previewed(_diff_of_write, arguments, files)


def preview_edit(arguments: dict[str, Any], files: Files) -> ShownCall | Awaitable[ShownCall]:
    return _previewed(_diff_of_edit, arguments, files)


_DiffOf = Callable[[dict[str, Any], Files, bytes | None], str]


def _previewed(diff_of: _DiffOf, arguments: dict[str, Any], files: Files) -> ShownCall | Awaitable[ShownCall]:
    """A diff, or why there is none; against what somebody holds who has not saved it yet, if anybody does."""

    def shown(held: bytes | None) -> ShownCall:
        try:
            text = diff_of(arguments, files, held)
        except ToolError as error:
            return ShownCall(text=str(error), whole=False)
        return ShownCall(text=str(text), whole=not isinstance(text, CutDiff))

    async def shown_as_held() -> ShownCall:
        try:
            held = await files.unsaved(str(arguments["path"]))
        except ToolError as error:
            return ShownCall(text=str(error), whole=False)
        return await asyncio.to_thread(shown, held)

    return shown_as_held() if files.held_elsewhere else shown(None)


def _diff_of_write(arguments: dict[str, Any], files: Files, held: bytes | None) -> str:
    path, content = str(arguments["path"]), str(arguments["content"])
    if not files.exists(path):
        return diff(files.display(path), "", content, created=True)
    return diff(files.display(path), _text_of(files, path, held), content)


def _diff_of_edit(arguments: dict[str, Any], files: Files, held: bytes | None) -> str:
    path = str(arguments["path"])
    display = files.display(path)
    text = _text_of(files, path, held)
    old, new = str(arguments["old"]), str(arguments["new"])
    changed, _ = _replaced(display, text, old, new, bool(arguments.get("replace_all")))
    return diff(display, text, changed)


def _encoded(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the content is not valid Unicode at character {error.start}") from None


def touched(arguments: dict[str, Any], files: Files) -> tuple[str, ...]:
    """The file or folder of the project that a call is about; what is in a workspace is nobody's secret."""
    if files.project is None:
        return ()
    try:
        place = files.locate(str(arguments.get("path") or "."))
    except ToolError:
        return ()
    return () if place.home else ("the project" if place.name == "." else shown(place.display),)


def file_tool(
    function: AsyncFunction,
    *,
    effect: Effect = "read",
    timeout: float | Literal["default"] | None = "default",
    repeatable: bool | None = None,
    preview: Preview | None = None,
    private: bool | Private | None = touched,
    records: bool = False,
) -> Tool:
    """A tool that deals with files: what the model reads of it stands in the `.md` file of its name."""
    made = tool(
        private=private,
        description=describe(function.__name__),
        effect=effect,
        aliases=BUILT_IN[function.__name__].aliases,
        timeout=timeout,
        repeatable=repeatable,
        preview=preview,
    )(function)
    return replace(made, records=records)


@cache
def _tools() -> tuple[Tool, ...]:
    return (
        file_tool(read),
        file_tool(ls),
        file_tool(glob),
        file_tool(grep),
        # Writing the same text twice does no harm; an edit would not find its text again.
        file_tool(write, effect="write", preview=preview_write, repeatable=True, records=True),
        file_tool(edit, effect="write", preview=preview_edit, records=True),
    )


def file_tools() -> list[Tool]:
    return list(_tools())
