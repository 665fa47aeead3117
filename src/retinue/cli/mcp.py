"""`retinue mcp`: the Model Context Protocol, in both directions."""

from __future__ import annotations

from retinue.cli.mcp_serve import mcp_serve
from retinue.cli.root import new_group

app = new_group(
    "MCP servers, and Retinue as one.", ("mcp serve --cwd ~/code/shop", "mcp serve --http --port 8500")
)
app.command("serve")(mcp_serve)
