"""Who an agent is, what it may use, and its limits; and what a program may write for each of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import msgspec
from msgspec import Struct

from retinue.types.durations import seconds_of
from retinue.types.messages import ModelGiven
from retinue.types.model_settings import EFFORTS, Effort, ModelSettings
from retinue.types.objects import GivenObjects, PromptFunction, models_of
from retinue.types.report import Report
from retinue.types.schemas import schema_of

Apart = Literal["none", "worktree"]
"""How a child is kept apart from others that write. A model that fills in everything needs a word for no."""


def _check_number(name: str, given: object, *, whole: bool) -> None:
    if given is None or type(given) is int or (type(given) is float and not whole):
        return
    words = "a whole number" if whole else "a number"
    raise TypeError(f"{name} is {type(given).__name__}, not {words} or None")


class Limits(Struct, frozen=True, kw_only=True):
    """What a run and everything below it may use. None means no limit of its own.

    `turns` are calls of models, `cost` is in US dollars, `seconds` (or a text like "5m") is time at work,
    `children` how many may be started, `concurrency` how many of them at once.
    """

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

    `description` is what a parent chooses it by, `prompt` what it is told, `icon` what people see beside its
    name. `disallowed_tools` are taken from its `tools`, and `deny` are rules like `bash(rm *)` for its
    calls. `mcp_servers` are those whose tools it may use. `temperature` and `max_tokens` (of one answer) are
    for its model; `max_turns` is how many answers it has, `limits` what it and everything below it may use.
    `mode` `code` has it write code that calls its tools. `memory`: it keeps notes from run to run.
    `background`: as a child it is not waited for. `lifecycle` `temporary` is one that a model made up.

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
    `policy` and `children` are how a workflow that begins with this agent delegates, and how many children it
    may have for each message, where no setting says otherwise; as a child it goes by the policy it is under.
    `instructions`: whether it is shown the project's `AGENTS.md`; None: as a root, and not as a child.
    `skills` are those that it is offered, by name or by folder, `*` for all; None: all as a root, as a child
    none.

    In a program, `tools` may hold the functions, tools and agents themselves: their names are what is kept.
    What agents among them hold is held too, for them, and this one is not shown it.

    `summary` asks for the report once more, in that way. In a program it may be a function of the report,
    which gives what a parent is told of it; the report itself stays whole.

    `input_guards` and `output_guards` are functions of a program that look at what this agent is told and
    what it answers, and may stop or mend it (`retinue.guards`): their names are what is kept.

    `input_schema` and `output_schema` are JSON schemas of objects. A type may be given instead (a pydantic
    model, a dataclass, a TypedDict): its schema is what is kept.

    `model_settings` are how its model is asked beside that; `effort`, `temperature` and `max_tokens` of the
    agent itself win over them. In a program, `model` may be a model itself, or several, of which the next is
    asked where one fails for good (in a file: names with commas); and `prompt` a function of the run's deps,
    which is called once when a run starts. `given` says what was such an object: a log has their names.
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
    policy: Literal["", "flat", "nested"] = ""
    children: int | None = None
    deny: tuple[str, ...] = ()
    lifecycle: Literal["permanent", "temporary"] = "permanent"
    origin: str = "code"
    effort: Effort = ""
    model_settings: ModelSettings = ModelSettings()
    given: dict[str, str] = {}
    input_guards: tuple[str, ...] = ()
    output_guards: tuple[str, ...] = ()

    if TYPE_CHECKING:  # what a program may write, where less is kept

        def __init__(
            self,
            *,
            name: str,
            description: str,
            prompt: str | PromptFunction,
            icon: str = "",
            tools: Iterable[ToolGiven] | None = None,
            disallowed_tools: Iterable[ToolGiven] = (),
            shown: Iterable[ToolGiven] | None = None,
            mcp_servers: Iterable[str] | None = None,
            skills: Iterable[str] | None = None,
            instructions: bool | None = None,
            model: ModelGiven = "inherit",
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
            policy: Literal["", "flat", "nested"] = "",
            children: int | None = None,
            deny: Iterable[str] = (),
            lifecycle: Literal["permanent", "temporary"] = "permanent",
            origin: str = "code",
            effort: Effort = "",
            model_settings: ModelSettings = ...,
            input_guards: Iterable[Callable[[Any], object]] = (),
            output_guards: Iterable[Callable[[Any], object]] = (),
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
        for name in ("input_guards", "output_guards"):
            given = getattr(self, name)
            if not _is_names(given):
                msgspec.structs.force_setattr(self, name, guard_names(name, given))
        if callable(self.summary):
            msgspec.structs.force_setattr(self, "summary", SummaryFunction(self.summary))
        if isinstance(cast("Any", self.timeout), str):
            msgspec.structs.force_setattr(self, "timeout", seconds_of(cast("Any", self.timeout), "timeout"))
        self._take_objects()
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

    def _take_objects(self) -> None:
        """A model, and a function that makes the prompt, are kept by their names."""
        if not isinstance(cast("Any", self.model_settings), ModelSettings):
            kind = type(self.model_settings).__name__
            raise TypeError(f"model_settings is {kind}: write ModelSettings(…)")
        prompt, model = cast("Any", self.prompt), cast("Any", self.model)
        if isinstance(model, str) and not callable(prompt):
            return
        given = GivenObjects(self.given)
        if not isinstance(model, str):
            name, given.models = models_of(model)
            msgspec.structs.force_setattr(self, "model", name)
            if given.models:
                given["model"] = ",".join(given.models)
        if callable(prompt):
            given.prompt = cast("PromptFunction", prompt)
            given["prompt"] = named = getattr(prompt, "__qualname__", type(prompt).__name__)
            msgspec.structs.force_setattr(self, "prompt", f"(made by {named} when a run starts)")
        msgspec.structs.force_setattr(self, "given", given)

    @property
    def asks_with(self) -> ModelSettings:
        """How its model is asked, with what the agent itself says of that."""
        return ModelSettings(
            effort=self.effort, temperature=self.temperature, max_tokens=self.max_tokens
        ).over(self.model_settings)

    def asked_with(self, settings: ModelSettings) -> AgentSpec:
        """The same agent, whose model is asked with these settings where they say something."""
        if not settings.given:
            return self
        named = ("effort", "temperature", "max_tokens")
        own = {name: getattr(settings, name) for name in named if name in settings.given}
        return msgspec.structs.replace(self, model_settings=settings.over(self.model_settings), **own)

    @property
    def implied(self) -> tuple[str, ...]:
        """Tools that it needs for what it is said to be, whether it lists them or not."""
        found = (("memory_*",) if self.memory else ()) + (("run_code",) if self.mode == "code" else ())
        if self.mcp_servers and not any(name.startswith("mcp__") for name in self.tools or ()):
            found += tuple(f"mcp__{server}__*" for server in self.mcp_servers)
        return found

    def _hold_what_agents_hold(self, names: ToolNames) -> None:
        agents = [each for each in names.given if isinstance(each, AgentSpec)]
        theirs = [name for spec in agents for name in (*(spec.tools or ()), *spec.implied)]
        below = [name for name in theirs if name not in names]
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
    ("policy", ("", "flat", "nested")),
)
_KINDS: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (str, "text", ("name", "description", "prompt", "icon", "output_format", "origin")),
    ((str, dict, type(None)), "text, or a function of the report", ("summary",)),
    (int | None, "a whole number", ("max_turns", "max_tokens", "children")),
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


class GuardNames(tuple[str, ...]):
    """Names of guards that know their functions, where a program gave these."""

    given: tuple[Callable[[Any], Any], ...] = ()


def guard_name(guard: Callable[[Any], Any]) -> str:
    return str(getattr(guard, "__name__", "") or type(guard).__name__)


def guard_names(field: str, given: Any) -> GuardNames:
    """The guards of an agent or of a program, as their names, which know the functions."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{field} is {type(given).__name__}: give a list of functions")
    guards = tuple(cast("Iterable[Any]", given))
    for guard in guards:
        if not callable(guard):
            raise TypeError(f"{field} holds {type(guard).__name__}: give functions")
    names = GuardNames(map(guard_name, guards))
    names.given = guards
    return names


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
