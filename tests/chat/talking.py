"""A chat without a terminal: what is typed goes in, what would stay on the screen is a list of lines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from retinue import Retinue
from retinue.cli.chat.session import ChatGiven, ChatSession
from retinue.cli.chat.talk import Talk
from retinue.cli.chat.view import ChatView
from retinue.testing import ScriptedModel
from retinue.view.paint import Line


class Lines:
    """A stage that keeps everything."""

    def __init__(self) -> None:
        self.out: list[str] = []

    def lines(self, lines: list[Line]) -> None:
        self.out += ["".join(text for text, _ in line) for line in lines]

    def markdown(self, text: str) -> None:
        self.out.append(text)

    def leave(self, code: int) -> None:
        self.out.append(f"left with {code}")

    async def with_terminal(self, work: Callable[[], Awaitable[Any]]) -> Any:
        return await work()

    async def hold(self) -> None:
        return None

    def release(self) -> None:
        return None

    def since(self, before: int) -> str:
        return "\n".join(self.out[before:])


class Talking:
    def __init__(self, retinue: Retinue, given: ChatGiven | None = None) -> None:
        self.retinue, self.stage = retinue, Lines()
        view = ChatView(
            markdown=self.stage.markdown,
            lines=self.stage.lines,
            hold=self.stage.hold,
            release=self.stage.release,
        )
        self.session = ChatSession(retinue, given or ChatGiven(), view.show)
        view.session = self.session
        self.talk = Talk(self.session, view, self.stage)

    async def type(self, text: str) -> str:
        """Type it, and wait for the answer if it is answered. What was shown meanwhile."""
        before = len(self.stage.out)
        await self.talk.typed(text)
        await self.over()
        return self.stage.since(before)

    async def over(self) -> None:
        if self.session.run_id and self.retinue.is_running(self.session.run_id):
            await self.session.wait()

    @property
    def status(self) -> str:
        return "".join(text for text, _ in self.talk.status(200))


def read_by(model: ScriptedModel) -> str:
    """All that a model was ever shown."""
    return "\n".join(str(message) for request in model.requests for message in request.messages)
