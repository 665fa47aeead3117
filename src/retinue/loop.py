"""The agent loop: ask the model, run the tools it asks for, until it answers.

`run_agent` is the whole life of a run, for a root and a child alike. It is driven by the run's state, which
is the fold of its log: after a restart the same loop simply goes on where the log ends. It knows no
provider, no tool by name, no database and no sub-agent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace

import msgspec

from retinue import context, digest, replies, toolcall
from retinue.errors import (
    BudgetExhausted,
    Fenced,
    ModelError,
    RunError,
    StoreError,
    Unwritable,
    in_words,
    unwind,
)
from retinue.events import (
    CopyLeft,
    ErrorRaised,
    GuardSpoke,
    MessageReceived,
    ModelReplied,
    Purpose,
    RunFinished,
    StepRetried,
    StepStarted,
    Streamed,
)
from retinue.guards import GuardSaid
from retinue.models.prices import paid_for
from retinue.run import CopyWork, Problem, Run, storable
from retinue.sources import Checked
from retinue.types import (
    AssistantMessage,
    EndedBy,
    ModelEvent,
    Reply,
    Report,
    Retrying,
    Status,
    TextDelta,
    ThinkingDelta,
    ToolCall,
)

AT_ONCE = 32
"""So many calls of one reply are begun before everything else has its turn."""
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


async def run_agent(run: Run, prepare: Callable[[], Awaitable[None]] | None = None) -> Report:
    """Run until there is a report. The only place that catches everything.

    `prepare` is what has to be had first, such as a slot; its time does not count.
    """
    while True:
        ending, checked, stopped = await _turn(run, prepare)
        prepare = None
        at_work = run.left(run) if ending.answered else 0
        run.play_cuts()
        report = _report(run, ending, checked, at_work)
        left = _copy_left(run, ending.work)
        finished = run.log.stamp(RunFinished, report=report, of_copy=ending.of_copy)
        try:
            await run.log.commit(*left, finished)
        except asyncio.CancelledError:
            if not at_work:
                raise
            prepare = _stopped  # this answer was not its end yet, and it has to have one
            continue
        run.reported(finished.report)
        if not at_work:
            break
    if stopped and run.cancel_reason is None:  # not asked for by anyone here:
        raise asyncio.CancelledError  # whoever awaits this run is being cancelled too
    return finished.report


def _copy_left(run: Run, work: CopyWork | None) -> list[CopyLeft]:
    """What is in its copy of the project alone, where that is anything or was before."""
    if work is None:
        return []
    more = int(bool(work.files or work.left_out)) - int(run.state.copy_left is not None)
    if not (work.files or work.left_out or more):
        return []
    return [run.log.stamp(CopyLeft, **asdict(work), more=more)]


async def _turn(run: Run, prepare: Callable[[], Awaitable[None]] | None) -> tuple[Ending, Checked, bool]:
    """Up to an answer, or an end without one; and whether it was stopped."""
    # Whether, and not by what: an error in a variable holds the frame that holds it, and all it works on.
    stopped = False
    ending: Ending | None = None
    checked = NOTHING
    # What is said after the answer and before the end is read too: then that was not the answer yet.
    while ending is None or (ending.answered and _is_news(run)):
        try:
            if prepare is not None:
                await prepare()
                prepare = None
            ending = await _within_time(run)
        except asyncio.CancelledError:
            if _being_stopped(run):
                ending, stopped = _cancelled(run), True
            else:
                ending = _failed(run, RunError("CancelledError: the model cancelled itself", run_id=run.id))
        except (Fenced, StoreError):
            raise  # nothing more can be written to this log
        except Exception as error:
            ending = _failed(run, error)
        ending, checked, late = await _wind_up(run, ending)
        stopped = late or stopped
    return ending, checked, stopped


async def _stopped() -> None:
    """A cancel came where nothing could be done about it: it comes now."""
    raise asyncio.CancelledError


def _is_news(run: Run) -> bool:
    """Whether something was said since the answer: by somebody, or by a child that would be left at work."""
    return run.state.unread > 0 or (run.leaves and run.state.answer is None)


async def _wind_up(run: Run, ending: Ending) -> tuple[Ending, Checked, bool]:
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
            text = context.partial(run) if ending.text is None else ending.text
            if not text.strip() and ending.ended_by in SAY_WHAT_WAS_DONE:
                text = digest.nothing_found(run.state, ending.incomplete or "")
            checked = await context.check_sources(run, text, judge=ending.answered)
            closing = await run.closing(run)
            if ending.answered:
                await run.answer_due(run.state.step, True)
            told = replace(ending, text=text + closing.text, of_copy=len(closing.text), in_copy=closing.files)
            told = replace(told, work=closing.work)
            return told, checked, stopped
        except asyncio.CancelledError:
            ending, stopped = _cancelled(run), True
        except (Fenced, StoreError):
            raise
        except Exception as error:  # an end without its sources is better than none
            return replace(_failed(run, error), text=ending.text), NOTHING, stopped


def _being_stopped(run: Run) -> bool:
    """Whether a cancel was meant for this run: code of others may raise the very same error."""
    task = asyncio.current_task()
    return run.cancel_reason is not None or run.clock.expired or (task is not None and task.cancelling() > 0)


def _cancelled(run: Run) -> Ending:
    reason = run.cancel_reason or "the program stopped"
    return Ending(status="cancelled", incomplete=reason, error=reason, ended_by="cancelled")


def _failed(run: Run, error: Exception) -> Ending:
    text = in_words(error)
    kind = error.kind if isinstance(error, ModelError) else type(error).__name__
    unwind(error)
    run.log.write(ErrorRaised, message=text, kind=kind)
    return Ending(status="error", error=text, incomplete=text, ended_by="error")


async def _within_time(run: Run) -> Ending:
    try:
        async with run.clock.start():
            return await _work(run)
    except TimeoutError:
        if not run.clock.expired:
            raise
        why = run.clock.why
        return Ending(status="error", error=why, incomplete=why, ended_by="timeout")
    except BudgetExhausted as error:
        unwind(error)
        return Ending(incomplete=str(error), ended_by="budget")
    finally:
        run.clock.stop()


async def _work(run: Run) -> Ending:
    if run.state.at_work:  # it has answered: what is still to come opens the next turn
        await run.linger(run, answered=True)
    while True:
        _stop_if_told(run)
        await _run_calls(run)
        _stop_if_told(run)
        if not await _may_read(run) and run.state.stopped is not None:
            return _stopped_by(run.state.stopped)
        if run.state.answer is not None:
            await run.answer_due(run.state.step, False)
        answer = run.state.answer
        if answer is not None:
            ending = await _consider(run, answer)
            if ending is not None and not run.state.unread:
                return replace(ending, answered=True)
            continue
        if run.state.owed is not None:
            await _ask(run, purpose=run.state.owed)
            continue
        why = toolcall.why_stop(run)
        if why is not None:
            if why[0] != "time":
                await run.linger(run)  # what is still to come belongs to the report
            await _ask(run, purpose="final", cause=why[0], reason=why[1])
        elif not (run.state.awaits_asked and await run.linger(run, asked=True)):
            await context.prune(run)
            await _ask(run)


def _stop_if_told(run: Run) -> None:
    """A tool or a model may swallow the one signal it is sent. It does not go on for that."""
    if run.cancel_reason is not None or run.clock.expired:
        raise asyncio.CancelledError


async def _may_read(run: Run) -> bool:
    """Whether the model may be asked: guards have seen all that was said to this run, and stopped nothing."""
    if run.guards is not None:
        await run.guards.incoming(run)
    return run.state.stopped is None


def _stopped_by(guard: GuardSpoke) -> Ending:
    why = f"stopped by the guard {guard.guard}: {guard.why}"
    return Ending(text="", status="error", error=why, incomplete=why, ended_by="guard")


def _sent_back(guard: GuardSpoke) -> Problem:
    return Problem(
        about="guard",
        for_model=f"Your answer cannot be given as it is: {guard.why}. Answer again in full.",
        for_people=f"the guard {guard.guard} sent it back: {guard.why}",
    )


async def _consider(run: Run, answer: AssistantMessage) -> Ending | None:
    """An answer is there: is it the report? None if the model has to go on."""
    state = run.state
    run.data = None  # that of an earlier answer is not this one's
    if state.final_reason is not None and state.faulted is None:
        if run.output_schema is not None:
            await run.review(run, answer.text)  # nothing is mended any more, but what fits is data
        text = answer.text or context.partial(run)
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
            return Ending(text=context.partial(run), incomplete=why, ended_by="correction")
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
    if context.read_nothing(run):
        return Ending(text=answer.text, incomplete=context.NOTHING_READ, ended_by="nothing_read")
    return Ending(text=answer.text)


async def _ask(run: Run, *, purpose: Purpose = "work", reason: str = "", cause: EndedBy = "") -> None:
    """One model call. What it cost is charged and its reply is durable before anything follows from it."""
    state = run.state
    run.budget.begin_turn(run.id, unpriced=state.unpriced)
    if state.step_open is None:
        step = state.step + 1
    else:  # asked before a restart, never answered
        asked = state.step_open
        step, purpose, reason, cause = asked.step, asked.purpose, asked.reason, asked.cause
    if state.parked is not None:
        await run.wait_out(run)
    await run.due(step)
    if not await _may_read(run):
        return
    # At once: nobody says anything in between that no guard has seen. Durable before anything is paid for;
    # the results of the last step stand in line before it.
    await run.log.write(
        StepStarted,
        step=step,
        model=run.model.name,
        purpose=purpose,
        reason=reason,
        cause=cause,
        used=round(run.clock.counted, 3),
    )
    answered = await _answered(run, step, purpose, reason)
    if answered is None:
        return
    reply, duration = answered
    run.budget.charge_usage(reply.usage)  # now: it was paid for, whatever comes of it
    message = reply.message
    if purpose in ("final", "summary"):
        message = AssistantMessage(text=message.text)  # no tools were offered: calls mean nothing
    try:
        message, said = await _guarded(run, toolcall.tidy(message, state.seen_calls, step))
    except BaseException:
        run.cut_off(reply.usage)  # the text that no guard let pass is nowhere, what it took is
        raise
    try:
        replied = run.log.stamp(
            ModelReplied,
            step=step,
            message=message,
            usage=reply.usage,
            stop=reply.stop,
            model=reply.model,
            duration_ms=duration,
            thinking="" if any(each.decision in ("stop", "mend") for each in said) else reply.thinking,
            effort=reply.effort,
        )
        spoken = [run.log.stamp(GuardSpoke, **asdict(each)) for each in said]
        written = run.log.commit(replied, *spoken)
    except Unwritable as error:
        run.cut_off(reply.usage)
        raise ModelError(f"{run.model.name} gave a reply of a wrong form: {error}", kind="protocol") from None
    run.streamed.clear()  # it is in the reply now
    await written
    run.budget.refuse_unknown_cost(reply, run.id)
    if message.calls and state.unpriced:
        run.budget.refuse_unpriced(run.id)


async def _guarded(run: Run, message: AssistantMessage) -> tuple[AssistantMessage, Sequence[GuardSaid]]:
    """An answer as the guards let it pass, before anybody sees it: what they take out is nowhere."""
    if run.guards is None or message.calls:
        return message, ()
    looked = await run.guards.outgoing(run, message.text)
    return AssistantMessage(text=looked.text) if looked.changed else message, looked.said


async def _answered(run: Run, step: int, purpose: Purpose, reason: str) -> tuple[Reply, int] | None:
    """The reply to a step: asked again with fewer turns if there were too many, or when a limit has reset.

    None: a guard stopped what was said while it waited for that.
    """
    pruned = False
    while True:
        try:
            return await _stream(run, step, purpose, reason)
        except ModelError as error:
            if error.kind == "too_long" and not pruned and await context.prune(run, force=True):
                pruned = True
            elif not await run.park(run, error):
                raise
            unwind(error)
            if run.state.stopped is not None:
                return None


async def _stream(run: Run, step: int, purpose: Purpose, reason: str) -> tuple[Reply, int]:
    began = time.perf_counter()
    run.streamed.clear()
    held = run.guards is not None and run.guards.holds  # nobody sees an answer before its guards
    paid = paid_for(run.model.name)

    def take(item: ModelEvent) -> None:
        match item:
            case TextDelta(text) | ThinkingDelta(text):
                run.clock.hear()
                if not text or held:
                    return
                thinking = isinstance(item, ThinkingDelta)
                if not thinking:
                    run.streamed.append(text)
                run.log.show(
                    Streamed(
                        run_id=run.id,
                        root_id=run.root_id,
                        depth=run.depth,
                        step=step,
                        text=storable(text),
                        thinking=thinking,
                    )
                )
            case Retrying():
                run.streamed.clear()
                run.log.write(StepRetried, step=step, **msgspec.structs.asdict(item))
                context.write_off(run, item, paid)
            case _:
                pass

    run.clock.hear()
    try:
        stream = run.model.stream(context.request(run, purpose, reason))
        reply = await replies.collected(run.model.name, stream, take, paid)
    except BaseException:
        run.cut_off(paid.usage, "".join(run.streamed))
        run.budget.charge_usage(paid.usage)
        raise
    return reply, int((time.perf_counter() - began) * 1000)


async def _run_calls(run: Run) -> None:
    """Every call of the last reply that has no result yet."""
    for calls in toolcall.waves(run.state):
        _stop_if_told(run)
        if len(calls) == 1:
            await toolcall.perform(run, calls[0])
        else:
            await _side_by_side(run, calls)


async def _side_by_side(run: Run, calls: list[ToolCall]) -> None:
    room = asyncio.Semaphore(run.limits.tool_concurrency)

    async def one(call: ToolCall) -> None:
        async with room:
            await toolcall.perform(run, call)

    try:
        async with asyncio.TaskGroup() as group:
            for index, call in enumerate(calls, start=1):
                group.create_task(one(call))
                if index % AT_ONCE == 0:
                    await asyncio.sleep(0)  # the first are on their way while the others begin
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the error itself, not a group of one


def _duration(run: Run) -> int:
    """Milliseconds, with those before a report that was not the last."""
    taken = int(run.clock.elapsed * 1000) if run.recorded_ms is None else run.recorded_ms
    return run.state.duration_ms + taken


def _report(run: Run, ending: Ending, checked: Checked, at_work: int) -> Report:
    state = run.state
    return Report(
        run_id=run.id,
        status=ending.status,
        text=context.partial(run) if ending.text is None else ending.text,
        agent=run.spec.name,
        format=run.output_format,
        label=run.label,
        depth=run.depth,
        turns=state.turns,
        tool_calls=state.tool_calls,
        # In the order of their ids: sums of prices must not depend on who ended first.
        usage=sum((child.usage for _, child in sorted(state.ended.items())), state.usage),
        duration_ms=_duration(run),
        sources=context.all_sources(run, checked),
        problems=context.all_problems(state, checked),
        claims=checked.claims.claims,
        uncited=len(checked.claims.uncited),
        uncited_at=checked.claims.uncited_at[:MOST_PLACES],
        files=tuple(dict.fromkeys((*state.files, *ending.in_copy))),
        incomplete=context.why_incomplete(state, ending.incomplete),
        error=ending.error,
        data=run.data,
        model=(state.answered_by if "," in run.model.name else "") or run.model.name,
        effort=state.effort,
        ended_by=ending.ended_by,
        shortfall=state.shortfall,
        read=context.read_lines(state),
        at_work=at_work,
    )
