"""A workflow as one self-contained page: no script, nothing loaded from elsewhere, everything escaped.

What models, tools and web pages wrote is data here: it is escaped, Markdown is rendered without HTML,
without images and without dangerous links, and a policy in the page forbids everything but its own style.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    ChildStarted,
    ErrorRaised,
    MessageReceived,
    ModelReplied,
    RunStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.fold import fold
from retinue.story import Story
from retinue.types import Report
from retinue.view import words
from retinue.view.answer import claim_lines, problem_lines
from retinue.view.marked import marked_text
from retinue.view.notes import noted
from retinue.view.picture import MARKS
from retinue.view.question import answer_text, diff_style, is_diff

_WIDTH = 100
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(events: Sequence[AnyEvent], *, interrupted: bool = False) -> str:
    """The page of a whole workflow. `interrupted`: nobody works on it any more, though it has no end."""
    logs: dict[str, list[AnyEvent]] = {}
    story = Story()
    for event in events:
        told: Any = story.apply(event)  # an event of a log stays one
        logs.setdefault(event.run_id, []).append(told)
    if interrupted:
        story.interrupt()
    root = events[0].root_id if events else ""
    writer = _Writer(logs, story)
    body = writer.run(root, first=True) if root in logs else "<p>No events.</p>"
    began = logs[root][0] if root in logs else None
    title = words.one_line(began.prompt, 80) if isinstance(began, RunStarted) else "run"
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f"<body><main>{body}</main></body></html>\n"
    )


class _Writer:
    """Runs as nested sections: a child stands where its parent started it."""

    def __init__(self, logs: dict[str, list[AnyEvent]], story: Story) -> None:
        self.logs, self.story = logs, story
        self._markdown: Any = None

    def run(self, run_id: str, *, first: bool = False) -> str:
        log = self.logs[run_id]
        state = fold(log)
        began = state.started
        if began is None:
            return ""
        node = self.story.nodes[run_id]
        report, usage, outcome = state.report, node.usage, node.outcome
        mark, _ = MARKS[outcome]
        facts = [words.outcome(outcome, node.shortfall.denied), words.count(state.turns, "turn")]
        facts.append(words.calls(state.tool_calls, state.failed_calls))
        facts += [f"{words.tokens(usage.total_tokens)} tokens", words.money(usage.cost)]
        facts.append(words.duration(node.seconds(node.last_at)))
        head = (
            f'<span class="mark {outcome}">{mark}</span> {escape(began.spec.icon)} '
            f"<b>{escape(began.spec.name)}</b> {escape(began.label)} "
            f'<span class="facts">{escape(" · ".join(facts))}</span>'
        )
        said = (words.moment(began.at), words.model(began.model), words.effort(node.effort), began.run_id)
        about = " · ".join(filter(None, said))
        steps = "".join(self.event(event) for event in log)
        inner = (
            f'<p class="facts">{escape(about)}</p><div class="prompt">{self.markdown(began.prompt)}</div>'
            f"<details><summary>system prompt</summary><pre>{escape(began.system)}</pre></details>"
            f"{steps}{self.report(report)}"
        )
        opened = " open" if first else ""
        return f'<details class="run"{opened}><summary>{head}</summary>{inner}</details>\n'

    def event(self, event: AnyEvent) -> str:
        match event:
            case ModelReplied():
                facts = f"step {event.step} · {words.tokens(event.usage.total_tokens)} tokens · "
                facts += words.duration(event.duration_ms / 1000)
                text = self.markdown(event.message.text) if event.message.calls else ""
                return f"<h4>{escape(facts)}</h4>{self._folded('thinking', event.thinking)}{text}"
            case ToolCalled():
                about = words.arguments(event.arguments, 160)
                return self._details(f"▸ <b>{escape(event.name)}</b> {escape(about)}", _json(event.arguments))
            case ToolReturned():
                outcome = self.story.nodes[event.run_id].outcome_of(event)
                ended = "" if outcome in ("completed", "error") else f" · {outcome}"
                took = words.duration(event.duration_ms / 1000)
                head = escape(f"{MARKS[outcome][0]} {event.name}{ended} · {took}")
                return self._details(head, event.text, "" if outcome == "completed" else outcome)
            case ChildStarted() if event.continues:  # all that it did is where it was started
                again = f"asks {event.agent} again: {words.one_line(event.label or event.prompt, 300)}"
                return f'<p class="note">{escape(again)}</p>'
            case ChildStarted() if event.child_id in self.logs:
                return self.run(event.child_id)
            case ApprovalRequested():
                head = f"? approval asked: <b>{escape(event.tool)}</b> risk {event.risk}"
                return self._details(head, event.preview or _json(event.arguments), "waiting")
            case ApprovalAnswered():
                return f'<p class="note">{escape(answer_text(event))}</p>'
            case MessageReceived():
                return f'<div class="prompt"><b>{escape(event.sender)}:</b> {self.markdown(event.text)}</div>'
            case _:
                text = f"{event.kind}: {event.message}" if isinstance(event, ErrorRaised) else noted(event)
                return f'<p class="note">{escape(text)}</p>' if text else ""

    def report(self, report: Report | None) -> str:
        if report is None:
            return '<p class="note">no report yet</p>'
        why = report.error or report.incomplete
        note = f'<p class="note error">{escape(why)}</p>' if why else ""
        sources = "".join(
            f'<li class="{"" if source.verified else "error"}">{"✓" if source.verified else "✗"} '
            f"{escape(source.url or source.path or '?')} {escape(source.note)}</li>"
            for source in report.sources
        )
        listed = f"<h4>sources</h4><ul>{sources}</ul>" if sources else ""
        checked = [*claim_lines(report, _WIDTH, each=True), *problem_lines(report, _WIDTH)]
        told = "\n".join("".join(text for text, _ in line) for line in checked)
        listed += f"<h4>held against its sources</h4><pre>{escape(told)}</pre>" if checked else ""
        head = f"report: {words.outcome(report.outcome, report.shortfall.denied)}"
        text = self.markdown(marked_text(report))
        return f'<section class="report"><h4>{head}</h4>{text}{note}{listed}</section>'

    def markdown(self, text: str) -> str:
        if self._markdown is None:
            from markdown_it import MarkdownIt

            rules = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
            self._markdown = rules
        return f'<div class="text">{self._markdown.render(text)}</div>'

    def _details(self, head: str, text: str, kind: str = "") -> str:
        body = _diff(text) if is_diff(text) else escape(text)
        return f'<details class="{kind}"><summary>{head}</summary><pre>{body}</pre></details>'

    def _folded(self, head: str, text: str) -> str:
        return self._details(head, text, "dim") if text else ""


def _json(raw: str) -> str:
    try:
        return json.dumps(json.loads(raw), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return raw


def _diff(text: str) -> str:
    names = {"green": "plus", "red": "minus", "cyan": "place"}
    return "\n".join(
        f'<span class="{names.get(diff_style(line), "")}">{escape(line)}</span>' for line in text.splitlines()
    )
