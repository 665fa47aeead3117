"""Reports are held against what was really fetched and read."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counting import assert_linear
from retinue.quotations import plain
from retinue.sources import check, trimmed
from retinue.types import Source
from retinue.web.urls import key

GUIDE = Source(
    url="https://docs.example.org/guide",
    title="The guide",
    aliases=("http://example.org/g?utm_source=mail", "https://example.org/old"),
)
GUIDE_TEXT = """# The guide

The parser reads **one token at a time**, and it never looks back — not even once[1].
See [the reference](https://docs.example.org/ref) for details; “quoted words” are kept.
A second paragraph says that limits are *soft* by default.
"""
LOOP = Source(path="src/app/loop.py", lines=(1, 40))
LOOP_TEXT = "\n".join(f"line {n}" for n in range(1, 101))
TEXTS = {str(GUIDE.url): GUIDE_TEXT, "src/app/loop.py": LOOP_TEXT}


def kinds(text: str, sources: list[Source] | None = None) -> list[str]:
    return [p.kind for p in check(text, [GUIDE, LOOP] if sources is None else sources, TEXTS).problems]


# ---- pages


@pytest.mark.parametrize(
    "citation",
    [
        "See [the guide](https://docs.example.org/guide).",
        "See https://docs.example.org/guide.",
        "(https://docs.example.org/guide)",
        "See <https://docs.example.org/guide>, it says so",
        "HTTPS://Docs.Example.Org:443/guide/#part-2",
        "http://docs.example.org/guide?utm_source=x&utm_medium=y",
        "Text.[^1]\n\n[^1]: https://docs.example.org/guide",
        "[1]: https://docs.example.org/guide",
        '[guide](https://docs.example.org/guide "with a title")',
        "**https://docs.example.org/guide**",
        "`https://docs.example.org/guide`",
        "https://docs.example.org/guide。",
        "asked for as http://example.org/g",
        "redirected from https://example.org/old/",
        "https://docs.example.org/%67uide",
    ],
)
def test_a_fetched_page_is_known_however_it_is_written(citation: str) -> None:
    checked = check(citation, [GUIDE], TEXTS)
    assert checked.problems == ()
    assert checked.text_sources == (GUIDE,)


def test_a_page_that_was_never_fetched_is_unverified() -> None:
    checked = check("As [they say](https://docs.example.org/other).", [GUIDE], TEXTS)
    (source,) = checked.text_sources
    assert (source.url, source.verified, source.note) == (
        "https://docs.example.org/other",
        False,
        "never fetched",
    )
    (problem,) = checked.problems
    assert problem.kind == "never_fetched"
    assert (problem.cited, problem.note) == ("https://docs.example.org/other", "cited but never fetched")


def test_another_query_is_another_page() -> None:
    assert kinds("https://docs.example.org/guide?page=2") == ["never_fetched"]


def test_cited_pages_come_once_and_in_their_order() -> None:
    text = "https://b.example.net/x then https://docs.example.org/guide then http://b.example.net/x/ again"
    checked = check(text, [GUIDE], TEXTS)
    assert [s.url for s in checked.text_sources] == ["https://b.example.net/x", GUIDE.url]


def test_addresses_in_code_are_not_citations() -> None:
    assert (
        kinds("```sh\ncurl https://api.example.net/v1\n```\nand `curl https://api.example.net/v1 -o x`") == []
    )


def test_parentheses_that_belong_to_an_address_stay() -> None:
    source = Source(url="https://en.example.org/wiki/C_(language)")
    assert check("([C](https://en.example.org/wiki/C_(language)))", [source], {}).problems == ()


# ---- files


@pytest.mark.parametrize(
    "citation",
    ["src/app/loop.py:12", "`loop.py:12-20`", "app/loop.py#L40", "./src/app/loop.py:1", "loop.py, line 7",
     "src/app/loop.py (lines 3–9)", "in loop.py:40."],
)  # fmt: skip
def test_a_line_that_was_read_is_verified(citation: str) -> None:
    checked = check(citation, [LOOP], TEXTS)
    assert checked.problems == ()
    assert [s.path for s in checked.text_sources] == ["src/app/loop.py"]


@pytest.mark.parametrize(
    ("citation", "kind"),
    [
        ("src/app/loop.py:41", "line_not_read"),
        ("loop.py:30-50", "line_not_read"),
        ("loop.py:101", "line_beyond_end"),
        ("src/app/other.py:3", "never_read"),
        ("lib/app/loop.py:3", "never_read"),
        ("`other.rs:10`", "never_read"),
    ],
)
def test_a_line_that_was_not_read_is_flagged(citation: str, kind: str) -> None:
    checked = check(f"See {citation} for it.", [LOOP], TEXTS)
    assert [p.kind for p in checked.problems] == [kind]
    assert checked.text_sources[0].verified is False


def test_spans_read_in_turn_add_up() -> None:
    parts = [LOOP, Source(path="src/app/loop.py", lines=(41, 60))]
    assert kinds("loop.py:30-50", parts) == []
    assert kinds("loop.py:30-70", parts) == ["line_not_read"]


def test_a_file_read_as_a_whole_has_all_its_lines_and_no_more() -> None:
    whole = [Source(path="src/app/loop.py")]
    assert kinds("loop.py:100", whole) == []
    assert kinds("loop.py:102", whole) == ["line_beyond_end"]


def test_a_file_without_extension_counts_once_it_was_read() -> None:
    assert kinds("Makefile:3", []) == []
    assert kinds("Makefile:30", [Source(path="Makefile", lines=(1, 9))]) == ["line_not_read"]


@pytest.mark.parametrize(
    "text",
    ["at 12:30", "localhost:8080", "example.com:443", "127.0.0.1:80", "ratio 3.5:1", "http://x.test:80/a.py:3 x",
     "version 2.1:", "and/or:5", "std::vec:3"],
)  # fmt: skip
def test_what_only_looks_like_a_line_is_left_alone(text: str) -> None:
    assert [p.kind for p in check(text, [LOOP], TEXTS).problems if p.kind != "never_fetched"] == []


# ---- quotations


@pytest.mark.parametrize(
    "quotation",
    [
        '"The parser reads one token at a time"',
        "“the parser reads *one token* at a time, and it never looks back - not even once.”",
        "„The parser  reads one\ntoken at a time“",
        "«THE PARSER READS ONE TOKEN AT A TIME»",
        '"The parser reads … and it never looks back"',
        '"The parser [...] never looks back -- not even once"',
        '"The ... reads ... one ... token ... never"',
        '"The parser [sic, p. 9] reads one [my stress] token at a time"',
        '"[It] reads one token at a time, and it never looks back"',
        "\"See the reference for details; 'quoted words' are kept\"",
        "> The parser reads one token at a time\n\nhttps://docs.example.org/guide",
        "> The parser reads one token at a time ([guide](https://docs.example.org/guide))",
        "> limits are soft by default.\n> — [guide](https://docs.example.org/guide)",
    ],
)
def test_words_that_are_in_the_page_are_found_however_they_are_set(quotation: str) -> None:
    assert kinds(f"They write {quotation}" if not quotation.startswith(">") else quotation) == []


@pytest.mark.parametrize(
    "quotation",
    [
        '"The parser reads two tokens at a time"',
        "“limits are hard by default, always”",
        '"it never looks back … The parser reads one token"',
        '"cats ... eat ... mouse ... and ... bread"',
        '"never ... token ... reads ... The ... one"',
        "> The parser reads everything twice, to be sure\n\nhttps://docs.example.org/guide",
        "> Limits are only a suggestion, said the guide\n> — [guide](https://docs.example.org/guide)",
    ],
)
def test_words_that_are_in_no_page_are_flagged(quotation: str) -> None:
    text = f"They write {quotation}" if not quotation.startswith(">") else quotation
    assert kinds(text) == ["quotation_not_found"]


def test_a_block_quote_without_a_source_is_not_taken_for_a_quotation() -> None:
    assert kinds("> This is my own remark, set apart from the rest") == []


def test_a_callout_is_not_a_quotation() -> None:
    assert kinds("> **Note:** mind the limits here\n\nhttps://docs.example.org/guide") == []


def test_short_words_in_quotes_are_left_alone() -> None:
    assert kinds('the so-called "soft limits" of it') == []


def test_quotes_inside_code_are_left_alone() -> None:
    assert kinds('call `print("something that is in no page at all")` then') == []


def test_words_of_the_task_may_be_quoted() -> None:
    text = 'You asked "what does the committee think of this plan".'
    assert check(text, [GUIDE], TEXTS).problems != ()
    known = ("Tell me what does the committee think of this plan?",)
    assert check(text, [GUIDE], TEXTS, known=known).problems == ()


def test_a_quotation_is_not_accused_where_there_is_nothing_to_check_against() -> None:
    assert check('He said "this is certainly not to be found anywhere".', [], {}).problems == ()


@pytest.mark.parametrize("cited", ["https://nowhere.example.org/page", "`src/nowhere.py:3`"])
def test_a_quotation_beside_an_invented_source_is_accused_though_nothing_was_read(cited: str) -> None:
    found = check(f'{cited} says "this is certainly not to be found anywhere".', [], {})
    assert [problem.kind for problem in found.problems][1:] == ["quotation_not_found"]


def test_a_missing_text_is_mentioned() -> None:
    gone = Source(url="https://gone.example.org/")
    (problem,) = check('"words that are nowhere to be found now"', [GUIDE, gone], TEXTS).problems
    assert "1 of 2 are not" in problem.note


# ---- for any text

WORDS = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz     äéß語中"), min_size=60, max_size=300)
MUTATIONS = [
    lambda s: s.upper() if "ß" not in s else s,
    lambda s: s.replace(" ", "  \n"),
    lambda s: s.replace(" ", " **", 1) + "**",
    lambda s: re.sub(r" ", " — ", s, count=2),
    lambda s: s.replace(" ", "\u00a0"),
    lambda s: s + "…",
    lambda s: "…" + s,
]  # fmt: skip


@given(text=WORDS, at=st.integers(0, 30), length=st.integers(30, 60), change=st.sampled_from(MUTATIONS))
def test_any_part_of_a_page_is_found_after_typesetting(text: str, at: int, length: int, change) -> None:
    part = " ".join(text[at : at + length].split())
    quotation = change(part)
    checked = check(f"It says “{quotation}” there.", [GUIDE], lambda _: text)
    assert checked.problems == ()


@given(text=WORDS, other=st.text("0123456789", min_size=25, max_size=60))
def test_what_is_not_in_a_page_is_never_found(text: str, other: str) -> None:
    (problem,) = check(f"It says “{other}” there.", [GUIDE], lambda _: text).problems
    assert problem.kind == "quotation_not_found"


MESSY = st.lists(
    st.sampled_from(
        [*'abc:/.#>`"“”„«»[]()!…-—*_~<0123456789\n ', "https://", "x.py:1", "> ", "[^1]", "é", "\ud7ff"]
    ),
    max_size=300,
).map("".join)


@settings(max_examples=300)
@given(text=MESSY, page=MESSY)
def test_no_text_makes_it_fail(text: str, page: str) -> None:
    checked = check(text, [GUIDE, LOOP], lambda _: page)
    for source in checked.text_sources:
        assert source.verified or source.note
    assert check(text, [GUIDE, LOOP], lambda _: page) == checked


@given(
    host=st.from_regex(r"[a-z]{1,10}\.[a-z]{2,5}", fullmatch=True),
    path=st.from_regex(r"(/[a-zA-Z0-9._~-]{1,8}){0,3}", fullmatch=True),
    end=st.sampled_from([".", ",", ").", "**", "!", "?", "'", ";", ":"]),
    fragment=st.sampled_from(["", "#a", "#L1"]),
    tracking=st.sampled_from(["", "?utm_campaign=x", "?fbclid=1&gclid=2"]),
)
def test_a_cited_address_has_the_key_of_the_fetched_one(host, path, end, fragment, tracking) -> None:
    path = path.rstrip(".,_~")
    fetched = f"https://{host}{path}"
    cited = f"HTTP://{host.upper()}:80{path}/{tracking}{fragment}"
    assert key(trimmed(cited + end)) == key(fetched)


@pytest.mark.parametrize("piece", ['"', "“", "[", "](", "> ", "`", "http://", ")", "a/", "x.py:1 ", "…", "```\n", "('",
                                   '"a b ', "[a](", "http://x.com/)", ".", "~~~\n```\n", " \n", "12:3-", "[1]"])  # fmt: skip
def test_work_grows_with_the_length_of_the_text_and_no_faster(piece: str) -> None:
    page = GUIDE_TEXT * 20
    assert_linear(lambda size: check(piece * (size // len(piece)), [GUIDE, LOOP], lambda _: page), 160_000)


def test_plain_text_is_letters_and_digits() -> None:
    assert plain("A “b”—[c](https://x.test/y)… *d*[12] ﬁ") == "abcdfi"
