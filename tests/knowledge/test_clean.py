"""HTML, entities and wiki markup become text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from counting import assert_linear
from retinue.tools.knowledge.clean import cut, line, plain, snippet, title


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("", ""),
        ("no markup", "no markup"),
        ("a <b>bold</b> &amp; <i>thin</i>&nbsp;line", "a bold & thin\xa0line".replace("\xa0", " ")),
        ("<p>one</p><p>two</p>", "one\n\ntwo"),
        ("<ul><li>a</li><li>b</li></ul>", "- a\n\n- b"),
        ("x<script>alert('x')</script>y<style>p{}</style>", "xy"),
        ("<pre><code>if x:\n    y\n  z</code></pre>", "if x:\n    y\n  z"),
        ("5 &lt; 6 &#039;q&#039; &eacute;", "5 < 6 'q' é"),
        ("unclosed <b>tag <i", "unclosed tag"),
        ("&amp;lt;once&amp;gt;", "&lt;once&gt;"),
        ("a   b\n\n c", "a b c"),
        ("1 < 2 and <3", "1 < 2 and <3"),
        ("a<!-- <b>no</b> -->b<?php x ?>c", "abc"),
        ("<jats:p>x<jats:italic>y</jats:italic></jats:p>", "xy"),
    ],
)
def test_html_becomes_text(html: str, text: str) -> None:
    assert plain(html).replace("\xa0", " ") == text


def test_a_line_has_no_breaks() -> None:
    assert line("<p>one</p>\n<p>two</p>") == "one two"


def test_an_escaped_title_keeps_its_brackets() -> None:
    assert title("vector&lt;int&gt; vs  List&lt;String&gt;") == "vector<int> vs List<String>"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("&#039;&#039;&#039;Ada&#039;&#039;&#039; <span class='searchmatch'>L</span>", "Ada L"),
        ("an [[engine]] of [[Charles Babbage|Babbage]]", "an engine of Babbage"),
        ("#REDIRECT [[Ada Lovelace]]", "redirects to Ada Lovelace"),
        ("it's o'clock", "it's o'clock"),
    ],
)
def test_a_snippet_loses_its_wiki_markup(html: str, text: str) -> None:
    assert snippet(html) == text


def test_text_is_cut_at_a_word() -> None:
    assert cut("short", 10) == "short"
    assert cut("one two, three", 10) == "one two …"
    assert cut("x" * 50, 10) == "x" * 10 + " …"


@pytest.mark.parametrize("piece", ["<", "&", "<a ", "<!--", "[["])
@pytest.mark.parametrize("clean", [plain, snippet])
def test_hostile_markup_is_no_more_work_than_its_length(clean: Callable[[str], str], piece: str) -> None:
    assert_linear(lambda size: clean(piece * (size // len(piece))), 300_000)
