"""The nouns that everything else is written in: messages, usage, agent specs, reports.

Plain frozen structs with a stable JSON form, since all of them end up in the event log. Nothing here
does any work, and nothing here imports another module of Retinue.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

Effect = Literal["read", "write", "execute", "network", "spend", "delegate"]
Risk = Literal["low", "medium", "high"]
Status = Literal["pending", "running", "waiting", "completed", "error", "cancelled"]
StopReason = Literal["end", "tool_calls", "length", "refusal"]
NotRun = Literal[
    "",  # it ran
    "unknown_tool",
    "bad_arguments",
    "denied",  # by a rule
    "forbidden",  # to every such run: a private address, what robots.txt keeps, a project that is only read
    "rejected",  # by a person, or by a program's function that failed
    "unattended",  # a person would have to be asked, and nobody is there
    "repeated",  # it failed with the very same arguments before
    "limit",  # of children, depth or budget
    "time",  # what is left of it is kept to sum up
    "outcome_unknown",  # the process stopped while it ran
]
"""Why a tool did not run. Who reads a log decides by this and never by what the result says."""
AddressFrom = Literal[
    "",  # the call dials no address, or its run had read nothing private
    "said",  # it stands in what a person said
    "found",  # in the result of a search
    "link",  # on a page that was fetched
    "composed",  # nowhere: a model put it together, and a person or a rule let it
]
"""Where the address came from that was dialled by a run which had read private data."""
EndedBy = Literal[
    "",  # a log from before this was kept
    "answer",
    "max_turns",
    "circle",
    "delegating",  # a child did nothing but pass its work on
    "budget",
    "time",  # was nearly up: it was told to sum up
    "timeout",
    "cancelled",
    "refusal",  # of the model
    "length",  # of the model's output
    "correction",  # the answer could not be corrected
    "nothing_read",
    "error",
]
"""What ended a run."""
Outcome = Literal[
    "pending",
    "running",
    "waiting",
    "interrupted",
    "completed",
    "incomplete",
    "refused",
    "rejected",
    "error",
    "cancelled",
]
"""How a run stands, for people: its status, unless that would promise too much. `interrupted` is a run
whose process is gone; the last of these that apply to a completed run is what is shown of it."""
Level = Literal["low", "medium", "high"]
Effort = Literal["", "low", "medium", "high"]
Apart = Literal["none", "worktree"]
"""How a child is kept apart from others that write. A model that fills in everything needs a word for no."""
"""How hard a model is asked to think. Empty: nothing is said, and the provider chooses."""
EFFORTS: tuple[Level, ...] = ("low", "medium", "high")
JsonSchema = dict[str, Any]
T = TypeVar("T")
AnyOutput = TypeVar("AnyOutput")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Output = TypeVarWithDefault("Output", default=Any)
    Deps = TypeVarWithDefault("Deps", default=None)
else:  # a default is for type checkers alone
    Output, Deps = TypeVar("Output"), TypeVar("Deps")

ENDED: frozenset[Status] = frozenset({"completed", "error", "cancelled"})
ALL_EFFECTS: frozenset[Effect] = frozenset({"read", "write", "execute", "network", "spend", "delegate"})


def round_money(record: Struct, *names: str) -> None:
    """Write an amount in one way only: sums of the same prices differ in their last digits."""
    for name in names:
        amount = getattr(record, name)
        if amount and (rounded := round(amount, 10)) != amount:
            msgspec.structs.force_setattr(record, name, rounded)


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens and money. `cost` is in US dollars; None means the price is not known, never zero."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0

    def __post_init__(self) -> None:
        round_money(self, "cost")

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )

    def to_dict(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "total_tokens": self.total_tokens}


class Shortfall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run and everything below it went without since a person last spoke to it.

    `rejected` counts calls that a person rejected, `denied` calls that a rule denied, `refused` calls that
    nobody was there to approve, `not_started` children that a limit, or a mistake in a batch of which others
    began, kept from starting, `failed` children that ended without a report of their own accord, `incomplete`
    children whose report says that it is.
    """

    rejected: int = 0
    refused: int = 0
    not_started: int = 0
    failed: int = 0
    incomplete: int = 0
    denied: int = 0

    def __add__(self, other: Shortfall) -> Shortfall:
        return Shortfall(
            rejected=self.rejected + other.rejected,
            refused=self.refused + other.refused,
            not_started=self.not_started + other.not_started,
            failed=self.failed + other.failed,
            incomplete=self.incomplete + other.incomplete,
            denied=self.denied + other.denied,
        )

    def __sub__(self, other: Shortfall) -> Shortfall:
        mine, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        return Shortfall(**{name: count - theirs[name] for name, count in mine.items()})


