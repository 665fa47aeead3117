"""`offline`: a model without a model. It drives the same loop as any other, by rules.

It sees only what every model sees: the system prompt, the messages, the tools on offer. It picks tools from
keywords, reads what they return and writes extractive reports, the same answer to the same request every
time, and every answer in prose ends with a line that says what wrote it. It never opens a connection, and
no tool result can make it fail: what it cannot read it leaves out.

Each role has a module of rules: `root`, `search`, `review`, `plan`, `facts`, `pages`, `sums`, `digest`,
`shorten`, `researching`. `deeds` are what the root does itself, `tour` is about whole projects and files.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

from retinue.models.pictures import pictures, without
from retinue.types import (
    AssistantMessage,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    Reply,
    StopReason,
    TextDelta,
    ToolCall,
    Usage,
)

NAME = "offline"
SIGNATURE = "*Offline model: written by fixed rules from tool results, not by a language model.*"
NO_DATA = "No JSON: no tool gave the offline model anything to fill it from, and it makes nothing up."
CHUNK = 48
MUCH = 40_000


class OfflineModel:
    """A `Model` that works by rules. Holds no state."""

    @property
    def name(self) -> str:
        return NAME

    def lacks(self, settings: ModelSettings) -> dict[str, str]:
        """Rules have nothing that could be set but which tools they are offered, and when."""
        return {n: NAME for n in settings.given if n not in ("tool_choice", "timeout", "max_tokens")}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        request = without(request, pictures(request.messages), "this model works by rules and sees none")
        # Much to read takes a while, and the loop has others to serve.
        much = sum(len(message.text) for message in request.messages) > MUCH
        message, stop = await asyncio.to_thread(answer, request) if much else answer(request)
        for start in range(0, len(message.text), CHUNK):
            yield TextDelta(message.text[start : start + CHUNK])
            await asyncio.sleep(0)  # let the others run, as a stream from the network would
        yield Reply(message=message, usage=Usage(), stop=stop, model=NAME)


def answer(request: ModelRequest) -> tuple[AssistantMessage, StopReason]:
    """The reply to a request."""
    from retinue.models.offline import shorten
    from retinue.models.offline.root import RULES, alone, decide
    from retinue.models.offline.scene import Ask, Say, read
    from retinue.models.offline.shape import to_json
    from retinue.models.offline.words import READ

    scene = read(request)
    if scene.said:
        move = Say(text=scene.said.replace(SIGNATURE, "").replace(NO_DATA, "").strip())
        again = (RULES.get(scene.role) or decide)(scene)
        if isinstance(again, Say):
            move = Say(text=move.text, items=again.items, unable=again.unable)
    elif shorten.asked_for(request.system, scene):
        move = shorten.decide(scene)
    elif scene.role in RULES:
        move = RULES[scene.role](scene)
    elif scene.role in ("", "general") or any(name in scene.tools for name in RULES):
        move = decide(scene)
    else:
        move = alone(scene)
    if isinstance(move, Ask):
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        calls = tuple(
            ToolCall(id=f"offline-{turn}-{index}", name=wish.name, arguments=json.dumps(wish.arguments))
            for index, wish in enumerate(move.wishes)
        )
        return AssistantMessage(text=move.text, calls=calls), "tool_calls"
    if request.schema is not None and (scene.role in RULES or any(not one.failed for one in scene.done)):
        return AssistantMessage(text=to_json(move, request.schema)), "end"
    text = f"{NO_DATA}\n\n{move.text}" if request.schema is not None else move.text
    if len(scene.task) > READ:
        text += f"\n\nOf the prompt's {len(scene.task):,} characters the rules read the first {READ:,}."
    message, stop = _fit(f"{text}\n\n{SIGNATURE}", request.max_tokens)
    return message, "refusal" if move.unable or request.schema is not None else stop


def _fit(text: str, max_tokens: int | None) -> tuple[AssistantMessage, StopReason]:
    if max_tokens is not None and len(text) > max_tokens * 4:
        return AssistantMessage(text=text[: max_tokens * 4]), "length"
    return AssistantMessage(text=text), "end"
