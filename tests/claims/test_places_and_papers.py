"""Sentences that cite lines of files, papers and items of a lookup are held against these, in any script."""

from __future__ import annotations

import pytest

from counting import assert_linear
from retinue.claims.code import Lines, hold_snippet
from retinue.claims.items import own_part
from retinue.claims.verdicts import Work
from retinue.sources import check
from retinue.types import Claim, Source

RETRY = """\"\"\"Calls that are made again.\"\"\"

import random

LIMIT = 5
TIMEOUT = 30_000  # milliseconds


class RetryPolicy:
    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit

    def delay(self, attempt: int) -> float:
        # twice as long each time
        return min(60.0, 0.5 * 2**attempt)


def with_retries(call, policy):
    for attempt in range(policy.limit):
        try:
            return call()
        except ConnectionError:
            wait(policy.delay(attempt))
    raise GaveUp(policy.limit)


def unrelated():
    return None


def last_of_all(value):
    return value * 7
"""
NOTES = "# Notes\n\nThe Harrow Bridge is 330 metres long.\nIt opened in 1874.\n"
FILES = {"src/retry.py": RETRY, "NOTES.md": NOTES}
SOURCES = [Source(path=path, lines=(1, text.count("\n"))) for path, text in FILES.items()]


def claims(text: str) -> list[Claim]:
    return list(check(text, SOURCES, FILES).claims.claims)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("The retry limit is 5 (src/retry.py:5).", "supported"),
        ("The retry limit is 8 (src/retry.py:5).", "contradicted"),
        ("The timeout is 30 seconds (`src/retry.py:6`).", "supported"),
        ("The timeout is 45 seconds (`src/retry.py:6`).", "contradicted"),
        ("`RetryPolicy.delay` doubles the delay up to 60 seconds (retry.py:13-15).", "supported"),
        ("`RetryPolicy.delay` doubles the delay up to 90 seconds (retry.py:13-15).", "contradicted"),
        ("Every call goes through `with_retries` (src/retry.py:18).", "supported"),
        ("Every call goes through `with_retries()`, src/retry.py lines 18 to 24.", "supported"),
        ("The best match is `src/retry.py:18`, in `with_retries`.", "supported"),
        ("Errors are counted by `last_of_all` (src/retry.py:5).", "not_found"),
        ("Errors are counted by `error_counter` (src/retry.py:18).", "not_found"),
        ("`retry.py` is at `src/retry.py:1`.", "unchecked"),
        ("Before it, `other.py` is loaded (src/retry.py:3).", "unchecked"),
        ("See `src/policies` as well, which comes first (src/retry.py:3).", "unchecked"),
        ("`retry.py` has the class `ErrorCounter` (src/retry.py:18).", "not_found"),
        ("`retry.load` comes first (src/retry.py:3).", "not_found"),
        ("This part is rather hard to follow and should be split (src/retry.py:18).", "unchecked"),
        ("The bridge is 330 m long (NOTES.md:3).", "supported"),
        ("The bridge is 350 m long (NOTES.md:3).", "contradicted"),
        ("The limit is 5 [1].\n\n[1] src/retry.py:5", "supported"),
        ("The limit is 6 [1].\n\n[1] src/retry.py:5", "contradicted"),
    ],
)
def test_a_sentence_is_held_against_the_lines_that_it_cites(text: str, verdict: str) -> None:
    assert [claim.verdict for claim in claims(text)] == [verdict]


def test_a_sentence_is_shown_without_the_marks_that_its_citation_stood_in() -> None:
    assert [claim.text for claim in claims("`retry.py` is at `src/retry.py:1`, in a folder.")] == [
        "`retry.py` is at, in a folder."
    ]


def test_the_passage_of_a_cited_line_is_that_line() -> None:
    (claim,) = claims("The retry limit is 8 (src/retry.py:5).")
    assert (claim.source, claim.passage, claim.cites) == ("src/retry.py", "LIMIT = 5", ("src/retry.py:5",))
    assert claim.place is not None
    assert RETRY[slice(*claim.place)] == "LIMIT = 5"
    (difference,) = claim.differences
    assert (difference.claim, difference.source) == ("8", "5")


def test_what_stands_elsewhere_in_the_file_is_named_with_its_line() -> None:
    (claim,) = claims("Errors are counted by `last_of_all` (src/retry.py:5).")
    assert [(one.kind, one.source) for one in claim.differences] == [("code", "line 31")]


