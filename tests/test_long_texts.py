"""Texts, trees and logs of any size: what is done with them grows as they do, and not as their square."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trafilatura import load_html

from counting import assert_linear
from retinue.agents.document import YamlValue
from retinue.agents.toolnames import split_names
from retinue.authority.shell.tree import read_tree
from retinue.engine.bring import files_in
from retinue.engine.elapsed import seconds_used
from retinue.engine.report_check import json_in
from retinue.events import AnyEvent, RunStarted
from retinue.masking import has_login, masked_text
from retinue.models.offline.deeds import _RANGE
from retinue.models.text_mending import load_object, without_fence
from retinue.models.text_reading import AnswerFeed
from retinue.sandbox.commands.repositories import is_harmless
from retinue.tools.knowledge.prefixes import declared
from retinue.types import AgentSpec
from retinue.view.paint import wrap
from retinue.web.content import kind_of
from retinue.web.html import Head, _without_hidden, head_of
from retinue.web.page import _EMPTY_PLACE, Job, Page, convert
from retinue.workspace import Files
from trees import Stage


def test_an_answer_that_opens_a_block_of_code_and_never_closes_it() -> None:
    assert_linear(lambda size: json_in("```" + "\n" * size), 12_800)
    assert json_in('so:\n```json  \n\n{"a": 1}\n```') == {"a": 1}


def test_a_request_full_of_quotes_that_nobody_closes(tmp_path: Path) -> None:
    (tmp_path / "a file.txt").write_text("x")
    project = Files(project=tmp_path, workspace=None)
    try:
        assert_linear(lambda size: list(files_in("“" * size, project)), 12_800)
        assert list(files_in("see “a file.txt” there", project)) == ["a file.txt"]
    finally:
        project.close()


def test_a_text_of_addresses_without_a_login() -> None:
    assert_linear(lambda size: masked_text("http://" * size), 6_400)
    for many in ("a://", "a://b@c/", "x://a:"):
        assert_linear(lambda size, many=many: masked_text(many * size), 12_800)
    assert masked_text("postgres://me:pa/ss@db.test/x") == "postgres://me:***@db.test/x"
    long = "p" * 100_000
    assert (
        masked_text(f"see x://user:{long}@host/ and x://{long}@host/")
        == "see x://user:***@host/ and x://***@host/"
    )
    assert has_login(f"x://user:{long}@host/")


def test_arguments_with_quotes_that_are_never_closed() -> None:
    assert_linear(lambda size: load_object("{" + '\\"' * size), 6_400)
    assert load_object('{"a": "x, }", "b": [1, 2,],}') == {"a": "x, }", "b": [1, 2]}
    assert load_object('{a: "b: c", d: 1}') == {"a": "b: c", "d": 1}


def test_arguments_in_a_block_of_code_full_of_blank_lines() -> None:
    for end in ("x``", "``` and a word", "```"):
        assert_linear(lambda size, end=end: without_fence("```json\n{" + "\n   " * size + end), 6_400)
    assert without_fence("\n```json \n{}\n  ``` \n") == "{}"
    assert without_fence("```\n a \n") == " a"
    assert without_fence("```py\na\n```\nand a word") == "a\n```\nand a word"
    assert without_fence("\na ```b```\n") == "a ```b```"


def test_an_answer_with_a_long_gap_in_it() -> None:
    assert_linear(lambda size: AnswerFeed(()).add(f"<answer>a{' ' * size}b"), 12_800)
    feed = AnswerFeed(())
    assert [feed.add(part) for part in ("<answer>one <", "b> two  ", "</ans", "wer>")] == [
        "one",
        " <b> two",
        "",
        "",
    ]


def test_settings_of_git_that_are_mostly_blanks(tmp_path: Path) -> None:
    def settings(text: str) -> bool:
        (tmp_path / "config").write_text(text)
        return is_harmless(str(tmp_path))

    assert settings("[core]\n\tbare = false\n[user]\n\tname = A. Person  \n")
    assert_linear(lambda size: settings(" " * size + "!"), 12_800)
    assert_linear(lambda size: settings("name =" + " " * size + "!"), 12_800)


def test_a_tag_of_one_long_word() -> None:
    def page(attributes: str) -> Head:
        return head_of(f"<html><head><link {attributes}></head>", "http://page.test/")

    assert_linear(lambda size: page("a" * size), 51_200)
    assert page("rel='canonical' href = \"/there\"").canonical == "http://page.test/there"


def test_a_tag_that_could_end_at_every_sign_of_its_name() -> None:
    def page(tag: str) -> Page:
        body = f"<html><script>x()</script><p>{'some words ' * 40}</p>{tag}".encode()
        return convert(Job(body=body, content_type="text/html", url="http://page.test/"))

    assert_linear(lambda size: _EMPTY_PLACE.search(b"<a-" + b"a-" * size), 12_800)
    for place in ("<my-app></my-app>", "<div id='root' >\n</div>", "<main/></main>"):
        assert "JavaScript" in "".join(page(place).notes)
    assert page("<my-app>words</my-app><divan></divan>").notes == ()


def test_a_page_of_many_hidden_pieces() -> None:
    def shown(body: str) -> str:
        tree: Any = load_html(f"<html><body><p>{'word ' * 20}</p><div>{body}</div></body></html>")
        _without_hidden(tree)
        return str(tree.xpath("string(//div)"))

    assert_linear(lambda size: shown(f"<i hidden>x</i>{'y' * 40}" * size), 12_800)
    assert (
        shown("a<i hidden>x<b hidden>x</b>x</i>b<i hidden></i>c<b>d<i hidden>x</i>e</b>f<i hidden>x</i>g")
        == "abcdefg"
    )


def test_a_body_of_blanks_that_could_be_a_feed() -> None:
    assert_linear(lambda size: kind_of("text/xml", b" " * size), 12_800)
    assert kind_of("text/xml", b"  <?xml version='1.0'?>\n <rss>") == "feed"


def test_a_query_of_texts_that_are_never_closed() -> None:
    known = {"dbo": "http://o.test/"}
    for piece in ('\\"', "\\'", '"""\\"', "'\n", '"\\'):
        assert_linear(lambda size, piece=piece: declared(piece * size, known), 25_600)
    assert declared("ASK {?a dbo:b 'dbo: it\\'s'}", known).startswith("PREFIX dbo:")
    assert declared('ASK {?a ?b \'dbo:b\', "dbo:c", """dbo:d"""} # dbo:e', known).startswith("ASK")


