"""Every kind of event, each one fact about a run. A new one is written here and added to `AnyEvent`."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from retinue.events.parts import (
    BEFORE_RULES,
    About,
    Decision,
    Knowledge,
    PromptPart,
    Purpose,
    RunOptions,
    Sender,
)
from retinue.types import (
    AddressFrom,
    AgentSpec,
    AssistantMessage,
    Effect,
    Effort,
    EndedBy,
    FileChange,
    Image,
    Limits,
    Message,
    NotRun,
    Outcome,
    Report,
    ReportFields,
    ResearchPlan,
    Risk,
    Shortfall,
    Source,
    Status,
    StopReason,
    Uncovered,
    Usage,
    Verdict,
)

VERSION = 2
"""1: what a result holds of private data is not said; it follows from the effect of its tool."""


QUEUE = "queue"
"""The owner of what waits for a worker: nobody works on it, and no process is to take it up by itself."""


class Event(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The envelope: which run, where in the tree, which place in the run's log."""

    run_id: str
    root_id: str
    parent_id: str | None
    depth: int
    seq: int
    at: float
    pos: int = 0
    v: int = VERSION


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    """`system` and `rendered` are what the model is shown; `prompt` is what was asked.

    `parts` are the parts of `system` in order, with a blank line between them; `question` is how much of
    `rendered` is the question itself, before what is attached to it.
    """

    spec: AgentSpec
    prompt: str
    system: str = ""
    rendered: str = ""
    images: tuple[Image, ...] = ()
    label: str = ""
    model: str = ""
    call_id: str | None = None
    limits: Limits = Limits()
    tools: tuple[str, ...] = ()
    cwd: str = ""
    host: str = ""
    pid: int = 0
    forked_from: str | None = None
    forked_at: float | None = None
    """Of a copy: when it was made. `at` is when the run that it is of began."""
    options: RunOptions = RunOptions()
    parts: tuple[PromptPart, ...] = ()
    question: int = 0
    owner: str = ""
    """Who works on it: the random id of one opened `Retinue`. `host` and `pid` are for people to read."""
    private: tuple[str, ...] = ()
    """The private data that its parent had read when it wrote the prompt, and a memory that outlives runs."""
    history: tuple[Message, ...] = ()
    """What was said before, elsewhere: a conversation that was brought along."""
    unmet: dict[str, str] = {}
    """Settings that its agent wants and its model does not have: each with the model that lacks it."""
    guarded: bool = False
    """Guards have seen the prompt before it was written here."""


class RunResumed(Event, frozen=True, kw_only=True, tag="run_resumed"):
    """A process took the run up again. Writing this is also what fences off the previous one."""

    host: str = ""
    pid: int = 0
    reason: str = ""
    yes: bool = False
    """Whether what no rule denies or asks about is approved from here on."""
    owner: str = ""
    """Who works on it from here on."""
    signals: int | None = field(default=None, name="letters")
    """Of the root: the last signal that was there. A cancel up to it is what the run is resumed from."""
    settings: dict[str, Any] = {}
    """Of the root: what the run is given from here on, by dotted names, over what it was given before."""
    model: str = ""
    """The model from here on, if it is another."""
    stopped_at: float | None = None
    """When anybody last worked on the workflow before that. None in a log from before this was kept."""
    cut: Usage = Usage()
    """What the model call took that was under way when its process ended: its cost is None, since nobody was
    told, unless the model is free."""


class RunQueued(Event, frozen=True, kw_only=True, tag="run_queued"):
    """Nobody works on the run: its workflow waits for a worker. In the log of the root this is a job in the
    queue, stored in the same transaction, and its `seq` tells the jobs of one workflow apart."""

    why: Literal["started", "resumed", "parked", "handed_over"] = "started"
    queue: str = ""
    """Of the root, as are those below: the workers that may take it, by the name of their queue."""
    priority: int = 0
    parked: bool = False
    """It waits for a person or a limit: no worker is to take it before `until`, or before a signal."""
    until: float | None = None
    signals: int = field(default=0, name="letters")
    """The last signal that was read: with a later one it is not parked."""
    answering: str = ""
    """Whether its questions are asked, `ask`, or refused. Empty: as the worker is told."""
    yes: bool = False
    host: str = ""
    pid: int = 0
    owner: str = QUEUE


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    """The intent to call the model. `cause` is why this is the last step with a report to write.

    `used` is how much of its time the run had used by then: what stood still does not show in `at`.
    """

    step: int
    model: str
    purpose: Purpose = "work"
    reason: str = ""
    cause: EndedBy = ""
    used: float | None = None


