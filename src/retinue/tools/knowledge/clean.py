"""HTML, entities and wiki markup out, readable text in: what sources send is never shown raw.

Called by every source. Its work is linear in its input, whatever that is: the standard library's parser
takes minutes for a few hundred kilobytes of unclosed tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

MOST = 200_000
SNIPPET = 5000
_BLOCKS = frozenset({"p", "div", "li", "ul", "ol", "br", "tr", "h1", "h2", "h3", "h4", "blockquote", "pre"})
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9:]{0,20}|<!--|<[!?]")
_HIDDEN = frozenset({"script", "style", "noscript", "template"})


def plain(html: str) -> str:
    """HTML as text; paragraphs, list items and code keep their lines."""
    parts: list[str] = []
    pre = False
    hidden = ""
    for tag, data in _pieces(html[:MOST]):
        if hidden:
            hidden = "" if tag == f"/{hidden}" else hidden
        elif tag in _HIDDEN:
            hidden = tag
        elif tag:
            name = tag.lstrip("/")
            pre = tag == "pre" if name == "pre" else pre
            if name in _BLOCKS:
                parts.append("\n- " if tag == "li" else "\n")
        else:
            text = unescape(data)
            if not pre:
                text = re.sub(r"\s+", " ", text)
                if not parts or parts[-1].endswith((" ", "\n")):
                    text = text.lstrip(" ")
            if text:
                parts.append(text)
    text = "\n".join(line.rstrip() for line in "".join(parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def _pieces(html: str) -> Iterator[tuple[str, str]]:
    """Tags by name (`/p` for a closing one) and the text between them. Nothing is looked at twice."""
    place = 0
    while (name := _TAG.search(html, place)) is not None:
        if name.start() > place:
            yield "", html[place : name.start()]
        closing = "-->" if name[0] == "<!--" else ">"
        end = html.find(closing, name.end())
        if end < 0:
            return  # never closed: the rest is not text
        yield name[0][1:].lower(), ""
        place = end + len(closing)
    yield "", html[place:]


def line(html: str) -> str:
    """HTML as one line of text."""
    return " ".join(plain(html).split())


def title(escaped: str) -> str:
    """Text that is escaped but holds no markup: `vector&lt;int&gt;` keeps its brackets."""
    return " ".join(unescape(escaped).split())


def snippet(html: str) -> str:
    """A search snippet of MediaWiki: HTML around, wiki markup within."""
    text = line(html[:SNIPPET])
    text = re.sub(r"\[\[(?:[^|\[\]]{0,200}\|)?([^\[\]]{0,200})\]\]", r"\1", text)
    text = re.sub(r"'{2,5}", "", text)
    return re.sub(r"^#REDIRECT\s*", "redirects to ", text, flags=re.IGNORECASE)


def cut(text: str, most: int) -> str:
    """At most so many characters, ended at a word."""
    if len(text) <= most:
        return text
    head = text[:most].rsplit(None, 1)[0] or text[:most]
    return head.rstrip(" ,;:") + " …"
