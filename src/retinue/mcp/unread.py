"""A message of JSON-RPC that cannot be read, and to whom it belongs: whoever waits for it is told at once.

Called by both ends that speak over pipes. A message may be nested too deeply for every reader of JSON, so it
is not parsed here: its members that are plain values, before and behind the one that is not, are enough.
"""

from __future__ import annotations

import json
import re

from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, RequestId
from pydantic import ValidationError

_LOOKED_AT = 2000
"""Bytes at each end of a message."""
_MEMBER = rb'"((?:[^"\\]|\\.)*+)"\s*+:\s*+("(?:[^"\\]|\\.)*+"|[\w.+-]++)'
_MEMBERS = re.compile(_MEMBER)
_HEAD = re.compile(rb"\s*+\{(?:\s*+" + _MEMBER + rb"\s*+,?)*+")
_TAIL = re.compile(rb"[}\]](?:\s*+,\s*+" + _MEMBER + rb")*+\s*+\}\s*+\Z")


def request_id(line: bytes, *, answers: bool) -> RequestId | None:
    """The id of a request, or of an answer to one, in a line that cannot be read; None if it names none."""
    ends = (_HEAD.match(line[:_LOOKED_AT]), _TAIL.search(line[-_LOOKED_AT:]))
    members = {name: value for end in ends if end for name, value in _MEMBERS.findall(end[0])}
    if b"id" not in members or (b"method" in members) == answers:
        return None
    try:
        found = json.loads(members[b"id"])
    except ValueError:
        return None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def refusal(number: RequestId | None, error: ValueError) -> JSONRPCError:
    """What is said in the place of such a message."""
    faults = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    no_json = [fault["msg"] for fault in faults if fault["type"] == "json_invalid"]
    why = no_json[0] if no_json else "it is no message of JSON-RPC 2.0"
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=PARSE_ERROR, message=why))
