"""A model that wraps a model and makes a failed call again.

The one retry policy of Retinue: `connect` wraps every model in it, so no other layer retries model calls.
Rate limits, overload, lost connections and timeouts are worth another attempt, after a wait that grows,
is spread at random, and is never shorter than the provider asked for; a provider that wants a longer wait
than the policy allows gets none: the error says when it can be asked again, and the engine parks the run.
Another key that is free is tried at once. An answer that could not be understood is asked for once more.

Why not stamina: it repeats a function call, while this is a stream of which part may already have been
shown. Each new attempt is announced by a `Retrying` event before its wait, and says whether the text shown
so far is void.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from msgspec import Struct

from retinue.errors import ModelError, unwind
from retinue.models.base import Model, lacking
from retinue.models.keys import KeyPool
from retinue.types import ModelEvent, ModelRequest, ModelSettings, Retrying, TextDelta, ThinkingDelta

LONGEST_WAIT = 60.0
"""Seconds that a retry waits at most: who has to wait longer is parked, by the engine."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """`attempts` counts the first one. `longest_wait` is also the most that a Retry-After may ask for."""

    attempts: int = 4
    timeout_attempts: int = 2
    protocol_attempts: int = 2
    first_wait: float = 0.5
    longest_wait: float = LONGEST_WAIT


class RetryingModel:
    """Retries another model. `sleep` and `spread` (a number from 0 to 1) can be replaced in tests."""

    def __init__(
        self,
        model: Model,
        *,
        keys: KeyPool | None = None,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._model = model
        self._keys = keys if keys is not None else KeyPool(())
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._spread = spread

    def __repr__(self) -> str:
        return f"RetryingModel({self._model!r})"

    @property
    def name(self) -> str:
        return self._model.name

    def lacks(self, settings: ModelSettings) -> Mapping[str, str]:
        return lacking(self._model, settings)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        attempt = 1
        other_keys = max(0, len(self._keys) - 1)
        rest = self._keys.wait()
        if 0 < rest <= self._policy.longest_wait:
            # Every key was limited a moment ago: asking now would only be refused again.
            wait = rest + self._spread()
            yield Retrying(
                reason="every key rests after a rate limit", attempt=0, wait=wait, text_shown=False
            )
            await self._sleep(wait)
        while True:
            shown = False
            try:
                async with aclosing(self._model.stream(request)) as events:
                    async for event in events:
                        if (type(event) is TextDelta or type(event) is ThinkingDelta) and event.text:
                            shown = True
                        yield event
                return
            except ModelError as error:
                another = other_keys > 0 and error.kind in ("rate_limit", "auth") and self._keys.wait() == 0
                wait = 0.0 if another else self._wait(error, attempt)
                if wait is None:
                    raise self._with_reset(error) from None
                reason = str(error)
                unwind(error)
            yield Retrying(reason=reason, attempt=attempt, wait=wait, text_shown=shown)
            if another:
                other_keys -= 1
            else:
                await self._sleep(wait)
                attempt += 1

    def _with_reset(self, error: ModelError) -> ModelError:
        """The error with the time at which the first of several keys may be used again, if that is known."""
        soonest = self._keys.resets() if error.kind == "rate_limit" else None
        if soonest is not None and (error.retry_after is None or soonest < error.retry_after):
            error.retry_after = soonest
        return error

    def _wait(self, error: ModelError, attempt: int) -> float | None:
        """Seconds to wait before the next attempt, or None if there is to be none."""
        policy = self._policy
        most = {"timeout": policy.timeout_attempts, "protocol": policy.protocol_attempts}
        if not (error.retryable or error.kind == "protocol"):
            return None
        if attempt >= min(policy.attempts, most.get(error.kind, policy.attempts)):
            return None
        asked = error.retry_after or 0.0
        if error.kind == "rate_limit" and (rest := self._keys.wait()) > 0:
            asked = min(asked, rest)  # until the first of several keys may be used again
        if asked > policy.longest_wait:
            return None
        if error.kind == "rate_limit" and self._keys.wait() > policy.longest_wait:
            return None  # the account is spent: waiting does not help
        backoff = min(policy.longest_wait, policy.first_wait * 2 ** (attempt - 1))
        return asked + backoff * self._spread() if asked else backoff * (0.5 + self._spread() / 2)
