"""What a tool is, and how a plain function becomes one.

    @tool(effect="read")
    async def population(city: str, year: int = 2026) -> str:
        '''How many people live in a city.

        Args:
            city: its name, in English
            year: of the census
        '''

The schema comes from the signature, the description from the docstring. A parameter annotated with
`ToolContext` is handed in by the loop and hidden from the model. Raise `ToolError` for what the model
should read; anything else it raises becomes a tool result too, never a crash. What it returns is text, a
`ToolResult`, or any value that JSON can hold. A function that is not async runs in a thread.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, cast, get_args, overload

import msgspec

from retinue.approvals import Closed
from retinue.authority.flows import Concern, Out
from retinue.errors import Refused, ToolError
from retinue.parameters import check, listed, shown
from retinue.threads import in_own_thread, is_async
from retinue.threads import ours as is_ours
from retinue.tools.changing import UNRECORDED, Changes
from retinue.tools.held import held_by
from retinue.tools.schemas import Fit
from retinue.tools.signatures import parse_object, signature_of
from retinue.types import (
    Deps,
    Effect,
    Image,
    JsonSchema,
    ModelRequest,
    NotRun,
    Reply,
    ReportFields,
    ResearchPlan,
    Risk,
    Source,
    ToolSpec,
    Usage,
    seconds_of,
)
from retinue.workspace import Files

RISK_OF: dict[Effect, Risk] = {
    "read": "low",
    "network": "low",
    "delegate": "medium",
    "write": "medium",
    "spend": "high",
    "execute": "high",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What a tool gives back when text alone is not enough.

    `is_error`: it failed, and the text says why. `sources` are pages and files that were really fetched or
    read; `files` are paths it changed or saved; `usage` is what models cost that the tool itself asked.
    `rolled_back`: code whose variables were not kept. `not_run` says why nothing was done, `not_started` how
    many children were not started, `wrong` how many of them for a mistake in the call, `meant` for whom
    each was, those first, `corrects` for how many such of calls before it stands in. `children`: whose
    reports it gives back. `private` names the private data that it rests on, beside what its tool says of
    every call; `found` and `links` are the addresses of the results of a search and of the links on a page.
    `merge_of` names the child whose copy was to be merged, `unmerged` is 1 if it was not, -1 if it is now.
    `as_read`, in a replay: the text is what the model read, and nothing is to be said above it once more.
    """

    text: str
    is_error: bool = False
    sources: tuple[Source, ...] = ()
    files: tuple[str, ...] = ()
    usage: Usage = Usage()
    rolled_back: bool = False
    passing: bool = False
    """It says how things stand at this moment, and will soon be otherwise: to ask again is no circle."""
    not_run: NotRun = ""
    not_started: int = 0
    wrong: int = 0
    meant: tuple[str, ...] = ()
    corrects: int = 0
    children: tuple[str, ...] = ()
    merge_of: str = ""
    unmerged: int = 0
    private: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    as_read: bool = False
    fields: ReportFields | None = None
    """A child's report in parts, for code."""
    shows: tuple[str, ...] = ()
    """Tools that the run is shown from now on."""
    plan: ResearchPlan | None = None
    """The plan of research as this call leaves it."""
    answer: str = ""
    """A text that is the answer of the run, once its model is done, whatever its last words are."""
    images: tuple[Image, ...] = ()
    """Pictures, for models that take them. The text should stand for itself: not all models do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormQuestion:
    """What a call has to know from a person before it can go on: fields by a JSON schema, or that they have
    been at an address."""

    asker: str
    text: str
    schema: JsonSchema = field(default_factory=dict[str, Any])
    url: str = ""
    shown: str = ""
    """What the person is shown beside it, where that is more than its fields."""
    own: bool = False
    """It is a tool of ours that asks, and no server: `asker` is the agent that called it."""
    seconds: float | None = None
    """How long it waits for an answer, if that is less than the settings say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormFilled:
    """What the person said. `cancel`: nobody was there to say anything."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRequest:
    """What a server wants a model of ours to write for it (*sampling*): `request`, of which it says all."""

    asker: str
    request: ModelRequest


async def _nobody(question: FormQuestion) -> FormFilled:
    return FormFilled(action="cancel")


async def _no_sample(asked: SampleRequest) -> Reply:
    raise Refused("no model is asked for the sake of a server here")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext(Generic[Deps]):
    """What the loop tells a tool about the call it is part of: `call_id` in a run of the workflow `root_id`.
    `files` are the files that it may read and write.

    `deps` is what the program handed to the workflow (`run(…, deps=…)`), for a tool that takes a
    `ToolContext[TYPE]`; `metadata` is what it said of it.
    """

    run_id: str
    root_id: str
    depth: int
    agent: str
    call_id: str
    files: Files
    progress: Callable[[str], None]
    """Show a person what is happening right now."""
    denied: Callable[[str, str], None]
    """Log an attempt at something forbidden: what, detail."""
    closed: Closed | None = None
    """The paths that rules keep from this call, for a tool that looks through folders."""
    forbids: Callable[[str], Refused | None] = lambda url: None
    """Why the rules do not let this call go on to another address, or None if they do."""
    sandbox: Literal["off", "closed", "open"] = "off"
    """Whether a command of this call runs in the sandbox, and if so whether it reaches the network."""
    changes: Changes = UNRECORDED
    """What records the files that this call replaces."""
    deps: Deps = None  # pyright: ignore[reportAssignmentType]  # whoever says a type is refused without
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    inquire: Callable[[FormQuestion], Awaitable[FormFilled]] = _nobody
    """Asks a person what the call has to know."""
    sample: Callable[[SampleRequest], Awaitable[Reply]] = _no_sample
    """Has the small model write something for a server, if a person agrees. Raises `ToolError` where not."""
    seconds: float = math.inf
    """How long the call may take so that its run can still sum up, for a tool that ends its work itself."""


Call = Callable[[dict[str, Any], ToolContext[Any]], Awaitable[str | ToolResult]]
Private = Callable[[dict[str, Any], Files], tuple[str, ...] | Awaitable[tuple[str, ...]]]
Admit = Callable[[dict[str, Any], str], Awaitable[None] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownCall:
    """What a person is shown of a call. `digest`: of what it was made from, by which that is known again;
    `whole`: whether it shows all that would be done."""

    text: str
    digest: str = ""
    whole: bool = True


Preview = Callable[[dict[str, Any], Files], "str | ShownCall | Awaitable[str | ShownCall]"]
"""Shows a person what a call would do: a function of its arguments and the files of its run, async or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool. `repeatable`: running it twice does no harm, so an interrupted call is simply made again.

    `schema` is the JSON schema of its arguments, `parse` makes them of what the model wrote, `call` does the
    work. `effect` is what it does and `risk` how bad that can be: both decide whether a person is asked.
    `aliases` are other names that agent files may use. `timeout` is in seconds; "default" is the setting,
    None means the tool bounds its own time. `preview` shows a person what a call would do.
    """

    name: str
    description: str
    schema: JsonSchema
    effect: Effect
    call: Call
    parse: Callable[[str], dict[str, Any]]
    repeatable: bool
    timeout: float | Literal["default"] | None = "default"
    risk: Risk = "low"
    preview: Preview | None = None
    harmless: Callable[[dict[str, Any]], bool] | None = None
    """Says of a call that it needs nobody's approval although the tool does: it only looks."""
    risks: Callable[[dict[str, Any]], Risk] | None = None
    """The risk of a call, where that depends on its arguments."""
    makes_up: Callable[[dict[str, Any]], bool] | None = None
    """For a way to delegate: whether a call has an agent work that a model made up; None: by its risk."""
    starts: Callable[[dict[str, Any], str], tuple[str, ...]] | None = None
    """For a way to delegate: the registered agents that a call has work, by arguments and the run's id."""
    asks: Callable[[Mapping[str, Any], str], Sequence[str]] | None = None
    """For a way to delegate: the agent of each child that arguments ask for, whether they can be used or not,
    by them and the run's id; empty text where they name none that is there."""
    admit: Admit | None = None
    """Refuses, by its arguments and the run's id, what would be refused anyway: before anybody is asked."""
    concern: Callable[[dict[str, Any], str], Awaitable[Concern | None]] | None = None
    """Why a person is asked about a call although the rules let it run, by its arguments and the run's id."""
    unsealed: Callable[[Files, bool, bool], str | None] | None = None
    """For a tool that runs commands: why they cannot run in the sandbox, with network or without; or None.

    What was found is kept; what did not work is tried again if the last argument says so. That, and the first
    time, takes a while: not for an event loop."""
    ways_out: Callable[[Files], Sequence[str]] | None = None
    """For a tool that runs commands: what is started outside of the sandbox from what they may write.

    Takes some milliseconds: not for an event loop."""
    aliases: tuple[str, ...] = field(default=())
    same: tuple[str, ...] = field(default=())
    """Other tools that do the same: a rule about one of them counts here, and so does taking it away."""
    reads: Callable[[dict[str, Any]], bool] | None = None
    """Says of a call of a tool with another effect that it reads a file and does nothing else."""
    private: Private | None = None
    """Names the private data that a call returns; None if it never returns any."""
    out: Out = "nowhere"
    """Where what it is told can go."""
    threaded: bool = False
    """It runs in a thread of its own, which nobody can stop."""
    records: bool = False
    """It records by itself which files it changes; others that write are watched from outside."""
    ours: bool = False
    """It is a part of this package: what it says of itself is so, and it ends when it is told to."""
    holds: tuple[str, ...] | None = ()
    """What its function holds, such as the customer that it was made for; None: something that nobody can
    write down."""
    wants: Any = None
    """The type of the `deps` that it works with; None if it needs none."""
    dials: tuple[str, ...] | None = None
    """The arguments whose addresses it dials, if those of others are only text to it; None for all."""

    def risk_of(self, arguments: dict[str, Any]) -> Risk:
        """How risky a call with these arguments is."""
        return self.risk if self.risks is None else self.risks(arguments)

    def made_up(self, arguments: dict[str, Any]) -> bool:
        """Whether a call hands work to an agent that a model made up."""
        if self.effect != "delegate":
            return False
        return self.risk != "low" if self.makes_up is None else self.makes_up(arguments)

    def effect_of(self, arguments: dict[str, Any]) -> Effect:
        """What a call with these arguments does."""
        return "read" if self.reads is not None and self.reads(arguments) else self.effect

    def only_looks(self, arguments: str) -> bool:
        """Whether arguments, readable by the tool or not, name an operation of it that starts nothing."""
        if self.harmless is None:
            return False
        try:
            given: Any = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            return False
        operation = cast("dict[str, Any]", given).get("operation") if isinstance(given, dict) else None
        properties = cast("dict[str, Any]", self.schema.get("properties") or {})
        known = cast("dict[str, Any]", properties.get("operation") or {}).get("enum") or ()
        return operation in known and self.harmless({"operation": operation})

    def asked_for(self, given: Mapping[str, Any], run_id: str) -> tuple[str, ...]:
        """For whom a call is, a name for each child: an agent, or empty where it is for one of the agents and
        names none that is there; the tool itself, where it is for none of them."""
        return (self.name,) if self.asks is None else tuple(self.asks(given, run_id)) or (self.name,)

    @property
    def spec(self) -> ToolSpec:
        """It as a model sees it."""
        return ToolSpec(name=self.name, description=self.description, schema=self.schema)


