"""When delegation pays: the same tasks done by one agent alone, by agents in turn, and in parallel.

    python bench/delegation_pays.py                        # a scripted model with a fixed time per token
    python bench/delegation_pays.py --model openai:NAME    # any model; keys as ever

Each task plants facts in files of a temporary project and asks for all of them. Printed for each way: tokens
in and out of the whole tree, cost where it is known, wall time, the largest context of the root, and how many
of the planted facts its answer holds. The scripted model makes no mistake and no detour, so its figures are a
lower bound; what a real model adds to them, only a run with that model tells.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from retinue import AgentSpec, Retinue
from retinue.events import ModelReplied
from retinue.store.memory import MemoryStore
from retinue.types import (
    AssistantMessage,
    ModelEvent,
    ModelRequest,
    Reply,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

Way = Literal["alone", "one after the other", "in parallel"]
WAYS: tuple[Way, ...] = ("alone", "one after the other", "in parallel")
FACT = re.compile(r"The word of (\w+) is (\w+)\.")
PATH = re.compile(r"notes/\w+\.md")
NEXT = re.compile(r"The next one is in (notes/\w+\.md)\.")
AT_ONCE = 3
"""Files that the scripted model reads in one turn."""
READ = (
    "Every file holds one line of the form 'The word of NAME is WORD.' Report each such line, word for word."
)
FOLLOW = "It may also say in which file the next one is: report that line as well."
ORDERS: dict[Way, str] = {
    "alone": "Read the files yourself, several in one turn.",
    "one after the other": "Give each part to `reader`, one after the other: wait for each report.",
    "in parallel": "Give all parts to `reader` with one call of `parallel_tasks`.",
}
READER = AgentSpec(
    name="reader",
    description="Reads files and reports what is asked about them.",
    prompt="You read the files that you are told of, several in one turn, and answer in few words.",
    tools=("read",),
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked. `parts` are the files of each part; `chain`: only the first of them is named."""

    name: str
    parts: tuple[tuple[str, ...], ...]
    lines: int
    chain: bool = False

    @property
    def files(self) -> list[str]:
        return [path for part in self.parts for path in part]

    @property
    def prompt(self) -> str:
        if self.chain:
            return f"{READ} Begin with {self.files[0]}. {FOLLOW} Go on until a file names no next one."
        listed = (f"Part {number}: {', '.join(part)}" for number, part in enumerate(self.parts, 1))
        return "\n".join([READ, *listed])

    def facts(self) -> dict[str, str]:
        return {Path(path).stem: f"{Path(path).stem[::-1]}{index}" for index, path in enumerate(self.files)}

    def plant(self, folder: Path) -> None:
        """Write the files, each with its fact in the middle of lines that say nothing."""
        for index, path in enumerate(self.files):
            name = Path(path).stem
            said = f"The word of {name} is {self.facts()[name]}."
            if self.chain and index + 1 < len(self.files):
                said += f" The next one is in {self.files[index + 1]}."
            filler = [
                f"Line {n} of {name} is here to be read and says nothing of use." for n in range(self.lines)
            ]
            filler[self.lines // 2] = said
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text("\n".join(filler) + "\n")


def tasks(scale: int) -> list[Task]:
    def part(letter: str, count: int) -> tuple[str, ...]:
        return tuple(f"notes/{letter}{n}.md" for n in range(count))

    return [
        Task(name="one fact", parts=(part("solo", 1),), lines=scale),
        Task(
            name="a chain of three", parts=tuple((path,) for path in part("link", 3)), lines=scale, chain=True
        ),
        Task(
            name="three parts of four files",
            parts=tuple(part(x, 4) for x in ("ant", "bee", "cow")),
            lines=scale,
        ),
    ]


class Scripted:
    """A model that makes no mistake, with a fixed time for each token it reads and writes."""

    name = "scripted"

    def __init__(self, read_ms: float, write_ms: float) -> None:
        self.read_ms, self.write_ms = read_ms, write_ms

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        message = _next(request)
        shown = request.system + "".join(_text(each) for each in request.messages)
        shown += json.dumps([[tool.name, tool.description, tool.schema] for tool in request.tools])
        usage = Usage(input_tokens=len(shown) // 4, output_tokens=max(1, len(_text(message)) // 4), cost=None)
        await asyncio.sleep((usage.input_tokens * self.read_ms + usage.output_tokens * self.write_ms) / 1000)
        yield Reply(
            message=message, usage=usage, stop="tool_calls" if message.calls else "end", model=self.name
        )


def _text(message: Any) -> str:
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return message.text + "".join(call.name + call.arguments for call in calls)


def _next(request: ModelRequest) -> AssistantMessage:
    """What to do next: read what is not read yet, hand on what is not handed on, or answer."""
    task = next(message.text for message in request.messages if isinstance(message, UserMessage))
    found = "\n".join(message.text for message in request.messages if isinstance(message, ToolMessage))
    calls = [
        call
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]
    done = {path for call in calls for path in PATH.findall(call.arguments)}
    offered = {tool.name for tool in request.tools}
    chained = FOLLOW in task
    wanted = [PATH.findall(line) for line in task.splitlines() if PATH.search(line)]
    if chained and "read" in offered and READER.prompt in request.system:
        wanted = wanted[:1]  # one link: what comes next is whoever's turn it is to say
    elif chained:
        wanted += [[path] for path in NEXT.findall(found)]
    wanted = [part for part in wanted if not done.issuperset(part)]
    step = len(calls)
    if not wanted:
        lines = [f"The word of {name} is {word}." for name, word in dict(FACT.findall(found)).items()]
        return AssistantMessage(text="\n".join([*lines, *_onward(found)] if chained else lines))
    if "read" in offered:
        paths = [path for part in wanted for path in part if path not in done][:AT_ONCE]
        return AssistantMessage(
            calls=tuple(_call("read", step + n, path=path) for n, path in enumerate(paths))
        )
    prompts = [f"{READ}{f' {FOLLOW}' if chained else ''}\n{', '.join(part)}" for part in wanted]
    if "parallel_tasks" in offered:
        batch = [{"agent_id": "reader", "prompt": prompt} for prompt in prompts]
        return AssistantMessage(calls=(_call("parallel_tasks", step, tasks=batch),))
    return AssistantMessage(calls=(_call("reader", step, prompt=prompts[0]),))


def _onward(found: str) -> list[str]:
    return [f"The next one is in {path}." for path in dict.fromkeys(NEXT.findall(found))]


def _call(name: str, number: int, **arguments: Any) -> ToolCall:
    return ToolCall(id=f"call{number}", name=name, arguments=json.dumps(arguments))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One task done in one way."""

    task: str
    way: Way
    tokens_in: int
    tokens_out: int
    cost: float | None
    seconds: float
    largest_context: int
    facts: int
    planted: int
    children: int
    status: str


async def measure(task: Task, way: Way, model: Any, environ: Mapping[str, str], timeout: float) -> Measured:
    """Do a task in a project of its own, and read what that took from its log."""
    with tempfile.TemporaryDirectory() as folder:
        task.plant(Path(folder))
        offered = {"alone": [], "one after the other": ["agents"], "in parallel": ["parallel_tasks"]}[way]
        root = AgentSpec(
            name="root",
            description="Answers.",
            prompt=f"You answer a question about files. {ORDERS[way]} Answer in as few words as you can.",
            tools=("read",) if way == "alone" else ("read", "reader", "parallel_tasks"),
            shown=("read",) if way == "alone" else (),
        )
        settings = {
            "delegation.tools": offered,
            "limits.timeout": timeout,
            "context.instructions": False,
        }
        async with Retinue(
            model=model, cwd=folder, db=MemoryStore(), agents=[READER], environ=environ, settings=settings
        ) as retinue:
            began = time.perf_counter()
            report = await retinue.run(root, task.prompt)
            seconds = time.perf_counter() - began
            log = await retinue.store.events(report.run_id)
    replies = [event for event in log if isinstance(event, ModelReplied)]
    told = dict(FACT.findall(report.text))
    return Measured(
        task=task.name,
        way=way,
        tokens_in=report.usage.input_tokens,
        tokens_out=report.usage.output_tokens,
        cost=report.usage.cost,
        seconds=round(seconds, 2),
        largest_context=max((e.usage.input_tokens for e in replies if e.depth == 0), default=0),
        facts=sum(told.get(name) == word for name, word in task.facts().items()),
        planted=len(task.facts()),
        children=len({event.run_id for event in replies}) - 1,
        status=report.outcome,
    )


def table(found: Sequence[Measured]) -> str:
    lines = [
        "| task | way | tokens in | tokens out | cost | seconds | largest context of the root | facts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        ended = "" if one.status == "completed" else f" ({one.status})"
        cost = "" if one.cost is None else f"${one.cost:.4f}"
        lines.append(
            f"| {one.task} | {one.way} | {one.tokens_in:,} | {one.tokens_out:,} | {cost} | "
            f"{one.seconds:.1f} | {one.largest_context:,} | {one.facts} of {one.planted}{ended} |"
        )
    return "\n".join(lines)


async def main(argv: Sequence[str] | None = None) -> list[Measured]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="scripted", help="provider:name, or 'scripted'")
    parser.add_argument("--read-ms", type=float, default=0.1, help="scripted: milliseconds for a token read")
    parser.add_argument("--write-ms", type=float, default=10.0, help="scripted: milliseconds for one written")
    parser.add_argument("--lines", type=int, default=150, help="lines of each file")
    parser.add_argument("--task", action="append", help="only tasks with this in their name")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that one run may take")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    scripted = given.model == "scripted"
    model: Any = Scripted(given.read_ms, given.write_ms) if scripted else given.model
    environ = {} if scripted else dict(os.environ)
    found: list[Measured] = []
    for task in tasks(given.lines):
        if given.task and not any(part in task.name for part in given.task):
            continue
        for way in WAYS:
            if not (task.chain and way == "in parallel"):  # what is not known yet cannot be handed on
                found.append(await measure(task, way, model, environ, given.timeout))
    print(json.dumps([asdict(one) for one in found], indent=1) if given.json else table(found))
    return found


if __name__ == "__main__":
    asyncio.run(main())
