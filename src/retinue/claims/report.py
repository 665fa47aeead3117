"""The claims of a report: every sentence that cites something, with the verdict of its source.

Called by `sources.check`. The text of a source is read once, whatever cites it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from retinue.claims.addresses import identity
from retinue.claims.citing import Citable, Cited, cited_sentences
from retinue.claims.code import Lines, hold_lines, hold_snippet
from retinue.claims.fences import CodeBlock
from retinue.claims.items import own_part
from retinue.claims.passages import LONGEST_TEXT, SourceText
from retinue.claims.places import Place, ReadFiles, shown
from retinue.claims.snippets import CodeSnippet, snippets
from retinue.claims.verdicts import BEYOND, ORDER, Held, Work, hold
from retinue.types import Claim, Source

MOST_CLAIMS = 200
"""More sentences of one report are not held against anything."""
MOST_SENTENCES = 4_000
"""Sentences that cite nothing are looked at up to here."""
MOST_CITED = 20
"""Sources that one sentence is held against."""
MOST_TEXT = 4_000_000
"""Characters of sources that are read for one report."""
LONGEST_PASSAGE = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """`uncited` are the sentences that state something and cite nothing. `beyond` counts the sentences that
    were not looked at, or not held against what they cite, since that would have been too much work."""

    claims: tuple[Claim, ...] = ()
    uncited: tuple[str, ...] = ()
    uncited_at: tuple[tuple[int, int], ...] = ()
    beyond: int = 0
    fault: str = ""
    """The error that came of looking, if one did: then nothing here is known."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """What nobody knows about a report, in words for people."""
        said = [f"its sources could not be checked ({self.fault})"] if self.fault else []
        if self.beyond:
            count = "1 sentence was" if self.beyond == 1 else f"{self.beyond} sentences were"
            said.append(f"{count} not held against any source: the report or its pages are too long")
        return tuple(said)


NO_CLAIMS = Claims()


def claims_of(
    prose: str,
    sources: Sequence[Source],
    look_up: Callable[[Source], str | None],
    blocks: Sequence[CodeBlock] = (),
) -> Claims:
    """Hold each sentence of a report against what it cites, and each of its `blocks` of code against the
    place that it stands under. `prose` is its text without them."""
    pages = _Pages(sources, look_up)
    citable = Citable(sources)
    work = Work()
    found: list[Claim] = []
    uncited: list[Cited] = []
    beyond = 0
    for at, sentence in enumerate(cited_sentences(prose, citable)):
        if not sentence.urls and not sentence.lines:
            if at < MOST_SENTENCES and sentence.states():
                uncited.append(sentence)
            beyond += at >= MOST_SENTENCES
        elif len(found) < MOST_CLAIMS:
            claim, left_out = _claim(sentence, pages, work)
            found.append(claim)
            beyond += left_out
        else:
            beyond += 1
    given = snippets(prose, blocks, citable.means)
    room = max(0, MOST_CLAIMS - len(found))
    found += [_of_snippet(one, pages, work) for one in given[:room]]
    found.sort(key=lambda claim: claim.start)
    return Claims(
        claims=tuple(found),
        uncited=tuple(one.text for one in uncited),
        uncited_at=tuple((one.start, one.end) for one in uncited),
        beyond=beyond + len(given[room:]),
    )


class _Pages:
    """The pages that were fetched, by every address that led to them; each text is cut into passages once."""

    def __init__(self, sources: Sequence[Source], look_up: Callable[[Source], str | None]) -> None:
        self._look_up = look_up
        self._left = MOST_TEXT
        self._too_long: set[str] = set()
        self._texts: dict[str, SourceText | None] = {}
        self._by_url: dict[str, Source] = {}
        for source in sorted(sources, key=lambda source: source.listed):
            for url in (source.url, *source.aliases):
                if url:
                    self._by_url.setdefault(identity(url), source)
        self._files = ReadFiles(sources)
        self.is_file = self._files.names_file

    def lines(self, place: Place) -> Lines | None:
        """The file that a place means, if its text is there."""
        path, first, last = place
        for source in self._files.named(path):
            text = self._look_up(source)
            if text is not None and len(text) <= LONGEST_TEXT:
                return Lines(source.path or source.saved_as or path, text, first, last)
        return None

    def named(self, urls: Sequence[str]) -> tuple[list[tuple[Source, SourceText]], bool]:
        """The texts of what is cited, and whether some of them are left out."""
        found: dict[str, tuple[Source, SourceText]] = {}
        left_out = len(urls) > MOST_CITED
        for url in urls[:MOST_CITED]:
            source = self._by_url.get(identity(url))
            text = self._text(source) if source is not None else None
            if source is not None and text is not None:
                found.setdefault(source.url or "", (source, text))
            left_out = left_out or (source is not None and source.url in self._too_long)
        return list(found.values()), left_out

    def _text(self, source: Source) -> SourceText | None:
        if source.listed or not source.verified:
            return None  # a line of a search is not what its page says
        name = source.url or ""
        if name not in self._texts:
            text = self._look_up(source)
            text = None if text is None else own_part(text, source)
            if text is not None and len(text) > self._left:
                self._too_long.add(name)
                text = None
            self._left -= min(len(text or ""), LONGEST_TEXT)
            self._texts[name] = None if text is None else SourceText(text, source.title)
        return self._texts[name]


def _claim(sentence: Cited, pages: _Pages, work: Work) -> tuple[Claim, bool]:
    """A sentence with its verdict, and whether too much work was saved on it."""
    found, left_out = pages.named(sentence.urls)
    held = hold(sentence.text, [text for _, text in found], work)
    if left_out and held.verdict == "not_found":
        held = BEYOND
    made = Claim(
        text=sentence.text,
        start=sentence.start,
        end=sentence.end,
        cites=(*sentence.urls, *(shown(*place) for place in sentence.lines)),
        verdict=held.verdict,
        differences=held.differences,
    )
    beyond = held.beyond or (left_out and held.verdict == "unchecked")
    if found and not beyond:
        made = _with_passage(made, held, *found[held.which])
    in_files = [
        _in_lines(made, hold_lines(sentence.text, lines, work, pages.is_file), lines)
        for place in sentence.lines[:MOST_CITED]
        if (lines := pages.lines(place)) is not None
    ]
    options = [made, *in_files] if found or not in_files else in_files
    return max(options, key=lambda one: ORDER[one.verdict]), beyond


def _with_passage(claim: Claim, held: Held, source: Source, text: SourceText) -> Claim:
    passage = " ".join(text.text[held.start : held.end].split())[:LONGEST_PASSAGE]
    verdict = "unchecked" if text.cut and held.verdict == "not_found" else held.verdict
    return replace(
        claim, passage=passage, source=source.url or "", place=(held.start, held.end), verdict=verdict
    )


def _in_lines(claim: Claim, held: Held, lines: Lines) -> Claim:
    """The claim with the verdict of lines of a file."""
    return replace(
        claim,
        verdict=held.verdict,
        differences=held.differences,
        passage=lines.text[held.start : held.end].strip("\n")[:LONGEST_PASSAGE],
        source=lines.path,
        place=(held.start, held.end),
    )


def _of_snippet(snippet: CodeSnippet, pages: _Pages, work: Work) -> Claim:
    first = next(line.strip() for line in snippet.body.split("\n") if line.strip())
    made = Claim(
        text=first[:LONGEST_PASSAGE],
        start=snippet.start,
        end=snippet.end,
        cites=(shown(*snippet.place),),
        verdict="unchecked",
    )
    lines = pages.lines(snippet.place)
    if lines is None:
        return made
    return _in_lines(made, hold_snippet(snippet.body, lines, work, given=snippet.given), lines)
