"""The offline model with the real file tools, on small projects and on installed packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from retinue.agents import builtin_agents
from retinue.errors import ToolError
from retinue.models.offline import OfflineModel
from retinue.tools.base import Tool, ToolContext
from retinue.tools.files import file_tools
from retinue.types import Message, ModelRequest, Reply, ToolMessage, UserMessage
from retinue.workspace import Files

AGENTS = builtin_agents()


async def run(role: str, question: str, project: Path) -> tuple[str, int]:
    """A loop as small as one can be: the answer, and how many turns it took."""
    spec, files = AGENTS[role], Files(project, None)
    tools = {tool.name: tool for tool in file_tools() if tool.effect == "read"}
    offered = tuple(tool.spec for tool in tools.values() if spec.tools is None or tool.name in spec.tools)
    messages: list[Message] = [UserMessage(text=question)]
    for turn in range(1, (spec.max_turns or 10) + 1):
        asked = ModelRequest(system=spec.prompt, messages=tuple(messages), tools=offered)
        reply = [event async for event in OfflineModel().stream(asked)][-1]
        assert isinstance(reply, Reply)
        messages.append(reply.message)
        if not reply.message.calls:
            return reply.message.text, turn
        for call in reply.message.calls:
            text, failed = await use(tools[call.name], call.arguments, files)
            messages.append(ToolMessage(call_id=call.id, name=call.name, text=text, is_error=failed))
    raise AssertionError(f"no answer in {spec.max_turns} turns")


async def use(tool: Tool, arguments: str, files: Files) -> tuple[str, bool]:
    context = ToolContext(
        run_id="r",
        root_id="r",
        depth=0,
        agent="a",
        call_id="c",
        files=files,
        progress=lambda text: None,
        denied=lambda what, detail: None,
    )
    try:
        result = await tool.call(tool.parse(arguments), context)
    except ToolError as error:
        return str(error), True
    return (result, False) if isinstance(result, str) else (result.text, result.is_error)


async def told(role: str, question: str, project: Path) -> str:
    return (await run(role, question, project))[0]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    files = {
        "README.md": "# Shop\nOrders are retried, see the docs.\n",
        "pyproject.toml": "[project]\nname = 'shop'\n",
        "src/shop/client.py": (
            "from shop.backoff import should_retry\n\n\nclass OrderClient:\n"
            "    def send(self, order):\n        while should_retry(order.error, order.attempt):\n            post(order)\n"
        ),
        "src/shop/backoff.py": (
            '"""When a failed call is made again."""\n\nMAX_ATTEMPTS = 4\n\n\n'
            "def should_retry(error, attempt):\n    return attempt < MAX_ATTEMPTS and error.transient\n"
        ),
        "src/shop/prices.ts": "export function formatPrice(cents: number): string {\n  return `${cents / 100}`;\n}\n",
        "tests/test_backoff.py": "def test_retry_stops():\n    assert not should_retry(error, 9)\n",
        "docs/retries.md": "Retries are decided by policy. A retry is decided for each retry.\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("where are retries decided?", "src/shop/backoff.py:6"),
        ("where is OrderClient defined?", "src/shop/client.py:4"),
        ("which function formats a price?", "src/shop/prices.ts:1"),
        ("where is `MAX_ATTEMPTS` set?", "src/shop/backoff.py:3"),
        ("query: who uses should_retry\nscope: src/shop/client.py", "src/shop/client.py:6"),
    ],
)
async def test_the_first_finding_is_the_right_place(shop: Path, question: str, place: str) -> None:
    text, turns = await run("code-search", question, shop)
    assert f"1. `{place}`" in text
    assert turns <= 5
    assert len(text) < 4000


async def test_a_name_that_does_not_exist_is_said_not_to_exist(shop: Path) -> None:
    text, _ = await run("code-search", "where is InvoicePrinter defined?", shop)
    assert "found nothing" in text
    assert "`InvoicePrinter`" in text
    assert "**Searched for:**" in text
    assert "**Findings**" not in text


async def test_similar_names_are_offered_as_such(shop: Path) -> None:
    text, _ = await run("code-search", "where is formatPriceList defined?", shop)
    assert "found nothing" in text
    assert "Similar names that do exist" in text
    assert "`formatPrice` at `src/shop/prices.ts:1`" in text


async def test_a_scope_that_is_not_there_does_not_end_the_search(shop: Path) -> None:
    text, _ = await run("code-search", "query: where are retries decided\nscope: lib/", shop)
    assert "1. `src/shop/backoff.py:6`" in text


async def test_a_file_is_reviewed_by_its_path_a_folder_and_its_bare_name(shop: Path) -> None:
    (shop / "src/shop/risky.py").write_text("def run(text):\n    return eval(text)\n")
    for target in ("src/shop/risky.py", "src/shop", "risky.py"):
        text, _ = await run("code-review", f"target: {target}\nfocus: security", shop)
        assert "**high** `src/shop/risky.py:2`" in text, target


async def test_a_long_file_is_reviewed_to_its_end(shop: Path) -> None:
    rows = [f"value_{number} = {number}  # {'x' * 60}" for number in range(1200)]
    (shop / "long.py").write_text("\n".join([*rows, "eval(input())", ""]))
    text, _ = await run("code-review", "long.py", shop)
    assert "**high** `long.py:1201`" in text


async def test_a_target_that_is_not_there_is_not_reviewed(shop: Path) -> None:
    text, _ = await run("code-review", "src/missing.py", shop)
    assert "nothing was reviewed" in text
    assert "`src/missing.py`" in text


async def test_a_plan_names_the_files_the_tests_and_the_check(shop: Path) -> None:
    text, _ = await run("planner", "task: add jitter to retry\nconstraints: no new dependency", shop)
    assert "1. " in text
    assert "`src/shop/backoff.py:" in text
    assert "`tests/test_backoff.py:" in text
    assert "`pytest`" in text
    assert "no new dependency" in text
    assert "`jitter`" in text


@pytest.mark.parametrize(
    "question",
    [
        "what does this project do?",
        "What is this repository about?",
        "explain this code base",
        "Give me a tour of this project: what it does, how it is built, where to begin reading.",
    ],
)
async def test_a_question_about_the_whole_project_is_answered_from_its_readme(
    shop: Path, question: str
) -> None:
    text = await told("code-search", question, shop)
    assert text.startswith("**Answer:** Orders are retried, see the docs. (`README.md:2`)")
    assert "`pyproject.toml` (tests: `pytest`)" in text
    assert "`src/`" in text


async def test_a_project_without_a_readme_is_described_by_where_it_begins(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text('"""Counts the bees of a hive."""\n')
    text = await told("code-search", "what does this project do?", tmp_path)
    assert text.startswith("**Answer:** Counts the bees of a hive. (`main.py:1`)")


async def test_an_empty_folder_is_said_to_be_empty(tmp_path: Path) -> None:
    text = await told("code-search", "what does this project do?", tmp_path)
    assert text.startswith("**Answer:** this folder has no files")


@pytest.mark.parametrize("question", ["where is backoff.py?", "what does backoff.py do"])
async def test_a_file_is_found_by_its_name_with_what_it_says_and_defines(shop: Path, question: str) -> None:
    text = await told("code-search", question, shop)
    assert "`backoff.py` is at `src/shop/backoff.py:1`" in text
    assert "When a failed call is made again. (`src/shop/backoff.py:1`)" in text
    assert "`src/shop/backoff.py:6` def should_retry(error, attempt)" in text


async def test_a_file_that_is_not_there_is_said_not_to_be_there(shop: Path) -> None:
    text = await told("code-search", "where is backof.py?", shop)
    assert "there is no file `backof.py` in this project. Similar names: `src/shop/backoff.py`" in text


async def test_the_root_can_do_it_without_any_staff(shop: Path) -> None:
    text, _ = await run("general", "where are retries decided?", shop)
    assert "1. `src/shop/backoff.py:6`" in text


def package(name: str) -> Path:
    found = find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@pytest.mark.parametrize(
    ("name", "question", "file"),
    [
        ("aiohttp", "where is ClientSession defined?", "client.py"),
        ("aiohttp", "where are cookies parsed?", "_cookie_helpers.py"),
        ("aiohttp", "where are multipart bodies read?", "multipart.py"),
        ("rich", "which class formats tracebacks?", "traceback.py"),
        ("rich", "where is the spinner animation drawn?", "spinner.py"),
        ("pydantic", "where is create_model defined?", "main.py"),
        ("pydantic", "which class generates the JSON schema?", "json_schema.py"),
    ],
)
async def test_it_finds_its_way_in_real_packages(name: str, question: str, file: str) -> None:
    text, _ = await run("code-search", question, package(name))
    assert f"1. `{file}:" in text


async def test_a_symbol_of_another_package_is_not_found_in_this_one() -> None:
    text, _ = await run("code-search", "where is QuantumFluxCapacitor defined?", package("rich"))
    assert "found nothing" in text


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ("import argparse\n\np = argparse.ArgumentParser()\np.add_argument('--percent')\n", 4),
        ("import click\n\n\n@click.option('--percent')\ndef main(): ...\n", 4),
        ("import typer\n\n\ndef main(percent: int = typer.Option(3)): ...\n", 4),
    ],
    ids=["argparse", "click", "typer"],
)
async def test_a_new_option_is_planned_where_the_others_are_declared(
    tmp_path: Path, declared: str, line: int
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "cli.py").write_text(declared)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_cart.py").write_text("def test_cart():\n    assert 1 + 1 == 2\n")
    text, _ = await run("planner", "add a --quiet flag", tmp_path)
    assert f"`src/cli.py:{line}`" in text
    assert "new ground" not in text
    assert "**Check:** `pytest`" in text
