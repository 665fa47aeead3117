"""What the API takes and gives about runs and approvals, as pydantic models: the OpenAPI description is made
from these. What it says about the server itself is in `about`.

Events are not here: they go out as the log has them, and their schemas come from `retinue.events` itself
(see `schema`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue

from retinue.events import Decision
from retinue.server.fields import Given, Json, Moment, Shown, Text, Word, storable
from retinue.types import Effect, Effort, EndedBy, Outcome, Risk, Status, Verdict
from retinue.types.model_settings import ServiceTier

# -- runs ------------------------------------------------------------------------------------------


class Total(Shown):
    """A run and everything below it together. `cost` is null where a price is not known."""

    runs: int
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    waiting: int = Field(
        description="questions that wait for a person, and runs that wait for their provider"
    )


class ShortfallOut(Shown):
    """What a run and everything below it went without, counted."""

    rejected: int = Field(description="calls that a person rejected")
    refused: int = Field(description="calls that nobody was there to approve")
    not_started: int = Field(description="children that a limit or a mistake kept from starting")
    failed: int = Field(description="children that failed")
    incomplete: int = Field(description="children whose report is incomplete")
    denied: int = Field(description="calls that a rule denied; they make no run less complete")


class RunOut(Shown):
    """One execution. Tokens and cost are its own, without its children's."""

    run_id: str
    root_id: str
    parent_id: str | None
    depth: int
    agent: str
    label: str
    task: str = Field(description="the beginning of the prompt")
    model: str
    effort: Effort = Field(
        description="how hard the model was last asked to think; empty where it was told nothing"
    )
    status: Status
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    duration_ms: int | None
    summary: str | None = Field(description="the beginning of the last report")
    error: str | None
    cwd: str
    created_at: Moment
    completed_at: float | None
    outcome: Outcome = Field(
        description="how it stands in one word: the status, or why a completed run is not simply done (a "
        "person rejected something, nobody was there to ask, the work is incomplete), or waiting: it or "
        "something below it waits for a person or for a limit of its provider, or interrupted: the process "
        "that ran it is gone"
    )
    parked_until: float | None = Field(
        description="when it, or the first run below a root, asks its model again that waits for such a limit"
    )
    metadata: dict[str, str] = Field(
        description="what the program that started it says of it; of a root alone"
    )
    copy_left: int = Field(description="1 where its own copy of the project has work that is not in it")
    unmerged: int = Field(
        description="copies of the project, its own and those of runs below it, with work that is not in it"
    )
    total: Total
    shortfall: ShortfallOut


class RunMessagesOut(Shown):
    """The whole conversation of one run."""

    run_id: str
    parent_id: str | None
    depth: int
    agent: str
    label: str
    system: str = Field(description="what its model is told of itself")
    messages: list[dict[str, Any]] = Field(
        description="in order, each with a `type`: user, assistant (with its `calls`) or tool (a result)"
    )


class Conversations(Shown):
    runs: list[RunMessagesOut] = Field(description="the run itself and all below it, as they began")


class RunPage(Shown):
    runs: list[RunOut]
    next: str | None = Field(description="`cursor` of the next page; null at the end")


class Owner(Shown):
    """The process that works on a workflow, or did last."""

    host: str
    pid: int
    here: bool = Field(description="it is this server, and it works on it right now")


class UnmergedOut(Shown):
    """What a run made in its copy of the project, and nobody has merged or thrown away."""

    run_id: str
    agent: str
    branch: str = Field(description="in git, the branch it is on")
    path: str = Field(description="the folder of the copy; empty where that is not on this machine, or gone")
    files: int = Field(description="that merging would change, those with conflicts included")
    conflicts: int
    left_out: int = Field(description="paths that cannot be merged")
    above: dict[str, str] = Field(
        description="the copies that it is a copy of, the nearest first: their runs, with the agents"
    )


class RunDetail(Shown):
    run: RunOut
    total: Total
    prompt: str = Field(description="the whole prompt")
    prompt_html: str
    system: str = Field(description="the system prompt")
    tools: list[str] = Field(description="the tools the agent is shown")
    icon: str
    description: str
    forked_from: str | None
    attached_images: int
    options: dict[str, JsonValue]
    limits: dict[str, JsonValue]
    owner: Owner
    cursor: int = Field(description="place of the last event, to follow from")
    unmerged: list[UnmergedOut] = Field(
        description="what it and those below it made that is not in the project; none until all have ended"
    )


