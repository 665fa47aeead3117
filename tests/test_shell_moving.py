"""A `cd` that no rule names: looked through where that changes nothing, and asked about everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.events import ApprovalRequested, ToolReturned
from retinue.testing import ScriptedModel, call
from retinue.workspace import Files
from shell_rules import judged, published

RULES = [*published(), "bash(cat docs/*)", "bash(./run*)", "bash(pytest*)"]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    project = tmp_path / "project"
    for name in ("src/app", "secrets", "docs"):
        (project / name).mkdir(parents=True)
    (project / "out").symlink_to(tmp_path)
    (project / "same").symlink_to("src")
    (tmp_path / "project-too").mkdir()
    found = Files(project=project, workspace=None)
    yield found
    found.close()


GOES_THERE = """
cd src && ls
cd src; ls -la
cd src/app && cat main.py | head -5
(cd src && ls)
ls && cd src && ls
cd ./src && rg -n TODO
cd src/ && find . -name '*.py'
cd gone && ls
cd PROJECT/src && grep -rn x .
cd . && ls
cd PROJECT && git status
cd PROJECT && ./run && cat docs/x
"""


@pytest.mark.parametrize("command", GOES_THERE.strip().splitlines())
def test_a_plain_cd_into_the_project_needs_no_rule(command: str, files: Files) -> None:
    command = command.replace("PROJECT", str(files.project))
    assert judged(command, RULES, files=files).action == "allow"
    assert judged(command, RULES).action == "ask", "where nobody knows the project"


LEADS_ELSEWHERE = """
cd .. && ls
cd src/../.. && ls
cd / && ls
cd /etc && ls
cd PROJECT-too && ls
cd PROJECT/out && ls
cd out && ls
cd same && ls
cd out/project/src && ls
cd - && ls
cd && ls
cd ~ && ls
cd ~/x && ls
cd "" && ls
cd "$X" && ls
cd s* && ls
cd -P src && ls
cd -- src && ls
cd src app && ls
CDPATH=/ cd src && ls
HOME=/ cd src && ls
cd src && cd .. && ls
cd src && cd app && ls
(cd src) && cd out && ls
time cd src && ls
pushd src && ls
cd src | ls
cd src & ls
"""


@pytest.mark.parametrize("command", LEADS_ELSEWHERE.strip().splitlines())
def test_a_cd_that_may_lead_elsewhere_asks(command: str, files: Files) -> None:
    command = command.replace("PROJECT", str(files.project))
    assert judged(command, RULES, files=files).action == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "cd src && git status",
        "cd src && make test",
        "cd src && pytest",
        "cd src && ./run",
        "cd src && cat docs/x",
        "cd src && python x.py",
        "cd src && ls > x",
        "cd src && rm x",
    ],
)
def test_what_is_another_thing_in_another_folder_asks(command: str, files: Files) -> None:
    rules = [rule for rule in RULES if rule != "bash(cat*)"]
    assert judged(command, rules, files=files).action == "ask"


@pytest.mark.parametrize("kind", ["ask", "deny"])
@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("bash(cat secrets/*)", "cd secrets && cat x"),
        ("bash(cat secrets/*)", "cd ./secrets && cat ./x"),
        ("bash(cat secrets/*)", "cd PROJECT/secrets && cat x"),
        ("bash(cat PROJECT/secrets/*)", "cd secrets && cat x"),
        ("bash(cat secrets/*)", "cd src && cat ../secrets/x"),
        ("bash(cat secrets/*)", "cd secrets && ls && cat x | head"),
        ("bash(ls secrets*)", "cd secrets && ls"),
        ("bash(ls secrets/*)", "cd secrets && ls"),
        ("bash(grep * secrets/*)", "cd secrets && grep -r . ."),
    ],
)
def test_a_cd_goes_around_no_rule_that_names_the_folder(
    kind: str, rule: str, command: str, files: Files
) -> None:
    rule, command = (each.replace("PROJECT", str(files.project)) for each in (rule, command))
    rules = {kind: [rule]}
    assert judged(command, RULES, **rules, files=files).action == "ask"
    assert judged("cd src && ls", RULES, **rules, files=files).action == "allow"


async def test_a_command_in_a_folder_of_the_project_runs_there_unasked(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/found-here").touch()
    model = ScriptedModel([call("bash", command="cd src && ls"), "done"])
    settings = {"approvals.allow": ["bash(ls*)"]}
    async with Retinue(model=model, db="memory:", cwd=tmp_path, settings=settings) as retinue:
        events = [event async for event in retinue.stream("general", "go")]
    assert not [event for event in events if isinstance(event, ApprovalRequested)]
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    assert "found-here" in returned.text
