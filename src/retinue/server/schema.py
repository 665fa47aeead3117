"""The OpenAPI description: FastAPI's, with the schemas of events added as the log defines them."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from retinue.events import AnyEvent, Progressed, Streamed
from retinue.server.errors import ErrorBody
from retinue.server.standings import RunStanding

_REF = "#/components/schemas/{name}"
EVENT_PAGE: dict[str, Any] = {
    "description": "events in order, and where to go on",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["events", "next", "more"],
                "properties": {
                    "events": {"type": "array", "items": {"$ref": _REF.format(name="Event")}},
                    "next": {"type": "integer", "description": "`after` of the next page"},
                    "more": {"type": "boolean", "description": "there may be more right now"},
                    "standing": {
                        "type": "array",
                        "items": {"$ref": _REF.format(name="RunStanding")},
                        "description": "how each run stands: with the last page, if asked for",
                    },
                },
            }
        }
    },
}
DESCRIPTION = """One agent with a staff, over HTTP.

Start a run, follow its events, answer what it asks, read its report. Every refusal has one shape,
`ErrorBody`. A change needs `Content-Type: application/json` or the header `X-Retinue: 1`. Where tokens are
needed, send `Authorization: Bearer TOKEN`; `x-role` on each operation is the role it takes: watch, ask,
approve or admin, each of which may do what those before it may.
"""


def openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        made = get_openapi(
            title="Retinue", version="1", openapi_version="3.1.0", description=DESCRIPTION, routes=app.routes
        )
        parts = made.setdefault("components", {})
        parts.setdefault("schemas", {}).update(event_schemas() | error_schemas())
        parts["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "retinue_PORT"},
        }
        app.openapi_schema = made
    return app.openapi_schema


def event_schemas() -> dict[str, Any]:
    """`Event` is any stored event, `LiveEvent` what only a stream carries, `RunStanding` how a run stands."""
    kinds = (AnyEvent, Streamed | Progressed, RunStanding)
    (event, live, _), parts = msgspec.json.schema_components(kinds, ref_template=_REF)
    return {**parts, "Event": event, "LiveEvent": live}


def error_schemas() -> dict[str, Any]:
    """The shape of every refusal."""
    made = ErrorBody.model_json_schema(ref_template=_REF.format(name="{model}"))
    return {**made.pop("$defs"), "ErrorBody": made}
