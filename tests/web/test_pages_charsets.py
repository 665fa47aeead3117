"""Charsets, bytes of any kind, and the frame around a text."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paging import job, page

from retinue.web.content import decode
from retinue.web.framing import frame
from retinue.web.worker import ConversionFailed, perform


@pytest.mark.parametrize(
    ("body", "declared", "shown"),
    [
        ("Grüße".encode(), "text/html; charset=utf-8", "Grüße"),
        ("Grüße".encode(), "text/html", "Grüße"),
        ("Grüße".encode("latin-1"), "text/html; charset=ISO-8859-1", "Grüße"),
        ("“so”".encode("cp1252"), "text/html; charset=iso-8859-1", "“so”"),
        ("Grüße".encode(), "text/html; charset=iso-8859-1", "Grüße"),
        ("Grüße".encode("utf-16"), "text/html", "Grüße"),
        ("Grüße".encode("utf-8-sig"), "text/html; charset=latin-1", "Grüße"),
        (
            '<meta charset="windows-1251">Привет'.encode("cp1251"),
            "text/html",
            '<meta charset="windows-1251">Привет',
        ),
        ("日本語".encode("shift_jis"), "text/html; charset=Shift_JIS", "日本語"),
        ("中文".encode("gb18030"), "text/html; charset=gb2312", "中文"),
        ("Grüße".encode("latin-1"), "text/html; charset=utf-8", "Grüße"),
        (b"plain", "text/html; charset=no-such-charset", "plain"),
        (b"plain", "text/html; charset=rot13", "plain"),
        (b"plain", "text/html; charset=zlib", "plain"),
        (b"+AGEAYg-", "text/html; charset=utf-7", "+AGEAYg-"),
        (b"", "text/html; charset=utf-8", ""),
    ],
)
def test_text_is_read_in_its_true_charset(body: bytes, declared: str, shown: str) -> None:
    long = body * 30 if b"meta" not in body and not body.startswith((b"\xff\xfe", b"\xef\xbb")) else body
    assert decode(long, declared) == shown * (len(long) // len(body) if body else 0)


def test_a_body_that_was_cut_in_the_middle_of_a_character_is_no_error() -> None:
    assert decode("Grüß".encode()[:-1], "text/html; charset=utf-8", cut=True) == "Grü"


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "utf-8", "shift_jis", "utf-16", "iso-2022-jp", "big5", "hz", "x"]),
)
@settings(max_examples=60, deadline=None)
def test_any_bytes_give_some_text(body: bytes, charset: str) -> None:
    assert isinstance(decode(body, f"text/html; charset={charset}"), str)


MARKUP = st.lists(
    st.sampled_from(
        ["<p>", "</p>", "<div hidden>", "</div>", "<table>", "<tr>", "<td rowspan=9>", "</table>", "<pre>", "<a href='x'>",
         "</a>", "<!--", "-->", "<script>", "</script>", "&amp", "&#0;", "\0", "<h1>", "<", ">", '"', "words ", "\n", "é",
         "<title>", "<meta charset=x>", "style='opacity:0'", "<ul><li>", "`", "|", "[", "](javascript:x)"]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(MARKUP)
@settings(deadline=None)
def test_no_markup_makes_the_converter_fail(html: str) -> None:
    found = page("<html><body>Some words to begin with. " * 3 + html)
    assert not found.problem
    assert "\0" not in found.text


def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "html_to_markdown", None)
    found = perform(job("<p>x</p>"))
    assert isinstance(found, ConversionFailed)
    assert "needs the package html_to_markdown: pip install 'retinue[web]'" in found.reason


@given(st.text(max_size=200))
def test_no_text_can_hold_its_own_marks(body: str) -> None:
    body = body.encode("utf-8", "replace").decode()
    framed = frame(body, what="web page", secret=b"k" * 32)
    first, *_, last = framed.split("\n")
    code = first.split()[2]
    assert last == f"[web page {code} ends]"
    assert framed.count(code) == 2
    assert frame(body, what="web page", secret=b"k" * 32) == framed
    assert code not in frame(body + "x", what="web page", secret=b"k" * 32)
