"""Markdown on the page: what comes out, read as browsers read HTML, runs nothing and loads nothing."""

from __future__ import annotations

import re
from typing import Any

import html5lib

from retinue.server.markdown import to_html

SEEDS = (
    b"[x](javascript:alert(1)) **b** `c`",
    b"<img src=x onerror=alert(1)> <script>alert(1)</script>",
    b"| a |\n|:-:|\n| [x](https://a.example 'on=\"1\"') |",
    b'```"><script>\nx\n```\n\n> - 1. # <svg/onload=alert(1)>',
    b'[x][y] ![z](data:text/html,x)\n\n[y]: JaVa&#9;script:alert(1)\n<https://b.example/">',
)
TAGS = {
    *("a", "br", "code", "del", "em", "s", "strong", "blockquote", "div", "hr", "li", "ol", "p", "pre", "ul"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"),
}
ATTRIBUTES = {
    "a": {"href", "title", "rel", "target"},
    "code": {"class"},
    "ol": {"start"},
    "td": {"align"},
    "th": {"align"},
}
to_html("**warm**")  # imports what it needs, before the clock starts


def check(data: bytes) -> None:
    html = to_html(data.decode("utf-8", "replace"))
    to_html.cache_clear()
    inert(html)


def inert(html: str) -> None:
    root: Any = html5lib.parseFragment(
        html, container="div", treebuilder="etree", namespaceHTMLElements=False
    )
    for element in root.iter():
        assert isinstance(element.tag, str), f"a comment or an instruction: {html!r}"
        if element is root:
            continue
        assert element.tag in TAGS, f"<{element.tag}>: {html!r}"
        for name, value in element.attrib.items():
            assert name in ATTRIBUTES.get(element.tag, ()), f"{element.tag} {name}: {html!r}"
            if name == "href":
                # What browsers take away before they look for the scheme.
                scheme = re.sub(r"[\t\n\r]", "", value.strip("".join(map(chr, range(33)))))
                assert re.match(r"(?:https?|mailto):", scheme, re.IGNORECASE), f"{value!r}: {html!r}"
        if element.tag == "a" and "href" in element.attrib:
            assert "noopener" in element.attrib.get("rel", ""), html