def ended_as(status: Status, lacks: Shortfall) -> Outcome:
    """The one word for how something ended that lacks this, itself included if it is not whole."""
    if status != "completed":
        return status
    if lacks.rejected:
        return "rejected"
    if lacks.refused:
        return "refused"
    return "incomplete" if lacks.not_started or lacks.failed or lacks.incomplete else "completed"


_WORST: tuple[Outcome, ...] = ("error", "cancelled", "rejected", "refused", "incomplete")


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Of several that have ended, the one that most is missing from."""
    found = set(outcomes)
    for outcome in _WORST:
        if outcome in found:
            return outcome
    return "completed"


class ToolCall(Struct, frozen=True, kw_only=True):
    """What the model asked for. `arguments` is the raw JSON text: it may be malformed."""

    id: str
    name: str
    arguments: str


class Image(Struct, frozen=True, kw_only=True):
    """An attached picture, base64."""

    media_type: str
    data: str


class UserMessage(Struct, frozen=True, kw_only=True, tag="user"):
    text: str
    images: tuple[Image, ...] = ()


class AssistantMessage(Struct, frozen=True, kw_only=True, tag="assistant"):
    """`extra` is what a provider wants back unchanged (thinking signatures), opaque to everyone else."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    extra: dict[str, Any] | None = None


class ToolMessage(Struct, frozen=True, kw_only=True, tag="tool"):
    call_id: str
    name: str
    text: str
    is_error: bool = False


Message = UserMessage | AssistantMessage | ToolMessage


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it."""

    name: str
    description: str
    schema: JsonSchema


class Source(Struct, frozen=True, kw_only=True):
    """Something that was really fetched or read: a page (`url`) or a file (`path`, with its lines).

    `aliases` are the URLs that led to a page: the one that was asked for and those of its redirects.
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


def _check_number(name: str, given: object, *, whole: bool) -> None:
    if given is None or type(given) is int or (type(given) is float and not whole):
        return
    words = "a whole number" if whole else "a number"
    raise TypeError(f"{name} is {type(given).__name__}, not {words} or None")


class FileState(Struct, frozen=True, kw_only=True):
    """What is at a path: nothing if `kind` is empty. `sha256` is of a file's bytes or of a link's target.

    `mode` None: it was not looked at. `kept` False: its bytes are not kept with the workflow.
    """

    kind: Literal["", "file", "folder", "link"] = ""
    mode: int | None = None
    size: int = 0
    sha256: str = ""
    kept: bool = True

    def is_like(self, other: FileState) -> bool:
        """Whether the same lies there; a mode that was not looked at may be any."""
        if self.kind != other.kind or self.sha256 != other.sha256:
            return False
        return self.mode is None or other.mode is None or self.mode == other.mode


class FileChange(Struct, frozen=True, kw_only=True):
    """What became of one path, relative to the project."""

    path: str
    before: FileState = FileState()
    after: FileState = FileState()


class Limits(Struct, frozen=True, kw_only=True):
    """What a run and everything below it may use. None means no limit of its own."""

    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    children: int | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        if isinstance(cast("Any", self.seconds), str):
            msgspec.structs.force_setattr(self, "seconds", seconds_of(cast("Any", self.seconds), "seconds"))
        for name in self.__struct_fields__:
            _check_number(name, getattr(self, name), whole=name not in ("cost", "seconds"))


