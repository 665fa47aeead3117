"""Make docs/images/tree.svg: the live tree of a real run in a real terminal (tmux), as a picture.

The model is the fake provider, so that there is something to see at the moment of the picture: three
children at work side by side.
"""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from retinue.testing import FakeProvider, Script, SeenRequest, call
from retinue.types import ToolMessage

ROOT = Path(__file__).parent.parent
COLUMNS, LINES = 104, 16
QUESTION = "why does the parser stumble over an empty stream?"


async def answer(request: SeenRequest) -> Script:
    seen = [m for m in request.messages if isinstance(m, ToolMessage)]
    if "You are `general`" in request.system:
        if not seen:
            return Script(
                text="I will look from three sides.",
                calls=(
                    call("code-search", query="where does the parser handle empty input?"),
                    call("code-review", target="src/retinue/models/sse.py", focus="bugs"),
                    call("planner", task="make the parser take an empty stream, with a test first"),
                ),
            )
        return Script(text="done")
    plans = {
        "code-search": [call("grep", pattern="def feed"), call("read", path="src/retinue/models/sse.py")],
        "code-review": [call("read", path="src/retinue/models/sse.py"), call("grep", pattern="yield")],
        "planner": [call("glob", pattern="tests/models/*.py"), call("grep", pattern="def test_.*split")],
    }
    if "`code-review`" in request.system and len(seen) == 2:
        return Script(text="No bug in what I read. `src/retinue/models/sse.py:24` handles an empty chunk.")
    plan = next(plan for name, plan in plans.items() if f"`{name}`" in request.system)
    await asyncio.sleep(0.5)
    if len(seen) < len(plan):
        return Script(calls=(plan[len(seen)],))
    await asyncio.sleep(600)
    return Script(text="done")


async def capture(url: str, folder: str) -> str:
    def tmux(*arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", "retinue", *arguments], capture_output=True, text=True, check=True
        ).stdout

    command = (
        f"cd {ROOT}; clear; env OPENAI_API_KEY=key OPENAI_BASE_URL={url} RETINUE_DB={folder}/log.db "
        f"RETINUE_CONFIG=/dev/null .venv/bin/retinue ask '{QUESTION}'; sleep 60"
    )
    await asyncio.to_thread(
        tmux, "new-session", "-d", "-s", "picture", "-x", str(COLUMNS), "-y", str(LINES), command
    )
    try:
        await asyncio.sleep(8)
        return await asyncio.to_thread(tmux, "capture-pane", "-t", "picture", "-e", "-p")
    finally:
        await asyncio.to_thread(tmux, "kill-server")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with FakeProvider(answer) as provider:
            screen = await capture(provider.openai_url, folder)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip()))
    target = ROOT / "docs" / "images" / "tree.svg"
    target.parent.mkdir(parents=True, exist_ok=True)
    title = f'retinue ask "{QUESTION}"'
    # Without the fonts that Rich would have every reader fetch.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=title), flags=re.S)
    target.write_text(picture.replace("Fira Code", "ui-monospace"))
    print(screen)


asyncio.run(main())
