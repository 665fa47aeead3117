"""One execution of a spec on a prompt: what the loop is handed, and the log it writes.

The engine builds a `Run`; the loop reads it and writes to its log. A run knows no database and no other
run: what reaches beyond it (approvals, reviews, waiting children) are functions it was given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from retinue.approvals import Authority, Verdict
from retinue.budget import Budget
from retinue.claims.report import Claims
from retinue.clock import Clock
from retinue.errors import ModelError, Refused
from retinue.events import About, CallCut, HistoryPruned, PromptPart
from retinue.guards import Looked
from retinue.models.base import Model
from retinue.run_log import RunLog, storable
from retinue.run_state import RunState
from retinue.settings import ContextSettings, LimitSettings
from retinue.skills import Skill
from retinue.tools.base import FormFilled, FormQuestion, SampleRequest, Tool
from retinue.tools.changing import Changes
from retinue.tools.notes import Kind
from retinue.types import (
    AddressFrom,
    AgentSpec,
    EndedBy,
    JsonSchema,
    Reply,
    Report,
    ToolCall,
    ToolSpec,
    Usage,
)
from retinue.workspace import Files


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemPrompt:
    """What the model is told about itself, and which part of that is what."""

    text: str
    parts: tuple[PromptPart, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What is wrong with an answer: what the model is told to do about it, and what people are told."""

    about: About
    for_model: str
    for_people: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """A call that may run: with other arguments if a person edited them, to an address from there."""

    edited: str | None = None
    address: AddressFrom = ""


class Judge(Protocol):
    """What the rules say of a call, and, of one to an address that a model put together, what could leave."""

    def __call__(
        self, run: Run, tool: Tool, arguments: dict[str, Any], composed: bool = False
    ) -> Verdict: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyWork:
    """What is in a copy of the project and not in the project: paths to merge, and those that cannot be."""

    branch: str = ""
    files: int = 0
    left_out: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Closing:
    """What a report says of the copy of the project that its run worked in, below its text; and the paths
    that were changed there."""

    text: str = ""
    files: tuple[str, ...] = ()
    work: CopyWork | None = None
    """None: it has no copy, or nobody knows."""


class Linger(Protocol):
    """`answered`: the run has answered, and these are all that it waits for. One that hangs is stopped.

    `asked`: people asked children of it again, and it answers with what the first of them found.
    """

    async def __call__(self, run: Run, *, answered: bool = False, asked: bool = False) -> bool: ...


class Dismiss(Protocol):
    """Stops all children that still run, unless it is to `leave` them at work: none outlives its parent.

    `answered`: that has an answer, and misses what they were to report.
    """

    async def __call__(
        self, run: Run, reason: str, *, leave: bool = False, answered: bool = False
    ) -> None: ...


class RunGuards(Protocol):
    """The guards of a run. `holds`: its answers are not shown before they have seen them."""

    @property
    def holds(self) -> bool: ...

    async def incoming(self, run: Run) -> None:
        """Look at what was said and nobody has looked at yet."""
        ...

    async def outgoing(self, run: Run, text: str) -> Looked: ...


