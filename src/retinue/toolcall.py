"""One tool call, from what the model wrote to the result it reads; and when to stop calling.

Whatever goes wrong here becomes a result that the model can act on: an unknown tool, invalid arguments,
a refusal, a timeout, an exception. Called by the loop; knows no tool by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any, ParamSpec, cast

import msgspec

from retinue import threads
from retinue.approvals import Asked
from retinue.clock import Clock, say
from retinue.errors import (
    Fenced,
    ForbiddenPath,
    Refused,
    RetinueError,
    StoreError,
    ToolError,
    Unwritable,
    told,
    unwind,
)
from retinue.events import AccessDenied, MessageReceived, Progressed, ToolCalled, ToolReturned
from retinue.fold import CIRCLE, circling
from retinue.replies import plausible
from retinue.run import Run, no_guidance, storable
from retinue.run_state import RunState
from retinue.threads import briefly, in_own_task, ours
from retinue.tools.base import Tool, ToolContext, ToolResult, as_text
from retinue.tools.judged import judged
from retinue.types import AddressFrom, AssistantMessage, EndedBy, ReportFields, Source, ToolCall, Usage
from retinue.workspace import HOME, WEB

P = ParamSpec("P")
SAME_FAILURES = 2
"""An identical call that failed this often is not run again."""
ONLY_DELEGATING = 6
"""Steps of a child in which it did nothing but delegate."""

READING = ("read", "view")
"""Rules about these are also about a call of another tool that reads a file."""

UNKNOWN = (
    "outcome unknown: the process stopped while this call was running, and running it twice could do harm. "
    "Look at what is there before you decide whether to make the call again."
)


def tidy(message: AssistantMessage, seen: Set[str], step: int) -> AssistantMessage:
    """A reply as the log takes it. Call ids name results, approvals and children: none may come twice."""
    ids = [storable(call.id) for call in message.calls]
    if len(set(ids)) == len(ids) and seen.isdisjoint(ids):
        return message
    calls = tuple(
        msgspec.structs.replace(call, id=f"{call.id}.{step}.{index}")
        for index, call in enumerate(message.calls)
    )
    return msgspec.structs.replace(message, calls=calls)


def why_stop(run: Run) -> tuple[EndedBy, str] | None:
    """Why there must be no further step with tools, as a fact and in words; or None."""
    state = run.state
    if state.work_turns >= run.max_turns:
        return "max_turns", f"max turns reached: {state.work_turns} of {run.max_turns}"
    short = run.short_of_time(state.step + 1)
    if short is not None:
        return "time", short
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


def asked_of(run: Run, tool: Tool, arguments: dict[str, Any]) -> Asked:
    """A call as the rules see it."""
    rules = run.authority.rules
    to_be_sealed = rules.sandbox != "off" and tool.unsealed is not None
    unsealed = (
        tool.unsealed(run.files, rules.sandbox_network, False) if to_be_sealed and tool.unsealed else None
    )
    effect = tool.effect_of(arguments)
    reading = READING if effect != tool.effect else ()
    return Asked(
        tool=tool.name,
        effect=effect,
        risk=tool.risk_of(arguments),
        made_up=tool.made_up(arguments),
        agent=run.spec.name,
        arguments=arguments,
        aliases=(*tool.aliases, *tool.same, *reading),
        above=run.path[:-1],
        temporary=run.spec.lifecycle == "temporary",
        files=run.files,
        sealed=to_be_sealed and not unsealed,
        unsealed=unsealed or "",
    )


async def perform(run: Run, call: ToolCall, most: int | None = None) -> ToolResult:
    """Run one call and log its result, of which no more than `most` characters are kept.

    What comes back is what the log holds: code must not see more now than it would after a restart.
    """
    began = time.perf_counter()
    name = run.tools[call.name].name if call.name in run.tools else call.name
    try:
        result = await _call(run, call)
    except ToolError as error:
        unwind(error)
        result = _failure(error)
    except (asyncio.CancelledError, SystemExit) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        unwind(error)
        result = _broken(name, error)
    except RetinueError:
        raise
    except Exception as error:  # of what a program gave a tool besides its function: `admit`, `private`
        unwind(error)
        result = _broken(name, error)
    text, saved = _fit(run, name, storable(result.text), most or run.limits.tool_output)
    result = replace(result, text=text, fields=_of_code(result.fields, most))
    duration = int((time.perf_counter() - began) * 1000)
    try:
        await _keep(run, result, saved)
    finally:  # who is stopped just then has still done this
        result = _noted(run, call, name, result, duration)
    await _guide(run, call, result)
    return result


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
    """Before the log names them: whoever takes the run up again finds what it names."""
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
        result = ToolResult(text=_useless(name, str(error)), is_error=True)
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
        sources=result.sources,
        files=result.files,
        usage=result.usage,
        rolled_back=result.rolled_back,
        passing=result.passing,
        not_run=result.not_run,
        not_started=result.not_started,
        wrong=result.wrong,
        children=result.children,
        private=result.private,
        found=result.found,
        links=result.links,
        fields=result.fields,
    )


def _useless(name: str, why: str) -> str:
    return f"{name} ran, but what it returned cannot be used: {why}"


def _sound(name: str, result: str | ToolResult) -> ToolResult:
    """A result with the parts that are looked at before it is logged; the log looks at the rest."""
    if isinstance(result, str):
        return ToolResult(text=result)
    text, usage = cast("Any", result.text), cast("Any", result.usage)
    if not isinstance(text, str):
        raise ToolError(_useless(name, f"its text is {type(text).__name__}, not text"))
    if not isinstance(usage, Usage):
        raise ToolError(_useless(name, f"its usage is {type(usage).__name__}, not Usage"))
    if isinstance(cast("Any", result.files), str):
        raise ToolError(_useless(name, "its files are one text, not several"))
    known = plausible(usage)
    return result if known is usage else replace(result, usage=known)


def _broken(name: str, error: BaseException) -> ToolResult:
    return ToolResult(text=f"{name} failed: {told(error)}", is_error=True)


def _failure(error: ToolError) -> ToolResult:
    return ToolResult(
        text=str(error),
        is_error=True,
        not_run=error.not_run,
        not_started=error.not_started,
    )


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
            return ToolResult(text=UNKNOWN, is_error=True, not_run="outcome_unknown")
        arguments = tool.parse(begun.arguments)
        tool = await judged(given, arguments)
        return await _execute(run, tool, call, arguments, begun.arguments, begun.address)
    _refuse_repetition(run, tool, call)
    arguments = _parsed(tool, call.arguments)
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
    admitted = await run.gate(run, tool, call, arguments)
    edited = admitted.edited
    if edited is not None:
        arguments = _parse_edited(tool, edited)
        tool = await judged(given, arguments)
        _refuse_denied(run, tool, call, arguments)
    run.log.note(
        ToolCalled,
        call_id=call.id,
        name=tool.name,
        arguments=call.arguments if edited is None else edited,
        effect=tool.effect_of(arguments),
        repeatable=tool.repeatable,
        address=admitted.address,
    )
    if not tool.repeatable:
        await (
            run.log.commit()
        )  # the intent must survive a crash, or nobody would know that it may have happened
    return await _execute(run, tool, call, arguments, edited, admitted.address)


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


def _refuse_denied(run: Run, tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> None:
    """A person may change a call, and still not to one that a rule denies."""
    verdict = run.authority.rules.judge(asked_of(run, tool, arguments))
    if verdict.action == "deny":
        run.log.write(AccessDenied, what=tool.name, detail=verdict.why, call_id=call.id)
        raise Refused(
            f"the person changed the arguments of this call, and it is denied by {verdict.why}: {tool.name} "
            "will not run. Find another way.",
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
    result = await _run_tool(run, tool, call, arguments, address)
    # Code that the model wrote reads the bare result: it called a function, and nobody tells a function.
    if written is None or written == call.arguments or "/" in call.id or result.as_read:
        return result
    told = f"[the person changed the arguments of this call to {_short(written, 1000)}]"
    return replace(result, text=f"{told}\n{result.text}")


async def _run_tool(
    run: Run, tool: Tool, call: ToolCall, arguments: dict[str, Any], address: AddressFrom
) -> ToolResult:
    over = False

    def progress(text: str) -> None:
        if not over:  # a plain function that was left behind goes on, its call does not
            run.log.show(
                Progressed(run_id=run.id, root_id=run.root_id, depth=run.depth, call_id=call.id, text=text)
            )

    def denied(what: str, detail: str) -> None:
        run.log.write(AccessDenied, what=what, detail=detail, call_id=call.id)

    asked = asked_of(run, tool, arguments)
    about = ToolContext(
        run_id=run.id,
        root_id=run.root_id,
        depth=run.depth,
        agent=run.spec.name,
        call_id=call.id,
        files=run.files,
        progress=_in_this_loop(progress),
        denied=_in_this_loop(denied),
        closed=run.authority.rules.closed(asked),
        forbids=partial(_forbids, run, tool, address),
        # One that cannot be sealed is here because a person was told so and approved it.
        sandbox="off" if not asked.sealed else "open" if run.authority.rules.sandbox_network else "closed",
        changes=run.recorder.of(run, call.id),
        deps=run.deps,
        metadata=run.metadata,
    )
    limit = run.limits.tool_timeout if tool.timeout == "default" else tool.timeout
    clock = None if limit is None else run.clock.of_tool(limit)
    try:
        async with (
            run.recorder.around(run, tool, call.id, sealed=asked.sealed),
            contextlib.nullcontext() if clock is None else clock.start(),
        ):
            work = tool.call(arguments, about)
            returned = await (work if tool.ours else in_own_task(work))
            result = _sound(tool.name, as_text(tool.name, returned))
        result = await _with_private(run, tool, arguments, result)
    except ToolError as error:
        if isinstance(error, ForbiddenPath):  # here for every tool there is, so that none forgets it
            denied("path", str(error))
        unwind(error)
        # It may quote what was read; even of a file that is not there it names those beside it.
        return await _with_private(run, tool, arguments, _failure(error))
    except (Fenced, StoreError):
        raise
    except Exception as error:
        unwind(error)
        if isinstance(error, TimeoutError) and clock and clock.expired:  # and not one of the tool's own
            return ToolResult(text=_late(tool, clock), is_error=True)
        return await _with_private(run, tool, arguments, _broken(tool.name, error))
    finally:
        over = True
    if tool.effect != "delegate":  # a child charges what it uses itself
        run.budget.charge_usage(result.usage)
    return result


def _late(tool: Tool, clock: Clock) -> str:
    seconds = min(each for each in (clock.seconds, clock.whole) if each is not None)
    late = f"{tool.name} did not finish within {say(seconds)} s"
    if tool.threaded:
        late += ". It runs in a thread, which cannot be stopped: what it does may still happen"
    else:
        late += " and was stopped"
    return f"{late}. Ask for less at once."


def _in_this_loop(function: Callable[P, None]) -> Callable[P, None]:
    """The same for a tool that runs in a thread: carried out in this loop, in the order of the calls."""
    loop, here = asyncio.get_running_loop(), threading.get_ident()

    def carry_out(*args: P.args, **kwargs: P.kwargs) -> None:
        with contextlib.suppress(Fenced, StoreError):  # the run finds out when it next writes
            function(*args, **kwargs)

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if threading.get_ident() == here:
            function(*args, **kwargs)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to tell
            loop.call_soon_threadsafe(partial(carry_out, *args, **kwargs))

    return call


async def _with_private(run: Run, tool: Tool, arguments: dict[str, Any], result: ToolResult) -> ToolResult:
    """A result with the names of the private data in it. What a tool of ours refuses to do shows none; a
    program's own may say that it did not run, and show what it has read."""
    if tool.private is None or (result.not_run and tool.ours):
        return result
    try:
        names = await briefly(tool.private, arguments, run.files)
    except TimeoutError:  # what nobody knows of is taken for private
        names = (f"what {tool.name} returned",)
    return replace(result, private=(*result.private, *names))


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
        refused = _failure(error) if isinstance(error, ToolError) else _broken(tool.name, error)
        return await _with_private(run, tool, arguments, refused)
    return None


def _forbids(run: Run, tool: Tool, address: AddressFrom, url: str) -> Refused | None:
    """Why a call must not go on to another address, in words that follow that address.

    Where one leads that a model put together is the model's choice as well.
    """
    verdict = run.judge(run, tool, {"url": url}, address == "composed")
    if verdict.action == "deny":
        return Refused(f"which is denied by {verdict.why}. Use another source.", not_run="denied")
    if verdict.action == "ask":
        needs = f"which a person must approve by itself ({verdict.why})"
        return Refused(f"{needs}. Call {tool.name} with that address if you need it.")
    return None


def _unknown(run: Run, name: str) -> ToolError:
    names = sorted(spec.name for spec in run.shown)
    near = difflib.get_close_matches(name, names, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
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
