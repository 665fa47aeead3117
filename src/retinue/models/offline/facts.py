"""The rules of `web-knowledge` and `science-research`: look a subject up, read the best entries, list facts.

Two rounds of lookups, then bullets in the words of the sources, each with the address it came from. What no
source said is not in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.models.offline.results import SourceEntry, clip, complaint, found_in, sentences_in
from retinue.models.offline.scene import Done, Move, Say, Scene, SceneItem, Wish
from retinue.models.offline.words import Term, stop_words, terms_of

SEARCHES = ("wiki_search", "wikidata_search", "duckduckgo", "stackexchange_search")
PAPERS = ("arxiv_search", "crossref_search", "semantic_scholar_search", "pubmed_search", "openalex_search")
_LEAD = re.compile(
    r"(?i)^\s*(?:please\s+)?(?:(?:can|could) you\s+)?"
    r"(?:(?:tell me|explain|describe|look up|find out|find|search for|give me)\b)?"
    r"\s*(?:(?:papers?|articles?|research|literature|publications?)\b)?\s*(?:(?:about|on|of)\b)?\s*"
    r"(?:(?:who|what|which|when|where|how (?:many|much|old|tall|big|far)|why|how)\b)?\s*"
    r"(?:(?:is|are|was|were|did|does|do|has|have|will|can)\b)?\s*(?:(?:the|a|an)\b)?\s*"
)
_FILLER_WORDS = """
latest recent current newest today now invented discovered founded wrote born live lived located papers
paper arxiv about article articles research published there version of on in for
"""
_FILLER = frozenset(_FILLER_WORDS.split())
_PROGRAMMING = re.compile(
    r"(?i)\b(?:python|javascript|typescript|java|rust|golang|sql|css|html|react|django|linux|bash|git|docker|npm|pip|"
    r"error|exception|traceback|compile|regex|api|library|framework)\b"
)


_WEB = re.compile(
    r"(?i)^\s*(?:please\s+)?(?:search|look|check|find|fetch)\b(?:\s+(?:on|in))?(?:\s+the)?"
    r"(?:\s+(?:web|internet|net|online))?(?:\s+(?:for|up|and find))?\s+"
)


def decide(scene: Scene) -> Move:
    subject = subject_of(scene.task)
    ask = scene.ask(_lookups(scene, subject)) if scene.turn == 0 else None
    if ask is None and scene.turn == 1:
        ask = scene.ask(_summaries(scene, subject), most=3)
    return ask if ask is not None else _report(scene, subject)


def subject_of(question: str) -> str:
    """What a question is about, in few words: a name where there is one."""
    quoted = re.search(r"[\"“`]([^\"”`\n]{2,80})[\"”`]", question)
    if quoted:
        return quoted[1]
    plain = _WEB.sub("", question.strip().split("\n")[0], count=1)
    noun = re.match(r"(?i)(?:who|what)(?:'s| is| are| was| were)\s", plain)
    plain = _LEAD.sub("", plain, count=1).rstrip("?.! ")
    if noun and len(plain.split()) <= 3 and _FILLER.isdisjoint(plain.lower().split()):
        return plain
    names = re.findall(
        r"(?<![\w-])[A-Z][\w'’.-]*(?:\s+(?:(?:of|the|de|van|von|la)\s+)?[A-Z0-9][\w'’.-]*)*", plain
    )
    if names:
        return max(names, key=len).rstrip("'’s") if len(names) == 1 else " ".join(names[:2])
    words = [term.text for term in terms_of(plain).words if term.text.lower() not in _FILLER]
    return " ".join(words[:5]) or plain[:80]


def query_of(question: str) -> str:
    """A question as words for a search engine."""
    plain = re.sub(r"https?://\S+", " ", _WEB.sub("", question.strip().split("\n")[0], count=1))
    words = re.findall(r"[\w.+#'-]*\w", plain)
    return " ".join([word for word in words if len(word) > 1 and word.lower() not in stop_words()][:8])


def _lookups(scene: Scene, subject: str) -> list[Wish | None]:
    wishes: list[Wish | None] = []
    topic = (
        " ".join(term.text for term in terms_of(scene.task).all if term.text.lower() not in _FILLER)
        or subject
    )
    for tool in PAPERS:
        wishes.append(scene.wish(tool, query=topic, limit=5))
    wishes.append(scene.wish("wiki_search", query=subject, limit=5))
    wishes.append(scene.wish("duckduckgo", query=subject))
    wishes.append(scene.wish("wikidata_search", query=subject, limit=3))
    if _PROGRAMMING.search(scene.task):
        wishes.append(scene.wish("stackexchange_search", query=topic, limit=5))
    if re.search(r"(?i)picture of the day|\bapod\b", scene.task):
        wishes.append(scene.wish("nasa_apod"))
    if re.search(r"(?i)asteroid|near.earth", scene.task):
        wishes.append(scene.wish("nasa_neows"))
    if not scene.offers(*SEARCHES, *PAPERS):
        wishes.append(scene.wish("web_search", query=topic, queries=[topic]))
    return wishes


def _summaries(scene: Scene, subject: str) -> list[Wish | None]:
    """The entries that fit best, read in full."""
    found = [entry for one in scene.results("wiki_search") for entry in found_in(one.text)]
    terms = terms_of(f"{subject} {scene.task}").all
    ranked = sorted(found, key=lambda entry: -_fit(entry, subject, terms))
    return [scene.wish("wiki_summary", title=_title(entry.title)) for entry in ranked[:2]]


def _fit(entry: SourceEntry, subject: str, terms: Sequence[Term]) -> float:
    title = entry.title.lower()
    exact = 5.0 if _title(title) == subject.lower() else 0.0
    return (
        exact
        + sum(2 * term.found_in(entry.title) + term.found_in(entry.text) for term in terms)
        - len(title) / 100
    )


def _title(title: str) -> str:
    return re.sub(r"\s+\((?:\d{4}[^)]*)\)$", "", title).strip()


def _report(scene: Scene, subject: str) -> Say:
    papers = [entry for one in scene.results(*PAPERS) for entry in found_in(one.text)]
    summaries = _entries(scene.results("wiki_summary"))
    others = _entries(scene.results(*SEARCHES, "web_search", "wikidata_query"))
    terms = terms_of(scene.task).all
    lines: list[str] = []
    items: list[SceneItem] = []
    sky = _bullets(_entries(scene.results("nasa_apod", "nasa_neows")), terms, items, most=5, named=True)
    if sky:
        lines += ["**NASA**", *sky, ""]
    if papers:
        lines += ["**Papers**", *_papers(papers, items), ""]
    bullets = _statements(summaries, terms, items)
    if len(bullets) < 3:
        read = {_title(one.title).lower() for one in summaries}  # a search shows the same page in part
        fresh = [one for one in others if _relevant(one, terms) and _title(one.title).lower() not in read]
        bullets += _bullets(fresh, terms, items, most=4 - len(bullets))
    lines += bullets
    failures = [one for one in scene.failures() if one.name not in ("read",)]
    if not papers and not bullets and not sky:
        lines = [_nothing(scene, clip(subject, 80))]
    if failures:
        said = "; ".join(f"{one.name}: {complaint(one.text, 100)}" for one in failures[:3])
        lines += ["", f"**Lookups that failed:** {said}"]
    return Say(text="\n".join(lines).strip(), items=tuple(items))


def _nothing(scene: Scene, subject: str) -> str:
    """That nothing is known: a source that could not be asked has not said that there is nothing."""
    if not scene.done:
        return f"**Not looked up:** there is no source here to ask about “{subject}”."
    tried = ", ".join(one.name for one in scene.done)
    if all(one.failed for one in scene.done):
        return f"**Not looked up:** no source could be asked about “{subject}”. Tried: {tried}."
    return f"**Not found:** no source gave anything about “{subject}”. Asked: {tried}."


def _entries(done: Sequence[Done]) -> list[SourceEntry]:
    seen: dict[str, SourceEntry] = {}
    for one in done:
        for entry in found_in(one.text):
            known = seen.get(entry.url)
            if known is None or len(entry.text) > len(known.text):
                seen[entry.url] = entry
    return list(seen.values())


def _relevant(entry: SourceEntry, terms: Sequence[Term]) -> bool:
    text = f"{entry.title} {entry.text}"
    return sum(term.found_in(text) for term in terms) >= max(1, len(terms) // 2)


def _papers(papers: Sequence[SourceEntry], items: list[SceneItem]) -> list[str]:
    lines: list[str] = []
    for number, paper in enumerate(papers[:5], 1):
        authors = re.search(r"(?im)^(?:authors?|by):\s*(.{3,300})$", paper.text)
        year = re.search(r"\b(?:19|20)\d{2}\b", f"{paper.title} {paper.text}")
        said = ". ".join(
            part for part in (clip(authors[1], 100) if authors else "", year[0] if year else "") if part
        )
        lines.append(f"{number}. *{_title(paper.title)}*. {said + '. ' if said else ''}{paper.url}")
        first = next(iter(sentences_in(re.sub(r"(?m)^[a-z][a-z ]{2,24}: .*$", "", paper.text))), "")
        if first:
            lines.append(f"   {clip(first, 220)}")
        items.append(SceneItem(title=_title(paper.title), url=paper.url, text=first or paper.title))
    return lines


def _statements(summaries: Sequence[SourceEntry], terms: Sequence[Term], items: list[SceneItem]) -> list[str]:
    """The pages that were read, a bullet for each sentence that counts; most of them of the first page."""
    lines: list[str] = []
    for number, entry in enumerate(summaries[:3]):
        parts = sentences_in(entry.text)[: 1 if number else 3] or [entry.text or entry.title]
        for part in parts:
            if number == 0 or any(term.found_in(f"{entry.title} {part}") for term in terms):
                said = clip(part, 300)
                lines.append(f"- {said} Source: {entry.url}")
                items.append(SceneItem(title=entry.title, url=entry.url, text=said))
    return lines


def _bullets(
    entries: Sequence[SourceEntry],
    terms: Sequence[Term],
    items: list[SceneItem],
    *,
    most: int,
    named: bool = False,
) -> list[str]:
    """The best sentence of each entry; `named`, what it says of itself, since no sentence names the thing."""
    lines: list[str] = []
    for entry in entries[:most]:
        said = "" if named else best_sentences(entry.text, terms, 1)
        said = said or clip(entry.text.replace("\n", "; "), 300) or entry.title
        said = f"**{entry.title}**: {said}" if named and said != entry.title else said
        lines.append(f"- {said if said != entry.title else f'**{said}**'} Source: {entry.url}")
        items.append(SceneItem(title=entry.title, url=entry.url, text=said))
    return lines


def best_sentences(text: str, terms: Sequence[Term], most: int, width: int = 420) -> str:
    """The sentences that speak of the question most, in their own order; the first counts a little more."""
    sentences = sentences_in(text)
    scored: list[tuple[float, int]] = []
    for number, sentence in enumerate(sentences):
        score = sum(term.weight for term in terms if term.found_in(sentence))
        scored.append((score + 0.5 if score and number == 0 else score, -number))
    chosen = sorted(-number for score, number in sorted(scored, reverse=True)[:most] if score > 0)
    return clip(" ".join(sentences[number] for number in chosen), width)
