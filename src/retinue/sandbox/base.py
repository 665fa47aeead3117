"""What a sandbox is: a session that runs snippets of Python and gives back what came of them.

Two engines: `monty` (an interpreter of its own, a subset of the language) and `cpython` (the
whole language in a sealed process). An engine is opened once per process; a `Sandbox` is one run's session,
whose variables live from snippet to snippet and can be dumped and loaded again.

The only things of the host that code can reach are the functions it is handed. They raise `ToolError` for
what the code should see as an exception; anything else they raise ends the snippet and is raised by `run`.
Results reach the code in the order of its `course`, so that a snippet that is run again with the same results
takes the same path. So do the clock and random numbers, which are given: `at`, in seconds since 1970, is what
the clock shows when a snippet begins (it moves on by a millisecond when it is read, by the time that the code
sleeps, and by what a call took that it waited for), and `seed`, of the first snippet of a session, decides
all random numbers of that session.
"""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from retinue.course import Telling
from retinue.settings import CodeSettings

HostFunction = Callable[..., Awaitable[Any]]

FIELDS = (
    "text",
    "success",
    "is_error",
    "status",
    "incomplete",
    "error",
    "child_id",
    "data",
    "sources",
    "metrics",
)
"""What a result has in code beside being a text."""

WORDED = frozenset({"text", "incomplete", "error", "data", "sources"})
"""The fields that may hold what others wrote; the rest are facts of ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallResult:
    """What a host function may give code: a text with fields, of which `text` is the text itself if left out.

    `failed`: code sees an exception with this text and these fields. `outside`: what the fields of `WORDED`
    say has no frame around it, as the text has.
    """

    text: str
    fields: Mapping[str, Any]
    failed: bool = False
    outside: bool = False
    took: float = 0.0
    """Seconds."""


FLOOD = 4_000_000
"""Characters a snippet may print before it is stopped, whatever is kept of them."""

MAX_CODE = 200_000
"""Characters of one snippet."""

MAX_ERROR = 4_000
"""Characters of an error: code can raise what it likes."""

GONE = "the variables of earlier snippets could not be restored and are gone; this snippet was not run"

_MAX_TRACE = 4_000
_MAX_TRACE_LINE = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxLimits:
    """`seconds` is time that the code computes or sleeps; waiting for a host function is free."""

    seconds: float = 30.0
    memory: int = 128 * 1024 * 1024
    output: int = 20_000

    @classmethod
    def of(cls, settings: CodeSettings) -> SandboxLimits:
        return cls(seconds=settings.timeout, memory=settings.memory_mb * 1024 * 1024, output=settings.output)


class Unawaited(Struct, frozen=True, kw_only=True):
    """A call of a function that came to nothing."""

    name: Annotated[str, Meta(max_length=256)]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class SnippetOutcome:
    """What came of one snippet.

    `value` is the repr of the last expression, None when there is none or it is None. `error` is one line,
    `trace` the whole traceback. `lost` is true when the variables are again what they were before.
    """

    stdout: str = ""
    cut: int = 0
    """Characters printed beyond what is kept."""
    value: str | None = None
    error: str | None = None
    trace: str = ""
    calls: int = 0
    seconds: float = 0.0
    lost: bool = False
    outside: bool = False
    """This code, or code before it, has read what others wrote out of its frame."""
    undefined: str = ""
    """The name that it ended for, where there is none such."""
    unparsed: bool = False
    """Nothing of it ran: it is none of the language that this engine takes."""
    unawaited: tuple[Unawaited, ...] = ()
    """Calls that code wrote and that nothing can await any more: they were not made."""


class CodeRunner(Protocol):
    """What runs the snippets of one run, each with the variables of those before it."""

    async def run(
        self,
        code: str,
        *,
        functions: Mapping[str, HostFunction],
        at: float = 0.0,
        seed: str = "",
        course: Telling | None = None,
    ) -> SnippetOutcome:
        """Without a course it is that of this one time. One engine has no timers, and needs none."""
        ...


class Sandbox(CodeRunner, Protocol):
    """One run's session."""

    async def dump(self) -> bytes:
        """The variables as they are between two snippets; empty if there are none yet."""
        ...

    async def load(self, state: bytes) -> None:
        """Go on from a dump of the same engine. Only before the first snippet.

        Never raises: a dump that cannot be used makes the next snippet fail with `GONE`, once.
        """
        ...

    async def close(self) -> None: ...


class Engine(Protocol):
    """Opens sessions. Shared by every run of a process."""

    @property
    def name(self) -> str: ...

    async def warm(self) -> None:
        """Make the next session start at once. Never needed, only faster."""
        ...

    def session(self, limits: SandboxLimits) -> Sandbox: ...

    async def close(self) -> None: ...


class Printed:
    """What a snippet printed: the beginning is kept, the rest counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._kept = 0
        self.total = 0

    def add(self, text: str) -> None:
        self.total += len(text)
        room = self._limit - self._kept
        if room > 0:
            self._parts.append(text[:room])
            self._kept += min(len(text), room)

    @property
    def flooded(self) -> bool:
        return self.total > FLOOD

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def cut(self) -> int:
        return self.total - self._kept


def keep_value(code: str) -> tuple[str, bool]:
    """The code with its last expression assigned to `_`, line numbers unchanged; whether there is one.

    What cannot be parsed here is left alone: the sandbox's own parser has the better message.
    """
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code, False
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr) or last.end_lineno is None or last.end_col_offset is None:
        return code, False
    lines = code.encode().splitlines(keepends=True)
    start = sum(len(line) for line in lines[: last.lineno - 1]) + last.col_offset
    end = sum(len(line) for line in lines[: last.end_lineno - 1]) + last.end_col_offset
    raw = code.encode()
    kept = raw[:start] + b"_ = (" + raw[start:end] + b"\n)" + raw[end:]
    return kept.decode(), True


def short_trace(trace: str) -> str:
    """A traceback of bounded size: long lines and a long middle are left out."""
    lines = [
        line if len(line) <= _MAX_TRACE_LINE else line[:_MAX_TRACE_LINE] + " …" for line in trace.split("\n")
    ]
    text = "\n".join(lines).strip("\n")
    if len(text) <= _MAX_TRACE:
        return text
    half = _MAX_TRACE // 2
    return text[:half] + "\n  …\n" + text[-half:]
