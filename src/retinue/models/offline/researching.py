"""The rules of `research`: one question, the pages that a search finds, their own sentences as the report.

It plans what it was asked and no more, and looks by itself: rules cannot take a question apart. Every line of
its report is a sentence of a page, with that page's number.
"""

from __future__ import annotations

import re

from retinue.models.offline import pages
from retinue.models.offline.facts import best_sentences
from retinue.models.offline.scene import Ask, Move, Say, Scene
from retinue.models.offline.words import terms_of

_NUMBERED = re.compile(r"^\[(\d{1,3})\] .*?(https?://\S+)$", re.MULTILINE)


def decide(scene: Scene) -> Move:
    if not any(one.name == "research_plan" for one in scene.done):
        planned = scene.ask([scene.wish("research_plan", questions=[scene.task])])
        if planned is not None:
            return planned
    move = pages.decide(scene)
    if isinstance(move, Ask) or not scene.results("web_fetch"):
        return move
    table = scene.results("research_sources")
    if not table:
        return scene.ask([scene.wish("research_sources")]) or move
    if any(one.name == "research_report" for one in scene.done):
        return Say(text="The report is written.", items=move.items)
    body = _body(scene, table[-1].text)
    written = scene.ask([scene.wish("research_report", title=scene.task[:200], body=body)]) if body else None
    return written or move


def _body(scene: Scene, table: str) -> str:
    numbers = {url: number for number, url in _NUMBERED.findall(table)}
    terms = terms_of(scene.task).all
    lines: list[str] = []
    for page in scene.results("web_fetch"):
        number = numbers.get(str(page.arguments.get("url", "")))
        said = best_sentences(pages.text_of(scene, page), terms, 2, width=600)
        if said and number:
            lines.append(f"- {said} [{number}]")
    from retinue.models.offline import SIGNATURE

    return "\n".join([*lines, "", SIGNATURE]) if lines else ""
