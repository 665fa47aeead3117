"""One tool call, from what the model wrote to the result it reads; and when to stop calling.

Whatever goes wrong here becomes a result that the model can act on: an unknown tool, invalid arguments,
a refusal, a timeout, an exception. Called by the loop; knows no tool by name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, Literal, cast

import msgspec

from retinue import threads
from retinue.builtin_tools import SKILL
from retinue.errors import (
    Refused,
    RetinueError,
    ToolError,
    Unwritable,
    unwind,
)
from retinue.events import INQUIRY, AccessDenied, MessageReceived, ToolCalled, ToolReturned
from retinue.fold_results import CIRCLE, circling
from retinue.not_started import nearest, with_unstarted
from retinue.run import Admitted, Run, no_guidance
from retinue.run_log import storable
from retinue.run_state import RunState
from retinue.standing import call_outcome
from retinue.threads import briefly, ours
from retinue.tool_running import (
    also_private,
    asked_of,
    brings,
    broken,
    failure,
    names_in,
    refuse_another,
    run_tool,
    useless,
    with_private,
)
from retinue.tools.base import Tool, ToolResult
from retinue.tools.judged import judged
from retinue.types import (
    AddressFrom,
    AssistantMessage,
    EndedBy,
    Outcome,
    ReportFields,
    Source,
    ToolCall,
)
from retinue.workspace import HOME, WEB

SAME_FAILURES = 2
"""An identical call that failed this often is not run again."""
ONLY_DELEGATING = 6
"""Steps of a child in which it did nothing but delegate."""

_UNKNOWN = (
    "outcome unknown: {why} while this call was running, and running it twice could do harm. "
    "Look at what is there before you decide whether to make the call again."
)
UNKNOWN = _UNKNOWN.format(why="the process stopped")


_NOT_OURS = str.maketrans(dict.fromkeys(f"/{INQUIRY}", "_"))


def tidy(message: AssistantMessage, seen: Set[str], step: int) -> AssistantMessage:
    """A reply as the log takes it. Call ids name results, approvals and children: none may come twice.

    Nor may one look like an id of ours: a slash stands in those of calls that code makes, and nowhere else.
    """
    ids = [storable(call.id).translate(_NOT_OURS) for call in message.calls]
    if len(set(ids)) < len(ids) or not seen.isdisjoint(ids):
        ids = _fresh(ids, seen, step)
    elif all(each == call.id for each, call in zip(ids, message.calls, strict=True)):
        return message
    calls = tuple(
        msgspec.structs.replace(call, id=each) for each, call in zip(ids, message.calls, strict=True)
    )
    return msgspec.structs.replace(message, calls=calls)


def _fresh(ids: Sequence[str], seen: Set[str], step: int) -> list[str]:
    """Other ids for the calls of a reply, and none of before: a model may guess what ours would be."""
    found: list[str] = []
    for index, each in enumerate(ids):
        fresh = f"{each}.{step}.{index}"
        while fresh in seen or fresh in found:
            fresh += "_"
        found.append(fresh)
    return found


def why_stop(run: Run) -> tuple[EndedBy, str] | None:
    """Why there must be no further step with tools, as a fact and in words; or None."""
    state = run.state
    most = state.max_turns or run.max_turns
    if state.work_turns >= most:
        return "max_turns", f"max turns reached: {state.work_turns} of {most}"
    short = run.short(state.step + 1)
    if short is not None:
        return short
    for (name, arguments), outcomes in state.attempts.items():
        if circling(outcomes):
            often = f"{name} was called {len(outcomes)} times with {_short(arguments)}"
            return "circle", f"going in a circle: {often}"
    if run.depth > 0 and state.delegating_steps >= ONLY_DELEGATING:
        steps = f"{state.delegating_steps} steps in a row passed the work on and did none"
        return "delegating", f"only delegating: {steps}"
    return None


def waves(state: RunState) -> list[list[ToolCall]]:
    """The open calls of the last reply, in the order in which they may begin: nearly always all at once.

    Of identical ones only so many run side by side as make a circle. The next of them wait for what those
    came to, and are refused if that was the same each time. It follows from the reply alone which wait.
    """
    calls = state.open_calls
    if not state.copies:
        return [calls] if calls else []
    found: dict[int, list[ToolCall]] = {}
    for call in calls:
        found.setdefault(state.copies.get(call.id, 0) // CIRCLE, []).append(call)
    return [found[place] for place in sorted(found)]


async def perform(run: Run, call: ToolCall, most: int | None = None) -> ToolResult:
    """Run one call and log its result, of which no more than `most` characters are kept.

    What comes back is what the log holds: code must not see more now than it would after a restart.
    """
    run.performing.add(call.id)
    try:
        return await _performed(run, call, most)
    finally:
        run.performing.discard(call.id)


async def _performed(run: Run, call: ToolCall, most: int | None) -> ToolResult:
    await run.call_due(call.id)
    began, before = time.perf_counter(), run.state.begun.get(call.id)
    name = run.tools[call.name].name if call.name in run.tools else call.name
    try:
        result = await _call(run, call)
    except ToolError as error:
        unwind(error)
        result = failure(error)
        if error.not_run == "bad_arguments":  # in the words of what a program gave to read them
            result = await _of_program(run, call, result)
    except (asyncio.CancelledError, SystemExit) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        unwind(error)
        result = await _of_program(run, call, broken(error))
    except RetinueError:
        raise
    except Exception as error:  # of what a program gave a tool besides its function: `admit`, `private`
        unwind(error)
        result = await _of_program(run, call, broken(error))
    result = with_unstarted(run, call, result)
    if before is not None:  # what it has saved by then may be there, whatever becomes of it now
        result = also_private(result, before.private)
    text, saved = storable(result.text), None
    if not result.as_read:  # as it was cut then
        text, saved = _fit(run, name, text, most or run.limits.tool_output)
    result = replace(result, text=text, fields=_of_code(result.fields, most))
    duration = int((time.perf_counter() - began) * 1000)
    if _was_known(run, call, result):
        try:
            await _keep(run, result, saved)
        finally:  # who is stopped just then has still done this
            result = _noted(run, call, name, result, duration)
    else:  # nothing is waited for since it was saved: code beside it finds nothing that does not count yet
        result = _noted(run, call, name, result, duration)
        await run.log.commit()
        await _keep(run, result, saved)
    await _guide(run, call, result)
    return result


async def _of_program(run: Run, call: ToolCall, result: ToolResult) -> ToolResult:
    """What a program's own tool says when it fails, by whatever way, is as private as what it returns."""
    tool = run.tools.get(call.name)
    if tool is None or tool.ours:
        return result
    try:
        return await with_private(run, tool, {}, result)
    except Exception as error:  # what nobody knows of is taken for private
        unwind(error)
        return replace(result, private=(*result.private, f"what {tool.name} returned"))


