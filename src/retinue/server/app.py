"""The application: every route under /api/v1, the page at /, the guard before both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from fastapi import Depends, FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles

from retinue.app import Retinue
from retinue.server import (
    agents,
    approvals,
    changes,
    errors,
    runs,
    runs_change,
    servers,
    session,
    settings,
    stats,
)
from retinue.server.context import Server
from retinue.server.guard import PREFIX, RequestGuard
from retinue.server.hub import HEARTBEAT_SECONDS, Hub
from retinue.server.limits import RateLimits
from retinue.server.news import News
from retinue.server.parameters_known import refuse_unknown_parameters
from retinue.server.security import Access, Token
from retinue.server.sessions import Sessions

STATIC = Path(__file__).with_name("static")


def create_app(
    retinue: Retinue,
    *,
    tokens: Iterable[Token] = (),
    hosts: Iterable[str] = (),
    reread: Callable[[], Iterable[Token] | None] | None = None,
    sessions: Path | None = None,
    limits: RateLimits | None = None,
    heartbeat: float = HEARTBEAT_SECONDS,
    routes: Iterable[BaseRoute] = (),
    stopping: Callable[[], None] | None = None,
) -> FastAPI:
    """The API over an open `Retinue`. Without tokens everyone who reaches it is its owner: loopback only.

    `hosts` are further names it goes by; `reread` gives the tokens whenever they have changed; `sessions` is
    the file that keeps who is logged in, without it they are in memory. `routes` are served besides, and
    `stopping` is called when the server begins to stop. The `Retinue` is neither opened nor closed here.
    """
    limits = limits or RateLimits()
    access = Access(tokens, hosts=hosts, reread=reread, sessions=Sessions(sessions))
    server = Server(
        retinue=retinue,
        access=access,
        hub=Hub(retinue, heartbeat=heartbeat),
        news=News(retinue, heartbeat=heartbeat),
        limits=limits,
    )
    app = FastAPI(title="Retinue", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.server = server
    app.state.stopping = stopping
    app.router.routes.extend(routes)
    for module in (runs, runs_change, changes, approvals, agents, servers, settings, stats, session):
        app.include_router(module.router, prefix=PREFIX, dependencies=[Depends(refuse_unknown_parameters)])
    errors.install(app)
    if STATIC.is_dir():
        app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)  # leaves streams alone
    app.add_middleware(RequestGuard, access=access, limits=limits, met=server.meet)
    return app


def close_streams(app: FastAPI) -> None:
    """End every stream, so that a server that stops does not wait for those who watch."""
    server: Server = app.state.server
    if app.state.stopping is not None:
        app.state.stopping()
    server.hub.close()
    server.news.close()
