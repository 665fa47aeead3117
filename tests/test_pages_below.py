"""What a run and those below it have really read: which pages count, with which text, and how many."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.budget import Budget, Places
from retinue.engine import pages
from retinue.engine.pages import left_in_words, pages_below
from retinue.events import AnyEvent, ChildStarted, RunStarted, ToolCalled, ToolReturned
from retinue.store.base import KeptFile
from retinue.store.memory import MemoryStore
from retinue.types import Limits, Source
from retinue.workspace import HOME, Files
from trees import agent

URL = "https://a.test/x"


class Logs:
    """The logs of one workflow, written run by run."""

    def __init__(self) -> None:
        self.store, self.seqs = MemoryStore(), dict[str, int]()

    async def write(self, run_id: str, kind: Any, **fields: Any) -> None:
        self.seqs[run_id] = seq = self.seqs.get(run_id, 0) + 1
        above = {"parent_id": None, "depth": 0} if run_id == "r" else {"parent_id": "r", "depth": 1}
        event: AnyEvent = kind(run_id=run_id, root_id="r", seq=seq, at=1.0, **above, **fields)
        await self.store.append([event])

    async def begin(self, *run_ids: str) -> None:
        for run_id in run_ids:
            await self.write(run_id, RunStarted, spec=agent("a"), prompt="go")

    async def read(self, run_id: str, call_id: str, *sources: Source, text: str = "", **more: Any) -> None:
        effect = more.pop("effect", "read")
        await self.write(
            run_id, ToolCalled, call_id=call_id, name="get", arguments="{}", effect=effect, repeatable=True
        )
        await self.write(
            run_id, ToolReturned, call_id=call_id, name="get", text=text, sources=tuple(sources), **more
        )

    async def found(self, run_id: str = "r", files: Files | None = None) -> dict[str, str]:
        return {page.key: page.text for page in await pages_below(self.store, "r", run_id, files)}


async def test_pages_of_a_run_and_of_its_children_count_in_the_order_of_their_reading() -> None:
    logs = Logs()
    await logs.begin("r")
    await logs.write("r", ChildStarted, child_id="c", agent="a", call_id="1", prompt="do")
    await logs.begin("c", "other")
    await logs.read("c", "x", Source(url=f"{URL}/1"), text="one")
    await logs.read("r", "x", Source(url=f"{URL}/2"), text="two")
    await logs.read("other", "x", Source(url=f"{URL}/3"), text="three")
    await logs.read("c", "y", Source(url=f"{URL}/1"), text="more")
    await logs.read("c", "z", Source(url=f"{URL}/1"), text="one")
    assert await logs.found() == {f"{URL}/1": "one\n\nmore", f"{URL}/2": "two"}
    assert await logs.found("c") == {f"{URL}/1": "one\n\nmore"}


@pytest.mark.parametrize(
    ("source", "more"),
    [
        (Source(url=URL, listed=True), {}),
        (Source(url=URL, verified=False), {}),
        (Source(title="nowhere"), {}),
        (Source(url=URL), {"is_error": True}),
        (Source(url=URL), {"effect": "delegate"}),
        (Source(url=URL), {"children": ("c",)}),
        (Source(url=URL), {"text": ""}),
        (Source(path="gone.md"), {}),
        (Source(path=f"{HOME}/own.md"), {}),
    ],
)
async def test_what_was_not_read_is_no_page(tmp_path: Path, source: Source, more: dict[str, Any]) -> None:
    logs = Logs()
    await logs.begin("r")
    files = Files(project=tmp_path, workspace=None)
    await logs.read("r", "x", source, **{"text": "said", **more})
    assert await logs.found(files=files) == {}
    files.close()


async def test_a_page_has_the_text_that_was_saved_and_a_file_that_of_the_project(tmp_path: Path) -> None:
    logs = Logs()
    await logs.begin("r")
    (tmp_path / "a.md").write_text("in the project")
    saved = Source(url=URL, saved_as=f"{HOME}/page.md")
    await logs.read("r", "x", saved, replace(saved, url=f"{URL}/broken", saved_as=f"{HOME}/b"), text="shown")
    await logs.read("r", "y", Source(path="a.md"), text="1: in")
    for path, data in ((f"{HOME}/page.md", zlib.compress(b"whole")), (f"{HOME}/b", b"no zlib")):
        await logs.store.keep(KeptFile(root_id="r", run_id="r", path=path, seq=1, at=1.0, data=data))
    files = Files(project=tmp_path, workspace=None)
    assert await logs.found(files=files) == {
        URL: "whole",
        f"{URL}/broken": "shown",
        "a.md": "in the project",
    }
    files.close()
    assert await logs.found() == {URL: "whole", f"{URL}/broken": "shown"}


@pytest.mark.parametrize(
    ("name", "most", "found"),
    [
        ("MOST_PAGES", 2, ["1", "2"]),
        ("MOST_RUNS", 1, ["1"]),
        ("MOST_RUNS", 2, ["1", "2", "3"]),
        ("MOST_TEXT", 8, ["1", "2"]),
        ("MOST_TEXT", 7, ["1"]),
    ],
)
async def test_what_is_read_again_is_bounded(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int, found: list[str]
) -> None:
    monkeypatch.setattr(pages, name, most)
    logs = Logs()
    await logs.begin("r")
    await logs.write("r", ChildStarted, child_id="c", agent="a", call_id="1", prompt="do")
    await logs.begin("c")
    await logs.read("r", "x", Source(url="1"), text="four")
    await logs.read("c", "x", Source(url="2"), Source(url="3"), text="long")
    assert list(await logs.found()) == found


def run_with(budget: Budget, *shown: str, max_turns: int | None = None, turns: int = 0) -> Any:
    tools = [SimpleNamespace(name=name) for name in shown]
    return SimpleNamespace(
        shown=tools,
        budget=budget,
        spec=SimpleNamespace(max_turns=max_turns),
        state=SimpleNamespace(work_turns=turns),
    )


def test_what_a_run_has_left_is_told_in_words() -> None:
    budget = Budget(Limits(cost=1.0), places=(Places(most=5, says="all"),))
    budget.used["children"] = 2
    budget.charge("cost", 0.25)
    said = left_in_words(run_with(budget, "read", "delegate_task", max_turns=10, turns=4))
    assert said == "Left: 3 sub-agents, $0.75, 6 turns."
    budget.used["children"] = 6
    said = left_in_words(run_with(budget, "delegate_task", max_turns=3, turns=4))
    assert said == "Left: 0 sub-agents, $0.75, 0 turns."
    free = Budget(Limits())
    assert left_in_words(run_with(free, "read")) == "Left: no sub-agents: look into the questions yourself."
    assert free.places_left() == 0


def test_a_run_has_no_more_places_than_those_above_it() -> None:
    above = Budget(Limits(), places=(Places(most=5, says="all"),))
    own = Budget(Limits(), parent=above, name="it", places=(Places(most=9, says="own"),))
    above.used["children"], own.used["children"] = 2, 1
    assert own.places_left() == 3
    own.used["children"] = 7
    assert own.places_left() == 2


def test_agents_as_tools_take_no_place_of_those_that_are_delegated_to() -> None:
    places = (Places(most=4, says="a", counts="delegated"), Places(most=1, says="b", counts="agents"))
    budget = Budget(Limits(), places=places)
    budget.used |= {"children": 3, "agent_calls": 2}
    assert budget.places_left() == 3
    held = budget.hold_places(2)
    assert budget.places_left() == 1
    held.take()
    assert budget.places_left() == 2
    held.close()
    assert budget.places_left() == 3