def _of_code(fields: ReportFields | None, most: int | None) -> ReportFields | None:
    """Nobody but code reads a report by its fields, and no more of it than it may work with."""
    if fields is None or most is None:
        return None
    return fields if len(fields.text) <= most else msgspec.structs.replace(fields, text=fields.text[:most])


async def _guide(run: Run, call: ToolCall, result: ToolResult) -> None:
    """Tell a run of the nearest instructions to a file that it has read or changed, unless it knows them."""
    tool = run.tools.get(call.name)
    if tool is None or tool.effect not in ("read", "write") or result.is_error or "/" in call.id:
        return
    read = (source.path for source in result.sources if source.path and not source.listed)
    for path in dict.fromkeys((*read, *result.files)):
        found = await asyncio.to_thread(run.guidance, path) if run.guidance is not no_guidance else None
        if found is None:
            continue
        file, text = found
        if not any(message.text == text for message in (*run.state.messages, *run.state.queued)):
            run.log.write(MessageReceived, text=text, sender="system", about="instructions", message_id=file)


async def _keep(run: Run, result: ToolResult, saved: str | None) -> None:
    """Before the log names them: whoever takes the run up again finds what it names. But for what the log
    alone says is private: nobody may find that without its name."""
    pages = [
        source.saved_as for source in cast("Sequence[Any]", result.sources) if isinstance(source, Source)
    ]
    # What others return may be of any type: the log is who says so.
    named = [path for path in cast("Sequence[Any]", (*result.files, *pages, saved)) if isinstance(path, str)]
    if named:
        await run.keep(run, named)


def _noted(run: Run, call: ToolCall, name: str, result: ToolResult, duration: int) -> ToolResult:
    try:
        _note(run, call, name, result, duration)
    except Unwritable as error:
        private = names_in(name, result.private)
        result = ToolResult(text=useless(name, str(error)), is_error=True, private=private)
        _note(run, call, name, result, duration)
    run.returned(run, call.id)
    return result


