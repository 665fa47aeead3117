"""JSON, feeds, XML and PDF as text, and bodies that are not what they claim."""

from __future__ import annotations

import pytest
from paging import URL, page

from retinue.web.content import kind_of
from retinue.web.page import Job, Page
from retinue.web.worker import perform


def test_json_is_indented_and_broken_json_is_shown_as_it_came() -> None:
    assert (
        page('{"a":[1,{"b":"ü"}]}', "application/json").text
        == '{\n  "a": [\n    1,\n    {\n      "b": "ü"\n    }\n  ]\n}'
    )
    broken = page("{'a': 1}", "application/json")
    assert broken.text == "{'a': 1}"
    assert "not valid JSON" in broken.notes[0]
    assert page("[" * 100_000, "application/json").text.startswith("[[[")


RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>
<item><title>First &amp; best</title><link>https://x.test/1</link><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate>
<description>&lt;p&gt;Some &lt;b&gt;words&lt;/b&gt;&lt;/p&gt;</description></item>
<item><title>Second</title><link>/2</link></item></channel></rss>"""


ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Log</title><entry><title>Entry</title>
<link rel="self" href="https://x.test/self"/><link href="https://x.test/e"/><updated>2024-01-02T00:00:00Z</updated>
<summary>Sum</summary></entry></feed>"""


def test_feeds_become_lists() -> None:
    rss = page(RSS, "application/rss+xml")
    assert rss.kind == "feed"
    assert rss.text == (
        "# News\n\n- [First & best](https://x.test/1) (Mon, 01 Jan 2024 00:00:00 GMT)\n  Some words\n"
        "- [Second](https://docs.example.org/2)"
    )
    atom = page(ATOM, "text/xml")
    assert atom.text == "# Log\n\n- [Entry](https://x.test/e) (2024-01-02T00:00:00Z)\n  Sum"


ENTITIES = '<!DOCTYPE r [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'


BOMB = "<rss><channel><title>&b;</title></channel></rss>"


def test_an_xml_bomb_is_refused() -> None:
    # Between comments the declaration is overlooked when the kind is told, so this one reaches the parser.
    body = f'<?xml version="1.0"?><!-- x -->{ENTITIES}<!-- y -->{BOMB}'
    assert kind_of("application/rss+xml", body.encode()) == "feed"
    found = perform(Job(body=body.encode(), content_type="application/rss+xml", url=URL))
    assert isinstance(found, Page)
    assert found.problem == "the feed declares entities, which is how XML bombs are made"
    assert found.text == ""


@pytest.mark.parametrize("between", ["", "\n", "<!-- x -->"])
def test_xml_that_begins_with_declarations_is_shown_as_it_came(between: str) -> None:
    body = f'<?xml version="1.0"?>{between}{ENTITIES}{BOMB}'
    found = page(body, "application/rss+xml")
    assert (found.kind, found.text) == ("text", body)


def make_pdf(*pages: str) -> bytes:
    """The smallest PDF with real text on each page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for words in pages:
        stream = f"BT /F1 12 Tf 72 700 Td ({words}) Tj ET"
        number = len(objects) + 1
        kids.append(f"{number} 0 R")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {number + 1} 0 R "
            "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    info = len(objects) + 1
    objects.append("<< /Title (A report) /CreationDate (D:20240203040506Z) >>")
    out, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += "".join(f"{offset:010} 00000 n \n" for offset in offsets).encode()
    return (
        out
        + (
            f"trailer << /Size {len(objects) + 1} /Root 1 0 R /Info {info} 0 R >>\nstartxref\n{table}\n%%EOF"
        ).encode()
    )


def test_a_pdf_is_read_page_by_page() -> None:
    found = page(make_pdf("Hello from page one", "And from page two"), "application/octet-stream")
    assert found.kind == "pdf"
    assert found.text == "## Page 1\n\nHello from page one\n\n## Page 2\n\nAnd from page two"
    assert (found.title, found.date, found.notes) == ("A report", "2024-02-03", ("2 pages",))
    assert [h.line for h in found.outline] == [1, 5]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"%PDF-1.4\ngarbage", "damaged"),
        (make_pdf("x")[:200], "damaged"),
        (make_pdf(""), "probably a scan"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "not text"),
        (bytes(range(256)) * 4, "not text"),
    ],
)
def test_what_cannot_be_read_says_why(body: bytes, says: str) -> None:
    assert says in page(body, "application/pdf").problem


@pytest.mark.parametrize(
    ("declared", "head", "kind"),
    [
        ("text/html", b"<p>", "html"),
        ("text/html", b"%PDF-1.7", "pdf"),
        ("text/html", b'{"a": 1}', "json"),
        ("text/plain", b"<html><body>", "text"),
        ("", b"  <!DOCTYPE html><html>", "html"),
        ("application/octet-stream", b"plain words", "text"),
        ("application/octet-stream", b"\x00\x01\x02\x03", "binary"),
        ("image/png", b"\x89PNG", "binary"),
        ("image/svg+xml", b"<svg>", "text"),
        ("text/plain", b"PK\x03\x04", "binary"),
        ("application/xml", b'<?xml version="1.0"?>\n<rss>', "feed"),
        ("application/vnd.api+json; charset=utf-8", b"{}", "json"),
        ("text/plain", "\ufeffwide".encode("utf-16"), "text"),
        ("video/mp4", b"words that lie", "binary"),
    ],
)
def test_a_body_is_what_it_is_and_not_what_it_claims(declared: str, head: bytes, kind: str) -> None:
    assert kind_of(declared, head) == kind
