"""What an agent is tried on: cases, each with what is expected of it, and how that is held against a run.

Plain data, the same from a program and from a file of cases. Called by `evaluation`; asks no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from msgspec import Struct

from retinue.parameters import check_word
from retinue.testing.story import CheckedStory
from retinue.types import Outcome, Report, Usage
from retinue.view import words


class Expect(Struct, frozen=True, kw_only=True):
    """What is expected of a run. What is not said is not looked at, but for `outcome`.

    `says` and `says_not` are texts that the answer has or does not have, in any case; `matches` is a regular
    expression that fits somewhere in it. `data` is what the data of a typed answer hold at least. `asked`
    and `not_asked` are agents; `called` and `not_called` tools that ran or did not, each a name or `{name:
    {argument: value}}`; `refused` tools that were kept from running. `max_cost` (US dollars), `max_tokens`
    and `max_turns` are for the whole tree. `judge` are criteria in words, each of which a model judges.
    """

    outcome: Outcome = "completed"
    says: tuple[str, ...] = ()
    says_not: tuple[str, ...] = ()
    matches: str = ""
    data: dict[str, Any] | None = None
    asked: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    called: tuple[str | dict[str, Any], ...] = ()
    not_called: tuple[str | dict[str, Any], ...] = ()
    refused: tuple[str, ...] = ()
    max_cost: float | None = None
    max_tokens: int | None = None
    max_turns: int | None = None
    judge: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_word("outcome", self.outcome, Outcome)
        for name in LISTS:
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is one text: write ({getattr(self, name)!r},)")
        for given in (*self.called, *self.not_called):
            _tool_of(given)
        re.compile(self.matches)


LISTS = ("says", "says_not", "asked", "not_asked", "called", "not_called", "refused", "judge")
"""The expectations of which there may be several."""


class EvalCase(Struct, frozen=True, kw_only=True):
    """One thing that an agent is tried on, and what is to `expect` of it. `prompt` is a text, or what its
    `input_schema` wants."""

    name: str
    prompt: str | dict[str, Any]
    expect: Expect = Expect()


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalRun:
    """A try that has ended, as a check is given it: the case, the report, and the `story` of what was
    done."""

    case: EvalCase
    number: int
    """Which try of the case it is, from 1."""
    report: Report
    story: CheckedStory


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalVerdict:
    """What came of one `check`: whether it `passed`, and `why` not. `usage` is what judging took, where a
    model judged."""

    check: str
    passed: bool
    why: str = ""
    usage: Usage = Usage()


def expected(run: EvalRun) -> Iterator[EvalVerdict]:
    """What a case expects, but for what a model has to judge, held against a run."""
    expect, story = run.case.expect, run.story
    yield _held("outcome", lambda: story.assert_outcome(expect.outcome))
    for text in expect.says:
        yield _verdict(f"says {text!r}", text.lower() in run.report.text.lower(), f"it does not say {text!r}")
    for text in expect.says_not:
        yield _verdict(f"says not {text!r}", text.lower() not in run.report.text.lower(), f"it says {text!r}")
    if expect.matches:
        fits = re.search(expect.matches, run.report.text) is not None
        yield _verdict("matches", fits, f"nothing in the answer fits {expect.matches!r}")
    if expect.data is not None:
        missing = _missing(expect.data, run.report.data)
        yield _verdict("data", not missing, "; ".join(missing))
    for agent in expect.asked:
        yield _held(f"asked {agent}", lambda agent=agent: story.assert_asked(agent))
    for agent in expect.not_asked:
        yield _held(f"not asked {agent}", lambda agent=agent: story.assert_not_asked(agent))
    for given in expect.called:
        tool, arguments = _tool_of(given)
        yield _held(f"called {tool}", lambda t=tool, a=arguments: story.assert_called(t, a))
    for given in expect.not_called:
        tool, arguments = _tool_of(given)
        yield _held(f"not called {tool}", lambda t=tool, a=arguments: story.assert_not_called(t, a))
    for tool in expect.refused:
        yield _held(f"refused {tool}", lambda tool=tool: story.assert_refused(tool))
    if expect.max_cost is not None:
        yield _held("cost", lambda: story.assert_used_at_most(cost=expect.max_cost))
    if expect.max_tokens is not None:
        yield _held("tokens", lambda: story.assert_used_at_most(tokens=expect.max_tokens))
    if expect.max_turns is not None:
        yield _held("turns", lambda: story.assert_used_at_most(turns=expect.max_turns))


def first_line(error: BaseException) -> str:
    """The reason of a failed check, without the tree below it."""
    return words.one_line(str(error).partition("\n")[0], 300) or type(error).__name__


def _held(name: str, holds: Callable[[], None]) -> EvalVerdict:
    try:
        holds()
    except AssertionError as error:
        return EvalVerdict(check=name, passed=False, why=first_line(error))
    return EvalVerdict(check=name, passed=True)


def _verdict(name: str, passed: bool, why: str) -> EvalVerdict:
    return EvalVerdict(check=name, passed=passed, why="" if passed else why)


def _tool_of(given: str | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A tool and the arguments that it is to have been called with."""
    if isinstance(given, str):
        return given, {}
    pairs = list(given.items())
    if len(pairs) != 1 or not isinstance(pairs[0][1] or {}, dict):
        raise TypeError(f"{given!r} is no call: write 'tool', or {{tool: {{argument: value}}}}")
    return pairs[0][0], pairs[0][1] or {}


def _missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """What the data of an answer lack of what is expected; they may hold more."""
    if isinstance(wanted, dict):
        wants = cast("dict[str, Any]", wanted)
        if not isinstance(found, dict):
            return [f"{path or 'the data'} is {words.one_line(repr(found), 80)}, not an object"]
        has = cast("dict[str, Any]", found)
        return [
            line
            for name, value in wants.items()
            for line in (
                _missing(value, has[name], f"{path}.{name}".strip("."))
                if name in has
                else [f"{path}.{name}".strip(".") + " is not there"]
            )
        ]
    if wanted != found:
        return [f"{path or 'the data'} is {words.one_line(repr(found), 80)}, not {wanted!r}"]
    return []