def test_a_paragraph_of_blanks() -> None:
    assert_linear(lambda size: wrap(" " * size, 40), 12_800)


def test_a_range_of_commits_in_a_long_word() -> None:
    assert_linear(lambda size: _RANGE.search("~" * size), 12_800)
    found = _RANGE.search("what changed in v1.2..HEAD~1?")
    assert found is not None
    assert found["range"] == "v1.2..HEAD~1"


def test_tools_of_an_agent_parted_by_many_commas() -> None:
    def names(text: str) -> list[str]:
        return [name for _, name in split_names(YamlValue(data=text, raw=text, line=1))]

    assert_linear(lambda size: names("," * size), 51_200)
    assert names("read, bash(git log *, git diff *), edit,(x, y") == [
        "read",
        "bash(git log *, git diff *)",
        "edit",
        "(x",
        "y",
    ]


def _started(run_id: str, parent_id: str | None) -> AnyEvent:
    spec = AgentSpec(name="a", description="d", prompt="p")
    return RunStarted(
        run_id=run_id,
        root_id="r",
        parent_id=parent_id,
        depth=int(parent_id is not None),
        seq=1,
        at=1.0,
        spec=spec,
        prompt="p",
        system="s",
        tools=(),
        model="m",
    )


def _tree(children: int) -> dict[str, list[AnyEvent]]:
    return {"r": [_started("r", None)], **{f"c{n}": [_started(f"c{n}", "r")] for n in range(children)}}


def test_the_time_that_a_run_with_many_children_has_used() -> None:
    assert_linear(lambda size: seconds_used("r", _tree(size)), 6_400)


def test_the_states_of_a_large_workflow_are_at_hand_for_every_call() -> None:
    stages: dict[int, Stage] = {}

    def ask(size: int) -> None:
        if size not in stages:
            stages[size] = Stage({}, root_id="r")
            stages[size].workflow.tree.read(event for log in _tree(size).values() for event in log)
        for _ in range(size):
            stages[size].workflow.tree.states()

    for size in (150, 600, 9_600):
        ask(size)
        assert len(stages[size].workflow.tree.states()) == size + 1
    assert_linear(ask, 9_600)


@pytest.mark.parametrize(
    ("before", "middle", "behind"),
    [
        ("a&&", "a", ""),
        ("a|", "a", ""),
        ("(", "a", ")"),
        ('"$(', "a", ')"'),
        ("a <(", "a", ")"),
        ("if a; then ", "a", "; fi"),
        ("{ ", "a", "; } <<<a >f"),
    ],
)
def test_commands_within_commands(before: str, middle: str, behind: str) -> None:
    """The library finds what a node stands in by going down from the root again, so nobody asks it."""
    assert_linear(lambda size: read_tree(before * size + middle + behind * size), 640)
