"""A claim is held against the passage of its source: what the source does not say is noticed, what it says is not accused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims.pages import FALSE, PAGES, TRUE
from counting import assert_linear
from retinue.claims.passages import SourceText
from retinue.claims.quantities import Quantity, dates, fits, quantities
from retinue.claims.verdicts import hold


def _text(page: str) -> SourceText:
    return SourceText(PAGES[f"https://example.org/{page}"])


@pytest.mark.parametrize(("page", "claim"), TRUE)
def test_what_a_source_says_is_supported(page: str, claim: str) -> None:
    held = hold(claim, [_text(page)])
    assert held.differences == ()
    assert held.verdict == "supported"


@pytest.mark.parametrize(("page", "claim", "kind"), FALSE)
def test_what_a_source_does_not_say_is_noticed_with_what_differs(page: str, claim: str, kind: str) -> None:
    held = hold(claim, [_text(page)])
    assert held.verdict in ("contradicted", "not_found")
    assert kind in [difference.kind for difference in held.differences]


def test_the_difference_names_both_sides() -> None:
    (difference,) = hold("The main span of the Harrow Bridge is 350 m long.", [_text("bridge")]).differences
    assert (difference.claim, difference.source) == ("350 m", "330 metres")


def test_the_passage_is_the_one_that_the_claim_is_about() -> None:
    text = _text("bridge")
    held = hold("The bridge opened in March 1874.", [text])
    assert "opened on 14 March 1874" in text.text[held.start : held.end]


@pytest.mark.parametrize(("page", "claim"), [one for one in TRUE if one[0] in ("bridge", "tea")])
def test_a_claim_that_is_cited_to_another_page_is_not_supported(page: str, claim: str) -> None:
    other = _text("tea" if page == "bridge" else "bridge")
    assert hold(claim, [other]).verdict in ("not_found", "contradicted")


def test_one_of_several_sources_is_enough() -> None:
    held = hold("The bridge opened in March 1874.", [_text("tea"), _text("bridge")])
    assert (held.verdict, held.which) == ("supported", 1)


def test_a_source_in_another_language_accuses_nobody() -> None:
    held = hold(
        "The mill on the bank of the river was built a long time ago by a family of bakers.", [_text("mill")]
    )
    assert held.verdict == "unchecked"


def _only(text: str) -> Quantity:
    (one,) = quantities(text, dates(text))
    return one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("330 m", "0.33 km"),
        ("330 m", "330 metres"),
        ("1.2 million", "1,234,567"),
        ("about 5,900", "5,889"),
        ("About 1,000", "1,024"),
        ("nearly 200", "195"),
        ("etwa 5.900.000", "5,889,000"),
        ("more than 300", "340"),
        ("up to 300", "290"),
        ("300+", "312"),
        ("12k", "12,345"),
        ("3.5 %", "3.46 %"),
        ("約240", "242"),
        ("5 %", "5 percent"),
        ("$3 million", "$3,000,000"),
        ("fifty", "50"),
        ("2,5 kg", "2500 g"),
        ("٣٣٠", "330"),
    ],
)
def test_one_amount_is_known_however_it_is_written(one: str, other: str) -> None:
    assert fits(_only(one), _only(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("330 m", "330 km"),
        ("330 m", "330 kg"),
        ("350", "346"),
        ("5,900", "5,889"),
        ("300 m", "330 m"),
        ("200", "151"),
        ("$1,000,000", "$1,499,000"),
        ("$1 million", "$1,499,000"),
        ("5000 m", "4,501 m"),
        ("100", "149"),
        ("about 300", "330"),
        ("nearly 200", "151"),
        ("more than 300", "290"),
        ("more than 300", "2,000"),
        ("up to 300", "310"),
        ("around 1500", "1560"),
        ("1.234 tonnes", "1,234 tonnes"),
        ("1890", "1889"),
        ("1.2 million", "1.3 million"),
        ("5 %", "5 million"),
        ("$5", "€5"),
    ],
)
def test_other_amounts_are_others(one: str, other: str) -> None:
    assert not fits(_only(one), _only(other))


@pytest.mark.parametrize(
    ("claim", "source", "verdict"),
    [
        ("The main span is 300 m long.", "The main span is 330 metres long.", "contradicted"),
        (
            "The fire in the hotel killed 200 people.",
            "The fire in the hotel killed 151 people.",
            "contradicted",
        ),
        (
            "Der Turm ist 1.234 Meter hoch und steht in Köln.",
            "Der Turm ist 1234 Meter hoch und steht in Köln.",
            "supported",
        ),
        (
            "Der Turm ist 1.234 Meter hoch und steht in Köln.",
            "Der Turm ist 1244 Meter hoch und steht in Köln.",
            "contradicted",
        ),
        (
            "About 1,000 people attended the opening of the bridge.",
            "1,024 people attended the opening of the bridge.",
            "supported",
        ),
        (
            "The two towers together have 40 floors in the city.",
            "The two towers have 15 and 25 floors in the city.",
            "supported",
        ),
        (
            "The two towers together have 50 floors in the city.",
            "The two towers have 15 and 25 floors in the city.",
            "contradicted",
        ),
        (
            "The company no longer sells phones in Europe.",
            "The company stopped selling phones in Europe.",
            "supported",
        ),
        ("The vote was not unanimous in the council.", "The vote in the council was split.", "unchecked"),
        (
            "The vote was not unanimous in the council.",
            "The vote in the council was unanimous.",
            "contradicted",
        ),
    ],
)
def test_a_number_or_a_negation_is_read_as_it_is_meant(claim: str, source: str, verdict: str) -> None:
    assert hold(claim, [SourceText(source)]).verdict == verdict


@settings(max_examples=200)
@given(st.text(max_size=300), st.text(max_size=600))
def test_any_text_can_be_held_against_any_other(claim: str, source: str) -> None:
    held = hold(claim, [SourceText(source)])
    assert 0.0 <= held.score <= 1.0


@settings(max_examples=100)
@given(st.integers(1, 10**9), st.sampled_from(["m", "kg", "%", "million", "years", ""]))
def test_a_number_fits_itself(number: int, unit: str) -> None:
    one = _only(f"{number} {unit}".strip())
    assert fits(one, one)


@pytest.mark.parametrize(
    "piece", ["a. ", "1,", "\n ", "“a ", "[1](", "not ", "3 m ", ". ", "    ", "12 May "]
)
def test_the_work_grows_no_faster_than_the_text(piece: str) -> None:
    assert_linear(lambda size: hold("The bridge is 330 m long.", [SourceText(piece * size)]), 2_000)
