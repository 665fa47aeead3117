"""What every route is handed: the `Retinue` behind the API, and who asks.

`for_role` is how a route says who may use it. A route without it does not exist: a test looks at all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from retinue.app import Retinue
from retinue.server.errors import RESPONSES, ApiError, no_run
from retinue.server.guard import RequestGuard
from retinue.server.hub import Hub
from retinue.server.limits import RateLimits
from retinue.server.news import News
from retinue.server.security import Access, Identity, Role
from retinue.server.sse import EventStream
from retinue.store.base import RunRow


@dataclass(kw_only=True, slots=True, eq=False)
class Server:
    """One running API."""

    retinue: Retinue
    access: Access
    hub: Hub
    news: News
    limits: RateLimits
    guard: RequestGuard | None = None
    streams: Counter[str] = field(default_factory=Counter[str])

    def meet(self, guard: RequestGuard) -> None:
        """The guard is made when the first request comes; whoever sees a wrong token tells it."""
        self.guard = guard

    async def row(self, run_id: str) -> RunRow:
        row = await self.retinue.shown.run(run_id)
        if row is None:
            raise no_run(run_id)
        return row

    async def root_here(self, run_id: str, deed: str = "resume") -> RunRow:
        """The root of a workflow that this server may work on. `deed`: the command that does it elsewhere."""
        row = await self.row(run_id)
        root = row if row.parent_id is None else await self.row(row.root_id)
        if not self.retinue.take_up.belongs(root):
            named = root.run_id if deed == "resume" else run_id
            raise ApiError(
                409,
                "other_project",
                f"{root.run_id} worked in another folder: {root.cwd or 'none'}",
                fix=f"start a server there, or 'retinue runs {deed} {named}'",
            )
        return root

    def stream(self, who: Identity, chunks: AsyncGenerator[bytes]) -> EventStream:
        """The response that sends these chunks, one of the streams that this client may hold open."""
        return EventStream(self._while_known(who, chunks), self._slot(who))

    @contextmanager
    def _slot(self, who: Identity) -> Generator[None]:
        """One more stream for this client. Raises `ApiError` if it has too many."""
        if self.streams[who.name] >= self.limits.streams:
            raise ApiError(
                429,
                "too_many_requests",
                f"{who.name} holds {self.limits.streams} streams open already",
                fix="close some",
                headers={"Retry-After": "5"},
            )
        self.streams[who.name] += 1
        try:
            yield
        finally:
            self.streams[who.name] -= 1

    async def _while_known(self, who: Identity, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """The same chunks, while this client may have them."""
        try:
            async for chunk in chunks:
                if not self.access.knows(who):
                    return
                yield chunk
        finally:
            await chunks.aclose()


def _server(request: Request) -> Server:
    return request.app.state.server


def _identity(request: Request) -> Identity:
    who: Identity | None = request.state.identity
    if who is None:
        raise ApiError(401, "no_token", "this needs a token")
    return who


Served = Annotated[Server, Depends(_server)]
Who = Annotated[Identity, Depends(_identity)]
RunId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="a run's id")]


def for_role(role: Role, **more: Any) -> dict[str, Any]:
    """The arguments of a route that this role and those above it may use."""

    def check(who: Who) -> None:
        who.require(role)

    return {
        "dependencies": [Depends(check)],
        "responses": {**RESPONSES, **more.pop("responses", {})},
        "openapi_extra": {"x-role": role, "security": [{"token": []}, {"session": []}]},
        **more,
    }


def for_everyone(**more: Any) -> dict[str, Any]:
    """The arguments of the few routes that ask for no token."""
    return {"responses": RESPONSES, "openapi_extra": {"x-role": "none", "security": []}, **more}
