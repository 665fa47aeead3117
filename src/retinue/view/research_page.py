"""The report of research as one page: no script, nothing loaded from elsewhere, everything escaped.

Called by the command line. Markdown is rendered without HTML and without images, as in exports.
"""

from __future__ import annotations

from html import escape
from importlib.util import find_spec
from pathlib import Path

from retinue.types import Report
from retinue.view import words

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def research_page(report: Report) -> str | None:
    """The page, or None where what renders Markdown is not installed."""
    if find_spec("markdown_it") is None:
        return None
    from markdown_it import MarkdownIt

    rules = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    title = words.one_line(report.text.lstrip("# \n"), 80)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f'<body><main><div class="text">{rules.render(report.text)}</div></main></body></html>\n'
    )
