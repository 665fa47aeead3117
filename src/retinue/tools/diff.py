"""A change to a file as a person sees it before allowing it. The previews of `write` and `edit` call it."""

from __future__ import annotations

import re

MOST_LINES = 4000
"""Changed lines that are still compared one by one: it takes quadratic time."""
MOST_SHOWN = 400
AROUND = 3


def on_a_line(name: str) -> str:
    """The name of a file, which may have lines and marks of its own: those are shown and not obeyed, or it
    could show a change that there is not."""
    return name if name.isprintable() else ascii(name)


class CutDiff(str):
    """One that does not show all of a change."""


def diff(display: str, old: str, new: str, *, created: bool = False) -> str:
    """A unified diff. Equal beginnings and ends are left out first, so that large files stay cheap."""
    import difflib

    display = on_a_line(display)
    before, after = old.splitlines(), new.splitlines()
    head = _equal(before, after)
    tail = _equal(before[head:][::-1], after[head:][::-1])
    if head + tail == len(before) == len(after):
        return f"{display}: {'no change' if old == new else 'only line endings change'}"
    skip = max(head - AROUND, 0)
    old_part, new_part = (part[skip : len(part) - max(tail - AROUND, 0)] for part in (before, after))
    if len(old_part) + len(new_part) > MOST_LINES and not created:
        return CutDiff(f"{display}: {len(old_part):,} lines are replaced by {len(new_part):,} others")
    origin = "/dev/null" if created else display
    lines = list(difflib.unified_diff(old_part, new_part, origin, display, lineterm="", n=AROUND))

    def moved(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) + skip}"

    lines = [re.sub(r"([-+])(\d+)", moved, line) if line.startswith("@@ ") else line for line in lines]
    if len(lines) > MOST_SHOWN:
        lines[MOST_SHOWN:] = [f"[{len(lines) - MOST_SHOWN:,} more lines of this change]"]
        return CutDiff("\n".join(lines))
    return "\n".join(lines)


def _equal(before: list[str], after: list[str]) -> int:
    """How many lines two lists have in common at their beginning."""
    count = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        count += 1
    return count