AsyncFunction = Callable[..., Awaitable[str | ToolResult]]
Function = Callable[..., Any]
"""Async or not. What it returns, or what is awaited of it, is text, a `ToolResult` or any JSON value."""


@overload
def tool(function: Function) -> Tool: ...


@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "read",
    repeatable: bool | None = None,
    timeout: float | str | None = "default",
    risk: Risk | None = None,
    preview: Preview | None = None,
    harmless: Callable[[dict[str, Any]], bool] | None = None,
    reads: Callable[[dict[str, Any]], bool] | None = None,
    admit: Admit | None = None,
    aliases: Iterable[str] = (),
    private: bool | Private | None = None,
    out: Out | None = None,
) -> Callable[[Function], Tool]: ...


def tool(
    function: Function | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "read",
    repeatable: bool | None = None,
    timeout: float | str | None = "default",
    risk: Risk | None = None,
    preview: Preview | None = None,
    harmless: Callable[[dict[str, Any]], bool] | None = None,
    reads: Callable[[dict[str, Any]], bool] | None = None,
    admit: Admit | None = None,
    aliases: Iterable[str] = (),
    private: bool | Private | None = None,
    out: Out | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a `function` with type hints and a docstring: `@tool`, or `@tool(effect="write")`.

    `name` and `description` are the function's own if they are not said. `effect` is what it does (`read`,
    `write`, `execute`, `network`, `spend`), `risk` how bad that can be: what does more than read asks a
    person first. `repeatable`: it may be made again after a crash. `preview` shows a person what a call
    would do, `harmless` says of a call that nobody need be asked, `reads` that it only reads a file, `admit`
    refuses what would be refused anyway. `aliases` are other names for it in agent files. `timeout` is in
    seconds, or like "5m"; None: the tool bounds its own time. `private`: whether what it returns is private
    data, which must not leave unasked; if it is not said, all that does not come from the network is. `out`:
    where its arguments can go; if it is not said, a tool of the network goes to the addresses among them.
    """

    _check_words(effect, risk, out)
    check(str | None, name=name, description=description)
    check(bool | None, repeatable=repeatable)
    check(Callable | None, preview=preview, harmless=harmless, reads=reads, admit=admit)
    if not callable(private):
        check(bool | None, private=private)
    other_names = listed("aliases", aliases, "names")
    seconds = _timeout(timeout)

    def make(function: Function) -> Tool:
        called = _tool_name(function, name)
        text, signature = signature_of(function, called, ToolContext)
        waits = is_async(function)

        async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> str | ToolResult:
            if signature.context is not None:
                arguments = {**arguments, signature.context: context}
            first = [arguments[each] for each in signature.by_position]
            if first:
                arguments = {n: value for n, value in arguments.items() if n not in signature.by_position}
            if waits:
                return as_text(called, await function(*first, **arguments))
            returned = await in_own_thread(function, *first, **arguments)
            # A wrapper that is not async itself may hand on what an async function returns.
            return as_text(called, await returned if inspect.isawaitable(returned) else returned)

        return Tool(
            name=called,
            description=(description or text).strip(),
            schema=signature.schema,
            effect=effect,
            call=call,
            parse=signature.parse,
            repeatable=effect in ("read", "network") if repeatable is None else repeatable,
            timeout=seconds,
            threaded=not waits,
            risk=risk or RISK_OF[effect],
            preview=preview,
            harmless=harmless,
            reads=reads,
            admit=admit,
            aliases=other_names,
            private=_private(called, effect, private),
            out=out or _out(effect),
            ours=is_ours(function),
            wants=signature.wants,
            holds=held_by(function),
        )

    return make if function is None else make(function)


def _check_words(effect: object, risk: object, out: object) -> None:
    known = {"effect": tuple(RISK_OF), "risk": (None, *get_args(Risk)), "out": (None, *get_args(Out))}
    for name, given in (("effect", effect), ("risk", risk), ("out", out)):
        if given not in known[name]:
            words = ", ".join(each for each in known[name] if each)
            raise ValueError(f"{name} {shown(given)} is none of {words}")


def _timeout(given: object) -> float | Literal["default"] | None:
    if isinstance(given, str):
        return "default" if given == "default" else seconds_of(given, "timeout")
    if given is None:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise TypeError(f"timeout is {shown(given)}: give seconds, a text like '5m', or None")
    if not given > 0:
        raise ValueError(f"timeout is {given}: give more than 0 seconds, or None if it bounds its own time")
    return given


def _private(name: str, effect: Effect, given: bool | Private | None) -> Private | None:
    if given is None:
        given = effect != "network"
    if isinstance(given, bool):
        return (lambda arguments, files: (f"what {name} returned",)) if given else None
    return given


def _out(effect: Effect) -> Out:
    return "addresses" if effect == "network" else "nowhere"


def as_tool(given: object) -> Tool:
    """What a program hands in as a tool: one, or a function to make one of, as `@tool` would."""
    if isinstance(given, Tool):
        return given
    if isinstance(given, type) or not callable(given):
        raise TypeError(f"{given!r} is no tool: give a function, or what '@tool' made of one")
    return tool(given)


def as_text(name: str, value: object) -> str | ToolResult:
    """What a tool returned, as the model reads it: anything but text becomes JSON."""
    if isinstance(value, (str, ToolResult)):
        return value
    if value is None:
        return "done; it returned nothing"
    if isinstance(value, Image):
        return with_pictures((value,))
    if isinstance(value, list | tuple) and any(isinstance(each, Image) for each in cast("list[Any]", value)):
        return _mixed(name, cast("Sequence[object]", value))
    images: list[Image] = []
    text = _as_json(name, cast("object", value), images)
    return with_pictures(tuple(images), text) if images else text


def _as_json(name: str, value: object, images: list[Image]) -> str:
    """A value as JSON. The pictures in it are put to the others, and their numbers stand in their places."""
    from msgspec import to_builtins
    from pydantic_core import to_json

    def plain(each: object) -> object:
        if not isinstance(each, Image):
            return to_builtins(each)
        images.append(each)
        return f"[picture {len(images)}]"

    try:
        return to_json(value, fallback=plain).decode()
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(value).__name__
        raise ToolError(
            f"{name} ran, but what it returned ({kind}) cannot be shown: {error}. "
            "A tool returns text, a ToolResult, or what JSON can hold."
        ) from None


def with_pictures(images: tuple[Image, ...], text: str = "") -> ToolResult:
    """Pictures as a result, with a text that says how many there are."""
    count = "1 picture" if len(images) == 1 else f"{len(images)} pictures"
    return ToolResult(text="\n\n".join(filter(None, (text, f"[{count}]"))), images=images)


def _mixed(name: str, values: Iterable[object]) -> ToolResult:
    """A list of pictures and of what is text, or becomes text."""
    images: list[Image] = []
    texts: list[str] = []
    for each in values:
        if isinstance(each, Image):
            images.append(each)
            continue
        if isinstance(each, ToolResult):
            raise ToolError(
                f"{name} ran, but what it returned cannot be shown: a ToolResult in a list. "
                "A tool returns one by itself, with the pictures as its images."
            )
        texts.append(each if isinstance(each, str) else _as_json(name, each, images))
    return with_pictures(tuple(images), "\n\n".join(texts))


def _tool_name(function: Function, name: str | None) -> str:
    """A name that every provider takes, or a `TypeError` that says whose it is."""
    found = name or getattr(function, "__name__", "")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", found):
        raise TypeError(
            f"{function!r} needs a name to be a tool, at most 64 of letters, digits, '_' and '-', "
            f"not {found!r}: use 'def', or '@tool(name=...)'"
        )
    return found


def tool_from_schema(
    *,
    name: str,
    description: str,
    schema: JsonSchema,
    effect: Effect,
    call: Call,
    repeatable: bool = False,
    timeout: float | Literal["default"] | None = "default",
    risk: Risk | None = None,
    admit: Admit | None = None,
    private: bool | Private | None = None,
    out: Out | None = None,
) -> Tool:
    """A tool whose arguments are described by a JSON schema (agents, MCP servers).

    `private` and `out` as for `tool`: what a server of the open world is told can go `anywhere`.
    """

    fit = Fit(schema)

    def parse(raw: str) -> dict[str, Any]:
        arguments = parse_object(raw)
        problems = fit.problems(arguments)
        if problems:
            raise ToolError(f"invalid arguments for {name}: " + "; ".join(problems))
        return arguments

    return Tool(
        name=name,
        description=description,
        schema=schema,
        effect=effect,
        call=call,
        parse=parse,
        repeatable=repeatable,
        timeout=timeout,
        risk=risk or RISK_OF[effect],
        admit=admit,
        private=_private(name, effect, private),
        out=out or _out(effect),
        ours=is_ours(call),
    )
