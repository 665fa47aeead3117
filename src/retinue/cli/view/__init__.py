"""What a person sees at the terminal: the live tree, plain progress, transcripts, tables, approval prompts.

Everything here turns events and records into lines. It starts nothing, answers nothing and reads no
database; `retinue.cli` hands it what it shows.
"""
