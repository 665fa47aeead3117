"""Puts questions to the program's own `approve` function, and turns whatever it does into an answer.

The function is other people's code: it may return anything, raise, or never end. Each question put to it
ends all the same, in its answer or in a refusal that says what went wrong. Called by `engine.questions`
through the app, for new questions and for those that were open before a run was taken up. Its answer is a
signal like any other: whoever else answers first wins, and then the function is let go.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from retinue.engine.answers import FAILED_FUNCTION, Answer, checked
from retinue.errors import ConfigError, StoreError, told, unwind
from retinue.events import ApprovalRequested, Decision
from retinue.threads import in_own_task, in_own_thread, is_async

log = logging.getLogger("retinue.engine")

SOON, LATEST = 0.1, 5.0
"""Seconds between tries to hand over an answer while the store fails: the first, and the longest."""

Approve = Callable[[ApprovalRequested], Answer | Awaitable[Answer]]


class Give(Protocol):
    async def __call__(
        self, approval_id: str, decision: Decision, *, reason: str, arguments: str | None, by: str
    ) -> object: ...


class ApproveFunction:
    """`give` hands an answer over, as anybody's answer is."""

    def __init__(self, give: Give) -> None:
        self._give = give
        self._asking: set[asyncio.Task[None]] = set()

    def ask(self, approve: Approve, asked: ApprovalRequested, seconds: float) -> Callable[[], None]:
        """Begin to ask. Returns how to withdraw the question."""
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._put(approve, asked, seconds, gone), name=f"ask {asked.approval_id}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

        def withdraw() -> None:
            if not gone.done():
                gone.set_result(None)

        return withdraw

    def close(self) -> None:
        for task in self._asking:
            task.cancel()

    async def _put(
        self, approve: Approve, asked: ApprovalRequested, seconds: float, gone: asyncio.Future[None]
    ) -> None:
        called = asyncio.get_running_loop().time()
        calling = asyncio.create_task(_outcome(approve, asked), name=f"approve {asked.approval_id}")
        try:
            await asyncio.wait({calling, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            calling.cancel()  # nobody waits for it: it may not let itself be stopped
        if gone.done():
            return
        late = asyncio.get_running_loop().time() - called > seconds  # one that blocks the loop is done by now
        if late or not calling.done():
            given = _refusal(
                asked, f"it gave no answer within {seconds:g} s (the setting approvals.callback_seconds)"
            )
        elif calling.cancelled():
            given = _refusal(asked, "CancelledError: it was cancelled")
        else:
            given = _as_answer(asked, *calling.result())
        await self._hand_over(asked, given, gone)

    async def _hand_over(self, asked: ApprovalRequested, given: Answer, gone: asyncio.Future[None]) -> None:
        """An answer in hand is given once the store takes it, unless the question is gone by then."""
        delay = SOON
        while not gone.done():
            try:
                await self._give(
                    asked.approval_id,
                    given.decision,
                    reason=given.reason,
                    arguments=given.arguments,
                    by=given.by,
                )
            except StoreError as error:
                log.warning("%s: the answer cannot be stored yet: %s", asked.approval_id, error)
                await asyncio.wait({gone}, timeout=delay)
                delay = min(2 * delay, LATEST)
            except ConfigError as error:
                if given.by == FAILED_FUNCTION:
                    return  # the question is not there any more
                given = _refusal(asked, str(error))
            else:
                return


async def _outcome(approve: Approve, asked: ApprovalRequested) -> tuple[Any, BaseException | None]:
    """What the function returned, or raised: also what would end the whole program."""
    try:
        if is_async(approve):
            given: Any = approve(asked)
        else:
            given = await in_own_thread(approve, asked)
        return (await in_own_task(given) if inspect.isawaitable(given) else given), None
    except BaseException as error:
        return None, error


def _as_answer(asked: ApprovalRequested, given: Any, error: BaseException | None) -> Answer:
    if error is not None:
        unwind(error)
        return _refusal(asked, told(error))
    if not isinstance(given, Answer):
        plain = given is None or isinstance(given, bool | int | float | str)
        what = repr(given)[:100] if plain else f"a {type(given).__name__}"
        return _refusal(
            asked, f"it returned {what}, not an Answer: return Answer(decision='approve') or 'reject'"
        )
    try:
        return checked(given)
    except ConfigError as wrong:
        return _refusal(asked, str(wrong))


def _refusal(asked: ApprovalRequested, why: str) -> Answer:
    """The mistake is the program's: it is told so, and the model reads why its call did not run."""
    log.warning("%s: the approve function failed, and %s is refused: %s", asked.approval_id, asked.tool, why)
    return Answer(decision="reject", reason=f"the approve function failed: {why}", by=FAILED_FUNCTION)
