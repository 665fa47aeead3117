"""Tool results read back: hits of a search, lines of a file, names of files, found pages.

The forms are those of this project's own tools (`path:line: text`, `  12<tab>text`, one path per line,
numbered blocks with an address); whatever does not fit is skipped. All of it is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from retinue.web.framing import unframed, unreported

MAX_LINES = 4000
MAX_LINE = 400

_HIT = re.compile(r"(?P<path>[^:\s][^:\n]{0,300}):(?P<line>\d{1,7}):[ \t]?(?P<text>.*)")
_LINE = re.compile(r"[ ]{0,12}(?P<line>\d{1,7})(?:\t|\u2192|[ ]?[|:│] ?)(?P<text>.*)")
_URL = re.compile(r"https?://[^\s<>()\[\]{}\"'`|\\^]{3,500}")
_NOTHING = re.compile(
    r"\s*\(?\s*(?:no (?:match|matches|files?|results?|hits|entries)|nothing)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Hit:
    path: str
    line: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceEntry:
    """A page or entry that a source gave."""

    title: str
    url: str
    text: str


def _lines(text: str) -> list[str]:
    return [line[:MAX_LINE] for line in text.split("\n", MAX_LINES)[:MAX_LINES]]


def hits_in(text: str) -> list[Hit]:
    """The hits of a search."""
    found: list[Hit] = []
    for line in _lines(text):
        match = _HIT.fullmatch(line.rstrip("\r"))
        if match and not match["path"].startswith(("http", "[")):
            path = match["path"].removeprefix("./")
            found.append(Hit(path, int(match["line"]), match["text"]))
    return found


def lines_in(text: str) -> dict[int, str]:
    """The lines of a file by number. Where a file was read without numbers, they are counted."""
    numbered: dict[int, str] = {}
    for line in _lines(text):
        match = _LINE.fullmatch(line)
        if match:
            numbered.setdefault(int(match["line"]), match["text"])
    return numbered


def paths_in(text: str) -> list[str]:
    """The files and folders that a listing names; folders end in `/`."""
    if _NOTHING.match(text):
        return []
    found: dict[str, None] = {}
    for line in _lines(text):
        name = re.sub(r"^\s*[-*•]\s+", "", line).strip()
        name = re.split(r"\t|\s{2,}|\s+\(", name)[0].removeprefix("./")
        if name and re.fullmatch(r"[\w.@+~ /-]{1,300}", name) and not name.startswith("/home/agent"):
            found.setdefault(name)
    return list(found)


def urls_in(text: str) -> list[str]:
    """Every address in a text, once."""
    found = (match[0].rstrip(".,;:!?*_") for match in _URL.finditer(text[:200_000]))
    return list(dict.fromkeys(found))


def found_in(text: str) -> list[SourceEntry]:
    """The numbered blocks of a source or a web search: a title, an address, a text."""
    found: list[SourceEntry] = []
    for block in re.split(r"\n\s*\n|\n(?=\s{0,3}(?:\[\d+\]|\d{1,2}[.)])\s)", unframed(text))[:80]:
        lines = [line.strip() for line in block.strip().split("\n") if line.strip()]
        url = next((url for line in lines for url in urls_in(line)), "")
        if not lines or not url:
            continue
        title = re.sub(r"^(?:\[\d+\]|\d+[.)]|[-*#]+)\s*", "", lines[0])
        title = re.sub(r"\[([^\]]*)\]\(\s*\)", r"\1", _URL.sub("", title)).strip(" *-:") or url
        rest = [line for line in lines[1:] if _URL.sub("", line).strip(" -*:()[]<>")]
        body = "\n".join(_URL.sub("", line) if line.startswith("http") else line for line in rest)
        found.append(SourceEntry(title=title[:200], url=url, text=body.strip()[:2000]))
    return found


# What the tools themselves say about a page: its title above it, and where a very long line was cut.
_TOLD = re.compile(r"(?m)^Title: .*$|… \[(?:long line,|line \d+ has )[^\]\n]*\]?")


def sentences_in(text: str) -> list[str]:
    """Plain sentences of a page or an abstract, without headings, links, tables and remarks of the tools."""
    text = _TOLD.sub("", text[:100_000])
    plain = re.sub(r"!?\[([^\]\n]{0,300})\]\([^)\n]{0,500}\)", r"\1", text)
    found: list[str] = []
    for paragraph in plain.split("\n"):
        line = re.sub(r"^[\s>*#|+-]+|^\d+[.)]\s+", "", paragraph).strip()
        if len(line) < 25 or line.count("|") > 2 or _URL.fullmatch(line):
            continue
        found.extend(
            part.strip() for part in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9\"“(])", line) if len(part) > 20
        )
        if len(found) > 600:
            break
    return found


def without_frame(text: str) -> str:
    """A report without what was put around it."""
    kept = (line for line in unreported(text).split("\n") if not line.startswith("*Offline model"))
    return "\n".join(kept).strip()


def clip(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rstrip() + "…"


def complaint(text: str, most: int) -> str:
    """What a tool that failed said, without addresses: those would count as sources."""
    return clip(re.sub(r"\s*\([^()]*https?://[^()]*\)|https?://\S+", "", text), most)


def unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))
