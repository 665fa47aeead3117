"""What people say to runs, wherever these run: answers, messages, cancels, each a signal in the store.

The process that works on a run reads its signals (`inbox.Inbox`). Where nobody works on it any more, a
message waits until it is taken up, and a cancel is carried out here. Used by the app alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from retinue.engine.abandoned import end, is_left
from retinue.engine.inbox import Answer, checked
from retinue.engine.owners import Owners
from retinue.engine.shown import ShownRuns
from retinue.errors import ConfigError, RunError
from retinue.events import ApprovalRequested, Decision, LiveEvent, MessageReceived, RunFinished, now
from retinue.store.base import RunRow, Signal, Store
from retinue.store.follow import follow
from retinue.types import ENDED

NOTICE = 2.0
"""Seconds in which a run that is at work has taken notice of what it was told."""


class Outbox:
    """`shown` says whether anybody works on a workflow; `publish` tells of what is written here."""

    def __init__(
        self,
        store: Store,
        owners: Owners,
        *,
        shown: ShownRuns,
        publish: Callable[[LiveEvent], None],
        taking_up: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:
        self._store, self._owners, self._shown, self._publish = store, owners, shown, publish
        self._taking_up = taking_up

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
        if await self.abandoned(row.root_id):
            try:
                async with self._taking_up(row.root_id):  # meanwhile nobody here goes on with it
                    await self._end(row, reason)
            except RunError:  # somebody has taken it up just now, here or elsewhere
                await self._tell_to_stop(row, reason)
        return True

    async def _end(self, row: RunRow, reason: str) -> None:
        """Carry a cancel out, unless somebody is there after all who does."""
        taken = await self._store.taken(row.root_id)
        if taken is None or not await is_left(self._owners, taken):
            return
        if (await self.row(row.run_id)).status in ENDED:
            return
        for event in await end(self._store, row.root_id, row.run_id, reason, taken=taken):
            self._publish(event)  # pyright: ignore[reportArgumentType] # every event class is in the union

    async def answer(
        self, approval_id: str, decision: Decision, *, reason: str, arguments: str | None, by: str
    ) -> bool:
        # The first signal wins, so one that nobody could read must not be sent.
        said = checked(Answer(decision=decision, reason=reason, arguments=arguments, by=by))
        row = await self.row(approval_id.partition(":")[0])
        if not any(asked.approval_id == approval_id for asked in await self._store.waiting(row.root_id)):
            events = await self._store.events(row.root_id, run_id=row.run_id)
            if any(isinstance(e, ApprovalRequested) and e.approval_id == approval_id for e in events):
                return False
            raise ConfigError(
                f"there is no question {approval_id!r}", fix="'approvals()' lists those that wait"
            )
        return await self._send(row, "answer", approval_id, msgspec.structs.asdict(said))

    async def message(self, run_id: str, text: str) -> bool:
        row = await self.row(run_id)
        if row.status in ENDED:
            return False
        last = await self._store.tail(row.root_id, limit=1)
        key = "message-" + secrets.token_hex(8)
        await self._send(row, "message", key, {"text": text})
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
                    if isinstance(event, RunFinished) and event.run_id == run_id:
                        return False
        return (await self.row(run_id)).status not in ENDED

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


def _no_run(run_id: str) -> ConfigError:
    return ConfigError(f"there is no run {run_id!r}", fix="'runs()' lists them")
