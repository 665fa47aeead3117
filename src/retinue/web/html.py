"""HTML to Markdown: the visible text of a page with its headings, tables, code and links.

Called by `page`, in the worker for everything but small pages. Text that a browser would not show is
dropped, since that is where instructions to a model are hidden. Nothing here fetches anything.
"""

from __future__ import annotations

import html as entities
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from retinue.web.fields import with_words
from retinue.web.urls import BadUrl, join

ARTICLE_BYTES = 1_000_000

_TAG = re.compile(r"<(title|meta|link|h1)\b([^<>]{0,4000})>", re.IGNORECASE)
_HEAD_CHARACTERS = 300_000
_ATTRIBUTE = re.compile(r"""(?<![\w:-])([\w:-]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
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
# And those that it knows of, for the library that finds articles and knows none.
_NOT_SHOWN = re.compile(
    r"(?<![\w-])(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|font-size\s*:\s*0(?![.\d]))"
)
_UNSEEN_TAGS = ("template", "noscript")
_STYLE = re.compile(rb"""(?<=[\s"'/])style\s*=\s*("[^"<>]*"|'[^'<>]*'|[^\s"'<>]+)""")
# Spans that only colour code. No class with `hidden` in it: in broken markup that may be an attribute. Tags
# around them only where they end as they seem to, even inside another tag: what they hold opens no quotes.
_PLAIN_SPAN = re.compile(r"""<span(?: class="(?![^"]*(?i:hidden))[\w -]*")?>""")
_CODE_SPAN = re.compile(
    r"""(<code class="[^"<>=]*">)<span class="(?![^"]*(?i:hidden))[\w -]*">([^<>]*)</span>(?=</code>)"""
)
_GIVEN = r"""(?:\s+[\w:-]+(?:=(?:"[^"'<>]*"|[\w.-]+))?)*\s*>"""
_PRE = re.compile(rf"<pre{_GIVEN}(?:<code{_GIVEN})?")
# A text split by it has lost the titles of its links, and nothing else.
_LINK_TITLE = re.compile(rb"""(\]\([^ \n"\]]*) "[^"\n]*(?:(?<=\\)"[^"\n]*)*"(?=\))""")
_PERMALINK = re.compile(rf"\[(?:¶|#|§|🔗|{chr(0x200B)}|\\#|)\]\(<?[^()\s<>]*>?\)".encode())
_ACTIVE_LINK = re.compile(
    rb"\[([^\[\]\n]*)\]\(<?\s*(?:javascript|data|vbscript):(?:[^()\n]|\([^()\n]*\))*\)", re.IGNORECASE
)
_ACTIVE = re.compile(rb"\]\(<?\s*(?:javascript|data|vbscript):", re.IGNORECASE)
_BLANKS = re.compile(rb"\n[ \t]*(?:\n[ \t]*)+\n")
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


def lowered(html: str) -> bytes:
    """A byte for every character, in small letters: searching these is several times as fast."""
    return html.encode("ascii", "replace").lower()


def head_of(html: str, url: str, small: bytes | None = None) -> Head:
    """`small` is the same, `lowered`, where the caller has it."""
    small = lowered(html) if small is None else small
    title = canonical = refresh = heading = ""
    names: dict[str, str] = {}
    start = html[:_HEAD_CHARACTERS]
    for match in _tags(start, small):
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
    return Head(title=_line(title), canonical=canonical, date=_date(html, small, names), refresh=refresh)


def _tags(html: str, small: bytes) -> list[re.Match[str]]:
    """The tags that tell of the page: all of its head, and behind that only what may stand there."""
    end = small.find(b"</head", 0, len(html))
    end = len(html) if end < 0 else end
    found = list(_TAG.finditer(html, 0, end))
    at = small.find(b"<meta", end, len(html))
    while at >= 0:
        match = _TAG.match(html, at)
        if match:
            found.append(match)
        at = small.find(b"<meta", at + 1, len(html))
    if not any(match[1].lower() == "title" for match in found):
        heading = _TAG.search(html, max(end, small.find(b"<h1", end, len(html))))
        found += [heading] if heading else []
    return found


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


def _date(html: str, small: bytes, names: dict[str, str]) -> str:
    """The day a page says it was published, or changed, or the first it marks up as a time."""
    found = next((names[name] for name in _DATE_NAMES if _DATE.search(names.get(name, ""))), "")
    if not found:
        match = _JSON_DATE.search(html) if b'"date' in small else None
        match = match or (_TIME.search(html) if b"<time" in small else None)
        found = match[1] if match else ""
    day = _DATE.search(found)
    if day is None or not (1 <= int(day[2]) <= 12 and 1 <= int(day[3]) <= 31):
        return ""
    return f"{day[1]}-{day[2]}-{day[3]}"


def to_markdown(html: str, url: str, small: bytes | None = None) -> str:
    """All of the page that is visible, as Markdown: no scripts, no hidden text; "" if nothing is left."""
    html = with_words(plain_code(prepared(html, small)))
    text = _convert(html, url)
    if not text.strip():
        text = stripped(html)
    return tidy(text, url)


