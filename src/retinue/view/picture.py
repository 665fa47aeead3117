"""The live tree drawn into a given width and height.

Everything that runs or waits is shown with what it does; what has ended is one line. When there is not
room for all, detail goes first, then finished siblings are counted instead of listed, then the rest is
("+37 more"): whoever waits for a person is the last to go. Called by the live view for every frame.
"""

from __future__ import annotations

from dataclasses import dataclass

from retinue.events import ApprovalRequested
from retinue.story import Story
from retinue.story_nodes import Call, Node
from retinue.types import Outcome, Usage
from retinue.view import words
from retinue.view.paint import Line, cells, cut, fit, width_of, wrap

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
MARKS: dict[Outcome, tuple[str, str]] = {
    "pending": ("○", "dim"),
    "running": ("●", "cyan"),
    "waiting": ("?", "bold yellow"),
    "completed": ("✓", "green"),
    "rejected": ("✗", "yellow"),
    "refused": ("!", "yellow"),
    "incomplete": ("!", "yellow"),
    "interrupted": ("‖", "yellow"),
    "error": ("✗", "bold red"),
    "cancelled": ("■", "yellow"),
}
_RANK: dict[Outcome, int] = {
    "waiting": 0,
    "running": 1,
    "error": 2,
    "pending": 3,
    "rejected": 4,
    "refused": 4,
    "incomplete": 4,
    "interrupted": 4,
    "cancelled": 5,
    "completed": 6,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Detail:
    """How much is shown. `most` is how many children of one parent are listed."""

    last_call: bool = False
    calls: bool = True
    fold: bool = False
    most: int | None = None
    ended_children: bool = False


_DETAILS = (
    Detail(last_call=True),
    Detail(),
    Detail(fold=True),
    Detail(fold=True, calls=False),
    *(Detail(fold=True, calls=False, most=most) for most in (40, 24, 16, 10, 6, 4, 2, 1)),
)
_FINAL = (Detail(ended_children=True), *(Detail(ended_children=True, most=most) for most in (12, 6, 3)))


class _TooTallError(Exception):
    pass


def picture(
    tree: Story, *, width: int, height: int, now: float, tick: int = 0, text: str | None = None
) -> list[Line]:
    """The tree as it stands, in at most `height` lines, with the end of what the root writes below it: of
    `text`, where that is what is not on the screen yet."""
    if tree.root is None:
        return []
    tail = _tail(tree.text if text is None else text, width, max(0, min(10, height // 3)))
    lines = _drawn(tree.root, _DETAILS, width, max(1, height - len(tail)), now, tick)
    return lines + tail


def outline(tree: Story, *, width: int, height: int, now: float) -> list[Line]:
    """What remains on the screen at the end: every run on one line. Nothing for a run without children."""
    if tree.root is None or not tree.root.children:
        return []
    return _drawn(tree.root, _FINAL, width, height, now, 0)


def _drawn(
    root: Node, details: tuple[Detail, ...], width: int, height: int, now: float, tick: int
) -> list[Line]:
    for detail in details:
        drawing = _Drawing(detail, width, height, now, tick)
        try:
            drawing.run(root, "", "")
        except _TooTallError:
            continue
        return drawing.lines
    drawing = _Drawing(details[-1], width, 10**6, now, tick)
    drawing.run(root, "", "")
    hidden = len(drawing.lines) - height + 1
    return [*drawing.lines[: height - 1], [(f"… {words.count(hidden, 'more line')}", "dim")]]


class _Drawing:
    """One attempt at drawing the tree. Given up as soon as it is too tall."""

    def __init__(self, detail: Detail, width: int, height: int, now: float, tick: int) -> None:
        self.detail, self.width, self.height, self.now, self.tick = detail, width, height, now, tick
        self.lines: list[Line] = []

    def add(self, left: Line, right: str = "", style: str = "dim") -> None:
        """A line with facts at its right edge, where there is room for them."""
        if len(self.lines) == self.height:
            raise _TooTallError
        room = self.width - cells(right) - 2
        if not right or room < self.width // 3:
            self.lines.append(fit(left, self.width))
            return
        left = fit(left, room)
        gap = self.width - width_of(left) - cells(right)
        self.lines.append([*left, (" " * gap, ""), (right, style)])

    def run(self, node: Node, first: str, rest: str) -> None:
        """A run, what it does, and its children. `first` leads its own line, `rest` those below."""
        self.add(self._head(node, first), _facts(node, self.now, self.width))
        below = node.children if self.detail.ended_children or not node.over else []
        shown, hidden = self._chosen(below)
        folded = [child for child in hidden if child.outcome == "completed"]
        more = [child for child in hidden if child.outcome != "completed"]
        guide = "│ " if shown or hidden else "  "
        if not node.over and self.detail.calls:
            self._doing(node, rest + guide)
        extra = [_summary(group) for group in (folded, more) if group]
        for index, child in enumerate(shown):
            final = index == len(shown) - 1 and not extra
            self.run(child, rest + ("╰─" if final else "├─"), rest + ("  " if final else "│ "))
        for index, text in enumerate(extra):
            final = index == len(extra) - 1
            self.add([(rest + ("╰─" if final else "├─"), "dim"), (text, "dim")])

    def _head(self, node: Node, first: str) -> Line:
        mark, style = MARKS[node.outcome]
        if node.outcome == "running":
            mark = SPINNER[self.tick % len(SPINNER)]
        about = words.one_line(node.label or ("" if not first else node.task))
        if node.status in ("error", "cancelled") and node.report is not None:
            about = words.one_line(node.report.error or node.report.incomplete or about)
        icon = f"{words.one_line(node.icon, 4)} " if node.icon else ""
        line: Line = [
            (first, "dim"),
            (f"{mark} ", style),
            (icon, ""),
            (node.agent, "bold" if not node.over else ""),
        ]
        if node.background:
            line.append((" (background)", "dim"))
        if not self.detail.calls and node.waiting and not node.over:
            asked = next(iter(node.waiting.values()))
            return [*line, ("  waits for you: ", "bold yellow"), (_asked(asked), "yellow")]
        if not self.detail.calls and (node.outcome == "running" or node.parked):
            about = _doing_text(node) or about
        return [*line, (f"  {about}", "red" if node.status == "error" else "dim")] if about else line

    def _chosen(self, children: list[Node]) -> tuple[list[Node], list[Node]]:
        """The children that are listed, in their order, and those that are only counted."""
        listed = children
        if self.detail.fold:
            done = [child for child in children if child.outcome == "completed"]
            if len(done) > 1:
                listed = [child for child in children if child.outcome != "completed"]
        if self.detail.most is not None and len(listed) > self.detail.most:
            ranked = sorted(listed, key=lambda child: _RANK[child.outcome])[: self.detail.most]
            chosen = {child.run_id for child in ranked}
            listed = [child for child in listed if child.run_id in chosen]
        if len(listed) == len(children):
            return children, []
        chosen = {child.run_id for child in listed}
        return listed, [child for child in children if child.run_id not in chosen]

    def _doing(self, node: Node, guide: str) -> None:
        for asked in node.waiting.values():
            self.add([(guide, "dim"), ("waits for you: ", "bold yellow"), (_asked(asked), "yellow")])
        running = [call for call in node.calls.values() if not call.delegated]
        for call in running[:4]:
            self._call(call, guide)
        if len(running) > 4:
            self.add([(guide, "dim"), (f"+{len(running) - 4} more", "dim")])
        if node.asking:
            style = "magenta" if node.asking in ("retrying", "parked") else "dim"
            self.add([(guide, "dim"), (_asking(node), style)])
        if not running and node.last is not None and self.detail.last_call:
            self._call(node.last, guide)

    def _call(self, call: Call, guide: str) -> None:
        over = call.ended is not None
        style = "red" if call.is_error else "dim" if over else "cyan"
        about = words.one_line(call.progress, 100) if call.progress and not over else _about(call)
        mark = "✗ " if call.is_error else "✓ " if over else "▸ "
        took = words.duration((call.ended or self.now) - call.began)
        took = f"cleared by the reviewer · {took}" if call.cleared else took
        self.add(
            [(guide, "dim"), (mark, style), (call.name, style), (f"  {about}", "dim" if over else "")],
            took,
        )


def _facts(node: Node, now: float, width: int) -> str:
    """What a run has used so far, in as many words as the width bears."""
    usage, parts = node.usage, list[str]()
    if node.status == "pending":
        return "not started yet"
    if width >= 60 and node.report is not None:
        parts.append(words.count(node.report.turns, "turn"))
    elif width >= 60 and node.step:
        parts.append(f"step {node.step}")
    if width >= 70 and node.cleared:
        parts.append(f"{len(node.cleared)} cleared")
    if width >= 70 and node.effort:
        parts.append(words.effort(node.effort))
    parts.append(words.duration(node.seconds(now)))
    if width >= 50 and usage.total_tokens:
        parts.append(f"{words.tokens(usage.total_tokens)}{' tokens' if width >= 100 else ''}")
    if width >= 70 and usage.cost != 0:
        parts.append(words.money(usage.cost))
    return " · ".join(parts)


def _asked(asked: ApprovalRequested) -> str:
    return f"{asked.tool}  {words.arguments(asked.arguments)}"


def _doing_text(node: Node) -> str:
    running = [call for call in node.calls.values() if not call.delegated]
    if running:
        more = f" +{len(running) - 1}" if len(running) > 1 else ""
        last = running[-1]
        return f"▸ {last.name} {words.one_line(last.progress, 100) or _about(last)}{more}"
    return _asking(node)


def _about(call: Call) -> str:
    """What a call is about; of one that never ran, what was said instead."""
    return words.one_line(call.said, 120) if call.said else words.arguments(call.arguments)


def _asking(node: Node) -> str:
    """What the open model call is doing."""
    if node.parked is not None:
        limit = words.parked(node.parked.until, node.parked.at)
        return f"{limit}: {words.one_line(node.parked.reason, 100)}"
    again = node.retried
    if node.asking != "retrying" or again is None:
        return node.asking
    wait = f" in {words.duration(again.wait)}" if again.wait >= 1 else ""
    return f"asking again{wait}: {words.one_line(again.reason, 100)}"


def _summary(nodes: list[Node]) -> str:
    """Runs that are only counted: either all of them are done, or none."""
    usage = sum((node.usage for node in nodes), Usage())
    facts = f" · {words.tokens(usage.total_tokens)} tokens" if usage.total_tokens else ""
    facts += f" · {words.money(usage.cost)}" if usage.cost != 0 else ""
    if nodes[0].outcome == "completed":
        return f"✓ {len(nodes)} done{facts}"
    states: dict[str, int] = {}
    for node in sorted(nodes, key=lambda node: _RANK[node.outcome]):
        states[node.outcome] = states.get(node.outcome, 0) + 1
    return f"+{len(nodes)} more: " + ", ".join(f"{number} {status}" for status, number in states.items())


def _tail(text: str, width: int, most: int) -> list[Line]:
    """The end of the answer while it arrives."""
    if not text.strip() or most < 1:
        return []
    lines = wrap(words.clean(text[-width * (most + 2) :]).strip("\n"), width - 2)[-most:]
    return [[("", "")], *([("  " + cut(line, width - 2), "")] for line in lines)]
