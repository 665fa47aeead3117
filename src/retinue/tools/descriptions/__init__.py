"""The texts a model reads about each tool, one file per tool."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def describe(name: str) -> str:
    return files(__name__).joinpath(f"{name}.md").read_text("utf-8").strip()
