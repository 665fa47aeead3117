"""Every part of a prompt has a budget in tokens: what is said, what is cut, what `--show-prompt` counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import context
from retinue.app import Retinue
from retinue.attachments import Attachment, attach, render
from retinue.store.memory import MemoryStore
from trees import Cast, Stage, agent, results, told, turn

NOTES = ("todo", "goals", "memory_add", "vault_set")


def fill(request: Any) -> Any:
    if turn(request) == 0:
        return [
            ("todo", {"action": "add", "texts": [f"task {n} " + "x" * 80 for n in range(60)]}),
            ("goals", {"action": "set", "texts": [f"goal {n} " + "y" * 100 for n in range(20)]}),
            *(("memory_add", {"text": f"fact {n} " + "z" * 300}) for n in range(30)),
            *(("vault_set", {"name": f"v{n}", "value": "w" * 200, "summary": "w" * 100}) for n in range(30)),
        ]
    return "done"


def parts_of(state: str) -> dict[str, str]:
    found = {}
    for part in state.removeprefix("<state>\n").removesuffix("\n</state>").split("\n\n## "):
        title, _, text = part.removeprefix("## ").partition("\n")
        found[title] = text
    return found


async def test_each_part_keeps_to_its_budget_in_the_order_of_importance() -> None:
    stage = Stage({"root": fill})
    await stage.run(agent("root", tools=NOTES))
    parts = parts_of(told(stage.model.of("root")[1])[-1])
    assert list(parts) == ["Tasks", "Goals", "Memory", "Vault"]
    budget = stage.config.settings.context
    most = (budget.task_tokens, budget.goal_tokens, budget.memory_tokens, budget.vault_tokens)
    for (title, text), tokens in zip(parts.items(), most, strict=True):
        assert tokens * 2 < len(text) <= tokens * 4, title
    assert parts["Memory"].startswith("- fact 29 "), "the newest first"


async def test_a_budget_is_a_setting_and_nothing_is_said_with_none() -> None:
    settings: dict[str, Any] = {
        "context.task_tokens": 2000,
        "context.goal_tokens": 0,
        "context.memory_tokens": 0,
    }
    stage = Stage({"root": fill}, **settings)
    await stage.run(agent("root", tools=NOTES))
    parts = parts_of(told(stage.model.of("root")[1])[-1])
    assert list(parts) == ["Tasks", "Vault"]
    assert "task 59 " in parts["Tasks"], "all of them fit now"


async def test_what_was_looked_up_first_is_shown_again_once_its_message_is_pruned() -> None:
    asked = 0

    def main(request: Any) -> Any:
        nonlocal asked
        asked += 1
        return [("todo", {"action": "add", "texts": [f"{asked} " + "x" * 3000]})] if asked < 5 else "done"

    cast = Cast({"main": main, "know": ["Paris has 2.1 million people."]})
    settings = {
        "default_agent": "main",
        "knowledge.first": True,
        "knowledge.agent": "know",
        "context.max_tokens": 2000,
        "context.keep_turns": 1,
        "context.task_tokens": 0,
    }
    agents = [agent("main", tools=("todo",)), agent("know", tools=())]
    async with Retinue(model=cast, db=MemoryStore(), agents=agents, environ={}, settings=settings) as retinue:
        await retinue.ask("What is the latest population of Paris?")
    first, last = cast.of("main")[0], cast.of("main")[-1]
    assert told(first)[1].startswith("## External Knowledge\n")
    assert "<state>" not in told(first)[-1]
    assert not any(text.startswith("## External Knowledge\n") for text in told(last)), "it was pruned"
    assert "## External knowledge\nknow looked this up" in told(last)[-1]
    assert "Paris has 2.1 million people." in told(last)[-1]


@pytest.mark.parametrize(
    ("sizes", "most", "left"),
    [
        ((10, 20), 100, (10, 20)),
        ((100, 100), 100, (50, 50)),
        ((10, 500, 500), 110, (10, 50, 50)),
        ((500, 30, 500, 20), 150, (50, 30, 50, 20)),
        ((7,), 0, (0,)),
        ((), 10, ()),
    ],
)
def test_the_longest_attachments_are_cut_to_an_even_share_and_say_so(
    sizes: tuple[int, ...], most: int, left: tuple[int, ...]
) -> None:
    files = [Attachment(name=f"{n}.txt", kind="text", text="a" * size) for n, size in enumerate(sizes)]
    text, _ = render(files, most=most)
    shown = text.split("\n\n") if files else []
    for part, before, after in zip(shown, sizes, left, strict=True):
        assert "\n" + ("a" * after or "(empty)") + "\n" in part
        assert ("only the first" in part) == (after < before)
        assert "\n" + "a" * (after + 1) not in part


async def test_the_sections_of_a_prompt_are_what_the_model_is_sent() -> None:
    store = MemoryStore()
    keeper = agent("keeper", memory=True, tools=("memory_add",), mode="code")

    def play(request: Any) -> Any:
        return (
            [("run_code", {"code": "await memory_add(text='likes tables')"})] if turn(request) == 0 else "ok"
        )

    cast = Cast({"keeper": play})
    async with Retinue(model=cast, db=store, environ={}) as retinue:
        await retinue.run(keeper, "remember")
        file = Attachment(name="a.txt", kind="text", text="milk " * 100)
        run_id = await retinue.start(keeper, "what?", attachments=[file])
        found = {section.title: section for section in await retinue.sections(run_id)}
        await retinue.wait(run_id)
        sent = cast.of("keeper")[2]
        later = {section.title for section in await retinue.sections(run_id)}
    assert list(found) == ["agent", "environment", "tools", "question", "attachments", "Memory"]
    assert found["Memory"].text in told(sent)[-1]
    assert (found["Memory"].most, found["attachments"].most) == (800, 50_000)
    assert found["question"].text == "what?"
    for tool in sent.tools:
        assert tool.description in found["tools"].text, "also of tools that belong to this run alone"
    assert f"{sent.system}" == found["agent"].text + "\n\n" + found["environment"].text
    assert later >= {"agent", "question"}


def test_a_section_counts_four_characters_for_a_token() -> None:
    assert context.Section(title="x", text="a" * 43).tokens == 10


async def test_an_agent_with_a_list_of_tools_can_read_the_workbook_it_was_handed(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("city,sold\nParis,5\nLyon,7\n")
    aggregate = ("sheet_aggregate", {"column": "sold", "function": "sum"})
    cast = Cast({"plain": [[aggregate], "done"]})
    async with Retinue(model=cast, db=MemoryStore(), environ={}, cwd=tmp_path) as retinue:
        file = await attach(tmp_path / "sales.csv")
        run_id = await retinue.start(agent("plain", tools=("ls", "read")), "sum?", attachments=[file])
        await retinue.wait(run_id)
    first, second = cast.of("plain")
    assert {"ls", "read", "sheet_aggregate"} <= {spec.name for spec in first.tools}
    assert "call them yourself" in first.system
    assert results(second)[0].text == "sum of sold: 12"
