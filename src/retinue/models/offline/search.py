"""The rules of `code-search`: grep for the terms of a question, rank, look closer, read, report.

Four moves at most: search everywhere; search the best files for every term; read the best places; answer.
A name that occurs nowhere is said to occur nowhere, with what was tried, and similar names that do exist.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from retinue.models.offline import tour
from retinue.models.offline.rank import DEFINES, RankedFile, definition_name, rank
from retinue.models.offline.results import Hit, clip, hits_in, lines_in, paths_in, unique
from retinue.models.offline.scene import Move, Say, Scene, SceneItem, Wish
from retinue.models.offline.words import Term, Terms, kin_of, parts_of, terms_of

SNIPPET = 12
MAX_TEXT = 3300
MAX_TURNS = 6
_TOP = r"^(?:export |default |pub |async |public )*(?:class|def|function|func|fn|struct|interface|type)\s+\w+"


def decide(scene: Scene) -> Move:
    terms = terms_of(scene.task)
    if tour.asked_for(scene.task):
        return tour.decide(scene)
    if terms.paths and not terms:
        return tour.decide_file(scene, terms.paths)
    if not terms and not terms.paths:
        return Say(
            text="**Answer:** the question names nothing that can be searched for. Give a symbol, a message, "
            "a file or a few words that would stand in the code."
        )
    scope = scope_of(scene, terms)
    places = rank_all(scene, terms)
    ask = scene.ask(everywhere(scene, terms, scope))
    if ask is None and not convincing(places, terms):
        ask = scene.ask(relaxed(scene, terms, scope), most=6)
    if ask is None:
        ask = scene.ask(closer(scene, terms, places))
    if ask is None:
        ask = scene.ask(reads(scene, places))
    return report(scene, terms, places) if ask is None or scene.turn >= MAX_TURNS else ask


def scope_of(scene: Scene, terms: Terms) -> str:
    """The folder, file or glob to stay in; a path that led nowhere is not tried again."""
    failed = {
        str(one.arguments.get("path") or one.arguments.get("glob"))
        for one in scene.failures()
        if one.name == "grep"
    }
    given = scene.fields.get("scope", "").strip().strip("`'\"")
    for path in (given, *terms.paths):
        if path and path not in failed and re.fullmatch(r"[\w.@*?{},+~ /-]{1,200}", path):
            return path
    return ""


def _where(scope: str) -> dict[str, str]:
    if not scope or scope in (".", "./", "/"):
        return {}
    if "*" in scope or "," in scope:
        return {"glob": scope}
    return {"path": scope} if "/" in scope else {"glob": f"**/{scope}"} if "." in scope else {"path": scope}


def everywhere(scene: Scene, terms: Terms, scope: str) -> list[Wish | None]:
    """The first searches, all in one turn."""
    where = _where(scope)
    wishes: list[Wish | None] = []
    names = [term for term in terms.names if term.kind == "name"]
    if names:
        wishes.append(scene.wish("grep", pattern=_defining(names, exact=True), **where, max_results=60))
    for term in terms.names[:3]:
        edge = r"\b" if re.match(r"\w", term.text) and re.search(r"\w$", term.text) else ""
        wishes.append(scene.wish("grep", pattern=f"{edge}{term.pattern}{edge}", **where, max_results=80))
    words = terms.words[: 5 if not names else 2]
    if words:
        wishes.append(
            scene.wish(
                "grep", pattern=_defining(words, exact=False), **where, ignore_case=True, max_results=300
            )
        )
        wishes.extend(
            scene.wish("grep", pattern=pair, **where, ignore_case=True, max_results=80)
            for pair in _pairs(words)
        )
    for term in words[:3]:
        wishes.append(scene.wish("grep", pattern=term.grep, **where, max_results=300))
    folder = {"path": where["path"]} if "path" in where else {}
    for term in (*words[:2], *names[:1])[:2] if not PurePosixPath(scope).suffix else ():
        wishes.append(scene.wish("glob", pattern=f"**/*{_glob_part(term)}*", **folder))
    return wishes


def _defining(terms: Sequence[Term], *, exact: bool) -> str:
    """A pattern for lines that define something with one of these in its name."""
    names = "|".join(term.pattern for term in terms)
    if exact:
        return rf"(?:{DEFINES})\s+[*&]?(?:\([^)]*\)\s*)?(?:{names})\b|^\s*(?:{names})\s*[:=]"
    return rf"(?:def|class|function|func|fn|struct|interface|enum|trait|type|const)\s+\w*(?:{names})"


def _pairs(words: Sequence[Term]) -> list[str]:
    """Two terms in one line, in either order."""
    first = [f"{a.pattern}.*{b.pattern}|{b.pattern}.*{a.pattern}" for a, b in pairwise(words)]
    return ["|".join(first)] if first else []


def _glob_part(term: Term) -> str:
    if term.kind == "name":
        return "*".join(parts_of(term.text)) or term.text
    return term.stem or term.text.lower()


def relaxed(scene: Scene, terms: Terms, scope: str) -> list[Wish | None]:
    """Other ways to say it, when the first searches found too little."""
    where = _where(scope)
    wishes: list[Wish | None] = []
    for term in terms.names[:2]:
        parts = parts_of(term.text)
        if term.kind == "name":
            wishes.append(scene.wish("grep", pattern=term.pattern, **where, ignore_case=True, max_results=40))
        if len(parts) > 1:
            spread = r"\w*?".join(re.escape(part) for part in parts)
            wishes.append(scene.wish("grep", pattern=spread, **where, ignore_case=True, max_results=40))
            longest = max(parts, key=len)
            known = Term(longest, "word", re.escape(longest), longest)
            wishes.append(
                scene.wish(
                    "grep", pattern=_defining([known], exact=False), **where, ignore_case=True, max_results=40
                )
            )
    kin = kin_of(terms.words)
    if kin and not terms.names:
        pattern = "|".join(term.grep for term in kin[:6])
        wishes.append(scene.wish("grep", pattern=pattern, **where, max_results=200))
    for term in terms.words[3:]:
        wishes.append(scene.wish("grep", pattern=term.grep, **where, max_results=150))
    if scope:
        wishes.extend(scene.wish("grep", pattern=term.grep, max_results=150) for term in terms.all[:3])
    return wishes


def closer(scene: Scene, terms: Terms, places: Sequence[RankedFile]) -> list[Wish | None]:
    """Every term in each of the best files, since the first searches were cut off where they found much; and
    what a file defines that is named for the question."""
    pattern = "|".join(unique(term.grep for term in (*terms.all, *kin_of(terms.words)[:4])))
    if any(
        str(one.arguments.get("pattern", "")).startswith(pattern) and "path" in one.arguments
        for one in scene.done
    ):
        return []
    return [
        scene.wish(
            "grep", pattern=f"{pattern}|{_TOP}" if place.named else pattern, path=place.path, max_results=150
        )
        for place in places[:5]
    ]


def reads(scene: Scene, places: Sequence[RankedFile]) -> list[Wish | None]:
    """The lines around the best hits."""
    if any(one.name == "read" for one in scene.done):
        return []
    wishes: list[Wish | None] = []
    for place in places[:4]:
        line = place.lines[0].line if place.lines else 1
        wishes.append(scene.wish("read", path=place.path, offset=max(1, line - 4), limit=30))
    return wishes


def rank_all(scene: Scene, terms: Terms) -> list[RankedFile]:
    """Everything found so far, the best file first."""
    hits = [hit for one in scene.results("grep") for hit in hits_in(one.text)]
    hits = [hit for hit in hits if not hit.path.startswith("/home/agent")]
    named = [path for one in scene.results("glob") for path in paths_in(one.text)]
    named = [path for path in named if not path.endswith("/") and "." in PurePosixPath(path).name]
    return rank(hits, terms.all, scene.task, kin=kin_of(terms.words), extra=named[:60])


def convincing(places: Sequence[RankedFile], terms: Terms) -> bool:
    """Whether the best file is likely to be about the question."""
    if not places:
        return False
    if terms.names:
        found = {text for place in places for text in place.terms}
        return any(term.text in found for term in terms.names)
    wanted = {term.text for term in terms.words}
    return bool(wanted) and len(places[0].terms & wanted) >= max(1, round(len(wanted) * 0.5))


# ── the report ──────────────────────────────────────────────────────────────────────────────────────────


def report(scene: Scene, terms: Terms, places: Sequence[RankedFile]) -> Say:
    missing = _missing(terms, places)
    if not places or (terms.names and not convincing(places, terms)):
        return _nothing(scene, terms)
    shown = _worth_showing(places)
    items = tuple(_item(place) for place in shown)
    lines = [_answer(terms, shown, places), "", "**Findings**"]
    for number, (place, item) in enumerate(zip(shown, items, strict=True), 1):
        lines.append(f"{number}. `{item.path}:{item.line}` {item.title}")
        lines += _snippet(scene, place, item.line)
    text = "\n".join(lines)
    tail = _tail(scene, shown, places, missing)
    if len(text) > MAX_TEXT - len(tail):
        text = text[: MAX_TEXT - len(tail)].rsplit("\n", 1)[0]
        text += "\n   ```" if text.count("```") % 2 else ""
    return Say(text=f"{text}\n\n{tail}".strip(), items=items)


def _missing(terms: Terms, places: Sequence[RankedFile]) -> list[str]:
    found = {text for place in places for text in place.terms}
    return [term.text for term in terms.all if term.text not in found]


def _worth_showing(places: Sequence[RankedFile]) -> list[RankedFile]:
    """The best, and others that come near to it."""
    best = places[0].score
    return [place for place in places[:4] if place.score >= best * 0.5]


def _item(place: RankedFile) -> SceneItem:
    hit = place.lines[0] if place.lines else Hit(place.path, 1, "")
    name = definition_name(hit.text)
    title = f"defines `{name}`" if name else f"`{clip(hit.text, 90)}`" if hit.text.strip() else "by its name"
    return SceneItem(title=title, path=place.path, line=hit.line, text=clip(hit.text, 300))


def _answer(terms: Terms, shown: Sequence[RankedFile], places: Sequence[RankedFile]) -> str:
    best = shown[0]
    line = best.lines[0].line if best.lines else 1
    at = f"`{best.path}:{line}`"
    exact = any(best.defines.lower() == term.text.lower() for term in terms.all)
    if exact and (terms.names or len(terms.words) == 1):
        return f"**Answer:** `{best.defines}` is defined at {at}."
    asked = {term.text for term in terms.all}
    said = ", ".join(sorted(best.terms & asked)) or "the question"
    if not convincing(places, terms):
        return f"**Answer:** no place fits the whole question. The nearest is {at}, which has only {said}."
    what = f", in `{best.defines}`" if best.defines else ""
    return f"**Answer:** the best match is {at}{what}. It has: {said}."


def _snippet(scene: Scene, place: RankedFile, line: int) -> list[str]:
    """Lines that were read, or the hits themselves where nothing was read."""
    known: dict[int, str] = {}
    for one in scene.results("read"):
        if str(one.arguments.get("path", "")).removeprefix("./") == place.path:
            known.update(lines_in(one.text))
    numbers = _extent(known, line)
    if not numbers:
        return [f"   - `{place.path}:{hit.line}` {clip(hit.text, 120)}" for hit in place.lines[1:3]]
    language = PurePosixPath(place.path).suffix.lstrip(".")
    body = [
        f"   {number:>5}  {known[number][:140].replace('```', chr(39) * 3)}".rstrip() for number in numbers
    ]
    return [f"   ```{language}", *body, "   ```"]


def _extent(known: dict[int, str], line: int) -> list[int]:
    """The lines to show: a definition to its end, or a few lines around a hit."""
    text = known.get(line, "")
    if not definition_name(text):
        first = max(1, line - 2)
        return [number for number in range(first, first + SNIPPET) if number in known]
    indent = len(text) - len(text.lstrip())
    numbers = [line]
    for number in range(line + 1, line + SNIPPET):
        row = known.get(number)
        if row is None or (
            row.strip() and len(row) - len(row.lstrip()) <= indent and row.strip()[0] not in ")]}"
        ):
            break
        numbers.append(number)
    while not known[numbers[-1]].strip():
        numbers.pop()
    return numbers


def _tail(
    scene: Scene, shown: Sequence[RankedFile], places: Sequence[RankedFile], missing: Sequence[str]
) -> str:
    parts: list[str] = []
    others = [
        f"- `{hit.path}:{hit.line}` {clip(hit.text, 80)}"
        for place in places[len(shown) : len(shown) + 5]
        for hit in place.lines[:1]
    ]
    more = [f"- `{hit.path}:{hit.line}` {clip(hit.text, 80)}" for hit in shown[0].lines[1:3]]
    if more or others:
        parts.append("**Also:**\n" + "\n".join(more + others))
    if missing:
        parts.append("**Not found:** " + ", ".join(f"`{text}`" for text in missing))
    parts.append("**Searched for:** " + _tried(scene))
    return "\n\n".join(parts)


def _tried(scene: Scene) -> str:
    """What was looked for, as a person would write it."""
    patterns = unique(
        str(one.arguments["pattern"])
        for one in scene.done
        if one.name in ("grep", "glob") and "pattern" in one.arguments
    )
    plain = unique(_plain(pattern) for pattern in patterns if "|func|" not in pattern)
    return ", ".join(f"`{clip(text, 50)}`" for text in plain[:8]) or "nothing: no search tool was offered"


def _plain(pattern: str) -> str:
    word = re.fullmatch(r"\(\?i:\\b(.+?)\|_.*", pattern)
    return (word[1] if word else pattern).replace("(?:", "(").replace(r"\b", "").replace(r"\w*?", "…")


def _nothing(scene: Scene, terms: Terms) -> Say:
    """Nothing was found, said plainly, with what was tried and what failed."""
    wanted = ", ".join(f"`{term.text}`" for term in terms.names or terms.words) or "that"
    said = f"none of {wanted} occurs" if "," in wanted else f"{wanted} does not occur"
    lines = [f"**Answer:** found nothing: {said} in the files that were searched."]
    failed = [one for one in scene.failures() if one.name in ("grep", "glob", "read")]
    worked = scene.results("grep", "glob")
    if not worked:
        lines = [f"**Answer:** could not search for {wanted}: no search worked."]
    similar = _similar(scene, terms)
    if similar:
        lines += ["", "**Similar names that do exist:**", *similar]
    lines += ["", "**Searched for:** " + _tried(scene)]
    if failed:
        lines += ["", f"**Failed:** {clip(failed[-1].text, 200)}"]
    return Say(text="\n".join(lines))


def _similar(scene: Scene, terms: Terms) -> list[str]:
    """Names that share most of their parts with the one asked for."""
    found: dict[str, float] = {}
    hits = [hit for one in scene.results("grep") for hit in hits_in(one.text)]
    for name in (term.text for term in terms.names if term.kind == "name"):
        wanted = set(parts_of(name))
        for hit in hits:
            defined = definition_name(hit.text)
            shared = wanted & set(parts_of(defined))
            if shared:
                entry = f"- `{defined}` at `{hit.path}:{hit.line}`"
                found[entry] = len(shared) / len(wanted | set(parts_of(defined)))
    return sorted(found, key=lambda entry: (-found[entry], entry))[:4]
