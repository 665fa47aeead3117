"""The bare `openai` SDK in the smallest loop that streams: what everything else is measured against."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from openai import AsyncOpenAI  # pyright: ignore[reportMissingImports]  # in a venv of its own


def schema(name: str, argument: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


async def loop(
    client: AsyncOpenAI, system: str, user: str, tool: Any, run: Callable[..., Awaitable[str]]
) -> str:
    messages: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    while True:
        text, calls = "", dict[int, Any]()
        stream = await client.chat.completions.create(
            model="fake-model",
            messages=messages,
            tools=[tool],
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if not chunk.choices:
                continue
            delta = chunk.choices[0].delta
            text += delta.content or ""
            for part in delta.tool_calls or ():
                empty = {
                    "id": part.id,
                    "type": "function",
                    "function": {"name": part.function.name, "arguments": ""},
                }
                found = calls.setdefault(part.index, empty)
                found["function"]["arguments"] += part.function.arguments or ""
        if not calls:
            return text
        made = list(calls.values())
        messages.append({"role": "assistant", "content": text or None, "tool_calls": made})
        results = await asyncio.gather(*(run(**json.loads(c["function"]["arguments"])) for c in made))
        messages += [
            {"role": "tool", "tool_call_id": c["id"], "content": r}
            for c, r in zip(made, results, strict=True)
        ]


async def main(url: str, n: int, k: int, repeats: int) -> None:
    client = AsyncOpenAI(base_url=url, api_key="key")

    async def echo(text: str) -> str:
        return text

    async def child(task: str) -> str:
        return await loop(client, "CHILD", task, schema("echo", "text"), echo)

    async def once() -> None:
        text = await loop(client, "PARENT", f"N={n} K={k}", schema("child", "task"), child)
        assert text == f"PARENT-DONE {n}", text

    await once()
    samples: list[float] = []
    walls: list[float] = []
    for _ in range(repeats):
        began, wall = time.process_time(), time.perf_counter()
        await once()
        samples.append((time.process_time() - began) * 1000 / (2 + n * (k + 1)))
        walls.append(time.perf_counter() - wall)
    print(json.dumps({"cpu_ms_per_turn": samples, "wall_s": walls}))


url, n, k, repeats = sys.argv[1:]
asyncio.run(main(url, int(n), int(k), int(repeats)))
