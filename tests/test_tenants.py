"""A stored report is given again to whom it was made for, and to nobody else."""

from __future__ import annotations

import asyncio
import functools
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import AgentSpec, ConfigError, Limits, Retinue, ToolContext, tool
from retinue.events import RunStarted
from retinue.testing import ScriptedModel, call
from retinue.types import ModelRequest, ToolMessage, UserMessage

INPUTS = ["what is due?", "who is late?"]


@dataclass(frozen=True)
class Tenant:
    name: str


def plain(prompt: Any = "You answer.", name: str = "plain", **more: Any) -> AgentSpec:
    return AgentSpec(name=name, description="answers", prompt=prompt, tools=(), **more)


def says_all(request: ModelRequest) -> str:
    """All that it was told."""
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    return f"{request.system} {first.text}"


def opened(tmp_path: Path, play: Any = says_all, **options: Any) -> Retinue[Tenant]:
    db = f"sqlite:///{tmp_path / 'runs.db'}"
    return Retinue[Tenant](model=ScriptedModel(play), db=db, cwd=tmp_path, environ={}, **options)


def of_tenant(number: int) -> Tenant:
    return Tenant(f"tenant-{number:03}")


def by_instructions(number: int, folder: Path) -> dict[str, Any]:
    return {"agent": plain(), "instructions": f"You work for {of_tenant(number).name}."}


def by_instructions_of_deps(number: int, folder: Path) -> dict[str, Any]:
    def told(deps: Tenant) -> str:
        return f"You work for {deps.name}."

    return {"agent": plain(), "instructions": told, "deps": of_tenant(number), "name": "due"}


def by_function_that_holds_it(number: int, folder: Path) -> dict[str, Any]:
    name = of_tenant(number).name
    return {"agent": plain(), "instructions": lambda deps: f"You work for {name}."}


def by_prompt(number: int, folder: Path) -> dict[str, Any]:
    return {"agent": plain(f"You work for {of_tenant(number).name}.")}


def by_prompt_of_deps(number: int, folder: Path) -> dict[str, Any]:
    spec = plain(lambda deps: f"You work for {deps.name}.")
    return {"agent": spec, "deps": of_tenant(number), "name": "due"}


def by_attachment(number: int, folder: Path) -> dict[str, Any]:
    (folder / "who.txt").write_text(f"You work for {of_tenant(number).name}.")
    return {"agent": plain(), "attachments": ["who.txt"]}


