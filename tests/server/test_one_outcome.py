"""One outcome for one run, wherever it is shown: fifty stored workflows of every kind, in every view of them."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from api import Api, serving

from fifty_workflows import opened, played
from pg import postgres_url  # noqa: F401  # a fixture
from retinue.cli import main
from retinue.events import RunFinished, decode
from retinue.store.base import RunFilter
from retinue.story import Story
from retinue.story_nodes import Node
from retinue.testing import ScriptedModel
from retinue.types import Outcome
from retinue.view.picture import MARKS, SPINNER, outline

OUTCOMES = get_args(Outcome)
AGENTS = ("root", "narrow", "short", "mid", "leaf")
PLAIN = {
    MARKS[word][0]: word for word in ("pending", "running", "waiting", "completed", "error", "cancelled")
}
"""Where a tree gives no word for it, the mark says what the status is."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return f"sqlite://{tmp_path}/log.db"


@pytest.fixture
def roots(db: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The outcome of every root, as those who played it know it."""
    folder = tmp_path / "project"
    folder.mkdir()
    with played(db, folder) as expected:
        yield expected


@pytest.mark.timeout(900)
def test_every_view_of_a_run_shows_the_same_outcome(
    db: str, roots: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(roots) >= 50
    assert set(roots.values()) == set(OUTCOMES) - {"pending"}  # that is for children
    stories = asyncio.run(told(db, tmp_path, roots))
    truth = {node.run_id: node.outcome for story in stories.values() for node in story.nodes.values()}
    assert {root: truth[root] for root in roots} == roots
    assert set(truth.values()) == set(OUTCOMES)
    asyncio.run(the_api(db, tmp_path, truth, roots))
    the_terminal(db, stories, truth, capsys)


async def told(db: str, folder: Path, roots: dict[str, str]) -> dict[str, Story]:
    """What the logs say, and of whom it is known that nobody works on it."""
    stories: dict[str, Story] = {}
    async with opened(db, folder) as retinue:
        for root_id, outcome in roots.items():
            story = stories[root_id] = Story()
            for event in await retinue.store.events(root_id):
                story.apply(event)
            if outcome == "interrupted":
                story.interrupt()
        for outcome in OUTCOMES:
            found = await retinue.runs(RunFilter(outcome=outcome, limit=1000))
            assert {row.outcome for row in found} <= {outcome}
    return stories


def the_terminal(
    db: str, stories: dict[str, Story], truth: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*arguments: str) -> str:
        capsys.readouterr()
        assert main([*arguments, "--db", db]) == 0
        return capsys.readouterr().out

    rows = [json.loads(line) for line in shown("runs", "list", "--all", "-n", "1000", "--json").splitlines()]
    assert {row["run_id"]: row["outcome"] for row in rows} == truth
    listed = [line.split() for line in shown("runs", "list", "--all", "-n", "1000").splitlines()[1:]]
    assert {words[0]: words[2] for words in listed} == truth
    for outcome in OUTCOMES:
        some = shown("runs", "list", "--all", "-n", "1000", "--json", "--outcome", outcome).splitlines()
        assert {json.loads(line)["run_id"] for line in some} == {
            run_id for run_id, each in truth.items() if each == outcome
        }
    sums = [json.loads(line) for line in shown("stats", "--by", "outcome", "--json").splitlines()]
    assert {one["key"]: one["runs"] for one in sums} == Counter(truth.values())
    for root_id, story in stories.items():
        expected = Counter(node.outcome for node in story.nodes.values())
        assert in_tree(shown("runs", "tree", root_id)) == expected
        assert in_page(shown("runs", "export", root_id, "--html")) == expected
        reported = in_log(shown("runs", "export", root_id))
        assert reported == {run_id: truth[run_id] for run_id in reported}
        drawn = ["".join(text for text, _ in line) for line in outline(story, width=200, height=99, now=0)]
        marks = [
            SPINNER[0] if node.outcome == "running" else MARKS[node.outcome][0] for node in walked(story)
        ]
        seen = [line.lstrip("│├╰─ ").split()[:2] for line in drawn]
        assert [words[0] for words in seen if words[-1] in AGENTS] == (marks if len(marks) > 1 else [])


def walked(story: Story) -> list[Node]:
    assert story.root is not None
    return list(story.root.walk())


async def the_api(db: str, folder: Path, truth: dict[str, str], roots: dict[str, str]) -> None:
    async with serving(ScriptedModel([]), folder, db=db, resume=False) as api:
        runs = await every(api, "runs?children=1&limit=200")
        assert {run["run_id"]: run["outcome"] for run in runs} == truth
        assert {run["run_id"]: run["outcome"] for run in await every(api, "runs?limit=200")} == roots
        for outcome in OUTCOMES:
            some = await every(api, f"runs?children=1&limit=200&outcome={outcome}")
            assert {run["run_id"] for run in some} == {one for one, each in truth.items() if each == outcome}
        sums = (await api.get("stats?by=outcome"))["totals"]
        assert {one["key"]: one["runs"] for one in sums} == Counter(truth.values())
        for root_id in roots:
            assert (await api.get(f"runs/{root_id}"))["run"]["outcome"] == truth[root_id]
            tree = (await api.get(f"runs/{root_id}/tree"))["runs"]
            assert {run["run_id"]: run["outcome"] for run in tree} == {
                run["run_id"]: truth[run["run_id"]] for run in tree
            }
            page = await api.get(f"runs/{root_id}/export?format=html")
            assert in_page(page.decode()) == Counter(run["outcome"] for run in tree)
            reported = in_log((await api.get(f"runs/{root_id}/export")).decode())
            assert reported == {run_id: truth[run_id] for run_id in reported}
            if any(run["run_id"] == root_id and run["completed_at"] for run in tree):
                assert (await api.get(f"runs/{root_id}/report"))["outcome"] == truth[root_id]


async def every(api: Api, path: str) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        page = await api.get(path + cursor)
        found += page["runs"]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


def in_tree(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in text.splitlines():
        parts = re.match(r"[│├╰─ ]*(\S) [\w-]+(?: ([a-z]+))?  ", line)
        assert parts is not None, line
        found[parts[2] or PLAIN[parts[1]]] += 1
    return found


def in_page(text: str) -> Counter[str]:
    return Counter(re.findall(r'<span class="mark (\w+)">', text))


def in_log(text: str) -> dict[str, str]:
    """The outcomes of those that have ended, by their reports."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        event = decode(line)
        found.pop(event.run_id, None)
        if isinstance(event, RunFinished):
            found[event.run_id] = event.report.outcome
    return found
