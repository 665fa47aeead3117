"""Guards: functions of a program that look at what comes in and what goes out, and may stop or mend it.

    async def no_cards(given: Guarded[Shop]) -> Mend | None:
        clean = CARD.sub("[card]", given.text)
        return Mend(clean, why="a card number", hide=True) if clean != given.text else None

A list of functions, async or not; each sees what the one before it let through. The loop calls them, the log
keeps what they said (`GuardSpoke`). A guard that fails, hangs or returns something else stops the run: what
could not be looked at does not pass, and is in no log since it might have been hidden. That is no verdict:
whoever takes the run up asks the guard again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, cast

from retinue.errors import in_words, unwind
from retinue.threads import contained
from retinue.types import Deps, GuardNames, guard_name

Side = Literal["input", "output"]
Decision = Literal["pass", "stop", "mend", "correct"]
SECONDS = 120.0
"""How long a guard may take."""


@dataclass(frozen=True, kw_only=True)
class Guarded(Generic[Deps]):
    """What a guard is shown. `text` is what somebody said, or what the model answers."""

    text: str
    side: Side
    """`input` for what comes in, `output` for what is answered."""
    run_id: str
    root_id: str
    """The run that was started, of which this one is a part."""
    agent: str
    depth: int = 0
    """0 for the run that was started, more for its children."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the program said of the run when it started it."""
    deps: Deps = None  # pyright: ignore[reportAssignmentType]  # whoever says a type hands one over
    """What the program handed to the run."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run here; `why` is what people are told. With `hide` the log does not keep the text."""

    why: str
    hide: bool = False


@dataclass(frozen=True, slots=True)
class Mend:
    """Go on with this text instead; `why` is for the log. With `hide` it does not keep the text before."""

    text: str
    why: str = ""
    hide: bool = False


@dataclass(frozen=True, slots=True)
class Correct:
    """Send an answer back: the model is told `why` and answers again (`delegation.corrections` times)."""

    why: str


InputVerdict = Stop | Mend | None
OutputVerdict = Stop | Mend | Correct | None
InputGuard = Callable[[Guarded[Deps]], InputVerdict | Awaitable[InputVerdict]]
OutputGuard = Callable[[Guarded[Deps]], OutputVerdict | Awaitable[OutputVerdict]]
AnyGuard = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardSaid:
    """What one guard said, as the log keeps it."""

    side: Side
    guard: str
    decision: Decision
    why: str = ""
    removed: str = ""
    hidden: bool = False
    failed: bool = False
    """It gave no verdict, and stops the run for that."""


@dataclass(frozen=True, slots=True)
class _NoVerdict:
    """Why a guard gave none."""

    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """A text after all guards, and what they said. Nobody says anything of what passes."""

    text: str
    said: tuple[GuardSaid, ...] = ()

    @property
    def changed(self) -> bool:
        return any(each.decision in ("stop", "mend") for each in self.said)

    @property
    def stops(self) -> bool:
        return any(each.decision == "stop" for each in self.said)


async def look(guards: Iterable[AnyGuard], given: Guarded[Any]) -> Looked:
    """Show a text to each guard in turn, up to the first that stops it or sends it back."""
    text, said = given.text, list[GuardSaid]()
    for guard in guards:
        verdict = await _asked(guard, replace(given, text=text))
        if verdict is None:
            continue
        name = guard_name(guard)
        if isinstance(verdict, Correct):
            said.append(GuardSaid(side=given.side, guard=name, decision="correct", why=verdict.why))
            break
        failed = isinstance(verdict, _NoVerdict)
        hide = failed or verdict.hide
        decision: Decision = "mend" if isinstance(verdict, Mend) else "stop"
        said.append(
            GuardSaid(
                side=given.side,
                guard=name,
                decision=decision,
                why=verdict.why,
                removed="" if hide else text,
                hidden=hide,
                failed=failed,
            )
        )
        text = verdict.text if isinstance(verdict, Mend) else withheld(name)
        if decision == "stop":
            break
    if any(each.hidden for each in said):  # what one of them hides, no other may tell
        said = [_without_text(each) for each in said]
    return Looked(text=text, said=tuple(said))


def withheld(guard: str) -> str:
    """What stands in place of a text that was stopped."""
    return f"[withheld by the guard {guard}]"


def _without_text(said: GuardSaid) -> GuardSaid:
    return replace(said, removed="", hidden=True)


async def _asked(guard: AnyGuard, given: Guarded[Any]) -> Stop | Mend | Correct | _NoVerdict | None:
    """What a guard says, or why it says nothing that counts."""
    try:
        async with asyncio.timeout(SECONDS):
            verdict = await contained(guard, given)
    except TimeoutError:
        return _NoVerdict(f"it did not answer within {SECONDS:g} s")
    except Exception as error:
        why = f"it failed: {in_words(error)}"
        unwind(error)
        return _NoVerdict(why)
    allowed = (Stop, Mend, Correct) if given.side == "output" else (Stop, Mend)
    if verdict is None:
        return None
    if isinstance(verdict, allowed):
        fault = _fault(verdict)
        return _NoVerdict(f"it returned {type(verdict).__name__} with {fault}") if fault else verdict
    kinds = ", ".join(kind.__name__ for kind in allowed)
    return _NoVerdict(f"it returned {type(cast('object', verdict)).__name__}: return None, {kinds}")


def _fault(verdict: Stop | Mend | Correct) -> str:
    """What a verdict holds that it cannot: programs are not held to their types."""
    for name, kind in (("text", str), ("why", str), ("hide", bool)):
        held: object = getattr(verdict, name, kind())
        if not isinstance(held, kind):
            return f"{name}={type(held).__name__}, not {kind.__name__}"
    return ""


def functions(kept: Sequence[str], known: Sequence[str] = ()) -> tuple[AnyGuard, ...] | None:
    """The functions of guards that are kept by name: their own, or those of the agent that is `known` today.
    None if one is missing."""
    for each in (kept, known):
        if isinstance(each, GuardNames) and tuple(each) == tuple(kept) and len(each.given) == len(each):
            return each.given
    return None if kept else ()
