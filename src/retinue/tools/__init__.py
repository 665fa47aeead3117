"""Tools: plain async functions that a model may call."""
