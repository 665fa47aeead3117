"""What an answer cost, in US dollars.

Prices come from the settings, else from the `genai-prices` package. Not knowing is None, never zero: only
`offline` and `ollama` are free by nature. The price data takes a third of a second to load, so it is
loaded in a thread while the first answer is on its way, and a model's rates are worked out once.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from retinue.replies import Paid
from retinue.settings import Price

FREE = frozenset({"offline", "ollama"})
_CHECK_AGAIN_SECONDS = 900.0

# Our provider names where genai-prices has another one.
_KNOWN_AS = {"gemini": "google", "xai": "x-ai", "moonshot": "moonshotai"}


def is_free(name: str) -> bool:
    """Whether calls of a model, or of each of several, cost nothing whatever becomes of them, by its name."""
    return all(each.removeprefix("text:").partition(":")[0] in FREE for each in name.split(","))


def paid_for(name: str) -> Paid:
    """What a call of this model is about to take."""
    return Paid(free=is_free(name))


class Tokens(Struct, frozen=True, kw_only=True):
    """What an answer used. `input` includes `cached` (read from a cache) and `written` (put into one)."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0


class Rates(Struct, frozen=True, kw_only=True):
    """US dollars per million tokens, for requests of more than `above` input tokens."""

    input: float
    output: float
    cached: float
    written: float
    above: int = 0

    @property
    def free(self) -> bool:
        return not (self.input or self.output or self.cached or self.written)

    def of(self, tokens: Tokens) -> float:
        plain = tokens.input - tokens.cached - tokens.written
        return (
            plain * self.input
            + tokens.cached * self.cached
            + tokens.written * self.written
            + tokens.output * self.output
        ) / 1_000_000


class Cost:
    """Prices the answers of one model."""

    def __init__(self, *, rates: Rates | None = None, provider: str = "", model: str = "") -> None:
        self._rates = () if rates is None else (rates,)
        self._until = 0.0 if rates is None and provider else float("inf")
        self._where = (_KNOWN_AS.get(provider, provider), model)
        self._loading: asyncio.Future[Any] | None = None

    def prepare(self) -> None:
        """Begin to load the price data, if it will be needed and is not here."""
        if self._until == 0.0 and self._loading is None and "genai_prices.data" not in sys.modules:
            self._loading = asyncio.get_running_loop().run_in_executor(None, _model, *self._where)

    def lowest(self) -> Rates | None:
        """Its rates for small requests, now. Loads the price data if it must: not for the event loop."""
        rates = self._rates if self._until else rates_now(*self._where)[0]
        return rates[-1] if rates else None

    async def of(self, tokens: Tokens) -> float | None:
        """None if nobody knows: the price, or what was used. No answer takes no tokens at all."""
        if time.monotonic() >= self._until:
            if self._loading is not None:
                await asyncio.shield(self._loading)
                self._loading = None
            self._rates, lasting = rates_now(*self._where)
            # Some prices depend on the date or the hour.
            self._until = float("inf") if lasting else time.monotonic() + _CHECK_AGAIN_SECONDS
        for rates in self._rates:  # the highest tier first
            if tokens.input > rates.above or not rates.above:
                return rates.of(tokens) if tokens.input or tokens.output or rates.free else None
        return None


def cost_of(provider: str, model: str, *, prices: Mapping[str, Price], known: bool = True) -> Cost:
    """How to price a model. `known` False: its address is not the provider's, so nobody knows its price."""
    own = prices.get(f"{provider}:{model}") or prices.get(model)
    if own is not None:
        return Cost(rates=Rates(input=own.input, output=own.output, cached=own.input, written=own.input))
    if provider in FREE:
        return Cost(rates=Rates(input=0.0, output=0.0, cached=0.0, written=0.0))
    return Cost(provider=provider, model=model) if known else Cost()


@cache
def _model(provider: str, model: str) -> Any:
    """The package's entry for a model, or None."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None


def rates_now(provider: str, model: str) -> tuple[tuple[Rates, ...], bool]:
    """A model's rates at this moment, the highest tier first, and whether they hold at other moments too."""
    from datetime import UTC, datetime

    entry = _model(provider, model)
    if entry is None:
        return (), True
    price: Any = entry.get_prices(datetime.now(tz=UTC))
    if price.input_mtok is None or price.output_mtok is None:
        return (), True
    found = {
        "input": price.input_mtok,
        "output": price.output_mtok,
        "cached": price.cache_read_mtok if price.cache_read_mtok is not None else price.input_mtok,
        "written": price.cache_write_mtok if price.cache_write_mtok is not None else price.input_mtok,
    }
    starts = {0} | {tier.start for value in found.values() for tier in getattr(value, "tiers", ())}
    tiers = tuple(
        Rates(above=start, **{name: _at(value, start) for name, value in found.items()})
        for start in sorted(starts, reverse=True)
    )
    return tiers, not isinstance(entry.prices, list)


def _at(value: Any, start: int) -> float:
    """A price in the tier that begins at `start`."""
    if not hasattr(value, "tiers"):
        return float(value)
    fitting = [tier.price for tier in value.tiers if tier.start <= start]
    return float(fitting[-1] if fitting else value.base)
