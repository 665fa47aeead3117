"""A program that hosts runs: told to stop it leaves them, killed it abandons them, and the next one goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from retinue import AgentSpec, Retinue, RunInfo, ToolContext, tool
from retinue.testing import ScriptedModel, call

PROGRAM = """
    import asyncio, signal, sys
    from pathlib import Path
    sys.path.insert(0, {here!r})
    from test_hosting import hosted

    async def main():
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with hosted(Path({folder!r}), hang=True) as retinue:
            for tenant in ("acme", "bolt"):
                await retinue.start("clerk", "go", metadata={{"tenant": tenant}})
            await stop.wait()
            await retinue.leave()

    asyncio.run(main())
"""


@tool(effect="read")
async def step(ctx: ToolContext[str], number: int) -> str:
    """Take a step."""
    return f"{ctx.deps} took step {number}"


CLERK = AgentSpec(name="clerk", description="works", prompt="You work.", tools=[step])


def deps_of(run: RunInfo) -> str:
    return run.metadata["tenant"]


def hosted(folder: Path, *, hang: bool) -> Retinue[str]:
    async def play(request: object) -> object:
        messages = request.messages  # pyright: ignore[reportAttributeAccessIssue]
        if len(messages) == 1:
            return call("step", number=1)
        if hang:
            print("hangs", flush=True)
            await asyncio.Event().wait()
        return f"done: {messages[-1].text}"

    return Retinue[str](
        model=ScriptedModel(play),
        db=f"sqlite:///{folder}/log.db",
        cwd=folder,
        agents=[CLERK],
        deps_factory=deps_of,
    )


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_the_next_process_goes_on_with_what_one_left_or_was_killed_over(
    tmp_path: Path, how: signal.Signals
) -> None:
    program = textwrap.dedent(PROGRAM).format(here=str(Path(__file__).parent), folder=str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(2):
        assert await process.stdout.readline() == b"hangs\n"
    process.send_signal(how)
    await process.wait()
    assert process.returncode == (0 if how is signal.SIGTERM else -signal.SIGKILL)
    async with hosted(tmp_path, hang=False) as retinue:
        taken = await retinue.resume_abandoned()
        assert len(taken) == 2
        texts = sorted([(await retinue.wait(run_id)).text for run_id in taken])
        assert texts == ["done: acme took step 1", "done: bolt took step 1"]
        assert await retinue.resume_abandoned() == []
