"""What is said to a run, and what its guards say to that, means for its state.

A part of `fold`, for messages alone: the turns of a conversation, and what was said before it began.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from retinue.events import KNOWLEDGE_FIRST, GuardSpoke, MessageReceived, Purpose
from retinue.fold_results import take_fetched, take_sources
from retinue.run_state import Before, RunState
from retinue.standing import next_turn
from retinue.types import AssistantMessage, Message, UserMessage

ATTACHED = "the attachments"
HISTORY = "the history"
_OWED: dict[str, Purpose] = {
    "summary": "summary",
    "form": "correct",
    "sources": "correct",
    "empty": "correct",
    "guard": "correct",
}
"""What the model is asked for after a message about this."""


def bring_history(state: RunState, history: Sequence[Message]) -> None:
    """What was said elsewhere. It may hold anything, so it counts as private."""
    state.messages.extend(history)
    state.answered = history[-1]
    calls = (call for each in history if isinstance(each, AssistantMessage) for call in each.calls)
    state.seen_calls.update(call.id for call in calls)
    state.has_read((HISTORY,))


def guard_again(state: RunState, failed: GuardSpoke) -> None:
    """A guard that failed is asked again, with a new answer or with what was said; where that was never
    written, somebody has to say it again first."""
    if failed.side == "output" and state.answer is not None:
        state.messages.pop()
    if failed.side == "output" or failed.about:
        state.stopped = None


def past_guarding(state: RunState) -> None:
    """What is before the model now no guard looks at any more; those that there are have seen it."""
    if state.unguarded:
        later = {id(message) for message in state.queued}
        state.unguarded = {seq: each for seq, each in state.unguarded.items() if id(each) in later}


def open_turn(state: RunState) -> None:
    state.report, state.at_work, state.stopped, state.owed = None, 0, None, None
    state.answered = state.messages[-1] if state.messages else None
    state.unknown, state.lately, state.mistakes, state.unmerged = None, {}, [], set()
    state.output = None  # what an answer has to be is said for one turn
    state.written, state.reports_written = "", 0  # and so is what a call wrote as the answer of the last one


def message_received(state: RunState, event: MessageReceived) -> None:
    if event.message_id:
        state.seen_messages.add(event.message_id)
    if state.declined is not None and event.sender in (
        "person",
        "parent",
    ):  # somebody speaks to it about that
        state.messages.append(state.declined)
        state.declined = None
    for held in (state.asks, state.awaited):
        held.pop(event.message_id.removesuffix(" no"), None)
    if event.asks:
        state.asks[event.message_id] = event
    # The next turn of a conversation: what the last one lacked is not missing in it.
    if next_turn(state.standing, event):
        lacked = state.lately, state.mistakes, state.unmerged
        open_turn(state)
        if event.opens and event.sender == "parent":  # but what a piece of work lacked counts for the next
            state.lately, state.mistakes, state.unmerged = lacked
    if event.output is not None:
        state.output = event.output
    if event.sender == "person" or event.opens:  # what was done before does not count for what is asked now
        state.attempts, state.delegating_steps = {}, 0
        state.work_turns = state.corrections = 0
        state.before = Before(
            turns=state.turns, usage=state.usage, spent=state.spent, children=dict(state.pieces)
        )
    if event.opens:
        state.max_turns = event.max_turns or state.max_turns
        state.asked_again.append(state.before)
        ended = state.finished  # what counts of it from here on is said with the new piece
        state.reported = ended and msgspec.structs.replace(ended.report, shortfall=event.lacked)
    take_sources(state, event.sources, event.text)
    take_fetched(state, event.sources)
    state.has_read((*event.private, *event.brought))
    state.brought.update(dict.fromkeys(event.brought))
    if event.sender == "person":
        state.said.append(event.text)
        state.vouched.append(event.text)
        state.withheld.clear()  # who speaks again may be asked again
        state.rejected.clear()
    if event.rendered or event.images:
        state.has_read((ATTACHED,))
    message = UserMessage(text=_as_told(state, event), images=event.images)
    if event.asks and event.awaited:
        state.awaited[event.message_id] = message
    if event.about in ("form", "sources", "empty"):
        state.correcting = event.about
    if event.sender in ("person", "parent"):  # that comes first, and may make another answer of it
        state.owed = None
    elif event.sender == "system" and state.answer is not None:
        state.owed = _OWED.get(event.about) or state.owed
    if event.message_id == KNOWLEDGE_FIRST:
        state.knowledge, state.unknown = message, None
    elif event.sender in ("person", "parent"):
        state.unread += 1
        if not event.guarded:
            state.unguarded[event.seq] = message
    state.queued.append(message)
    state.settle()


def _as_told(state: RunState, event: MessageReceived) -> str:
    """What the model reads of a message. What is for a child of it, it is told of."""
    began = state.children.get(event.asks)
    if began is None:
        return event.rendered or event.text
    return (
        f"[The person asks your sub-agent {began.agent} ({event.asks}) again. It works in the background: "
        f"you are told when it ends, and then answer with what it found.]\n{event.text}"
    )


def guard_spoke(state: RunState, event: GuardSpoke) -> None:
    if event.decision == "stop":
        state.stopped = event
    elif event.decision == "correct":
        state.faulted = event
    before = state.unguarded.get(event.about)
    if event.failed and event.side == "input":
        if not event.about:  # nobody knows what was said: it was not said then
            _unsay(state)
        return
    if before is None:
        return
    if event.decision == "pass":
        del state.unguarded[event.about]
        return
    images = () if event.decision == "stop" else before.images
    now = msgspec.structs.replace(before, text=event.text, images=images)
    state.unguarded[event.about] = now
    state.said = [event.text if said == before.text else said for said in state.said]
    state.vouched = [event.text if said == before.text else said for said in state.vouched]
    for held in (state.messages, state.queued):
        for place, message in enumerate(held):
            if message is before:
                held[place] = now
    state.awaited = {key: now if told is before else told for key, told in state.awaited.items()}


def _unsay(state: RunState) -> None:
    for held in (state.queued, state.messages):
        if held:
            held.pop()
            return
