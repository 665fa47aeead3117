"""The offline model and files that come with a question: it computes over workbooks and quotes the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.app import Retinue
from retinue.attachments import attach
from retinue.events import ToolCalled
from retinue.store.memory import MemoryStore

SALES = "city,sold\nParis,5\nLyon,7\nNice,30\n"


async def ask(tmp_path: Path, name: str, content: str, question: str) -> tuple[str, list[str]]:
    """The answer, and the tools that were called for it."""
    (tmp_path / name).write_text(content, "utf-8")
    (tmp_path / "project").mkdir(exist_ok=True)
    app = Retinue(model="offline", db=MemoryStore(), cwd=tmp_path / "project", environ={})
    async with app as retinue:
        run_id = await retinue.start("general", question, attachments=[await attach(tmp_path / name)])
        report = await retinue.wait(run_id)
        events = await retinue.store.events(run_id)
    return report.text, [event.name for event in events if isinstance(event, ToolCalled)]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is the sum of the column sold?", "sum of sold: 42"),
        ("What is the average sold?", "mean of sold: 14"),
        ("What is the highest number in sold?", "max of sold: 30"),
        ("How many different values has city?", "distinct"),
        ("sum up the sold by city", "| Paris | 5 |"),
        ("average sold per city", "| Nice | 30 |"),
        ("sum of city", "**Not computed:** the column city of sales.csv holds no numbers."),
    ],
)
async def test_it_computes_over_a_workbook_with_its_tools(tmp_path: Path, question: str, answer: str) -> None:
    text, called = await ask(tmp_path, "sales.csv", SALES, question)
    assert answer in text
    assert called == ["sheet_aggregate"]


async def test_it_quotes_the_sentence_that_fits_and_names_the_file(tmp_path: Path) -> None:
    content = (
        "We met the people from Lyon.\n\nThe contract ends on 31 March 2027.\n\nLunch was at noon there.\n"
    )
    text, called = await ask(tmp_path, "notes.txt", content, "When does the contract end?")
    assert text.startswith("- The contract ends on 31 March 2027. (notes.txt)")
    assert called == []


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("sum up the revenue by region", "- Revenue North 12.5 (report.txt)"),
        ("sum this up", "- The year was good for all of us here. (report.txt)"),
    ],
)
async def test_a_question_about_a_file_is_answered_from_its_lines_or_its_beginning(
    tmp_path: Path, question: str, answer: str
) -> None:
    content = "The year was good for all of us here.\n\nRevenue North 12.5\nRevenue South 37.0\n"
    text, called = await ask(tmp_path, "report.txt", content, question)
    assert text.startswith(answer)
    assert called == []


async def test_what_the_file_does_not_say_is_looked_for_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "app.py").write_text("def zebra():\n    return 1\n")
    text, called = await ask(tmp_path, "notes.txt", "Nothing of interest here.", "where is zebra defined?")
    assert called
    assert "app.py" in text
