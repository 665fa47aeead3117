"""Contradictions between pages are found by program, and what only differs is left alone."""

from __future__ import annotations

import pytest

from counting import calls
from research.planted import AGREEING, CONTRADICTING
from retinue.research import contradictions as looking
from retinue.research.contradictions import ReadPage, contradictions
from retinue.research.pages import FetchedPage, KeptTable
from retinue.types import Source


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


def test_however_much_was_read_no_more_than_so_much_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MOST_TEXT", 10_000, raising=False)

    def pages(count: int) -> list[ReadPage]:
        said = [
            [f"Tower {n} of Harrow {page} is {n + page} m high." for n in range(100)] for page in range(count)
        ]
        return [ReadPage(key=str(at), text="\n".join(lines)) for at, lines in enumerate(said)]

    few, many = (calls(lambda count=count: contradictions(pages(count))) for count in (5, 20))
    assert many < 2 * few


async def test_what_was_read_is_looked_through_again_only_when_more_was_read() -> None:
    kept = KeptTable()
    one, other = (
        FetchedPage(key=url, text="The tower is 300 m high.", title="T", source=Source(url=url))
        for url in ("https://a.example/1", "https://a.example/2")
    )
    table = await kept.of([one])
    assert await kept.of([one]) is table
    assert (await kept.of([one, other])).pages == (one, other)