class AgentSpec(Struct, frozen=True, kw_only=True):
    """Who an agent is, what it may use, and its limits.

    `tools` None means every tool of its parent, for an agent made in a program (`origin` is `code`) of those
    that the program gave; patterns like `mcp__github__*` are allowed. `shown` are the tools the agent itself
    is shown, all of them if None: the rest of its authority is for its children. `timeout` is in seconds, or
    like "5m". `output_format` is `json` where there is an `output_schema` and nothing else is said. `model`
    is `inherit`, `small`, an alias, or `provider:model`. `look_first` asks the model for a tool call in its
    first step: it may answer only after it has looked. `must_read` marks a report as incomplete that rests on
    no page and no line that was read. `patient`: each word of its model
    gives it its `timeout` again. `files` is what it and everything below it see: the project and their
    own workspaces, or their workspaces alone. `isolation` `worktree`: as a child it works in a copy of the
    project, which is merged when it has ended. `effort` is how hard its model is asked to think, where that
    can be told so: `low`, `medium` or `high`; empty is as hard as its parent's.
    `instructions`: whether it is shown the project's `AGENTS.md`; None: as a root, and not as a child.
    `skills` are those that it is offered, by name or by folder, `*` for all; None: all as a root, as a child
    none.

    In a program, `tools` may hold the functions, tools and agents themselves: their names are what is kept.
    What agents among them hold is held too, for them, and this one is not shown it.

    `summary` asks for the report once more, in that way. In a program it may be a function of the report,
    which gives what a parent is told of it; the report itself stays whole.

    `input_schema` and `output_schema` are JSON schemas of objects. A type may be given instead (a pydantic
    model, a dataclass, a TypedDict): its schema is what is kept.
    """

    name: str
    description: str
    prompt: str
    icon: str = ""
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    shown: tuple[str, ...] | None = None
    mcp_servers: tuple[str, ...] | None = None
    skills: tuple[str, ...] | None = None
    instructions: bool | None = None
    model: str = "inherit"
    temperature: float | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    input_schema: Any = None
    output_schema: Any = None
    output_format: str = ""
    summary: str | dict[str, str] | None = None
    mode: Literal["tools", "code"] = "tools"
    look_first: bool = False
    must_read: bool = False
    patient: bool = False
    files: Literal["project", "workspace"] = "project"
    isolation: Literal["", "worktree"] = ""
    memory: bool = False
    background: bool = False
    limits: Limits = Limits()
    deny: tuple[str, ...] = ()
    lifecycle: Literal["permanent", "temporary"] = "permanent"
    origin: str = "code"
    effort: Effort = ""

    if TYPE_CHECKING:  # what a program may write, where less is kept

        def __init__(
            self,
            *,
            name: str,
            description: str,
            prompt: str,
            icon: str = "",
            tools: Iterable[ToolGiven] | None = None,
            disallowed_tools: Iterable[ToolGiven] = (),
            shown: Iterable[ToolGiven] | None = None,
            mcp_servers: Iterable[str] | None = None,
            skills: Iterable[str] | None = None,
            instructions: bool | None = None,
            model: str = "inherit",
            temperature: float | None = None,
            max_turns: int | None = None,
            max_tokens: int | None = None,
            timeout: float | str | None = None,
            input_schema: type | Mapping[str, Any] | None = None,
            output_schema: type | Mapping[str, Any] | None = None,
            output_format: str = "",
            summary: str | Callable[[Report], str | Awaitable[str]] | None = None,
            mode: Literal["tools", "code"] = "tools",
            look_first: bool = False,
            must_read: bool = False,
            patient: bool = False,
            files: Literal["project", "workspace"] = "project",
            isolation: Literal["", "worktree"] = "",
            memory: bool = False,
            background: bool = False,
            limits: Limits = ...,
            deny: Iterable[str] = (),
            lifecycle: Literal["permanent", "temporary"] = "permanent",
            origin: str = "code",
            effort: Effort = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, given in (("input_schema", self.input_schema), ("output_schema", self.output_schema)):
            if given is not None and not isinstance(given, dict):
                msgspec.structs.force_setattr(self, name, schema_of(given))
        if not self.output_format:
            format = "markdown" if self.output_schema is None else "json"
            msgspec.structs.force_setattr(self, "output_format", format)
        self._take_as_written()

    def _take_as_written(self) -> None:
        """Take what people write in other ways, and raise for what could not be used, with what to write."""
        for name in ("tools", "disallowed_tools", "shown", "mcp_servers", "skills", "deny"):
            given = getattr(self, name)
            if given is not None and not _is_names(given):
                names = _names(name, given)
                msgspec.structs.force_setattr(self, name, names)
                if name == "tools" and isinstance(names, ToolNames):
                    self._hold_what_agents_hold(names)
        if callable(self.summary):
            msgspec.structs.force_setattr(self, "summary", SummaryFunction(self.summary))
        if isinstance(cast("Any", self.timeout), str):
            msgspec.structs.force_setattr(self, "timeout", seconds_of(cast("Any", self.timeout), "timeout"))
        if not isinstance(cast("Any", self.model), str):
            raise TypeError(
                f"model is {type(self.model).__name__}: an agent names its model. Give the model itself to "
                "Retinue(model=…), and here its name, or nothing to use that of the parent"
            )
        for kinds, words, names in _KINDS:
            for name in names:
                given = getattr(self, name)
                if not isinstance(given, kinds) or (
                    isinstance(given, bool) and kinds not in (bool, bool | None)
                ):
                    raise TypeError(f"{name} is {type(given).__name__}, not {words}")
        if not isinstance(cast("Any", self.limits), Limits):
            raise TypeError(f"limits is {type(self.limits).__name__}: write Limits(…)")
        for name, allowed in _WORDS:
            if getattr(self, name) not in allowed:
                words = ", ".join(filter(None, allowed))
                raise ValueError(f"{name} {getattr(self, name)!r} is none of {words}")

    def _hold_what_agents_hold(self, names: ToolNames) -> None:
        agents = [each for each in names.given if isinstance(each, AgentSpec)]
        below = [name for spec in agents for name in spec.tools or () if name not in names]
        given = [each for spec in agents if isinstance(spec.tools, ToolNames) for each in spec.tools.given]
        held = ToolNames(dict.fromkeys((*names, *below)))
        held.given = (*names.given, *given)
        msgspec.structs.force_setattr(self, "tools", held)
        if below and self.shown is None:
            msgspec.structs.force_setattr(self, "shown", tuple(names))


_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mode", ("tools", "code")),
    ("files", ("project", "workspace")),
    ("isolation", ("", "worktree")),
    ("lifecycle", ("permanent", "temporary")),
    ("effort", ("", *EFFORTS)),
)
_KINDS: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (str, "text", ("name", "description", "prompt", "icon", "output_format", "origin")),
    ((str, dict, type(None)), "text, or a function of the report", ("summary",)),
    (int | None, "a whole number", ("max_turns", "max_tokens")),
    (int | float | None, "a number", ("temperature", "timeout")),
    (bool | None, "True or False", ("instructions",)),
    (bool, "True or False", ("look_first", "must_read", "patient", "memory", "background")),
)


