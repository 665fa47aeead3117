"""Recorded trees as tests: keep a workflow that went well, and have it replayed whenever the tests run.

    retinue runs export LAST -o tests/trees/search.jsonl

    async def test_the_search_still_goes_the_same_way(replay_tree):
        replayed = await replay_tree("tests/trees/search.jsonl", tools=[my_tool])
        assert replayed.same, replayed.diff

The models say what they said, the tools return what they returned; everything else is your code as it is
now. Name tools in `live` to have them really run and their results compared. `record` writes such a file
from a test or a script. Secrets are scrubbed from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from retinue.app import Retinue
from retinue.engine.keep import export_kept, exported_kept
from retinue.engine.replay import Replayed
from retinue.engine.scrub import named_in, scrub, scrubber
from retinue.events import AnyEvent, decode, encode
from retinue.reading import read_own
from retinue.store.memory import MemoryStore
from retinue.threads import to_its_end
from retinue.tools.base import Tool
from retinue.types import AgentSpec

MOST_BYTES = 256_000_000
"""Of a recorded tree: some hundred thousand events."""


async def record(retinue: Retinue, run_id: str, path: str | Path, *, files: str | Path | None = None) -> Path:
    """Write a workflow of an open `retinue` to a file, without secrets.

    `files` is a folder for what is kept with it: pages that were too long to show, which its reports are held
    against.
    """
    row = await retinue.store.run(run_id)
    root_id = row.root_id if row is not None else run_id
    told, secrets = await retinue.store.events(root_id), await asyncio.to_thread(retinue.secrets)
    if files is not None:
        blank = scrubber({*secrets, *named_in(told)})
        await to_its_end(export_kept, await retinue.store.kept(root_id), Path(files), blank)
    return await to_its_end(_write, Path(path), scrub(told, secrets))


def _write(target: Path, events: Sequence[AnyEvent]) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"".join(encode(event) + b"\n" for event in events))
    return target


def load(path: str | Path) -> list[AnyEvent]:
    return [decode(line) for line in read_own(path, MOST_BYTES).splitlines() if line.strip()]


async def replay_file(
    path: str | Path,
    *,
    agents: Iterable[AgentSpec] = (),
    tools: Iterable[Tool] = (),
    live: Iterable[str] = (),
    cwd: str | Path | None = None,
    files: str | Path | None = None,
) -> Replayed:
    """Replay a recorded file against the code as it is now: your `agents` and `tools`, in the folder `cwd`.

    Tools named in `live` really run, and what they return is compared; the others return what they returned.
    `files` is the folder of what was kept with it, from `record` or `retinue runs export --files`.
    """
    events = load(path)
    kept = () if files is None or not events else exported_kept(Path(files), events[0].root_id)
    async with Retinue(
        db=MemoryStore(), model="offline", agents=agents, tools=tools, cwd=cwd, environ={}
    ) as retinue:
        return await retinue.replay_events(events, live_tools=live, kept=kept)
