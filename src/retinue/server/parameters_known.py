"""Refuses query parameters that a route does not have: a filter with a slip in its name would filter nothing.

One dependency of every route, put there by `app`; which names a route has, its own declaration says.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from retinue.server.errors import ApiError

MOST_NAMED = 5


async def refuse_unknown_parameters(request: Request) -> None:
    """Raise for the first names in the query that this route does not take."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    known = _names(route)
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if not unknown:
        return
    problems = [{"where": f"query.{name[:80]}", "problem": "there is no such parameter"} for name in unknown]
    near = get_close_matches(unknown[0].lower(), known, 1, 0.6)
    takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
    raise ApiError(
        422,
        "invalid",
        f"{request.method} {request.url.path} has no parameter "
        + ", ".join(repr(name[:80]) for name in unknown[:MOST_NAMED]),
        fix=f"did you mean {near[0]!r}?" if near else takes,
        details={"problems": problems[:20]},
    )


def _names(route: APIRoute) -> frozenset[str]:
    return frozenset(_of(route.dependant))


def _of(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _of(inner)
