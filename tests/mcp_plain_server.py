"""An MCP server of the older revisions in a few lines: JSON in each line, no library, so that it starts at once.

`python mcp_plain_server.py [--log FILE] [--describe TEXT] [--many N] [--closed] [--toolless] [--mute]`.
It can misbehave: `crash`, `hang`, `flood`, `huge`, `grow`, `raw`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

READS: Any = {"readOnlyHint": True, "openWorldHint": False}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def log(text: str) -> None:
    if path := option("--log"):
        with open(path, "a", encoding="utf-8") as out:
            out.write(f"{text}\n")


def about(given: dict[str, Any]) -> str:
    if path := option("--about"):
        with open(path, encoding="utf-8") as text:
            return text.read()
    return str(given["about"])


def text_schema(*names: str, kind: str = "string") -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name in names}, "required": list(names)}


def tool(name: str, schema: dict[str, Any], description: str = "", **annotations: Any) -> dict[str, Any]:
    made = {"name": name, "description": description or f"does {name}", "inputSchema": schema}
    return {**made, "annotations": annotations} if annotations else made


class Server:
    def __init__(self) -> None:
        self.tools = [
            tool("echo", text_schema("text"), option("--describe", "says it back"), **READS),
            tool("add", text_schema("a", "b", kind="integer"), **READS),
            tool("look", text_schema("text"), "searches the world", readOnlyHint=True),
            tool("note", text_schema("text"), "writes it down"),
            tool("token", text_schema(), "tells its token", **READS),
            tool("picture", text_schema(), **READS),
            tool("long", text_schema("n", kind="integer"), **READS),
            tool("steps", text_schema("n", kind="integer"), **READS),
            tool("ask", text_schema("about"), **READS),
            tool("compose", text_schema("about"), **READS),
            tool("raw", text_schema("shape"), **READS),
            *(
                tool(name, text_schema(), **READS)
                for name in ("crash", "hang", "flood", "huge", "grow", "pid")
            ),
            *(
                tool(f"extra_{n}", text_schema("text"), f"extra tool number {n}", **READS)
                for n in range(int(option("--many", "0")))
            ),
        ]
        if "--closed" in sys.argv:
            self.tools = [each for each in self.tools if each.get("annotations") == READS]
        if "--toolless" in sys.argv:
            self.tools = []
        self.asked = 0
        self.later: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def answer(self, message: dict[str, Any]) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
        if number is None:
            log(f"{method}")
            return
        known = {
            "initialize": self.initialize,
            "tools/list": lambda p: {"tools": self.tools},
            "tools/call": self.call,
            "resources/list": lambda p: {
                "resources": [{"uri": "memo://one", "name": "one", "description": "a memo"}]
            },
            "resources/templates/list": lambda p: {
                "resourceTemplates": [{"uriTemplate": "memo://{name}", "name": "memos"}]
            },
            "resources/read": lambda p: {"contents": [{"uri": p["uri"], "text": f"the text of {p['uri']}"}]},
            "prompts/list": lambda p: {
                "prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]
            },
            "prompts/get": lambda p: {
                "messages": [
                    {"role": "user", "content": {"type": "text", "text": f"greet {p['arguments']['who']}"}}
                ]
            },
        }.get(str(method))
        if known is None:
            self.send({"id": number, "error": {"code": -32601, "message": f"no method {method}"}})
            return
        self.current, self.number = params, number
        result = known(params)
        if result is not None:
            self.send({"id": number, "result": result})

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        log("started")
        log(f"environment {' '.join(sorted(os.environ))}")
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "plain", "version": "1"},
            "instructions": "Speak of plain things plainly.",
        }

    def call(self, params: dict[str, Any]) -> dict[str, Any] | None:
        name, given = params["name"], params.get("arguments") or {}
        log(f"call {name} {json.dumps(given)}")
        said = getattr(self, f"do_{name}", None)
        if said is None:
            return {"content": [{"type": "text", "text": f"no tool {name}"}], "isError": True}
        return said(given)

    def text(self, text: str, **more: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": text}], **more}

    def do_echo(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.text(f"echo: {given['text']}")

    def do_look(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.text(f"found nothing about {given['text']}")

    def do_note(self, given: dict[str, Any]) -> dict[str, Any] | None:
        if given["text"] == "hang":
            return None
        if "--die-on-note" in sys.argv:
            os._exit(4)
        return self.text(f"noted {given['text']}")

    def do_add(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.text("see the data", structuredContent={"sum": given["a"] + given["b"]})

    def do_token(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.text(f"the token is {os.environ.get('TOKEN', 'not there')}")

    def do_pid(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.text(f"pid {os.getpid()}")

    def do_picture(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}

    def do_long(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.text("x" * given["n"])

    def do_steps(self, given: dict[str, Any]) -> dict[str, Any]:
        token = (self.current.get("_meta") or {}).get("progressToken")
        for n in range(given["n"]):
            part = {
                "progressToken": token,
                "progress": n + 1,
                "total": given["n"],
                "message": f"step {n + 1}",
            }
            self.send({"method": "notifications/progress", "params": part})
        return self.text("all steps done")

    def do_ask(self, given: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        schema = {
            "type": "object",
            "properties": {"colour": {"type": "string"}, "count": {"type": "integer", "default": 1}},
            "required": ["colour"],
        }
        schema = json.loads(option("--form")) if option("--form") else schema
        params = {"message": f"Which colour for {about(given)}?", "requestedSchema": schema}
        self.send({"id": f"ask-{self.asked}", "method": "elicitation/create", "params": params})
        reply = self.reply()
        return self.text(f"the person said {json.dumps(reply.get('result') or reply.get('error'))}")

    def do_compose(self, given: dict[str, Any]) -> dict[str, Any]:
        """Has the client's model write something."""
        self.asked += 1
        content = {"type": "text", "text": f"Write a line about {about(given)}."}
        params = {
            "messages": [{"role": "user", "content": content}],
            "systemPrompt": "You write for a server.",
            "maxTokens": 50,
        }
        params |= json.loads(option("--compose", "{}"))
        self.send({"id": f"ask-{self.asked}", "method": "sampling/createMessage", "params": params})
        reply = self.reply()
        return self.text(f"the model said {json.dumps(reply.get('result') or reply.get('error'))}")

    def reply(self) -> dict[str, Any]:
        """What the client answers. Other calls that come meanwhile wait."""
        while True:
            message = json.loads(sys.stdin.readline())
            if "method" not in message:
                return message
            self.later.append(message)

    def do_raw(self, given: dict[str, Any]) -> None:
        """Answers with a line that is no answer, or nested too deeply for a reader of JSON."""
        deep = '{"a":' * 5000 + "1" + "}" * 5000
        line = given["shape"].replace("ID", json.dumps(self.number)).replace("DEEP", deep)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def do_crash(self, given: dict[str, Any]) -> None:
        sys.stderr.write("out of cheese\n")
        sys.stderr.flush()
        os._exit(3)

    def do_hang(self, given: dict[str, Any]) -> None:
        return None

    def do_flood(self, given: dict[str, Any]) -> None:
        line = (
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/message",
                    "params": {"level": "info", "data": "x"},
                }
            )
            + "\n"
        )
        while True:
            sys.stdout.write(line * 1000)

    def do_huge(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.text("x" * 50_000_000)

    def do_grow(self, given: dict[str, Any]) -> dict[str, Any]:
        self.tools.append(tool("late", text_schema("text"), "came later", **READS))
        self.tools = [each for each in self.tools if each["name"] != "long"]
        self.send({"method": "notifications/tools/list_changed"})
        return self.text("there are other tools now")

    def do_late(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.text(f"late: {given['text']}")


def main() -> None:
    if "--mute" in sys.argv:
        time.sleep(3600)
    server = Server()
    for line in sys.stdin:
        server.answer(json.loads(line))
        while server.later:
            server.answer(server.later.pop(0))


if __name__ == "__main__":
    main()
