"""Which engine runs the code, and that the model is told of that one and no other."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from retinue.app import Retinue
from retinue.sandbox import engine_here
from retinue.settings import CodeSettings
from retinue.store.memory import MemoryStore
from trees import Cast, agent, results

# On a machine that this engine does not know. A Linux process can really say so of itself: PER_LINUX32.
ELSEWHERE = """
import asyncio, ctypes, json, logging, sys
sys.path.insert(0, "tests")
ctypes.CDLL(None).personality(0x0008)
from retinue.app import Retinue
from retinue.store.memory import MemoryStore
from trees import Cast, agent

async def main():
    logging.basicConfig(stream=sys.stderr)
    cast = Cast({"coder": [[("run_code", {"code": "6 * 7"})], "done"]})
    async with Retinue(model=cast, db=MemoryStore(), agents=[agent("coder", mode="code")], environ={},
                       settings={"code.engine": "cpython"}) as retinue:
        for _ in range(2):
            await retinue.run("coder", "compute")
    told = cast.of("coder")[0].tools[-1].description
    print(json.dumps({"told": told, "result": cast.of("coder")[1].messages[-1].text}))

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for another personality")
def test_where_cpython_is_not_possible_the_model_is_told_what_monty_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "but not: `yield`" in said["told"]
    assert "whole language" not in said["told"]
    assert said["result"] == "value: 42"
    assert done.stderr.count("code.engine = cpython is not possible here") == 1


async def test_one_run_may_have_another_engine_and_other_limits() -> None:
    if engine_here(CodeSettings(engine="cpython"))[1]:
        pytest.skip("this machine has only monty")
    code = "import statistics\nstatistics.mean([1, 2])"
    cast = Cast({"coder": [[("run_code", {"code": code})], "done"]})
    async with Retinue(
        model=cast, db=MemoryStore(), agents=[agent("coder", mode="code")], environ={}
    ) as retinue:
        run_id = await retinue.start(
            "coder", "compute", settings={"code.engine": "cpython", "code.memory_mb": 99}
        )
        await retinue.wait(run_id)
        first, second = cast.of("coder")
        assert "whole language" in first.tools[-1].description
        assert "99 MB" in first.tools[-1].description
        assert results(second)[0].text == "value: 1.5"
        await retinue.run("coder", "compute", settings={"code.engine": "monty"})
        assert "but not: `yield`" in cast.of("coder")[2].tools[-1].description
        assert "ModuleNotFoundError" in results(cast.of("coder")[3])[0].text
