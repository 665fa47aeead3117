"""The rules of `summarize` and `compare`: open the sources, keep the sentences that carry most.

One move opens every source, a second goes into pages that were saved to a file. A summary quotes; a
comparison is a table of quotes, and says "not stated" where a source is silent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.models.offline.facts import best_sentences
from retinue.models.offline.results import clip, hits_in, lines_in, sentences_in, urls_in, without_marks
from retinue.models.offline.scene import Done, Item, Move, Say, Scene, Wish
from retinue.models.offline.words import terms_of

MAX_SOURCES = 6
_SAVED = re.compile(r"/home/agent/[\w./-]{1,120}")


def decide_summary(scene: Scene) -> Move:
    return _opened(scene) or _summary(scene)


def decide_comparison(scene: Scene) -> Move:
    return _opened(scene) or _comparison(scene)


def sources_in(text: str) -> list[str]:
    """The addresses and paths that a text names."""
    return list(dict.fromkeys([*urls_in(text), *terms_of(text).paths]))[:MAX_SOURCES]


def _wanted(scene: Scene) -> list[str]:
    given = scene.fields.get("sources") or scene.fields.get("source") or scene.task
    named = sources_in(given)
    bare = given.strip().strip("`'\"")
    return named or ([bare] if re.fullmatch(r"[\w./@-]{1,200}", bare) else [])


def _opened(scene: Scene) -> Move | None:
    """The next calls, or None when everything that can be opened is open."""
    wishes: list[Wish | None] = []
    for source in _wanted(scene):
        if source.startswith("http"):
            wishes.append(scene.wish("web_fetch", url=source))
        elif not any(one.arguments.get("path") == source for one in scene.done):
            wishes.append(scene.wish("view", path=source) or scene.wish("read", path=source))
    for one in scene.results("web_fetch"):
        saved = _SAVED.search(one.text)
        path = saved[0].rstrip(".") if saved else ""
        if path and not any(other.arguments.get("path") == path for other in scene.done):
            wishes.append(scene.wish("view", path=path) or scene.wish("read", path=path))
            terms = terms_of(scene.fields.get("focus") or scene.fields.get("points") or "").all
            pattern = "|".join(term.grep for term in terms)
            wishes.append(scene.wish("grep", pattern=pattern, path=path, max_results=60) if pattern else None)
    return scene.ask(wishes, most=MAX_SOURCES)


def _text_of(scene: Scene, source: str) -> str:
    """What was seen of a source."""
    seen: list[str] = []
    for one in scene.results("web_fetch", "view", "read"):
        if one.arguments.get("url") == source:
            saved = _SAVED.search(one.text)
            seen.append(_lines(scene, saved[0].rstrip(".")) if saved else "")
            seen.append(without_marks(one.text).partition("\n")[2])
        elif one.arguments.get("path") == source:
            seen.append(_plain(one))
    return "\n".join(part for part in seen if part)


def _lines(scene: Scene, path: str) -> str:
    """What was seen of a saved page, the hits of a search in it first."""
    hits = [hit for one in scene.results("grep") for hit in hits_in(one.text) if hit.path == path]
    seen = [_plain(one) for one in scene.results("view", "read") if one.arguments.get("path") == path]
    return "\n".join([*(hit.text for hit in hits), *seen])


def _plain(one: Done) -> str:
    return "\n".join(lines_in(one.text).values()) or one.text


def _summary(scene: Scene) -> Say:
    wanted = _wanted(scene)
    texts = {source: _text_of(scene, source) for source in wanted}
    opened = {source: text for source, text in texts.items() if text.strip()}
    if not opened:
        return Say(
            text=f"Nothing could be opened of: {', '.join(wanted) or clip(scene.task, 80)}.{_failed(scene)}"
        )
    focus = scene.fields.get("focus", "")
    lines: list[str] = []
    items: list[Item] = []
    for source, text in opened.items():
        first = sentences_in(text)[:1]
        points = [first[0]] if first else []
        if focus:
            found = best_sentences(text, terms_of(focus).all, 4, width=900)
            points += [found] if found else [f"Nothing in it speaks of {clip(focus, 60)}."]
        else:
            points += sentences_in(text)[1:4]
        headings = re.findall(r"(?m)^#{1,3} +(.{3,80})$", text)[:8]
        lines += [f"- {clip(point, 500)}" for point in points]
        lines += [f"- Its parts: {', '.join(headings)}"] if headings else []
        lines += ["", f"Source: {source}"]
        items.append(
            Item(title=source, url=source if "://" in source else "", path=source, text=" ".join(points))
        )
    return Say(text="\n".join(lines) + _failed(scene), items=tuple(items))


def _comparison(scene: Scene) -> Say:
    wanted = _wanted(scene)
    texts = {source: _text_of(scene, source) for source in wanted}
    opened = [source for source in wanted if texts[source].strip()]
    if len(opened) < 2:
        return Say(
            text=f"Fewer than two sources could be opened: {', '.join(opened) or 'none'}.{_failed(scene)}"
        )
    points = _points(scene)
    rows = [f"| | {' | '.join(_cell(source, 60) for source in opened)} |", "|---" * (len(opened) + 1) + "|"]
    for point in points:
        said = [best_sentences(texts[source], terms_of(point).all, 1, width=200) for source in opened]
        rows.append(f"| {_cell(point, 60)} | {' | '.join(_cell(one or 'not stated', 200) for one in said)} |")
    sources = "\n".join(f"- {source}" for source in opened)
    items = tuple(Item(title=one, url=one if "://" in one else "", path=one) for one in opened)
    return Say(text="\n".join(rows) + f"\n\n## Sources\n{sources}{_failed(scene)}", items=items)


def _points(scene: Scene) -> list[str]:
    given = scene.fields.get("points", "") or scene.task.rpartition(" on ")[2]
    found = [part.strip(" .?") for part in re.split(r"[,;\n]| and ", given) if part.strip(" .?")]
    return [point for point in found if terms_of(point)][:8] or ["subject"]


def _cell(text: str, most: int) -> str:
    return clip(text, most).replace("|", "/")


def _failed(scene: Scene) -> str:
    failures: Sequence[Done] = scene.failures()
    said = "; ".join(
        f"{one.arguments.get('url') or one.arguments.get('path')} ({clip(one.text, 100)})"
        for one in failures[:4]
    )
    return f"\n\nCould not be opened: {said}" if said else ""
