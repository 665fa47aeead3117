"""The sentences of a report, and what each of them cites.

Called by `claims.report`. A citation counts for its sentence, and for the sentences of its paragraph or
list item that cite nothing themselves: most people write it once, at the end. Headings, code, questions
and lists of sources claim nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retinue.claims.addresses import named, without_names
from retinue.claims.names import names
from retinue.claims.passages import LONGEST_SENTENCE, sentences
from retinue.claims.places import Place, ReadFiles, places, without_places
from retinue.claims.quantities import dates, quantities
from retinue.claims.words import words
from retinue.quotations import plain
from retinue.types import Source

_BLOCK = re.compile(
    r"\n[ \t]*\n|\n(?=[ \t]*(?:\[\^?\d|#|\|))|\n(?=[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t])",
)
_LINK = re.compile(
    r"!?\[(?P<shown>[^\[\]]*)\]"
    r"\(<?(?P<url>https?://[^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s\"[^\"\n]*\")?\)"
)
_URL = re.compile(r"<?(https?://[^\s<>\"`\[\]{}|\\^“”«»。，、；：）」]+)>?", re.IGNORECASE)
_ONE_OR_RANGE = r"\d{1,3}(?:\s?[–-]\s?\^?\d{1,3})?"
# [1], [^1], [1, 2] and [1-3]; not [12-05-23], which is a date.
_MARK = re.compile(rf"\[\^?({_ONE_OR_RANGE}(?:\s?[,;]\s?\^?{_ONE_OR_RANGE})*)\]")
# Digits above the line, behind a word or its full stop; behind "m" and "km" they are part of a unit.
_RAISED = re.compile(r"(?:(?<=[^\W\d_]{3})|(?<=[.,;:!?)”]))([⁰¹²³⁴-⁹]{1,2})(?!\w)")
_RAISED_DEFINED = re.compile(r"^\s*([⁰¹²³⁴-⁹]{1,2})[.:)]?\s+\S")
_REFERENCE = re.compile(r"\[([^\[\]]{1,300})\]\[([^\[\]]{0,80})\]")
_LABELLED = re.compile(r"^[ ]{0,3}\[([^\[\]^]{1,80})\]:\s*<?https?://\S")
_LENTICULAR = re.compile(r"【(\^?\d[\d\s,;–^-]{0,30})】")
_DEFINED = re.compile(r"^\s*(?:[-*+]\s+)?\[?\^?(\d{1,3})(?:\]:?|[.:)])\s+\S")
_BULLET = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+|^[ \t]*>[ \t]?", re.MULTILINE)
_LETTERS = re.compile(r"[^\W\d_]{2}|[^\W\d_a-zA-Z]")
_DIGIT = re.compile(r"\d")
_SAYS = re.compile("\\w\\s+\\w|[\u2e80-\uffdc]{3}")
_NO_STATEMENT = ("?", "？", "؟", ":", "：")
SHORTEST_TITLE = 8
"""Letters of a title by which a page is known where a list of sources has no address."""
_EMPHASIS = re.compile(r"\*{1,3}|(?<!\w)_{1,3}|_{1,3}(?!\w)")
_EMPTY_MARKS = re.compile(
    r"\(\s*[,;]?\s*\)|\[\s*\]|(?:\(\s*)?\b(?:source|sources|see|via)\s*:?\s*(?=\)|$)\)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Cited:
    """One sentence: `text` without its citations, `start` and `end` its place in the report."""

    text: str
    start: int
    end: int
    urls: tuple[str, ...] = ()
    lines: tuple[Place, ...] = ()

    def states(self) -> bool:
        """Whether it states something that can be looked up: a number, a date, a name."""
        found = words(self.text)
        if len(found) < 4:
            return False
        days = dates(self.text)
        numbers = (one for one in quantities(self.text, days) if not one.spelled)
        return bool(days or any(numbers) or any(name.sure for name in names(self.text, found)))


@dataclass(frozen=True, slots=True)
class Cites:
    """What a piece of a report cites: addresses, and lines of files."""

    urls: tuple[str, ...] = ()
    lines: tuple[Place, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.urls or self.lines)


class Citable:
    """What was fetched and read, as far as a citation has to know it: the names of files, and titles."""

    def __init__(self, sources: Sequence[Source] = ()) -> None:
        self.means = ReadFiles(sources).means
        titles = ((plain(source.title), source.url) for source in sources if source.url)
        self._titles = {title: url for title, url in titles if len(title) >= SHORTEST_TITLE}

    def titled(self, line: str) -> Cites:
        """The page whose title stands in a line of a list of sources that has no address."""
        said = plain(line)
        found = [url for title, url in self._titles.items() if title in said]
        return Cites(tuple(dict.fromkeys(found))) if len(found) == 1 else Cites()


Marks = dict[str, Cites]


def cited_sentences(prose: str, citable: Citable | None = None) -> list[Cited]:
    """Every sentence of a report that could be held against something, in order."""
    citable = citable or Citable()
    prose = _LENTICULAR.sub(r"[\1]", prose)
    marks = _definitions(prose, citable)
    found: list[Cited] = []
    for start, end in _blocks(prose):
        block = prose[start:end]
        if _claims_nothing(block, marks, citable):
            continue
        found += _of_block(block, start, marks, citable)
    return found


def _blocks(prose: str) -> Iterator[tuple[int, int]]:
    at = 0
    for match in _BLOCK.finditer(prose):
        if match.start() > at:
            yield at, match.start()
        at = match.end()
    if at < len(prose):
        yield at, len(prose)


def _definitions(prose: str, citable: Citable) -> Marks:
    """What [1] stands for: what is named in the line that begins with it, if it is used anywhere else."""
    used = Counter(number for match in _MARK.finditer(prose) for number in set(_numbers(match[1])))
    found: Marks = {}
    for line in prose.split("\n"):
        other = _LABELLED.match(line) or _RAISED_DEFINED.match(line)
        if other is not None and (cites := _named_in(line, citable)):
            found.setdefault(other[1].casefold(), cites)
        head = _DEFINED.match(line)
        if head is None or head[1] not in used or head[1] in found:
            continue
        elsewhere = used[head[1]] - bool(_MARK.match(line.strip()))
        if elsewhere > 0 and (cites := _named_in(line, citable) or citable.titled(line)):
            found[head[1]] = cites
    return found


def _named_in(text: str, citable: Citable) -> Cites:
    """The addresses, papers and lines of files that a piece of text names itself."""
    without = _URL.sub(" ", text)
    urls = (*_urls(text), *named(without))
    return Cites(tuple(dict.fromkeys(urls)), tuple(places(without_names(without), citable.means)))


def _numbers(mark: str) -> list[str]:
    found: list[str] = []
    for part in re.split(r"\s?[,;]\s?", mark.replace("^", "")):
        first, _, last = re.sub(r"\s?[–-]\s?", "-", part).partition("-")
        if last and int(last) - int(first) in range(1, 20):
            found += map(str, range(int(first), int(last) + 1))
        else:
            found.append(first)
    return found


def _claims_nothing(block: str, marks: Marks, citable: Citable) -> bool:
    bare = block.strip()
    if _LABELLED.match(bare) or (_RAISED_DEFINED.match(bare) and _named_in(bare, citable)):
        return True
    head = _DEFINED.match(bare)
    mark = marks.get(head[1]) if head is not None else None
    defines = mark is not None and (_named_in(bare, citable) or citable.titled(bare)) == mark
    return (
        not bare
        or bare.startswith("#")
        or defines
        or not _SAYS.search(clean(without_places(bare, citable.means)))
    )


def _of_block(block: str, at: int, marks: Marks, citable: Citable) -> list[Cited]:
    read = [(start, end, _cites(block[start:end], marks, citable)) for start, end in _parts(block)]
    whole = Cites(
        tuple(dict.fromkeys(url for *_, own in read for url in own.urls)),
        tuple(dict.fromkeys(line for *_, own in read for line in own.lines)),
    )
    found: list[Cited] = []
    for start, end, own in read:
        text = clean(without_places(block[start:end], citable.means) if own.lines else block[start:end])
        if (len(text.split()) < 3 and text.isascii()) or text.endswith(_NO_STATEMENT):
            continue
        if not _LETTERS.search(text):
            continue
        cites = own or whole
        found.append(Cited(text, at + start, at + end, cites.urls, cites.lines))
    return found


def _parts(block: str) -> list[tuple[int, int]]:
    """The sentences of a block. A citation behind a full stop belongs to the sentence before it, and so do
    a few numbers; many of them are a list of their own."""
    parts: list[tuple[int, int]] = []
    for start, end in sentences(block):
        start += len(block[start:end]) - len(block[start:end].lstrip())
        said = clean(block[start:end])
        joins = bool(parts) and not _LETTERS.search(said)
        if joins and (not _DIGIT.search(said) or end - parts[-1][0] <= LONGEST_SENTENCE):
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    return parts


def _cites(sentence: str, marks: Marks, citable: Citable) -> Cites:
    own = _named_in(sentence, citable)
    used = [number for match in _MARK.finditer(sentence) for number in _numbers(match[1])]
    used += [match[1] for match in _RAISED.finditer(sentence)]
    used += [(match[2] or match[1]).casefold() for match in _REFERENCE.finditer(sentence)]
    meant = [own, *(marks[mark] for mark in used if mark in marks)]
    return Cites(
        tuple(dict.fromkeys(url for one in meant for url in one.urls)),
        tuple(dict.fromkeys(line for one in meant for line in one.lines)),
    )


def _urls(text: str) -> tuple[str, ...]:
    found = [match["url"] for match in _LINK.finditer(text)]
    found += [match[1].rstrip(".,;:!?'*_~’”>|)") for match in _URL.finditer(_LINK.sub(" ", text))]
    return tuple(dict.fromkeys(found))


def _shown(link: re.Match[str]) -> str:
    """The text of a link where the sentence needs it; the name of a source behind a sentence says nothing."""
    shown, before = link[1].strip(), link.string[max(0, link.start() - 60) : link.start()].rstrip()
    if shown.casefold().startswith(("http", "source")) or len(shown) < 3 or before.endswith((".", "(", "[")):
        return ""
    ends = not _LETTERS.search(link.string, link.end(), link.end() + 200)
    last = words(before)[-1:]
    named = all(word.text[0].isupper() or not word.content for word in words(shown))
    return "" if ends and named and last and last[0].content else shown


def clean(text: str) -> str:
    """A sentence without list signs, emphasis and citations."""
    text = " ".join(_BULLET.sub("", text).split())
    text = _LINK.sub(_shown, text)
    text = _REFERENCE.sub(_shown, text)
    text = _RAISED.sub("", without_names(_URL.sub("", _MARK.sub("", text))))
    text = _EMPTY_MARKS.sub("", _EMPHASIS.sub("", text))
    text = re.sub(r"\s+(?=[.,;:!?])", "", " ".join(text.split()))
    return text.strip(" -–—|;,(")
