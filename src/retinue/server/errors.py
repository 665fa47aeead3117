"""Every refusal of the API in one shape, and how errors become it.

    {"error": {"code": "not_found", "message": "there is no run 'r1'", "fix": "GET /api/v1/runs lists them"}}

`code` is for programs, `message` and `fix` are for people, `details` is there where a code promises it. What
went wrong inside is logged and never told to a client.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from retinue.errors import ConfigError, ModelError, RetinueError, RunError, StoreError, ToolError
from retinue.masking import masked_text

log = logging.getLogger("retinue.server")


class ErrorFacts(BaseModel):
    code: str = Field(description="what went wrong, for programs")
    message: str = Field(description="what went wrong, for people")
    fix: str | None = Field(default=None, description="what to do about it")
    details: dict[str, Any] | None = Field(default=None, description="facts that belong to this code")


class ErrorBody(BaseModel):
    """The one shape of every refusal."""

    error: ErrorFacts


class ApiError(Exception):
    """A refusal. `details` must be JSON."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        fix: str | None = None,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        self.body = ErrorBody(error=ErrorFacts(code=code, message=message, fix=fix, details=details))

    def response(self) -> Response:
        # ASCII alone: what a client sent may hold characters that cannot be encoded, and is quoted here.
        content = json.dumps(self.body.model_dump(exclude_none=True))
        return Response(content, self.status, self.headers, media_type="application/json")


CODES = {
    400: "bad_request",
    401: "no_token",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "not_json",
    421: "wrong_host",
    422: "invalid",
    429: "too_many_requests",
    500: "internal",
    502: "model_failed",
    503: "store_failed",
}
MEANINGS = {
    400: "The body cannot be read at all: it is not UTF-8, or too deep",
    401: "No token, or not a valid one",
    403: "This role may not, or the request comes from another site",
    404: "There is no such thing",
    405: "This address does not take that method",
    408: "The body took too long to arrive",
    409: "Not in the state it is in",
    413: "The body is too large",
    415: "A change needs 'Content-Type: application/json' or the header 'X-Retinue'",
    421: "The Host header names no host of this server",
    422: "The body is not valid JSON, a parameter is unknown or wrong, or it cannot be done as it is",
    429: "Too many requests; 'Retry-After' says when to come back",
    502: "The model or its provider failed",
    503: "The database cannot be read or written",
}
# Every route documents every one of these: who may, sizes and rates are decided before a route is reached. By
# reference (see `schema`): as models FastAPI would build a validator for each of them on each route.
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": meaning,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
    }
    for status, meaning in MEANINGS.items()
}


def no_run(run_id: str) -> ApiError:
    return ApiError(404, "not_found", f"there is no run {run_id!r}", fix="GET /api/v1/runs lists them")


def from_retinue(error: RetinueError) -> ApiError:
    """What Retinue raised, as a refusal."""
    said = masked_text(error.message if isinstance(error, ConfigError) else str(error))
    match error:
        case ConfigError():
            return ApiError(422, "invalid", said, fix=error.fix)
        case StoreError():
            return ApiError(503, "store_failed", said)
        case ModelError():
            return ApiError(502, "model_failed", said, details={"kind": error.kind})
        case RunError():
            return ApiError(409, "conflict", said)
        case ToolError():
            return ApiError(422, "invalid", said)
        case _:
            return ApiError(409, "conflict", said)


def install(app: FastAPI) -> None:
    """Make every error of an application one of this shape."""
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(RetinueError, _raised)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)


async def _refused(request: Request, error: Exception) -> Response:
    return cast("ApiError", error).response()


async def _raised(request: Request, error: Exception) -> Response:
    return from_retinue(cast("RetinueError", error)).response()


async def _http(request: Request, error: Exception) -> Response:
    found = cast("HTTPException", error)
    status = found.status_code
    messages = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.method} is not for {request.url.path}",
    }
    message = messages.get(status, str(found.detail))
    headers = dict(found.headers) if found.headers else None
    return ApiError(status, CODES.get(status, "refused"), message, headers=headers).response()


_IN_WORDS = {
    "missing": "is missing",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "string_too_long": "has more than {max_length} characters",
    "string_too_short": "has less than {min_length} characters",
    "too_long": "has more than {max_length} entries",
    "too_short": "has less than {min_length} entries",
    "string_pattern_mismatch": "is not written like one: look at how lists and answers of this API write it",
}
"""What is wrong with a value, by the kind of mistake, in words that follow its place."""


def in_words(mistake: Mapping[str, Any]) -> str:
    said, more = _IN_WORDS.get(mistake["type"]), mistake.get("ctx", {})
    if said is not None:
        return said.format(**more)
    return str(more["error"] if mistake["type"] == "value_error" else mistake["msg"])


async def _invalid(request: Request, error: Exception) -> Response:
    found = cast("RequestValidationError", error).errors()[:20]
    for one in found:
        if one["type"] == "json_invalid":
            said = f"the body is not valid JSON: {one['ctx']['error']}, at character {one['loc'][-1]}"
            return ApiError(422, "invalid", said, fix='write it like {"prompt": "…"}').response()
    problems = [
        {"where": ".".join(str(part) for part in one["loc"]), "problem": in_words(one)} for one in found
    ]
    fixes = [str(one["ctx"]["fix"]) for one in found if "fix" in one.get("ctx", {})]
    said = "; ".join(f"{one['where']}: {one['problem']}" for one in problems[:3])
    return ApiError(
        422,
        "invalid",
        said or "invalid request",
        fix="; ".join(fixes[:3]) or None,
        details={"problems": problems},
    ).response()


def broken(error: Exception, where: str) -> ApiError:
    """A mistake of the server's own: logged as a whole, told in one sentence."""
    log.error("%s failed", where, exc_info=error)
    return ApiError(500, "internal", "something went wrong inside the server", fix="its log says what")
