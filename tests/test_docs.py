"""What the documentation says is so: links, commands, code, settings, options, events.

Reads the Markdown files of the repository. Code in them is compiled; what is marked as runnable, and the
tests that pages show, are really run, with the offline or the scripted model.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from retinue import errors, events, settings
from retinue.cli.root import build
from retinue.models.providers import PROVIDERS
from retinue.store.base import RunRow
from retinue.types import AgentSpec, Report, Source, ToolMessage

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"])
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block. `before` is the last line of text above it."""

    page: Path
    line: int
    language: str
    text: str
    before: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str = "") -> Iterator[Block]:
    lines = page.read_text("utf-8").split("\n")
    at, before = 0, ""
    while at < len(lines):
        opened = re.fullmatch(r"```(\w*)", lines[at])
        if opened is None:
            before = lines[at] or before
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i] == "```")
        if language in ("", opened[1]):
            text = "\n".join(lines[at + 1 : end]) + "\n"
            yield Block(page=page, line=at + 2, language=opened[1], text=text, before=before)
        at, before = end + 1, ""


def prose(page: Path) -> str:
    """The text without fenced blocks and code spans."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", lambda code: "`" * len(code[0]), text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.S | re.M)
    for title in re.findall(r"^#{1,6} (.+)$", text, flags=re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return set(found)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def all_blocks(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page, language)]


# ---- links


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path):
    broken: list[str] = []
    for match in LINK.finditer(prose(page)):
        target = match[1] or match[2]
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            broken.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(there):
            broken.append(f"{target}: no such heading; there are {', '.join(sorted(anchors(there)))}")
    assert not broken


def test_every_page_is_reached_from_the_index():
    seen: set[Path] = set()
    todo = [DOCS / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        targets = [match[1] for match in LINK.finditer(prose(page)) if match[1] and "://" not in match[1]]
        todo += [(page.parent / target.partition("#")[0]).resolve() for target in targets]
    assert set(DOCS.rglob("*.md")) <= seen


# ---- commands


@cache
def program() -> Any:
    """The whole command tree."""
    return build([])


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each `retinue` command that a block shows."""
    typed = "$ " if block.language == "console" else ""
    for line in block.text.replace("\\\n", " ").split("\n"):
        if not line.startswith(typed):
            continue
        text = re.sub(r"\s#\s.*$", "", line.removeprefix(typed))
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        part: list[str] = []
        for word in [*lexer, ";"]:
            if word and not set(word) - set("|&;"):
                while part and re.fullmatch(r"\w+=.*", part[0]):
                    part.pop(0)
                if part and part[0] in ("retinue", ".venv/bin/retinue"):
                    yield part[1 : part.index(">")] if ">" in part else part[1:]
                part = []
            else:
                part.append(word)


def parse(arguments: list[str]) -> None:
    """Fails as the command line would, without running anything."""
    command: Any = program()
    words = [word for word in arguments if word != "--debug"]
    if words in ([], ["--version"], ["--help"]):
        return
    while hasattr(command, "commands"):
        assert words, f"{arguments}: a group alone"
        name = words.pop(0)
        assert name in command.commands, f"{arguments}: there is no command {name!r}"
        command = command.commands[name]
    command.make_context(command.name, words)


CONSOLE = [
    (block, arguments)
    for language in ("console", "sh")
    for block in all_blocks(language)
    for arguments in commands(block)
]


def test_the_pages_show_commands():
    assert len(CONSOLE) > 80


@pytest.mark.parametrize(
    ("block", "arguments"), CONSOLE, ids=[f"{block.where} {' '.join(words)[:40]}" for block, words in CONSOLE]
)
def test_every_command_that_is_shown_can_be_typed(block: Block, arguments: list[str]):
    parse(arguments)


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from leaves(inner, f"{path} {name}")
        else:
            yield f"{path} {name}", inner


def test_the_reference_has_every_command_with_every_option():
    page = (DOCS / "reference" / "cli.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (retinue .+?)\n(.*?)(?=^## |\Z)", page, flags=re.S | re.M))
    known = dict(leaves(program(), "retinue"))
    assert set(sections) == set(known)
    missing: list[str] = []
    for path, command in known.items():
        for parameter in command.params:
            options = [o for o in parameter.opts if o.startswith("-") and o not in ("-h", "--help")]
            said = re.findall(r"(?<![\w-])--?[a-z][\w-]*", sections[path])
            missing += [f"{path} {option}" for option in options if option not in said]
        real = {option for parameter in command.params for option in parameter.opts}
        shown = re.findall(r"`(--[a-z-]+)", sections[path])
        missing += [f"{path}: {option} is not there" for option in shown if option not in real]
    assert not missing


