"""The rules for a question that comes with files: compute over a workbook, or quote what fits.

Called by the root's rules. What no file says is not answered here, so that the other rules get their turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.models.offline.results import clip, sentences_in
from retinue.models.offline.scene import Move, Say, Scene
from retinue.models.offline.words import Term, terms_of

MOST_ROWS = 2000
_FUNCTIONS = (
    ("mean", r"average|mean\b"),
    ("median", r"median"),
    ("max", r"max(?:imum)?|highest|largest|most"),
    ("min", r"min(?:imum)?|lowest|smallest|least"),
    ("distinct", r"distinct|different|unique"),
    ("count", r"count|how many"),
    ("sum", r"sum|total|how much|add up"),
)
_BY = r"\b(?:by|per|for (?:each|every)|in each|each|every)\s+(?:the\s+)?"
_SUMMED_UP = re.compile(
    r"(?i)\bsum\b.{0,40}\bup\b|\bsummar(?:y|i[sz]e)|\bgist\b"
    r"|\bwhat (?:does|do|is in) (?:this|it|these|the file)\b"
)
_NO_NUMBERS = re.compile(r"(?m)\A[^\n]*:[ ]*$")
_HEADER = re.compile(r"(?m)^\| 1 \| (.+) \|$")


def decide(scene: Scene) -> Move | None:
    computed = scene.results("sheet_aggregate")
    if computed:
        names = ", ".join(scene.attached)
        if _NO_NUMBERS.match(computed[-1].text) and "\n|" not in computed[-1].text:
            column = clip(str(computed[-1].arguments.get("column")), 80)
            return Say(text=f"**Not computed:** the column {column} of {names} holds no numbers.")
        return Say(text=f"{computed[-1].text}\n\nComputed over {names}.")
    refused = [one for one in scene.failures() if one.name == "sheet_aggregate"]
    if refused:
        return Say(text=f"**Not computed:** {refused[-1].text}")
    found = _computation(scene)
    if found is not None:
        column, function, groups = found
        ask = scene.ask(
            [scene.wish("sheet_aggregate", column=column, function=function, group_by=groups or None)]
        )
        if ask is not None:
            return ask
    return _quotation(scene)


def _computation(scene: Scene) -> tuple[str, str, list[str]] | None:
    """The column, the function and what to group by that a question names, where a workbook is attached."""
    if "sheet_aggregate" not in scene.tools:
        return None
    question = scene.task.lower()
    headers = [
        cell for text in scene.attached.values() for row in _HEADER.findall(text) for cell in row.split(" | ")
    ]
    named = [h for h in headers if h.strip() and re.search(rf"\b{re.escape(h.lower())}s?\b", question)]
    groups = [h for h in named if re.search(rf"{_BY}{re.escape(h.lower())}s?\b", question)]
    column = next((h for h in named if h not in groups), None)
    function = next((name for name, words in _FUNCTIONS if re.search(rf"\b(?:{words})", question)), None)
    return None if column is None or function is None else (column, function, groups)


def _fitting(said: Sequence[str], terms: Sequence[Term]) -> list[str]:
    """What speaks of the question at all, the best first."""
    scored = [(sum(t.weight for t in terms if t.found_in(one)), one) for one in said]
    return [one for score, one in sorted(scored, key=lambda pair: -pair[0]) if score > 0]


def _quotation(scene: Scene) -> Say | None:
    """The sentences of the files that speak of the question most; else such lines, or how the files begin."""
    terms = terms_of(scene.task).all
    lines: list[str] = []
    for name, text in scene.attached.items():
        rows = [row.strip() for row in text.split("\n")[:MOST_ROWS] if re.search(r"\w{3}", row)]
        best = _fitting(sentences_in(text), terms)[:3] or _fitting(rows, terms)[:5]
        if not best and _SUMMED_UP.search(scene.task):
            best = (sentences_in(text) or rows)[:5]
        lines += [f"- {clip(said, 300)} ({name})" for said in best]
    return Say(text="\n".join(lines)) if lines else None
