"""Types for those who install the wheel: our examples, a user's program and the tutorial are read by mypy and
pyright, strictly, in an environment that has nothing but the wheel; what is wrong is an error of both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fresh_environment
from test_docs import blocks

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

USER = '''
"""A program of a user: every part of the front door, with its types said."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from pydantic import BaseModel

from retinue import (
    AgentSpec, Answer, Limits, MapItem, Report, Retinue, RunFilter, RunInfo, RunWith, ToolContext, ToolError, tool
)
from retinue.events import ApprovalRequested, LiveEvent, RunFinished, ToolCalled
from retinue.testing import (
    CheckedStory, EvalCase, EvalResult, EvalRun, Expect, ScriptedModel, call, evaluate, story_of
)


@dataclass
class Shop:
    tenant: str


class Booking(BaseModel):
    room: str


@tool(effect="write", timeout="5m")
async def order(ctx: ToolContext[Shop], number: str) -> str:
    """The state of an order."""
    if not number:
        raise ToolError("which order?")
    return ctx.deps.tenant + ctx.metadata["tenant"] + number


def plain(word: str) -> dict[str, int]:
    """Count letters."""
    return {word: len(word)}


async def shop_of(run: RunInfo) -> Shop:
    return Shop(run.metadata["tenant"])


def approve(asked: ApprovalRequested) -> Answer:
    return Answer(decision="approve" if asked.risk == "low" else "reject")


def told(shop: Shop) -> str:
    return f"You work for {shop.tenant}."


def short(report: Report) -> str:
    return report.text[:100]


CLERK = AgentSpec(
    name="clerk", description="d", prompt="p", tools=[order, plain], limits=Limits(turns=3), summary=short
)
BOSS = AgentSpec(name="boss", description="d", prompt="p", tools=[CLERK, "read"], output_schema=Booking)


def looked(run: EvalRun) -> bool:
    return run.report.ok and bool(run.story.calls("order"))


async def main() -> None:
    options = RunWith[Shop](label="x", metadata={"tenant": "acme", "vip": True}, settings={"limits.max_turns": 3})
    async with Retinue[Shop](
        model=ScriptedModel([call("order", number="7"), "fine"]),
        agents=[BOSS],
        approve=approve,
        deps_factory=shop_of,
        db="memory:",
    ) as retinue:
        typed = await retinue.run("clerk", "x", output=Booking, deps=Shop("a"), **options)
        room: str = typed.output.room
        report: Report = await retinue.run(CLERK, {"what": "x"}, limits=Limits(cost=1), instructions=told)
        talk = retinue.conversation("clerk", deps=Shop("c"))
        said: Report = await talk.send("x")
        booked = await talk.send(said.text, output=Booking)
        print(booked.output.room, len(await talk.messages()))
        events: AsyncGenerator[LiveEvent] = retinue.stream("boss", "x", effort="low")
        async for event in events:
            match event:
                case ToolCalled():
                    print(event.name, event.arguments)
                case RunFinished():
                    print(event.report.text, room, report.usage.cost)
                case _:
                    pass
        batch = retinue.map(CLERK, [1, 2], key=str, prompt=lambda number: f"{number}")
        async for item in batch:
            one: MapItem[int] = item
            number: int = one.input
            print(number, one.report.text if one.report is not None else one.error)
        for row in await retinue.runs(RunFilter(agent="clerk", metadata={"tenant": "acme"})):
            print(row.run_id, row.outcome)
        story: CheckedStory = await story_of(retinue, report)
        story.assert_called("order", {"number": "7"}, times=1)
        cases = [EvalCase(name="a", prompt="b", expect=Expect(says=("c",)))]
        result: EvalResult = await evaluate("clerk", cases, [looked], retinue=retinue, deps=Shop("b"))
        print(result.table(), result.rate)


