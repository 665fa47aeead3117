"""The offline model reviews code."""

from __future__ import annotations

import pytest

from asking_offline import READ, play
from retinue.models.offline.checks import review

BAD_PYTHON = """\
import os, requests
API_KEY = "sk-1234567890abcdef"
def load(path, seen=[]):
    try:
        data = eval(open(path).read())
    except:
        pass
    if data == None:
        os.system("rm " + path)
    # TODO: close it
    requests.get("http://x")
    cursor.execute(f"SELECT name FROM users WHERE id = {path}")
    return "except: eval( shell=True"
"""


@pytest.mark.parametrize(
    ("focus", "expected"),
    [
        ("security", {2: "high", 5: "high", 9: "high", 12: "high"}),
        ("bugs", {3: "medium", 6: "medium", 11: "medium"}),
        ("style", {8: "low", 10: "low"}),
        ("performance", {}),
    ],
)
def test_the_review_finds_what_its_patterns_can_find(focus: str, expected: dict[int, str]) -> None:
    lines: dict[int, str] = dict(enumerate(BAD_PYTHON.split("\n"), 1))
    assert {one.line: one.severity for one in review("load.py", lines, focus)} == expected


def test_the_review_sees_no_code_in_strings_and_comments() -> None:
    quiet = ["# eval(x) == None", 'text = """', "except:", "shell=True", '"""', "ok = 'eval(1)'"]
    assert review("quiet.py", dict(enumerate(quiet, 1)), "all") == []


def test_a_review_without_findings_says_what_was_looked_for() -> None:
    results: dict[str, str | list[str]] = {"read": "     1\tdef add(a, b):\n     2\t    return a + b"}
    text = play("code-review", "target: add.py\nfocus: bugs", (READ,), results)
    assert "none of the checks found anything" in text
    assert "`add.py` (2 lines)" in text
