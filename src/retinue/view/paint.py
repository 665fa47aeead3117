"""Lines of styled text, cut to a width and turned into what a terminal prints.

A line is a list of (text, style) spans. Views build lines; this is the only place that knows escape codes
for colour, and it writes none where colour is off. Rich would do this too, at a hundred times the cost per
line: the live tree is redrawn ten times a second beside the agents themselves.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import TextIO

from retinue.view.commands import complete
from retinue.view.words import clean, escaped

Span = tuple[str, str]
Line = list[Span]

_CODES = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "reverse": "7",
}


def cells(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def width_of(line: Line) -> int:
    return sum(cells(text) for text, _ in line)


def cut(text: str, width: int) -> str:
    """The text in at most that many columns, with an ellipsis where it was longer."""
    if cells(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"


def fit(line: Line, width: int) -> Line:
    """A line in at most that many columns."""
    fitted: Line = []
    for text, style in line:
        need = cells(text)
        if need > width:
            if width > 0:
                fitted.append((cut(text, width), style))
            return fitted
        fitted.append((text, style))
        width -= need
    return fitted


def paint(line: Line, *, colour: bool) -> str:
    if not colour:
        return "".join(clean(text) for text, _ in line)
    return "".join(_painted(clean(text), style) for text, style in line)


def _painted(text: str, style: str) -> str:
    if not style or not text:
        return text
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m"


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colour, and nobody asked for none."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def is_screen(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def columns(stream: TextIO | None = None) -> int:
    """The width of the terminal; 80 where there is none."""
    return _dimensions(stream)[0]


def rows(stream: TextIO | None = None) -> int:
    return _dimensions(stream)[1]


def _dimensions(stream: TextIO | None) -> tuple[int, int]:
    for candidate in (stream, sys.stderr, sys.stdout):
        try:
            found = os.get_terminal_size(candidate.fileno()) if candidate is not None else None
        except (OSError, ValueError):
            continue
        if found is not None and found.columns > 0:
            return found.columns, found.lines or 24
    try:
        return max(20, int(os.environ.get("COLUMNS", ""))), 24
    except ValueError:
        return 80, 24


def put(lines: Iterable[Line], stream: TextIO) -> None:
    """Print lines to a stream, each cut to the width of the terminal if it is one."""
    colour = wants_colour(stream)
    width = columns(stream) if stream.isatty() else None
    for line in lines:
        stream.write(paint(line if width is None else fit(line, width), colour=colour) + "\n")
    stream.flush()


def out(text: str) -> None:
    """Plain text on stdout, and the end of a line."""
    sys.stdout.write(clean(text) + "\n")


def out_json(text: str) -> None:
    """JSON on stdout, and the end of a line. Whoever reads it gets every character, a terminal obeys none."""
    sys.stdout.write(escaped(text) + "\n")
    sys.stdout.flush()


def note(text: str, style: str = "") -> None:
    """Something for the person, on stderr: one line, folded between words on a terminal."""
    text, colour = clean(complete(text)), wants_colour(sys.stderr)
    pieces = wrap(text, columns(sys.stderr)) if sys.stderr.isatty() else [text]
    sys.stderr.write("".join(paint([(piece, style)], colour=colour) + "\n" for piece in pieces))
    sys.stderr.flush()


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most that many columns, broken between words where that is possible."""
    wrapped: list[str] = []
    for paragraph in text.expandtabs(4).split("\n"):
        wrapped.extend(_wrap(paragraph, max(width, 2)))
    return wrapped


def _wrap(paragraph: str, width: int) -> list[str]:
    if cells(paragraph) <= width:
        return [paragraph]
    lines, line, used = list[str](), "", 0
    for word in _words(paragraph, width):
        need = cells(word)
        if used + cells(word.rstrip()) > width:
            lines.append(line.rstrip())
            line, used = "", 0
        line += word
        used += need
    return [*lines, line.rstrip()]


def _words(paragraph: str, width: int) -> Iterable[str]:
    """Words with the spaces after them; one that is wider than a line comes in pieces."""
    for word in re.findall(r"\s*\S+\s*", paragraph) if paragraph.strip() else ():
        while cells(word.rstrip()) > width:
            end = width
            while cells(word[:end]) > width:
                end -= 1
            yield word[:end]
            word = word[end:]
        if word:
            yield word
