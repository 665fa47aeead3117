#!/usr/bin/env python3
"""Write scripts/page_api.d.ts: what the API answers, as types for the page's JavaScript.

    .venv/bin/python scripts/page_api.py            # write it
    .venv/bin/python scripts/page_api.py --check    # say whether it is stale

From the server's own OpenAPI description, so that the page cannot read a field that nobody sends. `tsc` reads
it (`make page`); no browser is sent it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from retinue.server import agents, approvals, changes, runs, runs_change, servers, session, settings, stats
from retinue.server.schema import openapi

FILE = Path(__file__).with_suffix(".d.ts")
HEAD = "/* Written by scripts/page_api.py from the API's own description. Change it there. */\n"


def types() -> str:
    app = FastAPI()
    for module in (runs, runs_change, changes, approvals, agents, servers, settings, stats, session):
        app.include_router(module.router)
    described = openapi(app)
    lines = [HEAD, "declare namespace Api {"]
    for name, schema in sorted(described["components"]["schemas"].items()):
        lines.append(f"  type {_name(name)} = {_type(schema)};")
    lines += ["", "  interface Answers {"]
    for path, operations in sorted(described["paths"].items()):
        for method, operation in sorted(operations.items()):
            lines.append(f"    {json.dumps(f'{method.upper()} {path}')}: {_answer(operation)};")
    return "\n".join([*lines, "  }", "}", ""])


def _answer(operation: dict[str, Any]) -> str:
    """What a request that works is answered with."""
    for code in ("200", "201", "202"):
        content = operation["responses"].get(code, {}).get("content", {})
        if "application/json" in content:
            return _type(content["application/json"]["schema"])
    return "null"


def _name(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _name(schema["$ref"].rsplit("/", 1)[-1])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(dict.fromkeys(_type(one) for one in schema[several]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": one}) for one in kind)
    match kind:
        case "string" | "boolean" | "null":
            return kind
        case "integer" | "number":
            return "number"
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
        case "array":
            return f"({_type(schema.get('items') or {})})[]"
        case "object":
            return _object(schema)
        case _:
            return "any"


def _object(schema: dict[str, Any]) -> str:
    """An answer has every field it may have: what is optional in a request has its default by then."""
    fields = schema.get("properties", {})
    if not fields:
        more = schema.get("additionalProperties")
        return f"Record<string, {_type(more) if isinstance(more, dict) else 'any'}>"
    return "{ " + "; ".join(f"{json.dumps(name)}: {_type(each)}" for name, each in fields.items()) + " }"


def main() -> int:
    text = types()
    if "--check" in sys.argv[1:]:
        fresh = FILE.is_file() and FILE.read_text("utf-8") == text
        if not fresh:
            sys.stderr.write(f"{FILE} is stale: run {sys.argv[0]}\n")
        return 0 if fresh else 1
    FILE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
