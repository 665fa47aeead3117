"""What comes back from a run, and what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import msgspec
from msgspec import Struct

from retinue.types.messages import Message, Usage
from retinue.types.model_settings import Effort
from retinue.types.outcomes import EndedBy, Outcome, Shortfall, Status, ended_as

T = TypeVar("T")
AnyOutput = TypeVar("AnyOutput")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Output = TypeVarWithDefault("Output", default=Any)
    Deps = TypeVarWithDefault("Deps", default=None)
else:  # a default is for type checkers alone
    Output, Deps = TypeVar("Output"), TypeVar("Deps")


class Source(Struct, frozen=True, kw_only=True):
    """Something that was really fetched or read: a page (`url`) or a file (`path`, with its lines).

    `aliases` are the URLs that led to a page: the one that was asked for and those of its redirects.
    `fetched_at` is in seconds since 1970, `status` that of HTTP, `sha256` of what came, `saved_as` where it
    lies, `lines` the first and last that were read. `verified` is False of what the text only cites; `note`
    says more.
    """

    url: str | None = None
    path: str | None = None
    title: str = ""
    fetched_at: float | None = None
    status: int | None = None
    sha256: str | None = None
    saved_as: str | None = None
    lines: tuple[int, int] | None = None
    aliases: tuple[str, ...] = ()
    verified: bool = True
    note: str = ""
    listed: bool = False
    """It was among the results of a search, and is not read by that."""


Verdict = Literal["supported", "contradicted", "not_found", "unchecked"]


class ClaimDifference(Struct, frozen=True, kw_only=True):
    """What a claim says, and what its source says there instead; `""` where it says nothing of the kind."""

    kind: Literal["number", "date", "name", "negation", "opposite", "quotation", "code"]
    claim: str
    source: str = ""


class Claim(Struct, frozen=True, kw_only=True):
    """A sentence of a report that cites something, held against the passage of that source that fits it best;
    or a block of code that stands under a place in a file, held against that place.

    `start` and `end` are its place in the report's text, `place` that of the passage in the text of `source`.
    """

    text: str
    verdict: Verdict
    start: int = 0
    end: int = 0
    cites: tuple[str, ...] = ()
    differences: tuple[ClaimDifference, ...] = ()
    source: str = ""
    passage: str = ""
    judged: str = ""
    """The model whose verdict it is; empty for what the program decided."""
    place: tuple[int, int] | None = None


class ReportFields(Struct, frozen=True, kw_only=True):
    """What code reads of a child's report beside the framed text: the child's own words, without a frame."""

    text: str
    status: Status
    child_id: str
    incomplete: str | None = None
    error: str | None = None
    data: Any = None
    sources: tuple[Source, ...] = ()
    metrics: dict[str, int] = {}


class RunMessages(Struct, frozen=True, kw_only=True):
    """The whole conversation of one run: `system` is what its model is told of itself."""

    run_id: str
    parent_id: str | None
    depth: int
    agent: str
    label: str
    system: str
    messages: tuple[Message, ...]


class Report(Struct, Generic[Output], frozen=True, kw_only=True, dict=True):
    """What comes back from a run. `Report[Booking]` is that of one which was asked for a `Booking`.

    `text` is the answer, in `format` (`markdown` or `json`); `data` is that of a typed one. `files` are
    those that it and those below it wrote, changed or removed, also by commands; `duration_ms` is how long it
    worked. `usage` counts the run and everything below it;
    `turns` and `tool_calls` are the run's own. `sources` are what was really fetched or read, and what the
    text cites beyond that, marked as not verified; `problems` say what is wrong with citations and
    quotations, and that knowledge could not be looked up first. `incomplete` says why the work is not
    finished, or is None; `ended_by` is the same as a fact. `shortfall` counts what the run and everything
    below it went without. `at_work` is how many children it did not wait for: what they report opens the
    next turn of the conversation.
    """

    run_id: str
    status: Status
    text: str
    agent: str
    format: str = "markdown"
    label: str = ""
    depth: int = 0
    turns: int = 0
    tool_calls: int = 0
    failed_calls: int = 0
    """How many of them ran and failed: what the answer makes of that is the model's word. 0 in older logs."""
    usage: Usage = Usage()
    duration_ms: int = 0
    sources: tuple[Source, ...] = ()
    problems: tuple[str, ...] = ()
    problems_of_sources: int = 0
    """How many of them, the first, are that one of the `sources` is not verified. 0 in older logs."""
    claims: tuple[Claim, ...] = ()
    """The sentences of the text that cite a page, each with what that page says to it."""
    uncited: int = 0
    """Sentences of the text that state something and cite nothing."""
    uncited_at: tuple[tuple[int, int], ...] = ()
    """Where they stand in the text."""
    files: tuple[str, ...] = ()
    incomplete: str | None = None
    error: str | None = None
    data: Any = None
    model: str = ""
    ended_by: EndedBy = ""
    shortfall: Shortfall = Shortfall()
    read: tuple[Source, ...] = ()
    """Lines of files that it and those below it read and that the text does not cite: who reads the report
    may cite them."""
    effort: Effort = ""
    """How hard the model was last asked to think, as its provider took it. Empty where none was sent."""
    at_work: int = 0
    outcome: Outcome = "pending"
    """The one word for how it ended, computed where it is not given: no report is pending."""

    def __post_init__(self) -> None:
        if self.outcome == "pending":
            msgspec.structs.force_setattr(self, "outcome", self._outcome())

    @property
    def ok(self) -> bool:
        """Whether it ended with an answer. `outcome` also says whether anything is missing from it."""
        return self.status == "completed"

    def _outcome(self) -> Outcome:
        """Only what has all its parts is simply completed. What a rule denied was nobody's to have."""
        own = Shortfall(incomplete=int(bool(self.incomplete)))
        return ended_as(self.status, self.shortfall + own, self.ended_by)

    def data_as(self, kind: type[T]) -> T:
        """`data` as an object of the type that the agent's `output_schema` was made of."""
        if self.data is None:
            why = self.error or self.incomplete or "it has no output_schema"
            raise ValueError(f"{self.agent} gave no data: {why}")
        from pydantic import TypeAdapter

        return TypeAdapter(kind).validate_json(msgspec.json.encode(self.data))

    @property
    def output(self) -> Output:
        """What `run(…, output=TYPE)` asked for, as an object of that type. Raises if there is none."""
        if "output" not in vars(self):
            vars(self)["output"] = self.data_as(vars(self).get("kind", Any))
        return vars(self)["output"]

    @property
    def messages(self) -> tuple[RunMessages, ...]:
        """The conversations of the run and of all below it, where `messages=True` asked for them."""
        if "messages" not in vars(self):
            raise ValueError("the conversations were not asked for: run(…, messages=True)")
        return vars(self)["messages"]

    def with_messages(self, messages: tuple[RunMessages, ...]) -> Report[Output]:
        """The same report, with these conversations."""
        made = msgspec.structs.replace(self)
        vars(made).update(vars(self), messages=messages)
        return made

    def of_type(self, kind: type[AnyOutput]) -> Report[AnyOutput]:
        """The same report, whose `output` is of that type."""
        vars(self)["kind"] = kind
        return cast("Report[AnyOutput]", self)

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form."""
        lacks = msgspec.structs.asdict(self.shortfall)
        return {
            **msgspec.to_builtins(self),
            "usage": self.usage.to_dict(),
            "shortfall": lacks,
            **{name: lacks[name] for name in ("rejected", "denied", "refused", "not_started", "failed")},
            **({"messages": msgspec.to_builtins(vars(self)["messages"])} if "messages" in vars(self) else {}),
        }
