"""One connection to an MCP server, over the official package. Imported when the first server is used."""

from __future__ import annotations

from mcp import Client, StdioServerParameters


def stdio_client(command: str, *args: str) -> Client:
    """A client of a server that is a program of this machine. It starts when it is entered."""
    return Client(StdioServerParameters(command=command, args=list(args)))
