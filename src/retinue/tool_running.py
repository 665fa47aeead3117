"""A tool at work: what the rules are asked about a call, its context, its time, and a result that is sound.

Called by `toolcall`, which decides whether a call runs. Whatever a tool raises becomes a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ParamSpec, cast

from retinue.authority.rules import Asked
from retinue.clock import Clock, say
from retinue.errors import (
    Fenced,
    ForbiddenPath,
    NoHandles,
    Refused,
    StoreError,
    ToolError,
    in_words,
    told,
    unwind,
)
from retinue.events import AccessDenied, Progressed
from retinue.replies import plausible
from retinue.run import Run
from retinue.run_log import storable
from retinue.threads import briefly, in_own_task
from retinue.tools.base import FormFilled, FormQuestion, SampleRequest, Tool, ToolContext, ToolResult, as_text
from retinue.tools.picture_bounds import bounded
from retinue.types import AddressFrom, Image, Reply, ToolCall, Usage

P = ParamSpec("P")

HANDLE_SECONDS = 60.0
"""How long a call waits for a file handle."""
HANDLE_PAUSE, LONGEST_PAUSE = 0.02, 0.5
READING = ("read", "view")
"""Rules about these are also about a call of another tool that reads a file."""


def asked_of(run: Run, tool: Tool, arguments: dict[str, Any]) -> Asked:
    """A call as the rules see it."""
    rules = run.authority.rules
    to_be_sealed = rules.sandbox != "off" and tool.unsealed is not None
    unsealed = (
        tool.unsealed(run.files, rules.sandbox_network, False) if to_be_sealed and tool.unsealed else None
    )
    sealed = to_be_sealed and not unsealed
    effect = tool.effect_of(arguments)
    reading = READING if effect != tool.effect else ()
    return Asked(
        tool=tool.name,
        effect=effect,
        risk=tool.risk_of(arguments),
        made_up=tool.made_up(arguments),
        starts=() if tool.starts is None else tool.starts(arguments, run.id),
        agent=run.spec.name,
        arguments=arguments,
        aliases=(*tool.aliases, *tool.same, *reading),
        above=run.path[:-1],
        temporary=run.spec.lifecycle == "temporary",
        files=run.files,
        sealed=sealed,
        unsealed=unsealed or "",
    )


async def asked_before(run: Run, tool: Tool, arguments: dict[str, Any]) -> Asked:
    """The same before it may run, with what has to be looked for on the disk."""
    asked = asked_of(run, tool, arguments)
    if tool.ways_out is None or not asked.sealed or run.authority.rules.auto != "sandboxed":
        return asked
    return replace(asked, ways_out=tuple(await asyncio.to_thread(tool.ways_out, run.files)))


def refuse_another(tool: Tool, call: ToolCall, before: tuple[str, str] | None) -> None:
    """Refuse a call whose id was that of another one, of that tool with those arguments, before a restart: a
    person was asked about it, or it had begun. Code may ask for something else when it runs once more."""
    if before is not None and before != (tool.name, storable(call.arguments)):
        raise Refused(
            f"not run: {tool.name} was called in the place of another call, of {before[0]} with "
            f"{before[1][:200]}, which is what was approved or begun before the restart. Call it anew."
        )


def useless(name: str, why: str) -> str:
    return f"{name} ran, but what it returned cannot be used: {why}"


def _sound(name: str, result: str | ToolResult) -> ToolResult:
    """A result with the parts that are looked at before it is logged; the log looks at the rest."""
    if isinstance(result, str):
        return ToolResult(text=result)
    text, usage = cast("Any", result.text), cast("Any", result.usage)
    if not isinstance(text, str):
        raise ToolError(useless(name, f"its text is {type(text).__name__}, not text"))
    if not isinstance(usage, Usage):
        raise ToolError(useless(name, f"its usage is {type(usage).__name__}, not Usage"))
    if isinstance(cast("Any", result.files), str):
        raise ToolError(useless(name, "its files are one text, not several"))
    images = cast("Any", result.images)
    if not isinstance(images, tuple | list) or not all(
        isinstance(each, Image) for each in cast("list[Any]", images)
    ):
        raise ToolError(useless(name, "its images are not Images"))
    known = plausible(usage)
    return result if known is usage else replace(result, usage=known)


def broken(error: BaseException) -> ToolResult:
    """Whose result it is stands beside it, wherever it is shown."""
    why = in_words(error) if isinstance(error, Exception) else told(error)
    return ToolResult(text=why, is_error=True)


def failure(error: ToolError) -> ToolResult:
    return ToolResult(
        text=str(error),
        is_error=True,
        not_run=error.not_run,
        not_started=error.not_started,
        wrong=error.not_started if error.too_many else 0,
    )


async def run_tool(
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

    @contextlib.contextmanager
    def asking() -> Generator[None]:
        """The time of a call stands still while a person is asked for its sake; what a model takes then is
        bounded by itself."""
        held = clock or run.clock
        held.pause()
        try:
            yield
        finally:
            held.resume()

    async def inquire(question: FormQuestion) -> FormFilled:
        with asking():
            return await run.inquire(run, tool, call, question)

    async def sample(request: SampleRequest) -> Reply:
        with asking():
            return await run.sample(run, tool, call, request)

    limit = run.limits.tool_timeout if tool.timeout == "default" else tool.timeout
    clock = None if limit is None else run.clock.of_tool(limit)
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
        inquire=inquire,
        sample=sample,
        seconds=math.inf if (left := run.clock.of_tool(math.inf).left) is None else left,
    )
    private: tuple[str, ...] = ()  # of a result that cannot be used as well
    try:
        async with (
            run.recorder.around(run, tool, call.id, sealed=asked.sealed),
            contextlib.nullcontext() if clock is None else clock.start(),
        ):
            returned = await _with_handles(tool, partial(tool.call, arguments, about))
            if isinstance(returned, ToolResult):
                private = names_in(tool.name, returned.private)
            result = _sound(tool.name, as_text(tool.name, returned))
            if result.images and not result.as_read:
                result = await asyncio.to_thread(bounded, result)
        result = await with_private(run, tool, arguments, result)
    except ToolError as error:
        if isinstance(error, ForbiddenPath):  # here for every tool there is, so that none forgets it
            denied("path", str(error))
        unwind(error)
        # It may quote what was read; even of a file that is not there it names those beside it.
        return await with_private(run, tool, arguments, replace(failure(error), private=private))
    except (Fenced, StoreError):
        raise
    except Exception as error:
        unwind(error)
        if isinstance(error, TimeoutError) and clock and clock.expired:  # and not one of the tool's own
            late = ToolResult(text=_late(tool, clock), is_error=True)
            return await with_private(run, tool, arguments, late)  # what it has saved by then is there
        return await with_private(run, tool, arguments, replace(broken(error), private=private))
    finally:
        over = True
    if tool.effect != "delegate":  # a child charges what it uses itself
        run.budget.charge_usage(result.usage)
    return result


async def _with_handles(tool: Tool, begin: Callable[[], Awaitable[Any]]) -> Any:
    """What a call returns. One of ours for which nothing can be opened waits for a handle, as connections to
    models do, unless it may have done something by then."""
    if not tool.ours:
        return await in_own_task(begin())
    clock = asyncio.get_running_loop().time
    until, pause = clock() + HANDLE_SECONDS, HANDLE_PAUSE
    while True:
        try:
            return await begin()
        except NoHandles as error:
            if not (tool.repeatable or error.untouched):
                raise
            if clock() + pause > until:
                raise error.given_up() from None
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


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


async def with_private(run: Run, tool: Tool, arguments: dict[str, Any], result: ToolResult) -> ToolResult:
    """A result with the names of the private data in it. What a tool of ours refuses to do shows none; a
    program's own may say that it did not run, and show what it has read."""
    if tool.private is None or (result.not_run and tool.ours):
        return result
    return also_private(result, await _private_of(run, tool, arguments))


