"""One agent with a staff: durable, supervised sub-agents.

    from retinue import Retinue

    async with Retinue(model="offline") as retinue:
        report = await retinue.run("code-search", "where are retries decided?")
        print(report.text)

Every public name is loaded when it is first used, so that `import retinue` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would have to import typing, which costs more than all the rest

if TYPE_CHECKING:
    from typing import Any

    from retinue.app import Retinue
    from retinue.conversation import Conversation
    from retinue.engine.answers import Answer
    from retinue.errors import (
        ConfigError,
        ModelError,
        Refused,
        RetinueError,
        RunError,
        StoreError,
        ToolError,
    )
    from retinue.guards import Correct, Guarded, Mend, Stop
    from retinue.histories import History
    from retinue.map_batch import MapBatch, MapItem
    from retinue.run_options import RunInfo, RunWith
    from retinue.settings import Settings
    from retinue.store.base import RunFilter, RunRow
    from retinue.tools.base import Tool, ToolContext, ToolResult, tool
    from retinue.types import AgentSpec, Image, Limits, ModelSettings, Report, Source, ToolGiven, Usage

    __version__: str

_HOMES = {
    "AgentSpec": "retinue.types",
    "Answer": "retinue.engine.answers",
    "ConfigError": "retinue.errors",
    "Conversation": "retinue.conversation",
    "Correct": "retinue.guards",
    "Guarded": "retinue.guards",
    "History": "retinue.histories",
    "Image": "retinue.types",
    "Limits": "retinue.types",
    "Mend": "retinue.guards",
    "MapBatch": "retinue.map_batch",
    "MapItem": "retinue.map_batch",
    "ModelError": "retinue.errors",
    "ModelSettings": "retinue.types",
    "Refused": "retinue.errors",
    "Report": "retinue.types",
    "Retinue": "retinue.app",
    "RetinueError": "retinue.errors",
    "RunError": "retinue.errors",
    "RunFilter": "retinue.store.base",
    "RunInfo": "retinue.run_options",
    "RunRow": "retinue.store.base",
    "RunWith": "retinue.run_options",
    "Settings": "retinue.settings",
    "Source": "retinue.types",
    "Stop": "retinue.guards",
    "StoreError": "retinue.errors",
    "Tool": "retinue.tools.base",
    "ToolContext": "retinue.tools.base",
    "ToolError": "retinue.errors",
    "ToolGiven": "retinue.types",
    "ToolResult": "retinue.tools.base",
    "Usage": "retinue.types",
    "tool": "retinue.tools.base",
}

__all__ = [
    "AgentSpec",
    "Answer",
    "ConfigError",
    "Conversation",
    "Correct",
    "Guarded",
    "History",
    "Image",
    "Limits",
    "MapBatch",
    "MapItem",
    "Mend",
    "ModelError",
    "ModelSettings",
    "Refused",
    "Report",
    "Retinue",
    "RetinueError",
    "RunError",
    "RunFilter",
    "RunInfo",
    "RunRow",
    "RunWith",
    "Settings",
    "Source",
    "Stop",
    "StoreError",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolGiven",
    "ToolResult",
    "Usage",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("retinue")
    elif name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'retinue' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