TRUE_SNIPPET = "```python\n    for attempt in range(policy.limit):\n        try:\n```"
FALSE_SNIPPET = "```python\n    for attempt in range(policy.limit + 1):\n        try:\n```"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (f"`src/retry.py:19`\n{TRUE_SNIPPET}", "supported"),
        (f"**src/retry.py:19-20**:\n\n{TRUE_SNIPPET}", "supported"),
        (f"`src/retry.py:19`\n{FALSE_SNIPPET}", "contradicted"),
        ("```19:20:src/retry.py\n    for attempt in range(9):\n        try:\n```", "contradicted"),
        ("```py title=src/retry.py:19\n    for attempt in range(9):\n        try:\n```", "contradicted"),
        ("```python\n# src/retry.py:19\nfor attempt in range(9):\n    try:\n```", "contradicted"),
        ("```python\n# src/retry.py:19\nfor attempt in range(policy.limit):\n    ...\n```", "supported"),
        ("`src/retry.py:19`\n```\n19 | for attempt in range(policy.limit):\n20 |     try:\n```", "supported"),
        ("`src/retry.py:1`\n```python\ndef last_of_all(value):\n    return value * 7\n```", "not_found"),
        ("`src/retry.py:19`\n```python\nself.nothing_like_it = compute()\n```", "not_found"),
    ],
)
def test_a_snippet_is_held_against_the_place_it_stands_under(text: str, verdict: str) -> None:
    assert [claim.verdict for claim in claims(text)] == [verdict]


def test_code_below_a_sentence_may_be_a_proposal_and_accuses_nobody() -> None:
    found = claims(f"The loop in src/retry.py:19 should be longer:\n\n{FALSE_SNIPPET}")
    assert {claim.verdict for claim in found} == {"unchecked"}


def test_a_file_that_was_never_read_decides_nothing() -> None:
    assert [claim.verdict for claim in claims("The limit is 8 (src/other.py:5).")] == ["unchecked"]


@pytest.mark.parametrize(
    "text", ["We met at 10:30 with 12 people in Rome.", "It listens on localhost:8080 in Rome."]
)
def test_a_time_of_day_and_a_port_are_no_places(text: str) -> None:
    found = check(text, SOURCES, FILES).claims
    assert (found.claims, len(found.uncited)) == ((), 1)


# ---- papers and items

PAPER = "A study of 1,204 tea drinkers found that green tea lowered blood pressure by 8 percent in 12 weeks."


@pytest.mark.parametrize(
    ("url", "cited"),
    [
        ("https://doi.org/10.1000/tea.2021(4)", "doi:10.1000/tea.2021(4)"),
        ("https://dx.doi.org/10.1000/TEA.2021", "https://doi.org/10.1000/tea.2021"),
        ("https://publisher.example/doi/full/10.1000/tea.2021", "(10.1000/tea.2021)"),
        ("https://arxiv.org/abs/2101.01234v2", "arXiv:2101.01234"),
        ("https://arxiv.org/pdf/2101.01234v1.pdf", "arXiv:2101.01234v1"),
        ("https://arxiv.org/abs/2101.01234", "https://arxiv.org/pdf/2101.01234"),
        ("https://arxiv.org/abs/2101.01234", "https://doi.org/10.48550/arXiv.2101.01234"),
        ("https://pubmed.ncbi.nlm.nih.gov/31234567/", "PMID: 31234567"),
        ("https://www.wikidata.org/wiki/Q8686", "(Q8686)"),
        ("http://www.wikidata.org/entity/Q8686", "https://www.wikidata.org/wiki/Q8686"),
    ],
)
@pytest.mark.parametrize(("share", "verdict"), [("8", "supported"), ("18", "contradicted")])
def test_a_paper_is_known_by_each_of_its_names(url: str, cited: str, share: str, verdict: str) -> None:
    text = f"Green tea lowered blood pressure by {share} percent in 12 weeks {cited}."
    found = check(text, [Source(url=url)], {url: PAPER}).claims.claims
    assert [claim.verdict for claim in found] == [verdict]


@pytest.mark.parametrize(
    "line",
    ["[1] doi:10.1000/tea.2021", "1. Tea and blood pressure, a study", "[^1]: Smith, 10.1000/tea.2021."],
)
def test_a_list_of_sources_may_name_a_paper_without_its_address(line: str) -> None:
    mark = "[^1]" if "^" in line else "[1]"
    url = "https://doi.org/10.1000/tea.2021"
    text = f"Green tea lowered blood pressure by 18 percent {mark}.\n\n{line}\n"
    source = Source(url=url, title="Tea and blood pressure: a study")
    assert [claim.verdict for claim in check(text, [source], {url: PAPER}).claims.claims] == ["contradicted"]


