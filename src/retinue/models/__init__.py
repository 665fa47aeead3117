"""Models: one protocol, several wire formats. `models.connect` makes a model from its name."""
