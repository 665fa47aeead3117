"""A waiting approval, as a person reads it: who asks, what it would do, how risky it is, which keys answer.

Draws only; `asking` reads the keys and gives the answer.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import Any, cast

from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallReviewed,
    ClaimsJudged,
    Decision,
    ModelSampled,
)
from retinue.types import Risk
from retinue.view import words
from retinue.view.paint import Line, cells, wrap

RISK_STYLE: dict[Risk, str] = {"low": "green", "medium": "yellow", "high": "bold red"}
KEYS: dict[str, Decision] = {"y": "approve", "a": "approve_run", "t": "approve_tool", "w": "approve_always"}
"""The keys that approve, each offered where the question takes its answer."""
HELP = (
    ("y", "approve this one call"),
    ("a", "approve it and, in the rest of this run, whatever the rule shown covers; what waits too"),
    ("t", "approve it and every further call of this tool in the rest of this run, whatever it is about"),
    ("w", "approve it always: the rule shown is written into your settings, for this folder"),
    ("n", "reject; the agent is told the reason you give"),
    ("e", "edit the arguments first ($VISUAL or $EDITOR, else line by line), then it runs with yours"),
    ("v", "see all of it, in your pager"),
    ("Ctrl-C", "stop the whole run"),
)


def question(
    asked: ApprovalRequested, *, number: int, total: int, width: int, height: int
) -> tuple[list[Line], int]:
    """The lines of the question, and how many lines of the content did not fit."""
    head = f"━━ approval {number} of {total} " if total > 1 else "━━ approval "
    risk = f" risk: {asked.risk} ━━"
    rule = "━" * max(2, width - cells(head) - cells(risk))
    lines: list[Line] = [
        [("", "")],
        [(head + rule, "yellow"), (risk, RISK_STYLE[asked.risk])],
        *_wrapped(" › ".join(map(words.one_line, asked.path)), _wants(asked), width),
        [("", "")],
    ]
    body = content(asked, width - 2)
    keys = _keys(asked, width)
    room = max(4, height - len(lines) - len(keys) - 4)
    hidden = len(body) - room if len(body) > room + 1 else 0
    lines += [[("  ", ""), *line] for line in (body[:room] if hidden else body)]
    if hidden:
        lines.append([(f"  … {words.count(hidden, 'more line')}: press v to see all of it", "bold yellow")])
    lines.append([("", "")])
    lines += [[(text, "dim")] for text in wrap(f"asked because: {because(asked)}", width)]
    if asked.answer_by is not None:
        until = datetime.fromtimestamp(asked.answer_by)
        lines.append([(f"an answer counts until {until:%H:%M:%S}", "dim")])
    return [*lines, *keys], hidden


def because(asked: ApprovalRequested) -> str:
    """Why it asks, and what of a command no rule covers."""
    said = (asked.reason, "" if asked.uncovered is None else str(asked.uncovered))
    return words.clean("; ".join(filter(None, said)))


def content(asked: ApprovalRequested, width: int) -> list[Line]:
    """What the call would do, whole: a diff, a command, or its arguments."""
    if asked.preview:
        text = words.clean(asked.preview)
        if asked.effect == "execute" and asked.form is None:
            return _argument("command", text, width)
        if not is_diff(text):
            return [[(piece, "bold")] for piece in wrap(text, width)]
        return [
            [(piece, diff_style(line))] for line in text.splitlines() for piece in wrap(line, width) or [""]
        ]
    return [line for name, text in shown_arguments(asked.arguments) for line in _argument(name, text, width)]


def _wants(asked: ApprovalRequested) -> str:
    return f"wants to use {asked.tool}" if asked.form is None else f"has a question for you, of {asked.tool}"


def shown_arguments(raw: str) -> list[tuple[str, str]]:
    """The arguments by name, as text. Malformed ones come as they are."""
    try:
        value: Any = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return [("arguments", words.clean(raw))]
    given = cast("dict[str, Any]", value)
    return [
        (
            words.one_line(name, 60),
            words.clean(inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)),
        )
        for name, inner in given.items()
    ]


def _argument(name: str, text: str, width: int) -> list[Line]:
    if name == "command":
        return [
            [("$ " if index == 0 else "  ", "dim"), (piece, "bold")]
            for index, piece in enumerate(wrap(text, width - 2))
        ]
    if "\n" not in text and cells(name) + 2 + cells(text) <= width:
        return [[(f"{name}: ", "cyan"), (text, "")]]
    return [[(f"{name}:", "cyan")], *([("  " + piece, "")] for piece in wrap(text, width - 2))]


def is_diff(text: str) -> bool:
    lines = text.splitlines()
    return any(line.startswith("@@") for line in lines) or (
        any(line.startswith("+++ ") for line in lines) and any(line.startswith("--- ") for line in lines)
    )


def diff_style(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _wrapped(who: str, wants: str, width: int) -> list[Line]:
    if cells(who) + cells(wants) + 1 <= width:
        return [[(who, "bold"), (" " + wants, "")]]
    return [[(who, "bold")], [(wants, "")]]


def offered(asked: ApprovalRequested) -> dict[str, Decision]:
    """The keys that approve this question, each with what it says."""
    found: dict[str, Decision] = {key: said for key, said in KEYS.items() if said in asked.answers}
    if asked.rule == asked.tool:
        found.pop("a", None)  # the rule is every call of the tool: one key for it
    return found


def _keys(asked: ApprovalRequested, width: int) -> list[Line]:
    tool, rule = words.one_line(asked.tool, 24), words.one_line(asked.rule or "", 200)
    rest = f"every {tool} of this run"
    says: dict[Decision, str] = {
        "approve": "approve",
        "approve_run": f"for the rest of this run: {rule}" if rule else rest,
        "approve_tool": rest,
        "approve_always": f"always, in this folder: {rule}",
    }
    choices = [(key, says[decision]) for key, decision in offered(asked).items()]
    choices += [("n", "reject"), ("e", "edit"), ("?", "help")]
    if asked.form is not None:
        choices = [("y", "answer" if asked.form.get("properties") else "done"), ("n", "decline")]
    lines: list[Line] = [[]]
    used = 0
    for key, meaning in choices:
        need = cells(meaning) + 4
        if used and used + 2 + need > width:
            lines.append([])
            used = 0
        lines[-1] += [("  " if used else "", ""), (f"[{key}]", "bold"), (f" {meaning}", "")]
        used += need + (2 if used else 0)
    return lines


def help_lines(width: int) -> list[Line]:
    lines: list[Line] = []
    for key, meaning in HELP:
        for index, piece in enumerate(wrap(meaning, max(20, width - 9))):
            lines.append([(f"  {key if index == 0 else '':7}", "bold"), (piece, "")])
    return lines


def answer_text(answer: ApprovalAnswered) -> str:
    """What somebody else decided, in a few words."""
    said: dict[Decision, str] = {
        "approve": "approved along with another call" if answer.along_with else "approved",
        "approve_run": "approved for the rest of the run",
        "approve_tool": "approved with every call of this tool",
        "approve_always": "approved always",
        "reject": "rejected",
    }
    by = f" by {words.one_line(answer.by, 40)}" if answer.by not in ("", "person") else ""
    return said[answer.decision] + by + (f": {words.one_line(answer.reason)}" if answer.reason else "")


def sampled_text(sampled: ModelSampled) -> str:
    """What the small model wrote for a server, in a few words, and what that took."""
    cost = f", {words.money(sampled.usage.cost)}" if sampled.usage.cost else ""
    took = f"{sampled.model}, {words.tokens(sampled.usage.total_tokens)} tokens{cost}"
    did = "wrote nothing for" if sampled.why else "wrote for"
    said = words.one_line(sampled.why or sampled.text, 300)
    return f"{sampled.tool}  the model {did} the MCP server {sampled.server} ({took}): {said}"


def judged_text(judged: ClaimsJudged) -> str:
    """What a judge said of claims, in a few words, and what that took."""
    cost = f", {words.money(judged.usage.cost)}" if judged.usage.cost else ""
    took = f"{judged.model}, {words.tokens(judged.usage.total_tokens)} tokens{cost}"
    counts = Counter(one.verdict.replace("_", " ") for one in judged.verdicts)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or words.one_line(
        judged.why, 300
    )
    return f"{words.count(len(judged.asked), 'claim')} judged ({took}): {said}"


def review_text(review: CallReviewed) -> str:
    """What the small model said of a call, in a few words, and what that took."""
    said = "cleared by the reviewer" if review.cleared else "not cleared by the reviewer"
    cost = f", {words.money(review.usage.cost)}" if review.usage.cost else ""
    took = f" ({review.model}, {words.tokens(review.usage.total_tokens)} tokens{cost})"
    return f"{review.tool}  {said}{took}: {words.one_line(review.why, 300)}"
