"""A fetched body as text a model can read: the one function `convert`, from `Job` to `Page`.

`pool` calls it, in this process for small bodies and in a limited child for the rest. The text it returns
is clean of characters that a person would not see, and is still untrusted: whoever shows it to a model
puts a frame around it (`framing`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from retinue.web import formats
from retinue.web.content import Kind, decode, kind_of, media_type
from retinue.web.html import ARTICLE_BYTES, article, head_of, lowered, to_markdown

Mode = Literal["page", "article", "raw"]

# Control characters, zero-width and bidirectional marks, and the invisible tag alphabet: a model reads
# them, a person does not. Joiners stay, since some scripts and emoji need them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
_UNSEEN_ASCII = bytes({*range(32), 127} - {9, 10})
_SEEN_ASCII = bytes({9, 10, *range(32, 127)})
# Each begins with what is rare: a search for them together would stop at every line.
_HEADING = re.compile(r"\n(#{1,6})[ \t]+(.+)")
_FENCES = re.compile(r"```+"), re.compile(r"~~~+")
# A script that a browser runs, not one that holds data, and an element for scripts to fill.
_SCRIPT = re.compile(
    rb"""<script\b(?![^>]{0,500}?\btype\s*=\s*["']?(?:[\w.+-]{1,40}/)?[\w.+-]{0,40}(?:json|template)\b)"""
)
_EMPTY_PLACE = re.compile(rb"<(div|main|section|[a-z]+-[a-z-]+)(?:[\s/][^<>]*)?>\s*</\1>")
HARDLY_ANY, FEW_WORDS = 200, 1000
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()]*\)")


class Job(Struct, frozen=True, kw_only=True, tag="page"):
    """What to convert. `most` bounds the characters of the result; `cut` says that the body is not whole."""

    body: bytes
    content_type: str
    url: str
    mode: Mode = "page"
    most: int = 5_000_000
    cut: bool = False


class Heading(Struct, frozen=True):
    line: int
    level: int
    text: str


class Page(Struct, frozen=True, kw_only=True, tag="page"):
    """A body as text. `problem` says why there is none."""

    kind: Kind
    text: str = ""
    title: str = ""
    canonical: str = ""
    date: str = ""
    notes: tuple[str, ...] = ()
    outline: tuple[Heading, ...] = ()
    lines: int = 0
    problem: str = ""


def convert(job: Job) -> Page:
    """Never raises for what a page contains."""
    kind = kind_of(job.content_type, job.body[:2048])
    try:
        page = _convert(job, kind)
    except formats.UnreadableBody as error:
        return Page(kind=kind, problem=str(error))
    text = clean(page.text)
    notes = list(page.notes)
    if len(text) > job.most:
        text = text[: job.most]
        notes.append(f"only the first {job.most:,} characters are kept")
    return Page(
        kind=kind,
        text=text,
        title=" ".join(clean(page.title).split()),
        canonical=page.canonical,
        date=page.date,
        notes=tuple(notes),
        outline=outline(text) if kind in ("html", "pdf", "feed") or _is_markdown(job) else (),
        lines=text.count("\n") + 1,
    )


def _is_markdown(job: Job) -> bool:
    return media_type(job.content_type) in ("text/markdown", "text/x-markdown") or job.url.endswith(".md")


def _convert(job: Job, kind: Kind) -> Page:
    match kind:
        case "pdf":
            if job.cut:
                raise formats.UnreadableBody("the PDF is larger than web.max_bytes, so it cannot be opened")
            found = formats.pdf(job.body, job.most)
        case "binary":
            raise formats.UnreadableBody("it is not text")
        case "feed" if job.mode != "raw":
            found = formats.feed(job.body, job.url)
        case "json" if job.mode != "raw":
            found = formats.pretty_json(decode(job.body, job.content_type, cut=job.cut))
        case "html":
            return _html(job)
        case _:
            found = formats.Text(text=decode(job.body, job.content_type, cut=job.cut))
    return Page(kind=kind, text=found.text, title=found.title, date=found.date, notes=found.notes)


def _html(job: Job) -> Page:
    html = decode(job.body, job.content_type, cut=job.cut)
    small = lowered(html)
    head = head_of(html, job.url, small)
    notes: list[str] = []
    if job.mode == "raw":
        text = html
    elif job.mode == "article" and len(job.body) <= ARTICLE_BYTES:
        text = article(html, job.url)
        if not text:
            notes.append("no article was found in it, so this is the whole page")
            text = to_markdown(html, job.url, small)
    else:
        if job.mode == "article":
            notes.append(f"larger than {ARTICLE_BYTES:,} bytes, so this is the whole page, not the article")
        text = to_markdown(html, job.url, small)
    if head.refresh and len(text) < 500:
        notes.append(f"it sends browsers on to {head.refresh}")
    elif job.mode != "raw" and _is_made_by_scripts(text, small):
        notes.append("it has little text of its own: JavaScript, which is not run, may make the rest")
    return Page(
        kind="html",
        text=text,
        title=head.title,
        canonical=head.canonical,
        date=head.date,
        notes=tuple(notes),
    )


def _is_made_by_scripts(text: str, small: bytes) -> bool:
    """Whether a browser may show more: little text beside scripts that run, or an empty place for it."""
    if len(text) >= FEW_WORDS or not _SCRIPT.search(small):
        return False
    return len(text) < HARDLY_ANY or _EMPTY_PLACE.search(small) is not None


def clean(text: str) -> str:
    """Without what a person would not see, with one kind of line end."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text.encode("ascii").translate(None, _UNSEEN_ASCII).decode("ascii")
    # Most text is ASCII but for a few characters: looking at those alone is several times as fast.
    rest = text.encode("utf-8", "surrogatepass").translate(None, _SEEN_ASCII).decode("utf-8", "surrogatepass")
    if not _UNSEEN.search(rest) and "\u2028" not in rest and "\u2029" not in rest:
        return text
    return _UNSEEN.sub("", text.replace("\u2028", "\n").replace("\u2029", "\n"))


def outline(text: str, most: int = 10_000) -> tuple[Heading, ...]:
    """The headings with their lines, counted from 1. What looks like one inside code is not."""
    text = "\n" + text
    found: list[Heading] = []
    fence = ""
    line, at = 0, 0
    for match in sorted((*_HEADING.finditer(text), *_fences(text)), key=lambda match: match.start()):
        if match.re is not _HEADING:
            fence = match[0] if not fence else "" if match[0].startswith(fence) else fence
        elif not fence:
            line += text.count("\n", at, match.start() + 1)
            at = match.start() + 1
            # Splitting leaves the words of a link: the same as putting them in its place, and faster.
            title = "".join(_LINK.split(match[2])).replace("*", "").replace("`", "").strip()
            found.append(Heading(line, len(match[1]), title[:120]))
            if len(found) == most:
                break
    return tuple(found)


def _fences(text: str) -> Iterator[re.Match[str]]:
    """What begins and ends code: at the start of a line, but for three spaces."""
    for fence in _FENCES:
        for match in fence.finditer(text):
            start = text.rfind("\n", max(0, match.start() - 4), match.start())
            if start >= 0 and not text[start + 1 : match.start()].strip(" "):
                yield match