class StepRetried(Event, frozen=True, kw_only=True, tag="step_retried"):
    """The model call failed and is made again. `text_shown`: what was streamed so far is void.

    `model` is who is asked instead, where it is the next of a chain; `begun`: a reply had begun by then,
    which may be charged for: the run costs what nobody knows.
    """

    step: int
    reason: str
    attempt: int
    wait: float
    text_shown: bool = False
    model: str = ""
    begun: bool = False


class CallCut(Event, frozen=True, kw_only=True, tag="call_cut"):
    """A model call was cut off or failed after it had begun, and there is no reply. The cost of `usage` is
    None: what it took nobody was told. `step` is the one it belongs to, if only to shorten its history."""

    step: int
    usage: Usage
    text: str = ""
    """What had come of its answer by then, where that may be all that there is."""


class LimitReached(Event, frozen=True, kw_only=True, tag="limit_reached"):
    """The provider takes nothing more before a limit resets: the run is parked, and asks again by itself.

    Meanwhile it takes no time and costs nothing. `model` is who is not asked: another one may be.
    """

    step: int
    model: str
    reason: str
    until: float
    """When it asks again, in seconds since 1970: a little later than the provider said."""


class LimitPassed(Event, frozen=True, kw_only=True, tag="limit_passed"):
    """A parked run goes on: it asks the model again."""

    step: int


class ModelReplied(Event, frozen=True, kw_only=True, tag="model_replied"):
    """Paid for: never asked again."""

    step: int
    message: AssistantMessage
    usage: Usage
    stop: StopReason
    model: str
    duration_ms: int = 0
    thinking: str = ""
    effort: Effort = ""
    """How hard the model was asked to think, as its provider took it."""


class ToolCalled(Event, frozen=True, kw_only=True, tag="tool_called"):
    """The tool is about to run, with these arguments (a person may have edited them)."""

    call_id: str
    name: str
    arguments: str
    effect: Effect
    repeatable: bool
    address: AddressFrom = ""
    private: tuple[str, ...] = ()
    """The private data that it may bring, by name: until it has returned, what it leaves may be of that."""


class ToolReturned(Event, frozen=True, kw_only=True, tag="tool_returned"):
    call_id: str
    name: str
    text: str
    is_error: bool = False
    duration_ms: int = 0
    timed: bool = False
    """The clock of the code that made the call moved on by what it took. In a log from before that, and of
    calls that no code made, it did not."""
    sources: tuple[Source, ...] = ()
    files: tuple[str, ...] = ()
    usage: Usage = Usage()
    rolled_back: bool = False
    """Code whose variables are again what they were before it. Its text says so too, but code can do that."""
    not_run: NotRun = ""
    """Why the tool did not run, if it did not."""
    not_started: int = 0
    """Children that this call was to start and did not."""
    wrong: int = 0
    """Of those, the ones that a mistake in the call kept from starting: a later call may set that right."""
    meant: tuple[str, ...] = ()
    """For whom each was that did not start, first those of a mistake: an agent, or the tool where the call
    names none that is there."""
    corrects: int = 0
    """Children that a mistake in calls before it kept from starting, and that this one stands in for."""
    children: tuple[str, ...] = ()
    """The children whose reports it gives back, started by this call or by one before."""
    private: tuple[str, ...] = ()
    """The private data that the result rests on, by name: files of the project, a tool that gives such."""
    found: tuple[str, ...] = ()
    """The addresses of the results of a search."""
    links: tuple[str, ...] = ()
    """The addresses that a fetched page links to."""
    passing: bool = False
    """It says how things stood at a moment, and were soon otherwise: to ask again is no circle."""
    fields: ReportFields | None = None
    """What code that called an agent reads of its report, field by field. Of calls from code alone."""
    shows: tuple[str, ...] = ()
    """Tools that the run is shown from now on: those that a search of MCP servers found."""
    images: tuple[Image, ...] = ()
    """Pictures that it gave back, for models that take them."""
    merge_of: str = ""
    """The child whose copy of the project was to be merged."""
    unmerged: int = 0
    """1: that was not done, for a conflict or since a file could not be written; -1: it is done now, after it
    had not been."""
    plan: ResearchPlan | None = None
    """The plan of research as this call left it."""
    answer: str = ""
    """The text that it wrote as the answer of its run, whatever the last words of that are."""
    outcome: Outcome | Literal[""] = ""
    """How the call ended in one word: one that waited for children as the worst of them. Empty in a log from
    before this was kept; `story.with_facts` fills it in."""


