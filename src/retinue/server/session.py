"""Who am I, logging in and out, whether the server lives, rendering, and the news of all runs."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from fastapi import APIRouter, Request, Response

from retinue.errors import StoreError
from retinue.masking import masked_text
from retinue.server import markdown, sse
from retinue.server.about import Health, LoggedIn, LoggedOut, Login, Me, Rendered, Texts
from retinue.server.context import Served, Server, Who, for_everyone, for_role
from retinue.server.errors import ApiError
from retinue.server.guard import cookie_name
from retinue.server.schema import openapi
from retinue.server.sessions import SECONDS
from retinue.threads import to_its_end

router = APIRouter(tags=["server"])
DATABASE_SECONDS = 5.0
"""How long the database may take for an answer before the server is not well."""


@router.get("/health", **for_everyone())
async def read_health(served: Served) -> Health:
    """Whether the server answers and its database does. Says nothing else."""
    try:
        async with asyncio.timeout(DATABASE_SECONDS):
            await served.retinue.store.run("")
    except (StoreError, TimeoutError):
        raise ApiError(503, "store_failed", "the database cannot be reached") from None
    return Health(status="ok")


@router.post("/login", **for_everyone())
async def log_in(body: Login, request: Request, response: Response, served: Served) -> LoggedIn:
    """A token for a cookie that scripts cannot read and other sites cannot send."""
    who = served.access.identify(f"Bearer {body.token}", None)
    if who is None:
        if served.guard is not None and request.client is not None:
            served.guard.wrong_token(request.client.host)
        raise ApiError(401, "wrong_token", "this token is not valid here")
    if not served.access.open:
        await _end_session(request, served)  # whoever logs in again has one, not two
        response.set_cookie(
            cookie_name(_port(request)),
            await to_its_end(served.access.session, who),
            max_age=SECONDS,
            path="/",
            httponly=True,
            samesite="strict",
            # Behind a proxy with TLS the request itself is plain; the page says what the browser sees.
            secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:"),
        )
    return LoggedIn(name=who.name, role=who.role)


@router.post("/logout", **for_role("watch"))
async def log_out(request: Request, response: Response, served: Served) -> LoggedOut:
    """End the session: its cookie lets nobody in any more, whoever has a copy of it."""
    await _end_session(request, served)
    response.delete_cookie(cookie_name(_port(request)), path="/", httponly=True, samesite="strict")
    return LoggedOut(ok=True)


async def _end_session(request: Request, served: Server) -> None:
    cookie = request.cookies.get(cookie_name(_port(request)))
    if cookie:
        await to_its_end(served.access.sessions.end, cookie)


def _port(request: Request) -> int | None:
    server = request.scope.get("server")
    return server[1] if server else None


@router.get("/me", **for_role("watch"))
async def read_me(served: Served, who: Who) -> Me:
    """Who this is, and what a question would be answered with."""
    retinue = served.retinue
    return Me(
        name=who.name,
        role=who.role,
        open=served.access.open,
        version=version("retinue"),
        project=str(retinue.project or ""),
        model=masked_text(retinue.model_name),
        default_agent=retinue.settings.default_agent,
    )


@router.post("/render", **for_role("watch"))
async def render_texts(body: Texts) -> Rendered:
    """Markdown as HTML that is safe to show."""
    return Rendered(html=[await markdown.render(text) for text in body.texts])


@router.get("/stream", response_class=Response, **for_role("watch", responses={200: sse.SCHEMA}))
async def stream_news(served: Served, who: Who) -> Response:
    """What changes among all runs: `snapshot` first, then `run`, `approval` and `counts` as they happen."""
    return served.stream(who, served.news.watch())


@router.get("/openapi.json", response_class=Response, include_in_schema=False, **for_role("watch"))
async def read_openapi(request: Request) -> Response:
    import json

    return Response(json.dumps(openapi(request.app)), media_type="application/json")
