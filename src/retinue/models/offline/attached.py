"""The rules for a question that comes with files: compute over a workbook, or quote what fits.

Called by the root's rules. What no file says is not answered here, so that the other rules get their turn.
"""

from __future__ import annotations

import re

from retinue.models.offline.results import clip, sentences_in
from retinue.models.offline.scene import Move, Say, Scene
from retinue.models.offline.words import terms_of

_FUNCTIONS = (
    ("mean", r"average|mean\b"),
    ("median", r"median"),
    ("max", r"max(?:imum)?|highest|largest|most"),
    ("min", r"min(?:imum)?|lowest|smallest|least"),
    ("distinct", r"distinct|different|unique"),
    ("count", r"count|how many"),
    ("sum", r"sum|total|how much|add up"),
)
_HEADER = re.compile(r"(?m)^\| 1 \| (.+) \|$")


def decide(scene: Scene) -> Move | None:
    computed = scene.results("sheet_aggregate")
    if computed:
        return Say(text=f"{computed[-1].text}\n\nComputed over {', '.join(scene.attached)}.")
    found = _computation(scene)
    if found is not None:
        column, function = found
        ask = scene.ask([scene.wish("sheet_aggregate", column=column, function=function)])
        if ask is not None:
            return ask
    return _quotation(scene)


def _computation(scene: Scene) -> tuple[str, str] | None:
    """The column and the function that a question names, where a workbook is attached."""
    if "sheet_aggregate" not in scene.tools:
        return None
    question = scene.task.lower()
    headers = [
        cell for text in scene.attached.values() for row in _HEADER.findall(text) for cell in row.split(" | ")
    ]
    column = next(
        (h for h in headers if h.strip() and re.search(rf"\b{re.escape(h.lower())}\b", question)), None
    )
    function = next((name for name, words in _FUNCTIONS if re.search(rf"\b(?:{words})", question)), None)
    return None if column is None or function is None else (column, function)


def _quotation(scene: Scene) -> Say | None:
    """The sentences of the files that speak of the question most."""
    terms = terms_of(scene.task).all
    lines: list[str] = []
    for name, text in scene.attached.items():
        scored = [(sum(t.weight for t in terms if t.found_in(s)), s) for s in sentences_in(text)]
        best = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])[:3]
        lines += [f"- {clip(sentence, 300)} ({name})" for _, sentence in best]
    return Say(text="\n".join(lines)) if lines else None