class CodeWoken(Event, frozen=True, kw_only=True, tag="code_woken"):
    """Code that waits was told something otherwise than in the order of its calls: an answer that came before
    that of an earlier call, or that a timer was due. From the first of these on the order of the log counts.
    Code that is run again is woken in the same way. Written where that is so, and never for each answer."""

    call_id: str
    nth: int
    """How often it had been told something by then."""
    clock: bool = False
    """A timer of the code was due before an answer was there."""


class FilesChanged(Event, frozen=True, kw_only=True, tag="files_changed"):
    """What a call changes in the project, each with its before. The bytes are kept beside the log.

    Of a call that names its files (`exact`) it is written before the file is: where the disk shows the
    before, it did not come to that. Of a command it is written after it. `void`: these changes were not made.
    """

    call_id: str
    changes: tuple[FileChange, ...] = ()
    exact: bool = False
    void: bool = False
    interrupted: bool = False
    """Found when the run was taken up: others may have changed files since the command was cut off."""
    left_out: tuple[str, ...] = ()
    """What cannot be taken back, and why."""


class ChangesUndone(Event, frozen=True, kw_only=True, tag="changes_undone"):
    """A person took back what the workflow had changed. In the log of its root."""

    paths: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """What stayed as it was, and why."""
    by: str = "person"


class RunRenamed(Event, frozen=True, kw_only=True, tag="run_renamed"):
    """A person gave the workflow another name for lists. In the log of its root, also after its end."""

    label: str = ""
    by: str = "person"


class CopyLeft(Event, frozen=True, kw_only=True, tag="copy_left"):
    """What a run made in its copy of the project and the project has not. Written when the run ends, and when
    it is otherwise since: merged, in whole or in part, or thrown away. In its own log, also after its end."""

    branch: str = ""
    files: int = 0
    """That could be merged."""
    left_out: int = 0
    """Paths that cannot be."""
    more: int = 0
    """By how much there are more such copies than before it: 1, 0 or -1."""


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval_requested"):
    """A question to a person. `path` names the agents from the root down to the one that asks."""

    approval_id: str
    call_id: str
    tool: str
    arguments: str
    effect: Effect
    risk: Risk
    reason: str = ""
    preview: str = ""
    path: tuple[str, ...] = ()
    concern: str = ""
    """Why a person is asked although the rules would let the call run: a part of `reason`."""
    concerns: tuple[str, ...] = ()
    """What the answer holds for in the whole workflow: hosts that private data could reach, files with
    secrets. Empty if it is for this call alone."""
    unsealed: bool = False
    """Whoever approves lets a command run without the sandbox that it was meant for."""
    answer_by: float | None = None
    """Until when an answer counts, in seconds since 1970; None: it waits for one."""
    rule: str | None = None
    """The narrowest rule that covers this call; empty: none can be written. None: asked before there were
    rules in questions, when an approval for the rest of the run was for every call of the tool."""
    answers: tuple[Decision, ...] = BEFORE_RULES
    """What may be said to it."""
    sealed: bool = False
    """It runs in the sandbox: an approval for more than this call is for calls in the sandbox alone."""
    shown: str = ""
    """A digest of what the preview was made from, where the tool has one: nothing else is approved."""
    form: dict[str, Any] | None = None
    """What is asked for, as a JSON schema, where a call that runs needs to know something: `arguments` are
    the answer as far as it is known, and whoever approves sends them as they should be. Empty: only a yes."""
    uncovered: Uncovered | None = None
    """What of a command no allow rule means, where there are some for commands."""


