"""`retinue ask` and `retinue run` as other programs see them: output, exit codes, errors, signals."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from world import Cli, Ended, end_of

from retinue.engine.parking_clock import ParkingClock
from retinue.testing import FakeProvider, Script, SeenRequest, call

Invoke = Callable[..., Ended]
ESCAPE = "\x1b"


@pytest.fixture
def project(cli: Cli) -> Cli:
    (cli.folder / "shop.py").write_text("def total_price(items):\n    return sum(items)\n")
    return cli


async def test_without_a_key_the_offline_model_finds_a_symbol_and_says_in_one_line_what_it_is(project: Cli):
    ended = await project("ask", "where is total_price defined?")
    assert ended.code == 0
    assert "shop.py:1" in ended.out
    said = [line for line in ended.err.splitlines() if "language model" in line]
    assert len(said) == 1
    assert "OPENAI_API_KEY" in said[0]
    assert "--model" in said[0]


def test_piped_output_has_no_control_codes_and_progress_only_on_stderr(invoke: Invoke, project: Cli):
    ended = invoke("ask", "where is total_price defined?")
    assert ESCAPE not in ended.out + ended.err
    assert "code-search" not in ended.out.splitlines()[0]
    assert any("starts code-search" in line for line in ended.err.splitlines())


def test_the_report_as_json_has_every_conversation_if_that_is_asked_for(invoke: Invoke, project: Cli):
    ended = invoke("ask", "where is total_price defined?", "--json", "--messages")
    runs = json.loads(ended.out)["messages"]
    assert [runs[0]["depth"], runs[0]["messages"][0]["text"]] == [0, "where is total_price defined?"]
    assert {each["parent_id"] for each in runs[1:]} == {runs[0]["run_id"]}
    assert "messages" not in json.loads(invoke("ask", "where is total_price defined?", "--json").out)
    assert invoke("ask", "hello", "--messages").code == 2


async def test_the_next_model_answers_where_the_first_fails_for_good(project: Cli):
    def answer(seen: SeenRequest) -> Script:
        refused = Script(status=401, message="no such key")
        return refused if seen.wire == "anthropic" else Script(text="from the second")

    async with FakeProvider(answer) as server:
        models = ("--model", "anthropic:claude-haiku-4-5", "--model", "openai:gpt-4.1")
        ended = await project("ask", "hello", *models, "--json", **server.environ())
    report = json.loads(ended.out)
    assert (report["text"], report["model"]) == ("from the second", "openai:gpt-4.1")


@pytest.mark.parametrize("target", ["nothere.py", "src/nothere.py", "empty", "empty.py"])
def test_a_review_of_nothing_is_not_a_success(invoke: Invoke, project: Cli, target: str):
    (project.folder / "empty").mkdir()
    (project.folder / "empty.py").write_text("")
    ended = invoke("run", "code-review", target)
    assert ended.code == 3
    assert "! incomplete: nothing was read" in ended.err.splitlines()
    assert invoke("run", "code-review", "shop.py").code == 0


def test_json_is_the_report_and_nothing_else(invoke: Invoke, project: Cli):
    ended = invoke("ask", "where is total_price defined?", "--json")
    report = json.loads(ended.out)
    assert report["status"] == "completed"
    assert report["agent"] == "general"
    assert {"run_id", "text", "format", "label", "depth", "turns", "tool_calls", "duration_ms"} <= set(report)
    assert set(report["usage"]) >= {"input_tokens", "output_tokens", "total_tokens", "cost"}
    assert {"sources", "files", "incomplete"} <= set(report)


def test_events_are_json_lines_from_start_to_end(invoke: Invoke, project: Cli):
    ended = invoke("ask", "where is total_price defined?", "--events")
    kinds = [event["type"] for event in ended.lines]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_finished"
    assert {"child_started", "tool_called", "model_replied"} <= set(kinds)


async def test_an_answer_of_a_server_is_printed_as_it_is(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.reply("**Forty-two**, of course.")
    ended = await cli("ask", "what is six times seven?")
    assert ended.out == "**Forty-two**, of course.\n"
    assert ended.code == 0
    assert provider.requests[0].asked == "what is six times seven?"


def test_words_need_no_quotes_and_a_dash_is_standard_input(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("fine")
    ended = invoke("ask", "review", "this", "-", input="diff --git a b\n")
    assert ended.code == 0
    assert served.requests[0].asked == "review this\n\ndiff --git a b\n"


def test_what_is_piped_in_is_the_prompt_when_there_is_none(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("fine")
    ended = invoke("ask", input="hello there")
    assert ended.code == 0
    assert served.requests[0].asked == "hello there"


def test_inputs_fill_the_fields_of_an_agents_schema(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("fine")
    ended = invoke("run", "code-review", "shop.py", "--input", "focus=security")
    assert ended.code == 3, "it has read nothing"
    assert "shop.py" in served.requests[0].asked
    assert "security" in served.requests[0].asked


def test_a_provider_that_refuses_the_key_is_code_5(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.keys = {"right"}
    ended = invoke("ask", "hello", OPENAI_API_KEY="wrong")
    assert ended.code == 5
    assert "wrong" not in ended.err.replace("wrong key", "")


def test_a_model_that_refuses_to_answer_is_code_5(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("I can't", stop="refusal")
    ended = invoke("ask", "hello")
    assert (ended.code, "the model refused to answer" in ended.err) == (5, True), ended.err


def test_a_model_that_is_not_there_is_gone_on_from_with_another(
    invoke: Invoke, cli: Cli, served: FakeProvider
):
    cli.use(served)
    served.fail(404, "no such model")
    ended = invoke("ask", "hello")
    assert ended.code == 5
    assert re.search(r"go on with: retinue runs resume \w+ --model PROVIDER:MODEL", ended.err), ended.err


def test_a_provider_that_does_not_answer_is_one_line_however_often_it_is_asked(invoke: Invoke, cli: Cli):
    cli.env |= {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "k"}
    ended = invoke("ask", "hello", "--model", "openai:m")
    assert ended.code == 5
    assert ended.err.count("asked again (try 2): openai: connection failed") == 1


def test_an_answer_at_the_turn_limit_is_incomplete_and_code_3(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply(calls=[call("ls", path=".")])
    served.reply("as far as I got")
    ended = invoke("run", "general", "look around", "--max-turns", "1")
    assert ended.out == "as far as I got\n"
    assert ended.code == 3
    told = " ".join(ended.err.split())
    assert (
        "! incomplete: max turns reached: 1 of 1, and one more for this report go on with: retinue runs resume"
        in told
    )
    assert "2 turns" in ended.err


def command_named(told: str) -> list[str]:
    """The words of the command that goes on with a run, with a number for its limit."""
    found = re.search(r"go on with: retinue (runs resume \w+ --max-turns) N", " ".join(told.split()))
    assert found, told
    return [*found[1].split(), "20"]


def test_the_command_that_an_answer_at_the_turn_limit_names_goes_on(
    invoke: Invoke, cli: Cli, served: FakeProvider
):
    cli.use(served)
    served.reply(calls=[call("ls", path=".")])
    served.reply("as far as I got")
    ended = invoke("run", "general", "look around", "--max-turns", "1")
    served.reply("all of it")
    again = invoke(*command_named(ended.err))
    assert (again.out, again.code) == ("all of it\n", 0)


def test_the_command_that_is_named_of_a_child_at_its_turn_limit_goes_on(
    invoke: Invoke, cli: Cli, served: FakeProvider
):
    cli.use(served)
    agents = cli.folder / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "clerk.md").write_text(
        "---\nname: clerk\ndescription: looks\ntools: [ls, glob]\nmax_turns: 1\n---\nYou are the clerk.\n"
    )
    served.reply(calls=[call("clerk", prompt="look")])
    served.reply(calls=[call("ls", path=".")])
    served.reply("the clerk got so far")
    served.reply("so far")
    assert invoke("run", "general", "look around").code == 3
    [child] = re.findall(r"\bc[0-9a-z]{17}\b", invoke("runs", "tree", "last").out)
    shown = invoke("runs", "show", child)
    served.reply(calls=[call("ls", path=".")])
    served.reply(calls=[call("glob", pattern="*")])
    served.reply("the clerk has it all")
    served.reply("all of it")
    again = invoke(*command_named(shown.err))
    assert (again.out, again.code) == ("all of it\n", 0)
    assert invoke("runs", "list", "--all", "--outcome", "incomplete").out.count("clerk") == 0


def test_a_run_at_its_turn_limit_says_what_to_do_when_it_is_resumed_as_it_is(
    invoke: Invoke, cli: Cli, served: FakeProvider
):
    cli.use(served)
    served.reply(calls=[call("ls", path=".")])
    served.reply("as far as I got")
    invoke("run", "general", "look around", "--max-turns", "1")
    refused = invoke("runs", "resume", "last")
    assert refused.code == 2
    assert "max turns reached: 1 of 1 (allow more than 1 with --max-turns N, or go on" in refused.err
    assert "--message TEXT" in refused.err


def test_where_nobody_can_be_asked_a_command_is_refused_and_nothing_done_is_code_4(
    invoke: Invoke, cli: Cli, served: FakeProvider
):
    cli.use(served)
    served.reply(calls=[call("bash", command="touch made")])
    served.reply("I was not allowed to.")
    ended = invoke("ask", "make a file")
    assert ended.code == 4
    assert not (cli.folder / "made").exists()
    assert "--yes" in ended.err


def test_what_a_rule_denied_is_named_wherever_the_run_is_shown_and_is_no_failure(invoke: Invoke, cli: Cli):
    (cli.folder / "retinue.toml").write_text('[approvals]\ndeny = ["write"]\n')
    ended = invoke("ask", "write hello.txt saying hi", "--json")
    report = json.loads(ended.out)
    assert (ended.code, report["outcome"], report["denied"]) == (0, "completed", 1)
    assert "✓ completed, 1 denied" in ended.err
    assert "✓ completed, 1 denied" in invoke("runs", "list").out
    assert "general completed, 1 denied" in invoke("runs", "tree", "last").out
    assert "! 1 call denied by a rule" in invoke("runs", "show", "last").err
    assert "completed, 1 denied" in invoke("runs", "export", "last", "--html", "-o", "run.html").out + (
        cli.folder / "run.html"
    ).read_text("utf-8")
    assert not (cli.folder / "hello.txt").exists()


def test_an_effort_is_asked_for_and_shown_where_it_was_taken(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("done")
    ended = invoke("run", "summarize", "a text", "--effort", "high")
    assert served.requests[-1].body["reasoning_effort"] == "high"
    assert "high effort" in ended.err
    assert '"effort":"high"' in invoke("runs", "show", "last", "--json").out.replace(" ", "")
    assert "high effort" in invoke("runs", "show", "last").out
    invoke("runs", "export", "last", "--html", "-o", "run.html")
    assert "high effort" in (cli.folder / "run.html").read_text("utf-8")


def test_with_strict_sources_an_unverified_one_is_code_3(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.handler = lambda seen: Script(text="As https://never-fetched.example/page says.")
    relaxed = invoke("ask", "who says so?")
    assert relaxed.code == 0
    assert "✗ https://never-fetched.example/page  not verified" in relaxed.err
    assert (invoke("ask", "who says so?", "--strict-sources")).code == 3


def test_a_quotation_that_stands_nowhere_has_a_line_of_its_own(
    invoke: Invoke, cli: Cli, served: FakeProvider
):
    cli.use(served)
    (cli.folder / "notes.md").write_text("The lamp was lit in 1889.\n")
    served.reply(calls=[call("read", path="notes.md")])
    served.reply("“The mayor counts the lamps himself.” and https://never-fetched.example/page")
    ended = invoke("ask", "who counts?")
    assert "✗ “The mayor counts the lamps himself.”: quotation not found in anything" in " ".join(
        ended.err.split()
    )
    assert ended.err.count("never-fetched.example") == 1, "said once"


def test_yes_approves_what_would_be_asked(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply(calls=[call("bash", command="touch made")])
    served.reply("done")
    ended = invoke("ask", "make a file", "--yes")
    assert ended.code == 0, ended.err
    assert (cli.folder / "made").exists()


def test_show_prompt_shows_what_the_model_is_told(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("fine")
    ended = invoke("run", "code-search", "find it", "--show-prompt")
    seen = served.requests[0]
    assert seen.system.splitlines()[0] in ended.err
    assert '"required": ["path"]' in ended.err  # schemas as the model gets them, not as Python writes them
    assert "find it" in ended.err
    assert ended.out == "fine\n"


def test_quiet_prints_the_answer_alone(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("fine")
    ended = invoke("ask", "hello", "--quiet")
    assert (ended.out, ended.err, ended.code) == ("fine\n", "", 0)


def test_what_a_repository_brought_along_is_said_also_quietly(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("fine")
    (cli.folder / "retinue.toml").write_text('[approvals]\nauto_risk = "high"\n')
    agents = cli.folder / ".retinue" / "agents"
    agents.mkdir(parents=True)
    text = "---\nname: general\ndescription: Use always.\nmodel: openai:fake-model\n---\nYou are theirs.\n"
    (agents / "general.md").write_text(text)
    ended = invoke("ask", "hello", "--quiet")
    assert ended.out == "fine\n"
    assert "approvals.auto_risk ignored" in ended.err
    replaced = f"general is the agent of {agents / 'general.md'}, not the built-in one"
    assert replaced in ended.err
    assert "runs on 'openai:fake-model'" in ended.err
    served.reply("fine")
    invoke("config", "trust")
    assert replaced not in invoke("ask", "hello", "--quiet").err


def test_an_attached_text_goes_with_the_prompt(invoke: Invoke, cli: Cli, served: FakeProvider):
    cli.use(served)
    served.reply("fine")
    (cli.folder / "notes.txt").write_text("remember the milk")
    ended = invoke("ask", "what is this?", "--attach", "notes.txt")
    assert ended.code == 0, ended.err
    assert "remember the milk" in served.requests[0].asked


@pytest.mark.usefixtures("nothing_left")
async def test_an_interrupt_stops_the_run_prints_what_there_is_and_is_code_130(
    cli: Cli, provider: FakeProvider
):
    cli.use(provider)
    provider.add(Script(text="The first part of the answer and then silence", hang_after=3))
    process = await cli.start("ask", "hello", "--events")
    assert process.stdout is not None
    lines: list[dict[str, object]] = []
    while not (lines and lines[-1]["type"] == "streamed"):
        lines.append(json.loads(await process.stdout.readline()))
    process.send_signal(signal.SIGINT)
    rest, _ = await process.communicate()
    lines += [json.loads(line) for line in rest.splitlines()]
    assert process.returncode == 130
    assert lines[-1]["type"] == "run_finished"
    report = lines[-1]["report"]
    assert isinstance(report, dict)
    assert report["status"] == "cancelled"
    assert str(report["text"]).startswith("The first")


@pytest.mark.usefixtures("nothing_left")
async def test_a_second_interrupt_kills_at_once(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.reply(calls=[call("bash", command="echo $$ > pid; trap '' INT TERM; sleep 100")])
    process = await cli.start("ask", "hello", "--yes", "--events")
    assert process.stdout is not None
    while json.loads(await process.stdout.readline())["type"] != "tool_called":
        pass
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert await end_of(process) == 130


@pytest.mark.usefixtures("nothing_left")
async def test_a_closed_pipe_ends_quietly(cli: Cli, provider: FakeProvider):
    cli.use(provider)
    provider.add(Script(text="word " * 200, pieces=200, delay=0.05))
    process = await cli.start("ask", "hello", "--events")
    assert process.stdout is not None
    await process.stdout.readline()
    process.stdout._transport.close()  # pyright: ignore[reportAttributeAccessIssue]  # the reader goes away, as `head` does
    assert process.stderr is not None
    err = (await process.stderr.read()).decode()
    assert await process.wait() == 141
    process._transport.close()  # pyright: ignore[reportAttributeAccessIssue]  # or it outlives the test's loop
    assert "Traceback" not in err
    assert "Broken" not in err


def test_a_limit_that_resets_in_minutes_ends_with_when_and_the_run_goes_on_later(
    invoke: Invoke, cli: Cli, served: FakeProvider, monkeypatch: pytest.MonkeyPatch
):
    """Without a terminal and without --wait-limits nobody is kept waiting, and nothing is lost."""
    cli.use(served)
    served.fail(429, "slow down", retry_after=90)
    ended = invoke("ask", "a question")
    assert ended.code == 5
    assert "It can be asked again at" in ended.err
    run_id = re.search(r"retinue runs resume (\w+)", ended.err)
    assert run_id is not None
    listed = invoke("runs", "list")
    assert "interrupted, limit until" in listed.out
    row = json.loads(invoke("runs", "list", "--json").out)
    assert row["status"] == "waiting"
    assert row["parked_until"] > time.time() + 60

    again = invoke("runs", "resume", run_id[1])
    assert again.code == 5, "it is too early, and nobody is asked"
    assert len(served.requests) == 1

    waited: list[float] = []

    async def at_once(self: ParkingClock, until: float) -> None:
        waited.append(until - time.time())

    monkeypatch.setattr(ParkingClock, "wait", at_once)
    served.reply("the summary")
    last = invoke("runs", "resume", run_id[1], "--wait-limits")
    assert (last.code, last.out.strip()) == (0, "the summary")
    assert "goes on: waits for the provider's limit to reset until" in last.err
    assert "slow down" in last.err
    assert 0 < waited[0] < 100
    assert len(served.requests) == 2


def test_the_list_says_until_when_a_workflow_waits_for_the_limit_of_a_child(
    invoke: Invoke, cli: Cli, served: FakeProvider
):
    def answer(seen: SeenRequest) -> Script:
        if "find it" in seen.asked:
            return Script(status=429, message="slow down", retry_after=90)
        return Script(calls=(call("code-search", query="find it"),))

    cli.use(served)
    served.handler = answer
    assert invoke("ask", "a question").code == 5
    assert "limit until" in invoke("runs", "list").out
    row = json.loads(invoke("runs", "list", "--json").out)
    assert row["parked_until"] > time.time() + 60
    assert re.search(r"code-search interrupted limit until \d\d:", invoke("runs", "tree", "last").out)
    for shown in (("list",), ("tree", "last"), ("show", "last")):
        said = invoke("runs", *shown).err
        assert "it waits for the provider's limit to reset until" in said, shown
        assert "a question of it waits" not in said, shown


def test_with_wait_limits_a_run_waits_and_answers(
    invoke: Invoke, cli: Cli, served: FakeProvider, monkeypatch: pytest.MonkeyPatch
):
    async def at_once(self: ParkingClock, until: float) -> None:
        """The time is there."""

    monkeypatch.setattr(ParkingClock, "wait", at_once)
    cli.use(served)
    served.fail(429, "slow down", retry_after=90)
    served.reply("the summary")
    ended = invoke("ask", "a question", "--wait-limits")
    assert (ended.code, ended.out.strip()) == (0, "the summary")
    assert "waits for the provider's limit to reset until" in ended.err


def test_a_replay_of_a_conversation_says_that_it_ends_with_the_first_answer(
    invoke: Invoke, cli: Cli, served: FakeProvider
):
    cli.use(served)
    served.reply("one")
    assert invoke("ask", "a question").code == 0
    first = invoke("runs", "replay", "last")
    assert "events came out" in first.err
    assert "not replayed" not in first.err
    served.reply("two")
    assert invoke("runs", "resume", "last", "--message", "and now?").code == 0
    again = invoke("runs", "replay", "last")
    said = first.err.strip().partition(": ")[2]
    after = len(invoke("runs", "events", "last").out.splitlines()) - int(said.split()[2])
    assert f"{said}, up to its first end; what follows ({after} events) was not replayed" in again.err


def test_a_replay_goes_by_the_agents_of_the_folder_that_the_run_worked_in(
    invoke: Invoke, cli: Cli, served: FakeProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    cli.use(served)
    served.reply("the summary")
    own = cli.folder / ".retinue" / "agents" / "clerk.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\nname: clerk\ndescription: keeps the books\ntools: [read]\n---\nYou are a clerk.\n")
    assert invoke("run", "clerk", "a question").code == 0
    monkeypatch.chdir(tmp_path)
    assert invoke("runs", "replay", "last").code == 0
    own.write_text(own.read_text().replace("[read]", "[grep]"))
    changed = invoke("runs", "replay", "last")
    assert changed.code == 1
    assert {"-read", "+grep"} <= {*changed.out.splitlines()}
    own.unlink()
    assert invoke("runs", "replay", "last").code == 0, "played from the record"


async def test_a_call_that_failed_is_counted_and_one_that_was_kept_from_running_is_not(
    cli: Cli, provider: FakeProvider
) -> None:
    cli.use(provider)
    steps = [call("bash", command="exit 3"), call("ls", path="."), call("bash", command="git push")]
    for form in ((), ("--json",)):
        provider.reply(calls=steps)
        provider.reply("All tests pass.")
        ended = await cli("ask", "x", "--yes", *form, RETINUE_APPROVALS_DENY="bash(git push*)")
        assert ended.code == 0
        if form:
            report = json.loads(ended.out)
            assert (report["outcome"], report["tool_calls"], report["failed_calls"]) == ("completed", 2, 1)
        else:
            assert "2 tool calls (1 failed)" in ended.err
    exported = await cli("runs", "export", "last", "--html", "-o", "-")
    assert "2 tool calls (1 failed)" in exported.out
