"""What a body really is, whatever its headers claim: its kind from type and first bytes, its text from its
charset.

Pure functions, called by `fetch` (is this worth reading?) and by `page` in the worker (how to read it).
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

Kind = Literal["html", "text", "json", "feed", "pdf", "binary"]

_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|x-yaml|javascript|x-javascript|ecmascript|toml|x-sh|sql|"
    r"x-ndjson|jsonl|x-tex|rtf|graphql|x-httpd-php|xhtml\+xml|rss|atom)|message/.*|image/svg\+xml"
)
_BINARY_MAGIC = (
    b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"MZ\x90", b"OggS", b"ID3",
    b"RIFF", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd", b"\x00\x00\x01\x00", b"wOFF", b"wOF2",
    b"\x00asm", b"SQLite format 3", b"Rar!", b"\xca\xfe\xba\xbe",
)  # fmt: skip
_HTML_START = re.compile(
    rb"\s*(?:<!--.{0,512}?-->\s*|<\?xml[^>]{0,200}\?>\s*)*<(?:!doctype\s+html|html|head|body|title|meta|script|div|"
    rb"article|main|p|h1|table)\b",
    re.IGNORECASE | re.DOTALL,
)
_FEED_START = re.compile(
    rb"(?:<\?xml[^>]{0,200}\?>|<\?xml-stylesheet[^>]{0,400}\?>|<!--.{0,512}?-->|\s++)*<(?:rss|feed|rdf:RDF)\b",
    re.DOTALL,
)
_META_CHARSET = re.compile(rb"""<meta[^>]{0,300}?charset\s*=\s*["']?\s*([\w:.-]{2,40})""", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"""<\?xml[^>]{0,100}?encoding\s*=\s*["']([\w:.-]{2,40})""", re.IGNORECASE)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What browsers do: pages that say latin-1 or ASCII mean the Windows code page.
_MEANT = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
}
_NOT_CHARSETS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf-7", "undefined"})
_ODD = bytes({*range(32)} - {9, 10, 11, 12, 13, 27})
_SINGLE_BYTE = re.compile(r"cp125\d|iso8859-\d+|koi8-[ru]|mac-\w+|cp\d{3}")


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def kind_of(content_type: str, head: bytes) -> Kind:
    """The kind of a body. The first bytes win where they are certain, the type decides the rest."""
    declared = media_type(content_type)
    if head.lstrip()[:5] == b"%PDF-":
        return "pdf"
    if head.startswith(_BINARY_MAGIC) or (_looks_binary(head) and not _wide(head)):
        return "binary"
    if _FEED_START.match(head):
        return "feed"
    if declared in ("application/json", "text/json") or declared.endswith("+json"):
        return "json"
    if declared in ("text/html", "application/xhtml+xml"):
        return "json" if head.lstrip()[:1] in (b"{", b"[") and not _HTML_START.match(head) else "html"
    if declared in ("", "application/octet-stream", "application/xml", "text/xml", "application/unknown"):
        return "html" if _HTML_START.match(head) else "text"
    if _TEXT_TYPES.fullmatch(declared):
        return "text"
    return "html" if _HTML_START.match(head) else "binary"


def _looks_binary(head: bytes) -> bool:
    sample = head[:1024]
    return len(sample) - len(sample.translate(None, _ODD)) > len(sample) // 20


def _wide(head: bytes) -> bool:
    return head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def decode(body: bytes, content_type: str, *, cut: bool = False) -> str:
    """The text of a body: byte order mark, header, what it says of itself, UTF-8, then a guess."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return _decoded(body, name, "replace", cut) or ""
    header = re.search(r"""charset\s*=\s*["']?\s*([\w:.-]{2,40})""", content_type, re.IGNORECASE)
    inside = _META_CHARSET.search(body[:4096]) or _XML_CHARSET.search(body[:200])
    claims = [header[1] if header else "", inside[1].decode("ascii") if inside else ""]
    names = [name for name in map(_codec, claims) if name]
    # Text that is valid UTF-8 beyond ASCII is UTF-8: a one-byte charset in the header is then a lie.
    if not names or _SINGLE_BYTE.fullmatch(names[0]):
        names.insert(0, "utf-8")
    for name in (*names, "utf-8"):
        text = _decoded(body, name, "strict", cut)
        if text is not None:
            return text
    return _decoded(body, _guess(body) or names[-1], "replace", cut) or ""


def _codec(name: str) -> str | None:
    try:
        info = codecs.lookup(name.strip().lower())
    except (LookupError, ValueError):
        return None
    if not getattr(info, "_is_text_encoding", True) or info.name in _NOT_CHARSETS:
        return None
    return _MEANT.get(info.name, info.name)


def _decoded(body: bytes, name: str, errors: str, cut: bool) -> str | None:
    try:
        if not cut:
            return body.decode(name, errors)
        # A body that was cut may end in half a character, which is no error.
        return codecs.getincrementaldecoder(name)(errors).decode(body)
    except (UnicodeError, LookupError, ValueError):
        return None


def _guess(body: bytes) -> str | None:
    from charset_normalizer import from_bytes

    best = from_bytes(body[:32_768]).best()
    return None if best is None else best.encoding
