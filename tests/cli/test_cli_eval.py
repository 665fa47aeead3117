"""`retinue eval`: a file of cases, a table, JSON, exit codes, checks that the person names, mistakes with their line."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable

import pytest
from world import Cli, Ended

from retinue.cli import exits
from retinue.testing import FakeProvider, Script, SeenRequest, call

CASES = """\
agent: general
cases:
  - name: hello
    prompt: say hello
    expect: {says: HELLO, not_called: [bash]}
  - name: list
    prompt: list the folder
    expect:
      called: [{ls: {path: .}}]
      judge: The answer is in capitals.
"""


@pytest.fixture
def asked(cli: Cli, served: FakeProvider) -> list[str]:
    """What the model is asked, which it answers in capitals; as judge it finds capitals fine."""
    seen: list[str] = []

    def play(request: SeenRequest) -> Script:
        seen.append(request.asked)
        if "You judge" in request.system:
            fine = request.asked.count("LIST") > 0
            return Script(text=json.dumps({"passed": fine, "why": "capitals"}))
        if "list" in request.asked and request.turn == 0:
            return Script(calls=(call("ls", path="."),))
        return Script(text=request.asked.upper())

    served.handler = play
    cli.use(served)
    (cli.folder / "cases.yaml").write_text(CASES)
    return seen


def test_a_file_of_cases_gives_a_table_and_a_second_start_asks_nothing(
    invoke: Callable[..., Ended], asked: list[str]
) -> None:
    ended = invoke("eval", "cases.yaml")
    assert ended.code == exits.OK, ended.err + ended.out
    assert [line.split()[:2] for line in ended.out.splitlines()[:3]] == [
        ["case", "passed"],
        ["hello", "1/1"],
        ["list", "1/1"],
    ]
    assert "2 of 2 tries passed (100%)" in ended.out
    before = len(asked)
    again = invoke("eval", "cases.yaml", "--json")
    assert again.code == exits.OK
    found = json.loads(again.out)
    assert [each["from_before"] for each in found["tries"]] == [True, True]
    assert found["tries"][1]["checks"][-1]["passed"] is True
    assert len(asked) == before
    assert invoke("eval", "cases.yaml", "--fresh", "--tries", "2").code == exits.OK
    assert len(asked) == 3 * before


def test_a_case_that_does_not_pass_is_an_exit_code_and_a_reason(
    cli: Cli, invoke: Callable[..., Ended], asked: list[str]
) -> None:
    (cli.folder / "cases.yaml").write_text(CASES.replace("says: HELLO", "says: goodbye"))
    ended = invoke("eval", "cases.yaml")
    assert ended.code == exits.FAILED
    assert "it does not say 'goodbye'" in ended.out
    assert "retinue runs show m" in ended.err
    assert invoke("eval", "cases.yaml", "--pass-rate", "0.5").code == exits.OK


def test_no_code_runs_unless_a_person_names_it(
    cli: Cli, invoke: Callable[..., Ended], asked: list[str]
) -> None:
    (cli.folder / "my_checks.py").write_text(
        "from pathlib import Path\nPath('loaded').touch()\n"
        "def check_short(run):\n    assert len(run.report.text) < 10, 'too long'\n"
    )
    assert invoke("eval", "cases.yaml").code == exits.OK
    assert not (cli.folder / "loaded").exists()
    ended = invoke("eval", "cases.yaml", "--checks", "my_checks.py")
    assert ended.code == exits.FAILED
    assert "check_short: too long" in ended.out
    (cli.folder / "none.py").write_text("x = 1\n")
    ended = invoke("eval", "cases.yaml", "--checks", "none.py")
    assert ended.code == exits.USAGE
    assert "none.py has no check" in ended.err


MISTAKES = [
    ("agent: general\n", "cases.yaml:1: there are no cases"),
    ("cases: 7\n", "cases.yaml:1: cases is no list of cases"),
    ("agent: general\ncases:\n  - name: a\n", "cases.yaml:3: case 1 has no prompt"),
    ("agent: general\ncases:\n  - prompt: a\n    expcet: {}\n", "cases.yaml:4: case 1 has an unknown field 'expcet' (did you mean 'expect'?)"),
    ("agent: general\ncases:\n  - prompt: a\n    expect:\n      sais: b\n", "cases.yaml:5: expect has an unknown field 'sais' (did you mean 'says'?)"),
    ("agent: general\ncases:\n  - prompt: a\n    expect: {outcome: complete}\n", "cases.yaml:4: outcome is 'complete' (did you mean 'completed'?)"),
    ("agent: general\ncases:\n  - prompt: a\n    expect:\n      max_cost: cheap\n", "cases.yaml:5: max_cost is 'cheap' (write a number above 0)"),
    ("agent: general\ncases:\n  - prompt: a\n    expect:\n      matches: '('\n", "cases.yaml:5: matches is no regular expression"),
    ("agent: general\ncases:\n  - {name: x, prompt: a}\n  - {name: x, prompt: b}\n", "cases.yaml:4: two cases have the name 'x'"),
    ("agent: general\ntries: 0\ncases: [{prompt: a}]\n", "cases.yaml:2: tries is '0'"),
    ("cases: [{prompt: a}]\n", "cases.yaml names no agent"),
    ("agent: [\n", "cases.yaml:2: the file is not valid YAML"),
    ("agent: !!python/object/apply:os.system [ls]\ncases: [{prompt: a}]\n", "cases.yaml:1: the YAML tag"),
    ("agent: nobody\ncases: [{prompt: a}]\n", "nobody"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[each[1][:40] for each in MISTAKES])
def test_a_mistake_in_the_file_is_said_with_its_line_and_nothing_is_asked(
    cli: Cli, invoke: Callable[..., Ended], asked: list[str], text: str, said: str
) -> None:
    (cli.folder / "cases.yaml").write_text(text)
    ended = invoke("eval", "cases.yaml")
    assert ended.code == exits.USAGE
    assert said in ended.err
    assert not asked


def test_a_file_that_is_not_there_is_said(invoke: Callable[..., Ended], asked: list[str]) -> None:
    ended = invoke("eval", "nothing.yaml")
    assert ended.code == exits.USAGE
    assert "nothing.yaml" in ended.err


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox for commands is for Linux")
def test_a_sealed_command_changes_no_check_unasked(
    cli: Cli, invoke: Callable[..., Ended], served: FakeProvider
) -> None:
    """A check runs outside of the sandbox, with all that it imports when it is called."""
    checks = cli.folder / "my_checks.py"
    checks.write_text("def check_all(run):\n    return True\n")
    (cli.folder / "cases.yaml").write_text("agent: general\ncases:\n  - prompt: go\n")

    def play(request: SeenRequest) -> Script:
        if request.turn == 0:
            return Script(calls=(call("bash", command="echo changed >> my_checks.py"),))
        return Script(text="done")

    served.handler = play
    cli.use(served)
    sealed = {"RETINUE_APPROVALS_SANDBOX": "project", "RETINUE_APPROVALS_AUTO": "sandboxed"}
    before = checks.read_text()
    ended = invoke("eval", "cases.yaml", "--checks", "my_checks.py", "--json", **sealed)
    assert ended.code == exits.FAILED, "what nobody is there to allow is refused"
    assert checks.read_text() == before
    assert invoke("eval", "cases.yaml", "--fresh", **sealed).code == exits.OK
    assert checks.read_text() != before, "without the checks it runs unasked"


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
async def test_an_evaluation_that_was_stopped_goes_on_with_what_is_missing(
    cli: Cli, provider: FakeProvider, way: signal.Signals
) -> None:
    names = [f"case {n}" for n in range(5)]
    listed = "".join(f"  - {{name: {name}, prompt: {name}, expect: {{says: FINE}}}}\n" for name in names)
    (cli.folder / "cases.yaml").write_text(f"agent: general\ncases:\n{listed}")
    asked: list[str] = []
    reached = asyncio.Event()

    def play(request: SeenRequest) -> Script:
        asked.append(request.asked)
        if len(asked) == 3:
            reached.set()
            return Script(text="FINE, and then silence", hang_after=1)
        return Script(text="FINE")

    provider.handler = play
    cli.use(provider)
    process = await cli.start("eval", "cases.yaml", "--concurrency", "1")
    await reached.wait()
    process.send_signal(way)
    _, said = await process.communicate()
    if way == signal.SIGINT:
        assert process.returncode == exits.CANCELLED
        assert "! stopped after 2 of 5: the same command goes on from here" in said.decode()
    again = await cli.start("eval", "cases.yaml", "--concurrency", "1", "--json")
    out, said = await again.communicate()
    assert again.returncode == exits.OK, said.decode()
    tried = json.loads(out)["tries"]
    assert [each["case"] for each in tried] == names
    assert [each["from_before"] for each in tried[:2]] == [True, True]
    assert asked.count(names[2]) == 2  # the one that was under way
    assert [asked.count(name) for name in (*names[:2], *names[3:])] == [1, 1, 1, 1]


async def test_an_evaluation_of_all_anew_does_not_say_that_it_goes_on(
    cli: Cli, provider: FakeProvider
) -> None:
    (cli.folder / "cases.yaml").write_text("agent: general\ncases:\n  - {name: one, prompt: one}\n")
    reached = asyncio.Event()

    def play(request: SeenRequest) -> Script:
        reached.set()
        return Script(text="FINE, and then silence", hang_after=1)

    provider.handler = play
    cli.use(provider)
    process = await cli.start("eval", "cases.yaml", "--fresh")
    await reached.wait()
    process.send_signal(signal.SIGINT)
    _, said = await process.communicate()
    assert "! stopped after 0 of 1: --fresh begins anew, also next time" in said.decode()
