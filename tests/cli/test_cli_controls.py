"""No text from elsewhere moves a terminal: not on one, and not through a pipe that leads to one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logs import family, store, waiting
from terminal import Terminal
from world import Cli

from retinue.events import AnyEvent, ApprovalRequested, decode, encode
from retinue.testing import FakeProvider, Script, call

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x7f\x08\r\u202e\u2066\u2028x"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
OURS = re.compile(r"\x1b\[[\d;]*m|\r(?=\n)|\x1b\[\?\d+[hl]")
"""Our own colours, the line ends of a terminal, and the cursor that is shown or hidden."""
IDS = ("type", "run_id", "root_id", "parent_id", "child_id", "call_id", "id", "approval_id", "message_id")

COMMANDS = (
    ("runs", "list"),
    ("runs", "list", "--json"),
    ("runs", "show", "last"),
    ("runs", "show", "last", "--full"),
    ("runs", "show", "last", "--json"),
    ("runs", "tree", "last"),
    ("runs", "events", "last"),
    ("runs", "events", "last", "--json"),
    ("runs", "export", "last"),
    ("runs", "export", "last", "--html"),
    ("runs", "replay", "last"),
    ("approvals", "list"),
    ("approvals", "list", "--json"),
    ("stats", "--by", "agent"),
    ("stats", "--by", "agent", "--json"),
    ("stats", "--by", "model"),
    ("runs", "show", EVIL),
    ("agents", "show", EVIL),
    ("tools", "show", EVIL),
    ("agents", "list"),
    ("agents", "list", "--json"),
    ("agents", "check"),
    ("agents", "show", "evil"),
    ("agents", "show", "evil", "--json"),
    ("config", "list"),
    ("config", "list", "--json"),
    ("config", "set", EVIL, EVIL),
    ("doctor", "--json"),
    ("doctor",),
    (EVIL,),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the strings of a value are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in IDS:
                yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))
    elif isinstance(value, str):
        yield path


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def planted(event: AnyEvent) -> AnyEvent:
    """The event with the codes in every text that may hold any text at all."""
    value = json.loads(encode(event))
    for path in places(value):
        holder = at(value, path[:-1])
        before = holder[path[-1]]
        holder[path[-1]] = json.dumps({EVIL: EVIL}) if path[-1] == "arguments" else before + EVIL
        try:
            decode(json.dumps(value))
        except msgspec.ValidationError:  # one of a few words, and not free text
            holder[path[-1]] = before
    return decode(json.dumps(value))


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return store(
        tmp_path_factory.mktemp("logs") / "log.db",
        *([planted(e) for e in log] for log in (waiting(), family())),
    )


@pytest.fixture
def evil_files(cli: Cli) -> None:
    agents = cli.folder / ".retinue" / "agents"
    agents.mkdir(parents=True)
    quoted = json.dumps("does " + EVIL)
    (agents / "evil.md").write_text(
        f"---\nname: evil\ndescription: {quoted}\n---\nYou are {EVIL}\n", newline=""
    )
    (agents / f"wrong{EVIL}.md").write_text(f"---\nname: {quoted}\nno{EVIL}: 1\n---\n{EVIL}\n", newline="")


def harmful(text: str, *, ours: bool) -> list[str]:
    return FORBIDDEN.findall(OURS.sub("", text) if ours else text)


def test_the_codes_are_in_every_kind_of_text() -> None:
    values = [json.loads(encode(planted(event))) for event in (*family(), *waiting())]
    found = {path[-1] for value in values for path in places(value) if "pwned" in at(value, path)}
    assert found >= {"name", "prompt", "text", "arguments", "model", "label", "path", "url", "agent"}


@pytest.mark.usefixtures("evil_files")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words).replace(EVIL, "EVIL"))
async def test_nothing_that_a_log_or_a_file_holds_reaches_a_reader_as_a_control_code(
    cli: Cli, terminal: Callable[..., Any], log_file: str, command: tuple[str, ...]
) -> None:
    ended = await cli(*command, RETINUE_DB=log_file)
    assert harmful(ended.out + ended.err, ours=False) == []
    assert ended.out or EVIL in command or ended.code != 0, ended
    if "--json" in command:
        assert ended.code == 0 or command[0] == "doctor"
        assert "\\u2028" in ended.out or command[0] in ("config", "doctor", "stats"), ended.out
    shown: Terminal = await terminal(*command, RETINUE_DB=log_file)
    await shown.wait()
    assert harmful(shown.raw, ours=True) == []


@pytest.mark.parametrize("command", [("config", "list"), ("doctor",), ("ask", "what is this?")], ids=" ".join)
async def test_nothing_in_a_file_of_settings_reaches_a_reader_as_a_control_code(
    cli: Cli, command: tuple[str, ...]
) -> None:
    quoted = json.dumps("does " + EVIL)
    (cli.folder / "retinue.toml").write_text(f"default_agent = {quoted}\n[{quoted}]\nx = {quoted}\n")
    ended = await cli(*command)
    assert harmful(ended.out + ended.err, ours=False) == []
    assert "does" in ended.out + ended.err


def test_json_says_the_same_with_its_codes_escaped() -> None:
    from retinue.view.words import escaped

    text = json.dumps({EVIL: [EVIL, "\ud800"]}, ensure_ascii=False)
    assert FORBIDDEN.search(escaped(text)) is None
    assert json.loads(escaped(text)) == json.loads(text)


LIVE = re.compile(r"\x1b\[[\d;]*m|\x1b\[\d*[AK]|\x1b\[J|\x1b\[\?\d+[hl]|\r")
"""What a live view writes of its own: colours, lines up, cleared lines, what is below them, switches."""
HOSTILE: dict[str, tuple[Script, ...]] = {
    "an answer": (Script(text=EVIL + " an answer " + EVIL, pieces=30),),
    "thoughts": (Script(thinking=EVIL, text="an answer"),),
    "a tool that is none": (Script(text=EVIL, calls=(call("x" + EVIL, a=EVIL),)), Script(text="an answer")),
    "arguments": (Script(calls=(call("grep", pattern=EVIL, path=EVIL),)), Script(text="an answer")),
    "a command": (Script(calls=(call("bash", command="echo " + EVIL),)), Script(text="an answer")),
    "a refusal": (Script(status=400, message="an answer " + EVIL, error=EVIL),),
    "an error in the stream": (Script(text=EVIL, error_after=2, message="an answer " + EVIL),) * 8,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_nothing_that_a_provider_sends_reaches_a_terminal_as_a_control_code(
    cli: Cli, provider: FakeProvider, terminal: Callable[..., Any], name: str
) -> None:
    cli.use(provider)
    for way in ([], ["--json"], ["--events"]):
        provider.add(*HOSTILE[name])
        ended = await cli("ask", "go", *way, RETINUE_MODEL_RETRY_ATTEMPTS="1")
        assert harmful(ended.out + ended.err, ours=False) == [], way
        assert "an answer" in ended.out + ended.err
        while provider.pending:
            provider._queue.popleft()
    provider.add(*HOSTILE[name])
    screen: Terminal = await terminal("ask", "go")
    if name == "a command":
        await screen.until("echo")
        assert FORBIDDEN.findall(LIVE.sub("", screen.raw)) == []
        await screen.press("n", "why (Enter for no reason):")
        screen.send("\n")
    await screen.wait()
    assert "an answer" in screen.text
    assert [found for found in FORBIDDEN.findall(LIVE.sub("", screen.raw)) if found != "\x1b"] == []
    assert "\x1b]" not in screen.raw
    assert "\x1b[2J" not in screen.raw


async def test_answering_a_question_shows_no_control_codes(
    cli: Cli, terminal: Callable[..., Any], tmp_path: Path
) -> None:
    question = next(event for event in waiting() if isinstance(event, ApprovalRequested)).approval_id
    for answer in ("approve", "reject"):
        log = [planted(event) for event in waiting()]
        url = await asyncio.to_thread(store, tmp_path / f"{answer}.db", log)
        words = ("approvals", "answer", question, answer, "--reason", EVIL)
        ended = await cli(*(words if answer == "reject" else words[:-2]), RETINUE_DB=url)
        assert harmful(ended.out + ended.err, ours=False) == []
        assert ended.code == 0, ended.err
        screen: Terminal = await terminal("approvals", "list", RETINUE_DB=url)
        await screen.wait()
        assert harmful(screen.raw, ours=True) == []
