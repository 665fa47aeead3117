"""Tools of a person's own at the command line: trusted once, listed, used, and missed aloud."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from world import Cli, Ended

from retinue.cli import exits
from retinue.testing import FakeProvider, call

CENSUS = 'def population(city: str) -> int:\n    """How many people live in a city."""\n    return 8104\n'


def put(cli: Cli, text: str = CENSUS) -> None:
    folder = cli.folder / ".retinue/tools"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "census.py").write_text(text)


def test_a_file_of_tools_is_trusted_shown_and_asked_about_again_when_it_changes(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    put(cli)
    ended = invoke("tools", "list")
    assert ended.code == exits.OK
    assert "population" not in ended.out
    assert "is of a repository: read it, then 'retinue tools trust'" in ended.err
    trusted = invoke("tools", "trust")
    assert trusted.code == exits.OK
    assert "trusted as it is now: population" in trusted.err
    ended = invoke("tools", "list")
    assert "population" in ended.out
    assert ended.err == ""
    assert invoke("config", "untrust").err.endswith("was not trusted\n"), "nothing else is trusted with it"
    facts = json.loads(invoke("tools", "show", "population", "--json").out)
    assert "yours, from " in facts["offered"]
    assert "trusted already" in invoke("tools", "trust", ".retinue/tools/census.py").err
    put(cli, CENSUS + "#\n")
    ended = invoke("tools", "list")
    assert "population" not in ended.out
    assert "'retinue tools trust'" in ended.err
    assert invoke("config", "trust").code == exits.OK
    assert "changed since you trusted it" in invoke("tools", "list").err
    wrong = invoke("tools", "trust", "other.py")
    assert wrong.code == exits.USAGE
    assert "is no file of tools" in wrong.err


def test_a_run_uses_a_function_that_is_named(
    cli: Cli, invoke: Callable[..., Ended], served: FakeProvider
) -> None:
    cli.use(served)
    (cli.folder / "my_tools.py").write_text(CENSUS)
    served.reply(calls=[call("population", city="Rome")])
    served.reply("done")
    served.reply("again")
    ended = invoke("ask", "how many?", "--tools", "my_tools.py:population", "--json")
    assert ended.code == exits.OK, ended.err
    assert any("8104" in json.dumps(request.body) for request in served.requests)
    missing = invoke("runs", "resume", "last", "--message", "again")
    assert missing.code == exits.USAGE
    assert "give '--tools my_tools.py:population' again" in missing.err
    before = invoke("runs", "list", "--json").out
    forked = invoke("runs", "fork", "last", "--message", "again")
    assert forked.code == exits.USAGE
    assert "give '--tools my_tools.py:population' again" in forked.err
    assert invoke("runs", "list", "--json").out == before
    again = invoke(
        "runs", "resume", "last", "--message", "again", "--tools", "my_tools.py:population", "--json"
    )
    assert again.code == exits.OK, again.err
    none = invoke("ask", "how many?", "--tools", "my_tools.py:popluation")
    assert none.code == exits.USAGE
    assert "did you mean 'population'?" in none.err


CHATTER = """
import os, sys, threading, subprocess
print("FOREIGN loaded")

def talk(what: str) -> str:
    '''Says it aloud.'''
    print("FOREIGN plain", what)
    sys.stdout.buffer.write(b"FOREIGN bytes\\n")
    os.system("echo FOREIGN shell")
    subprocess.run([sys.executable, "-c", "print('FOREIGN program')"])
    other = threading.Thread(target=print, args=("FOREIGN thread",))
    other.start(); other.join()
    return "said"

async def murmur(what: str) -> str:
    '''Says it softly.'''
    print("FOREIGN coroutine", what)
    return "murmured"

def check_talk(run) -> bool:
    print("FOREIGN check")
    return True