class Tree(Shown):
    root_id: str
    runs: list[RunOut] = Field(description="oldest first: a parent comes before its children")
    total: Total
    cursor: int = Field(description="place of the last event, to follow from")


class SourceOut(Shown):
    url: str | None
    path: str | None
    title: str
    fetched_at: float | None
    status: int | None
    sha256: str | None
    saved_as: str | None
    lines: tuple[int, int] | None
    verified: bool
    note: str
    listed: bool = Field(description="a search found it; nobody has read it")


class ClaimDifferenceOut(Shown):
    kind: Literal["number", "date", "name", "negation", "opposite", "quotation"]
    claim: str
    source: str = Field(
        description="what the source says there instead; empty where it says nothing of the kind"
    )


class ClaimOut(Shown):
    text: str
    verdict: Verdict
    start: int = Field(description="its place in the report's text, with `end`")
    end: int
    cites: list[str]
    differences: list[ClaimDifferenceOut]
    source: str = Field(description="the address of the page that `passage` is from")
    passage: str
    judged: str = Field(description="the model whose verdict it is; empty: the program's")
    place: tuple[int, int] | None = Field(description="where the passage stands in the page's text")


class UsageOut(Shown):
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    total_tokens: int
    cost: float | None


class ReportOut(Shown):
    run_id: str
    status: Status
    text: str
    html: str = Field(description="the text, rendered and cleaned")
    agent: str
    format: str
    label: str
    depth: int
    turns: int
    tool_calls: int
    failed_calls: int = Field(description="how many of them ran and failed")
    usage: UsageOut = Field(description="of the run and everything below it")
    duration_ms: int
    sources: list[SourceOut]
    problems: list[str] = Field(description="what is wrong with citations, or missing knowledge")
    problems_of_sources: int = Field(description="how many of them, the first, are of sources not verified")
    claims: list[ClaimOut] = Field(description="cited sentences, each held against its source")
    uncited: int = Field(description="sentences that state something and cite nothing")
    uncited_at: list[tuple[int, int]] = Field(description="where they stand in the text")
    files: list[str]
    incomplete: str | None
    error: str | None
    data: JsonValue
    model: str
    effort: Effort = Field(
        description="how hard the model was asked to think; empty where it was told nothing"
    )
    ended_by: EndedBy = Field(description="what ended it; empty in logs from before this was kept")
    outcome: Outcome = Field(description="the status, or what a completed run lacks to be simply done")
    shortfall: ShortfallOut
    read: list[SourceOut] = Field(description="what was read, here and below, and is not cited in the text")
    at_work: int = Field(description="children that it did not wait for: their reports open its next turn")


PartKind = Literal[
    "prompt",
    "thinking",
    "reply",
    "call",
    "result",
    "approval",
    "answer",
    "child_started",
    "child_ended",
    "message",
    "note",
    "error",
    "report",
]


class Part(Shown):
    """One piece of a transcript. `html` is there where the text is Markdown."""

    pos: int
    at: Moment
    kind: PartKind
    text: str
    html: str | None = None
    title: str = ""
    step: int | None = None
    call_id: str | None = None
    child_id: str | None = None
    status: Status | None = None
    outcome: Outcome | None = Field(
        default=None, description="of a result, the end of a child and a report: how it ended, in one word"
    )
    is_error: bool = False
    is_diff: bool = False
    duration_ms: int | None = None


class RunTranscript(Shown):
    run_id: str
    agent: str
    parts: list[Part]
    next: int | None = Field(description="`after` of the next page; null at the end")


class AttachmentUpload(Given):
    name: Annotated[str, AfterValidator(storable), Field(min_length=1, max_length=255)]
    data: Annotated[str, Field(description="the content, base64")]


