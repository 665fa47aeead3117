"""What a model is to the rest of Retinue: something that streams an answer to a request.

Streaming is the only way. A stream yields deltas as they come and exactly one `Reply` as its last item;
it raises `ModelError` when there will be none. Closing the iterator early closes the connection.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Protocol, runtime_checkable

from retinue.errors import ModelError
from retinue.types import ModelEvent, ModelRequest

SECONDS = 120.0
"""How long a call may take where nobody says."""
LOCAL_SECONDS = 600.0
"""The same for a server on this machine, which may have no more than a processor to compute with."""


class Model(Protocol):
    @property
    def name(self) -> str:
        """The full name, `provider:model`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]: ...


@runtime_checkable
class Unnamed(Protocol):
    """A model whose server alone knows its name, until it is asked."""

    async def identify(self) -> None: ...


async def identify(model: Model) -> None:
    """Find out the full name of a model before it is written anywhere: a log must not know it by two."""
    if isinstance(model, Unnamed):
        with suppress(ModelError):  # the first call will meet it too, and say so
            await model.identify()
