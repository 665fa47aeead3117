"""The wire against real server software with a real, if tiny, model: structure only, never wording."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import ask, asked, listen, shown

from retinue.errors import ModelError
from retinue.models.base import Model
from retinue.models.connect import connect
from retinue.models.http import Client
from retinue.models.retry import RetryPolicy
from retinue.settings import Settings
from retinue.types import Image, ModelRequest, Reply, TextDelta, UserMessage

SCRIPT = Path(__file__).parents[2] / "scripts" / "real_model_server.py"

# The first time, 150 MB are fetched.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("model") / "server.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait(10)
            pytest.fail(f"the model server could not be set up by {SCRIPT.name}:\n{log.read_text()[-3000:]}")
        yield json.loads(line)["url"]
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def model(address: str, client: Client) -> Model:
    return connect(address, settings=Settings(), client=client, environ={}, policy=RetryPolicy(attempts=1))


async def test_it_streams_and_counts(model: Model, address: str) -> None:
    events = await listen(model, asked("Count from one to ten.", max_tokens=40, temperature=0.0))
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert len([e for e in events if isinstance(e, TextDelta)]) > 3
    assert reply.message.text == shown(events) != ""
    assert reply.stop in ("end", "length")
    assert reply.usage.input_tokens > 10
    assert 0 < reply.usage.output_tokens <= 40
    assert reply.usage.cost is None
    assert reply.model == f"{address}#smollm2-135m-instruct"


async def test_it_keeps_to_a_schema(model: Model) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "large": {"type": "boolean"}},
        "required": ["city", "large"],
        "additionalProperties": False,
    }
    reply = await ask(model, asked("Name a city.", schema=schema, max_tokens=100, temperature=0.0))
    answer = json.loads(reply.message.text)
    assert isinstance(answer["city"], str)
    assert isinstance(answer["large"], bool)
    assert set(answer) == {"city", "large"}


async def test_a_prompt_beyond_its_window_is_too_long(model: Model) -> None:
    with pytest.raises(ModelError) as caught:
        await ask(model, asked("word " * 5000, max_tokens=5))
    assert caught.value.kind == "too_long"
    assert caught.value.status == 400


async def test_what_it_cannot_take_is_refused_in_its_own_words(model: Model) -> None:
    picture = UserMessage(text="What is this?", images=(Image(media_type="image/png", data="aGVsbG8="),))
    with pytest.raises(ModelError, match="image") as caught:
        await ask(model, ModelRequest(system="", messages=(picture,), max_tokens=5))
    assert caught.value.status in (400, 500)


async def test_it_stops_when_its_reader_leaves(model: Model) -> None:
    """It has one slot: the next question is only answered once the abandoned one was given up."""
    stream = model.stream(asked("Tell a very long story.", max_tokens=1500))
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    await stream.aclose()
    reply = await ask(model, asked("Hello", max_tokens=5, timeout=30.0))
    assert reply.usage.output_tokens <= 5
