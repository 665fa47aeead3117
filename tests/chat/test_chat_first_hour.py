"""The first start of the chat: it explains itself, finds what is here, tries it, and asks once."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tmux import Tmux
from world import COMMAND, Cli

from retinue.testing import FakeProvider, Script

SERVERS = ("ollama", "lmstudio", "vllm", "llamacpp")


class Newcomer(Tmux):
    """A person with nothing set up. The ports of local servers are those of the test."""

    def __init__(self, cli: Cli) -> None:
        super().__init__(cli.home)
        self.cli = cli
        cli.env["LOCAL_KEY"] = "test-key"  # the servers of the tests want one
        self.config = cli.home / "config" / "retinue" / "config.toml"

    def place(self, **ports: int) -> None:
        """Where local servers are looked for. Of those that are not named nobody listens."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        at = {name: ports.get(name) or _closed() for name in SERVERS}
        self.config.write_text(
            "".join(
                f'[providers.{name}]\nbase_url = "http://127.0.0.1:{port}/v1"\nkey_env = ["LOCAL_KEY"]\n'
                for name, port in at.items()
            )
        )

    async def begin(self, *arguments: str) -> None:
        await self.start([*COMMAND, *arguments], env=self.cli.env, cwd=self.cli.folder)

    async def leave(self) -> None:
        await self.until("· /help")
        await self.press("C-d")
        await self.ended()
        await self.close()


def _closed() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
async def newcomer(tmp_path: Path) -> AsyncIterator[Newcomer]:
    found = Newcomer(Cli(tmp_path))
    try:
        yield found
    finally:
        await found.close()


async def test_local_servers_are_found_tried_and_the_choice_is_written_down(newcomer: Newcomer) -> None:
    async with AsyncExitStack() as stack:
        ollama = await stack.enter_async_context(FakeProvider(models=("qwen3:8b", "tiny")))
        studio = await stack.enter_async_context(FakeProvider(models=("gemma",)))
        newcomer.place(ollama=ollama.port, lmstudio=studio.port)
        studio.add(Script(text="ready"), Script(text="hello from here"))
        await newcomer.begin()
        text = await newcomer.until("Which one? [1]")
        assert "1  ollama:qwen3:8b" in text
        assert f"3  lmstudio:gemma   LM Studio on 127.0.0.1:{studio.port}" in text
        assert len(text.strip().splitlines()) <= 12
        assert not ollama.requests  # nothing is sent before the person chose
        await newcomer.say("3")
        await newcomer.until("✓ lmstudio:gemma answers")
        await newcomer.until("[Y/n]")
        await newcomer.say("y")
        await newcomer.until("· /help")
        await newcomer.say("hi")
        await newcomer.until("hello from here")
        await newcomer.leave()
        assert 'model = "lmstudio:gemma"' in newcomer.config.read_text()
        assert "[providers.vllm]" in newcomer.config.read_text()  # what stood there stays
        await newcomer.begin("chat")
        assert "Which one?" not in await newcomer.until("· /help")


async def test_who_says_no_is_never_asked_again(newcomer: Newcomer) -> None:
    async with FakeProvider() as server:
        newcomer.place(vllm=server.port)
        await newcomer.begin()
        await newcomer.until("Which one? [1]")
        await newcomer.say("0")
        await newcomer.until("'retinue setup' asks again")
        await newcomer.leave()
        before = newcomer.config.read_text()
        await newcomer.begin()
        assert "Which one?" not in await newcomer.until("· /help")
        assert newcomer.config.read_text() == before
        assert not server.requests


async def test_a_model_that_does_not_answer_is_not_written_down(newcomer: Newcomer) -> None:
    async with FakeProvider(models=("broken", "sound")) as server:
        newcomer.place(llamacpp=server.port)
        server.add(Script(status=401, message="no such key"), Script(text="ready"))
        await newcomer.begin("setup")
        await newcomer.until("Which one? [1]")
        await newcomer.say("1")
        await newcomer.until("or 0 for none")
        assert "model =" not in newcomer.config.read_text()
        await newcomer.say("2")
        await newcomer.until("[Y/n]")
        await newcomer.say("")
        await newcomer.until("changes it")
        await newcomer.ended()
        assert 'model = "llamacpp:sound"' in newcomer.config.read_text()


async def test_where_nothing_is_found_it_says_what_to_do_once_and_looks_again_later(
    newcomer: Newcomer,
) -> None:
    newcomer.place()
    newcomer.columns = 60
    await newcomer.begin()
    text = await newcomer.until("· /help")
    assert text.index("by rules, offline.") < text.index("Retinue · general")
    assert "\n  runs commands, and has other agents do parts of the work.\n" in text  # not wrapped
    assert "found none here" in text
    await newcomer.leave()
    await newcomer.begin()
    assert "found none here" not in await newcomer.until("· /help")
    await newcomer.leave()
    newcomer.cli.env["ANTHROPIC_API_KEY"] = "sk-ant-none"
    await newcomer.begin()
    text = await newcomer.until("Which one? [1]")
    assert "ANTHROPIC_API_KEY is set" in text
    assert "sk-ant" not in text


@pytest.mark.parametrize("command", ["setup", "chat"])
async def test_ctrl_c_at_the_first_question_ends_it_at_once(newcomer: Newcomer, command: str) -> None:
    newcomer.place()
    newcomer.cli.env["ANTHROPIC_API_KEY"] = "sk-ant-none"
    await newcomer.begin(command)
    await newcomer.until("Which one? [1]")
    await newcomer.press("C-c")
    await newcomer.ended(20)
    assert newcomer.config.read_text().startswith("[providers")  # nothing was written down


async def test_ctrl_c_at_a_question_about_a_file_of_tools_ends_it_at_once(newcomer: Newcomer) -> None:
    newcomer.place()
    tools = newcomer.cli.home / ".retinue" / "tools"
    tools.mkdir(parents=True)
    (tools / "mine.py").write_text("from retinue import tool\n\n@tool\ndef mine() -> str:\n    return ''\n")
    await newcomer.begin("chat", "--model", "offline")
    await newcomer.until("Trust it from now on, as it is? [y/N]")
    await newcomer.press("C-c")
    await newcomer.ended(20)
