"""How a run ends: whether an answer is its report, what is done before there is one, and the report itself.

Called by `loop`, which decides nothing of that by itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace

from retinue import digest, report_facts
from retinue.errors import Fenced, ModelError, StoreError, in_words, unwind
from retinue.events import CopyLeft, ErrorRaised, GuardSpoke, MessageReceived
from retinue.run import CopyWork, Problem, Run
from retinue.sources import Checked
from retinue.types import AssistantMessage, EndedBy, Report, Status

EMPTY = Problem(
    about="empty",
    for_model="Your last reply was empty. Answer the task, or call a tool.",
    for_people="the last reply was empty",
)
SAY_WHAT_WAS_DONE: tuple[EndedBy, ...] = ("budget", "time", "timeout", "max_turns", "circle", "delegating")
"""Ends that come before an answer: where nothing was found by then, the report says what was done."""
MOST_PLACES = 100
"""Sentences without a source of which a report keeps the place."""
NOTHING = Checked(text_sources=(), problems=())


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a run ended."""

    text: str | None = None
    """None: what was found so far, as soon as all below has ended."""
    status: Status = "completed"
    incomplete: str | None = None
    error: str | None = None
    ended_by: EndedBy = "answer"
    answered: bool = False
    """The model has answered, and could answer again."""
    of_copy: int = 0
    """Characters at the end of the text that are about its copy of the project."""
    in_copy: tuple[str, ...] = ()
    """What was changed there."""
    work: CopyWork | None = None
    """What of it is not in the project."""


async def wind_up(run: Run, ending: Ending) -> tuple[Ending, Checked, bool]:
    """Stop what still runs below, and hold the answer against its sources.

    A cancel that comes meanwhile changes how the run ended, not that it has an end.
    """
    stopped = False
    while True:
        run.gives_up = not ending.answered
        try:
            why = ending.incomplete or "its parent finished"
            leave = ending.answered and run.leaves
            await run.dismiss(run, why, leave=leave, answered=ending.answered)
            text = report_facts.partial(run) if ending.text is None else ending.text
            if not text.strip() and ending.ended_by in SAY_WHAT_WAS_DONE:
                text = digest.nothing_found(run.state, ending.incomplete or "")
            checked = await report_facts.check_sources(run, text, judge=ending.answered)
            closing = await run.closing(run)
            if ending.answered:
                await run.answer_due(run.state.step, True)
            told = replace(ending, text=text + closing.text, of_copy=len(closing.text), in_copy=closing.files)
            told = replace(told, work=closing.work)
            return told, checked, stopped
        except asyncio.CancelledError:
            ending, stopped = cancelled(run), True
        except (Fenced, StoreError):
            raise
        except Exception as error:  # an end without its sources is better than none
            return replace(failed(run, error), text=ending.text), NOTHING, stopped


def cancelled(run: Run) -> Ending:
    reason = run.cancel_reason or "the program stopped"
    return Ending(status="cancelled", incomplete=reason, error=reason, ended_by="cancelled")


def failed(run: Run, error: Exception) -> Ending:
    text = in_words(error)
    kind = error.kind if isinstance(error, ModelError) else type(error).__name__
    unwind(error)
    run.log.write(ErrorRaised, message=text, kind=kind)
    return Ending(status="error", error=text, incomplete=text, ended_by="error")


def stopped_by_guard(guard: GuardSpoke) -> Ending:
    why = f"stopped by the guard {guard.guard}: {guard.why}"
    return Ending(text="", status="error", error=why, incomplete=why, ended_by="guard")


def _sent_back(guard: GuardSpoke) -> Problem:
    return Problem(
        about="guard",
        for_model=f"Your answer cannot be given as it is: {guard.why}. Answer again in full.",
        for_people=f"the guard {guard.guard} sent it back: {guard.why}",
    )


async def considered(run: Run, answer: AssistantMessage) -> Ending | None:
    """An answer is there: is it the report? None if the model has to go on."""
    state = run.state
    run.data = None  # that of an earlier answer is not this one's
    if state.final_reason is not None and state.faulted is None:
        if run.output_schema is not None:
            await run.review(run, answer.text)  # nothing is mended any more, but what fits is data
        text = answer.text or report_facts.partial(run)
        return Ending(text=text, incomplete=state.final_reason, ended_by=state.final_cause)
    if state.last_stop == "refusal":
        why = "the model refused to answer, or said that it cannot"
        return Ending(text=answer.text, status="error", error=why, incomplete=why, ended_by="refusal")
    problem = await run.review(run, answer.text) if answer.text.strip() else EMPTY
    if state.faulted is not None:
        problem = _sent_back(state.faulted)
    if problem is not None:
        if state.corrections >= run.corrections or state.final_reason is not None:
            why = f"the answer could not be corrected: {problem.for_people}"
            return Ending(text=report_facts.partial(run), incomplete=why, ended_by="correction")
        run.log.write(MessageReceived, text=problem.for_model, sender="system", about=problem.about)
        return None
    if await run.linger(run):
        return None
    wanted = run.spec.summary
    if wanted and isinstance(wanted, str) and not state.summarised:
        run.log.write(MessageReceived, text=wanted, sender="system", about="summary")
        return None
    if state.last_stop == "length" or (state.summarised and state.work_stop == "length"):
        why = "the answer was cut at the model's output limit"
        return Ending(text=answer.text, incomplete=why, ended_by="length")
    if report_facts.read_nothing(run):
        return Ending(text=answer.text, incomplete=report_facts.NOTHING_READ, ended_by="nothing_read")
    return Ending(text=answer.text)


def copy_left(run: Run, work: CopyWork | None) -> list[CopyLeft]:
    """What is in its copy of the project alone, where that is anything or was before."""
    if work is None:
        return []
    more = int(bool(work.files or work.left_out)) - int(run.state.copy_left is not None)
    if not (work.files or work.left_out or more):
        return []
    return [run.log.stamp(CopyLeft, **asdict(work), more=more)]


def _duration(run: Run) -> int:
    """Milliseconds, with those before a report that was not the last."""
    taken = int(run.clock.elapsed * 1000) if run.recorded_ms is None else run.recorded_ms
    return run.state.duration_ms + taken


def report_of(run: Run, ending: Ending, checked: Checked, at_work: int) -> Report:
    state = run.state
    return Report(
        run_id=run.id,
        status=ending.status,
        text=report_facts.partial(run) if ending.text is None else ending.text,
        agent=run.spec.name,
        format=run.output_format,
        label=run.label,
        depth=run.depth,
        turns=state.turns,
        tool_calls=state.tool_calls,
        failed_calls=state.failed_calls,
        # In the order of their ids: sums of prices must not depend on who ended first.
        usage=sum((child.usage for _, child in sorted(state.ended.items())), state.usage),
        duration_ms=_duration(run),
        sources=report_facts.all_sources(run, checked),
        problems=report_facts.all_problems(state, checked),
        problems_of_sources=checked.of_sources,
        claims=checked.claims.claims,
        uncited=len(checked.claims.uncited),
        uncited_at=checked.claims.uncited_at[:MOST_PLACES],
        files=state.all_files(ending.in_copy),
        incomplete=report_facts.why_incomplete(state, ending.incomplete),
        error=ending.error,
        data=run.data,
        model=(state.answered_by if "," in run.model.name else "") or run.model.name,
        effort=state.effort,
        ended_by=ending.ended_by,
        shortfall=state.shortfall,
        read=report_facts.read_lines(state),
        at_work=at_work,
    )
