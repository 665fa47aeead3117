"""What every run of a workflow is built from: the app fills a `WorkflowConfig` once, the engine reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from retinue.agents.missing import keeping_back
from retinue.approvals import Authority, Rules
from retinue.authority.rules import Asked
from retinue.budget import RUN, SHARED, Budget, Dimension, Places
from retinue.builtin_tools import CODE, DELEGATION_TOOLS, NOTES, SEARCH, SKILL
from retinue.course import Course
from retinue.delegate import AGENTS, Policy
from retinue.engine.parking_clock import ParkingClock
from retinue.engine.worktrees import Worktrees
from retinue.errors import ConfigError, ToolError
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    CallCut,
    CallReviewed,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    HistoryPruned,
    LiveEvent,
    RunOptions,
    RunStarted,
)
from retinue.guards import AnyGuard
from retinue.mcp.servers import TreeServers
from retinue.mcp.tools import server_of
from retinue.models.base import Model, identify
from retinue.run import (
    Closing,
    Run,
    RunGuards,
    SystemPrompt,
    always_due,
    always_over,
    no_guidance,
    not_recorded,
)
from retinue.sandbox.base import Sandbox
from retinue.settings import Ceiling, Settings
from retinue.shadow import Shadow
from retinue.skills import Skill, SkillFiles
from retinue.store.base import Store
from retinue.threads import briefly
from retinue.tools.base import Tool
from retinue.tools.skills import SKILL_IS, spellings
from retinue.types import AgentSpec, EndedBy, GivenObjects, Limits, ModelSettings, TypedSchema
from retinue.workspace import Buffers

Answering = Literal["ask", "refuse"]
T = TypeVar("T", int, float)

CEILINGS: dict[Dimension, str] = {
    "turns": "tree_turns",
    "input_tokens": "tree_input_tokens",
    "output_tokens": "tree_output_tokens",
    "cost": "max_cost",
}
"""The settings that limit a whole tree."""


def _no_sandbox() -> Sandbox:
    raise ToolError("there is no sandbox here: pip install 'retinue[code]'")


def _no_shadow() -> Shadow | None:
    return None


def _ask_nobody(asked: ApprovalRequested) -> Callable[[], None]:
    """Whoever answers hears of the question from the log."""
    return lambda: None


async def _not_recorded(began: ChildStarted) -> ChildEnded | None:
    """Nothing is played back."""


def _not_known(run_id: str, what: str | None) -> None:
    """Nothing is played back."""


def _not_played(parent_id: str, call_id: str, key: str) -> bool:
    return False


async def _at_once(what: str) -> None:
    """Nothing is played back: whoever is cancelled or answered is so now."""


def _as_it_is(tool: Tool) -> Tool:
    return tool


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """How a run is played in a replay. `system` None is what its agent is told today."""

    model: Model
    system: SystemPrompt | None
    duration_ms: int
    cuts: Sequence[CallCut]
    """The model calls then that gave no reply."""
    short: Mapping[int, tuple[EndedBy, str]]
    """The step that was its last, since its time or budget was nearly used up, and what was said of that."""
    guidance: Callable[[str], tuple[str, str] | None] = no_guidance
    """The instructions of folders that it was told of then."""
    skill: Tool | None = None
    """What reads skills, if it was offered any then."""
    small: Model | None = None
    """Who is asked in place of the small model."""
    summaries: Iterator[HistoryPruned] | None = None
    """What became of the turns that it dropped, each time."""
    guards: RunGuards | None = None
    """What its guards said."""
    called_at: Callable[[str], float | None] = lambda call_id: None
    """When a call was made then, by its id: what its code read as the time."""
    courses: Mapping[str, Course] = field(default_factory=dict[str, Course])
    """In which order its code was told then what it waited for, by the call."""
    brings: Callable[[str], tuple[str, ...] | None] = not_recorded
    """The private data that a call was said to bring then, by its id."""
    due: Callable[[int], Awaitable[bool | None]] = always_due
    """Waits until a step began then, and says whether it did. Ends the run if its budget ended it instead."""
    answer_due: Callable[[int, bool], Awaitable[None]] = always_over
    """Waits until the answer of a step was considered then, or was the end."""
    call_due: Callable[[str], Awaitable[bool | None]] = always_due
    """Waits for the end of the run, if it was stopped then before it came to this call."""
    closing: Callable[[Run], Awaitable[Closing]]
    """What its report said of its copy of the project, below its text."""


@dataclass(frozen=True, kw_only=True)
class WorkflowConfig:
    settings: Settings
    store: Store
    agents: Mapping[str, AgentSpec]
    tools: Mapping[str, Tool]
    """Every tool but delegation, by name."""
    model: Callable[[str, Model | None, Mapping[str, Model]], Model]
    """A model by name; `inherit` is the parent's. The last are those that its agent was given itself."""
    small: Callable[[Model], Model]
    """The cheap model that goes with a model."""
    project: Path | None
    publish: Callable[[LiveEvent], None]
    rules: Rules
    environ: Mapping[str, str]
    """The variables of the person whom the runs serve: whose home it is, whose settings of git count."""
    answering: Answering = "refuse"
    """Whether there is anyone to ask. If not, what would ask is refused."""
    ask: Callable[[ApprovalRequested], Callable[[], None]] = _ask_nobody
    """Puts a question that waits here to the program itself. Returns how to withdraw it."""
    instructions: str = ""
    fragments: tuple[str, ...] = ()
    """Guidance that the root is given because of what is attached."""
    attached: frozenset[str] = frozenset()
    """Tools over what is attached, and the program's own: a root is shown them whatever else it is shown,
    but for an agent of the program that says which of these it is shown."""
    own: frozenset[str] | None = None
    """What the program itself brought: its agents that name no tools hold this. None: every tool there is."""
    lent: frozenset[str] = frozenset()
    """What the program gave one of its agents by name: whoever may ask that agent holds it too, unseen."""
    withheld: Mapping[str, str] = field(default_factory=dict[str, str])
    lacks: Callable[[AgentSpec], Iterable[tuple[str, ConfigError]]] = lambda spec: ()
    """Why tools that an agent may name are not there: the files they are in are not trusted."""
    servers: TreeServers | None = None
    """The MCP servers of this tree."""
    options: RunOptions = field(default_factory=RunOptions)
    """What a resumed run has to know about how it was started."""
    skill_files: SkillFiles | None = None
    """The skills that agents may be offered."""
    sandbox: Callable[[], Sandbox] = _no_sandbox
    """A new session for one run's code."""
    worktrees: Worktrees | None = None
    """Where runs that are isolated have their copies of the project."""
    shadow: Callable[[], Shadow | None] = _no_shadow
    """What knows how the project was before a command."""
    deps: Any = None
    """What the program hands its tools."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """What extra headers of runs that are taken up hold."""
    models: Mapping[str, Model] = field(default_factory=dict[str, Model])
    """The models that runs are taken up with, where they are objects, by name."""
    kinds: tuple[TypedSchema, ...] = ()
    """The types that reports are to be of, by their schemas: a log has the schemas alone."""
    input_guards: tuple[AnyGuard, ...] = ()
    output_guards: tuple[AnyGuard, ...] = ()
    """Functions of the program that every run of the workflow is held against."""
    strict_sources: bool = False
    """An answer that cites what was never fetched or read is sent back to be mended."""
    parking_clock: ParkingClock = field(default_factory=ParkingClock)
    """What parked runs wait by."""
    owner: str = ""
    """Who works on these runs, as `owners` knows it."""
    buffers: Buffers | None = None
    """Who holds files of the project that are not saved yet."""
    folder_name: str | None = None
    """What runs are told their project is called: in a replay, what they were told then."""
    recorded: Callable[[str, AgentSpec], Played | None] | None = None
    """In a replay: how a run is played, from its record."""
    judged: Callable[[str, tuple[str, ...]], Awaitable[ClaimsJudged | None]] | None = None
    """In a replay: what a judge said of claims, by run and their digests."""
    reviewed: Callable[[str, str], Awaitable[CallReviewed | None]] | None = None
    """In a replay: what the small model said of a call, by run and call."""
    approved_all: Callable[[str, str], bool | None] = _not_known
    """In a replay: whether all that no rule denies was approved when a call was made, by run and call: who
    took a run up may have said otherwise than who began it."""
    noticed: Callable[[ChildStarted], Awaitable[ChildEnded | None]] = _not_recorded
    """In a replay: waits until a parent was told of the end of a child in the background, and says how, where
    that is not to be worded anew."""
    handed: Callable[[str, str | None], tuple[str, ...] | None] = _not_known
    """In a replay: the private data that a child was handed then with a message of its parent, or with its
    task (None): what was under way in its parent at that moment comes in no certain order again."""
    staged: Callable[[Tool], Tool] = _as_it_is
    """In a replay: what becomes of a way to delegate."""
    started_then: Callable[[str, str, str], bool] = _not_played
    """In a replay: whether a child was started then, by its parent, the call and its key; whatever would be
    left for it now. Raises the refusal where nothing was left for it then."""
    cancelling: Callable[[str], Awaitable[None]] = _at_once
    """In a replay: waits until a run was cancelled then by the one above it."""
    answer_due: Callable[[str], Awaitable[None]] = _at_once
    """In a replay: waits until a question was answered then. What ran meanwhile was judged before that."""
    merging: Callable[[Tool], Tool] = _as_it_is
    """In a replay: what becomes of the tool that merges, as the copies are gone, or others than then."""

    @property
    def policy(self) -> Policy:
        return Policy.of(self.settings.delegation)

    @cached_property
    def unusable(self) -> Mapping[str, str]:
        """The agents of files that cannot begin, each with why: they are offered to nobody."""
        known = {*self.tools, *self.agents, *(each for tool in self.tools.values() for each in tool.aliases)}
        found = {
            name: keeping_back(spec, known, self.lacks, self.withheld)
            for name, spec in self.agents.items()
            if spec.origin not in ("code", "builtin")
        }
        return {name: lacks[0].message for name, lacks in found.items() if lacks}

    def parent_ends(self, depth: int) -> Literal["cancel", "wait", "leave"]:
        """What becomes of background children of a run that answers first. Only a root has a next turn."""
        ends = self.settings.delegation.parent_ends
        return "wait" if ends == "leave" and depth > 0 else ends

    @property
    def first(self) -> AgentSpec | None:
        """The agent that runs before the root's first step, if this question needs it."""
        return self.agents.get(self.options.first or "")

    async def identify(self, spec: AgentSpec, parent: Run | None) -> None:
        """Have the model of a run that is about to be built known by its full name."""
        if self.recorded is None:
            await identify(self.model_of(spec, parent.model if parent else None))

    def model_of(self, spec: AgentSpec, parent: Model | None, name: str = "") -> Model:
        """The model of a run of this agent: of that name, else as the agent says. For an agent of a log, what
        the program gave it as an object is found by the agent's name."""
        known = {**(models_given(spec) or models_given(self.agents.get(spec.name))), **self.models}
        name = name or spec.model
        if wanting := [each for each in name.split(",") if each in _lost_models(spec, known)]:
            try:
                return self.model(name, parent, known)
            except ConfigError:
                raise ConfigError(
                    f"{spec.name} was given the model {wanting[0]!r} as an object, which is not here now",
                    fix="give the agent again: Retinue(agents=[…]), or resume(run_id, agents=[…]); or the "
                    "model: resume(run_id, model=…)",
                ) from None
        return self.model(name, parent, known)

    def with_headers(self, spec: AgentSpec) -> AgentSpec:
        """An agent of a log with what its extra headers hold, as far as it is known: no log keeps it."""
        missing = spec.model_settings.headers.missing()
        today = self.agents.get(spec.name)
        known = {**(today.model_settings.headers.sent if today else {}), **self.headers}
        found = {name: known[name] for name in missing if name in known}
        return spec.asked_with(ModelSettings(extra_headers=found)) if found else spec

    async def prompted(self, spec: AgentSpec) -> AgentSpec:
        """The agent with its prompt, where a function of the program makes it: once, when a run starts."""
        function = spec.given.prompt if isinstance(spec.given, GivenObjects) else None
        if function is None or self.recorded is not None:
            return spec
        try:
            said: object = await briefly(cast("Callable[[Any], object]", function), self.deps)
        except TimeoutError as error:
            raise ConfigError(
                f"{spec.given['prompt']}, which makes the prompt of {spec.name}, takes too long"
            ) from error
        if not isinstance(said, str):
            raise ConfigError(
                f"the prompt of {spec.name} was made by {spec.given['prompt']}, which returned "
                f"{type(said).__name__}, not text"
            )
        return msgspec.structs.replace(spec, prompt=said)

    def root_limits(self, spec: AgentSpec) -> Limits:
        limits, own = self.settings.limits, spec.limits
        runs = self.policy.runs - 1 + max(1.0, self.turns_needed(spec, 0) / RUN["turns"])

        def ceiling(dimension: Dimension) -> int | None:
            value: Ceiling = getattr(limits, f"tree_{dimension}")
            return int(RUN[dimension] * runs) if value == "auto" else None if value == "none" else value

        return Limits(
            turns=least(ceiling("turns"), own.turns),
            input_tokens=least(ceiling("input_tokens"), own.input_tokens),
            output_tokens=least(ceiling("output_tokens"), own.output_tokens),
            cost=least(limits.max_cost, own.cost),
            seconds=least(limits.tree_seconds, own.seconds),
            children=least(self.policy.max_children, own.children),
            concurrency=least(self.settings.delegation.concurrency, own.concurrency),
        )

    def root_budget(self, spec: AgentSpec) -> Budget:
        """What a root and all below it may use for a message of a person, with what set each limit."""
        limits, own = self.root_limits(spec), spec.limits
        set_here = {
            d for d in SHARED if getattr(own, d) is not None and getattr(own, d) == getattr(limits, d)
        }
        says: dict[Dimension, str] = {
            d: f"limits.{d} of {spec.name}" if d in set_here else f"limits.{CEILINGS[d]}" for d in SHARED
        }
        # Knowledge that was fetched before the first step is not one of the root's own children.
        places = self.policy.places(besides=int(self.first is not None))
        if own.children is not None:
            places = (*places, Places(most=own.children, says=f"limits.children of {spec.name}"))
        return Budget(
            limits,
            sharers=self.policy.sharers,
            says=says,
            places=places,
            elastic=[
                d for d in RUN if getattr(self.settings.limits, CEILINGS[d]) == "auto" and d not in set_here
            ],
        )

    def root_authority(self, spec: AgentSpec) -> Authority:
        names = frozenset((*self.tools, *self.agents, *DELEGATION_TOOLS, *NOTES, CODE, SKILL, SEARCH))
        servers = frozenset(server_of(name) for name in self.tools) - {""}
        if self.servers is not None:
            servers |= self.servers.names
        called = {name: tool.aliases for name, tool in self.tools.items() if tool.aliases}
        called |= dict.fromkeys(self.agents, (AGENTS,))
        narrowed = Authority(
            tools=names,
            mcp_servers=servers,
            open_servers=servers if self.own is None or spec.origin != "code" else frozenset(),
            rules=self.rules,
            called=called,
            same={name: tool.same for name, tool in self.tools.items() if tool.same},
            own=None if self.own is None else self.own | self.lent | NOTES | {CODE, SKILL, SEARCH},
        ).narrow(spec)
        # Who was handed a workbook may read it, whatever tools its file lists.
        sheets = {name for name in self.attached if name.startswith("sheet_")} - {*spec.disallowed_tools}
        return replace(narrowed, tools=narrowed.tools | sheets) if sheets else narrowed

    def skills(
        self,
        spec: AgentSpec,
        authority: Authority,
        depth: int,
        *,
        complete: bool = False,
        above: tuple[Skill, ...] | None = None,
    ) -> tuple[Skill, ...]:
        """The skills that a run is offered. `complete`: one that its agent names and is missing raises.

        `above`: what a parent is offered itself, which made this run's agent up: it hands on no others.
        """
        most = self.settings.context.skill_tokens
        if self.skill_files is None or not most or not authority.permits(SKILL, "read"):
            return ()
        if above is not None:
            found, missing = tuple(skill for skill in above if skill.name in (spec.skills or ())), ()
        else:
            found, missing = self.skill_files.offered(spec, root=depth == 0)
        if complete and missing:
            raise missing[0]
        if spec.skills is None and not authority.project:
            return ()  # it sees its workspace alone
        reading = Asked(
            tool=SKILL, aliases=SKILL_IS, effect="read", risk="low", agent=spec.name, arguments={}
        )
        denies = replace(authority.rules.closed(reading), ask=(), secrets=False)
        if authority.rules.judge(reading).action == "deny":
            return ()
        # What a person keeps from being read is not in a prompt either, not even its description.
        return tuple(skill for skill in found if denies.why(spellings(skill, self.project)) is None)

    def seconds(self, spec: AgentSpec, limits: Limits, *, root: bool) -> float:
        """How long a run may take in all by its own limits; its clock knows what its parent has left."""
        own = spec.timeout or self.settings.limits.timeout
        if root and self._told("limits.timeout"):
            own = self.settings.limits.timeout
        return own if limits.seconds is None else min(own, limits.seconds)

    def patience(self, spec: AgentSpec, limits: Limits, *, root: bool) -> float | None:
        """How long a patient agent may take in all, silent or not; None if it is not, or was told."""
        if not spec.patient or (root and self._told("limits.timeout")):
            return None
        most = max(spec.timeout or 0.0, self.settings.limits.timeout)
        return most if limits.seconds is None else min(most, limits.seconds)

    def max_turns(self, spec: AgentSpec, depth: int) -> int:
        """What this very run was told beats the agent's own number, and that beats the setting."""
        limits = self.settings.limits
        if depth == 0 and self._told("limits.max_turns"):
            return limits.max_turns
        return spec.max_turns or (limits.max_turns if depth == 0 else limits.subagent_turns)

    def turns_needed(self, spec: AgentSpec, depth: int, given: int | None = None) -> int:
        """Model calls that a run may make by itself: its turns, or those it was `given`, corrections, a
        summary and a last answer."""
        return (given or self.max_turns(spec, depth)) + self.settings.delegation.corrections + 2

    def _told(self, setting: str) -> bool:
        """Whether this very run was given the setting."""
        return setting in self.options.settings


def models_given(spec: AgentSpec | None) -> dict[str, Model]:
    """The models that an agent was given as objects, by name."""
    return spec.given.models if spec is not None and isinstance(spec.given, GivenObjects) else {}


def _lost_models(spec: AgentSpec, known: Mapping[str, Model]) -> set[str]:
    return set(spec.given.get("model", "").split(",")) - {"", *known}


def shown_before(begun: Iterable[AnyEvent]) -> frozenset[str]:
    """What a program's agents had that name no tools: whoever takes them up may be another program."""
    return frozenset(
        name
        for event in begun
        if isinstance(event, RunStarted) and event.spec.origin == "code" and event.spec.tools is None
        for name in event.tools
    )


def least(a: T | None, b: T | None) -> T | None:
    return b if a is None else a if b is None else min(a, b)
