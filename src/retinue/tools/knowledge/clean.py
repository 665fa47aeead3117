"""HTML, entities and wiki markup out, readable text in: what sources send is never shown raw.

Called by every source. It never fetches anything, and its work is bounded by the length of its input.
"""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

MOST = 200_000
_BLOCKS = frozenset({"p", "div", "li", "ul", "ol", "br", "tr", "h1", "h2", "h3", "h4", "blockquote", "pre"})
_HIDDEN = frozenset({"script", "style", "noscript", "template"})


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0
        self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        if tag == "pre":
            self._pre += 1
        if tag in _BLOCKS:
            self.parts.append("\n")
        if tag == "li":
            self.parts.append("- ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        if tag == "pre":
            self._pre = max(0, self._pre - 1)
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))


def plain(html: str) -> str:
    """HTML as text; paragraphs, list items and code keep their lines."""
    parser = _Text()
    parser.feed(html[:MOST])
    parser.close()
    lines = [line.rstrip() for line in "".join(parser.parts).split("\n")]
    text = "\n".join(line if line.startswith("    ") else line.strip(" ") for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def line(html: str) -> str:
    """HTML as one line of text."""
    return " ".join(plain(html).split())


def title(escaped: str) -> str:
    """Text that is escaped but holds no markup: `vector&lt;int&gt;` keeps its brackets."""
    return " ".join(unescape(escaped).split())


def snippet(html: str) -> str:
    """A search snippet of MediaWiki: HTML around, wiki markup within."""
    text = line(html)
    text = re.sub(r"\[\[(?:[^|\]]*\|)?([^\]]*)\]\]", r"\1", text)
    text = re.sub(r"'{2,5}", "", text)
    return re.sub(r"^#REDIRECT\s*", "redirects to ", text, flags=re.IGNORECASE)


def cut(text: str, most: int) -> str:
    """At most so many characters, ended at a word."""
    if len(text) <= most:
        return text
    head = text[:most].rsplit(None, 1)[0] or text[:most]
    return head.rstrip(" ,;:") + " …"
