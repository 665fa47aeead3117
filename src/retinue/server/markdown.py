"""Markdown that models, tools and web pages wrote, as HTML that is safe to show.

HTML in the text stays text, pictures become links (a picture that is loaded tells its server who reads), and
what comes out is cleaned once more against a short list of tags. Nothing here trusts the page that shows it.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LONGEST = 60_000
QUICK = 2_000
MOST_MARKS = 10_000
"""Each opening mark is tried against those before it. Dense prose of this length has a fifth as many."""
MOST_LINES = 4_000
"""Each line may be a block, which costs more than its words. Code of this length has half as many."""
_MARKS = re.compile(r"[\[!*_~`<|]")
_TEXT = {"a", "br", "code", "del", "em", "s", "strong"}
_BLOCKS = {"blockquote", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul"}
_TAGS = _TEXT | _BLOCKS | {"table", "tbody", "td", "th", "thead", "tr"}
_ATTRIBUTES = {"a": {"href", "title"}, "code": {"class"}, "ol": {"start"}, "td": {"align"}, "th": {"align"}}
_LANGUAGE = re.compile(r"language-[\w+#.-]{1,30}")
_ALIGN = re.compile(r'style="text-align:(left|center|right)"')


async def render(text: str) -> str:
    """Markdown as HTML. Long texts are done in a thread, so that nobody waits for them."""
    return to_html(text) if len(text) <= QUICK else await asyncio.to_thread(to_html, text)


@lru_cache(maxsize=256)
def to_html(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    if len(text) > LONGEST:  # nobody reads it as a page, and rendering it would take seconds
        return f"<pre>{escape(text[:LONGEST])}\n…</pre>"
    if len(_MARKS.findall(text)) > MOST_MARKS or len(text.splitlines()) > MOST_LINES:
        return f"<pre>{escape(text)}</pre>"
    return _cleaned(_ALIGN.sub(r'align="\1"', _parser().render(text)))  # styles are not allowed, alignment is


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return (
        MarkdownIt("commonmark", {"html": False, "breaks": False})
        .enable(["table", "strikethrough"])
        .disable("image")
    )


def _cleaned(html: str) -> str:
    import nh3

    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_attribute,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_relative="deny",  # a path in a text is no address of this server
        strip_comments=True,
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    """None takes an attribute away."""
    if tag == "code" and name == "class":
        return value if _LANGUAGE.fullmatch(value) else None
    if name == "align":
        return value if value in ("left", "center", "right") else None
    return value