def _note(run: Run, call: ToolCall, name: str, result: ToolResult, duration: int) -> None:
    run.log.note(
        ToolReturned,
        call_id=call.id,
        name=name,
        text=result.text,
        is_error=result.is_error,
        duration_ms=duration,
        timed="/" in call.id,
        sources=result.sources,
        files=result.files,
        usage=result.usage,
        rolled_back=result.rolled_back,
        passing=result.passing,
        not_run=result.not_run,
        not_started=result.not_started,
        merge_of=result.merge_of,
        unmerged=result.unmerged,
        wrong=result.wrong,
        meant=result.meant,
        corrects=result.corrects,
        children=result.children,
        private=result.private,
        found=result.found,
        links=result.links,
        fields=result.fields,
        shows=result.shows,
        images=result.images,
        plan=result.plan,
        answer=result.answer,
        outcome=_outcome(run.state, call, result),
    )


def _outcome(state: RunState, call: ToolCall, result: ToolResult) -> Outcome | Literal[""]:
    """What others return may be of any type: the log is who says so."""
    waited_for = {child.child_id for child in state.children.values() if not child.background}
    try:
        return call_outcome(result, call.id, state.ended.values(), waited_for)
    except TypeError:
        return ""


async def _call(run: Run, call: ToolCall) -> ToolResult:
    tool = run.tools.get(call.name)
    # Authority is checked here, where the call happens, whatever the model was shown.
    if tool is None or not run.authority.permits(tool.name, tool.effect):
        run.withheld(call.name)
        raise _unknown(run, call.name)
    given = tool
    begun = run.state.begun.get(call.id)
    if begun is not None:
        if not tool.repeatable:
            await run.recorder.recover(run, call.id)
            return ToolResult(text=_cut_off(run, begun), is_error=True, not_run="outcome_unknown")
        answer = run.state.answers.get(call.id)
        edited = answer is not None and answer.arguments is not None
        refuse_another(tool, call, run.state.asked_about.get(call.id))
        refuse_another(tool, call, (begun.name, storable(call.arguments) if edited else begun.arguments))
        arguments = tool.parse(begun.arguments)
        tool = await judged(given, arguments)
        _refuse_denied(
            run,
            tool,
            call,
            arguments,
            "this call had begun when the process stopped, and what it did by then is unknown; now",
        )
        return await _execute(run, tool, call, arguments, begun.arguments, begun.address)
    with run.in_line(run, call.id):
        passed = await _let_pass(run, given, call)
    if isinstance(passed, ToolResult):
        return passed
    tool, arguments, private, admitted = passed
    edited = admitted.edited
    if edited is not None:
        arguments = _parse_edited(tool, edited)
        tool = await judged(given, arguments)
        private = await brings(run, tool, call.id, arguments)
        _refuse_denied(run, tool, call, arguments, "the person changed the arguments of this call, and")
    run.log.note(
        ToolCalled,
        call_id=call.id,
        name=tool.name,
        arguments=call.arguments if edited is None else edited,
        effect=tool.effect_of(arguments),
        repeatable=tool.repeatable,
        address=admitted.address,
        private=private,
    )
    if not tool.repeatable:
        await (
            run.log.commit()
        )  # the intent must survive a crash, or nobody would know that it may have happened
    return await _execute(run, tool, call, arguments, edited, admitted.address)


def _cut_off(run: Run, begun: ToolCalled) -> str:
    """What a model is told of a call that had begun and has no result: by what it was cut off."""
    ended = run.state.finished
    if ended is None or ended.seq < begun.seq:
        return UNKNOWN
    by = ended.report.ended_by
    why = "the run was cancelled" if by == "cancelled" else "the time of the run was up"
    return _UNKNOWN.format(why=why if by in ("cancelled", "timeout") else "the run ended")


async def _let_pass(
    run: Run, given: Tool, call: ToolCall
) -> tuple[Tool, dict[str, Any], tuple[str, ...], Admitted] | ToolResult:
    """The tool for this very call, its arguments, the private data that it may bring and how it may run; or
    its result where it does not."""
    _refuse_repetition(run, given, call)
    arguments = _parsed(given, call.arguments)
    tool = await judged(given, arguments)
    if not run.authority.permits(tool.name, tool.effect_of(arguments)):
        raise Refused(f"not run: {tool.name} must not read files here")
    if not any(asked.call_id == call.id for asked in run.state.waiting.values()):
        refused = await _admit(run, tool, arguments)
        if refused is not None:
            return refused
    if tool.unsealed is not None and run.authority.rules.sandbox != "off":
        network = run.authority.rules.sandbox_network
        await asyncio.to_thread(tool.unsealed, run.files, network, True)  # it can be asked about from here on
    private = await brings(run, tool, call.id, arguments)
    # Last, and nothing is waited for after it: what it is judged by is what is so when the call begins.
    return tool, arguments, private, await run.gate(run, tool, call, arguments)


def _parse_edited(tool: Tool, edited: str) -> dict[str, Any]:
    try:
        return tool.parse(edited)
    except ToolError as error:
        raise Refused(
            f"the person changed the arguments of this call, and it was not run: {error}",
            not_run="bad_arguments",
        ) from None


