"""What the result of a call means for the state of its run: what was read, what circles, what went wrong.

A part of `fold`, for results alone. In which order code was told its answers is here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from retinue.course import Course
from retinue.events import INQUIRY, CodeWoken, Event, ToolReturned
from retinue.run_state import Mistake, RunState
from retinue.types import Source, ToolCall, ToolMessage

ANY = ""
"""The name of a mistake that whatever child is started later stands in for."""
CIRCLE = 5
"""An identical call with the same outcome this often ends the run."""


def circling(outcomes: Sequence[tuple[bool, int]]) -> bool:
    """Whether an identical call came to the same time after time: to one result, or to nothing but errors."""
    last = outcomes[-CIRCLE:]
    return len(last) == CIRCLE and (len(set(last)) == 1 or all(is_error for is_error, _ in last))


def copies_of(calls: Sequence[ToolCall]) -> dict[str, int]:
    if len(calls) <= CIRCLE:
        return {}
    seen: Counter[tuple[str, str]] = Counter()
    copies: dict[str, int] = {}
    for call in calls:
        key = (call.name, call.arguments)
        if seen[key] >= CIRCLE:
            copies[call.id] = seen[key]
        seen[key] += 1
    return copies


def code_woken(state: RunState, event: CodeWoken) -> None:
    state.course(event.call_id).wake(event.nth, event.clock)


def courses(log: Iterable[Event]) -> dict[str, Course]:
    """How what it waited for reached the code of a run."""
    state = RunState()
    for event in log:
        if isinstance(event, CodeWoken):
            code_woken(state, event)
        elif isinstance(event, ToolReturned):
            _take_answer(state, event)
    return state.courses


def _take_answer(state: RunState, event: ToolReturned) -> None:
    """The answer to a call that code made."""
    code, slash, number = event.call_id.rpartition("/")
    if slash and number.isdecimal():
        state.course(code).answer(int(number), event.duration_ms / 1000 if event.timed else 0.0)


def tool_returned(state: RunState, event: ToolReturned) -> None:
    _take_answer(state, event)
    begun = state.begun.pop(event.call_id, None)
    state.shows.update(dict.fromkeys(event.shows))
    inner = f"{event.call_id}{INQUIRY}"
    for asked in [
        one for one in state.waiting.values() if one.call_id == event.call_id or one.call_id.startswith(inner)
    ]:
        del state.waiting[asked.approval_id]  # refused after a restart: nobody waits for an answer any more
    state.use(event.usage)
    state.failed_calls += begun is not None and event.is_error and not event.not_run
    _take_mistakes(state, event)
    if event.unmerged > 0:
        state.unmerged.add(event.merge_of)
    elif event.unmerged < 0:
        state.unmerged.discard(event.merge_of)
    call = state.calls.get(event.call_id)
    message = ToolMessage(
        call_id=event.call_id,
        name=event.name,
        text=event.text,
        is_error=event.is_error,
        images=event.images,
    )
    take_sources(state, event.sources, event.text)
    state.plan = event.plan or state.plan
    if event.answer:
        state.written = event.answer
        state.reports_written += 1
    if begun is not None and begun.effect in ("read", "write"):  # and not what a child has read
        seen = ((source.path, source.sha256) for source in event.sources)
        state.seen_files.update((path, sha256) for path, sha256 in seen if path and sha256)
    if event.is_error and (asked := begun.arguments if begun else call.arguments if call else ""):
        state.unreadable.update(dict.fromkeys(_addresses(asked)))
    state.files.extend(path for path in event.files if path not in state.files)
    state.has_read(event.private)
    if event.v < 2 and begun is not None and begun.effect in ("read", "write", "execute"):
        state.has_read((f"what {event.name} returned",))
    if begun is None or begun.address != "composed":  # a page may repeat what it was asked
        state.found.update(event.found)
        state.links.update(event.links)
        if begun is not None and begun.effect == "network":
            take_fetched(state, event.sources)
    if call is None:
        return
    arguments = begun.arguments if begun else call.arguments
    outcomes = state.attempts.setdefault((event.name, arguments), [])
    refused = event.not_run == "repeated" and circling(outcomes)  # that it was not run is no new outcome
    reported = _reported(state, event)
    beside = reported is not None and not event.is_error and _asked_beside(state, call)
    if not refused and not event.passing and not beside:
        outcomes.append((event.is_error, hash(event.text if reported is None else reported)))
    state.glances += event.passing
    state.results[event.call_id] = message
    if len(state.results) == len(state.calls) and state.glances < len(state.calls):
        state.delegating_steps = state.delegating_steps + 1 if state.step_effects == {"delegate"} else 0
    state.settle()


def _reported(state: RunState, event: ToolReturned) -> tuple[str, ...] | None:
    """What the children that a call waited for reported. Its text is never the same: their ids are in it."""
    began = [state.children[child] for child in state.started_by.pop(event.call_id, ())]
    ends = [state.lately.get((child.child_id, event.call_id)) for child in began]
    told = tuple(end.digest for end in ends if end is not None and end.digest)
    waited = not any(child.background for child in began)
    return told if told and waited and len(told) == len(began) else None


def _asked_beside(state: RunState, call: ToolCall) -> bool:
    """Whether the same was asked in the same reply, and answered already: several opinions are no circle."""
    same = (
        each for each in state.calls.values() if (each.name, each.arguments) == (call.name, call.arguments)
    )
    return any(each.id in state.results for each in same if each.id != call.id)


def corrected(state: RunState, tool: str, names: Iterable[str]) -> list[Mistake]:
    """The mistakes that a call of this tool stands in for which is for these agents, one for each.

    Only those of replies before: what made this call knew of no other. One that named this very agent comes
    first, else one that named none and was made by the same tool.
    """
    left = [each for each in state.mistakes if each.step < state.step]
    found: list[Mistake] = []
    for name in names if left else ():
        same = (each for wanted in (name, tool, ANY) for each in left if each.name == wanted)
        one = next(same, None)
        if one is not None:
            left.remove(one)
            found.append(one)
    return found


def _take_mistakes(state: RunState, event: ToolReturned) -> None:
    if event.corrects:
        started = [child.agent for child in state.children.values() if child.call_id == event.call_id]
        for each in corrected(state, event.name, (*started, *event.meant))[: event.corrects]:
            state.mistakes.remove(each)
    wrong = min(event.wrong, event.not_started)
    if wrong:
        names = [*event.meant, *[event.name] * wrong][:wrong]
        state.mistakes += [Mistake(step=state.step, name=name) for name in names]


def take_sources(state: RunState, sources: Iterable[Source], text: str) -> None:
    """What was fetched or read counts from here on, with the text that quotes are held against."""
    for source in sources:
        if source.url and not source.verified:
            state.unreadable[source.url] = None
            continue
        state.sources.append(source)
        if source.url:
            known = state.source_texts.get(source.url)
            state.source_texts[source.url] = text if known is None else f"{known}\n{text}"


def _addresses(arguments: str) -> list[str]:
    """The arguments of a call that are an address and nothing else."""
    try:
        given: Any = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):  # nested too deep, as only a fault would write it
        return []
    values = cast("dict[str, Any]", given).values() if isinstance(given, dict) else ()
    return [value for value in values if isinstance(value, str) and value.startswith(("http://", "https://"))]


def take_fetched(state: RunState, sources: Iterable[Source]) -> None:
    """What was fetched may be fetched again, with what its server sent us on to. Nobody named it by that."""
    for source in sources:
        state.links.update(url for url in (source.url, *source.aliases) if url)
