"""Rules for commands: suggested ones, everyday commands, and texts of any kind and size."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.authority import shell
from retinue.authority.rules import Asked, suggest_rule
from retinue.authority.shell.tree import _in_reach
from shell_rules import EVERYDAY, judge, published
from test_shell_allow import CARRIED


@pytest.mark.parametrize("command", ["ls\x1b[2K", "ls\n", "a\nb", "ls \u202e", "echo " + "x" * 200])
def test_no_rule_is_suggested_that_a_person_cannot_read_on_one_line(command: str) -> None:
    asked = Asked(tool="bash", effect="execute", risk="high", agent="a", arguments={"command": command})
    assert suggest_rule(asked) in (None, "bash(ls)")


@given(st.sampled_from(CARRIED.split("\n") + EVERYDAY).filter(bool), st.text(max_size=12))
@settings(deadline=None, max_examples=300)
def test_a_suggested_rule_allows_the_call_and_nothing_behind_it(command: str, more: str) -> None:
    rule = suggest_rule(
        Asked(tool="bash", effect="execute", risk="high", agent="a", arguments={"command": command})
    )
    if rule is not None:
        assert judge(command, allow=[rule]) == "allow"
        assert judge(f"{command} other{more}", allow=[rule]) == "ask"
        assert judge(f"{command}; other", allow=[rule]) == "ask"


def test_the_documentation_gives_twenty_rules_and_everyday_commands_run_under_them() -> None:
    rules = published()
    assert len(rules) == len(set(rules)) == 20
    assert len(EVERYDAY) >= 300
    asked = [command for command in EVERYDAY if judge(command, allow=rules) != "allow"]
    assert len(asked) <= len(EVERYDAY) * 0.05, asked


@given(
    st.text(st.characters(), max_size=60) | st.text("git status$(){}[]'\"\\`;&|<>\n!~*?#=,- ", max_size=60)
)
@settings(deadline=None, max_examples=400)
def test_reading_a_command_never_fails(command: str) -> None:
    reading = shell.read(command)
    assert bool(reading.plain) != bool(reading.why)
    shell.covers(command, ("git status*", command))
    assert shell.forbids(command, "git push*") in ("no", "maybe", "yes")


@pytest.mark.parametrize(
    "command",
    [
        "git status " + "a " * 500_000,
        "(" * 1_000_000,
        "${" * 5_000,
        "$(" * 5_000,
        "(" * 9_999,
        "( " * 4_000 + "git push" + " )" * 400,
        "{ " * 4_000,
        "sudo " * 1_900 + "git",
        "sudo -x " * 1_200 + "git",
        "bash -c " * 1_200,
        "eval '" * 1_200,
        "if " * 3_000,
        "<<E " * 2_000,
        "'" * 9_999,
        "\\" * 9_999,
        "a|" * 4_999,
        "ls;" * 3_000 + "ls",
        "git $x " * 1_400,
        "xargs sh -c 'a b' " * 500,
    ],
    ids=lambda command: command[:12],
)
def test_a_command_of_any_size_and_depth_is_read_or_asks(command: str) -> None:
    assert judge(command, allow=["bash(git status*)"]) == "ask"
    assert judge(command, allow=["bash"], deny=["bash(*git push*x*y*z)"]) in ("ask", "allow")


READ_ALL = """
from retinue.authority import shell
for code in (0x1F600, 0x3042, 0x20000, 0x40000, 0x80000, 0xF0000, 0x10FFFF):
    for text in ("a{X", "{1X", "{1..X", "{1..2X}", "[[ -X ]]", "cat <<E\\na $X\\nE\\n", "${a?X}", "a=${b?X", "X"):
        shell.read(text.replace("X", chr(code)))
"""


def test_letters_far_from_ascii_never_end_the_process() -> None:
    """The grammar's library reads past a table of its own for them; in a process of its own, since it may die."""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", READ_ALL], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@given(
    st.text(st.characters(), max_size=60)
    | st.text("ab{}[]$'\"\\ \n\u00e9\u3042\U0001f600\ud800", max_size=60)
)
@settings(deadline=None, max_examples=200)
def test_the_grammar_is_shown_letters_of_its_own_table_alone_in_the_same_places(command: str) -> None:
    source = command.encode("utf-8", "replace")
    shown = _in_reach(source)
    assert all(ord(letter) < 256 for letter in shown.decode())
    assert len(shown) == len(source)
    assert all(new == old for new, old in zip(shown, source, strict=True) if old < 128)


def test_words_with_letters_far_from_ascii_are_known_by_their_letters() -> None:
    assert judge("git status '\u65e5\u672c' \"\U0001f600\"", allow=["bash(git status*)"]) == "allow"
    rules = ["bash(push \u65e5\u672c*)"]
    assert judge("push \u65e5\u672c x", allow=["bash"], deny=rules) == "deny"
    assert judge("push '\u65e5\u672c'", allow=["bash"], deny=rules) == "deny"
    assert judge("push \u672c\u65e5 x", allow=["bash"], deny=rules) == "allow"
