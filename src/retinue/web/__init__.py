"""The web below the tools: fetching that cannot be led astray, pages as text, search backends."""
