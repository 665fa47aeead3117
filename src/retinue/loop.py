"""The agent loop: ask the model, run the tools it asks for, until it answers.

`run_agent` is the whole life of a run, for a root and a child alike. It is driven by the run's state, which
is the fold of its log: after a restart the same loop simply goes on where the log ends. It knows no
provider, no tool by name, no database and no sub-agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from retinue import modelcall, pruning, toolcall
from retinue.ending import (
    NOTHING,
    Ending,
    cancelled,
    considered,
    copy_left,
    failed,
    report_of,
    stopped_by_guard,
    wind_up,
)
from retinue.errors import BudgetExhausted, Fenced, RunError, StoreError, unwind
from retinue.events import RunFinished
from retinue.run import Run
from retinue.sources import Checked
from retinue.types import Report, ToolCall

AT_ONCE = 32
"""So many calls of one reply are begun before everything else has its turn."""


async def run_agent(run: Run, prepare: Callable[[], Awaitable[None]] | None = None) -> Report:
    """Run until there is a report. The only place that catches everything.

    `prepare` is what has to be had first, such as a slot; its time does not count.
    """
    while True:
        ending, checked, stopped = await _turn(run, prepare)
        prepare = None
        at_work = run.left(run) if ending.answered else 0
        run.play_cuts()
        report = report_of(run, ending, checked, at_work)
        left = copy_left(run, ending.work)
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
                ending, stopped = cancelled(run), True
            else:
                ending = failed(run, RunError("CancelledError: the model cancelled itself", run_id=run.id))
        except (Fenced, StoreError):
            raise  # nothing more can be written to this log
        except Exception as error:
            ending = failed(run, error)
        ending, checked, late = await wind_up(run, ending)
        stopped = late or stopped
    return ending, checked, stopped


async def _stopped() -> None:
    """A cancel came where nothing could be done about it: it comes now."""
    raise asyncio.CancelledError


def _is_news(run: Run) -> bool:
    """Whether something was said since the answer: by somebody, or by a child that would be left at work."""
    return run.state.unread > 0 or (run.leaves and run.state.answer is None)


def _being_stopped(run: Run) -> bool:
    """Whether a cancel was meant for this run: code of others may raise the very same error."""
    task = asyncio.current_task()
    return run.cancel_reason is not None or run.clock.expired or (task is not None and task.cancelling() > 0)


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
        if not await modelcall.may_read(run) and run.state.stopped is not None:
            return stopped_by_guard(run.state.stopped)
        if run.state.answer is not None:
            await run.answer_due(run.state.step, False)
        answer = run.state.answer
        if answer is not None:
            ending = await considered(run, answer)
            if ending is not None and not run.state.unread:
                return replace(ending, answered=True)
            continue
        if run.state.owed is not None:
            await modelcall.ask(run, purpose=run.state.owed)
            continue
        why = toolcall.why_stop(run)
        if why is not None:
            if why[0] != "time":
                await run.linger(run)  # what is still to come belongs to the report
            await modelcall.ask(run, purpose="final", cause=why[0], reason=why[1])
        elif not (run.state.awaits_asked and await run.linger(run, asked=True)):
            await pruning.prune(run)
            await modelcall.ask(run)


def _stop_if_told(run: Run) -> None:
    """A tool or a model may swallow the one signal it is sent. It does not go on for that."""
    if run.cancel_reason is not None or run.clock.expired:
        raise asyncio.CancelledError


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