"""
SAID = {"loaded", "plain", "bytes", "shell", "program", "thread", "coroutine"}


async def test_what_ones_own_code_prints_is_on_stderr_and_stdout_holds_data_alone(
    cli: Cli, provider: FakeProvider
) -> None:
    cli.use(provider)
    (cli.folder / "chatter.py").write_text(CHATTER)
    own = ("--tools", "chatter.py:talk", "--tools", "chatter.py:murmur")
    for form in ("--json", "--events"):
        provider.reply(calls=[call("talk", what="a"), call("murmur", what="b")])
        provider.reply("done")
        ended = await cli("ask", "x", *own, "--yes", form)
        assert ended.code == exits.OK, ended.err
        said = {line.split()[1] for line in ended.err.splitlines() if line.startswith("FOREIGN")}
        assert said == SAID
        told = [json.loads(line) for line in ended.out.splitlines()]
        assert (told[0]["text"] if form == "--json" else told[-1]["report"]["text"]) == "done"
    listed = await cli("tools", "list", *own, "--json")
    assert "talk" in {json.loads(line)["name"] for line in listed.out.splitlines()}
    provider.reply("fine")
    (cli.folder / "cases.yaml").write_text("agent: general\ncases:\n  - {name: one, prompt: say fine}\n")
    ended = await cli("eval", "cases.yaml", "--checks", "chatter.py", "--json")
    assert ended.code == exits.OK, ended.err
    assert json.loads(ended.out.splitlines()[0])
    assert "FOREIGN check" in ended.err


async def test_the_terminal_asks_once_and_remembers_a_yes(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any]
) -> None:
    cli.use(provider)
    put(cli)
    assert (await cli("config", "trust")).code == exits.OK
    for answer in ("n", "y"):
        provider.reply("fine")
        screen = await terminal("ask", "hello", columns=200)
        await screen.until("Trust it from now on, as it is? [y/N]")
        screen.send(f"{answer}\n")
        assert await screen.wait() == exits.OK
        assert ("population" in {tool.name for tool in provider.requests[-1].tools}) == (answer == "y")
    provider.reply("fine")
    screen = await terminal("ask", "hello", columns=200)
    assert await screen.wait() == exits.OK
    assert "Trust it" not in screen.text
    assert "population" in {tool.name for tool in provider.requests[-1].tools}


def test_doctor_names_files_of_tools_not_trusted_trusted_changed_and_broken(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    def said() -> tuple[str, str, str]:
        (row,) = [row for row in invoke("doctor", "--json").lines if row["group"] == "own tools"]
        return row["name"], row["state"], row["fix"]

    assert said() == ("found", "ok", "")
    put(cli)
    assert said() == (
        "not loaded",
        "note",
        "read it, then 'retinue tools trust' lets it be loaded, and nothing else",
    )
    invoke("config", "trust")
    assert said()[:2] == ("not loaded", "note")
    invoke("tools", "trust")
    assert said() == ("trusted", "ok", "")
    put(cli, CENSUS + "#\n")
    assert said()[:2] == ("not loaded", "note")
    put(cli, "import nowhere_at_all\n")
    invoke("tools", "trust")
    assert said()[:2] == ("broken", "problem")


def test_a_broken_file_of_tools_is_named_and_the_others_are_listed(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    put(cli)
    (cli.folder / ".retinue/tools/broken.py").write_text("import nowhere_at_all\n")
    (cli.folder / ".retinue/tools/empty.py").write_text("x = 1\n")
    assert invoke("config", "trust").code == exits.OK
    assert invoke("tools", "trust").code == exits.OK
    for listed in (invoke("tools", "list"), invoke("tools", "list", "--json")):
        assert listed.code == exits.USAGE
        assert "population" in listed.out
        assert "broken.py:1: cannot be loaded" in listed.err
        assert "empty.py: has no tools" in listed.err
    assert invoke("tools", "show", "population").code == exits.OK
    begun = invoke("ask", "how many?", "--model", "offline")
    assert begun.code == exits.USAGE
    assert "broken.py:1: cannot be loaded" in begun.err


def test_the_check_of_an_agent_says_of_a_missing_tool_what_a_run_says(
    cli: Cli, invoke: Callable[..., Ended]
) -> None:
    put(cli)
    agents = cli.folder / ".retinue/agents"
    agents.mkdir()
    file = agents / "clerk.md"
    head = "---\nname: clerk\ndescription: counts the people of a city\ntools:\n  - read\n"
    file.write_text(head + "  - grpe\ndisallowed_tools: [bsah]\n---\nCount.")
    said = f"{file}:6: error: there is no tool and no agent 'grpe' (tools of clerk) (did you mean 'grep'?)"
    checked = invoke("agents", "check")
    assert checked.code == exits.USAGE
    assert said in checked.out
    assert f"{file}:7: warning: there is no tool and no agent 'bsah'" in checked.out
    begun = invoke("run", "clerk", "how many?", "--model", "offline")
    assert begun.code == exits.USAGE
    assert said.replace(" error:", "") in begun.err

    file.write_text(head + "  - population\n---\nCount.")
    waiting = invoke("agents", "check")
    assert waiting.code == exits.USAGE
    assert "census.py is of a repository" in waiting.out
    invoke("config", "trust")
    invoke("tools", "trust")
    assert invoke("agents", "check").code == exits.OK


def test_a_file_that_is_not_python_is_not_trusted(cli: Cli, invoke: Callable[..., Ended]) -> None:
    file = cli.folder / ".retinue" / "tools" / "broken.py"
    file.parent.mkdir(parents=True)
    file.write_text("def f(:\n")
    assert invoke("config", "trust").code == 0
    ended = invoke("tools", "trust")
    assert ended.code == 2
    assert "broken.py:1: is not Python" in ended.err
    assert invoke("ask", "2+2").code == 0  # nobody trusted it, so it is in nobody's way
