"""The knowledge tools: a local server in the wire shapes of the sources, and real server software."""
