"""One execution of a spec on a prompt: what the loop is handed, and the log it writes.

The engine builds a `Run`; the loop reads it and writes to its log. A run knows no database and no other
run: what reaches beyond it (approvals, reviews, waiting children) are functions it was given.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import msgspec

from retinue.approvals import Authority, Verdict
from retinue.budget import Budget
from retinue.claims.report import Claims
from retinue.clock import Clock
from retinue.errors import ModelError, Refused, StoreError, Unwritable, told
from retinue.events import (
    About,
    CallCut,
    Event,
    HistoryPruned,
    LiveEvent,
    ModelReplied,
    PromptPart,
    RunStarted,
    ToolReturned,
    decode,
    encode,
    now,
)
from retinue.fold import apply
from retinue.guards import Looked
from retinue.models.base import Model
from retinue.run_state import RunState
from retinue.settings import ContextSettings, LimitSettings
from retinue.skills import Skill
from retinue.tools.base import FormFilled, FormQuestion, SampleRequest, Tool
from retinue.tools.changing import Changes
from retinue.tools.notes import Kind
from retinue.types import AddressFrom, AgentSpec, JsonSchema, Reply, Report, ToolCall, ToolSpec, Usage
from retinue.workspace import Files

E = TypeVar("E", bound=Event)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def _base32(number: int, length: int) -> str:
    digits: list[str] = []
    for _ in range(length):
        number, rest = divmod(number, 32)
        digits.append(_ALPHABET[rest])
    return "".join(reversed(digits))


def new_id() -> str:
    """A root's id: sorts by time, cannot be guessed."""
    return "r" + _base32(int(time.time() * 1000), 9) + _base32(secrets.randbits(40), 8)


def child_id(parent_id: str, call_id: str, key: str = "") -> str:
    """A child's id follows from its parent's call, so a resumed parent finds the child it started.

    `key` tells the children of one call apart.
    """
    digest = hashlib.sha256(f"{parent_id}\0{call_id}\0{key}".encode()).digest()
    return "c" + _base32(int.from_bytes(digest[:11], "big"), 17)


def batch_run_id(scope: str, name: str, key: str, prompt: str, nth: int) -> str:
    """The id of one run of a batch follows from what it is to do, so a second start finds the first.

    `nth` tells equal inputs of one batch apart.
    """
    digest = hashlib.sha256("\0".join((scope, name, key, prompt, str(nth))).encode()).digest()
    return "m" + _base32(int.from_bytes(digest[:11], "big"), 17)


