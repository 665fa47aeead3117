"""One model call, from the guards before it to the reply that is paid for and in the log.

Called by `loop`. Whether it is made again after a failure, the model decides that is asked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import msgspec

from retinue import context, pruning, replies, small_call, toolcall
from retinue.errors import ModelError, Unwritable, unwind
from retinue.events import GuardSpoke, ModelReplied, Purpose, StepRetried, StepStarted, Streamed
from retinue.guards import GuardSaid
from retinue.models.prices import paid_for
from retinue.run import Run
from retinue.run_log import storable
from retinue.types import AssistantMessage, EndedBy, ModelEvent, Reply, Retrying, TextDelta, ThinkingDelta


async def may_read(run: Run) -> bool:
    """Whether the model may be asked: guards have seen all that was said to this run, and stopped nothing."""
    if run.guards is not None:
        await run.guards.incoming(run)
    return run.state.stopped is None


async def ask(run: Run, *, purpose: Purpose = "work", reason: str = "", cause: EndedBy = "") -> None:
    """One model call. What it cost is charged and its reply is durable before anything follows from it."""
    state = run.state
    if state.step_open is None:
        step = state.step + 1
    else:  # asked before a restart, never answered
        asked = state.step_open
        step, purpose, reason, cause = asked.step, asked.purpose, asked.reason, asked.cause
    if state.parked is not None:
        await run.wait_out(run)
    recorded = await run.due(step)
    run.budget.begin_turn(run.id, unpriced=state.unpriced, recorded=recorded is True)
    if not await may_read(run):
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
    run.budget.charge_call(reply.usage)  # now: it was paid for, whatever comes of it
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
            if error.kind == "too_long" and not pruned and await pruning.prune(run, force=True):
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
                small_call.write_off(run, item, paid)
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