def _is_names(given: Any) -> bool:
    return isinstance(given, tuple) and all(isinstance(each, str) for each in cast("tuple[Any, ...]", given))


def _names(field: str, given: Any) -> tuple[str, ...]:
    """A list of names as a tuple."""
    if isinstance(given, str):
        raise TypeError(f"{field} is one text: write ({given!r},)")
    if not isinstance(given, Iterable):
        raise TypeError(f"{field} is {type(given).__name__}: write a tuple of names")
    all_given = tuple(cast("Iterable[Any]", given))
    objects = tuple(each for each in all_given if not isinstance(each, str))
    if not objects:
        return all_given
    names = ToolNames(_name_of(field, each) for each in all_given)
    names.given = objects
    return names


def _name_of(field: str, given: Any) -> str:
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    if field not in ("tools", "disallowed_tools", "shown") or not isinstance(name, str):
        raise TypeError(
            f"{field} holds {type(given).__name__}: write names, or for tools the tools themselves"
        )
    return name


class ToolNames(tuple[str, ...]):
    """Names of tools that know what they name, where a program gave that instead of its name."""

    given: tuple[Any, ...] = ()


class SummaryFunction(dict[str, str]):
    """What is kept of a function that says what a parent is told of a report; it knows the function."""

    def __init__(self, function: Callable[[Report], Any]) -> None:
        super().__init__(function=getattr(function, "__qualname__", type(function).__name__))
        self.call = function


