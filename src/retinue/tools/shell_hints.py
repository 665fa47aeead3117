"""What a model is told beside the output of a sealed command that met the walls of its sandbox.

Programs say "Device or resource busy" or "Could not resolve host", and a model would try for long to put that
right. Only words are looked for: a hint that does not apply costs a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_READ_ONLY = re.compile(r"Device or resource busy|Read-only file system|could not lock config file", re.I)
_NO_NETWORK = re.compile(
    r"could not resolve|couldn't resolve|failure in name resolution|name or service not known|"
    r"network is unreachable|no address associated|no matching distribution found|getaddrinfo|"
    r"failed to establish a new connection|"
    r"(?-i:\bENOTFOUND|EAI_AGAIN|ENETUNREACH)|dial (?:tcp|udp)|no route to host",
    re.I,
)
_NO_MEMORY = re.compile(
    r"cannot allocate memory|MemoryError|heap out of memory|bad_alloc|out of memory|\bENOMEM", re.I
)


def hints(output: str, seal: Mapping[str, Any]) -> list[str]:
    """Lines about the walls that the output speaks of."""
    found: list[str] = []
    if _READ_ONLY.search(output):
        found.append(
            "in the sandbox these stay as they are, since programs outside take orders from them: "
            ".git/config, .git/hooks, .git/info, what git's settings name, .retinue, .claude, .agents, "
            ".mcp.json, retinue.toml, what the commands of MCP servers that you trust name, "
            "and AGENTS.md and CLAUDE.md where they exist; so do all files outside the project, /home/agent "
            "and /tmp. 'git -c KEY=VALUE …' sets something for one command; for more, ask the person"
        )
    if not seal["network"] and _NO_NETWORK.search(output):
        found.append(
            "the network is off in the sandbox: nothing can be downloaded or installed from it here. A "
            "person opens it with approvals.sandbox_network = true"
        )
    if _NO_MEMORY.search(output):
        gigabytes = seal["memory"] / 1024**3
        found.append(f"a command in the sandbox has {gigabytes:.1f} GB of memory, all it starts together")
    return found
