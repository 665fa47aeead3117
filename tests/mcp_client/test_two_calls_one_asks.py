"""A question of a server is put for the call that it is for, also where several are under way."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from mcp_world import World, trusting
from retinue.mcp.connection import ServerConnection
from retinue.tools.base import FormFilled, FormQuestion, ToolContext
from retinue.workspace import Files

SERVER = """\
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def ask(name):
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    send(id=f"for {name}", method="elicitation/create", params={"message": name, "requestedSchema": schema})

def end(number, text):
    send(id=number, result={"content": [{"type": "text", "text": text}]})

waiting, asking = {}, sys.argv[1].split(",")
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                 "serverInfo": {"name": "two", "version": "1"}}
        send(id=number, result=about)
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("one", "two")]
        send(id=number, result={"tools": tools})
    elif method == "tools/call":
        waiting[message["params"]["name"]] = number
        if len(waiting) == 2:
            for name in asking:
                ask(name)
            for name in waiting:
                if name not in asking:
                    end(waiting[name], "not asked")
    elif method is None and str(number).startswith("for "):
        end(waiting[number[4:]], message["result"]["action"])
"""


@pytest.mark.parametrize(("asking", "said"), [("one", "accept"), ("two", "accept"), ("one,two", None)])
async def test_a_question_is_for_the_call_that_asks(world: World, asking: str, said: str | None) -> None:
    (world.project / "server.py").write_text(SERVER)
    world.add("own", {"command": sys.executable, "args": ["-S", "server.py", asking]})
    asked: list[tuple[str, str]] = []

    async def called(connection: ServerConnection, name: str) -> str:
        async def inquire(question: FormQuestion) -> FormFilled:
            asked.append((name, question.text))
            return FormFilled(action="accept", content={"x": "y"})

        context: ToolContext[Any] = ToolContext(
            run_id=f"run of {name}",
            root_id="r",
            depth=0,
            agent="general",
            call_id=name,
            files=Files(project=world.project, workspace=None),
            progress=lambda text: None,
            denied=lambda what, detail: None,
            inquire=inquire,
        )
        found: Any = await connection.call(name, {}, context)
        return found.content[0].text

    async with world.open() as retinue:
        await trusting(retinue, "start")
        servers = retinue.services.mcp
        connection = ServerConnection(servers.servers["own"], servers.means(retinue.settings.mcp))
        await connection.open()
        try:
            async with asyncio.timeout(60):
                one, two = await asyncio.gather(called(connection, "one"), called(connection, "two"))
        finally:
            await connection.close()
    assert all(name == question for name, question in asked), "each is asked about its own"
    if said is None:
        assert sorted((one, two)) == ["accept", "cancel"], "none is told from the other: one is not asked"
    else:
        assert {"one": one, "two": two}[asking] == said
        assert asked == [(asking, asking)]