def prepared(html: str, small: bytes | None = None) -> str:
    """Hidden text out of the way, and nothing that a converter would choke on."""
    if "\0" in html:
        html, small = html.replace("\0", ""), None
    small = lowered(html) if small is None else small
    parts: list[str] = []
    at = 0
    start = small.find(b"style")
    while start >= 0:
        match = _STYLE.match(small, start)
        if match and _HIDING.search(match[1].strip(b"\"'")):
            # Nothing is taken away: in broken markup the quotes may be those of other attributes.
            parts += html[at:start], "hidden "
            at = start
        start = small.find(b"style", start + 5)
    return "".join((*parts, html[at:])) if parts else html


def plain_code(html: str) -> str:
    """Code without the spans that colour it: they are most of the tags of a page with much code.

    What is left of it holds no `<` and no `>`, and it is not part of an attribute, whose quotes it would
    upset: so nothing that is hidden can come to light by it, however the page is broken.
    """
    if "<span" not in html:
        return html
    html = "".join(_CODE_SPAN.split(html))
    parts: list[str] = []
    at = looked = end = 0
    quotes = {'"': -1, "'": -1}
    while match := _PRE.search(html, end):
        for quote, last in quotes.items():
            quotes[quote] = max(last, html.rfind(quote, looked, match.start()))
        looked, end = match.start(), html.find("</pre>", match.end())
        if end < 0:
            break
        code = html[match.end() : end]
        bare = _PLAIN_SPAN.sub("", code).replace("</span>", "")
        inner = bare.removesuffix("</code>")
        if len(bare) < len(code) and not ("<" in inner or ">" in inner or _opens(html, quotes)):
            parts += html[at : match.end()], bare
            at = end
    return "".join((*parts, html[at:])) if parts else html


def _opens(html: str, quotes: Mapping[str, int]) -> bool:
    """Whether one of the quotes that stand last may be one that opens a value: all behind it is inside."""
    before = (html[max(0, at - 100) : at].rstrip() for at in quotes.values() if at > 0)
    return any(not text or text.endswith("=") for text in before)


def _convert(html: str, url: str) -> str:
    from html_to_markdown import convert

    try:
        return convert(html, _options(url)).content or ""
    except Exception:
        # The library raises many kinds of errors for broken markup; plain text is then better than none.
        return ""


@cache
def _all_of_it() -> Any:
    from html_to_markdown import PreprocessingOptions

    # Its clean-up knows navigation and adverts by their tags and classes, and forms: all of it is visible.
    return PreprocessingOptions(enabled=False)


def _options(url: str) -> Any:
    from html_to_markdown import ConversionOptions

    return ConversionOptions(
        preprocessing=_all_of_it(),
        extract_metadata=False,
        skip_images=True,
        compact_tables=True,
        bullets="-",
        base_url=url,
    )


def tidy(text: str, url: str) -> str:
    """Shorter without losing anything: no permalink marks, no titles of links, no active links."""
    # As bytes: one rare character makes every other one take two or four, and all of this as much slower.
    data = text.encode("utf-8", "surrogatepass")
    data = data.replace(f"]({url.partition('#')[0]}#".encode(), b"](#")
    if b'")' in data:
        data = b"".join(_LINK_TITLE.split(data))
    data = _PERMALINK.sub(b"", data)
    if _ACTIVE.search(data):
        data = _ACTIVE_LINK.sub(rb"\1", data)
    data = _BLANKS.sub(b"\n\n", data.replace(b"  \n", b"\n"))
    return data.decode("utf-8", "surrogatepass").strip()


def stripped(html: str) -> str:
    """The text between the tags: the last resort for markup that no converter takes."""
    text = _BLOCK_END.sub("\n", _DROPPED.sub(" ", html))
    text = entities.unescape(re.sub(r"<[^<>]*>", "", text))
    return _BLANK.sub("\n\n", re.sub(r"[ \t\xa0]+", " ", text)).strip()


def article(html: str, url: str) -> str:
    """Only the main text of an article, or "" if there seems to be none."""
    from trafilatura import extract, load_html

    tree: Any = load_html(prepared(html))
    if tree is None:
        return ""
    _without_hidden(tree)
    text = extract(
        tree,
        url=url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_formatting=True,
        include_comments=False,
        favor_recall=True,
    )
    return tidy(text or "", url)


def _without_hidden(tree: Any) -> None:
    """The library finds the article; that a browser would not show a part of it, it does not look at."""
    # Text behind what goes joins the text before it: put together once, however many pieces there are.
    joined: dict[tuple[Any, Any], list[str]] = {}
    for element in tree.xpath("//template | //noscript | //*[@hidden] | //*[@style]"):
        style = element.get("style", "").lower()
        if element.tag not in _UNSEEN_TAGS and element.get("hidden") is None and not _NOT_SHOWN.search(style):
            continue
        parent, before = element.getparent(), element.getprevious()
        if parent is None:
            continue
        joined.setdefault((parent, before), []).append(element.tail or "")
        parent.remove(element)
    for (parent, before), texts in joined.items():
        if before is not None:
            before.tail = "".join((before.tail or "", *texts))
        else:
            parent.text = "".join((parent.text or "", *texts))
