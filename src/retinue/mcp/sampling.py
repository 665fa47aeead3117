"""What a server wants a model to write for it (*sampling*), as a request of ours: text alone, no tools."""

from __future__ import annotations

import mcp_types

from retinue.errors import Refused
from retinue.types import AssistantMessage, ModelRequest, ModelSettings, UserMessage

MOST_TOKENS = 4096
"""Tokens of an answer, however many a server wants."""


def asked_of_model(params: mcp_types.CreateMessageRequestParams) -> ModelRequest:
    """Raises `Refused` for what is not plain text: a person is to see all of it."""
    if params.tools:
        raise Refused("a model that writes for a server has no tools")
    messages = tuple(
        UserMessage(text=_text(one)) if one.role == "user" else AssistantMessage(text=_text(one))
        for one in params.messages
    )
    if not messages or not isinstance(messages[-1], UserMessage):
        raise Refused("the last message is not one of the user")
    return ModelRequest(
        system=params.system_prompt or "",
        messages=messages,
        max_tokens=max(1, min(params.max_tokens, MOST_TOKENS)),
        temperature=params.temperature,
        settings=ModelSettings(stop=tuple(params.stop_sequences or ())),
    )


def _text(message: mcp_types.SamplingMessage) -> str:
    texts: list[str] = []
    for block in message.content_as_list:
        if not isinstance(block, mcp_types.TextContent):
            raise Refused("a model that writes for a server is given text alone")
        texts.append(block.text)
    return "\n\n".join(texts)
