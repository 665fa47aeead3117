"""The chat in a terminal: `retinue chat`, and `retinue` alone.

`command` is the command, `session` the conversation without a terminal, `screen` what is drawn and which keys
there are, `talk` what is typed, `slash` the commands in it. Without a screen `plain` takes lines.
"""
