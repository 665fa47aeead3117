"""What is shown of a conversation while it goes on: what is printed for good, and the few lines that live.

A `View`, so that `Asking` puts its questions through it. Closed blocks of the answer, calls and children that
have ended are handed on to be printed above, once; what is at work is drawn by `live`, in at most so many
lines. Draws nothing itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from retinue.cli.chat.blocks import Blocks
from retinue.events import (
    AnyEvent,
    ChildEnded,
    ChildStarted,
    LimitReached,
    LiveEvent,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunStarted,
    StepRetried,
    StepStarted,
    Streamed,
    ToolCalled,
    ToolReturned,
)
from retinue.story import Story
from retinue.types import Report
from retinue.view import words
from retinue.view.answer import summary
from retinue.view.notes import noted
from retinue.view.paint import Line
from retinue.view.picture import MARKS, picture

if TYPE_CHECKING:
    from retinue.cli.chat.session import ChatSession

MOST_LIVE = 12
"""Lines that live below the conversation, however many children are at work."""


class ChatView:
    """`markdown` prints a block of an answer, `lines` prints lines; `hold` and `release` give the terminal to
    a question and take it back."""

    asks_here = True

    def __init__(
        self,
        *,
        markdown: Callable[[str], None],
        lines: Callable[[list[Line]], None],
        hold: Callable[[], Awaitable[None]],
        release: Callable[[], None],
    ) -> None:
        self._markdown, self._lines, self._hold, self._release = markdown, lines, hold, release
        self._blocks = Blocks()
        self._calls: dict[str, ToolCalled] = {}
        self._shown, self._last = "", ""
        """What was streamed of the reply that is being written, and the last one as a whole."""
        self._before: Report | None = None
        self.last_sent = 0
        """Tokens of the last request of the conversation itself."""
        self.session: ChatSession | None = None

    @property
    def tree(self) -> Story:
        assert self.session is not None
        return self.session.story

    # -- as a View -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> ChatView:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def show(self, event: LiveEvent) -> None:
        """An event of the conversation as it happens."""
        match event:
            case Streamed() if event.depth == 0 and not event.thinking:
                self._shown += event.text
                self._print(self._blocks.feed(event.text))
            case StepStarted() | StepRetried() if event.depth == 0:
                self._blocks.end()
                self._shown = ""
            case ModelReplied() if event.depth == 0:
                self._replied(event)
            case ToolCalled() if event.depth == 0:
                self._calls[event.call_id] = event
            case ToolReturned() if event.depth == 0:
                self._returned(event)
            case ChildEnded():
                self._lines([_child(self.tree, event)])
            case LimitReached():
                self._lines([[(f"  {noted(event)}", "yellow")]])
            case RunFinished() if event.depth == 0:
                self._finished(event)
            case _:
                pass

    def note(self, text: str) -> None:
        self._lines([[(f"  {text}", "dim")]])

    async def pause(self) -> None:
        await self._hold()

    def go_on(self) -> None:
        self._release()

    def abandon(self) -> None:
        return None

    # -- what stays ------------------------------------------------------------------------------------------

    def _print(self, blocks: list[str]) -> None:
        for block in blocks:
            self._markdown(block)

    def _replied(self, event: ModelReplied) -> None:
        self._print(self._blocks.end())
        if not self._shown and event.message.text.strip():
            self._markdown(event.message.text)
        self._last = event.message.text
        self.last_sent = event.usage.input_tokens

    def _returned(self, event: ToolReturned) -> None:
        call = self._calls.pop(event.call_id, None)
        if call is not None and call.effect == "delegate" and not event.is_error:
            return  # the children say how they ended
        about = words.arguments(call.arguments) if call is not None else ""
        why = words.one_line(words.failure(event.text), 200) if event.is_error else about
        mark, style = ("✗", "red") if event.is_error else ("✓", "dim")
        took = words.duration(event.duration_ms / 1000)
        self._lines([[(f"  {mark} ", style), (event.name, style), (f"  {why}  {took}", "dim")]])

    def _finished(self, event: RunFinished) -> None:
        self._print(self._blocks.end())
        report = event.report
        if report.text.strip() not in f"{self._last}\n{self._shown}":  # what is left of a turn cut short
            self._markdown(report.text)
        self._lines([*summary(self._own(report), self.tree, goes_on=False), [("", "")]])

    def _own(self, report: Report) -> Report:
        """With the figures of this turn alone: those of a report are of all turns so far."""
        before, self._before = self._before, report
        if before is None or before.run_id != report.run_id:
            return report
        return msgspec.structs.replace(
            report,
            turns=report.turns - before.turns,
            tool_calls=report.tool_calls - before.tool_calls,
            failed_calls=report.failed_calls - before.failed_calls,
            usage=report.usage - before.usage,
            duration_ms=report.duration_ms - before.duration_ms,
        )

    def counted(self, events: Sequence[AnyEvent]) -> None:
        """What happened so far is no part of the turn that comes."""
        ended = [e.report for e in events if isinstance(e, RunFinished) and not e.depth]
        self._before = ended[-1] if ended else None

    def past(self, events: Sequence[AnyEvent]) -> None:
        """A conversation that was taken up: who said what."""
        self.counted(events)
        for event in events:
            match event:
                case RunStarted() if event.depth == 0:
                    self.said(event.prompt)
                case MessageReceived() if event.depth == 0 and event.sender == "person":
                    self.said(event.text)
                case ChildStarted() if event.depth == 0:
                    about = words.one_line(event.label or event.prompt, 120)
                    self._lines([[(f"  ├ {event.agent}  {about}", "dim")]])
                case RunFinished() if event.depth == 0:
                    self._markdown(event.report.text)
                case _:
                    pass

    def said(self, text: str, note: str = "") -> None:
        """What the person said, as it stays on the screen."""
        first, *rest = words.clean(text).splitlines() or [""]
        lines: list[Line] = [[("", "")], [("› ", "bold cyan"), (first, "bold"), (note, "dim")]]
        self._lines([*lines, *([("  ", ""), (line, "bold")] for line in rest[:40])])
        if len(rest) > 40:
            self._lines([[(f"  … {words.count(len(rest) - 40, 'more line')}", "dim")]])

    # -- what lives ------------------------------------------------------------------------------------------

    def live(self, *, width: int, height: int, tick: int) -> list[Line]:
        """What is at work, in at most so many lines; nothing where nothing is."""
        session = self.session
        if session is None or not session.working:
            return []
        most = max(2, min(MOST_LIVE, height))
        text = words.clean(self._blocks.rest)
        return picture(session.story, width=width, height=most, now=time.time(), tick=tick, text=text)


def _child(tree: Story, event: ChildEnded) -> Line:
    """A child that has ended, on one line."""
    mark, style = MARKS[tree.end_of(event)]
    deep = "  " * event.depth
    node = tree.nodes.get(event.child_id)
    about = words.one_line(event.label or (node.task if node is not None else ""), 80)
    took = tree.took(event)
    facts = [words.duration(took.duration_ms / 1000)]
    if took.usage.total_tokens:
        facts.append(f"{words.tokens(took.usage.total_tokens)} tokens")
    return [
        (f"  {deep}{mark} ", style),
        (event.agent, "bold"),
        (f"  {about}  ", ""),
        (" · ".join(facts), "dim"),
    ]
