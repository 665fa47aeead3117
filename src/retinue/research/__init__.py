"""Research: what a long question needs beside an agent: a plan, a table of sources, contradictions between
them, and a report that is made of them.

Pure functions over text and notes. The tools over these are in `tools/research.py`, the agent is a file,
and what runs is an ordinary workflow.
"""
