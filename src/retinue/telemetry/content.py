"""What was said, in the attributes of spans: only where a person wants it, with secrets blanked out and cut.

Called by `spans`. In the forms of the conventions: messages with parts, as JSON texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from retinue.events import (
    Event,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.telemetry import names
from retinue.telemetry.span import Attributes


class SpanContent:
    """Of one workflow. A model call is given what is new to it since the call before: all that a model is
    shown each time would grow with the square of a conversation."""

    def __init__(self, clean: Callable[[str], str], longest: int) -> None:
        self._clean = clean
        self._longest = longest
        self._new: dict[str, list[dict[str, Any]]] = {}

    def asked(self, began: RunStarted, event: Event) -> Attributes:
        """What a run is asked with an event that begins a turn."""
        if isinstance(event, MessageReceived):
            return self._messages(names.INPUT_MESSAGES, [_message("user", _text(event.text))])
        if not isinstance(event, RunStarted):
            return {}
        self._new[event.run_id] = [_message("user", _text(event.rendered or event.prompt))]
        return {
            **self._messages(names.INPUT_MESSAGES, [_message("user", _text(event.prompt))]),
            **self._messages(names.SYSTEM_INSTRUCTIONS, [_text(event.system or began.spec.prompt)]),
        }

    def shown(self, began: RunStarted) -> Attributes:
        """What a model is shown that it was not shown before."""
        new = self._new.pop(began.run_id, [])
        return self._messages(names.INPUT_MESSAGES, new) if new else {}

    def replied(self, event: ModelReplied) -> Attributes:
        parts = [_text(event.message.text)] if event.message.text else []
        if event.thinking:
            parts.insert(0, {"type": "reasoning", "content": event.thinking})
        for call in event.message.calls:
            parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
        said = {**_message("assistant", *parts), "finish_reason": names.FINISHED[event.stop]}
        return self._messages(names.OUTPUT_MESSAGES, [said])

    def called(self, event: ToolCalled) -> Attributes:
        return {names.TOOL_ARGUMENTS: self._cut(self._clean(event.arguments))}

    def returned(self, event: ToolReturned) -> Attributes:
        part = {"type": "tool_call_response", "id": event.call_id, "response": event.text}
        self._new.setdefault(event.run_id, []).append(_message("tool", part))
        return {names.TOOL_RESULT: self._cut(self._clean(event.text))}

    def told(self, event: MessageReceived) -> None:
        self._new.setdefault(event.run_id, []).append(_message("user", _text(event.text)))

    def reported(self, event: RunFinished) -> Attributes:
        said = {**_message("assistant", _text(event.report.text)), "finish_reason": "stop"}
        return self._messages(names.OUTPUT_MESSAGES, [said])

    def failure(self, text: str) -> str:
        return self._cut(self._clean(text))

    def _messages(self, name: str, messages: list[dict[str, Any]]) -> Attributes:
        """As JSON that stays whole: each text in it is cut, not the JSON."""
        return {name: json.dumps([self._bounded(each) for each in messages], ensure_ascii=False)}

    def _bounded(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._cut(self._clean(value))
        if isinstance(value, list):
            return [self._bounded(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, dict):
            return {key: self._bounded(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        return value

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._longest else f"{text[: self._longest]}…"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}
