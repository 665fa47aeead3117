"""The state of a run: what its log means so far, as one struct of plain fields.

Only `fold.apply` changes it. The loop, the tools and the engine read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from msgspec import Struct

from retinue.course import Course
from retinue.events import (
    About,
    ApprovalAnswered,
    ApprovalRequested,
    CallReviewed,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    CopyLeft,
    GuardSpoke,
    JudgedClaim,
    LimitReached,
    MessageReceived,
    Purpose,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolCalled,
)
from retinue.standing import Standing
from retinue.types import (
    AssistantMessage,
    Effect,
    Effort,
    EndedBy,
    FileState,
    Message,
    Report,
    ResearchPlan,
    Shortfall,
    Source,
    Status,
    StopReason,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

MOST_CHANGED = 1000
"""Files that a report names of those that commands changed: `runs diff` has all."""
MOST_NAMED = 50
"""Names of private data that are kept: that there is some counts, and a person reads a few."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """What had been done when a person last spoke, or when a child was asked again: none of it counts against
    what is allowed for that. `children` is how often each of them had been asked."""

    turns: int = 0
    usage: Usage = Usage()
    spent: float = 0.0
    children: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """A child that a mistake in a call kept from starting. `name`: its agent; empty where that may be any;
    the tool of the call where that makes one up."""

    step: int
    name: str


class Grant(Struct, frozen=True, kw_only=True):
    """What a person approved for the rest of a workflow: what a rule covers, or every call of a tool.

    Without a sandbox runs only what was asked so: neither what was meant to run in one and cannot, nor what
    would run without since the settings are others by now.
    """

    tool: str
    rule: str = ""
    unsealed: bool = False
    sealed: bool = False


def grant_of(asked: ApprovalRequested, answer: ApprovalAnswered) -> Grant | None:
    """What an answer to this question is for beyond it. Who changed the call let that one pass alone."""
    if answer.decision in ("approve", "reject") or asked.concerns or answer.arguments is not None:
        return None
    if asked.rule is None:  # asked before there were rules in questions
        return Grant(tool=asked.tool, unsealed=asked.unsealed)
    if answer.decision not in asked.answers:
        return None
    rule = "" if answer.decision == "approve_tool" else asked.rule
    return Grant(tool=asked.tool, rule=rule, unsealed=asked.unsealed, sealed=asked.sealed)


@dataclass(kw_only=True, slots=True, eq=False)
class RunState:
    """What a run's log means so far. Mutable, changed by `fold.apply` alone."""

    started: RunStarted | None = None
    standing: Standing = field(default_factory=Standing)
    seq: int = 0
    pos: int = 0
    messages: list[Message] = field(default_factory=list[Message])
    step: int = 0
    step_open: StepStarted | None = None
    """The step that has no reply yet."""
    parked: LimitReached | None = None
    """Why and until when it does not ask its model."""
    parked_since: float | None = None
    """When it was first parked in the open step."""
    asking: bool = False
    """Whether the model is being asked: what is said now, it does not see."""
    model: str = ""
    turns: int = 0
    work_turns: int = 0
    """Of those, the ones that count against its turns: since a person last spoke."""
    max_turns: int | None = None
    """Those that a person gave it, a child, over what its agent says."""
    corrections: int = 0
    before: Before = Before()
    asked_again: list[Before] = field(default_factory=list[Before])
    """Of a child: what it had done whenever another piece of work began for it."""
    reported: Report | None = None
    """What it reported of the piece of work before that."""
    summarised: bool = False
    final_reason: str | None = None
    final_cause: EndedBy = ""
    owed: Purpose | None = None
    """What the model was told to do with its answer and has not been asked for yet: to sum up, to mend it."""
    correcting: About = ""
    """What was last found wrong with an answer."""
    reopened_at: float = 0.0
    """When it was last taken up after an end."""
    notices: dict[str, UserMessage] = field(default_factory=dict[str, UserMessage])
    """What was said of the end of a child that nobody waited for, by the child."""
    output: dict[str, Any] | None = None
    """The JSON schema that was asked for with the last question; None: its agent's own, if it has one."""
    unguarded: dict[int, UserMessage] = field(default_factory=dict[int, UserMessage])
    """What was said and no guard has seen yet, by the seq of its event."""
    stopped: GuardSpoke | None = None
    """The guard that ended this turn."""
    faulted: GuardSpoke | None = None
    """The guard that sent the last answer back."""
    last_stop: StopReason = "end"
    work_stop: StopReason = "end"
    """Of the last reply that was work: a summary of what was cut is of work that is not whole."""
    effort: Effort = ""
    answered_by: str = ""
    """The model of the last reply: of a chain, the one that was asked in the end."""
    tool_calls: int = 0
    failed_calls: int = 0
    """Of those that ran: a call that a rule or a person kept from running did not fail."""
    usage: Usage = Usage()
    spent: float = 0.0
    """Dollars that are known to be spent, also where `usage` has a part whose price is not."""
    largest_call: Usage = Usage()
    """What its model calls took at most, each: what the next is expected to take."""
    unpriced: bool = False
    """Something was used, since it was last taken up, that nobody knows the price of."""
    unanswered: bool = False
    """Its model is being asked. What that takes is not in `usage` yet."""
    seen_calls: set[str] = field(default_factory=set[str])
    calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    begun: dict[str, ToolCalled] = field(default_factory=dict[str, ToolCalled])
    courses: dict[str, Course] = field(default_factory=dict[str, Course])
    """How what it waited for reached the code of each call of `run_code`."""
    results: dict[str, ToolMessage] = field(default_factory=dict[str, ToolMessage])
    waiting: dict[str, ApprovalRequested] = field(default_factory=dict[str, ApprovalRequested])
    shows: dict[str, None] = field(default_factory=dict[str, None])
    """Tools that were found with a search, in that order."""
    answers: dict[str, ApprovalAnswered] = field(default_factory=dict[str, ApprovalAnswered])
    asked_about: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """The tool and the arguments that a person was asked about, by the call."""
    judged: dict[str, JudgedClaim] = field(default_factory=dict[str, JudgedClaim])
    """What a judge said of claims, by their digest."""
    reviews: dict[str, CallReviewed] = field(default_factory=dict[str, CallReviewed])
    """What the small model said of calls, by the call."""
    rejected: set[str] = field(default_factory=set[str])
    """The tools of calls that a person said no to since they last spoke."""
    granted: set[Grant] = field(default_factory=set[Grant])
    unsealed: set[str] = field(default_factory=set[str])
    """Calls that a person was asked about as ones without the sandbox."""
    shown: dict[str, str] = field(default_factory=dict[str, str])
    """Digests of what people were shown of calls, by the call."""
    asks: dict[str, MessageReceived] = field(default_factory=dict[str, MessageReceived])
    """What people ask children of this run again, and these have not been asked yet."""
    awaited: dict[str, UserMessage] = field(default_factory=dict[str, UserMessage])
    """What this run was told of such questions, by their id, until the child has ended that was asked."""
    children: dict[str, ChildStarted] = field(default_factory=dict[str, ChildStarted])
    """What each child was last asked."""
    started_by: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The children that a call that has not returned yet started or asked again, by the call."""
    pieces: dict[str, int] = field(default_factory=dict[str, int])
    """How often each child was asked."""
    ended: dict[str, ChildEnded] = field(default_factory=dict[str, ChildEnded])
    """The last end of each child."""
    lately: dict[tuple[str, str], ChildEnded] = field(default_factory=dict[tuple[str, str], ChildEnded])
    """The ends since a person last spoke to this run, by child and call: what they lack counts."""
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    """Calls since then by which no child started, and that no later one stands in for."""
    copy_left: CopyLeft | None = None
    """What of its work is in its copy of the project alone."""
    unmerged: set[str] = field(default_factory=set[str])
    """Children since a person last spoke whose work was to be merged and was not."""
    telling: dict[str, Usage] = field(default_factory=dict[str, Usage])
    """What it took to word the ends of a child for this run, by the child."""
    sources: list[Source] = field(default_factory=list[Source])
    unreadable: dict[str, None] = field(default_factory=dict[str, None])
    """Addresses that a call of this run or one below it asked for, and that were not read by it."""
    source_texts: dict[str, str] = field(default_factory=dict[str, str])
    """What a tool showed of a page or a file, by its address: what a quotation is looked for in."""
    plan: ResearchPlan | None = None
    """Of research, as the last call about it left it."""
    reports_written: int = 0
    """How often, for the question of now."""
    written: str = ""
    """What a call wrote as the answer, for the question of now."""
    files: list[str] = field(default_factory=list[str])
    """What its calls said they wrote, and what its children wrote."""
    changed: dict[str, FileState] = field(default_factory=dict[str, FileState])
    """What its commands changed in the project, each with what lay there before the first of them."""
    seen_files: dict[str, str] = field(default_factory=dict[str, str])
    """The content that this run last saw or wrote at a path, by its hash."""
    seen_messages: set[str] = field(default_factory=set[str])
    digest: UserMessage | None = None
    """What is left of the turns that were dropped from the history."""
    declined: Message | None = None
    """The reply by which the model refused, or summed up at a limit, where the run was taken up again and
    nothing was said to it."""
    answered: Message | None = None
    """The last message of the turns of the conversation that are over."""
    unread: int = 0
    """What was said to this run since its model was asked last."""
    knowledge: UserMessage | None = None
    unknown: ChildEnded | None = None
    """What looked the question up first, where its report did not enter the conversation."""
    queued: list[UserMessage] = field(default_factory=list[UserMessage])
    attempts: dict[tuple[str, str], list[tuple[bool, int]]] = field(
        default_factory=dict[tuple[str, str], list[tuple[bool, int]]]
    )
    copies: dict[str, int] = field(default_factory=dict[str, int])
    """Calls of the last reply that repeat `CIRCLE` or more before them, and how many of them."""
    step_effects: set[Effect] = field(default_factory=set[Effect])
    glances: int = 0
    """Calls of this step that only looked how things stood."""
    delegating_steps: int = 0
    cancelled: CancelRequested | None = None
    finished: RunFinished | None = None
    """Its last end, also while it goes on after that."""
    report: Report | None = None
    at_work: int = 0
    """It has answered, and so many children were still at work then: it waits for what comes first, their
    reports or another word of a person."""
    duration_ms: int = 0
    """How long it worked up to its last end."""
    last_error: str = ""
    """How this run ended the last time, until the model has answered again."""
    began_at: float = 0.0
    last_at: float = 0.0
    is_remains: bool = False
    """Only what is left of a run that has ended: nothing goes on from this."""
    private: dict[str, None] = field(default_factory=dict[str, None])
    """The private data that this run has read, by name, in that order."""
    brought: dict[str, None] = field(default_factory=dict[str, None])
    """Files of the project that were copied into its workspace."""
    said: list[str] = field(default_factory=list[str])
    """What people said to it, word for word, or had a program say for them."""
    vouched: list[str] = field(default_factory=list[str])
    """Of that, what is in a person's own words: the addresses in it were named by nobody else."""
    found: set[str] = field(default_factory=set[str])
    links: set[str] = field(default_factory=set[str])
    """The addresses that searches found and fetched pages link to."""
    followed: list[str] = field(default_factory=list[str])
    """The arguments of calls that went to a link or a search result after it had read private data."""
    cleared: set[str] = field(default_factory=set[str])
    withheld: set[str] = field(default_factory=set[str])
    """What people let leave or be read, and what they did not, for the whole workflow."""

    def course(self, call_id: str) -> Course:
        """How what it waits for reaches the code of a call."""
        return self.courses.setdefault(call_id, Course())

    def use(self, usage: Usage) -> None:
        """Count what was used."""
        self.usage += usage
        self.spent += usage.cost or 0.0
        self.unpriced = self.unpriced or usage.cost is None

    def all_files(self, more: Iterable[str] = ()) -> tuple[str, ...]:
        """The files that it and those below it wrote, changed or removed, also by commands; and `more`."""
        return tuple(dict.fromkeys((*self.files, *islice(self.changed, MOST_CHANGED), *more)))

    @property
    def status(self) -> Status:
        return self.standing.status

    @property
    def shortfall(self) -> Shortfall:
        """What this run and those below it went without since a person last spoke to it."""
        return self.standing.shortfall

    def lacked_by(self, child_id: str) -> Shortfall:
        """What this run goes without because of a child, as its last end since a person spoke has it."""
        ends = [end for (child, _), end in self.lately.items() if child == child_id]
        return ends[-1].shortfall if ends else Shortfall()

    def has_end_of(self, child_id: str, child: RunState) -> bool:
        """Whether the last end of a child is in this log, and not only an earlier one.

        What has no place in the workflow yet was written just now, after all that has one.
        """
        ended, finished = self.ended.get(child_id), child.finished
        if ended is None or finished is None:
            return False
        return ended.pos == 0 or 0 < finished.pos < ended.pos

    def was_told(self, began: ChildStarted, child: RunState) -> bool:
        """Whether the end of this very piece of work is in this log, and with it what the child has read."""
        ended = self.ended.get(began.child_id)
        same = ended is not None and ended.call_id == began.call_id
        return same and self.has_end_of(began.child_id, child)

    @property
    def problems(self) -> list[str]:
        """What is wrong with citations of those below, since a person last spoke to this run."""
        ends = self.lately.values()
        return list(dict.fromkeys(f"{end.agent}: {problem}" for end in ends for problem in end.problems))

    @property
    def open_calls(self) -> list[ToolCall]:
        """Calls of the last reply that have no result yet, in the order they were asked for."""
        return [call for call in self.calls.values() if call.id not in self.results]

    @property
    def answer(self) -> AssistantMessage | None:
        """The reply that asks for nothing more, if that is what the conversation ends with; or what a call
        wrote to stand for it."""
        last = self.messages[-1] if self.messages else None
        if not isinstance(last, AssistantMessage) or last.calls:
            return None
        return AssistantMessage(text=self.written) if self.written else last

    @property
    def awaits_asked(self) -> bool:
        """Whether nothing came since the answer but what people asked children, and these have not ended."""
        if not self.awaited or self.step_open is not None:
            return False
        told = {id(message) for message in self.awaited.values()}
        last = next((message for message in reversed(self.messages) if id(message) not in told), None)
        return isinstance(last, AssistantMessage) and not last.calls

    def settle(self) -> None:
        """Once every call has its result, the results join the history in the order of the calls.

        What is said while the model is asked comes after its reply: it was not part of the question.
        """
        if self.calls and len(self.results) == len(self.calls):
            self.messages.extend(self.results[call_id] for call_id in self.calls)
            self.calls, self.results = {}, {}
        if not self.calls and not self.asking and self.queued:
            self.messages.extend(self.queued)
            self.queued = []

    def reads(self, call_id: str = "") -> dict[str, None]:
        """The private data that may be known to this run: what it has read, and what calls bring that have
        begun and not returned. These leave files in the workspace before their result is there.

        With the id of a call that its model made: to whoever wrote that call, who knew nothing of those
        beside it. Code that one of these runs does, and so it is not with the calls of code.
        """
        beside = self.calls if call_id in self.calls else {}
        begun = (one for one in self.begun.values() if one.call_id.partition("/")[0] not in beside)
        return {**self.private, **dict.fromkeys(name for one in begun for name in one.private)}

    def has_read(self, names: Iterable[str]) -> None:
        """Private data is before the model from here on, and nothing takes that back."""
        for name in names:
            if len(self.private) < MOST_NAMED:
                self.private[name] = None
