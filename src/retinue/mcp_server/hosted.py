"""The runs of hosts: whose they are, how they are followed, taken up, answered and cancelled.

`HostedRuns` knows no method of the protocol; `agent_tools` and `tasks` speak it. It keeps nothing that the
log does not have, but for what it has read of it already.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

from retinue.app import Retinue
from retinue.engine.config import Answering
from retinue.errors import ConfigError, RetinueError
from retinue.events import ApprovalRequested, LiveEvent, RunStarted
from retinue.mcp_server.account import RunAccount, line_of
from retinue.mcp_server.caller import Abilities, Caller
from retinue.mcp_server.forms import FormAnswer
from retinue.store.base import RunRow
from retinue.types import Report

log = logging.getLogger("retinue.mcp")
MOST_ACCOUNTS = 64
"""Workflows whose reading is kept, so that who asks often has only what is new read."""
ENDING_SECONDS = 10.0
"""For a cancelled run to come to its end."""
CHUNK = 1000
GATHER_SECONDS = 2.0
"""At most, for others at work to come with questions too: clients take few rounds of them."""

Tell = Callable[[float, str], Awaitable[None]]
Ask = Callable[[ApprovalRequested], Awaitable[FormAnswer | None]]


def _everybody(caller: Caller) -> None:
    pass


@dataclass(kw_only=True, slots=True)
class _Kept:
    account: RunAccount
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """How far a run was followed: to its report, to questions, to the end of patience, or until we left."""

    account: RunAccount
    report: Report | None = None
    questions: tuple[ApprovalRequested, ...] = ()
    left: bool = False


class HostedRuns:
    """`Retinue` for hosts. One for each server, whatever number of clients it has."""

    def __init__(
        self, retinue: Retinue, *, admit: Callable[[Caller], None] = _everybody, waits: bool = False
    ) -> None:
        """`admit` raises `ConfigError` for who has begun too many runs. `waits`: what needs approval, and the
        host has no form for, waits for an answer from elsewhere instead of being refused."""
        self.retinue = retinue
        self._admit, self._waits = admit, waits
        self.leaving = False
        self._following: set[anyio.CancelScope] = set()
        self._accounts: OrderedDict[str, _Kept] = OrderedDict()
        self._taking = asyncio.Lock()

    def leave(self) -> None:
        """Follow nothing any more: the runs go on where somebody takes them up. For a server that stops."""
        self.leaving = True
        for scope in self._following:
            scope.cancel()

    # -- whose

    async def find(self, caller: Caller, run_id: str) -> RunRow:
        """A workflow that this caller may reach. To one who may not it is as if there were none."""
        row = await self.retinue.store.run(run_id) if _is_id(run_id) else None
        if row is not None and await self.reaches(caller, row):
            return row
        raise ConfigError(
            f"there is no run {run_id[:80]!r} of yours in {self.retinue.cwd}",
            fix="give the run_id that a call returned; a server for another folder is started with --cwd",
        )

    async def reaches(self, caller: Caller, row: RunRow) -> bool:
        """Whether a run is one that a host of this folder, and this caller, may know of."""
        if row.parent_id is not None or not self.retinue.take_up.belongs(row):
            return False
        return caller.sees_all or await self._started_by(row) == caller.key

    async def _started_by(self, row: RunRow) -> str:
        first = await self.retinue.store.events(row.root_id, run_id=row.run_id, limit=1)
        return first[0].options.client if first and isinstance(first[0], RunStarted) else ""

    # -- begin, go on, end

    async def start(
        self, caller: Caller, abilities: Abilities, agent: str, given: str | Mapping[str, Any]
    ) -> str:
        if not caller.may_ask:
            raise ConfigError(
                f"{caller.name} may look and not ask: this token has the role {caller.role}",
                fix="ask whoever runs the server for a token with the role ask",
            )
        if self.leaving:
            raise ConfigError("this server is stopping", fix="ask again in a moment")
        self._admit(caller)
        answering = self._answering(caller, abilities)
        return await self.retinue.start(
            agent, given, client=caller.key, answering=answering, traceparent=abilities.traceparent
        )

    def _answering(self, caller: Caller, abilities: Abilities) -> Answering:
        """Whether there is anyone to ask: a person at the host who may answer, by a form, or elsewhere."""
        return "ask" if self._waits or (abilities.forms and caller.may_answer) else "refuse"

    async def take_up(self, row: RunRow, caller: Caller, abilities: Abilities) -> None:
        """Go on with a run whose process is gone: somebody still wants it."""
        if self.leaving or not await self.retinue.abandoned(row.root_id):
            return
        async with self._taking:
            if self.retinue.is_running(row.root_id):
                return
            log.info("taking up %s for %s", row.root_id, caller.name)
            try:
                await self.retinue.resume(row.root_id, answering=self._answering(caller, abilities))
            except RetinueError:
                if await self.retinue.abandoned(row.root_id):  # else somebody was faster
                    raise

    async def cancel(self, run_id: str, reason: str) -> None:
        await self.retinue.cancel(run_id, reason)

    async def answer(self, caller: Caller, approval_id: str, answer: FormAnswer) -> None:
        """Say to a run what a person said. Who comes too late has not answered, and that is no error."""
        try:
            await self.retinue.answer(approval_id, answer.decision, reason=answer.reason, by=caller.name)
        except RetinueError as error:
            log.warning("an answer to %s did not count: %s", approval_id, error)

    @asynccontextmanager
    async def dropped(self, run_id: str) -> AsyncGenerator[None]:
        """Cancel a run and everything below it if its caller gives up, and wait for its end."""
        try:
            yield
        except anyio.get_cancelled_exc_class():
            if not self.leaving:
                with anyio.move_on_after(ENDING_SECONDS, shield=True), suppress(RetinueError):
                    await self.retinue.cancel(run_id, "the host dropped the call")
                    await self.retinue.wait(run_id)
            raise

    # -- look and follow

    async def account(self, root_id: str) -> RunAccount:
        """What the log says now. Only what is new is read."""
        kept = self._accounts.setdefault(root_id, _Kept(account=RunAccount()))
        self._accounts.move_to_end(root_id)
        while len(self._accounts) > MOST_ACCOUNTS:
            self._accounts.popitem(last=False)
        async with kept.lock:
            while True:
                found = await self.retinue.store.events(root_id, after=kept.account.pos, limit=CHUNK)
                for event in found:
                    kept.account.apply(event)
                if len(found) < CHUNK:
                    return kept.account

    async def follow(
        self,
        run_id: str,
        *,
        tell: Tell,
        ask: Ask | None = None,
        stops_at_questions: bool = False,
        answered: frozenset[str] = frozenset(),
        seconds: float | None = None,
        from_now: bool = False,
    ) -> Followed:
        """Follow a run, telling of each step of its tree, or of those `from_now` on.

        `ask` puts its questions to the person at the host while it is followed; with `stops_at_questions` it
        is followed up to the first one that is not `answered`.
        """
        account = RunAccount()
        known = await self.retinue.store.count(run_id)
        questions: tuple[ApprovalRequested, ...] = ()
        with anyio.CancelScope() as scope:
            self._following.add(scope)
            if self.leaving:
                scope.cancel()
            try:
                async with anyio.create_task_group() as asking:
                    with anyio.move_on_after(seconds):
                        questions = await self._read(
                            run_id,
                            account,
                            _Telling(tell, known if from_now else 0),
                            _Asking(asking, ask) if ask is not None else None,
                            answered if stops_at_questions else None,
                            known,
                        )
                    asking.cancel_scope.cancel()
            finally:
                self._following.discard(scope)
        if account.report is None and not questions and not scope.cancel_called and seconds is None:
            await self.retinue.wait(run_id)  # raises what it died of
        return Followed(account=account, report=account.report, questions=questions, left=scope.cancel_called)

    async def _read(
        self,
        run_id: str,
        account: RunAccount,
        telling: _Telling,
        asking: _Asking | None,
        answered: frozenset[str] | None,
        known: int,
    ) -> tuple[ApprovalRequested, ...]:
        """Returns the questions that it stopped at."""
        open_: tuple[ApprovalRequested, ...] = ()
        with anyio.CancelScope() as gathering:
            async with aclosing(self.retinue.watch(run_id)) as events:
                async for live in events:
                    event = account.apply(live)
                    await telling.hear(account, event)
                    caught_up = account.pos >= known  # what was asked before may have been answered since
                    if asking is not None:
                        asking.hear(account, caught_up=caught_up)
                    if answered is not None and caught_up:
                        asked = account.story.approvals.values()
                        open_ = tuple(one for one in asked if one.approval_id not in answered)
                        if open_ and account.waits_only():
                            return open_
                        soon = anyio.current_time() + GATHER_SECONDS
                        gathering.deadline = min(gathering.deadline, soon) if open_ else math.inf
        return open_


class _Telling:
    """Tells of the steps after a place in the log."""

    def __init__(self, tell: Tell, after: int) -> None:
        self.tell, self.after, self.count = tell, after, 0

    async def hear(self, account: RunAccount, event: LiveEvent) -> None:
        line = line_of(account, event)
        if line is not None and account.pos > self.after:
            self.count += 1
            await self.tell(self.count, line)


class _Asking:
    """Puts questions to the person at the host, and withdraws those that somebody else has answered."""

    def __init__(self, tasks: anyio.abc.TaskGroup, ask: Ask) -> None:
        self._tasks, self._ask = tasks, ask
        self._open: dict[str, anyio.CancelScope] = {}

    def hear(self, account: RunAccount, *, caught_up: bool) -> None:
        waiting = account.story.approvals
        for approval_id in [one for one in self._open if one not in waiting]:
            self._open.pop(approval_id).cancel()
        if not caught_up:
            return
        for approval_id, asked in waiting.items():
            if approval_id not in self._open:
                self._open[approval_id] = scope = anyio.CancelScope()
                self._tasks.start_soon(self._put, asked, scope)

    async def _put(self, asked: ApprovalRequested, scope: anyio.CancelScope) -> None:
        with scope:
            await self._ask(asked)


def _is_id(run_id: str) -> bool:
    return 0 < len(run_id) <= 64 and run_id.isascii() and "\0" not in run_id
