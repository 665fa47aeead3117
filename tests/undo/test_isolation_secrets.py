"""A copy of a project is no way around a rule: what is kept from agents there is kept from them here."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from projects import bash, project
from test_isolation import BOSS, CODER, said
from test_isolation_kept import asked, merge, returned

from retinue.app import Retinue
from retinue.approvals import Rules
from retinue.authority.rules import parse_rule
from retinue.engine.answers import Answer
from retinue.engine.merge_diffs import MOST_ALL, Withheld, planned_diff
from retinue.engine.undo import NetChange
from retinue.engine.worktrees import Copy, MergePlan
from retinue.events import ApprovalRequested, RunFinished
from retinue.git import git
from retinue.testing.scripted import ScriptedModel, call
from retinue.types import AgentSpec, FileState, ModelRequest

SECRET = "hunter2-word"


def opened(folder: Path, steps: Any, **options: Any) -> Retinue:
    """As elsewhere, but nothing is approved beforehand."""
    options.setdefault("approve", _yes)
    options.setdefault("db", str(folder.parent / "runs.db"))
    return Retinue(model=ScriptedModel(steps), agents=[CODER, BOSS], cwd=folder, environ={}, **options)


async def _yes(question: ApprovalRequested) -> Answer:
    return Answer(decision="approve")


async def _not_about_secrets(question: ApprovalRequested) -> Answer:
    return Answer(decision="reject" if "secrets" in question.reason else "approve")


def with_grep(spec: AgentSpec) -> AgentSpec:
    return msgspec.structs.replace(spec, tools=(*(spec.tools or ()), "grep"))


def told(*requests: ModelRequest) -> str:
    return "\n".join(text for request in requests for text in said(request))


@pytest.mark.parametrize("how", ["read", "grep", "link", "hard link"])
async def test_a_rule_about_a_file_of_the_project_holds_in_its_copy(tmp_path: Path, how: str) -> None:
    folder = project(tmp_path / "p")
    (folder / "plans").mkdir()
    (folder / "plans" / "next.md").write_text(SECRET)
    if how == "link":
        (folder / "open.md").symlink_to("plans/next.md")
    elif how == "hard link":
        (folder / "open.md").hardlink_to(folder / "plans" / "next.md")
    looking = {
        "read": call("read", path="plans/next.md"),
        "grep": call("grep", pattern="hunter", path="."),
    }.get(how, call("read", path="open.md"))
    model = ScriptedModel(asked(looking))
    rule = f"*({folder}/plans/**)"
    async with Retinue(
        model=model, agents=[with_grep(CODER), with_grep(BOSS)], cwd=folder, db="memory:", environ={},
        approve=_yes, settings={"approvals.deny": [rule]},
    ) as retinue:  # fmt: skip
        await retinue.run("boss", "go")
    assert "rule" in told(*model.requests)
    assert SECRET not in told(*model.requests)


async def test_a_file_of_secrets_that_is_not_committed_is_on_no_branch(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / "known.pem").write_text("committed")
    for words in (["add", "known.pem"], ["commit", "-q", "-m", "known"]):
        git(folder, "-c", "user.name=a", "-c", "user.email=a@example.org", *words)
    (folder / ".env").write_text(SECRET)
    (folder / "known.pem").write_text("changed since")
    async with opened(folder, asked(bash("echo new > new.key; echo b > b.py"))) as retinue:
        await retinue.run("boss", "go")
        (copy,) = retinue.services.worktrees.all()
        there = retinue.services.worktrees.path(copy.run_id)
        assert (there / ".env").read_text() == SECRET  # it may be needed to run the tests there
        listed = git(folder, "ls-tree", "-r", "--name-only", copy.branch).stdout.decode().split()
        assert {"b.py", "known.pem"} <= {*listed}
        assert not {".env", "new.key"} & {*listed}
        assert git(folder, "show", f"{copy.branch}:known.pem").stdout == b"changed since"


@pytest.mark.parametrize("ignored", [True, False])
async def test_a_hard_link_of_a_file_of_secrets_is_one_in_a_copy_too(tmp_path: Path, ignored: bool) -> None:
    folder = project(tmp_path / "p")
    (folder / ".env").write_text(SECRET)
    (folder / "notes.txt").hardlink_to(folder / ".env")
    if ignored:
        (folder / ".gitignore").write_text(".env\n")
    model = ScriptedModel(asked([call("read", path="notes.txt"), call("grep", pattern="hunter", path=".")]))
    agents = [with_grep(CODER), with_grep(BOSS)]
    async with Retinue(
        model=model, agents=agents, cwd=folder, db="memory:", environ={}, approve=_not_about_secrets
    ) as retinue:
        await retinue.run("boss", "go")
    assert "rejected" in told(*model.requests)
    assert SECRET not in told(*model.requests)


async def test_neither_report_nor_preview_shows_what_is_kept_from_agents(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / ".env").write_text(f"KEY={SECRET}\n")
    (folder / "plans").mkdir()
    (folder / "plans" / "next.md").write_text(f"{SECRET}\nmore\n")
    commands = "cp plans/next.md copy.md; echo x >> .env; echo x >> plans/next.md; echo o > open.txt"
    steps = asked(bash(commands), then=(merge, "done"))
    questions: list[ApprovalRequested] = []

    async def person(question: ApprovalRequested) -> Answer:
        questions.append(question)
        return Answer(decision="approve")

    model = ScriptedModel(steps)
    async with Retinue(
        model=model, agents=[CODER, BOSS], cwd=folder, db="memory:", environ={}, approve=person,
        settings={"approvals.deny": [f"read({folder}/plans/**)"]},
    ) as retinue:  # fmt: skip
        report = await retinue.run("boss", "go")
        events = await retinue.store.events(report.run_id)
        (done,) = await returned(retinue, report.run_id, "merge_child")
    (merging,) = [question for question in questions if question.tool == "merge_child"]
    (child,) = [event for event in events if isinstance(event, RunFinished) and event.depth == 1]
    for text in (merging.preview, child.report.text, told(*model.requests), done.text):
        assert SECRET not in text
    for text in (merging.preview, child.report.text):
        assert "+o" in text
        assert ".env: 17 bytes become 19; not shown: files like these usually hold secrets" in text
        assert "plans/next.md" in text
        assert "copy.md: 0 bytes become 18; not shown: it has what plans/next.md had" in text
    assert not done.is_error
    assert SECRET in (folder / "copy.md").read_text()


async def test_a_conflict_in_a_file_of_secrets_is_told_without_its_lines(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / ".env").write_text("KEY=old\n")

    def meddle(request: ModelRequest) -> object:
        (folder / ".env").write_text(f"KEY={SECRET}\n")
        return merge(request)

    model = ScriptedModel(asked(bash("echo KEY=mine > .env"), then=(meddle, "done")))
    async with Retinue(
        model=model, agents=[CODER, BOSS], cwd=folder, db="memory:", environ={}, approve=_yes
    ) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
    assert "conflict in .env" in done.text
    assert SECRET not in told(*model.requests)


@pytest.mark.parametrize(
    ("setting", "commands", "path"),
    [
        ("core.hooksPath=hk", "mkdir hk; echo x > hk/pre-commit", "hk/pre-commit"),
        (
            "user.name=n",
            "mkdir n n/objects n/refs; touch n/HEAD n/objects/a n/refs/b; echo x > n/config",
            "n/config",
        ),
    ],
)
async def test_what_runs_later_does_not_come_by_a_merge_that_nobody_was_asked_about(
    tmp_path: Path, setting: str, commands: str, path: str
) -> None:
    folder = project(tmp_path / "p")
    git(folder, "config", *setting.split("="))
    allowed = ["merge_child", "bash", "write", "write(hk/**)", "write(n/**)"]
    settings = {"approvals.allow": allowed}
    steps = asked(bash(commands), then=(merge, "done"))
    async with opened(folder, steps, approve=None, settings=settings) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
    assert done.not_run == "unattended"
    assert "says what runs later, with your rights" in done.text
    assert not (folder / path).exists()


async def test_nobody_is_asked_about_a_child_that_has_nothing_to_merge(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    asked_about: list[str] = []

    async def person(question: ApprovalRequested) -> Answer:
        asked_about.append(question.tool)
        return Answer(decision="approve")

    steps = asked(
        bash("echo n > new.txt"), then=(merge, merge, call("merge_child", child_id="nobody"), "done")
    )
    async with opened(folder, steps, approve=person) as retinue:
        report = await retinue.run("boss", "go")
        first, again, nobody = await returned(retinue, report.run_id, "merge_child")
    assert not first.is_error
    assert "there is nothing to merge" in again.text
    assert "there is no child 'nobody' of yours" in nobody.text
    assert asked_about.count("merge_child") == 1


async def test_a_copy_that_is_thrown_away_while_a_person_is_asked_ends_the_call_clearly(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")

    async def person(question: ApprovalRequested) -> Answer:
        if question.tool == "merge_child":
            copies = retinue.services.worktrees
            await asyncio.to_thread(copies.remove, copies.all()[0], retinue.settings.undo)
        return Answer(decision="approve")

    async with opened(
        folder, asked(bash("echo n > new.txt"), then=(merge, "done")), approve=person
    ) as retinue:
        report = await retinue.run("boss", "go")
        (done,) = await returned(retinue, report.run_id, "merge_child")
    assert done.is_error
    assert "it has no copy of the project, or no more" in done.text


@pytest.mark.parametrize("changed", [True, False])
async def test_a_merge_that_was_approved_before_a_restart_is_held_against_what_was_shown(
    tmp_path: Path, changed: bool
) -> None:
    folder = project(tmp_path / "p")
    there = asyncio.Event()

    async def nobody(question: ApprovalRequested) -> Answer:
        if question.tool != "merge_child":
            return Answer(decision="approve")
        there.set()
        return await asyncio.Future()

    steps = asked(bash("echo n > new.txt"), then=(merge, merge, "done"))
    async with opened(folder, steps, approve=nobody) as first:
        run_id = await first.start("boss", "go")
        await there.wait()
        (question,) = [one for one in await first.approvals() if one.tool == "merge_child"]
        (copy,) = first.services.worktrees.all()
        if changed:
            (first.services.worktrees.path(copy.run_id) / "sneaked.txt").write_text("evil\n")
        await first.leave()
    seen: list[str] = []

    async def person(question: ApprovalRequested) -> Answer:
        seen.append(question.preview)
        return Answer(decision="approve")

    async with opened(folder, {"PLAY boss": [merge, "done"]}, approve=person) as second:
        await second.resume(run_id)
        await second.wait(run_id)
        done = await returned(second, run_id, "merge_child")
    assert question.shown
    assert "sneaked" not in seen[0]
    assert done[0].is_error is changed
    assert (folder / "new.txt").exists()
    if changed:
        assert "changed after the person was shown" in done[0].text
        assert "sneaked" in seen[1]


def test_of_huge_changes_a_bounded_part_is_shown_that_says_what_is_cut(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("".join(f"old {n}\n" for n in range(30_000)))
    (tmp_path / "wide.txt").write_text("x" * 3_000_000)
    new = {
        "big.txt": "".join(f"new {n}\n" for n in range(30_000)),
        "wide.txt": "y" * 3_000_000,
        "made.txt": "".join(f"made {n}\n" for n in range(30_000)),
        **{f"many/{n}.txt": "z\n" * 390 for n in range(2_000)},
    }
    going: list[tuple[NetChange, bytes | None]] = []
    for path, text in new.items():
        there = (tmp_path / path).read_bytes() if (tmp_path / path).exists() else None
        now = FileState() if there is None else _state(there)
        going.append((NetChange(path=path, before=_state(text.encode()), after=now), text.encode()))
    copy = Copy(run_id="c1", root_id="r1", agent="coder", source=str(tmp_path))
    shown = planned_diff(copy, MergePlan(going=tuple(going)))
    assert len(shown) < 2 * MOST_ALL
    assert "big.txt: 30,000 lines are replaced by 30,000 others" in shown
    assert "more characters of this change]" in shown
    assert "more lines of this change]" in shown
    assert "more changed paths are not shown here: many/" in shown


def _state(data: bytes) -> FileState:
    return FileState(kind="file", mode=0o644, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def test_rules_for_one_agent_count_where_anybody_may_be_shown_a_diff() -> None:
    rules = Rules(deny=(parse_rule("agent:x read(a/**)"),), ask=(parse_rule("agent:y read(b/**)"),))
    assert Withheld(rules).why("a/one")
    assert Withheld(rules).why("b/one")
    assert Withheld(rules).why("c/one") is None
    assert Withheld(rules, agents=("boss", "z")).why("a/one") is None
    assert Withheld(rules, agents=("x", "z")).why("a/one")


ENV = "# of the shop\nTOKEN=hunter2-token\nPASSWORD=correct-horse-2\nDEBUG=1\n"


COPIES = {
    "all": "(echo hi; cat .env)",
    "lines": "sed 's/^/  export /' .env",
    "values": "printf '%s,%s' correct-horse-2 hunter2-token",
    "ignored": "(echo hi; cat ignored.env)",
}
PARTS = {"part": "grep TOKEN .env", "common": "echo DEBUG=1"}
"""What is not known again."""


async def test_a_file_into_which_all_of_a_file_of_secrets_was_copied_is_named_and_not_shown(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "p")
    (folder / ".env").write_text(ENV)
    (folder / "ignored.env").write_text("OTHER=some-thing-9\n")
    (folder / ".gitignore").write_text("ignored.env\n")
    questions: list[str] = []

    async def approve(question: ApprovalRequested) -> Answer:
        if question.tool == "merge_child":
            questions.append(question.preview)
        return Answer(decision="approve")

    command = "; ".join(f"{made} > {name}.txt" for name, made in (COPIES | PARTS).items())
    steps = asked(bash(command), then=(merge, "done"))
    settings = {"isolation.ignored": True}
    async with opened(folder, steps, approve=approve, settings=settings) as retinue:
        report = await retinue.run("boss", "go")
        (reported,) = await returned(retinue, report.run_id, "coder")
    for text in (reported.text, *questions):
        hidden = [line.partition(".txt: ")[0] for line in text.splitlines() if "; not shown: " in line]
        assert sorted(hidden) == sorted(COPIES)
        assert text.count("hunter2-token") == text.count("+DEBUG=1") == 1
        assert not any(word in text for word in ("correct-horse-2", "some-thing-9"))
    assert len(questions) == 1


async def test_bytes_that_are_no_text_are_counted_and_not_shown(tmp_path: Path) -> None:
    folder = project(tmp_path / "p", git=False)
    (folder / "old.bin").write_bytes(b"bin\0ary-words")
    steps = asked(
        bash("rm old.bin; printf 'new\\0bytes' > new.bin; touch \"$(printf 'a\\nb')\""), then=(merge, "done")
    )
    async with opened(folder, steps) as retinue:
        report = await retinue.run("boss", "go")
        (reported,) = await returned(retinue, report.run_id, "coder")
        (merged,) = await returned(retinue, report.run_id, "merge_child")
    assert "old.bin: 13 bytes become 0" in reported.text
    assert "new.bin: 0 bytes become 9" in reported.text
    assert "ary-words" not in reported.text
    assert "created 'a\\nb'" in reported.text.splitlines()
    assert "'a\\nb'" in merged.text.splitlines()


@pytest.mark.parametrize("path", [".env", ".env.local", ".mcp.json", ".retinue/tools/t.py"])
@pytest.mark.parametrize("rule", ["merge_child", "named"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_a_merge_that_is_allowed_asks_before_it_changes_secrets_or_what_runs_later(
    tmp_path: Path, path: str, rule: str, decision: Literal["approve", "reject"]
) -> None:
    folder, questions = project(tmp_path / "p", git=False), list[ApprovalRequested]()
    (folder / ".env").write_text(SECRET)
    (folder / ".retinue/tools").mkdir(parents=True)
    steps = asked(bash(f"echo 3 >> {path}"), then=(merge, "done"))
    rules = ["bash", "merge_child", *([f"write({path})"] if rule == "named" else [])]
    before = (folder / path).read_text() if (folder / path).exists() else None

    async def answer(question: ApprovalRequested) -> Answer:
        questions.append(question)
        return Answer(decision=decision)

    async with opened(folder, steps, settings={"approvals.allow": rules}, approve=answer) as retinue:
        await retinue.run("boss", "go")
    now = (folder / path).read_text() if (folder / path).exists() else None
    assert [question.tool for question in questions] == ["merge_child"] * (rule == "merge_child")
    assert all(path in question.reason for question in questions)
    assert (now == before) is (rule == "merge_child" and decision == "reject")


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_a_merge_that_is_allowed_asks_about_what_a_rule_wants_a_person_asked_about(
    tmp_path: Path, allowed: bool, decision: Literal["approve", "reject"]
) -> None:
    folder, questions = project(tmp_path / "p", git=False), list[ApprovalRequested]()
    steps = asked(bash("echo 3 > lib/two.py"), then=(merge, "done"))
    rules = {
        "approvals.allow": ["bash", *(["merge_child"] if allowed else [])],
        "approvals.ask": ["write(lib/**)"],
    }

    async def answer(question: ApprovalRequested) -> Answer:
        questions.append(question)
        return Answer(decision=decision)

    async with opened(folder, steps, settings=rules, approve=answer) as retinue:
        await retinue.run("boss", "go")
        assert len(retinue.services.worktrees.all()) == (decision == "reject")
    (question,) = questions
    assert "the rule 'write(lib/**)' wants a person asked about writing lib/two.py" in question.reason
    assert "+3" in question.preview
    assert ((folder / "lib" / "two.py").read_text() == "3\n") is (decision == "approve")


@pytest.mark.parametrize("yes", [True, False])
async def test_where_nobody_can_be_asked_such_a_merge_is_refused_and_says_why(
    tmp_path: Path, yes: bool
) -> None:
    folder = project(tmp_path / "p", git=False)
    steps = asked(bash("echo 3 > lib/two.py"), then=(merge, "done"))
    rules = {"approvals.allow": ["bash", "merge_child"], "approvals.ask": ["write(lib/**)"]}
    async with opened(folder, steps, settings=rules, approve=None, yes=yes) as retinue:
        report = await retinue.run("boss", "go")
        (merged,) = await returned(retinue, report.run_id, "merge_child")
        assert len(retinue.services.worktrees.all()) == 1
    assert merged.not_run == "unattended"
    assert "the rule 'write(lib/**)' wants a person asked about writing lib/two.py" in merged.text
    assert (folder / "lib" / "two.py").read_text() != "3\n"
