"""The rules of `summarize` and `compare`: open the sources, keep the sentences that carry most.

One move opens every source, a second goes into pages that were saved to a file. A summary quotes; a
comparison is a table of quotes, from sentences and from tables, and says "not stated" where a source is
silent. What is neither an address nor a path is taken for the text itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.models.offline.cells import best_cells
from retinue.models.offline.facts import best_sentences
from retinue.models.offline.results import clip, hits_in, lines_in, sentences_in, urls_in
from retinue.models.offline.scene import Done, Move, Say, Scene, SceneItem, Wish
from retinue.models.offline.words import terms_of
from retinue.web.framing import unframed

MAX_SOURCES = 6
TEXT_WORDS = 12
"""So many words beside addresses and paths are a text, not a name for one."""
_SAVED = re.compile(r"/home/agent/[\w./-]{1,120}")


def decide_summary(scene: Scene) -> Move:
    return _opened(scene) or _summary(scene)


def decide_comparison(scene: Scene) -> Move:
    return _opened(scene) or _comparison(scene)


def sources_in(text: str) -> list[str]:
    """The addresses and paths that a text names."""
    return list(dict.fromkeys([*urls_in(text), *terms_of(text).paths]))[:MAX_SOURCES]


def _wanted(scene: Scene) -> list[str]:
    given = _given(scene)
    named = [] if _is_text(given) else sources_in(given)
    bare = given.strip().strip("`'\"")
    return named or ([bare] if re.fullmatch(r"[\w./@-]{1,200}", bare) else [])


def _given(scene: Scene) -> str:
    return scene.fields.get("sources") or scene.fields.get("source") or scene.task


def _is_text(given: str) -> bool:
    """Whether this is what to read, not where it is."""
    rest = given
    for name in sources_in(given):
        rest = rest.replace(name, " ")
    return len(re.findall(r"\w+", rest)) >= TEXT_WORDS


def _texts(scene: Scene, *, several: bool) -> dict[str, str]:
    """What is there to read, by where it is from: the sources that could be opened, or what was given."""
    texts = {source: _text_of(scene, source) for source in _wanted(scene)}
    given = _given(scene)
    if not texts and _is_text(given):
        parts = [part for part in re.split(r"\n\s*\n", given.strip()) if part.strip()]
        parts = given.strip().split("\n") if len(parts) == 1 else parts
        texts = {f"text {number}": part for number, part in enumerate(parts[:MAX_SOURCES], 1)}
        texts = texts if several else {"the given text": given}
    return {source: text for source, text in texts.items() if text.strip()}


def _unopened(scene: Scene, what: str) -> str:
    """Why there is nothing to read, and what to give instead."""
    given = _given(scene)
    if _wanted(scene) or _is_text(given):
        return _failed(scene)
    said = f"“{clip(given, 80)}” is neither a URL nor a path, and too short to be a text."
    return f" {said} Ask again with {what}."


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
            if scene.role == "compare":
                wishes.append(scene.wish("grep", pattern=r"^\|", path=path, max_results=200))
    return scene.ask(wishes, most=MAX_SOURCES)


def _text_of(scene: Scene, source: str) -> str:
    """What was seen of a source."""
    seen: list[str] = []
    for one in scene.results("web_fetch", "view", "read"):
        if one.arguments.get("url") == source:
            saved = _SAVED.search(one.text)
            seen.append(_lines(scene, saved[0].rstrip(".")) if saved else "")
            seen.append(unframed(one.text).partition("\n")[2])
        elif one.arguments.get("path") == source:
            seen.append(_plain(one))
    return "\n".join(part for part in seen if part)


def _lines(scene: Scene, path: str) -> str:
    """What was seen of a saved page, the hits of a search in it first."""
    lines: list[str] = []
    last = 0
    for hit in (hit for one in scene.results("grep") for hit in hits_in(one.text) if hit.path == path):
        # Lines that follow each other may be a table; others are none of each other's.
        lines += [hit.text] if hit.line == last + 1 else ["", hit.text]
        last = hit.line
    seen = [_plain(one) for one in scene.results("view", "read") if one.arguments.get("path") == path]
    return "\n".join([*lines, "", *seen])


def _plain(one: Done) -> str:
    return "\n".join(lines_in(one.text).values()) or one.text


def _summary(scene: Scene) -> Say:
    opened = _texts(scene, several=False)
    if not opened:
        what = "`source`: a URL, the path of a file, or the whole text"
        named = ", ".join(_wanted(scene)) or "nothing"
        return Say(text=f"Nothing could be opened of: {named}.{_unopened(scene, what)}")
    focus = scene.fields.get("focus", "")
    lines: list[str] = []
    items: list[SceneItem] = []
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
            SceneItem(title=source, url=source if "://" in source else "", path=source, text=" ".join(points))
        )
    return Say(text="\n".join(lines) + _failed(scene), items=tuple(items))


def _comparison(scene: Scene) -> Say:
    texts = _texts(scene, several=True)
    opened = list(texts)
    if len(opened) < 2:
        what = "`sources`: two or more URLs or paths, one per line, or texts with an empty line between them"
        named = ", ".join(opened) or "none"
        return Say(text=f"Fewer than two sources could be opened: {named}.{_unopened(scene, what)}")
    points = _points(scene)
    rows = [f"| | {' | '.join(_cell(source, 60) for source in opened)} |", "|---" * (len(opened) + 1) + "|"]
    for point in points:
        said = [_said(texts[source], point) for source in opened]
        rows.append(f"| {_cell(point, 60)} | {' | '.join(_cell(one or 'not stated', 200) for one in said)} |")
    sources = "\n".join(f"- {source}" for source in opened)
    named = [one for one in opened if one in _wanted(scene)]
    items = tuple(SceneItem(title=one, url=one if "://" in one else "", path=one) for one in named)
    return Say(text="\n".join(rows) + f"\n\n## Sources\n{sources}{_failed(scene)}", items=items)


def _said(text: str, point: str) -> str:
    """What a source says on a point: the cells of a table, unless a sentence speaks of it more."""
    terms = terms_of(point).all
    sentence = best_sentences(text, terms, 1, width=200)
    fit, cells = best_cells(text, terms, 200)
    return cells if fit and fit >= sum(term.weight for term in terms if term.found_in(sentence)) else sentence


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
