"""Tools that belong to one run alone: its notes, and the sandbox that its code runs in.

Both are rebuilt from the run's log when it is taken up again: the calls that were finished are gone through
once more on paper, none of them is made.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakMethod

import msgspec

from retinue import toolcall
from retinue.approvals import Authority
from retinue.builtin_tools import CODE, NOTES, SKILL, is_installed
from retinue.course import Course, Telling
from retinue.engine.config import Played, WorkflowConfig
from retinue.engine.pages import left_in_words, pages_below
from retinue.engine.tools_shown import names
from retinue.events import AnyEvent, CodeWoken, ToolCalled, ToolReturned
from retinue.research.pages import FetchedPage
from retinue.research.tools import ResearchDesk, research_tools
from retinue.run import Run
from retinue.tools.base import Tool, ToolResult
from retinue.tools.notes import Notes, Persistence, notes_tools
from retinue.types import AgentSpec, ToolCall
from retinue.web.framing import holds_frame

if TYPE_CHECKING:
    from retinue.sandbox.base import HostFunction, Sandbox, SnippetOutcome


CODE_RESULT = 1_000_000
"""Characters of a result that code may work with: more than a model reads, and all of it is in the log."""


def memory_of(spec: AgentSpec) -> str:
    """An agent's lasting memory as private data."""
    return f"the memory of {spec.name}"


class RunResources:
    """What one run has to itself. `run` is set once it is built."""

    def __init__(
        self,
        config: WorkflowConfig,
        spec: AgentSpec,
        log: Sequence[AnyEvent],
        skill: Tool | None = None,
        played: Played | None = None,
    ) -> None:
        self.config, self.spec = config, spec
        self._skill, self._played = skill, played
        self.run: Run | None = None
        seen = WeakMethod(self._has_read)  # what it holds must not hold it
        self.notes = Notes(
            self._persistence() if spec.memory else None, lambda: (ask := seen()) is not None and ask()
        )
        called = {e.call_id: e for e in log if isinstance(e, ToolCalled)}
        self._finished = _finished(log, called)
        if log:
            done = [(name, arguments) for _, name, arguments, failed in self._finished if not failed]
            self.notes.rebuild(done)
        # A snippet that raised an exception still left its mark on the variables, up to there.
        lost = {e.call_id for e in log if isinstance(e, ToolReturned) and e.rolled_back}
        self._snippets = [
            (call_id, json.loads(arguments)["code"], called[call_id].at)
            for call_id, name, arguments, _ in self._finished
            if name == CODE and call_id not in lost
        ]
        self._results = {
            e.call_id: ToolResult(text=e.text, is_error=e.is_error, sources=e.sources, fields=e.fields)
            for e in log
            if isinstance(e, ToolReturned) and "/" in e.call_id
        }
        self._sandbox: _LateSandbox | None = None

    def tools(self, held: Mapping[str, Tool], authority: Authority) -> list[Tool]:
        """This run's own tools. Code may call all that the run holds, and the notes that its agent names."""
        made = [] if authority.tools.isdisjoint(NOTES) else notes_tools(self.notes)
        if any(name.startswith("research_") for name in self.spec.tools or ()):
            made += research_tools(self._desk())
        if self._skill is not None:
            made.append(self._skill)
        if self._writes_code() and is_installed("code"):
            named = [
                tool
                for tool in made
                if tool.name in authority.tools and (tool.name == SKILL or names(self.spec, tool.name))
            ]
            usable = {tool.name: tool for tool in (*held.values(), *named)}
            made.append(self._code(list(usable.values())))
        return made

    def _writes_code(self) -> bool:
        """Whether its agent is one that writes code, or was made up by one and shown what that is shown."""
        named = (*(self.spec.tools or ()), *(self.spec.shown or ()))
        return self.spec.mode == "code" or CODE in named

    def _desk(self) -> ResearchDesk:
        """What the tools of research are given of this run."""

        async def pages() -> list[FetchedPage]:
            run = self._built
            return await pages_below(self.config.store, run.root_id, run.id, run.files)

        return ResearchDesk(
            plan=lambda: self._built.state.plan,
            pages=pages,
            asks=lambda: self._built.depth == 0 and not self.config.options.yes,
            left=lambda: left_in_words(self._built),
            answers=lambda: self._built.guards is None and self._built.output_schema is None,
            reports=lambda: self._built.state.reports_written,
        )

    @property
    def _built(self) -> Run:
        if self.run is None:
            raise RuntimeError("the run is not built yet")
        return self.run

    def _code(self, tools: list[Tool]) -> Tool:
        from retinue.tools.code import code_tool, replay

        settings = self.config.settings.code
        if any(tool.effect == "delegate" for tool in tools):  # the policy says how many of these there may be
            most = settings.calls + self.config.policy.sharers
            settings = msgspec.structs.replace(settings, calls=most)
        snippets = self._snippets

        async def catch_up(sandbox: Sandbox) -> None:
            courses = {} if self.run is None else self.run.state.courses
            await replay(sandbox, tools, snippets, self._results, settings, courses)

        async def call(call_id: str, name: str, arguments: str) -> ToolResult:
            known = self._results.get(call_id)
            if known is not None:
                return known
            inner = ToolCall(id=call_id, name=name, arguments=arguments)
            return await toolcall.perform(self._built, inner, CODE_RESULT)

        self._sandbox = _LateSandbox(self.config, catch_up if snippets else None)
        return code_tool(
            tools,
            call,
            self._sandbox,
            settings,
            called_at=self._called_at,
            course_of=self._course_of,
            before=self._results.values(),
        )

    def _called_at(self, call_id: str) -> float:
        """When a call was made: in a replay, when it was made then."""
        recorded = None if self._played is None else self._played.called_at(call_id)
        if recorded is not None:
            return recorded
        return self._built.state.begun[call_id].at

    def _course_of(self, call_id: str) -> Telling:
        """How what its code waits for reaches it: in a replay as it did then, else as the log goes on."""
        log = self._built.log
        own = self._built.state.course(call_id)

        def wake(nth: int, clock: bool) -> None:
            if (nth, clock) not in own.marks:
                log.note(CodeWoken, call_id=call_id, nth=nth, clock=clock)

        if self._played is None:
            return Telling(own, wake)
        return Telling(self._played.courses.get(call_id) or Course(), wake, played=True)

    def _has_read(self) -> bool:
        """Whether others' words were before its model: private data but its own memory, or text in frames."""
        if self.run is None:
            return False
        state = self.run.state
        shown = (message.text for message in (*state.messages, *state.results.values()))
        return bool(state.private.keys() - {memory_of(self.spec)}) or any(map(holds_frame, shown))

    def _persistence(self) -> Persistence:
        scope, key = "memory", self.spec.name

        async def get() -> bytes | None:
            found = await self.config.store.cached(scope, key)
            return None if found is None else found[0]

        async def change(how: Callable[[bytes | None], bytes]) -> None:
            await self.config.store.recache(scope, key, how, 10 * 365 * 86400)

        return Persistence(get=get, change=change)

    async def open(self) -> None:
        if self.spec.memory:
            await self.notes.open()

    async def close(self) -> None:
        self.run = None
        if self._sandbox is not None:
            await self._sandbox.close()


