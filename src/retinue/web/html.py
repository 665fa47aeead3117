"""HTML to Markdown: the visible text of a page with its headings, tables, code and links.

Called by `page`, in the worker for everything but small pages. Text that a browser would not show is
dropped, since that is where instructions to a model are hidden. Nothing here fetches anything.
"""

from __future__ import annotations

import html as entities
import re
from functools import cache
from typing import Any

from msgspec import Struct

from retinue.web.urls import BadUrl, join

ARTICLE_BYTES = 1_000_000

_TAG = re.compile(r"<(title|meta|link|h1)\b([^<>]{0,4000})>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_DATE = re.compile(r"\b(\d{4})[-/](\d{2})[-/](\d{2})(?:[T ]\d{2}:\d{2})?")
_JSON_DATE = re.compile(r'"date(?:Published|Modified|Created)"\s*:\s*"([^"]{4,40})"')
_TIME = re.compile(r"<time\b[^<>]{0,200}?datetime\s*=\s*[\"']([^\"'<>]{4,40})", re.IGNORECASE)
_DATE_NAMES = (
    "article:published_time", "datepublished", "date", "dc.date", "dc.date.issued", "dcterms.created",
    "citation_publication_date", "pubdate", "publish-date", "article:modified_time", "og:updated_time",
    "last-modified",
)  # fmt: skip
# Ways to hide text in a `style` that the converter does not know of.
_HIDING = re.compile(
    rb"(?<![\w-])(?:opacity\s*:\s*0(?:\.0+)?\s*(?:;|!|$)|(?:left|right|text-indent)\s*:\s*-\d{3,}|top\s*:\s*-\d{4,}|"
    rb"(?:max-)?(?:height|width)\s*:\s*[01](?:px)?\s*(?:;|!|$)|color\s*:\s*transparent|"
    rb"clip\s*:\s*rect\(\s*[01]|clip-path\s*:\s*inset\(\s*(?:50|100)%|transform\s*:\s*scale\(\s*0)"
)
_STYLE = re.compile(rb"""style\s*=\s*("[^"<>]*"|'[^'<>]*'|[^\s"'<>]+)""")
_LINK_TITLE = re.compile(r' "[^"\n]*"\)')
_PERMALINK = re.compile(r"\[(?:¶|#|§|🔗|\u200b|\\#|)\]\(<?[^()\s<>]*>?\)")
_ACTIVE_LINK = re.compile(
    r"\[([^\[\]\n]*)\]\(<?\s*(?:javascript|data|vbscript):(?:[^()\n]|\([^()\n]*\))*\)", re.IGNORECASE
)
_ACTIVE = re.compile(r"\]\(<?\s*(?:javascript|data|vbscript):", re.IGNORECASE)
_BLANK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")
_DROPPED = re.compile(
    r"<(script|style|noscript|template|svg|head|iframe|object)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_BLOCK_END = re.compile(
    r"</?(?:p|div|li|tr|h[1-6]|br|section|article|table|ul|ol|blockquote|pre)\b[^>]*>", re.I
)


class Head(Struct, frozen=True, kw_only=True):
    """What a page says of itself. `refresh` is where it sends a browser by itself."""

    title: str = ""
    canonical: str = ""
    date: str = ""
    refresh: str = ""


def head_of(html: str, url: str) -> Head:
    title = canonical = refresh = heading = ""
    names: dict[str, str] = {}
    start = html[:300_000]
    for match in _TAG.finditer(start):
        tag = match[1].lower()
        if tag in ("title", "h1"):
            inner = _inner(start, match.end(), tag)
            title, heading = (title or inner, heading) if tag == "title" else (title, heading or inner)
            continue
        values = {
            m[1].lower(): entities.unescape(m[2] or m[3] or m[4] or "") for m in _ATTRIBUTE.finditer(match[2])
        }
        if tag == "link":
            if "canonical" in values.get("rel", "").lower().split() and not canonical:
                canonical = _absolute(url, values.get("href", ""))
        elif values.get("http-equiv", "").lower() == "refresh":
            target = re.search(r"url\s*=\s*[\"']?([^\"']+)", values.get("content", ""), re.IGNORECASE)
            refresh = refresh or (_absolute(url, target[1]) if target else "")
        else:
            name = values.get("property") or values.get("name") or values.get("itemprop") or ""
            names.setdefault(name.lower(), values.get("content", ""))
    title = title or names.get("og:title", "") or heading
    return Head(title=_line(title), canonical=canonical, date=_date(html, names), refresh=refresh)


def _inner(html: str, start: int, tag: str) -> str:
    end = html.find(f"</{tag}", start, start + 2000)
    if end < 0:
        end = html.find(f"</{tag.upper()}", start, start + 2000)
    text = html[start : end if end >= 0 else start + 300]
    return entities.unescape(re.sub(r"<[^<>]*>", " ", text))


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


def _absolute(base: str, reference: str) -> str:
    try:
        found = join(base, reference)
    except BadUrl:
        return ""
    return found if found.startswith(("http://", "https://")) else ""


def _date(html: str, names: dict[str, str]) -> str:
    """The day a page says it was published, or changed, or the first it marks up as a time."""
    found = next((names[name] for name in _DATE_NAMES if _DATE.search(names.get(name, ""))), "")
    if not found:
        dated = any(f'"date{what}"' in html for what in ("Published", "Modified", "Created"))
        match = _JSON_DATE.search(html) if dated else None
        match = match or (_TIME.search(html) if "<time" in html else None)
        found = match[1] if match else ""
    day = _DATE.search(found)
    if day is None or not (1 <= int(day[2]) <= 12 and 1 <= int(day[3]) <= 31):
        return ""
    return f"{day[1]}-{day[2]}-{day[3]}"


def to_markdown(html: str, url: str) -> str:
    """The page as Markdown, without navigation, scripts and hidden text; "" if nothing is left."""
    html = prepared(html)
    text = _convert(html, url, "aggressive")
    if len(text) < 200 < len(html) // 20:
        # Some pages keep their text in what looks like navigation or a form.
        text = max(text, _convert(html, url, "minimal"), key=len)
    if not text.strip():
        text = stripped(html)
    return tidy(text, url)


def prepared(html: str) -> str:
    """Hidden text out of the way, and nothing that a converter would choke on."""
    html = html.replace("\0", "")
    # A byte for every character: searching these in small letters is five times as fast.
    small = html.encode("ascii", "replace").lower()
    parts: list[str] = []
    at = 0
    for match in _STYLE.finditer(small):
        if _HIDING.search(match[1].strip(b"\"'")):
            parts += html[at : match.start()], "hidden"
            at = match.end()
    return "".join((*parts, html[at:]))


def _convert(html: str, url: str, preset: str) -> str:
    from html_to_markdown import convert

    try:
        return convert(html, _options(url, preset)).content or ""
    except Exception:
        # The library raises many kinds of errors for broken markup; plain text is then better than none.
        return ""


@cache
def _preset(preset: str) -> Any:
    from html_to_markdown import PreprocessingOptions

    return PreprocessingOptions(enabled=True, preset=preset)


def _options(url: str, preset: str) -> Any:
    from html_to_markdown import ConversionOptions

    return ConversionOptions(
        preprocessing=_preset(preset),
        extract_metadata=False,
        skip_images=True,
        compact_tables=True,
        bullets="-",
        base_url=url,
    )


def tidy(text: str, url: str) -> str:
    """Shorter without losing anything: no permalink marks, no titles of links, no active links."""
    text = text.replace(f"]({url.partition('#')[0]}#", "](#")
    if '")' in text:
        text = _LINK_TITLE.sub(_untitled, text)
    text = _PERMALINK.sub("", text)
    if _ACTIVE.search(text):
        text = _ACTIVE_LINK.sub(r"\1", text)
    text = text.replace("  \n", "\n")
    if "\n\n\n" in text or "\n \n" in text:
        text = _BLANK.sub("\n\n", text)
    return text.strip()


def _untitled(match: re.Match[str]) -> str:
    """The end of a link without its title; quoted words in running text look the same from behind."""
    start = match.string.rfind("](", max(0, match.start() - 500), match.start())
    if start < 0 or " " in (target := match.string[start + 2 : match.start()]) or "\n" in target:
        return match[0]
    return ")"


def stripped(html: str) -> str:
    """The text between the tags: the last resort for markup that no converter takes."""
    text = _BLOCK_END.sub("\n", _DROPPED.sub(" ", html))
    text = entities.unescape(re.sub(r"<[^<>]*>", "", text))
    return _BLANK.sub("\n\n", re.sub(r"[ \t\xa0]+", " ", text)).strip()


def article(html: str, url: str) -> str:
    """Only the main text of an article, or "" if there seems to be none."""
    from trafilatura import extract  # pyright: ignore[reportMissingTypeStubs]

    text = extract(
        prepared(html),
        url=url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_formatting=True,
        include_comments=False,
        favor_recall=True,
    )
    return tidy(text or "", url)
