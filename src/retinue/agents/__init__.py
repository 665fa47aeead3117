"""Agents: Markdown files with fields on top and a system prompt below, and the built-in ones.

`load_agents` finds and reads them, `stamp` tells whether they have changed, `check` looks files over,
`render` and `new_agent_text` write them.
"""

from retinue.agents.check import check, field_uses
from retinue.agents.document import Finding
from retinue.agents.loader import Catalogue, LoadedAgent, builtin_agents, load_agents, stamp
from retinue.agents.render import new_agent_text, render

__all__ = [
    "Catalogue",
    "Finding",
    "LoadedAgent",
    "builtin_agents",
    "check",
    "field_uses",
    "load_agents",
    "new_agent_text",
    "render",
    "stamp",
]
