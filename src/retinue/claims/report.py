"""The claims of a report: every sentence that cites something, with the verdict of its source.

Called by `sources.check`. The text of a source is read once, whatever cites it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from retinue.claims.citing import Cited, cited_sentences
from retinue.claims.passages import SourceText
from retinue.claims.verdicts import Held, hold
from retinue.types import Claim, Source
from retinue.web.urls import key

MOST_CLAIMS = 200
"""More sentences of one report are not held against anything."""
LONGEST_PASSAGE = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """`uncited` are the sentences that state something and cite nothing."""

    claims: tuple[Claim, ...] = ()
    uncited: tuple[str, ...] = ()


NO_CLAIMS = Claims()


def claims_of(prose: str, sources: Sequence[Source], look_up: Callable[[Source], str | None]) -> Claims:
    """Hold each sentence of a report against what it cites. `prose` is its text without blocks of code."""
    if not sources:
        return NO_CLAIMS
    pages = _Pages(sources, look_up)
    found: list[Claim] = []
    uncited: list[str] = []
    for sentence in cited_sentences(prose):
        if not sentence.urls and not sentence.lines:
            uncited += [sentence.text] * sentence.states
        elif len(found) < MOST_CLAIMS and sentence.urls:
            found.append(_claim(sentence, pages))
    return Claims(claims=tuple(found), uncited=tuple(uncited))


class _Pages:
    """The pages that were fetched, by every address that led to them; each text is cut into passages once."""

    def __init__(self, sources: Sequence[Source], look_up: Callable[[Source], str | None]) -> None:
        self._look_up = look_up
        self._texts: dict[str, SourceText | None] = {}
        self._by_url: dict[str, Source] = {}
        for source in sorted(sources, key=lambda source: source.listed):
            for url in (source.url, *source.aliases):
                if url:
                    self._by_url.setdefault(key(url), source)

    def named(self, urls: Iterable[str]) -> list[tuple[Source, SourceText]]:
        found: list[tuple[Source, SourceText]] = []
        for url in urls:
            source = self._by_url.get(key(url))
            text = self._text(source) if source is not None else None
            if source is not None and text is not None and all(text is not other for _, other in found):
                found.append((source, text))
        return found

    def _text(self, source: Source) -> SourceText | None:
        if source.listed or not source.verified:
            return None  # a line of a search is not what its page says
        name = source.url or ""
        if name not in self._texts:
            text = self._look_up(source)
            self._texts[name] = None if text is None else SourceText(text, source.title)
        return self._texts[name]


def _claim(sentence: Cited, pages: _Pages) -> Claim:
    found = pages.named(sentence.urls)
    held = hold(sentence.text, [text for _, text in found])
    made = Claim(
        text=sentence.text,
        start=sentence.start,
        end=sentence.end,
        cites=sentence.urls,
        verdict=held.verdict,
        differences=held.differences,
    )
    return made if not found else _with_passage(made, held, *found[held.which])


def _with_passage(claim: Claim, held: Held, source: Source, text: SourceText) -> Claim:
    passage = " ".join(text.text[held.start : held.end].split())[:LONGEST_PASSAGE]
    verdict = "unchecked" if text.cut and held.verdict == "not_found" else held.verdict
    return replace(
        claim, passage=passage, source=source.url or "", place=(held.start, held.end), verdict=verdict
    )