class ModelSettingsGiven(Given):
    """How the model of a run is asked. What is left out is as it would be without."""

    effort: Effort = ""
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000, description="of one reply")
    stop: list[Word] = Field(default_factory=list[str], max_length=16)
    seed: int | None = Field(default=None, ge=-(2**53), le=2**53)
    tool_choice: Word = Field(default="", description="`auto`, `none`, `required` or the name of a tool")
    parallel_tool_calls: bool | None = None
    service_tier: ServiceTier = Field(default="", description="for an admin")
    timeout: float | None = Field(default=None, ge=0.001, le=86_400, description="seconds of one call")
    extra_headers: dict[str, Word] = Field(default_factory=dict[str, str], description="for an admin")
    extra_body: Json = Field(default_factory=dict[str, JsonValue], description="for an admin")


class LimitsGiven(Given):
    """What the run and everything below it may use. Of these and the agent's, the lower ones count."""

    turns: int | None = Field(default=None, ge=1, le=2**53)
    input_tokens: int | None = Field(default=None, ge=1, le=2**53)
    output_tokens: int | None = Field(default=None, ge=1, le=2**53)
    cost: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="US dollars")
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="time at work")
    children: int | None = Field(default=None, ge=0, le=2**53)
    concurrency: int | None = Field(default=None, ge=1, le=2**53)


class StartRun(Given):
    """`prompt` is a text; `input` are arguments that fit the agent's input schema. One of the two."""

    agent: Word | None = Field(default=None, description="the default agent if left out")
    prompt: Text | None = None
    input: Json | None = None
    model: Word | None = Field(default=None, description="'provider:name'; the default model if left out")
    label: Word = ""
    settings: Json = Field(
        default_factory=dict[str, JsonValue],
        description="dotted names, for this run alone: see `per_run` in GET /settings",
    )
    attachments: list[AttachmentUpload] = Field(default_factory=list[AttachmentUpload], max_length=20)
    strict_sources: bool = False
    effort: Effort = Field(
        default="", description="how hard the models of the run think, where they can be told"
    )
    model_settings: ModelSettingsGiven | None = Field(
        default=None, description="how its model is asked; what it does not have is refused"
    )
    limits: LimitsGiven | None = None
    metadata: dict[str, Annotated[str, AfterValidator(storable)] | bool | int | float] = Field(
        default_factory=dict[str, str | bool | int | float],
        description="stored with the run: lists can be filtered by it, tools see it; needs the role admin",
    )
    instructions: Text = Field(default="", description="said after the agent's prompt")


class RunAccepted(Shown):
    run_id: str


class CancelRun(Given):
    reason: Word = ""


class Cancelled(Shown):
    cancelled: bool = Field(description="false if it had ended before")
    status: Status


class ResumeRun(Given):
    message: Text | None = Field(default=None, description="go on with this; a finished run needs it")
    settings: Json = Field(
        default_factory=dict[str, JsonValue],
        description="dotted names, for this run from here on: see `per_run` in GET /settings",
    )
    take_over: bool = Field(default=False, description="even if another process seems to work on it")


class ForkRun(Given):
    at: int | None = Field(default=None, ge=1, le=2**53, description="place of the last event to keep")
    message: Text | None = None
    model: Word | None = None


class Message(Given):
    text: Annotated[Text, Field(min_length=1)]


class Told(Shown):
    how: Literal["delivered", "resumed"] = Field(
        description="delivered to a run that goes on, or a finished one was taken up with it"
    )


class Replay(Shown):
    same: bool
    diff: str = Field(description="unified; empty if the same events came out")
    after: int = Field(description="events of the record after its first end, which were not replayed")
    report: ReportOut


# -- what a workflow changed -----------------------------------------------------------------------


class ChangeOut(Shown):
    """What became of one path."""

    path: str
    what: Literal["created", "changed", "removed", "renamed", "rights"]
    was: str = Field(description="where a renamed file was")
    note: str = Field(description="what a diff of lines cannot show: rights, links, bytes that are no text")
    diff: str = Field(description="unified")
    cut: bool = Field(description="there is more to it than the diff shows")
    added: int
    removed: int


class ChangeMade(ChangeOut):
    """A change of a workflow, and what undo would make of it."""

    agents: list[str] = Field(description="who changed it")
    stands: Literal["as_left", "as_before", "refused"] = Field(
        description="as the workflow left it, as it was before it, or otherwise: then undo leaves it alone"
    )
    why: str = Field(description="why undo leaves it alone")


