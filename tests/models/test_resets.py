"""When a limit resets: what providers write into headers and bodies, and what comes of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from asking import WIRES, ask, asked, listen, one_shot

from retinue.errors import ModelError
from retinue.models import failures
from retinue.models.http import Client
from retinue.models.keys import KeyPool
from retinue.models.resets import quota_reset, resets_in
from retinue.models.retry import RetryingModel
from retinue.testing import FakeProvider, Script
from retinue.types import AssistantMessage, Reply, Usage

NOW = datetime(2026, 11, 17, 9, 0, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, 360.0),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset-tokens": "17ms"}, 0.017),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "5000"}, None),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "2m",
                "x-ratelimit-remaining-tokens": "0",
            },
            120.0,
        ),
        ({"x-ratelimit-reset": "90"}, 90.0),
        ({"x-ratelimit-reset": str(int(NOW) + 90)}, 90.0),
        ({"x-ratelimit-reset": str(int(NOW + 90) * 1000)}, 90.0),
        ({"anthropic-ratelimit-unified-reset": str(int(NOW) + 3600)}, 3600.0),
        (
            {
                "anthropic-ratelimit-input-tokens-reset": "2026-11-17T09:02:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-17T09:30:00Z",
                "anthropic-ratelimit-requests-remaining": "12",
            },
            120.0,
        ),
        ({"anthropic-ratelimit-tokens-reset": "2026-11-17T08:00:00Z"}, 0.0),
        ({"x-ratelimit-reset": "soon"}, None),
        ({"x-ratelimit-reset": "nan"}, None),
        ({"x-ratelimit-reset": ""}, None),
    ],
)
def test_the_reset_of_the_limit_that_was_reached_is_read(
    headers: dict[str, str], seconds: float | None
) -> None:
    found = resets_in(headers, now=NOW)
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_geminis_quota_of_a_day_is_there_again_at_midnight_in_california() -> None:
    details = [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "40s"},
        {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
    ]
    # 9:00 in UTC is 1:00 there, in winter.
    assert quota_reset(details, now=NOW) == pytest.approx(23 * 3600)
    assert quota_reset([{"violations": [{"quotaId": "GenerateRequestsPerMinute"}]}], now=NOW) is None
    for odd in (None, {}, [None], [{"violations": [3]}], [{"violations": [{"quotaId": 3}]}]):
        assert quota_reset(odd, now=NOW) is None
    body = json.dumps({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}).encode()
    error = failures.answered(429, {}, body, keys=KeyPool(()), key=None)
    assert error.retry_after is not None
    assert error.retry_after > 60, "not the 40 seconds, after which it is used up still"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "script",
    [
        Script(status=429, message="slow down", retry_after=90),
        Script(status=429, message="slow down", headers={"retry-after-ms": "90000"}),
        Script(status=429, message="slow down", headers={"x-ratelimit-reset-requests": "1m30s"}),
    ],
)
async def test_every_format_hands_the_time_on(
    wire: str, script: Script, server: FakeProvider, client: Client
) -> None:
    server.add(script)
    with pytest.raises(ModelError) as error:
        await ask(one_shot(wire, server, client), asked())
    assert (error.value.kind, error.value.retry_after) == ("rate_limit", pytest.approx(90, abs=1))


async def test_of_several_keys_the_first_that_is_free_again_counts() -> None:
    class Limited:
        name = "two:keys"

        def __init__(self, keys: KeyPool) -> None:
            self.keys, self.told, self.asked = keys, [90.0, 4000.0], 0

        async def stream(self, request: Any):
            key = self.keys.take()
            self.asked += 1
            seconds = self.told.pop(0)
            self.keys.rest(key, seconds, told=True)
            raise ModelError("slow down", kind="rate_limit", retry_after=seconds)
            yield

    keys = KeyPool(("one-key", "two-key"), clock=lambda: 100.0)
    inner = Limited(keys)
    with pytest.raises(ModelError) as error:
        await listen(RetryingModel(inner, keys=keys), asked())
    assert inner.asked == 2, "the other key was tried first"
    assert error.value.retry_after == 90.0


async def test_a_key_that_is_free_again_soon_is_waited_for_whatever_another_is_told() -> None:
    clock = [100.0]
    keys = KeyPool(("one-key", "two-key"), clock=lambda: clock[0])

    class Limited:
        name = "two:keys"
        asked = 0

        async def stream(self, request: Any):
            key = keys.take()
            self.asked += 1
            if self.asked == 1:
                keys.rest(key, 7200.0, told=True)
                raise ModelError("slow down", kind="rate_limit", retry_after=7200.0)
            yield one_reply()

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    other = keys.take()
    keys.rest(other, 30.0, told=True)  # another run has met its limit just now
    inner = Limited()
    await listen(RetryingModel(inner, keys=keys, sleep=sleep, spread=lambda: 0.0), asked())
    assert (inner.asked, clock[0]) == (2, 130.0)


def one_reply() -> Reply:
    return Reply(message=AssistantMessage(text="fine"), usage=Usage(), stop="end", model="two:keys")
