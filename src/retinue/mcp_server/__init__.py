"""Retinue as an MCP server: every agent a tool of other programs, their runs tasks and resources.

Over the official `mcp` package, which is an extra. What a host is shown of a run is its story, read from the
same log that the page and the terminal read.
"""