def _parsed(tool: Tool, arguments: str) -> dict[str, Any]:
    try:
        return tool.parse(arguments)
    except ToolError as error:
        raise ToolError(str(error), not_run="bad_arguments") from None


def _refuse_denied(run: Run, tool: Tool, call: ToolCall, arguments: dict[str, Any], what: str) -> None:
    """`what` has become of a call that was let pass once, and still it must not be one that a rule denies."""
    verdict = run.authority.rules.judge(asked_of(run, tool, arguments))
    if verdict.action == "deny":
        run.log.write(AccessDenied, what=tool.name, detail=verdict.why, call_id=call.id)
        raise Refused(
            f"{what} it is denied by {verdict.why}: {tool.name} will not run. Find another way.",
            not_run="denied",
        )


async def _execute(
    run: Run,
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    written: str | None,
    address: AddressFrom,
) -> ToolResult:
    """Run a call, and tell the model if it was `written` otherwise than it asked for."""
    result = await run_tool(run, tool, call, arguments, address)
    # Code that the model wrote reads the bare result: it called a function, and nobody tells a function.
    if written is None or written == call.arguments or "/" in call.id or result.as_read:
        return result
    told = f"[the person changed the arguments of this call to {_short(written, 1000)}]"
    return replace(result, text=f"{told}\n{result.text}")


async def _admit(run: Run, tool: Tool, arguments: dict[str, Any]) -> ToolResult | None:
    """Refuse what the tool itself says cannot be carried out. A program's own may quote what it read."""
    if tool.admit is None:
        return None
    try:
        await briefly(tool.admit, arguments, run.id)
    except TimeoutError:
        raise ToolError(
            f"{tool.name} was not called: its admit function said nothing within {threads.BRIEFLY:g} s"
        ) from None
    except Exception as error:
        if ours(tool.admit):
            raise
        unwind(error)
        refused = failure(error) if isinstance(error, ToolError) else broken(error)
        return await with_private(run, tool, arguments, refused)
    return None


def _unknown(run: Run, name: str) -> ToolError:
    names = sorted(spec.name for spec in run.shown)
    near = nearest(run, name)
    hint = f" Did you mean {near}?" if near else ""
    if any(skill.name == name for skill in run.skills):  # models take what they were told of for a tool
        hint = f" It is a skill: read it with {SKILL}(name={name!r})."
    yours = ", ".join(names) or "none"
    return ToolError(f"there is no tool {name!r} here.{hint} Your tools: {yours}", not_run="unknown_tool")


def _refuse_repetition(run: Run, tool: Tool, call: ToolCall) -> None:
    outcomes = run.state.attempts.get((tool.name, call.arguments), [])
    if call.id in run.state.copies and circling(outcomes):
        raise ToolError(
            f"not run: {tool.name} was called with exactly these arguments {CIRCLE} times in this reply "
            "alone, always with the same outcome. Change them, use another tool, or answer with what you "
            "have.",
            not_run="repeated",
        )
    failed = outcomes[-SAME_FAILURES:]
    if len(failed) == SAME_FAILURES and all(is_error for is_error, _ in failed):
        raise ToolError(
            f"not run: {tool.name} has failed {len(outcomes)} times with exactly these arguments. "
            "Change them, use another tool, or answer with what you have.",
            not_run="repeated",
        )


def _was_known(run: Run, call: ToolCall, result: ToolResult) -> bool:
    """Whether it was known when a call began what private data it brings: else it is told as soon as it is
    saved, since code beside it would find it."""
    begun = run.state.begun.get(call.id)
    return set(names_in(call.name, result.private)) <= set(begun.private if begun is not None else ())


def _fit(run: Run, name: str, text: str, most: int) -> tuple[str, str | None]:
    """What is shown of a result: all of it, or its beginning and where the rest is, which is also named."""
    if len(text) <= most:
        return text, None
    cut = text[: text.rfind("\n", 0, most) if text.rfind("\n", 0, most) > most // 2 else most]
    notice = f"[cut: {len(cut)} of {len(text)} characters shown"
    try:
        tool = run.tools.get(name)
        folder = WEB if tool is not None and tool.effect == "network" else HOME
        path = run.files.save(f"{name}.txt", text.encode("utf-8", "replace"), folder)
    except ToolError:
        return f"{cut}\n{notice}; ask for less at once]", None
    return f"{cut}\n{notice}; all of it is in {path}]", path


def _short(arguments: str, most: int = 80) -> str:
    return arguments if len(arguments) <= most else arguments[: most - 3] + "…"
