"""What a model is to the rest of Retinue: something that streams an answer to a request.

Streaming is the only way. A stream yields deltas as they come and exactly one `Reply` as its last item;
it raises `ModelError` when there will be none. Closing the iterator early closes the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol, runtime_checkable

from retinue.errors import ModelError
from retinue.types import Model as Model
from retinue.types import ModelSettings

SECONDS = 120.0
"""How long a call may take where nobody says."""
LOCAL_SECONDS = 600.0
"""The same for a server on this machine, which may have no more than a processor to compute with."""


@runtime_checkable
class Discerning(Protocol):
    """A model that knows which settings its provider does not have. Of any other nothing is known."""

    def lacks(self, settings: ModelSettings) -> Mapping[str, str]:
        """The settings among these that it has not, each with the name of the model that lacks it."""
        ...


def lacking(model: Model, settings: ModelSettings) -> Mapping[str, str]:
    """Which of these settings a model does not have, as far as it is known."""
    return model.lacks(settings) if isinstance(model, Discerning) else {}


WHO_HAS = {
    "effort": "models that reason",
    "temperature": "models that do not reason by themselves",
    "top_p": "models that do not reason by themselves",
    "stop": "chat completions, anthropic and gemini",
    "seed": "chat completions and gemini",
    "tool_choice": "most models; a few refuse to be held to a call",
    "parallel_tool_calls": "openai, anthropic and most that speak OpenAI's format",
    "service_tier": "openai and gemini, anthropic for 'auto' and 'default'",
}


@runtime_checkable
class Unnamed(Protocol):
    """A model whose server alone knows its name, until it is asked."""

    async def identify(self) -> None: ...


async def identify(model: Model) -> None:
    """Find out the full name of a model before it is written anywhere: a log must not know it by two."""
    if isinstance(model, Unnamed):
        with suppress(ModelError):  # the first call will meet it too, and say so
            await model.identify()