WAYS = [
    by_instructions,
    by_instructions_of_deps,
    by_function_that_holds_it,
    by_prompt,
    by_prompt_of_deps,
    by_attachment,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_whoever_asks_the_same_gets_what_was_made_for_them(
    way: Callable[[int, Path], dict[str, Any]], tmp_path: Path
) -> None:
    asked = 0

    def play(request: ModelRequest) -> str:
        nonlocal asked
        asked += 1
        return says_all(request)

    for _ in range(2):
        async with opened(tmp_path, play) as retinue:
            for number in range(10):
                reports = await retinue.map(inputs=INPUTS, **way(number, tmp_path)).reports()
                assert all(of_tenant(number).name in report.text for report in reports)
    assert asked == 10 * len(INPUTS), "and a second start pays for nothing"


async def test_with_metadata_tools_read_the_deps_of_whom_they_work_for(tmp_path: Path) -> None:
    async def whose(ctx: ToolContext[Tenant]) -> str:
        """Whose it is."""
        return ctx.deps.name

    def play(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.text if isinstance(last, ToolMessage) else call("whose")

    spec = AgentSpec(name="asker", description="asks", prompt="You ask.", tools=(whose,))
    for _ in range(2):
        async with opened(tmp_path, play) as retinue:
            for number in range(10):
                deps = of_tenant(number)
                batch = retinue.map(spec, INPUTS, deps=deps, metadata={"tenant": deps.name})
                assert [report.text for report in await batch.reports()] == [deps.name] * 2


def tool_of(held: Any, way: str) -> Any:
    """A tool made for one tenant, as a factory makes it."""

    def whose() -> str:
        """Whose it is."""
        return getattr(held, "name", held)

    def given(who: Any) -> str:
        """Whose it is."""
        return getattr(who, "name", who)

    return whose if way == "closure" else tool(name="whose")(functools.partial(given, held))


def asks_whose(request: ModelRequest) -> Any:
    last = request.messages[-1]
    return last.text if isinstance(last, ToolMessage) else call("whose")


@pytest.mark.parametrize("way", ["closure", "partial"])
@pytest.mark.parametrize("place", ["the run", "the agent", "the program"])
async def test_a_tool_that_was_made_for_one_tenant_gives_no_other_its_report(
    tmp_path: Path, way: str, place: str
) -> None:
    for _ in range(2):
        for number in range(3):
            made, mine = tool_of(of_tenant(number).name, way), of_tenant(number).name
            tools = (made,) if place == "the agent" else ("whose",)
            spec = AgentSpec(name="asker", description="asks", prompt="You ask.", tools=tools)
            more: dict[str, Any] = {"tools": [made]} if place == "the run" else {}
            own = {"tools": [made]} if place == "the program" else {}
            async with opened(tmp_path, asks_whose, **own) as retinue:
                batch = retinue.map(spec, INPUTS, **more)
                assert [report.text for report in await batch.reports()] == [mine] * 2
                if number:
                    with pytest.raises(ConfigError, match=r"differs in .*the tools"):
                        await retinue.once("0", spec, "whose?", **more)
                else:
                    assert (await retinue.once("0", spec, "whose?", **more)).text == mine


async def test_a_tool_that_holds_what_nobody_can_compare_needs_a_word_on_whose_it_is(tmp_path: Path) -> None:
    made = tool_of(of_tenant(1), "closure")
    spec = AgentSpec(name="asker", description="asks", prompt="You ask.", tools=(made,))
    async with opened(tmp_path, asks_whose) as retinue:
        with pytest.raises(ConfigError, match="what these tools hold: whose"):
            await retinue.map(spec, INPUTS).reports()
        ways: list[dict[str, Any]] = [{"metadata": {"tenant": "1"}}, {"name": "of 1"}, {"key": str}]
        for said in ways:
            assert await retinue.map(spec, INPUTS, **said).reports()


async def test_deps_of_which_nobody_says_whose_they_are_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as retinue:
        with pytest.raises(ConfigError, match="cannot be known by the deps"):
            retinue.map(plain(), INPUTS, deps=of_tenant(1))
        ways: list[dict[str, Any]] = [{"metadata": {"tenant": "1"}}, {"name": "of 1"}, {"key": str}]
        for said in ways:
            assert await retinue.map(plain(), INPUTS, deps=of_tenant(1), **said).reports()


async def test_another_model_or_agent_does_it_anew_and_a_higher_limit_does_not(tmp_path: Path) -> None:
    asked: list[str] = []

    def named(name: str) -> ScriptedModel:
        def play(request: ModelRequest) -> str:
            asked.append(name)
            return name

        return ScriptedModel(play, name=name)

    ways: list[tuple[AgentSpec, dict[str, Any]]] = [
        (plain(), {"model": named("one")}),
        (plain(), {"model": named("two")}),
        (plain("You answer briefly."), {"model": named("two")}),
    ]
    manners: list[dict[str, Any]] = [
        {},
        {"limits": Limits(turns=90)},
        {"settings": {"limits.max_turns": 80}},
        {"yes": True},
    ]
    async with opened(tmp_path) as retinue:
        for spec, given in ways:
            for more in manners:
                await retinue.map(spec, INPUTS, **given, **more).reports()
        await retinue.map(plain(max_turns=70, timeout="9m"), INPUTS, model=named("two")).reports()
    assert asked == ["one"] * 2 + ["two"] * 4


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"metadata": {"tenant": "b"}}, "the metadata"),
        ({"metadata": {}}, "the metadata"),
        ({"instructions": "You work for b."}, "the instructions"),
        ({"prompt": "who is late?"}, "the prompt"),
        ({"agent": AgentSpec(name="other", description="d", prompt="p", tools=())}, "the agent"),
    ],
)
async def test_an_id_that_was_given_to_something_else_is_refused_and_says_nothing_of_it(
    other: dict[str, Any], what: str, tmp_path: Path
) -> None:
    first: dict[str, Any] = {
        "agent": plain(),
        "prompt": "what is due?",
        "metadata": {"tenant": "a"},
        "instructions": "You work for a.",
    }
    async with opened(tmp_path) as retinue:
        report = await retinue.once("order-7", **first)
        with pytest.raises(ConfigError, match=what) as refused:
            await retinue.once("order-7", **(first | other))
        assert "work for a" not in str(refused.value)
        assert (await retinue.once("order-7", **first)).text == report.text


def lookup() -> str:
    """Look it up."""
    return "found"


def boss_of(number: int) -> AgentSpec:
    child = AgentSpec(name="child", description="d", prompt=f"You work for tenant {number}.", tools=())
    return AgentSpec(name="boss", description="d", prompt="You ask the child.", tools=(child,))


async def refused_to_the_second(retinue: Retinue[Tenant], first: Any, second: Any, what: str) -> None:
    """Under one id the second is refused, and the first is given its report again, unpaid."""
    asked: dict[str, Any] = {"run_id": "order-7", "prompt": "what is due?"}
    report = await retinue.once(**asked, **first)
    with pytest.raises(ConfigError, match=what) as refused:
        await retinue.once(**asked, **second)
    assert "tenant-" not in str(refused.value)
    assert (await retinue.once(**asked, **first)).turns == report.turns