class NamedObject(Protocol):
    """A tool or an agent."""

    @property
    def name(self) -> str: ...


ToolGiven = str | NamedObject | Callable[..., Any]
"""How a program may name a tool: by its name, or by giving it."""


_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_of(written: str, what: str) -> float:
    """Seconds of a text like 90, 30s, 10m, 2h or 7d."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d+)?)\s*([A-Za-z]*)\s*", written)
    if match is None or match[2].lower() not in _SECONDS or float(match[1]) <= 0:
        raise ValueError(f"{what} {written!r} cannot be understood: write it like 90, 30s, 10m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2].lower()]


def schema_of(given: Any) -> JsonSchema:
    """The JSON schema of a type, or of a mapping that is one."""
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    from pydantic import (
        PydanticSchemaGenerationError,
        PydanticUserError,
        TypeAdapter,
    )  # heavy: only for types

    try:
        return TypedSchema(TypeAdapter[Any](given).json_schema(), given)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(
            f"no JSON schema can be made of {given!r}: give a JSON schema, a pydantic model, a dataclass "
            f"or a TypedDict ({str(error).splitlines()[0]})"
        ) from None


class TypedSchema(dict[str, Any]):
    """The JSON schema of a type, which knows the type: an answer that fits the one may not fit the other."""

    def __init__(self, schema: JsonSchema, kind: Any) -> None:
        super().__init__(schema)
        self.kind = kind


def type_problems(value: Any, kind: Any) -> list[str]:
    """What a type has against a value that came as JSON, by its own validators."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter[Any](kind).validate_json(msgspec.json.encode(value))
    except ValidationError as error:
        return [f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}" for one in error.errors()]
    return []


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


class Report(Struct, Generic[Output], frozen=True, kw_only=True, dict=True):
    """What comes back from a run. `Report[Booking]` is that of one which was asked for a `Booking`.

    `usage` counts the run and everything below it; `turns` and `tool_calls` are the run's own. `sources` are
    what was really fetched or read, and what the text cites beyond that, marked as not verified; `problems`
    say what is wrong with citations and quotations, and that knowledge could not be looked up first.
    `incomplete` says why the work is not finished, or is None; `ended_by` is the same as a fact.
    `shortfall` counts what the run and everything below it went without. `at_work` is how many children it
    did not wait for: what they report opens the next turn of the conversation.
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
    usage: Usage = Usage()
    duration_ms: int = 0
    sources: tuple[Source, ...] = ()
    problems: tuple[str, ...] = ()
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
        return self.status == "completed"

    def _outcome(self) -> Outcome:
        """Only what has all its parts is simply completed. What a rule denied was nobody's to have."""
        own = Shortfall(incomplete=int(bool(self.incomplete)))
        return ended_as(self.status, self.shortfall + own)

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
        }


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One question to a model. `schema` asks for an answer in JSON that fits it.

    `timeout` is in seconds; None leaves it to the model, which knows how slow its server may be.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none", "required"] = "auto"
    temperature: float | None = None
    max_tokens: int | None = None
    schema: JsonSchema | None = None
    timeout: float | None = None
    effort: Effort = ""


class TextDelta(Struct, frozen=True):
    """A piece of the answer, as it arrives."""

    text: str


class ThinkingDelta(Struct, frozen=True):
    """A piece of the model's visible reasoning. An empty one says that the model writes what is not
    shown as it comes, like the arguments of a call: a sign of life for a patient agent's clock."""

    text: str


class Retrying(Struct, frozen=True, kw_only=True):
    """The call failed and is made again. Text that was already shown is void if `text_shown`."""

    reason: str
    attempt: int
    wait: float
    text_shown: bool


class Reply(Struct, frozen=True, kw_only=True):
    """The whole answer: always the last item of a model's stream.

    `effort` is what was sent of the wish for one, and taken: empty where the model does not have it.
    """

    message: AssistantMessage
    usage: Usage
    stop: StopReason
    model: str
    thinking: str = ""
    effort: Effort = ""


ModelEvent = TextDelta | ThinkingDelta | Retrying | Reply
