"""A fake model provider: a real HTTP server on a free local port that speaks the wire formats strictly.

    async with FakeProvider() as provider:
        provider.reply(calls=[call("read", path="a.py")])
        provider.reply(text="It is about bees.")
        ...point your agent at provider.openai_url, and ask...
        assert provider.requests[1].messages[-1].text == "Bees are insects."
        assert provider.served == 2

Every request is checked the way the real provider checks it, and refused with the real provider's error: a
missing key, a tool result without its call, a schema it would not take. Answers come from the queue that
`reply` and `fail` fill, or from a handler, a function from `SeenRequest` to `Script`:

    def answer(request: SeenRequest) -> Script:
        return Script(text="done") if request.turn else Script(calls=(call("ls"),))

    async with FakeProvider(answer) as provider: ...

See `Script` for all that can go wrong on purpose.

In a process of its own, for tests that kill the program under test and then count what was paid for:

    python -m retinue.testing.provider --port 0 --script answers.json --log served.jsonl

prints one line of JSON with its addresses and writes a line for each answer it begins to serve. The script
file is a list of rules, the first that fits is used; `match` is a regular expression looked for in the
system prompt and the first user message, and the answer is the one at the place of the conversation's turn
(the last one from there on), so that a call made again after a restart gets the same answer:

    [{"match": "reviewer", "replies": [{"calls": [{"name": "ls", "arguments": "{}", "id": ""}]},
                                       {"text": "looks good"}]},
     {"replies": [{"text": "done"}]}]
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import secrets
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from aiohttp import web

from retinue.reading import MOST_SETTINGS, read_own
from retinue.testing import wire_anthropic, wire_gemini, wire_openai, wire_responses
from retinue.testing.script import Rejected, Script, SeenRequest
from retinue.types import StopReason, ToolCall, Usage

Handler = Callable[[SeenRequest], Script | Awaitable[Script]]


class Form(Protocol):
    """A wire format: each of the `wire_` modules beside this one."""

    def key_of(self, headers: dict[str, str]) -> str: ...
    def wrong_key(self, key: str) -> Rejected: ...
    def parse(self, raw: bytes, headers: dict[str, str], model: str) -> SeenRequest: ...
    def refuse(self, error: Rejected) -> Any: ...
    def in_stream(self, script: Script) -> bytes: ...
    def write(self, script: Script, seen: SeenRequest, raw: bytes) -> list[bytes]: ...


_ENVELOPES = {"openai": "call_", "responses": "call_", "anthropic": "toolu_", "gemini": ""}


class FakeProvider:
    """The server. `keys`, if given, are the only ones it accepts; `models` is what it lists.

    `requests` are those that passed every check, `rejected` the refusals it sent on its own account,
    `served` counts answers that were begun, which a real provider would have charged for; `left` counts
    clients that went away before their answer was complete; `most_at_once` is the most that waited for an
    answer together.
    """

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        keys: Iterable[str] | None = None,
        models: Iterable[str] = ("fake-model",),
        port: int = 0,
        on_served: Callable[[SeenRequest], None] | None = None,
    ) -> None:
        self.handler = handler
        self.keys = None if keys is None else set(keys)
        self.models = tuple(models)
        self.port = port
        self.requests: list[SeenRequest] = []
        self.rejected: list[str] = []
        self.served = 0
        self.left = 0
        self.at_once = 0
        self.most_at_once = 0
        self._queue: deque[Script] = deque()
        self._on_served = on_served
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()

    async def __aenter__(self) -> FakeProvider:
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_post("/v1/messages", self._anthropic)
        app.router.add_post("/v1beta/models/{model}:streamGenerateContent", self._gemini)
        app.router.add_get("/v1/models", self._list)
        # With cancellation a handler learns at once that its client is gone.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=2048)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """Its address for clients of OpenAI's formats."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """Its address for clients of Anthropic's format."""
        return self.url

    @property
    def gemini_url(self) -> str:
        """Its address for clients of Gemini's format."""
        return self.url

    def environ(self, key: str = "test-key") -> dict[str, str]:
        """The environment variables that make this server every provider Retinue knows by default."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": key,
            "GEMINI_BASE_URL": self.gemini_url,
            "GEMINI_API_KEY": key,
        }

    @property
    def pending(self) -> int:
        """Answers that are queued and not yet asked for."""
        return len(self._queue)

    def reply(
        self,
        text: str = "",
        *,
        calls: Iterable[ToolCall] = (),
        usage: Usage | None = None,
        stop: StopReason | None = None,
        **more: Any,
    ) -> None:
        """Queue an answer. `more` are other fields of `Script`."""
        self.add(Script(text=text, calls=tuple(calls), usage=usage, stop=stop, **more))

    def fail(
        self, status: int, message: str = "", *, retry_after: float | str | None = None, error: str = ""
    ) -> None:
        """Queue a refusal: 429, 500, 529 and so on, in the form of whichever provider is asked."""
        self.add(Script(status=status, message=message, retry_after=retry_after, error=error))

    def add(self, *scripts: Script) -> None:
        """Queue answers as they are."""
        self._queue.extend(scripts)

    async def _list(self, request: web.Request) -> web.Response:
        data = [{"id": name, "object": "model", "created": 1, "owned_by": "fake"} for name in self.models]
        return web.json_response({"object": "list", "data": data})

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, "openai", wire_openai)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, "responses", wire_responses)

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, "anthropic", wire_anthropic)

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("alt") != "sse":
            return _refusal(wire_gemini, Rejected("this server only streams: add alt=sse"))
        return await self._serve(request, "gemini", wire_gemini)

    async def _serve(self, request: web.Request, wire: str, form: Form) -> web.StreamResponse:
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            key = form.key_of(headers)
            if self.keys is not None and key not in self.keys:
                raise form.wrong_key(key)
            seen = form.parse(raw, headers, request.match_info.get("model", ""))
        except Rejected as error:
            self.rejected.append(str(error))
            return _refusal(form, error)
        seen = msgspec.structs.replace(seen, key=key)
        self.requests.append(seen)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._answer(request, wire, form, seen, raw)
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise
        finally:
            self.at_once -= 1

    async def _answer(
        self, request: web.Request, wire: str, form: Form, seen: SeenRequest, raw: bytes
    ) -> web.StreamResponse:
        script = await self._next(seen)
        if script is None:
            error = Rejected("no answer is scripted for this request", status=500)
            self.rejected.append(f"{error}: {seen.asked[:200]!r}, turn {seen.turn}")
            return _refusal(form, error)
        if script.gate is not None:
            await script.gate.wait()
        if script.status != 200:
            message = script.message or f"the fake provider was told to answer {script.status}"
            refusal = _refusal(form, Rejected(message, status=script.status, error=script.error))
            refusal.headers.update(script.headers)
            if script.retry_after is not None:
                refusal.headers["Retry-After"] = str(script.retry_after)
            return refusal
        self.served += 1
        if self._on_served is not None:
            self._on_served(seen)
        script = _with_ids(script, _ENVELOPES[wire])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **script.headers})
        await response.prepare(request)
        events = [] if script.nothing else form.write(script, seen, raw)
        if not await self._send(request, response, script, _faulty(events, script, form)):
            return response
        await response.write_eof()
        return response

    async def _next(self, seen: SeenRequest) -> Script | None:
        if self._queue:
            return self._queue.popleft()
        if self.handler is None:
            return None
        found = self.handler(seen)
        return await found if inspect.isawaitable(found) else found

    async def _send(
        self, request: web.Request, response: web.StreamResponse, script: Script, events: list[bytes]
    ) -> bool:
        """Whether the answer was sent to its end."""
        stops = [n for n in (script.drop_after, script.hang_after) if n is not None]
        chunks = _chunks(events[: min(stops)] if stops else events, script)
        for chunk in chunks:
            if script.delay:
                await asyncio.sleep(script.delay)
            await response.write(chunk)
        if script.drop_after is not None:
            await asyncio.sleep(0)
            if request.transport is not None:
                request.transport.abort()
            return False
        if script.hang_after is not None:
            await self._closing.wait()
            return False
        return True


def _refusal(form: Form, error: Rejected) -> web.Response:
    return web.json_response(form.refuse(error), status=error.status)


def _with_ids(script: Script, prefix: str) -> Script:
    """Calls without an id get one, in the provider's style."""
    if all(call.id for call in script.calls):
        return script
    calls = tuple(
        call if call.id else msgspec.structs.replace(call, id=prefix + secrets.token_hex(8))
        for call in script.calls
    )
    return msgspec.structs.replace(script, calls=calls)