@pytest.mark.parametrize(
    ("way", "what"),
    [
        (by_instructions_of_deps, "differs in the instructions"),
        (by_function_that_holds_it, "differs in the instructions"),
        (by_prompt, "differs in the agent"),
        (by_prompt_of_deps, "differs in the agent"),
        (lambda number, _: {"agent": boss_of(number)}, "differs in the agent"),
        (lambda number, _: {"agent": plain(), "tools": [lookup][number - 1 :]}, "differs in the options"),
        (
            lambda number, _: {"agent": plain(), "agents": [plain(f"For {number}.", "o")]},
            "differs in the options",
        ),
    ],
)
async def test_one_id_is_for_one_tenant_however_work_is_made_theirs(
    way: Callable[[int, Path], dict[str, Any]], what: str, tmp_path: Path
) -> None:
    first, second = ({k: v for k, v in way(n, tmp_path).items() if k != "name"} for n in (1, 2))
    async with opened(tmp_path) as retinue:
        await refused_to_the_second(retinue, first, second, what)


async def test_one_id_is_for_one_attachment(tmp_path: Path) -> None:
    given: list[dict[str, Any]] = []
    for number in (1, 2):
        path = tmp_path / f"{number}.txt"
        path.write_text(f"You work for {of_tenant(number).name}.")
        given.append({"agent": plain(), "attachments": [path]})
    async with opened(tmp_path) as retinue:
        await refused_to_the_second(retinue, given[0], given[1], "differs in the attachments")


async def test_one_id_is_for_one_folder_and_for_the_agents_of_one_program(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path / 'runs.db'}"

    def of(number: int, folder: str = "") -> Retinue[Tenant]:
        (tmp_path / folder).mkdir(exist_ok=True)
        agents = [boss_of(number)]
        return Retinue(model=ScriptedModel(says_all), db=db, cwd=tmp_path / folder, environ={}, agents=agents)

    async with of(1) as one, of(2) as two, of(1, "other") as elsewhere:
        report = await one.once("order-7", "boss", "what is due?")
        for other, what in ((two, "differs in the agent"), (elsewhere, "differs in the folder")):
            with pytest.raises(ConfigError, match=what):
                await other.once("order-7", "boss", "what is due?")
        assert (await one.once("order-7", "boss", "what is due?")).turns == report.turns
        batches = [await each.map("boss", INPUTS).reports() for each in (one, two)]
        assert not {each.run_id for each in batches[0]} & {each.run_id for each in batches[1]}


async def test_under_one_id_the_model_and_how_far_it_goes_may_be_others(tmp_path: Path) -> None:
    manners: list[dict[str, Any]] = [
        {"model": ScriptedModel(["otherwise"], name="own:other")},
        {"limits": Limits(turns=90)},
        {"settings": {"limits.max_turns": 80}},
        {"label": "mine", "yes": True},
    ]
    async with opened(tmp_path) as retinue:
        report = await retinue.once("order-7", plain(), "what is due?")
        for more in manners:
            assert (await retinue.once("order-7", plain(), "what is due?", **more)).text == report.text


async def test_a_run_that_does_not_say_what_it_was_asked_with_is_compared_by_the_rest(tmp_path: Path) -> None:
    """As those of earlier versions."""
    async with opened(tmp_path) as retinue:
        report = await retinue.once("order-7", plain(), "what is due?")
        [began, *rest] = await retinue.store.events(report.run_id)
        assert isinstance(began, RunStarted)
        assert began.options.asked
        await retinue.store.delete(report.run_id)
        options = msgspec.structs.replace(began.options, asked={})
        await retinue.store.append([msgspec.structs.replace(began, options=options), *rest])
        assert (await retinue.once("order-7", plain("Briefly."), "what is due?")).text == report.text
        with pytest.raises(ConfigError, match="differs in the prompt"):
            await retinue.once("order-7", plain(), "who is late?")


PROGRAM = """
import asyncio, os, signal, sys
from retinue import AgentSpec, Retinue
from retinue.testing import ScriptedModel
url, folder, until = sys.argv[1], sys.argv[2], int(sys.argv[3])
asked = 0

def play(request):
    global asked
    asked += 1
    if asked == until:
        os.kill(os.getpid(), signal.SIGKILL)
    return request.system.split("You work for ")[1].split(".")[0]

PLAIN = AgentSpec(name="plain", description="answers", prompt="You answer.", tools=())

async def main():
    async with Retinue(model=ScriptedModel(play), db=url, cwd=folder, environ={}) as retinue:
        async def serve(n):
            metadata = {"tenant": f"t{n}"} if n % 2 else {}
            batch = retinue.map(PLAIN, ["due?", "late?"], metadata=metadata, instructions=f"You work for t{n}.")
            return [report.text for report in await batch.reports()]
        for first in range(0, 100, 10):
            for n, said in enumerate(await asyncio.gather(*map(serve, range(first, first + 10))), first):
                print(n, *said, flush=True)
    print("asked", asked)

asyncio.run(main())
"""


async def test_a_hundred_tenants_are_never_mixed_up_also_after_a_kill(tmp_path: Path) -> None:
    async def start(until: int) -> tuple[int, list[str]]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path / 'r.db'}", str(tmp_path), str(until)),
            stdout=subprocess.PIPE,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode().splitlines()

    for until in (35, 90):
        assert (await start(until))[0] == -signal.SIGKILL
    wanted = [f"{n} t{n} t{n}" for n in range(100)]
    assert (await start(-1))[1][:-1] == wanted
    assert (await start(-1))[1] == [*wanted, "asked 0"]
