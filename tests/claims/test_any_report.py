"""Whatever a report and its pages hold, the check of its claims ends soon, and never the run."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from counting import assert_linear, calls
from retinue import Retinue, report_facts
from retinue.claims import passages
from retinue.claims import report as claims_report
from retinue.claims.passages import SourceText
from retinue.claims.report import MOST_CITED, MOST_CLAIMS
from retinue.claims.verdicts import MOST_NUMBERS, Work, hold
from retinue.quotations import plain
from retinue.sources import Checked, check
from retinue.testing import ScriptedModel, call
from retinue.types import Report, Source

URL = "https://example.org/page"
SOURCES = [Source(url=URL, title="Towers")]
PAGE = "# Towers\nThe Eiffel Tower is 330 metres tall. It was opened on 31 March 1889 with 12 guests."

PIECES = st.sampled_from(
    [
        *(
            "[1]",
            "[^2]",
            "[1-2-3]",
            "[12-05-23]",
            "[1–3, 7]",
            "[1-",
            "【1】",
            "¹²",
            "[a][b]",
            f"[t]({URL})",
            URL,
        ),
        *("1" + "0" * 400, "0" * 50, "1.234.567,8", "1.234", "1,5", "-5 °C", "$3 million", "12k", "٣٣٠", "½"),
        *(
            "sıxty-two",
            "twenty",
            "İ",
            "31 March 1889",
            "1889-99-99",
            "3/4/2020",
            "| 12 m |",
            "|---|\n",
            "\n\n",
        ),
        *(
            "about",
            "not",
            "no longer",
            "Eiffel Tower",
            "higher",
            "“We were”",
            "「塔」",
            "塔は330メートル。",
            "`x`",
            "```\n",
        ),
        *(
            ". ",
            "? ",
            ": ",
            "# ",
            "- ",
            "1. ",
            "> ",
            "\x00",
            "\u202e",
            "\ud7ff",
            "km/h",
            "per cent",
            "tonnes",
        ),
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=25).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS)
@example(f"The log line [12-05-23] says the tower is 330 metres tall {URL}.", PAGE)
@example(f"The tower was seen [1-2-3] and is 330 metres tall {URL}.", PAGE)
@example(f"The tower has 1{'0' * 320} bolts in it {URL}.", PAGE)
@example(f"The tower has 330 bolts in it {URL}.", f"The tower has 1{'0' * 320} bolts in it.")
@example(f"The tower has sıxty-two bolts in it {URL}.", PAGE)
def test_any_report_can_be_checked_against_any_page(text: str, page: str) -> None:
    checked = check(f"{text} {URL}", SOURCES, {URL: page})
    assert checked.claims.fault == ""
    assert all(0 <= claim.start <= claim.end for claim in checked.claims.claims)


def test_a_date_in_brackets_is_no_citation() -> None:
    text = f"The tower is 330 metres tall [12-05-23].\n\n[12] {URL}"
    assert check(text, SOURCES, {URL: PAGE}).claims.claims == ()


# ---- how much work it is


def _checked(text: str, page: str = PAGE) -> Checked:
    return check(f"{text} {URL}", SOURCES, {URL: page})


@pytest.mark.parametrize(
    "piece",
    [
        "1 ",
        "12 m|",
        "1. ",
        "5 May 2020. ",
        "Aa ",
        "not ",
        "higher lower ",
        "“a b” ",
        "The tower has 330 m of 12. ",
    ],
)
def test_the_check_of_a_report_takes_work_in_proportion_to_it(piece: str) -> None:
    assert_linear(lambda size: _checked(f"The tower: {piece * size}"), 2_000)


def test_the_numbers_of_a_long_page_are_not_all_compared_with_those_of_a_claim() -> None:
    text = "The tower has " + " and ".join(f"{n} bolts" for n in range(20))
    page = "The tower has bolts " + " ".join(f"{n}.5" for n in range(80)) + ". "
    few = calls(lambda: _checked(text, page))
    assert calls(lambda: _checked(text, page * 100)) < few * 100


def test_a_sentence_with_more_numbers_than_anybody_reads_stays_unchecked() -> None:
    numbers = " ".join(str(n) for n in range(MOST_NUMBERS + 1))
    found = _checked(f"The tower has {numbers} bolts").claims
    assert [claim.verdict for claim in found.claims] == ["unchecked"]
    assert found.beyond == 1
    assert "1 sentence was not held" in found.unknown[0]


def test_where_the_work_for_a_report_is_done_the_rest_stays_unchecked() -> None:
    held = hold("The Eiffel Tower is 300 metres tall.", [SourceText(PAGE)], Work(100))
    assert (held.verdict, held.beyond) == ("unchecked", True)


def test_more_claims_than_are_held_against_anything_are_counted() -> None:
    found = _checked("The Eiffel Tower is 330 metres tall. " * (MOST_CLAIMS + 7)).claims
    assert (len(found.claims), found.beyond) == (MOST_CLAIMS, 7)


def test_a_sentence_that_cites_very_many_pages_is_not_called_unsupported_by_all() -> None:
    urls = [f"https://example.org/{n}" for n in range(MOST_CITED + 1)]
    pages = dict.fromkeys(urls[:-1], "Ducks swim on the lake.") | {urls[-1]: PAGE}
    text = f"The Eiffel Tower is 330 metres tall {' '.join(urls)}"
    found = check(text, [Source(url=url) for url in urls], pages).claims
    assert ([claim.verdict for claim in found.claims], found.beyond) == (["unchecked"], 1)


def test_pages_beyond_what_is_read_for_a_report_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_report, "MOST_TEXT", 50)
    found = _checked("The Eiffel Tower is 300 metres tall").claims
    assert ([claim.verdict for claim in found.claims], found.beyond) == (["unchecked"], 1)


def test_a_page_is_made_plain_once_for_all_quotations_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(text: str) -> str:
        made.append(text)
        return plain(text)

    monkeypatch.setattr(passages, "plain", counted)
    _checked("The tower “is 350 metres tall” it says. " * 20)
    assert made == [PAGE]


# ---- in a run


async def _run(tmp_path: Path, answer: str) -> Report:
    (tmp_path / "log.txt").write_text("[12-05-23] started\n")
    model = ScriptedModel([call("read", path="log.txt"), answer])
    async with Retinue(model=model, db="memory:", cwd=tmp_path) as retinue:
        return await retinue.run("general", "When did it start?")


@pytest.mark.parametrize(
    "answer", ["The log begins with [12-05-23].", f"It is 1{'0' * 320} large (log.txt:1)."]
)
def test_a_run_ends_with_its_answer_whatever_stands_in_it(tmp_path: Path, answer: str) -> None:
    report = asyncio.run(_run(tmp_path, answer))
    assert (report.status, report.text) == ("completed", answer)


@pytest.mark.parametrize(("times", "here"), [(1, True), (300, False)])
def test_nobody_waits_while_a_long_report_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, here: bool
) -> None:
    threads: list[threading.Thread] = []

    def watched(*given: Any, **named: Any) -> Checked:
        threads.append(threading.current_thread())
        return check(*given, **named)

    monkeypatch.setattr(report_facts, "check", watched)
    asyncio.run(_run(tmp_path, "The Eiffel Tower has 330 bolts, the log says (log.txt:1). " * times))
    assert [thread is threading.main_thread() for thread in threads] == [here]


def test_a_fault_of_the_check_costs_a_report_only_what_was_to_be_said_of_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_given: object, **_named: object) -> Checked:
        raise ValueError("a fault")

    monkeypatch.setattr(report_facts, "check", broken)
    with caplog.at_level(logging.WARNING, "retinue"):
        report = asyncio.run(_run(tmp_path, "It started."))
    assert (report.status, report.ended_by, report.text) == ("completed", "answer", "It started.")
    assert report.problems == ("its sources could not be checked (ValueError)",)
    assert "a fault" in caplog.text


def test_a_fault_in_one_claim_leaves_what_is_known_of_the_citations(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_given: object) -> list[object]:
        raise OverflowError("too large")

    monkeypatch.setattr(claims_report, "cited_sentences", broken)
    with caplog.at_level(logging.WARNING, "retinue"):
        checked = _checked("The tower is 330 metres tall")
    assert [source.url for source in checked.text_sources] == [URL]
    assert checked.claims.fault == "OverflowError"
    assert "too large" in caplog.text
