"""The tools that Retinue brings, each declared once: its name, who has it, its extra, what others call it.

The functions are in `tools/` and `delegate/`; an extra that is not installed takes its tools away, and their
names must be known all the same: to agent files, to rules, and to whoever is told what to install.
`tests/test_builtin_tools.py` holds this table against the tools that are really built.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, NamedTuple

Holder = Literal["app", "run", "prompt", "skills", "servers", "parent"]
"""Who has a tool: every run of an app; a run for itself; a run whose prompt brought sheets; a run that is
offered skills; a run with many tools of MCP servers; a run that may delegate."""
CODE = "run_code"
SKILL = "skill"
SEARCH = "mcp_search_tools"


class BuiltIn(NamedTuple):
    """`aliases`: what agent files of other programs call it; letter case does not matter.

    `on_request`: shown to an agent that names it alone, since it would only cost the others tokens.
    """

    name: str
    holder: Holder = "app"
    extra: str = ""
    aliases: tuple[str, ...] = ()
    on_request: bool = False


EXTRAS = {
    "postgres": ("asyncpg",),
    "providers": ("pydantic_ai",),
    "web": ("ddgs", "html_to_markdown", "trafilatura", "protego", "charset_normalizer", "defusedxml"),
    "code": ("pydantic_monty",),
    "sheets": ("python_calamine",),
    "server": ("fastapi", "uvicorn", "markdown_it", "nh3"),
    "mcp": ("mcp",),
    "acp": ("acp",),
    "chat": ("prompt_toolkit",),
    "keys": ("keyring",),
}
"""What each extra of the package brings."""

BUILT_IN = {
    tool.name: tool
    for tool in (
        BuiltIn("read", aliases=("Read", "NotebookRead")),
        BuiltIn("view", aliases=("View",), on_request=True),
        BuiltIn("ls", aliases=("LS",)),
        BuiltIn("glob", aliases=("Glob",)),
        BuiltIn("grep", aliases=("Grep",)),
        BuiltIn("write", aliases=("Write",)),
        BuiltIn("edit", aliases=("Edit", "MultiEdit")),
        BuiltIn("bash", aliases=("Bash",)),
        BuiltIn("web_search", extra="web", aliases=("WebSearch",)),
        BuiltIn("web_fetch", extra="web", aliases=("WebFetch",)),
        BuiltIn("extract", extra="web"),
        BuiltIn("wiki_search", extra="web"),
        BuiltIn("wiki_summary", extra="web"),
        BuiltIn("wikidata_search", extra="web"),
        BuiltIn("wikidata_query", extra="web"),
        BuiltIn("duckduckgo", extra="web"),
        BuiltIn("arxiv_search", extra="web"),
        BuiltIn("dbpedia_query", extra="web"),
        BuiltIn("wolfram_query", extra="web"),
        BuiltIn("stackexchange_search", extra="web"),
        BuiltIn("nasa_apod", extra="web"),
        BuiltIn("nasa_neows", extra="web"),
        BuiltIn(CODE, "run", extra="code"),
        BuiltIn("merge_child", "run", on_request=True),
        BuiltIn("todo", "run", aliases=("TodoWrite", "TodoRead"), on_request=True),
        BuiltIn("goals", "run", on_request=True),
        BuiltIn("memory_add", "run", on_request=True),
        BuiltIn("memory_list", "run", on_request=True),
        BuiltIn("memory_search", "run", on_request=True),
        BuiltIn("vault_set", "run", on_request=True),
        BuiltIn("vault_get", "run", on_request=True),
        BuiltIn("vault_list", "run", on_request=True),
        BuiltIn("research_plan", "run", on_request=True),
        BuiltIn("research_note", "run", on_request=True),
        BuiltIn("research_sources", "run", on_request=True),
        BuiltIn("research_report", "run", on_request=True),
        BuiltIn("sheet_read", "prompt"),
        BuiltIn("sheet_filter", "prompt"),
        BuiltIn("sheet_aggregate", "prompt"),
        BuiltIn(SKILL, "skills", aliases=("Skill",)),
        BuiltIn(SEARCH, "servers", extra="mcp"),
        BuiltIn("spawn_agent", "parent"),
        BuiltIn("delegate_task", "parent"),
        BuiltIn("parallel_tasks", "parent"),
        BuiltIn("subagent", "parent"),
        BuiltIn("background", "parent"),
    )
}

DELEGATION_TOOLS = tuple(name for name, tool in BUILT_IN.items() if tool.holder == "parent")
NOTES = frozenset(name for name, tool in BUILT_IN.items() if tool.holder == "run") - {CODE}
"""Tools that every run may have for itself."""
ON_REQUEST = frozenset(name for name, tool in BUILT_IN.items() if tool.on_request)


def is_installed(extra: str) -> bool:
    return all(find_spec(module) is not None for module in EXTRAS[extra])


def lacking_extra(name: str) -> str:
    """The extra that a tool of this name needs and that is not installed, or an empty text."""
    extra = BUILT_IN[name].extra if name in BUILT_IN else ""
    return "" if not extra or is_installed(extra) else extra
