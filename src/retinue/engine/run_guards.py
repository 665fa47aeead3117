"""The guards of one run: those of the program for all runs, and those of its agent.

Called by the loop. What a program says is looked at before it is written (`front_door`); what comes
otherwise, a task from a parent or a word from the page, when the run reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from retinue.engine.config import WorkflowConfig
from retinue.errors import ConfigError
from retinue.events import AnyEvent, GuardSpoke
from retinue.fold import apply
from retinue.guards import AnyGuard, Guarded, GuardSaid, Looked, Side, functions, look
from retinue.run import Run
from retinue.run_state import RunState
from retinue.types import AgentSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentGuards:
    input: tuple[AnyGuard, ...] = ()
    output: tuple[AnyGuard, ...] = ()

    @property
    def holds(self) -> bool:
        return bool(self.output)

    async def incoming(self, run: Run) -> None:
        if not self.input:
            return
        unseen = run.state.unguarded
        while unseen:  # others may come while one is looked at
            about, message = next(iter(unseen.items()))
            looked = await look(self.input, _given(run, message.text, "input"))
            for said in looked.said:
                run.log.write(GuardSpoke, **asdict(said), about=about, text=looked.text)
            if run.state.stopped is not None:
                return
            run.log.write(GuardSpoke, side="input", decision="pass", about=about)
            unseen = run.state.unguarded

    async def outgoing(self, run: Run, text: str) -> Looked:
        return await look(self.output, _given(run, text, "output"))


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedLook:
    """In a replay: what guards said to a text that came in, by that text."""

    text: str
    spoken: list[GuardSpoke]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedGuards:
    """In a replay: what the guards of a run said then, to what came in and at which step."""

    input: list[PlayedLook]
    """Those that are still to be played."""
    output: Mapping[int, tuple[GuardSaid, ...]]

    @classmethod
    def of(cls, log: Iterable[AnyEvent]) -> PlayedGuards | None:
        state = RunState()
        incoming: dict[int, PlayedLook] = {}
        outgoing: dict[int, tuple[GuardSaid, ...]] = {}
        for event in log:
            if isinstance(event, GuardSpoke) and event.side == "input":
                about = state.unguarded.get(event.about)
                look = PlayedLook(text=about.text if about is not None else "", spoken=[])
                incoming.setdefault(event.about, look).spoken.append(event)
            elif isinstance(event, GuardSpoke):
                outgoing[state.step] = (*outgoing.get(state.step, ()), said_in(event))
            apply(state, event)
        looks = [look for about, look in incoming.items() if about]
        return cls(input=looks, output=outgoing) if incoming or outgoing else None

    @property
    def holds(self) -> bool:
        return bool(self.output)

    async def incoming(self, run: Run) -> None:
        for about, message in list(run.state.unguarded.items()):
            played = next((each for each in self.input if each.text == message.text), None)
            if played is not None and run.state.stopped is None:
                self.input.remove(played)
                for each in played.spoken:
                    run.log.write(GuardSpoke, **asdict(said_in(each)), about=about, text=each.text)

    async def outgoing(self, run: Run, text: str) -> Looked:
        return Looked(text=text, said=self.output.get(run.state.step, ()))


def said_in(event: GuardSpoke) -> GuardSaid:
    return GuardSaid(
        side=event.side,
        guard=event.guard,
        decision=event.decision,
        why=event.why,
        removed=event.removed,
        hidden=event.hidden,
        failed=event.failed,
    )


def spoken_after(log: Iterable[AnyEvent], event: AnyEvent) -> list[GuardSaid]:
    """What guards said to what came with this event, before it was written."""
    after = (each for each in log if each.seq > event.seq)
    found = takewhile(lambda each: isinstance(each, GuardSpoke) and not each.about, after)
    return [said_in(each) for each in found if isinstance(each, GuardSpoke) and each.side == "input"]


def guards_of(config: WorkflowConfig, spec: AgentSpec) -> AgentGuards | None:
    """The guards of a run of this agent, or None if there are none."""
    known = config.agents.get(spec.name)
    found: dict[str, tuple[AnyGuard, ...]] = {}
    for field in ("input_guards", "output_guards"):
        own = functions(getattr(spec, field), getattr(known, field, ()))
        if own is None:
            names = ", ".join(getattr(spec, field))
            raise ConfigError(
                f"{spec.name} was begun under guards that are missing here: {names}",
                fix=f"give it again, as AgentSpec({field}=[…])",
            )
        found[field] = (*getattr(config, field), *own)
    if not any(found.values()):
        return None
    return AgentGuards(input=found["input_guards"], output=found["output_guards"])


async def front_door(config: WorkflowConfig, spec: AgentSpec, root_id: str, text: str) -> Looked | None:
    """What guards say to what a person asks, before anything is written. None if there are none."""
    guards = guards_of(config, spec)
    if guards is None or not guards.input:
        return None
    given: Guarded[Any] = Guarded(
        text=text,
        side="input",
        run_id=root_id,
        root_id=root_id,
        agent=spec.name,
        metadata=config.options.metadata,
        deps=config.deps,
    )
    return await look(guards.input, given)


def _given(run: Run, text: str, side: Side) -> Guarded[Any]:
    return Guarded(
        text=text,
        side=side,
        run_id=run.id,
        root_id=run.root_id,
        agent=run.spec.name,
        depth=run.depth,
        metadata=run.metadata,
        deps=run.deps,
    )
