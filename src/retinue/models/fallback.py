"""Several models as one: the next is asked where one fails for good.

Made by `assembly` for a name with commas. Each of them has its own retries below this, so that what comes
here has failed after those. What is worth another provider is a key that is refused, a model that is not
there, a limit, an overload, an outage; a request that is refused itself would be refused again. Every change
to the next is announced by a `Retrying` that names it, also whether a reply had begun that its provider may
charge for. The reply says which model it is of.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from retinue.errors import ModelError, ModelErrorKind, unwind
from retinue.models.base import Model, identify, lacking
from retinue.types import ModelEvent, ModelRequest, ModelSettings, Retrying, TextDelta, ThinkingDelta

FAILS_OVER: frozenset[ModelErrorKind] = frozenset(
    {"auth", "not_found", "rate_limit", "overloaded", "timeout", "connection"}
)
REST = 60.0
"""Seconds for which a model that failed is asked after the others."""


class FallbackModel:
    """A chain of models. `resting` says until when a model is asked last, by its name, to all chains."""

    def __init__(
        self,
        models: Sequence[Model],
        *,
        resting: dict[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models = tuple(models)
        self._resting = {} if resting is None else resting
        self._clock = clock

    def __repr__(self) -> str:
        return f"FallbackModel({', '.join(map(repr, self.models))})"

    @property
    def name(self) -> str:
        return ",".join(model.name for model in self.models)

    async def identify(self) -> None:
        for model in self.models:
            await identify(model)

    def lacks(self, settings: ModelSettings) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for model in self.models:
            found = {**lacking(model, settings), **found}
        return found

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        failed: list[tuple[str, ModelError]] = []
        line = self._in_order()
        for place, model in enumerate(line, 1):
            begun = shown = False
            try:
                async with aclosing(model.stream(request)) as events:
                    async for event in events:
                        if type(event) is TextDelta or type(event) is ThinkingDelta:
                            begun, shown = True, shown or bool(event.text)
                        elif type(event) is Retrying:
                            shown = False
                        yield event
                self._resting.pop(model.name, None)
                return
            except ModelError as error:
                if error.kind not in FAILS_OVER:
                    raise
                self._resting[model.name] = self._clock() + REST
                failed.append((model.name, error))
                unwind(error)
            if place < len(line):
                yield Retrying(
                    reason=f"{model.name}: {failed[-1][1]}",
                    attempt=place,
                    wait=0.0,
                    text_shown=shown,
                    model=line[place].name,
                    begun=begun,
                )
        raise _all_failed(failed)

    def _in_order(self) -> list[Model]:
        """As they were named; those that failed a moment ago come last."""
        now = self._clock()
        return sorted(self.models, key=lambda model: self._resting.get(model.name, 0.0) > now)


def _all_failed(failed: Sequence[tuple[str, ModelError]]) -> ModelError:
    """What every one of them said. If some said when they can be asked again, the first time counts."""
    known = [error for _, error in failed if error.retry_after is not None]
    first = min(known, key=lambda error: error.retry_after or 0.0, default=failed[-1][1])
    return ModelError(
        "; ".join(f"{name}: {error}" for name, error in failed),
        kind=first.kind,
        status=first.status,
        retry_after=first.retry_after,
    )
