"""A model that says what a test tells it to: no server, no network.

    model = ScriptedModel([call("read", path="a.py"), "It is about bees."])
    ...run an agent on it...
    model.assert_done()

A step is a text (the answer), a tool call or several in a list, a `Step` for everything else, a `Reply`
as it is, a `ModelError` to raise, or a function from the request to any of these (async if it likes). A
request without a step left fails its run; `assert_done` (or leaving a `with` block) fails if there was such
a request, or if steps are left over: a test that asks too often or too rarely does not pass.

Children run at the same time, so their order is not certain. Give each conversation a script of its own:

    ScriptedModel({"You review code": ["fine"], "You plan": ["1. think"], "": [call("planner"), "done"]})

The key is looked for in the system prompt, then in the first user message; the longest that is found wins,
and the empty one fits the rest. Each script is for one conversation; give several of the same kind a
function instead, which sees the request and can answer by its turn: `{"You plan": plan, "": [...]}`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from msgspec import Struct

from retinue.errors import ModelError
from retinue.models.ids import unique_ids
from retinue.testing.script import call
from retinue.types import (
    AssistantMessage,
    ModelEvent,
    ModelRequest,
    Reply,
    Retrying,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    Usage,
    UserMessage,
)

__all__ = ["ScriptedModel", "Step", "call", "turn"]


class Step(Struct, frozen=True, kw_only=True):
    """One answer: its text, its `calls`, its `thinking`; what it took (`usage`), how it `stop`ped if that is
    not clear from the calls, and what its provider wants back (`extra`). `pieces` are the deltas the text is
    cut into; `gate` is waited for before it begins, `last_gate` after its deltas and before the reply;
    `retries` are shown before it."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    usage: Usage = Usage(input_tokens=10, output_tokens=5, cost=0.0)
    stop: StopReason | None = None
    extra: dict[str, Any] | None = None
    pieces: int = 1
    gate: asyncio.Event | None = None
    last_gate: asyncio.Event | None = None
    retries: tuple[Retrying, ...] = ()
    error: ModelError | None = None


Answer = str | ToolCall | list[ToolCall] | Step | Reply | ModelError
Play = Answer | Callable[[ModelRequest], Answer | Awaitable[Answer]]
Plays = Iterable[Play] | Play
"""A script: its steps, one step, or a function that answers every request."""


class ScriptedModel:
    """A model with a script. `requests` is what it was asked, in order."""

    def __init__(
        self,
        steps: Plays | Mapping[str, Plays] | Callable[[ModelRequest], Any],
        *,
        name: str = "scripted",
    ) -> None:
        self._name = name
        scripts = cast("Mapping[str, Plays]", steps) if isinstance(steps, Mapping) else {"": steps}
        self._always: dict[str, Callable[..., Any]] = {k: v for k, v in scripts.items() if callable(v)}
        self._scripts = {k: _listed(k, v) for k, v in scripts.items() if not callable(v)}
        self.requests: list[ModelRequest] = []
        self._missing: list[str] = []

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.assert_done()

    @property
    def name(self) -> str:
        """What logs call it."""
        return self._name

    @property
    def left(self) -> dict[str, int]:
        """How many steps of each script were not played yet."""
        return {key: len(steps) for key, steps in self._scripts.items() if steps}

    def assert_done(self) -> None:
        """Raise if a request found no step, or if steps are left over."""
        if self._missing:
            raise AssertionError("; ".join(self._missing))
        if self.left:
            raise AssertionError(f"steps left over: {self.left}")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Play the step for a request, as every model does: deltas first, the whole reply last."""
        self.requests.append(request)
        step = _as_step(await self._next(request))
        if isinstance(step, Reply):
            yield step
            return
        if step.gate is not None:
            await step.gate.wait()
        for retry in step.retries:
            yield retry
        if step.thinking:
            yield ThinkingDelta(step.thinking)
        size = max(1, -(-len(step.text) // max(1, step.pieces)))
        for start in range(0, len(step.text), size):
            yield TextDelta(step.text[start : start + size])
        if step.last_gate is not None:
            await step.last_gate.wait()
        if step.error is not None:
            error, step = step.error, Step()
            try:
                raise error
            finally:
                del error  # it holds this frame, and all that was asked: it must not be held by it
        yield Reply(
            message=AssistantMessage(text=step.text, calls=unique_ids(step.calls), extra=step.extra),
            usage=step.usage,
            stop=step.stop or ("tool_calls" if step.calls else "end"),
            model=self._name,
            thinking=step.thinking,
            effort=request.effort,
        )

    async def _next(self, request: ModelRequest) -> Answer:
        key = self._key(request)
        play: Any = self._always.get(key)
        if play is None:
            script = self._scripts.get(key)
            if not script:
                said = next((m.text for m in request.messages if isinstance(m, UserMessage)), "")
                missing = (
                    f"the script has no step for this request (turn {turn(request)} of {said[:200]!r}); "
                    f"left: {self.left}"
                )
                self._missing.append(missing)
                raise AssertionError(missing)
            play = script.pop(0)
        while callable(play):
            play = play(request)
            if inspect.isawaitable(play):
                play = await play
        return play

    def _key(self, request: ModelRequest) -> str:
        said = next((m.text for m in request.messages if isinstance(m, UserMessage)), "")
        for text in (request.system, said):
            fitting = [key for key in (*self._scripts, *self._always) if key and key in text]
            if fitting:
                return max(fitting, key=len)
        return ""


def turn(request: ModelRequest) -> int:
    """How many answers are already in the conversation: 0 for a first question."""
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


def _listed(key: str, script: Any) -> list[Play]:
    """The steps of a script. What stands alone is its one step."""
    if isinstance(script, str | ToolCall | Step | Reply | ModelError):
        return [script]
    if isinstance(script, Iterable):
        return list(cast("Iterable[Play]", script))
    whose = f" for {key!r}" if key else ""
    raise TypeError(
        f"the script{whose} is {script!r}: give a list of steps, one step, or a function of the request"
    )


def _as_step(answer: Answer) -> Step | Reply:
    if isinstance(answer, str):
        return Step(text=answer)
    if isinstance(answer, ToolCall):
        return Step(calls=(answer,))
    if isinstance(answer, list):
        return Step(calls=tuple(answer))
    if isinstance(answer, ModelError):
        return Step(error=answer)
    if not isinstance(cast("Any", answer), Step | Reply):
        kind = type(answer).__name__
        raise TypeError(
            f"a step of a ScriptedModel is {kind}: write a text, call(…), a list of calls, turn(…), a Step, "
            "a Reply, a ModelError to raise, or a function of the request that gives one of these"
        )
    return answer
