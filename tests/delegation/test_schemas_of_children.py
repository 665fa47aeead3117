"""What a call must look like, and what a child is held to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from delegating import echo, error_of

from retinue.events import (
    ChildStarted,
)
from retinue.tools.schemas import schema_fault, schema_problems
from trees import Stage, agent, results


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "strng"}, "type: 'strng' is not valid under any of the given schemas"),
        ({"properties": {"a": 3}}, "properties.a: 3 is not of type 'object', 'boolean'"),
        (
            {"$ref": "https://example.com/schema.json"},
            "it refers to 'https://example.com/schema.json', which is not in it: nothing is fetched, so put it "
            "under $defs",
        ),
        (
            {"items": {"$ref": "#/$defs/missing"}},
            "it refers to '#/$defs/missing', which is not in it: nothing is fetched, so put it under $defs",
        ),
    ],
)
async def test_a_schema_that_cannot_be_used_starts_nothing(schema: dict[str, Any], says: str) -> None:
    call = {"name": "h", "prompt": "x", "output_schema": schema}
    stage = Stage({"root": [[("spawn_agent", call)], "done"]}, yes=True)
    await stage.run()
    assert error_of(stage) == f"output_schema is not a usable JSON schema: {says}"
    assert not any(isinstance(e, ChildStarted) for e in await stage.log())


async def test_no_schema_makes_anybody_fetch_anything() -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"type":"object"}')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/inside"
        # Fetching it in this very thread, as a validator would, must not be possible at all.
        problems = await asyncio.to_thread(schema_problems, {"a": 1}, {"$ref": address})
    assert problems == [
        f"it refers to '{address}', which is not in it: nothing is fetched, so put it under $defs"
    ]
    assert asked == []


def test_a_schema_may_refer_to_its_own_parts_and_to_the_standards() -> None:
    schema: dict[str, Any] = {
        "$defs": {"n": {"type": "integer"}},
        "properties": {
            "n": {"$ref": "#/$defs/n"},
            "s": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        },
    }
    assert schema_fault(schema) is None
    assert schema_problems({"n": 3, "s": {"type": "object"}}, schema) == []
    assert schema_problems({"n": "x"}, schema) == ["n: 'x' is not of type 'integer'"]
    assert schema_problems(1, {"$ref": "#"}) == ["it cannot be held against its schema (RecursionError)"]


async def test_arguments_nested_too_deep_are_an_error_that_the_model_reads() -> None:
    deep = '{"text": ' + "[" * 100_000
    stage = Stage(
        {"root": [[("echo", deep)], [("helper", deep)], "done"]}, agents=[agent("helper")], tools=[echo]
    )
    report = await stage.run()
    says = "the arguments are nested too deep: more than 100 levels deep. Send one flat object."
    assert [message.text for message in results(stage.model.of("root")[-1])] == [says, says]
    assert report.text == "done"


async def test_an_answer_nested_too_deep_does_not_fit_and_ends_nothing() -> None:
    spec = agent("root", output_schema={"type": "object"})
    stage = Stage({"root": ["[" * 100_000, '{"a": 1}']})
    report = await stage.run(spec)
    assert (report.status, report.data) == ("completed", {"a": 1})
