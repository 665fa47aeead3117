"""What an answer costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from counting import calls
from retinue.models.prices import Cost, Rates, Tokens, cost_of, rates_now
from retinue.models.providers import PROVIDERS
from retinue.settings import Price

TOKENS = Tokens(input=10_000, output=1000, cached=6000, written=1000)


async def test_cached_and_written_tokens_have_their_own_rates() -> None:
    (*_, rates), _ = rates_now("anthropic", "claude-sonnet-4-5")
    expected = (3000 * rates.input + 6000 * rates.cached + 1000 * rates.written + 1000 * rates.output) / 1e6
    assert rates.cached < rates.input < rates.written
    assert await cost_of("anthropic", "claude-sonnet-4-5", prices={}).of(TOKENS) == pytest.approx(expected)


async def test_our_figures_are_those_of_the_package() -> None:
    from genai_prices import Usage, calc_price

    used = Usage(input_tokens=10_000, output_tokens=1000, cache_read_tokens=6000, cache_write_tokens=1000)
    for provider, known_as, model in (
        ("openai", "openai", "gpt-6-luna"),
        ("openai", "openai", "gpt-4o"),
        ("anthropic", "anthropic", "claude-haiku-5-5"),
        ("gemini", "google", "gemini-2.5-flash"),
        ("xai", "x-ai", "grok-4.3"),
    ):
        theirs = float(calc_price(used, model, provider_id=known_as).total_price)
        assert await cost_of(provider, model, prices={}).of(TOKENS) == pytest.approx(theirs), model


async def test_a_long_prompt_falls_into_the_dearer_tier() -> None:
    from genai_prices import Usage, calc_price

    for tokens in (99_999, 100_000, 100_001, 250_000):
        theirs = calc_price(
            Usage(input_tokens=tokens, output_tokens=10), "claude-haiku-5-5", provider_id="anthropic"
        )
        ours = await cost_of("anthropic", "claude-haiku-5-5", prices={}).of(Tokens(input=tokens, output=10))
        assert ours == pytest.approx(float(theirs.total_price))


async def test_an_unknown_model_has_no_price() -> None:
    assert await cost_of("openai", "gpt-99-imaginary", prices={}).of(TOKENS) is None
    assert await cost_of("nobody", "nothing", prices={}).of(TOKENS) is None


async def test_a_server_of_ones_own_has_no_price() -> None:
    assert await cost_of("openai", "gpt-4o", prices={}, known=False).of(TOKENS) is None


@pytest.mark.parametrize("provider", ["offline", "ollama"])
async def test_what_runs_here_is_free(provider: str) -> None:
    assert await cost_of(provider, "any", prices={}).of(TOKENS) == 0.0


@pytest.mark.parametrize("name", ["openai:gpt-4o", "gpt-4o"])
async def test_settings_come_first(name: str) -> None:
    cost = cost_of("openai", "gpt-4o", prices={name: Price(input=1.0, output=2.0)}, known=False)
    assert await cost.of(TOKENS) == pytest.approx(0.012)


async def test_a_price_of_an_hour_is_looked_up_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def now(provider: str, model: str) -> tuple[tuple[Rates, ...], bool]:
        asked.append(clock[0])
        return (Rates(input=clock[0], output=0, cached=0, written=0),), False

    clock = [1000.0]
    monkeypatch.setattr("retinue.models.prices.rates_now", now)
    monkeypatch.setattr("retinue.models.prices.time.monotonic", lambda: clock[0])
    cost = Cost(provider="deepseek", model="x")
    assert await cost.of(Tokens(input=1_000_000)) == 1000
    clock[0] += 100
    assert await cost.of(Tokens(input=1_000_000)) == 1000
    clock[0] += 1000
    assert await cost.of(Tokens(input=1_000_000)) == 2100
    assert len(asked) == 2


async def test_pricing_an_answer_is_next_to_no_work() -> None:
    cost = cost_of("anthropic", "claude-haiku-5-5", prices={})
    await cost.of(TOKENS)
    priced = cost.of(TOKENS)

    def at_once() -> None:
        with pytest.raises(StopIteration):  # it waits for nothing
            priced.send(None)

    assert calls(at_once) < 100


async def test_the_data_is_loaded_beside_the_event_loop() -> None:
    """In a fresh process: the loop goes on while the price data loads."""
    code = """
import asyncio, sys, time
from retinue.models.prices import Tokens, cost_of
async def main():
    cost = cost_of("openai", "gpt-4o", prices={})
    assert "genai_prices" not in sys.modules
    cost.prepare()
    ticks = 0
    while cost._loading and not cost._loading.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks > 5, ticks
    assert await cost.of(Tokens(input=1000)) > 0
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=subprocess.PIPE)
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()


async def test_every_default_model_has_a_price() -> None:
    for provider in PROVIDERS.values():
        for model in filter(None, (provider.model, provider.small)):
            assert await cost_of(provider.name, model, prices={}).of(TOKENS) is not None, (
                f"{provider.name}:{model}"
            )


async def test_an_answer_that_says_nothing_of_what_it_used_has_no_known_cost() -> None:
    priced = cost_of("openai", "gpt-4o", prices={})
    assert await priced.of(TOKENS) is not None
    assert await priced.of(Tokens()) is None
    own = cost_of("openai", "x", prices={"x": Price(input=1.0, output=2.0)})
    assert await own.of(Tokens()) is None
    assert await cost_of("ollama", "any", prices={}).of(Tokens()) == 0.0, "what is free stays free"
