"""`retinue runs diff` and `retinue runs undo`, as a person types them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from world import Cli, Ended

from retinue.app import Retinue
from retinue.cli import exits
from retinue.testing import FakeProvider
from retinue.testing.scripted import ScriptedModel, call
from retinue.types import AgentSpec, ToolCall

WRITER = AgentSpec(name="writer", description="writes", prompt="write", tools=("write", "edit", "bash"))


def changed(cli: Cli, *more: ToolCall) -> str:
    """A database with one workflow that has changed two files of the project."""
    (cli.folder / "a.txt").write_text("one\ntwo\n")
    (cli.folder / "gone.txt").write_text("gone\n")
    steps = [
        call("edit", path="a.txt", old="two", new="three"),
        call("bash", command="rm gone.txt"),
        *more,
        "done",
    ]

    async def go() -> None:
        async with Retinue(
            model=ScriptedModel(steps), agents=[WRITER], cwd=cli.folder, environ={}, yes=True, db=db
        ) as retinue:
            await retinue.run("writer", "go")

    db = str(cli.home / "runs.db")
    asyncio.run(go())
    return db


def test_diff_shows_what_a_run_changed_and_undo_takes_it_back(cli: Cli, invoke: Callable[..., Ended]) -> None:
    db = changed(cli)
    shown = invoke("runs", "diff", "last", "--db", db)
    assert shown.code == 0
    assert "-two\n+three" in shown.out
    assert "removed gone.txt" in shown.out
    listed = json.loads(invoke("runs", "diff", "last", "--json", "--db", db).out)
    assert [change["what"] for change in listed["changes"]] == ["changed", "removed"]
    planned = invoke("runs", "undo", "last", "--dry-run", "--db", db)
    assert planned.out.splitlines() == ["a.txt: would be as before", "gone.txt: would be as before"]
    assert (cli.folder / "a.txt").read_text() == "one\nthree\n"
    assert invoke("runs", "undo", "last", "--yes", "--db", db).code == 0
    assert (cli.folder / "a.txt").read_text() == "one\ntwo\n"
    assert (cli.folder / "gone.txt").read_text() == "gone\n"
    after = invoke("runs", "diff", "last", "--stat", "--db", db)
    assert (after.out, after.err.strip()) == ("", "2 paths changed and taken back since: a.txt, gone.txt")
    assert json.loads(invoke("runs", "diff", "last", "--json", "--db", db).out)["taken_back"] == [
        "a.txt",
        "gone.txt",
    ]


def test_undo_with_rest_fails_where_all_of_it_is_refused(cli: Cli, invoke: Callable[..., Ended]) -> None:
    db = changed(cli)
    (cli.folder / "a.txt").write_text("mine\n")
    (cli.folder / "gone.txt").write_text("mine\n")
    ended = invoke("runs", "undo", "last", "--rest", "--yes", "--db", db)
    assert (ended.code, "nothing was taken back" in ended.err) == (1, True), ended.err
    assert (cli.folder / "a.txt").read_text() == "mine\n"


def test_undo_says_that_other_names_of_a_hard_link_stay(cli: Cli, invoke: Callable[..., Ended]) -> None:
    (cli.folder / "b.txt").write_text("one\n")
    (cli.home / "outside.txt").hardlink_to(cli.folder / "b.txt")
    db = changed(cli, call("bash", command="echo two >> b.txt"))
    planned = invoke("runs", "undo", "last", "--dry-run", "--db", db)
    ended = invoke("runs", "undo", "last", "--yes", "--db", db)
    for said in (planned.err, ended.err):
        assert "b.txt: a hard link; its other names are left as they are now" in said
        assert "a.txt: a hard link" not in said
    assert (cli.folder / "b.txt").read_text() == "one\n"
    assert (cli.home / "outside.txt").read_text() == "one\ntwo\n"


def test_undo_refuses_a_file_that_changed_since_and_says_which(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    db = changed(cli)
    (cli.folder / "a.txt").write_text("mine\n")
    refused = invoke("runs", "undo", "last", "--yes", "--db", db)
    assert refused.code == 1
    assert "a.txt: it was changed since" in refused.err
    assert "--rest takes back the others" in refused.err
    assert not (cli.folder / "gone.txt").exists()
    rest = invoke("runs", "undo", "last", "--yes", "--rest", "--db", db)
    assert rest.out.splitlines() == ["gone.txt: as before"]
    again = invoke("runs", "undo", "last", "--yes", "--db", db)
    assert again.code == 1
    assert "nothing was touched, and there is no more to take back" in again.err
    assert "--rest" not in again.err
    assert (cli.folder / "a.txt").read_text() == "mine\n"


def test_an_export_with_files_has_what_was_there_before_without_secrets(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    (cli.folder / ".env").write_text("KEY=1\n")
    db = changed(cli, call("bash", command="rm .env"))
    ended = invoke(
        "runs", "export", "last", "-o", str(cli.home / "x"), "--files", str(cli.home / "f"), "--db", db
    )
    assert ended.code == 0
    before = {path.name: path.read_text() for path in (cli.home / "f/before").iterdir()}
    assert before == {"a.txt": "one\ntwo\n", "gone.txt": "gone\n"}
    assert ".env: left out" in ended.err


def test_pruning_takes_the_shadow_of_a_project_with_its_last_workflow(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    db = changed(cli)
    shadows = cli.home / "runs.db-shadow"
    assert invoke("runs", "prune", "--older-than", "0s", "--dry-run", "--db", db).code == 0
    assert len(list(shadows.iterdir())) == 1
    ended = invoke("runs", "prune", "--older-than", "0s", "--db", db)
    assert ended.code == 0
    assert list(shadows.iterdir()) == []
    assert "of shadows of projects without workflows removed" in ended.err


def test_undo_says_what_stays_gone_since_nobody_looks_after_it(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    (cli.folder / ".gitignore").write_text("*.log\n")
    (cli.folder / "old.log").write_text("old\n")
    db = changed(cli, call("bash", command="rm old.log"))
    for words in (["--dry-run"], ["--yes"], ["--yes"]):  # also where there is nothing left to take back
        ended = invoke("runs", "undo", "last", *words, "--db", db)
        assert ended.code == 0
        assert "cannot be taken back: old.log: ignored by git, and it was removed" in ended.err


def test_a_name_with_lines_of_its_own_forges_no_line(cli: Cli, invoke: Callable[..., Ended]) -> None:
    forged = "x\nremoved a.txt"
    db = changed(cli, call("write", path=forged, content="new\n"))
    for words in (["diff", "last"], ["diff", "last", "--stat"], ["undo", "last", "--yes"]):
        ended = invoke("runs", *words, "--db", db)
        assert "removed a.txt" not in (ended.out + ended.err).splitlines()
        assert repr(forged) in ended.out
    assert not (cli.folder / forged).exists()


def test_what_a_child_made_in_a_copy_and_nobody_merged_is_named_below_the_answer(
    cli: Cli, invoke: Callable[..., Ended], served: FakeProvider
) -> None:
    cli.use(served)
    agents = cli.folder / ".retinue/agents"
    agents.mkdir(parents=True)
    head = "---\nname: {}\ndescription: makes one change to the code\ntools: [{}]\n{}---\nDo it."
    (agents / "boss.md").write_text(head.format("boss", "coder, write", ""))
    (agents / "coder.md").write_text(head.format("coder", "write", "isolation: worktree\n"))
    served.reply(calls=[call("coder", prompt="write it")])
    served.reply(calls=[call("write", path="new.txt", content="hi\n")])
    served.reply("did it")
    served.reply("done")
    ended = invoke("run", "boss", "go", "--yes")
    assert ended.code == exits.OK, ended.err
    assert "not in the project: 1 file of coder" in " ".join(ended.err.split())
    assert not (cli.folder / "new.txt").exists()
    served.reply(calls=[call("coder", prompt="write it")])
    served.reply(calls=[call("write", path="other.txt", content="hi\n")])
    served.reply("did it")
    served.reply("done")
    (fact,) = json.loads(invoke("run", "boss", "go", "--yes", "--json").out)["unmerged"]
    assert (fact["agent"], fact["files"], fact["conflicts"]) == ("coder", 1, 0)


def test_what_was_taken_back_is_not_named_as_written(invoke: Callable[..., Ended]) -> None:
    invoke("ask", "write kept.txt saying hi", "--yes", "--model", "offline")
    assert "files: kept.txt" in invoke("runs", "show", "last").err
    invoke("runs", "undo", "last", "--yes")
    assert "files:" not in invoke("runs", "show", "last").err


def test_a_run_that_is_shown_does_not_send_people_to_itself(
    invoke: Callable[..., Ended], cli: Cli, served: FakeProvider
) -> None:
    cli.use(served)
    served.reply(calls=[call("code-search", promt="x")])
    served.reply("done")
    asked = invoke("ask", "hi")
    assert "1 child not started; why says: retinue runs show" in " ".join(asked.err.split())
    shown = invoke("runs", "show", "last")
    assert "1 child not started; why says: the transcript above" in " ".join(shown.err.split())