def test_the_exit_codes_are_those_of_the_program():
    from retinue.cli import exits

    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    for name in ("guide.md", "reference/cli.md"):
        said = re.findall(r"^\| (\d+) \| ", (DOCS / name).read_text("utf-8"), flags=re.M)
        assert {int(code) for code in said} == codes


# ---- code


@pytest.mark.parametrize("block", all_blocks("python"), ids=lambda block: block.where)
def test_python_compiles(block: Block):
    compile(block.text, block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", all_blocks("json"), ids=lambda block: block.where)
def test_json_is_json(block: Block):
    json.loads(block.text)


@pytest.mark.parametrize("block", all_blocks("toml"), ids=lambda block: block.where)
def test_settings_that_are_shown_can_be_set(block: Block):
    import tomllib

    from retinue import settings

    found = settings.flatten(tomllib.loads(block.text))
    settings.build(found, dict.fromkeys(found, block.where))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder and an environment of one's own: no keys, no settings, no database of the person's."""
    import os

    for name in list(os.environ):
        if name.startswith("RETINUE_") or name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "budget.py").write_text("class Budget:\n    log = None  # the cache and the log\n")
    monkeypatch.chdir(project)
    return project


RUNNABLE = [
    block
    for page in (DOCS / "library.md", ROOT / "README.md")
    for block in blocks(page, "python")
    if block.before == "<!-- runnable -->"
]


@pytest.mark.parametrize("block", RUNNABLE, ids=lambda block: block.where)
@pytest.mark.usefixtures("bare")
def test_what_is_marked_as_runnable_runs(block: Block):
    exec(compile(block.text, block.where, "exec"), {"__name__": "__main__"})


@pytest.mark.usefixtures("bare")
def test_the_program_of_the_tutorial_runs_after_every_step(capsys: pytest.CaptureFixture[str]):
    space: dict[str, Any] = {"__name__": "__main__"}
    steps = list(blocks(DOCS / "tutorial.md", "python"))
    for number, block in enumerate(steps, 1):
        exec(compile(block.text, block.where, "exec"), space)
        assert f"step_{number}" in space
        assert capsys.readouterr().out, f"step {number} shows nothing"
    assert len(steps) == 10


@pytest.mark.usefixtures("bare")
def test_the_agents_of_the_readme_really_delegate_and_use_the_tool():
    block = next(block for block in RUNNABLE if "def population" in block.text and "clerk" in block.text)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block.text, block.where, "exec"), space)
    boss, clerk, *_ = space["model"].requests
    assert [tool.name for tool in boss.tools] == ["clerk"]
    assert [tool.name for tool in clerk.tools] == ["population"]
    told = [m.text for m in space["model"].requests[2].messages if isinstance(m, ToolMessage)]
    assert told == ["2100000", "520000"]


def test_the_library_page_has_something_to_run():
    assert len(RUNNABLE) >= 6


def shown_tests() -> list[Any]:
    found: list[Any] = []
    for name in ("testing.md", "tools.md"):
        for block in blocks(DOCS / name, "python"):
            for test in re.findall(r"async def (test_\w+)\((?:tmp_path)?\)", block.text):
                found.append(pytest.param(block, test, id=f"{block.where} {test}"))
    return found


@pytest.mark.parametrize(("block", "name"), shown_tests())
def test_the_tests_that_are_shown_pass(block: Block, name: str, bare: Path, tmp_path: Path):
    space: dict[str, Any] = {}
    exec(compile(block.text, block.where, "exec"), space)
    wanted = inspect.signature(space[name]).parameters
    folder = tmp_path / "shown"
    folder.mkdir()
    asyncio.run(space[name](**({"tmp_path": folder} if wanted else {})))


# ---- reference pages


def settings_page() -> Any:
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "scripts" / "settings_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_page_is_fresh():
    made = settings_page()
    assert (DOCS / "reference" / "settings.md").read_text("utf-8") == made.page(), (
        "stale: run scripts/settings_page.py"
    )


def test_every_setting_says_what_it_is_for_and_has_a_section():
    made = settings_page()
    assert made.undescribed() == []
    assert all(table.group.docs for table in settings.tables().values())


def rows_under(page: Path, heading: str) -> set[str]:
    """The names in the first column of the first table below a heading."""
    text = page.read_text("utf-8")
    section = text.partition(f"\n{heading}\n")[2]
    assert section, f"{page} has no heading {heading!r}"
    table = re.search(r"(?:^\|.*\n)+", section, flags=re.M)
    assert table is not None
    first = [line.split(" | ")[0] for line in table[0].split("\n")[2:]]
    return {name for cell in first for name in re.findall(r"`(\w+)`", cell)}


EVENTS = DOCS / "reference" / "events.md"
KINDS: dict[str, Any] = {
    str(kind.__struct_config__.tag): kind
    for kind in (*get_args(events.AnyEvent), events.Streamed, events.Progressed)
}


def test_the_reference_has_every_event():
    titles = re.findall(r"^### (\w+_?\w*)$", EVENTS.read_text("utf-8"), flags=re.M)
    assert set(KINDS) <= set(titles)


@pytest.mark.parametrize("tag", KINDS)
def test_an_event_is_described_with_all_its_fields_and_a_true_example(tag: str):
    kind = KINDS[tag]
    envelope = rows_under(EVENTS, "## Events") | {"type"}
    assert rows_under(EVENTS, f"### {tag}") == set(kind.__struct_encode_fields__) - envelope
    section = EVENTS.read_text("utf-8").partition(f"\n### {tag}\n")[2]
    example = re.search(r"```json\n(.*?)```", section, flags=re.S)
    assert example is not None
    event = msgspec.json.decode(example[1].encode(), type=kind)
    assert json.loads(events.encode(event)) == json.loads(example[1])


def test_reports_sources_and_rows_are_described_with_all_their_fields():
    assert rows_under(EVENTS, "## The report") == set(Report.__struct_fields__)
    assert rows_under(EVENTS, "### A source") == set(Source.__struct_fields__)
    assert rows_under(EVENTS, "## Runs as rows") == set(RunRow.__struct_fields__)


def test_every_field_of_an_agent_file_is_explained():
    from retinue.agents.fields import CONVERTERS

    text = (DOCS / "agents.md").read_text("utf-8")
    explained = {
        name
        for title in re.findall(r"^### (.+)$", text, flags=re.M)
        for name in re.findall(r"`(\w+)`", title)
    }
    assert explained == set(CONVERTERS)
    assert explained <= set(AgentSpec.__struct_fields__)


def test_every_provider_is_listed_with_its_key_and_models():
    text = (DOCS / "models.md").read_text("utf-8")
    for provider in PROVIDERS.values():
        row = re.search(rf"^\| `{provider.name}`.*$", text, flags=re.M)
        assert row is not None, provider.name
        for said in (*provider.key_env, *provider.base_env, provider.model, provider.small):
            assert not said or f"`{said}`" in row[0], f"{provider.name}: {said}"


def test_the_built_in_agents_are_listed_with_their_turns():
    from retinue.agents.loader import builtin_agents

    text = (DOCS / "agents.md").read_text("utf-8")
    table = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| (\d+) \|$", text, flags=re.M))
    known = {name: str(spec.max_turns or 25) for name, spec in builtin_agents().items()}
    assert table == known


@pytest.mark.usefixtures("bare")
def test_every_built_in_tool_is_listed_as_it_is():
    from retinue.app import Retinue

    text = (DOCS / "tools.md").read_text("utf-8")
    rows = {
        name: (effect, risk, repeatable == "yes")
        for names, effect, risk, repeatable in re.findall(
            r"^\| (`[^|]+) \| (\w+) \| (\w+) \| (yes|no) \|", text, flags=re.M
        )
        for name in re.findall(r"`(\w+)`", names)
    }

    async def known() -> dict[str, tuple[str, str, bool]]:
        async with Retinue(db="memory:", model="offline") as retinue:
            return {t.name: (t.effect, t.risk, t.repeatable) for t in retinue.tools.values()}

    found = asyncio.run(known())
    assert {name: rows.get(name) for name in found} == found


def test_every_error_there_is_stands_in_the_tree_and_in_the_guide_of_the_library() -> None:
    classes = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and each.__module__ == errors.__name__
    }
    tree, table = errors.__doc__ or "", (ROOT / "docs/library.md").read_text().split("## Errors")[1]
    assert {name for name in classes if not re.search(rf"\b{name}\b", tree)} == set()
    assert {name for name in classes if f"`{name}`" not in table} == set()
