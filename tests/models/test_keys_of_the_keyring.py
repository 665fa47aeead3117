"""A key that the system's keyring holds: asked for beside the event loop, and blanked out of what leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from retinue import Retinue
from retinue.errors import ConfigError
from retinue.models import kept_keys
from retinue.testing import FakeProvider, Script, record

KEY = "Zq7xv2LmN4pRt8Ws1Yb3"


class Ring(KeyringBackend):
    """Stands in for the system's."""

    priority = 1  # pyright: ignore[reportAssignmentType]

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.threads: list[threading.Thread] = []
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self.threads.append(threading.current_thread())
        if self.locked:
            raise KeyringLocked("the person said no")
        return self.kept.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[username]


@pytest.fixture
def ring() -> Iterator[Ring]:
    before, mine = keyring.get_keyring(), Ring()
    keyring.set_keyring(mine)
    kept_keys.forget("nobody")
    mine.threads.clear()
    yield mine
    mine.locked = False
    kept_keys.forget("nobody")
    keyring.set_keyring(before)


async def test_the_keyring_is_asked_beside_the_loop_and_its_key_is_in_no_recording(
    ring: Ring, tmp_path: Path
) -> None:
    async with FakeProvider(keys=(KEY,)) as provider:
        kept_keys.keep("openai", provider.openai_url, KEY)
        ring.threads.clear()
        provider.add(Script(text=f"the file says {KEY}"), Script(text="again"))
        environ = {"OPENAI_BASE_URL": provider.openai_url}
        async with Retinue(
            model="openai:fake-model", db="memory:", environ=environ, settings={"keyring": ["openai"]}
        ) as retinue:
            report = await retinue.run("general", "hello")
            await retinue.resume(report.run_id, message="and now?")
            await retinue.wait(report.run_id)
            written = await record(retinue, report.run_id, tmp_path / "run.jsonl")
        assert ring.threads
        assert threading.main_thread() not in ring.threads
        assert KEY not in written.read_text()
        assert "[secret]" in written.read_text()


async def test_a_keyring_that_was_locked_is_asked_once_for_each_run_and_again_for_the_next(
    ring: Ring,
) -> None:
    async with FakeProvider(keys=(KEY,)) as provider:
        kept_keys.keep("openai", provider.openai_url, KEY)
        provider.add(Script(text="it is open"))
        environ = {"OPENAI_BASE_URL": provider.openai_url}
        async with Retinue(
            model="openai:fake-model", db="memory:", environ=environ, settings={"keyring": ["openai"]}
        ) as retinue:
            ring.locked = True
            ring.threads.clear()
            with pytest.raises(ConfigError, match="the person said no"):
                await retinue.run("general", "hello")
            assert len(ring.threads) == 1
            ring.locked = False
            assert (await retinue.run("general", "hello")).text == "it is open"
