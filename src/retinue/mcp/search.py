"""`mcp_search_tools`: where MCP servers offer more tools than a prompt should hold, they are found by words.

What was found is in the result as data (`ToolResult.shows`), so a run that is taken up is shown the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from retinue.builtin_tools import SEARCH
from retinue.tools.base import Tool, ToolContext, ToolResult, tool_from_schema
from retinue.types import ToolSpec

FOUND = 10
_WORD = re.compile(r"[a-z0-9]+")


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower().replace("_", " ")) if len(word) > 1 or word.isdigit()}


def search(tools: Sequence[ToolSpec], query: str, most: int = FOUND) -> list[ToolSpec]:
    """Those whose name and description share most with the query, the best first, else in their order."""
    wanted = _words(query)
    ranked: list[tuple[int, int, ToolSpec]] = []
    for place, tool in enumerate(tools):
        if tool.name == query.strip():
            ranked.append((-1000, place, tool))
            continue
        name, said = _words(tool.name), _words(tool.description)
        score = 3 * len(wanted & name) + len(wanted & said)
        score += sum(1 for word in wanted if len(word) > 3 and any(word in each for each in name))
        if score:
            ranked.append((-score, place, tool))
    return [tool for _, _, tool in sorted(ranked, key=lambda each: each[:2])[:most]]


def search_tool(tools: Sequence[ToolSpec]) -> Tool:
    """The tool over these."""
    servers = sorted({tool.name.split("__")[1] for tool in tools})

    async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> ToolResult:
        found = search(tools, str(arguments["query"]))
        if not found:
            names = ", ".join(tool.name for tool in tools)
            return ToolResult(text=f"no tool fits. Their names: {names[:4000]}")
        lines = [
            f"{tool.name}: {tool.description}\n{json.dumps(tool.schema, ensure_ascii=False)}"
            for tool in found
        ]
        text = "These can be called now:\n\n" + "\n\n".join(lines)
        return ToolResult(text=text, shows=tuple(tool.name for tool in found))

    return tool_from_schema(
        name=SEARCH,
        description=(
            f"Find tools of MCP servers by what they do. There are {len(tools)} of them, of the servers "
            f"{', '.join(servers)}; a tool can be called once it was found. Give words, or the exact name."
        ),
        schema={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "what a tool should do"}},
            "required": ["query"],
        },
        effect="read",
        call=call,
        repeatable=True,
        private=False,
    )
