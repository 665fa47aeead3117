"""The tools that find things in files: `ls`, `glob` and `grep`.

They read and change nothing else. What is ignored by the project's ignore files is left out, and what was
left out for its number is always said.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from retinue.errors import ToolError
from retinue.jail import Entry
from retinue.tools.base import ToolContext, ToolResult
from retinue.tools.left_out import LeftOut
from retinue.tools.ripgrep import SECONDS, Scope, explain, list_files, scope_of, search_text
from retinue.types import Source
from retinue.workspace import MOST_BYTES, WEB, Files, shown

MOST_ENTRIES = 500
MOST_MATCHES = 1000
MOST_CONTEXT = 20
MOST_CHARACTERS = 40_000
MOST_PATTERN = 10_000
LINE = 400
"""Bytes of a matched line that are shown; of a longer one, those around the match."""


async def ls(ctx: ToolContext, path: str = ".") -> str:
    """List a folder.

    Args:
        path: the folder
    """
    scope = scope_of(ctx.files, path)
    if scope.is_file:
        return f"{scope.display} is a file ({size(ctx.files.stat(path).st_size)})"
    out = LeftOut(scope, ctx.closed)
    entries = await asyncio.to_thread(ctx.files.list, path)
    entries = [entry for entry in entries if not out.has(f"{scope.top}{entry.name}")]
    names, complete = await list_files(scope)
    kept = {scope.below(name).partition("/")[0] for name in names}

    def is_listed(entry: Entry) -> bool:
        if not complete or entry.name in kept or entry.kind in ("link", "other"):
            return True
        return entry.kind == "folder" and _is_empty(ctx.files, f"{path}/{entry.name}")

    listed = [entry for entry in entries if is_listed(entry)]
    lines = [_line(entry) for entry in listed[:MOST_ENTRIES]]
    if len(listed) > MOST_ENTRIES:
        lines.append(f"[{MOST_ENTRIES} of {len(listed):,} entries shown; glob finds the rest by name]")
    ignored = [_name(entry) for entry in entries if entry not in listed]
    if ignored:
        lines.append(f"[ignored and not listed: {_some(ignored)}]")
    lines += [*out.notes("entry", "entries"), *scope.notes]
    return "\n".join(lines) or f"{scope.display} is empty"


async def glob(pattern: str, ctx: ToolContext, path: str = ".") -> str:
    """Find files by name.

    Args:
        pattern: like `*.py`, `src/**/*.ts` or `**/test_*.{js,ts}`; without a slash it matches at any depth
        path: the folder to look in
    """
    folder, rest = _split(pattern, path)
    scope = scope_of(ctx.files, folder)
    if scope.is_file:
        raise ToolError(f"{scope.display} is a file; give the folder to look in")
    names, complete = await list_files(scope)
    matches = matcher(rest)
    out = LeftOut(scope, ctx.closed)

    def find() -> list[str]:
        return sorted(out.rest(name for name in names if matches(scope.below(name))))

    found = find() if len(names) < 5000 else await asyncio.to_thread(find)
    lines = [shown(scope.show(name)) for name in found[:MOST_ENTRIES] if scope.holds(name)]
    if len(found) > MOST_ENTRIES:
        lines.append(f"[{MOST_ENTRIES} of {len(found):,} files shown; use a narrower pattern or path]")
    if not complete:
        lines.append(f"[not everything was looked at: {len(names):,} files; look in a smaller folder]")
    found_none = [] if lines else [f"no file matches {shown(pattern)} in {scope.display}"]
    return "\n".join([*found_none, *lines, *out.notes(), *scope.notes])


async def grep(
    pattern: str,
    ctx: ToolContext,
    path: str = ".",
    glob: str | None = None,
    ignore_case: bool = False,
    context: int = 0,
    max_results: int = 100,
) -> ToolResult:
    """Search the text of files.

    Args:
        pattern: a regular expression
        path: the folder or the file to search
        glob: only files whose name matches, like `*.py`, `src/**/*.ts`, or `!*.min.js` for all others
        ignore_case: take upper and lower case as the same
        context: lines to show around each match
        max_results: matched lines to show at most
    """
    _check(pattern)
    scope = scope_of(ctx.files, path)
    most = min(max(max_results, 1), MOST_MATCHES)
    hits = _Hits(
        scope=scope,
        most=most,
        wanted=matcher(glob) if glob else None,
        out=LeftOut(scope, ctx.closed, text=True),
    )
    arguments = [
        *("--line-number", "--byte-offset", "--column", "--with-filename", "--no-heading"),
        *(f"--max-columns={LINE}", "--max-columns-preview", "--max-filesize=20M", "--regex-size-limit=10M"),
        *(("--ignore-case",) if ignore_case else ()),
        *((f"--context={min(context, MOST_CONTEXT)}",) if context > 0 else ()),
        *(("--multiline",) if "\n" in pattern or r"\n" in pattern else ()),
        *_types(glob),
        f"--regexp={pattern}",
    ]
    searched = await search_text(scope, arguments, hits.take)
    if searched.ended.code == 2 and not hits.hits:
        reason = explain(searched.errors)
        if reason:
            raise ToolError(f"{reason}. Escape characters with a meaning of their own, like \\( or \\[.")
    if hits.out.is_possible:  # all that is left out, whether the pattern is in it or not
        names, _ = await list_files(scope)
        wanted = [name for name in names if hits.wants(name)]
        hits.out.rest(wanted)
        shown_names = [hit.name for hit in hits.hits]
        await asyncio.to_thread(hits.out.look_for_other_names, dict.fromkeys((*wanted, *shown_names)))
        hits.hits = [hit for hit in hits.hits if not hits.out.has(hit.name)]
        hits.matched = sum(hit.column > 0 for hit in hits.hits)
    return _told(hits, pattern, timed_out=searched.ended.timed_out)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hit:
    """A line that matched, or one around it (`column` 0)."""

    name: str
    path: str
    line: int
    column: int
    offset: int
    text: bytes


_MATCH = re.compile(rb"(\d+):(\d+):(\d+):(.*)", re.DOTALL)
_AROUND = re.compile(rb"(\d+)-(\d+)-(.*)", re.DOTALL)


@dataclass(kw_only=True, slots=True)
class _Hits:
    """Collects what ripgrep prints until there is enough of it."""

    scope: Scope
    most: int
    wanted: Callable[[str], bool] | None
    out: LeftOut
    hits: list[_Hit] = field(default_factory=list[_Hit])
    matched: int = 0
    characters: int = 0
    more: bool = False

    def wants(self, name: str) -> bool:
        return self.wanted is None or self.scope.is_file or self.wanted(self.scope.below(name))

    def take(self, name: str, rest: bytes) -> bool:
        path = self.scope.show(name)
        if not self.wants(name) or self.out.has(name):
            return True
        found = _MATCH.fullmatch(rest)
        around = None if found else _AROUND.fullmatch(rest)
        if found is not None:
            if self.matched == self.most or self.characters > MOST_CHARACTERS:
                self.more = True
                return False
            self.matched += 1
            line, column, offset, text = int(found[1]), int(found[2]), int(found[3]), found[4]
        elif around is not None:
            line, column, offset, text = int(around[1]), 0, int(around[2]), around[3]
        else:
            return True
        self.characters += len(path) + min(len(text), LINE) + 10
        self.hits.append(_Hit(name=name, path=path, line=line, column=column, offset=offset, text=text))
        return True


def as_data(text: str, *paths: str) -> str:
    """What was read from these files: in a frame if any of them holds what a stranger wrote."""
    from retinue.web.framing import frame

    strange = any(path.startswith(f"{WEB}/") for path in paths)
    return frame(text, what="saved web page") if strange else text


def _told(hits: _Hits, pattern: str, *, timed_out: bool) -> ToolResult:
    lines: list[str] = []
    notes: list[str] = []
    sources: list[Source] = []
    last: _Hit | None = None
    with_context = any(hit.column == 0 for hit in hits.hits)
    for hit, text in _seen(hits):
        follows = last is not None and (last.path, last.line + 1) == (hit.path, hit.line)
        if with_context and lines and not follows:
            lines.append("--")
        mark = ":" if hit.column else "-"
        lines.append(f"{shown(hit.path)}{mark}{hit.line}{mark} {text}")
        first = hit.line
        if follows and (span := sources.pop().lines):
            first = span[0]
        sources.append(Source(path=hit.path, lines=(first, hit.line), listed=not with_context))
        last = hit
    if hits.more:
        notes.append(
            f"[there are more than these {hits.matched} matches; use a narrower pattern, path or glob]"
        )
    if timed_out:
        notes.append(f"[stopped after {SECONDS:g} s, so not everything was searched; use a smaller folder]")
    found = f"no match for {shown(pattern)} in {hits.scope.display}"
    if lines:
        found = as_data("\n".join(lines), *(hit.path for hit in hits.hits))
    more = [*notes, *hits.out.notes(), *hits.scope.notes]
    text = "\n".join([*([found] if lines or not notes else []), *more])
    return ToolResult(text=text, is_error=timed_out and not hits.hits, sources=tuple(sources))


def _seen(hits: _Hits) -> Iterator[tuple[_Hit, str]]:
    """The hits in order with their text, each looked at again through the jail.

    ripgrep opens files by their names, so a link swapped in at the right moment could lead it out. What
    the jail does not show in the same place is dropped.
    """
    at = hits.scope.files.at
    ordered = sorted(hits.hits, key=lambda hit: (hit.path, hit.name, hit.line))
    for name, group in itertools.groupby(ordered, key=lambda hit: hit.name):
        with (
            contextlib.suppress(ToolError),
            at(hits.scope.path) as (_, jail),
            jail.open_read(name) as file,
        ):
            start = file.read(3)
            wide = start.startswith((b"\xff\xfe", b"\xfe\xff"))
            skip = 3 if start == b"\xef\xbb\xbf" else 0  # ripgrep does not count a mark at the beginning
            for hit in group:
                text = _wide_text(file, hit) if wide else _text(file, hit, skip)
                if text is not None:
                    yield hit, text


def _text(file: BinaryIO, hit: _Hit, skip: int) -> str | None:
    """A line, or of a very long one what is around the match; None if it is not there."""
    kept = hit.text if len(hit.text) <= LINE else hit.text[: LINE // 2]
    file.seek(hit.offset + skip)
    if file.read(len(kept)) != kept:
        return None
    if kept is hit.text:
        return _decoded(kept.rstrip(b"\r"))
    start = max(hit.column - 1 - LINE // 4, 0)
    file.seek(hit.offset + skip + start)
    piece = file.read(LINE).partition(b"\n")[0]
    where = f"match at column {hit.column}; read it with column" if hit.column else "read it with column"
    return f"{'…' if start else ''}{_decoded(piece)}… [long line, {where}]"


def _wide_text(file: BinaryIO, hit: _Hit) -> str | None:
    """A line of a UTF-16 file, which ripgrep has translated."""
    file.seek(0)
    text = _decoded(hit.text[:LINE].rstrip(b"\r"))
    return text if text in file.read(MOST_BYTES).decode("utf-16", "replace") else None


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "␀")


def _types(glob: str | None) -> Iterable[str]:
    """Let ripgrep leave out by name what cannot match. A --glob would bring ignored files back."""
    if not glob or glob.startswith("!"):
        return
    for pattern in braces(glob):
        name = pattern.rpartition("/")[2]
        yield f"--type-add=wanted:{'*' if name in ('', '**') else name}"
    yield "--type=wanted"


def _check(pattern: str) -> None:
    if not pattern:
        raise ToolError("the pattern is empty; to list files use glob or ls")
    if "\0" in pattern or len(pattern) > MOST_PATTERN:
        raise ToolError(
            f"the pattern has {len(pattern):,} characters; at most {MOST_PATTERN:,} and no NUL are possible"
        )


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a path matches a glob pattern, in time that no pattern can blow up."""
    if pattern.startswith("!"):
        inner = matcher(pattern[1:])
        return lambda path: not inner(path)
    names: list[re.Pattern[str]] = []
    paths: list[list[re.Pattern[str] | None]] = []
    for spelled in braces(pattern):
        spelled = spelled.removeprefix("**/") if spelled.count("/") == 1 else spelled
        parts = [part for part in spelled.split("/") if part not in ("", ".")]
        compiled = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]
        if "/" in spelled:
            paths.append(compiled)
        else:  # a name alone matches at any depth
            names += [part or re.compile("") for part in compiled]

    def matches(path: str) -> bool:
        name = path.rpartition("/")[2]
        return any(part.match(name) for part in names) or (
            bool(paths) and any(_matches(parts, path.split("/")) for parts in paths)
        )

    return matches