asyncio.run(main())
'''

WRONG = {
    "option": 'await Retinue[Shop]().run("clerk", "x", lable="x")',
    "option_of_map": 'Retinue[Shop]().map("clerk", ["x"], concurency=3)',
    "option_of_agent": 'AgentSpec(name="a", description="b", prompt="c", tool=[])',
    "deps": 'await Retinue[Shop]().run("clerk", "x", deps=Kiosk())',
    "deps_factory": "Retinue[Shop](deps_factory=kiosk_of)",
    "deps_in_tool": "shop: Kiosk = cast(ToolContext[Shop], None).deps; print(shop)",
    "output": 'booked: Kiosk = (await Retinue[Shop]().run("clerk", "x", output=Shop)).output; print(booked)',
    "instructions": 'await Retinue[Shop]().run("clerk", "x", instructions=of_kiosk)',
    "limits": "Limits(costs=1)",
    "output_of_turn": 'turn: Kiosk = (await Retinue().conversation().send("x", output=Shop)).output; print(turn)',
    "decision": 'Answer(decision="yes")',
    "outcome": 'cast(CheckedStory, None).assert_outcome("fine")',
    "expectation": 'Expect(say=("x",))',
}

HEAD = """
from dataclasses import dataclass
from typing import cast
from retinue import AgentSpec, Answer, Limits, Retinue, RunInfo, ToolContext
from retinue.testing import CheckedStory, Expect

@dataclass
class Shop:
    tenant: str

@dataclass
class Kiosk:
    street: str = ""

def kiosk_of(run: RunInfo) -> Kiosk:
    return Kiosk()

def of_kiosk(kiosk: Kiosk) -> str:
    return kiosk.street

async def main() -> None:
    USED = (AgentSpec, Answer, Retinue, ToolContext, CheckedStory, Expect, Kiosk, kiosk_of, Shop, cast, Limits, of_kiosk)
    print(USED)
    """


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs to be read, and beside it the environment that they are read in."""
    folder = tmp_path_factory.mktemp("types")
    fresh_environment.make(folder, ["server"])
    here = folder / "programs"
    for name in ("right", "wrong"):
        (here / name).mkdir(parents=True)
    for path in EXAMPLES:
        (here / "right" / path.name).write_text(path.read_text("utf-8"))
    (here / "right" / "user.py").write_text(USER)
    tutorial = [block.text for block in blocks(ROOT / "docs" / "tutorial.md", "python")]
    (here / "right" / "tutorial.py").write_text("\n\n".join(tutorial))
    for name, line in WRONG.items():
        (here / "wrong" / f"{name}.py").write_text(HEAD + line + "\n")
    (here / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": ["right", "wrong"]})
    )
    return here


def python_of(programs: Path) -> str:
    return str(programs.parent / "environment" / "bin" / "python")


def read_by_mypy(programs: Path) -> list[str]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11"),
            *("--python-executable", python_of(programs), "--cache-dir", str(programs.parent / "cache")),
            *("--no-error-summary", "--no-color-output", "--hide-error-context"),
            *sorted(str(path.relative_to(programs)) for path in programs.rglob("*.py")),
        ],
        check=False,
        cwd=programs,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def read_by_pyright(programs: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", ".", "--pythonpath", python_of(programs), "--outputjson"],
        check=False,
        cwd=programs,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [
        f"{Path(one['file']).relative_to(programs.resolve())}: error: {one['message']}"
        for one in found
        if one["severity"] == "error"
    ]


@pytest.mark.parametrize("read", [read_by_mypy, read_by_pyright], ids=["mypy", "pyright"])
def test_what_is_right_has_no_error_and_each_that_is_wrong_has_one(
    read: Callable[[Path], list[str]], programs: Path
) -> None:
    errors = read(programs)
    assert [line for line in errors if line.startswith("right")] == []
    told = {line.partition(".py")[0].removeprefix("wrong/") for line in errors}
    assert set(WRONG) - told == set()


def test_the_environment_has_the_wheel_and_nothing_that_only_we_need(programs: Path) -> None:
    code = (
        "import retinue, pathlib; print(pathlib.Path(retinue.__file__).resolve())\n"
        "import fastapi\n"
        "try:\n    import pytest\nexcept ImportError:\n    print('no pytest')"
    )
    done = subprocess.run(
        [python_of(programs), "-I", "-c", code], check=True, cwd=programs, capture_output=True, text=True
    )
    where, without = done.stdout.splitlines()
    assert Path(where).is_relative_to((programs.parent / "environment").resolve())
    assert without == "no pytest"
