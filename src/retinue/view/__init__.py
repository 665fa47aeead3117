"""What a person sees: the live tree, plain progress, transcripts, tables, approval prompts, an exported page.

Everything here turns events and records into lines. It starts nothing, answers nothing and reads no
database; `retinue.cli` and `retinue.server` hand it what it shows.
"""