def _faulty(events: list[bytes], script: Script, form: Form) -> list[bytes]:
    if script.garbage_after is not None:
        return [
            *events[: script.garbage_after],
            b'data: {"choices": [{"del\n\n',
            *events[script.garbage_after :],
        ]
    if script.error_after is not None:
        return [*events[: script.error_after], form.in_stream(script)]
    return events


def _chunks(events: list[bytes], script: Script) -> list[bytes]:
    """The events as they go onto the wire."""
    if script.rewrite is not None:
        events = [script.rewrite(event) for event in events]
    if script.comments:
        events = [b": still here\n\n" + event + b":\n\n" for event in events]
    if script.crlf:
        events = [event.replace(b"\n", b"\r\n") for event in events]
    if script.split is not None:
        whole = b"".join(events)
        return [whole[i : i + script.split] for i in range(0, len(whole), script.split)]
    if not script.delay:
        return [b"".join(events)] if events else []
    return events


class ReplyRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversations get which answers: `replies` in turn. An empty `match` fits every conversation."""

    replies: tuple[Script, ...]
    match: str = ""


def by_turn(rules: Iterable[ReplyRule]) -> Handler:
    """A handler that finds, among `rules`, the one for a conversation and the answer for its turn.

    It keeps no state: the same conversation always gets the same answer, before and after a restart.
    """
    kept = tuple(rules)

    def answer(seen: SeenRequest) -> Script:
        for rule in kept:
            if re.search(rule.match, f"{seen.system}\n{seen.asked}"):
                return rule.replies[min(seen.turn, len(rule.replies) - 1)]
        return Script(status=500, message=f"no rule fits this conversation: {seen.asked[:200]!r}")

    return answer


def _writer(log: Path | None) -> Callable[[SeenRequest], None] | None:
    """Writes a line for each answer, without a buffer: a test may read it at any moment."""
    if log is None:
        return None
    stream = log.open("ab", buffering=0)

    def write(seen: SeenRequest) -> None:
        line = {"wire": seen.wire, "model": seen.model, "turn": seen.turn, "asked": seen.asked[:500]}
        stream.write(msgspec.json.encode(line) + b"\n")

    return write


async def _run(port: int, rules: list[ReplyRule], log: Path | None) -> None:
    async with FakeProvider(by_turn(rules), port=port, on_served=_writer(log)) as provider:
        addresses = {
            "port": provider.port,
            "openai_url": provider.openai_url,
            "anthropic_url": provider.anthropic_url,
            "gemini_url": provider.gemini_url,
        }
        sys.stdout.write(msgspec.json.encode(addresses).decode() + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="python -m retinue.testing.provider")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument("--script", type=Path, required=True, help="JSON file with the rules")
    parser.add_argument("--log", type=Path, help="file that gets a line for each answer served")
    given = parser.parse_args()
    rules = msgspec.json.decode(read_own(given.script, MOST_SETTINGS), type=list[ReplyRule])
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(given.port, rules, given.log))


if __name__ == "__main__":
    main()