def _matches(parts: list[re.Pattern[str] | None], names: list[str]) -> bool:
    """Walk through pattern and path at once, keeping every place in the pattern that is still possible."""

    def reached(places: Iterable[int]) -> set[int]:
        all_places = set(places)
        for place in sorted(all_places):
            while place < len(parts) and parts[place] is None:  # `**` may also stand for nothing
                place += 1
                all_places.add(place)
        return all_places

    places = reached([0])
    for name in names:
        following: list[int] = []
        for place in places:
            part = parts[place] if place < len(parts) else None
            if place < len(parts) and part is None:
                following.append(place)
            elif part is not None and part.match(name):
                following.append(place + 1)
        places = reached(following)
    return len(parts) in places


def braces(pattern: str) -> list[str]:
    """`*.{a,b}` as `*.a` and `*.b`."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        here = todo.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", here)
        if found is None:
            done.append(here)
        else:
            todo += [here[: found.start()] + choice + here[found.end() :] for choice in found[1].split(",")]
        if len(todo) + len(done) > 100:
            raise ToolError(f"the glob {shown(pattern)} stands for more than 100 patterns; use a simpler one")
    return done


def _split(pattern: str, path: str) -> tuple[str, str]:
    """The folder that a pattern starts in, so that the jail sees where it leads, and the rest of it."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not re.search(r"[*?\[{]", parts[fixed]):
        fixed += 1
    rest = "/".join(parts[fixed:])
    if not rest:
        raise ToolError("the pattern is empty; use * for every file")
    if not fixed:
        return path, rest
    start = "/".join(parts[:fixed])
    rest = rest if "/" in rest else f"./{rest}"
    if pattern.startswith("/") or start == "~":
        return start or "/", rest
    return f"{path}/{start}", rest


def _is_empty(files: Files, path: str) -> bool:
    try:
        return not files.list(path)
    except ToolError:
        return False


def _name(entry: Entry) -> str:
    return shown(entry.name) + ("/" if entry.kind == "folder" else "")


def _line(entry: Entry) -> str:
    if entry.kind == "file":
        return f"{_name(entry)}  {size(entry.size)}"
    return _name(entry) if entry.kind == "folder" else f"{_name(entry)}  ({entry.kind})"


def _some(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KB", "MB"):
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GB"
