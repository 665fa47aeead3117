"""Contradictions between pages are found by program, and what only differs is left alone."""

from __future__ import annotations

import pytest

from research.planted import AGREEING, CONTRADICTING
from retinue.research.contradictions import ReadPage, contradictions


def both(title: str, text: str, other_title: str, other_text: str) -> list[ReadPage]:
    return [
        ReadPage(key="one", text=text, title=title),
        ReadPage(key="other", text=other_text, title=other_title),
    ]


def test_of_twenty_pairs_that_contradict_each_other_at_least_eighteen_are_found() -> None:
    missed: list[str] = []
    for title, text, other_title, other_text, says, says_other in CONTRADICTING:
        found = contradictions(both(title, text, other_title, other_text))
        if not any(says in each.one.value and says_other in each.other.value for each in found):
            missed.append(title)
    assert len(missed) <= 2, missed


def test_of_twenty_pairs_that_differ_and_do_not_contradict_at_most_one_is_told() -> None:
    told = [pair[0] for pair in AGREEING if contradictions(both(*pair))]
    assert len(told) <= 1, told


def test_among_forty_pages_the_pairs_are_found_and_no_strangers_are_paired() -> None:
    pages: list[ReadPage] = []
    for at, (title, text, other_title, other_text, *_) in enumerate(CONTRADICTING):
        pages += [
            ReadPage(key=f"{at} one", text=text, title=title),
            ReadPage(key=f"{at} other", text=other_text, title=other_title),
        ]
    found = contradictions(pages)
    strangers = [each for each in found if each.one.key.split()[0] != each.other.key.split()[0]]
    assert strangers == []
    assert len({each.one.key.split()[0] for each in found}) >= 18


def test_a_mirror_of_a_page_says_nothing_of_its_own() -> None:
    text = CONTRADICTING[0][1]
    assert contradictions([ReadPage(key="a", text=text), ReadPage(key="b", text=f"{text}\n")]) == ()


@pytest.mark.parametrize("text", ["", "…", "#" * 5000, "1 " * 20_000, "\x00" * 100, "Å" * 9000])
def test_no_text_can_make_it_fail(text: str) -> None:
    assert contradictions([ReadPage(key="a", text=text), ReadPage(key="b", text=text + " 2")]) == ()
