"""The rules of `agentic-fetch`: fetch the page or search for pages, find the passages, cite them.

With an address: fetch it; a page that was saved to a file is searched there. Without: search, fetch the best
two or three, quote. The sources listed are the pages that were fetched, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from retinue.models.offline.facts import best_sentences, query_of, subject_of
from retinue.models.offline.results import clip, found_in, hits_in, lines_in, unique, urls_in
from retinue.models.offline.scene import Done, Move, Say, Scene, SceneItem, Wish
from retinue.models.offline.words import Term, terms_of
from retinue.web.framing import unframed

MAX_TURNS = 6
_SAVED = re.compile(r"/home/agent/[\w./-]{1,120}")


def decide(scene: Scene) -> Move:
    urls = urls_of(scene)
    ask = None
    if scene.turn < MAX_TURNS:
        ask = scene.ask(_fetches(scene, urls) if urls else _searches(scene), most=4)
        if ask is None:
            ask = scene.ask(_inside(scene), most=4)
    return ask if ask is not None else _report(scene, urls)


def urls_of(scene: Scene) -> list[str]:
    given = urls_in(scene.fields.get("url", "")) or urls_in(scene.task)
    return given[:3]


def _fetches(scene: Scene, urls: Sequence[str]) -> list[Wish | None]:
    return [scene.wish("web_fetch", url=url) for url in urls]


def _searches(scene: Scene) -> list[Wish | None]:
    searched = [one for one in scene.done if one.name == "web_search"]
    if not searched:
        queries = unique(query for query in (query_of(scene.task), subject_of(scene.task)) if query)[:2]
        if "queries" in _properties(scene, "web_search"):
            return [scene.wish("web_search", queries=queries)]
        return [scene.wish("web_search", query=query) for query in queries]
    terms = terms_of(scene.task).all
    found = {entry.url: entry for one in scene.results("web_search") for entry in found_in(one.text)}
    ranked = sorted(
        found.values(), key=lambda entry: -sum(term.found_in(f"{entry.title} {entry.text}") for term in terms)
    )
    if any(one.name == "web_fetch" for one in scene.done):
        return []
    return [scene.wish("web_fetch", url=entry.url) for entry in ranked[:3]]


def _properties(scene: Scene, tool: str) -> set[str]:
    known: Any = scene.tools[tool].schema.get("properties") if tool in scene.tools else None
    return set(cast("dict[str, Any]", known)) if isinstance(known, dict) else set()


def _inside(scene: Scene) -> list[Wish | None]:
    """Search in pages that were saved because they are large; then view the lines around the hits."""
    wishes: list[Wish | None] = []
    terms = terms_of(scene.task).all
    if not terms:
        return []
    for one in scene.results("web_fetch"):
        saved = _SAVED.search(one.text)
        if saved is None:
            continue
        path = saved[0].rstrip(".")
        pattern = "|".join(term.pattern for term in terms[:5])
        search = scene.wish("grep", pattern=pattern, path=path, ignore_case=True, max_results=40)
        if search is not None:
            wishes.append(search)
            continue
        line = _densest(scene, path, terms)
        if line and not any(other.name in ("view", "read") for other in scene.done):
            around = {"path": path, "offset": max(1, line - 5), "limit": 30}
            wishes.append(scene.wish("view", **around) or scene.wish("read", **around))
    return wishes


def _densest(scene: Scene, path: str, terms: Sequence[Term]) -> int:
    hits = [
        hit for one in scene.results("grep") if one.arguments.get("path") == path for hit in hits_in(one.text)
    ]
    best = max(hits, key=lambda hit: sum(term.found_in(hit.text) for term in terms), default=None)
    return best.line if best else 0


def _report(scene: Scene, urls: Sequence[str]) -> Say:
    terms = terms_of(scene.task).all
    pages = scene.results("web_fetch")
    if not pages:
        return _unfetched(scene, urls)
    lines: list[str] = []
    items: list[SceneItem] = []
    for number, page in enumerate(pages, 1):
        url = str(page.arguments.get("url", ""))
        said = best_sentences(text_of(scene, page), terms, 3 if len(pages) == 1 else 2, width=600)
        title = _title_of(page.text, url)
        if said:
            lines.append(f"- {said} [{number}]")
        items.append(SceneItem(title=title, url=url, text=said or title))
    if not lines:
        wanted = ", ".join(term.text for term in terms) or "the question"
        lines.append(f"The pages were read, but no passage in them speaks of {wanted}.")
    failed = [one for one in scene.failures() if one.name in ("web_fetch", "web_search")]
    if failed:
        lines += ["", "Could not be read: " + "; ".join(_failure(one) for one in failed[:3])]
    lines += ["", "## Sources"]
    lines += [f"{number}. [{item.title}]({item.url})" for number, item in enumerate(items, 1)]
    return Say(text="\n".join(lines), items=tuple(items))


def text_of(scene: Scene, page: Done) -> str:
    """The page, or what was seen of it where it was saved."""
    saved = _SAVED.search(page.text)
    if saved is None:
        return unframed(page.text).partition("\n")[2] or page.text
    path = saved[0].rstrip(".")
    seen: list[str] = []
    for one in scene.results("view", "read", "grep"):
        if one.arguments.get("path") == path:
            seen += (
                lines_in(one.text).values() if one.name != "grep" else (hit.text for hit in hits_in(one.text))
            )
    return "\n".join(seen) or page.text


def _title_of(text: str, url: str) -> str:
    text = text[:4000]
    match = re.search(r"(?mi)^title:\s*(.{3,120})$", text) or re.search(r"(?m)^#\s+(.{3,120})$", text)
    host = urlsplit(url).hostname or url
    return clip(match[1].replace("[", "(").replace("]", ")"), 100) if match else host


def _failure(one: Done) -> str:
    wanted = one.arguments.get("url") or one.arguments.get("query") or one.name
    return f"{wanted} ({clip(one.text, 120)})"


def _unfetched(scene: Scene, urls: Sequence[str]) -> Say:
    found = {entry.url: entry for one in scene.results("web_search") for entry in found_in(one.text)}
    failed = [_failure(one) for one in scene.failures()]
    if found:
        lines = ["No page could be read. What the search itself showed:", ""]
        lines += [
            f"- {entry.title}: {clip(entry.text, 160)} ({entry.url})" for entry in list(found.values())[:4]
        ]
        lines += ["", "## Sources", "None: no page was fetched."]
    else:
        wanted = ", ".join(urls) or clip(scene.task, 100)
        lines = [f"Nothing could be read for: {wanted}.", "", "## Sources", "None."]
    if failed:
        lines.insert(1, "Failed: " + "; ".join(failed[:3]))
    return Say(text="\n".join(lines))
