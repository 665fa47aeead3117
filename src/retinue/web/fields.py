"""What a browser shows of attributes: words of images, fields, buttons and choices, put beside their tags.

Called by `html` before a page is converted. What is put in holds no quotes and no angle brackets, so however
a page is broken, it ends no attribute and no comment that it may stand in, and brings nothing to light.
"""

from __future__ import annotations

import html as entities
import re

MOST = 300
"""The characters of one image or field that are shown."""

# Only tags that end as they seem to, with values that hold no angle brackets: others are left alone.
_TAG = re.compile(
    r"""<(img|input|option)((?:\s+[\w:@.-]+(?:\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>=`]+))?)*)\s*/?>""",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(r"""([\w:@.-]+)(?:\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>=`]+)))?""")
_UNSAFE = re.compile(r"""["'<>\[\]\s]+|--""")
_UNSHOWN = frozenset({"hidden", "password", "file", "range", "color"})
_TICKED = frozenset({"checkbox", "radio"})


def with_words(html: str) -> str:
    """The page with the words of its images and fields as text. The tags stay where they are."""
    return _TAG.sub(_beside, html)


def _beside(tag: re.Match[str]) -> str:
    given = {
        one[1].lower(): one[2] or one[3] or one[4] or "" for one in reversed([*_ATTRIBUTE.finditer(tag[2])])
    }
    words = _words(tag[1].lower(), given)
    return f"{tag[0]} {words} " if words else tag[0]


def _words(tag: str, given: dict[str, str]) -> str:
    if "hidden" in given or "style" in given:
        return ""  # a style may hide it, and which do is for the converter to know
    if tag == "option":
        return "• (selected)" if "selected" in given else "•"
    if tag == "img":
        alt = _safe(given.get("alt", ""))
        return f"(image: {alt})" if alt else ""
    kind = given.get("type", "text").lower()
    if kind in _TICKED:
        return "[x]" if "checked" in given else "[ ]"
    if kind in _UNSHOWN:
        return ""
    return _safe(
        given.get("alt", "") if kind == "image" else given.get("value") or given.get("placeholder", "")
    )


def _safe(value: str) -> str:
    """As text between tags: what an entity stands for is looked at as well."""
    return _UNSAFE.sub(" ", entities.unescape(value)).strip()[:MOST].replace("&", "&amp;")
