"""What is not HTML, as text: PDF, feeds, JSON.

Called by `page` in the worker, whose memory and time are limited: a hostile PDF or a deeply nested JSON
ends there. Each function raises `UnreadableBody` with a sentence for the model.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

PDF_PAGES = 500
FEED_ITEMS = 100


class UnreadableBody(Exception):
    """The body is not what it claims to be, or cannot be turned into text."""


class Text(Struct, frozen=True, kw_only=True):
    text: str
    title: str = ""
    date: str = ""
    notes: tuple[str, ...] = ()


def pretty_json(text: str) -> Text:
    """JSON with indentation, so that lines can be viewed and searched; the text itself if it is broken."""
    try:
        value: Any = json.loads(text)
        return Text(text=json.dumps(value, indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return Text(text=text, notes=("this is not valid JSON, so it is shown as it came",))


def pdf(body: bytes, most: int) -> Text:
    """The text of a PDF, page by page under a heading each."""
    import pypdfium2  # pyright: ignore[reportMissingTypeStubs]

    try:
        document: Any = pypdfium2.PdfDocument(body)
    except pypdfium2.PdfiumError as error:
        encrypted = "password" in str(error).lower()
        raise UnreadableBody(
            "the PDF is protected by a password" if encrypted else "the PDF is damaged or cut off"
        ) from None
    pages: int = len(document)
    parts: list[str] = []
    size = 0
    notes: list[str] = []
    for number in range(min(pages, PDF_PAGES)):
        text = _pdf_page(document, number)
        parts.append(f"## Page {number + 1}\n\n{text}")
        size += len(text)
        if size > most:
            notes.append(f"only pages 1 to {number + 1} of {pages} were read")
            break
    else:
        if pages > PDF_PAGES:
            notes.append(f"only the first {PDF_PAGES} of {pages} pages were read")
    if not size:
        raise UnreadableBody(
            f"the PDF has {pages} page{'' if pages == 1 else 's'} but no text: it is probably a scan"
        )
    about: dict[str, str] = document.get_metadata_dict()
    return Text(
        text="\n\n".join(parts),
        title=" ".join(about.get("Title", "").split())[:300],
        date=_pdf_date(about.get("CreationDate", "")),
        notes=(*notes, f"{pages} page{'' if pages == 1 else 's'}"),
    )


def _pdf_page(document: Any, number: int) -> str:
    try:
        page = document[number]
        text: str = page.get_textpage().get_text_bounded()
        page.close()
    except Exception:
        # One damaged page must not cost the others.
        return "(this page cannot be read)"
    # The library marks a word that was divided at the end of a line with one of these.
    text = re.sub(r"[￾\x02]\r?\n?", "", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _pdf_date(text: str) -> str:
    match = re.match(r"D:(\d{4})(\d{2})(\d{2})", text)
    return f"{match[1]}-{match[2]}-{match[3]}" if match else ""


def feed(body: bytes, url: str) -> Text:
    """RSS or Atom as a list: title, link, date and summary of each entry."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    from retinue.web.html import stripped

    try:
        root: Any = fromstring(body.lstrip())
    except DefusedXmlException:
        raise UnreadableBody("the feed declares entities, which is how XML bombs are made") from None
    except (ParseError, ValueError) as error:
        raise UnreadableBody(f"the feed is not valid XML ({error})") from None
    entries = [node for node in root.iter() if _name(node) in ("item", "entry")]
    lines: list[str] = []
    for entry in entries[:FEED_ITEMS]:
        title = " ".join(stripped(_child(entry, "title")).split()) or "(no title)"
        link = _link(entry, url)
        when = _child(entry, "pubDate", "published", "updated", "date")
        about = " ".join(stripped(_child(entry, "description", "summary", "content", "encoded")).split())
        lines.append(f"- [{title}]({link})" if link else f"- {title}")
        lines[-1] += f" ({when})" if when else ""
        if about and about != title:
            lines.append(f"  {about[:500]}{'…' if len(about) > 500 else ''}")
    top = next((node for node in root.iter() if _name(node) == "channel"), root)
    title = " ".join(stripped(_child(top, "title")).split())
    more = len(entries) - FEED_ITEMS
    notes = [f"{len(entries)} entries"] + ([f"the last {more} are left out"] if more > 0 else [])
    return Text(text=f"# {title or 'Feed'}\n\n" + "\n".join(lines), title=title, notes=tuple(notes))


def _name(node: Any) -> str:
    return str(node.tag).rpartition("}")[2]


def _child(node: Any, *names: str) -> str:
    for name in names:
        for child in node:
            if _name(child) == name:
                text = "".join(child.itertext()).strip()
                if text:
                    return text
    return ""


def _link(entry: Any, url: str) -> str:
    from retinue.web.urls import BadUrl, join

    found = ""
    for child in entry:
        if _name(child) == "link":
            found = child.get("href") or (child.text or "").strip()
            if found and child.get("rel", "alternate") == "alternate":
                break
    try:
        link = join(url, found) if found else ""
    except BadUrl:
        return ""
    return link if link.startswith(("http://", "https://")) else ""
