"""What people say to runs, wherever these run: answers, messages, cancels, each a signal in the store.

The process that works on a run reads its signals (`inbox.Inbox`). Where nobody works on it any more, a
message waits until it is taken up, and a cancel is carried out here. Used by the app alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from retinue.engine.abandoned import end, is_left
from retinue.engine.answers import Answer, checked
from retinue.engine.owners import Owners
from retinue.engine.shown import ShownRuns
from retinue.errors import ConfigError, RunError
from retinue.events import QUEUE, ApprovalRequested, Decision, LiveEvent, MessageReceived, RunFinished, now
from retinue.store.base import RunRow, Signal, Store
from retinue.store.follow import follow
from retinue.threads import to_its_end
from retinue.types import ENDED, Image

NOTICE = 2.0
"""Seconds in which a run that is at work has taken notice of what it was told."""


class Spoken(Struct, frozen=True, kw_only=True):
    """What a person says to a run. `rendered`: what the model reads, with what is attached, where that is
    more than the text."""

    text: str
    rendered: str = ""
    images: tuple[Image, ...] = ()


class AnswerGiven(Struct, frozen=True, kw_only=True):
    """What became of an answer. False if somebody else was `first`; `also` are the questions that waited
    too and that it was for as well."""

    first: bool
    also: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.first


class Outbox:
    """`shown` says whether anybody works on a workflow; `publish` tells of what is written here; `reload`
    reads the settings again, which an answer may have changed; `ended` does what is done when a workflow has
    ended."""

    def __init__(
        self,
        store: Store,
        owners: Owners,
        *,
        shown: ShownRuns,
        publish: Callable[[LiveEvent], None],
        reload: Callable[[], object],
        taking_up: Callable[[str], AbstractAsyncContextManager[None]],
        ended: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store, self._owners, self._shown, self._publish = store, owners, shown, publish
        self._taking_up, self._reload, self._ended = taking_up, reload, ended

    async def row(self, run_id: str) -> RunRow:
        row = await self._store.run(run_id)
        if row is None:
            raise _no_run(run_id)
        return row

    async def cancel(self, run_id: str, reason: str) -> bool:
        row = await self.row(run_id)
        if row.status in ENDED:
            return False
        await self._tell_to_stop(row, reason)
        # Below a root that has ended nobody is at work: an earlier version may have left such a child open.
        root = await self.row(row.root_id)
        ended = root.status in ENDED
        if ended or root.owner == QUEUE or await self.abandoned(row.root_id):
            try:
                async with self._taking_up(row.root_id):  # meanwhile nobody here goes on with it
                    await self._end(row, reason, ended=ended)
            except RunError:  # somebody has taken it up just now, here or elsewhere
                await self._tell_to_stop(row, reason)
        return True

    async def _end(self, row: RunRow, reason: str, *, ended: bool) -> None:
        """Carry a cancel out, unless somebody is there after all who does."""
        taken = await self._store.taken(row.root_id)
        if taken is None or not (ended or await is_left(self._owners, taken)):
            return
        if (await self.row(row.run_id)).status in ENDED:
            return
        for event in await end(self._store, row.root_id, row.run_id, reason, taken=taken):
            self._publish(event)  # pyright: ignore[reportArgumentType] # every event class is in the union
        if row.parent_id is None:
            await self._ended(row.root_id)

    async def answer(
        self, approval_id: str, decision: Decision, *, reason: str, arguments: str | None, by: str
    ) -> AnswerGiven:
        # The first signal wins, so one that nobody could read must not be sent.
        said = checked(Answer(decision=decision, reason=reason, arguments=arguments, by=by))
        row = await self.row(approval_id.partition(":")[0])
        waiting = {asked.approval_id: asked for asked in await self._store.waiting(row.root_id)}
        asked = waiting.pop(approval_id, None)
        if asked is None:
            events = await self._store.events(row.root_id, run_id=row.run_id)
            if any(isinstance(e, ApprovalRequested) and e.approval_id == approval_id for e in events):
                return AnswerGiven(first=False)
            raise ConfigError(
                f"there is no question {approval_id!r}", fix="'approvals()' lists those that wait"
            )
        _check_offered(asked, said)
        keeping = await self._keep(row, asked) if decision == "approve_always" else None
        # Before it is said: the run itself answers those in a moment, and whoever comes first has done so.
        also = tuple(one for one, other in waiting.items() if _same(asked, said, other))
        if not await self._send(row, "answer", approval_id, msgspec.structs.asdict(said)):
            if keeping is not None:
                await keeping()  # somebody else has answered: nothing is kept for it
            return AnswerGiven(first=False)
        for one in also:
            told = Answer(decision="approve", by=by, along_with=approval_id)
            other = await self.row(one.partition(":")[0])
            await self._send(other, "answer", one, msgspec.structs.asdict(told))
        return AnswerGiven(first=True, also=also)

    async def _keep(self, row: RunRow, asked: ApprovalRequested) -> Callable[[], Awaitable[None]]:
        """Write the rule of a question down, for the folder of its workflow. Returns how to take it back."""
        from retinue.settings.toml_file import forget_rule, keep_rule  # a parser comes with it

        root, rule = await self.row(row.root_id), asked.rule or ""
        if not root.cwd:
            raise ConfigError(f"{root.run_id} works in no folder that a rule could be kept for")
        new = await to_its_end(keep_rule, Path(root.cwd), rule)
        await to_its_end(self._reload)

        async def take_back() -> None:
            if new:
                await to_its_end(forget_rule, Path(root.cwd), rule)
                await to_its_end(self._reload)

        return take_back

    async def message(self, run_id: str, said: Spoken) -> bool:
        row = await self.row(run_id)
        ended = row.status in ENDED
        if ended and (row.parent_id is None or (await self.row(row.parent_id)).status in ENDED):
            return False
        last = await self._store.tail(row.root_id, limit=1)
        key = "message-" + secrets.token_hex(8)
        await self._send(row, "message", key, msgspec.to_builtins(said))
        if await self.abandoned(row.root_id):
            return True
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(NOTICE),
                contextlib.aclosing(follow(self._store, row.root_id, last[-1].pos)) as events,
            ):
                async for event in events:
                    if isinstance(event, MessageReceived) and event.message_id == key:
                        return True
                    over = isinstance(event, RunFinished) and not event.report.at_work
                    if over and event.run_id == (row.parent_id if ended else run_id):
                        return False
        return (await self.row(row.parent_id or run_id if ended else run_id)).status not in ENDED

    async def abandoned(self, root_id: str) -> bool:
        """Whether a workflow is unfinished and nobody seems to work on it."""
        row = await self._shown.run(root_id)
        if row is None:
            raise _no_run(root_id)
        return row.outcome == "interrupted"

    async def _tell_to_stop(self, row: RunRow, reason: str) -> None:
        await self._send(row, "cancel", "cancel-" + secrets.token_hex(8), {"reason": reason})

    async def _send(self, row: RunRow, kind: Any, key: str, body: Mapping[str, Any]) -> bool:
        return await self._store.send(
            Signal(
                root_id=row.root_id, run_id=row.run_id, kind=kind, key=key, body=json.dumps(body), at=now()
            )
        )


def _check_offered(asked: ApprovalRequested, answer: Answer) -> None:
    """An approval for the rest of the run is at least one for this call, whatever may follow from it."""
    if answer.decision not in (*asked.answers, "approve_run"):
        raise ConfigError(
            f"{answer.decision!r} is no answer to this question ({asked.reason})",
            fix=f"answer {', '.join(asked.answers)}",
        )
    if answer.arguments is not None and answer.decision not in ("approve", "reject"):
        raise ConfigError(
            f"edited arguments go with 'approve', not with {answer.decision!r}",
            fix="the rule is for the call as it was asked",
        )


def _same(asked: ApprovalRequested, answer: Answer, other: ApprovalRequested) -> bool:
    """Whether an answer to one question is for another that waits, by what both of them say."""
    if other.tool != asked.tool or other.concerns or (other.unsealed and not asked.unsealed):
        return False
    if asked.sealed and not other.sealed:
        return False
    if answer.decision == "approve_tool" or (answer.decision == "approve_run" and asked.rule is None):
        return "approve_tool" in other.answers or other.rule is None
    return (
        answer.decision in ("approve_run", "approve_always") and bool(asked.rule) and other.rule == asked.rule
    )


def _no_run(run_id: str) -> ConfigError:
    return ConfigError(f"there is no run {run_id!r}", fix="'runs()' lists them")