class ApprovalAnswered(Event, frozen=True, kw_only=True, tag="approval_answered"):
    approval_id: str
    call_id: str
    decision: Decision
    reason: str = ""
    arguments: str | None = None
    by: str = "person"
    along_with: str = ""
    """The question whose answer was for this one too."""


class ModelSampled(Event, frozen=True, kw_only=True, tag="model_sampled"):
    """The small model wrote something for an MCP server while a call of it ran (`mcp.sampling`), and a person
    had agreed. `text` is what the server was given; empty if nothing came of it, and then `why` says why."""

    call_id: str
    tool: str
    server: str
    text: str = ""
    why: str = ""
    model: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0


class JudgedClaim(Struct, frozen=True, kw_only=True):
    """`of` is a digest of the claim and the passage that were looked at."""

    of: str
    verdict: Verdict
    model: str = ""


class ClaimsJudged(Event, frozen=True, kw_only=True, tag="claims_judged"):
    """A model was asked about claims of an answer that the program cannot decide (`sources.judge`). `asked`
    are digests of them; `why` says why nothing came of it. Paid for: never asked again."""

    asked: tuple[str, ...]
    verdicts: tuple[JudgedClaim, ...] = ()
    why: str = ""
    model: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0


class CallReviewed(Event, frozen=True, kw_only=True, tag="call_reviewed"):
    """The small model was asked whether a call is harmless, before a person would be (`approvals.reviewer`).
    If `cleared`, the call ran for that, and nobody was asked. Paid for: never asked again."""

    call_id: str
    tool: str
    cleared: bool
    why: str = ""
    model: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0
    of_call: str = ""
    """A digest of the tool and the arguments that were looked at: nothing else is cleared."""


class ChildStarted(Event, frozen=True, kw_only=True, tag="child_started"):
    child_id: str
    agent: str
    prompt: str
    label: str = ""
    call_id: str = ""
    key: str = ""
    reserved: Limits = Limits()
    """What its own definition limits it to."""
    background: bool = False
    as_tool: bool = False
    """An agent that was called by its own name: these are counted apart."""
    continues: bool = False
    """The child had ended, and is asked again: the same run goes on with all it knows, as another piece of
    work, which is counted and has its own share of the budget."""
    lacked: Shortfall = Shortfall()
    """What its pieces before this one lacked, which its end counts as well: none where a person asks it."""


class ChildEnded(Event, frozen=True, kw_only=True, tag="child_ended"):
    """`notice` is what a parent that did not wait is told before its next model call. A child that was
    stopped and goes on ends once more: of its ends the last one counts."""

    child_id: str
    agent: str
    status: Status
    usage: Usage
    label: str = ""
    call_id: str = ""
    duration_ms: int = 0
    notice: str = ""
    shortfall: Shortfall = Shortfall()
    """What its parent goes without because of it: its own shortfall, and the child itself if it failed."""
    instead: Shortfall = Shortfall()
    """What was counted so far for earlier ends of the same child, which this one takes the place of."""
    private: tuple[str, ...] = ()
    """The private data that it had read when it wrote its report."""
    problems: tuple[str, ...] = ()
    """What is wrong with its citations and those below it."""
    sources: tuple[Source, ...] = ()
    """What it fetched and read, where its notice is all that its parent gets of it."""
    telling: Usage = Usage()
    """The part of `usage` that was not the child's: what it took to shorten its report for its parent."""
    ended_by: EndedBy = ""
    """What ended it. Empty in a log from before this was kept."""
    files: tuple[str, ...] = ()
    """The files of the project that it and those below it wrote; none of what lies in a copy."""
    opens: bool = False
    """Its parent had answered without it: the next turn of the conversation begins with its report."""
    digest: str = ""
    """Of what it reported, and of nothing that is its own alone, such as its id and its time: who is told the
    same again and again goes in a circle. Empty in a log from before this was kept."""