def test_an_item_of_a_lookup_is_supported_by_what_is_said_of_it_alone() -> None:
    one, other = "https://a.example/1", "https://a.example/2"
    text = f"2 results\n\n[1] Harrow Bridge\n{one}\nIts span is 330 m.\n\n[2] Elm Bridge\n{other}\nIts span is 90 m.\n"
    assert "330" not in own_part(text, Source(url=other))
    found = check(
        f"The span of the bridge is 330 m ({other}).", [Source(url=one), Source(url=other)], {other: text}
    )
    assert [claim.verdict for claim in found.claims.claims] == ["contradicted"]


# ---- other scripts

SCRIPTS = {
    "https://example.org/zh": "# 樱桥\n\n樱桥全长240米，于1931年5月3日建成。设计者是王建国。桥不收费。",
    "https://example.org/ja": "# 桜橋\n\n桜橋は1931年5月3日に完成した。長さは240メートルで、設計者は田中一郎である。",
    "https://example.org/ko": "# 벚꽃다리\n\n벚꽃다리는 1931년 5월 3일에 완공되었다. 길이는 240미터이고 설계자는 김민수이다.",
    "https://example.org/ar": "# جسر الورد\n\nافتتح جسر الورد في 3 مايو 1931. يبلغ طول الجسر 240 مترا وصممه المهندس سامي حداد.",
    "https://example.org/he": "# גשר הוורד\n\nגשר הוורד נפתח ב-3 במאי 1931. אורך הגשר 240 מטר ותכנן אותו המהנדס יוסף לוי.",
    "https://example.org/ru": "# Розовый мост\n\nРозовый мост открыт 3 мая 1931 года. Длина моста 240 метров, архитектор Иван Петров.",
}


@pytest.mark.parametrize(
    ("page", "claim", "verdict"),
    [
        ("zh", "樱桥全长240米。", "supported"),
        ("zh", "樱桥全长0.24公里。", "supported"),
        ("zh", "樱桥全长340米。", "contradicted"),
        ("zh", "樱桥于1931年5月建成。", "supported"),
        ("zh", "樱桥于1931年6月3日建成。", "contradicted"),
        ("zh", "樱桥的设计者是李小明。", "contradicted"),
        ("ja", "桜橋は1931年に完成した。", "supported"),
        ("ja", "桜橋の長さは340メートルである。", "contradicted"),
        ("ja", "桜橋の長さは240キロメートルである。", "contradicted"),
        ("ja", "桜橋の設計者は鈴木花子である。", "contradicted"),
        ("ko", "벚꽃다리의 길이는 240미터이다.", "supported"),
        ("ko", "벚꽃다리의 길이는 340미터이다.", "contradicted"),
        ("ar", "يبلغ طول الجسر 240 مترا.", "supported"),
        ("ar", "يبلغ طول الجسر ٢٤٠ مترا.", "supported"),
        ("ar", "يبلغ طول الجسر 340 مترا.", "contradicted"),
        ("ar", "افتتح الجسر في ٣ مايو ١٩٣١.", "supported"),
        ("ar", "افتتح الجسر في 3 يونيو 1931.", "contradicted"),
        ("he", "אורך הגשר הוא 240 מטר.", "supported"),
        ("he", "אורך הגשר הוא 340 מטר.", "contradicted"),
        ("he", "הגשר נפתח ב-3 ביוני 1931.", "contradicted"),
        ("ru", "Длина моста 240 метров.", "supported"),
        ("ru", "Мост открыт 3 июня 1931 года.", "contradicted"),
        ("ru", "Длина моста 240 км.", "contradicted"),
    ],
)
def test_a_claim_in_any_script_is_held_against_its_source(page: str, claim: str, verdict: str) -> None:
    url = f"https://example.org/{page}"
    for text in (f"{claim} {url}", f"- {claim[:-1]} [1]{claim[-1]}\n\n[1] {url}"):
        found = check(text, [Source(url=url)], SCRIPTS).claims.claims
        assert [one.verdict for one in found] == [verdict]
        assert text[found[0].start : found[0].end].startswith(claim[:5]) or text.startswith("- ")


@pytest.mark.parametrize("piece", ["`a` ", "a.py:1 ", "10.1000/", "arXiv:", "1_", "```\n", "Q1) ", "[1] a\n"])
def test_looking_at_places_and_names_takes_time_in_proportion(piece: str) -> None:
    assert_linear(lambda size: check(f"{piece * size} src/retry.py:5", SOURCES, FILES), 2_000)


def test_a_snippet_takes_as_much_work_as_it_and_its_file_are_long() -> None:
    file = Lines("a.py", "a\n" * 1_000, 1, 1)
    for body in ("x = " + "1 " * 5_000, "a"):
        work = Work(100_000)
        hold_snippet(body, file, work, given=True)
        assert 100_000 - work.left >= len(body) + len(file.text)
    assert hold_snippet("a", file, Work(1_500), given=True).verdict == "unchecked"
