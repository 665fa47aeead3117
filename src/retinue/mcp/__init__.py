"""MCP servers as tools of agents: what is configured, what is trusted, and the connections of a tree.

The package `mcp` is an extra and is imported by `connection` alone, when a server is used for the first time.
"""
