"""A search can be kept to one site and to a time; what a backend returns beside that is left out and counted."""

from __future__ import annotations

import pytest

from retinue.errors import ToolError
from retinue.tools.search_filter import wanted_results
from retinue.web.search import QueryAnswered, Result

FOUND = QueryAnswered(
    query="x",
    backend="searxng",
    results=(
        Result(title="a", url="https://example.org/a", date="2024-05-06"),
        Result(title="b", url="https://docs.example.org/b", date="2021-01-01"),
        Result(title="c", url="https://notexample.org/c", date="2024-05-07"),
        Result(title="d", url="https://example.org/d"),
    ),
)


def titles(site: str = "", after: str = "", before: str = "") -> tuple[list[str], str]:
    answer, said = wanted_results(site, after, before).of(FOUND)
    return [result.title for result in answer.results], said


def test_a_site_means_its_host_and_those_below_it_and_stands_in_the_query() -> None:
    assert titles(site="https://Example.org/docs") == (
        ["a", "b", "d"],
        "\n(1 left out: of another site or time)",
    )
    assert wanted_results("example.org", "", "").query("bees") == "bees site:example.org"


def test_results_of_another_time_are_left_out_and_those_without_a_date_are_counted() -> None:
    kept, said = titles(after="2024-01-01")
    assert kept == ["a", "c", "d"]
    assert said == "\n(1 left out: of another site or time; 1 of these have no date)"
    assert titles(before="2021-12-31")[0] == ["b", "d"]


def test_without_a_filter_nothing_is_left_out_or_said() -> None:
    assert titles() == (["a", "b", "c", "d"], "")


@pytest.mark.parametrize(
    ("site", "after", "before", "names"),
    [
        ("two words", "", "", "give a host"),
        ("", "last year", "", "give a day"),
        ("", "2024-02-30", "", "give a day"),
        ("", "2024-02-02", "2024-02-01", "is later than"),
    ],
)
def test_what_is_no_site_and_no_day_is_said(site: str, after: str, before: str, names: str) -> None:
    with pytest.raises(ToolError, match=names):
        wanted_results(site, after, before)
