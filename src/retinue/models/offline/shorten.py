"""Shorter texts by leaving lines out: what the offline model does when it is asked for a summary of a text.

Lines with paths, addresses, numbers or names stay before prose, in their own order. No line is reworded.
"""

from __future__ import annotations

import re

from retinue.models.offline.results import urls_in
from retinue.models.offline.scene import Say, Scene

DEFAULT = 2000


def asked_for(system: str, scene: Scene) -> bool:
    """Whether a request is about a text it carries and nothing else."""
    return not scene.tools and not scene.done and bool(re.search(r"(?i)\b(?:shorten|summari[sz]e)", system))


def decide(scene: Scene) -> Say:
    wanted = re.search(r"at most (\d{2,7}) (?:bytes|characters)", scene.task[:400])
    head, _, body = scene.task.partition("\n\n")
    text = body if body and len(head) < 400 else scene.task
    return Say(text=shorten(text, int(int(wanted[1]) * 0.9) if wanted else DEFAULT))


def shorten(text: str, most: int) -> str:
    """The lines that carry most, as many as fit, in their own order."""
    lines = [line.rstrip() for line in text.split("\n")[:5000]]
    order = sorted(range(len(lines)), key=lambda number: (-_worth(lines[number], number), number))
    kept: set[int] = set()
    left = most
    for number in order:
        size = len(lines[number].encode("utf-8", "replace")) + 1
        if lines[number].strip() and size <= left:
            kept.add(number)
            left -= size
    return "\n".join(lines[number] for number in sorted(kept))


def _worth(line: str, number: int) -> float:
    worth = 2.0 if number < 2 else 0.0
    worth += 2 * bool(re.search(r"[\w./-]+\.\w{1,5}:\d+", line)) + 2 * bool(urls_in(line))
    worth += bool(re.match(r"\s*(?:#|\*\*|[-*] |\d+[.)] )", line)) + 0.5 * bool(re.search(r"\d", line))
    return worth + bool(re.search(r"(?i)\b(?:not|missing|unknown|uncertain|failed|incomplete)\b", line))
