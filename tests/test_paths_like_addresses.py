"""A path that looks like an address is judged as the path that it is opened by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Retinue
from retinue.approvals import Rules
from retinue.authority.rules import Asked, suggest_rule
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested
from retinue.settings import ApprovalSettings
from retinue.testing import ScriptedModel, call
from retinue.workspace import Files

WRITER = AgentSpec(name="writer", description="w", prompt="PLAY writer", tools=["write", "read", "grep"])
ODD = ("a://../", "docs/x://../../", "http:///../", "a://b/../../")


def asked(folder: Path, tool: str = "write", **arguments: Any) -> Asked:
    effect = "read" if tool == "read" else "write"
    return Asked(
        tool=tool, effect=effect, risk="low", agent="a", arguments=arguments, files=Files(folder, None)
    )


def action(given: Asked, **rules: Any) -> str:
    return Rules.of(ApprovalSettings(**rules)).judge(given).action


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["path", "file_path", "paths", "source", "destination", "target"])
def test_a_rule_that_denies_or_asks_means_a_path_however_it_is_written(
    tmp_path: Path, odd: str, name: str
) -> None:
    path = f"{odd}kept/x"
    arguments: dict[str, Any] = {name: [path] if name == "paths" else path}
    given = asked(tmp_path, **arguments)
    assert action(given, allow=("write",), deny=("write(kept/**)",)) == "deny"
    assert action(given, allow=("write",), ask=("*(kept/**)",)) == "ask"
    assert action(given, allow=("write",), deny=("write(other/**)",)) == "allow"


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["path", "file_path", "paths", "source", "destination", "target"])
def test_a_rule_that_allows_a_folder_is_not_left_by_such_a_path(tmp_path: Path, odd: str, name: str) -> None:
    for path in (f"{odd}src/x", "docs/x://../../src/x", "docs/http://h/../../../src/x"):
        arguments: dict[str, Any] = {name: [path] if name == "paths" else path}
        given = asked(tmp_path, **arguments)
        assert action(given, allow=("write(docs/**)", "write(a:**)", "write(http:**)")) == "ask", path
        assert action(given, allow=("write(src/**)",)) == "allow", path


def test_addresses_are_judged_as_before(tmp_path: Path) -> None:
    for name in ("url", "source", "target"):
        given = asked(tmp_path, "post", **{name: "https://docs.example/a/b"})
        assert action(given, allow=("post(https://docs.example/**)",)) == "allow"
        assert action(given, allow=("post(https://other.example/**)",)) == "ask"
        assert action(given, allow=("post",), deny=("post(*://docs.example/**)",)) == "deny"
    given = asked(tmp_path, "post", url="https://docs.example/../kept/x")
    assert action(given, allow=("post",), deny=("post(kept/**)",)) == "allow", "an address is no path"


def test_the_rule_that_is_suggested_names_the_path_that_is_meant(tmp_path: Path) -> None:
    given = asked(tmp_path, path="a://../src/x")
    assert suggest_rule(given) == "write(src/x)"
    assert action(given, allow=("write(src/x)",)) == "allow"
    address = asked(tmp_path, "post", url="https://docs.example/a")
    assert suggest_rule(address) == "post(https://docs.example/a)"


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    ("tool", "path", "why"),
    [("read", ".env", "secrets"), ("write", ".env", "secrets"), ("write", ".git/hooks/x", "runs later")],
)
async def test_secrets_and_what_runs_later_are_asked_about_by_such_a_path(
    tmp_path: Path, odd: str, tool: str, path: str, why: str
) -> None:
    (tmp_path / ".env").write_text("KEY=planted")
    (tmp_path / ".git/hooks").mkdir(parents=True)
    questions: list[str] = []

    async def person(question: ApprovalRequested) -> Answer:
        questions.append(question.reason)
        return Answer(decision="reject")

    more = {"content": "x"} if tool == "write" else {}
    model = ScriptedModel([call(tool, path=f"{odd}{path}", **more), "done"])
    settings = {"approvals.allow": ["write", "read"]}
    async with Retinue(
        model=model,
        agents=[WRITER],
        cwd=tmp_path,
        db="memory:",
        environ={},
        approve=person,
        settings=settings,
    ) as retinue:
        await retinue.run("writer", "go")
    (reason,) = questions
    assert why in reason
    assert not (tmp_path / ".git/hooks/x").exists()
    assert "planted" not in str(model.requests)
