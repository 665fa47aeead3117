"""No text from elsewhere moves a terminal: not on one, and not through a pipe that leads to one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from logs import family, store, waiting
from terminal import Terminal
from world import Cli

from retinue.events import AnyEvent, decode, encode

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