class MessageReceived(Event, frozen=True, kw_only=True, tag="message_received"):
    """Said to the run while it goes on (steering), or to a finished one (the conversation goes on)."""

    text: str
    sender: Sender = "person"
    message_id: str = ""
    sources: tuple[Source, ...] = ()
    """What the text rests on, where another agent looked it up for this run."""
    about: About = ""
    knowledge: Knowledge | None = None
    private: tuple[str, ...] = ()
    """The private data that a parent had read when it wrote this."""
    brought: tuple[str, ...] = ()
    """Files of the project that were copied into the workspace, because a person has named them."""
    opens: bool = False
    """Another piece of work begins with it, for a child that had ended."""
    lacked: Shortfall = Shortfall()
    """What the pieces before that one lacked: it still counts, unless a person asks."""
    asks: str = ""
    """The child that had ended and that a person asks again with this, beside the run that had started it."""
    awaited: bool = False
    """That child ends before the model of this run is asked what to make of it. False in older logs."""
    max_turns: int | None = None
    """Of what is said to a child that had ended: how many answers it has from here on, if not those that its
    agent says."""
    next_turn: bool = False
    """Said to a run that had answered, while children of it were still at work."""
    rendered: str = ""
    """What the model reads, where that is more than the text: with what is attached."""
    images: tuple[Image, ...] = ()
    output: dict[str, Any] | None = None
    """The JSON schema that the answer to it has to fit. None: as its agent says."""
    guarded: bool = False
    """Guards have seen the text before it was written here."""


class GuardSpoke(Event, frozen=True, kw_only=True, tag="guard_spoke"):
    """A guard of the program said something to a text that came in, or to an answer, or all of them let it
    pass (`guard` is empty then).

    `stop` ends the run, `mend` puts another text in its place, `correct` sends an answer back.
    """

    side: Literal["input", "output"]
    decision: Literal["pass", "stop", "mend", "correct"]
    guard: str = ""
    why: str = ""
    removed: str = ""
    """The text before. Empty where the guard hides it, or changed nothing."""
    hidden: bool = False
    about: int = 0
    """Of what came in: the `seq` of the event that it came with, if it is in the log already; `text` then is
    what stands in its place. 0: that event has the new text, or it was no such event."""
    text: str = ""
    failed: bool = False
    """It gave no verdict, and `why` says how it failed. Whoever takes the run up asks it again."""


class HistoryPruned(Event, frozen=True, kw_only=True, tag="history_pruned"):
    """The `dropped` messages after the first were replaced by `summary`."""

    dropped: int
    summary: str
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()


class AccessDenied(Event, frozen=True, kw_only=True, tag="access_denied"):
    """For audit: something was tried that this run may not do."""

    what: str
    detail: str
    call_id: str = ""


class CancelRequested(Event, frozen=True, kw_only=True, tag="cancel_requested"):
    reason: str = ""
    by: str = "person"


class ErrorRaised(Event, frozen=True, kw_only=True, tag="error_raised"):
    message: str
    kind: str = "error"


class RunFinished(Event, frozen=True, kw_only=True, tag="run_finished"):
    """The end of a run, or of a turn of it: where children of it are still at work, it goes on."""

    report: Report
    cut: Usage = Usage()
    """The same where whoever was at work is gone, and another wrote this end: what the call took that was
    under way. In a log from before there was `call_cut`, what all those took. The report counts it too."""
    of_copy: int = 0
    """Characters at the end of the report's text that say what was done in its copy of the project."""


AnyEvent = (
    RunStarted
    | RunResumed
    | RunQueued
    | StepStarted
    | StepRetried
    | CallCut
    | LimitReached
    | LimitPassed
    | ModelReplied
    | ToolCalled
    | ToolReturned
    | CodeWoken
    | FilesChanged
    | ChangesUndone
    | RunRenamed
    | CopyLeft
    | ApprovalRequested
    | ApprovalAnswered
    | CallReviewed
    | ClaimsJudged
    | ModelSampled
    | ChildStarted
    | ChildEnded
    | MessageReceived
    | HistoryPruned
    | GuardSpoke
    | AccessDenied
    | CancelRequested
    | ErrorRaised
    | RunFinished
)

Beside = ChangesUndone | CopyLeft | FilesChanged | RunRenamed
"""What may be written to the log of a run that has ended, and opens it no more."""