def also_private(result: ToolResult, names: Sequence[str]) -> ToolResult:
    """A result that rests on private data of these names too, each once."""
    if not names or not isinstance(cast("Any", result.private), tuple):  # else the log is who says so
        return result
    return replace(result, private=tuple(dict.fromkeys((*result.private, *names))))


def names_in(tool: str, said: object) -> tuple[str, ...]:
    """What was said to be private, where others said it: may be of any type, and is not nothing for that."""
    if isinstance(said, tuple | list) and all(isinstance(name, str) for name in cast("list[Any]", said)):
        return tuple(cast("list[str]", said))
    return (f"what {tool} returned",)


async def brings(run: Run, tool: Tool, call_id: str, arguments: dict[str, Any]) -> tuple[str, ...]:
    """The private data that a call may leave behind as soon as it has begun, by name."""
    recorded = run.brings(call_id)
    if recorded is not None:
        return recorded
    try:
        return names_in(tool.name, await _private_of(run, tool, arguments))
    except Exception as error:  # of a program's function, which is asked again for the result, and heard then
        unwind(error)
        return (f"what {tool.name} returned",)


async def _private_of(run: Run, tool: Tool, arguments: dict[str, Any]) -> tuple[str, ...]:
    """The names of the private data that a call returns."""
    if tool.private is None:
        return ()
    try:
        return await briefly(tool.private, arguments, run.files)
    except TimeoutError:  # what nobody knows of is taken for private
        return (f"what {tool.name} returned",)


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