def _finished(log: Sequence[AnyEvent], called: Mapping[str, ToolCalled]) -> list[tuple[str, str, str, bool]]:
    """The calls of a log that have a result: id, tool, what it was really called with, whether it failed."""
    return [
        (e.call_id, e.name, called[e.call_id].arguments, e.is_error)
        for e in log
        if isinstance(e, ToolReturned) and e.call_id in called
    ]


class _LateSandbox:
    """A sandbox that is opened when the first code runs."""

    def __init__(self, config: WorkflowConfig, catch_up: Callable[[Sandbox], Awaitable[None]] | None) -> None:
        self._config, self._catch_up = config, catch_up
        self._sandbox: Sandbox | None = None
        self._opening = asyncio.Lock()

    async def run(
        self,
        code: str,
        *,
        functions: Mapping[str, HostFunction],
        at: float = 0.0,
        seed: str = "",
        course: Telling | None = None,
    ) -> SnippetOutcome:
        return await (await self._opened()).run(code, functions=functions, at=at, seed=seed, course=course)

    async def _opened(self) -> Sandbox:
        """The sandbox with everything in it that code had left there: nobody runs code in it before that."""
        async with self._opening:
            if self._sandbox is None:
                sandbox = self._config.sandbox()
                try:
                    if self._catch_up is not None:
                        await self._catch_up(sandbox)
                except BaseException:
                    await sandbox.close()
                    raise
                self._sandbox = sandbox
            return self._sandbox

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()
            self._sandbox = None