class RunLog:
    """The log of one run: stamps events, applies them to the state, hands them to the store in order."""

    def __init__(
        self,
        *,
        run_id: str,
        root_id: str,
        parent_id: str | None,
        depth: int,
        append: Callable[[Sequence[Event]], asyncio.Future[None]],
        publish: Callable[[LiveEvent], None],
        state: RunState | None = None,
    ) -> None:
        self.run_id, self.root_id, self.parent_id, self.depth = run_id, root_id, parent_id, depth
        self.state = state or RunState()
        self.publish = publish
        self._append = append
        self._noted: list[Event | LiveEvent] = []
        """What is to be written next, and what is shown in between."""
        self._line: list[Event | LiveEvent] | None = None
        """What is published as soon as the last write is durable."""
        self._failure: BaseException | None = None

    def stamp(self, kind: type[E], /, **fields: Any) -> E:
        """The next event of this run, already part of its state; it still has to be committed."""
        event = storable_event(
            kind(
                run_id=self.run_id,
                root_id=self.root_id,
                parent_id=self.parent_id,
                depth=self.depth,
                seq=self.state.seq + 1,
                at=now(),
                **fields,
            )
        )
        try:
            apply(self.state, event)
        except BaseException as error:  # half applied, it is no state to go on from
            self.shut(error)
            raise
        return event

    def commit(self, *events: Event) -> asyncio.Future[None]:
        """Put these events in line as one transaction. Done when they are durable.

        Whoever is cancelled while it waits for that takes nothing back: they are written and published.
        """
        if self._failure is not None:
            raise self._failure
        line, self._noted = [*self._noted, *events], []
        try:
            written = self._append([each for each in line if isinstance(each, Event)])
        except BaseException as error:
            self.shut(error)  # they are part of the state, and will never be part of the log
            raise
        if written.done() and not written.cancelled() and (failure := written.exception()) is not None:
            self.shut(failure)  # at once: what follows from these events must not be stored without them
        self._line = line
        written.add_done_callback(partial(self._written, line))
        waited_for = asyncio.shield(written)
        waited_for.add_done_callback(_looked_at)  # not everyone waits
        return waited_for

    def write(self, kind: type[Event], /, **fields: Any) -> asyncio.Future[None]:
        return self.commit(self.stamp(kind, **fields))

    def note(self, kind: type[Event], /, **fields: Any) -> None:
        """Write what nobody waits for: together with what follows at once, or else by itself."""
        if self._failure is not None:
            raise self._failure
        if not self._noted:
            asyncio.get_running_loop().call_soon(self._write_noted)
        self._noted.append(self.stamp(kind, **fields))

    def show(self, event: LiveEvent) -> None:
        """Publish what is not kept, after all that was written before it: a call before its progress."""
        line = self._noted or self._line
        if line is None:
            self.publish(event)
        else:
            line.append(event)

    def _write_noted(self) -> None:
        if self._noted and self._failure is None:
            self.commit()

    def shut(self, why: BaseException) -> None:
        """Nothing more is written from here: whoever tries gets `why`."""
        self._failure = why

    def _written(self, line: list[Event | LiveEvent], written: asyncio.Future[None]) -> None:
        if self._line is line:
            self._line = None
        if written.cancelled():
            return
        failure = written.exception()
        if failure is not None:  # not everyone waits for a write: the run must still stop at its next
            self._failure = failure
            return
        for event in line:  # nobody hears of what is not durable
            self.publish(event)  # pyright: ignore[reportArgumentType] # every event class is in the union


def _looked_at(written: asyncio.Future[None]) -> None:
    """Its failure is kept by the log: nobody has to be warned that nobody waited for it."""
    if not written.cancelled():
        written.exception()


def storable(text: str) -> str:
    """Text as every database takes it: without lone surrogates and NULs, which models and files can hold."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def storable_event(event: E) -> E:
    """The event with every text in it as every database takes it, whoever wrote that text.

    The one place that all events pass: text comes from models, tools, people and files, and a log that
    holds one such character could never be written, nor its run be taken up.
    """
    try:
        try:
            written = encode(event)  # pyright: ignore[reportArgumentType] # every event class is in the union
        except UnicodeEncodeError:
            written = None
        if written is None or b"\\u0000" in written:
            return msgspec.convert(_storable_in(msgspec.to_builtins(event)), type(event))
        if isinstance(
            event, RunStarted | ModelReplied | ToolReturned
        ):  # what others filled in may be of any type
            decode(written)
    except MemoryError:
        raise StoreError(
            f"no memory left to write event {event.seq} of run {event.run_id} to its log: free some memory, "
            "then resume the run",
            passing=True,
        ) from None
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise Unwritable(told(error), run_id=event.run_id) from None
    return event


def _storable_in(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {storable(name): _storable_in(each) for name, each in fields.items()}
    if isinstance(value, list | tuple):
        return [_storable_in(each) for each in cast("list[Any]", value)]
    return value


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


async def always_due(what: int | str) -> None:
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
    short_of_time: Callable[[int], str | None]
    """Why this step has to be the last, since the time is nearly up."""
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
    due: Callable[[int], Awaitable[None]] = always_due
    """In a replay: waits until a step began then, so that it is asked with what it was asked with."""
    call_due: Callable[[str], Awaitable[None]] = always_due
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