class Gate(Protocol):
    """Asks whoever must be asked, and raises `Refused`."""

    async def __call__(self, run: Run, tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> Admitted: ...


class ChangeRecorder(Protocol):
    """Records what calls change in the project."""

    def of(self, run: Run, call_id: str) -> Changes: ...

    def around(
        self, run: Run, tool: Tool, call_id: str, *, sealed: bool
    ) -> AbstractAsyncContextManager[None]: ...

    async def recover(self, run: Run, call_id: str) -> None:
        """Record what a call changed that was cut off with its process."""
        ...


async def _no_answer(run: Run, tool: Tool, call: ToolCall, question: FormQuestion) -> FormFilled:
    return FormFilled(action="cancel")


async def _no_sample(run: Run, tool: Tool, call: ToolCall, asked: SampleRequest) -> Reply:
    raise Refused("no model is asked for the sake of a server here")


def _as_before(run: Run) -> None:
    """Its tools are what they were."""


def _nothing(name: str) -> None:
    """Nothing is withheld."""


def no_guidance(path: str) -> None:
    """No folder has instructions of its own."""


async def _as_found(run: Run, claims: Claims) -> Claims:
    """No model is asked."""
    return claims


def _no_one(report: Report) -> None:
    """Nobody waits for its answers."""


async def always_due(what: int | str) -> bool | None:
    """Nothing is played back: a step or a call begins as soon as it can."""


async def always_over(step: int, ends: bool) -> None:
    """Nothing is played back: an answer is considered, and is the end, as soon as it is there."""


def not_recorded(call_id: str) -> None:
    """Nothing is played back: a tool says itself which private data a call brings."""


async def _no_pages(run: Run) -> Mapping[str, str]:
    """Nothing was read below it."""
    return {}


def _nobody(run: Run, call_id: str) -> None:
    """Nobody waits for a call of this run."""


@dataclass(kw_only=True, slots=True, eq=False)
class Run:
    """Everything the loop needs."""

    id: str
    root_id: str
    parent_id: str | None
    depth: int
    spec: AgentSpec
    path: tuple[str, ...]
    label: str
    system: SystemPrompt
    model: Model
    tools: dict[str, Tool]
    shown: tuple[ToolSpec, ...]
    skills: tuple[Skill, ...]
    """Those that it is offered, and may hand on to a child that it makes up."""
    authority: Authority
    budget: Budget
    clock: Clock
    files: Files
    log: RunLog
    gate: Gate
    in_line: Callable[[Run, str], AbstractContextManager[None]]
    """Around a call until the gate lets it pass: people are asked in the order of the calls."""
    judge: Judge
    """What the rules say to a call, and what a person said to all calls of that tool."""
    limits: LimitSettings
    context: ContextSettings
    max_turns: int
    review: Callable[[Run, str], Awaitable[Problem | None]]
    """What is wrong with an answer, or None."""
    linger: Linger
    """Wait for what still runs in the background; True if there is news for the model."""
    left: Callable[[Run], int]
    """How many children are at work that it does not wait for before it answers."""
    leaves: bool
    """Whether it waits for none of them."""
    dismiss: Dismiss
    unheard: Callable[[Run], list[Report]]
    """The reports of children that are in no result and no notice yet."""
    short: Callable[[int], tuple[EndedBy, str] | None]
    """Why this step has to be the last, since the time or the budget is nearly used up."""
    small: Callable[[], Model]
    """The cheap model, for summaries."""
    notes: Callable[[Kind, int], str]
    """A summary of this run's notes, in about so many characters."""
    recorder: ChangeRecorder
    closing: Callable[[Run], Awaitable[Closing]]
    """What its report says of the copy of the project that it worked in."""
    keep: Callable[[Run, Sequence[str]], Awaitable[None]]
    """Keep these files of the workspace with the log, since it names them."""
    park: Callable[[Run, ModelError], Awaitable[bool]]
    """Wait until a limit of the provider has reset; False if this error is none that is waited for."""
    wait_out: Callable[[Run], Awaitable[None]]
    """Wait for what is left of such a time, after a restart."""
    judge_claims: Callable[[Run, Claims], Awaitable[Claims]] = _as_found
    """Asks a model about claims of an answer that the program cannot decide."""
    withheld: Callable[[str], Tool | None] = _nothing
    """The way to delegate of this name that there is and that this run does not hold, if it is one. Refuses
    it where nobody holds one at this place, and says which limit that is."""
    reported: Callable[[Report], None] = _no_one
    """Hears each of its answers: it may go on after one."""
    returned: Callable[[Run, str], None] = _nobody
    """Tells those who wait for what a call of this run, by its id, had others ask: it has its result."""
    pages_below: Callable[[Run], Awaitable[Mapping[str, str]]] = _no_pages
    """What the pages say that it and those below it have read, by address."""
    guidance: Callable[[str], tuple[str, str] | None] = no_guidance
    """The nearest instructions to a file of the project: in which file they are, and what it says."""
    inquire: Callable[[Run, Tool, ToolCall, FormQuestion], Awaitable[FormFilled]] = _no_answer
    """Asks a person what a call that runs has to know."""
    sample: Callable[[Run, Tool, ToolCall, SampleRequest], Awaitable[Reply]] = _no_sample
    """Has the small model write what a server asks for while a call runs, if a person agrees."""
    refresh: Callable[[Run], None] = _as_before
    """Brings its tools up to date before a step: servers may offer others by now, and some were found."""
    due: Callable[[int], Awaitable[bool | None]] = always_due
    """In a replay: waits until a step began then, so that it is asked with what it was asked with."""
    call_due: Callable[[str], Awaitable[bool | None]] = always_due
    """In a replay: waits for the end of the run, if it was stopped then before it came to this call."""
    answer_due: Callable[[int, bool], Awaitable[None]] = always_over
    """In a replay: waits until the answer of a step was considered then, or was the end if that comes now, so
    that it is no answer any more if a child had reported by then."""
    brings: Callable[[str], tuple[str, ...] | None] = not_recorded
    """In a replay: the private data that a call was said to bring when it began then."""
    corrections: int = 2
    deps: Any = None
    """What the program handed to the workflow, for its tools."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    guards: RunGuards | None = None
    data: Any = None
    streamed: list[str] = field(default_factory=list[str])
    """Text of the reply that is arriving: the partial work if it never ends."""
    performing: set[str] = field(default_factory=set[str])
    """The calls that are being made, by their ids."""
    cancel_reason: str | None = None
    gives_up: bool = False
    """It makes its end, and without an answer: what is said to it now does not have it go on."""
    summaries: Iterator[HistoryPruned] | None = None
    """In a replay: what was left of the turns that it dropped, each time."""
    in_copy: bool = False
    """It works in a copy of the project, its own or that of a run above it."""
    recorded_ms: int | None = None
    """In a replay: how long it took then. Its report says so again, whatever the clock says."""
    recorded_cuts: list[CallCut] | None = None
    """In a replay: the model calls that gave no reply then, and are still to be told of."""

    @property
    def state(self) -> RunState:
        return self.log.state

    def cut_off(self, usage: Usage, text: str = "") -> None:
        """Write down what a model call took that gave no reply, if it may have taken anything, and what had
        come of it."""
        if (usage != Usage() or text) and self.recorded_cuts is None:
            self.log.write(CallCut, step=self.state.step, usage=usage, text=storable(text))

    def play_cuts(self, step: int | None = None) -> None:
        """In a replay: write down what such calls took then, up to a step or all that is left."""
        due = [cut for cut in self.recorded_cuts or () if step is None or cut.step <= step]
        for cut in due:
            self.log.write(CallCut, step=self.state.step, usage=cut.usage, text=cut.text)
        self.recorded_cuts = self.recorded_cuts and [cut for cut in self.recorded_cuts if cut not in due]

    @property
    def output_schema(self) -> JsonSchema | None:
        """The JSON schema that its answer has to fit, if any: what this question asked for, or its agent."""
        return self.spec.output_schema if self.state.output is None else self.state.output

    @property
    def output_format(self) -> str:
        return self.spec.output_format if self.state.output is None else "json"

    @property
    def is_ending(self) -> bool:
        """Whether it is over, or about to be whatever happens: nothing is begun below it any more."""
        told_to = self.cancel_reason is not None or self.clock.expired
        return told_to or self.gives_up or self.state.report is not None
