"""Stores: where the event log lives. `store.connect` opens one from its URL."""