class ChangeList(Shown):
    run_id: str
    project: str = Field(description="the folder that was changed; empty: the run worked in none")
    changes: list[ChangeMade] = Field(description="by path")
    more: int = Field(description="paths that were changed beyond these")
    left_out: list[str] = Field(description="what was changed and is not recorded, with why")
    unfinished: bool = Field(
        description="a command was cut off: what anyone changed since it began is among these"
    )


class UndoRun(Given):
    dry_run: bool = Field(default=False, description="only say what would be taken back")
    rest: bool = Field(default=False, description="leave what is refused as it is, take back the others")


class Refusal(Shown):
    path: str
    why: str


class UndoneOut(Shown):
    paths: list[str] = Field(description="what is as before now, or would be; empty: nothing was touched")
    already: list[str] = Field(description="what was as before already")
    refused: list[Refusal] = Field(description="what is left as it is. Without `rest`, so is all the rest")
    left_out: list[str] = Field(description="what was changed besides and cannot be taken back, in words")


class ConflictOut(Refusal):
    text: str = Field(description="both texts with marks, where the same lines were changed")


class WorktreeOut(Shown):
    """A copy of the project in which an isolated child worked, and what merging it would do."""

    run_id: str
    agent: str
    branch: str = Field(description="in git, the branch it is on")
    path: str = Field(description="the folder of the copy")
    changes: list[ChangeOut] = Field(description="what would change in the project")
    more: int = Field(description="paths that would change beyond these")
    conflicts: list[ConflictOut] = Field(description="what was changed on both sides in ways that do not fit")
    left_out: list[str] = Field(description="what is not merged, with why")


class WorktreeList(Shown):
    worktrees: list[WorktreeOut]


class MergeRun(Given):
    rest: bool = Field(default=False, description="leave out files with conflicts, merge the others")
    discard: bool = Field(default=False, description="throw the copy and its branch away instead")


class Merged(Shown):
    text: str = Field(description="what was done")


# -- approvals -------------------------------------------------------------------------------------


class UncoveredOut(Shown):
    """The first part of a command that no allow rule means."""

    part: str = Field(description="as it is written; empty if the command cannot be taken apart")
    word: str = Field(description="the word in it that `rule` does not mean; empty: all of it")
    rule: str = Field(description="the rule that means the rest of the part; empty: none does")
    why: str = Field(description="why the command cannot be taken apart; else empty")


class ApprovalOut(Shown):
    """A question that waits for a person."""

    approval_id: str
    run_id: str
    root_id: str
    depth: int
    at: Moment
    path: list[str] = Field(description="the agents from the root down to the one that asks")
    tool: str
    effect: Effect
    risk: Risk
    reason: str = Field(description="why it asks")
    arguments: str = Field(description="JSON, as the model wrote it")
    preview: str = Field(description="what the call would do: a command, a diff")
    is_diff: bool
    call_id: str
    answer_by: Moment | None = Field(description="until when an answer counts; null: it waits for one")
    rule: str | None = Field(
        description="the narrowest rule that covers the call; empty: none can be written; null: asked by an "
        "older version"
    )
    answers: list[Decision] = Field(description="what may be said to it")
    form: dict[str, Any] | None = Field(
        default=None,
        description="the JSON schema of what is asked, where the answer are the arguments; null: an approval",
    )
    uncovered: UncoveredOut | None = Field(
        default=None, description="what of a command no allow rule covers; null: there is none for commands"
    )


class ApprovalList(Shown):
    approvals: list[ApprovalOut] = Field(description="oldest first")


class ApprovalAnswer(Given):
    decision: Decision = Field(
        description="approve: this call. approve_run: and what its rule covers in the rest of the run. "
        "approve_tool: and every further call of the tool in it. approve_always: and what the rule covers "
        "from now on, in this folder"
    )
    reason: Annotated[str, AfterValidator(storable), Field(max_length=4000)] = ""
    arguments: Json | None = Field(default=None, description="run it with these instead")


class AnswerRecorded(Shown):
    approval_id: str
    decision: Decision
    also: list[str] = Field(description="questions that waited too and that the answer was for")
    by: str
