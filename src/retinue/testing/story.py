"""What a run did, for tests: who was asked, which tools ran with what, what was refused, what it cost.

    story = await story_of(retinue, report)
    story.assert_outcome("completed")
    story.assert_asked("clerk", times=1)
    story.assert_called("price", {"fruit": "apple"}, by="clerk")
    story.assert_used_at_most(cost=0.05)

A check that fails shows the whole tree. Nothing here looks at how a model words its answer. For tests of
agents and for evaluations; reads a log, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from retinue.app import Retinue
from retinue.errors import RunError
from retinue.events import Decision
from retinue.parameters import check, check_word
from retinue.testing.tree_told import CallTold, RunTold, TreeTold, Wanted, tree_told
from retinue.types import NotRun, Outcome, Report, Usage
from retinue.view import words


class CheckedStory:
    """What became of a run and of everything below it, and checks of that. `str(story)` is the tree."""

    def __init__(self, tree: TreeTold) -> None:
        self.root = tree.root
        self.questions = tree.questions
        """Every question to a person, in the order they were asked."""
        self._by_call = tree.by_call

    @property
    def report(self) -> Report | None:
        """The report of the run, if it has ended."""
        return self.root.report

    @property
    def outcome(self) -> Outcome:
        """How the run stands, in one word."""
        return self.root.outcome

    @property
    def usage(self) -> Usage:
        """Tokens and money of the run and of everything below it."""
        return self.root.usage

    @property
    def runs(self) -> tuple[RunTold, ...]:
        """Every run of the tree, from the top."""
        return tuple(self.root.walk())

    @property
    def agents(self) -> tuple[str, ...]:
        """Who worked on it, one name for each run, from the top."""
        return tuple(run.agent for run in self.runs)

    @property
    def refusals(self) -> tuple[CallTold, ...]:
        """Calls that a rule or a person kept from running, or that nobody was there to approve."""
        return tuple(call for call in self.calls() if call.refused)

    def calls(self, name: str | None = None, *, by: str | None = None) -> tuple[CallTold, ...]:
        """Calls of the whole tree, also those that did not run: all, or of one tool, or by one agent."""
        return tuple(
            call
            for run in self.runs
            if by is None or run.agent == by
            for call in run.calls
            if name is None or call.name == name
        )

    def assert_outcome(self, outcome: Outcome) -> None:
        """It stands so: `completed`, `incomplete`, `refused`, `rejected`, `error`, `cancelled` …"""
        check_word("outcome", outcome, Outcome)
        if self.outcome != outcome:
            why = self.report and (self.report.error or self.report.incomplete)
            self._fail(f"the outcome is {self.outcome}, not {outcome}" + (f": {why}" if why else ""))

    def assert_asked(self, agent: str, *, by: str | None = None, times: int | None = None) -> None:
        """An agent was asked by another: at least once, or so many `times`; by one of that name if it is
        said."""
        parents = [run for run in self.runs if by is None or run.agent == by]
        asked = sum(child.agent == agent for run in parents for child in run.children)
        if asked != times if times is not None else not asked:
            found = sorted({child.agent for run in parents for child in run.children})
            self._fail(
                f"{agent} was {_often(asked, 'asked')}{f' by {by}' if by else ''}, not {_wanted(times)}; "
                f"asked were: {', '.join(found) or 'none'}"
            )

    def assert_not_asked(self, agent: str) -> None:
        """No run of the tree asked that agent."""
        self.assert_asked(agent, times=0)

    def assert_called(
        self, tool: str, arguments: Wanted | None = None, *, by: str | None = None, times: int | None = None
    ) -> None:
        """A tool ran: at least once, or so many `times`, with these arguments and maybe others.

        A value may be a function that says whether it will do: `{"query": lambda text: "bees" in text}`.
        """
        named = [call for call in self.calls(tool, by=by) if call.ran]
        fitting = [call for call in named if call.has(arguments or {})]
        if len(fitting) != times if times is not None else not fitting:
            who = f" by {by}" if by else ""
            like = f" with {_shown(arguments)}" if arguments else ""
            seen = "; ".join(words.one_line(call.raw, 200) for call in named) or "none"
            self._fail(
                f"{tool} {_often(len(fitting), 'ran')}{like}{who}, not {_wanted(times)}; its calls: {seen}"
            )

    def assert_not_called(self, tool: str, arguments: Wanted | None = None, *, by: str | None = None) -> None:
        """A tool did not run, or not with these arguments."""
        self.assert_called(tool, arguments, by=by, times=0)

    def assert_order(self, *tools: str) -> None:
        """These tools ran in this order, with whatever else between them; agents count as tools."""
        left = iter(call.name for call in self._in_order() if call.ran)
        missing = next((name for name in tools if name not in left), None)
        if missing is not None:
            order = ", ".join(call.name for call in self._in_order() if call.ran) or "nothing"
            self._fail(f"{missing} did not run in the order {', '.join(tools)}; what ran: {order}")

    def assert_refused(self, tool: str, *, why: NotRun | None = None, times: int | None = None) -> None:
        """A call was kept from running: by a rule (`denied`, `forbidden`), a person (`rejected`), or since
        nobody was there to be asked (`unattended`)."""
        if why is not None:
            check_word("why", why, NotRun)
        found = [call for call in self.refusals if call.name == tool and why in (None, call.not_run)]
        if len(found) != times if times is not None else not found:
            told = ", ".join(f"{call.name} ({call.not_run})" for call in self.refusals) or "nothing"
            self._fail(
                f"{tool} was {_often(len(found), 'refused')}, not {_wanted(times)}; refused was: {told}"
            )

    def assert_nothing_refused(self) -> None:
        """No call was kept from running by a rule, a person, or since nobody was there."""
        if self.refusals:
            told = ", ".join(f"{call.name} ({call.not_run})" for call in self.refusals)
            self._fail(f"refused was: {told}")

    def assert_approval(self, tool: str, *, decision: Decision | None = None) -> None:
        """A person was asked about a tool, and said that if a `decision` is given."""
        if decision is not None:
            check_word("decision", decision, Decision)
        asked = [each for each in self.questions if each.tool == tool]
        if not any(decision in (None, each.decision) for each in asked):
            told = ", ".join(f"{each.tool} ({each.decision or 'no answer'})" for each in self.questions)
            self._fail(f"nobody was asked about {tool}{_decided(decision)}; asked was: {told or 'nothing'}")

    def assert_used_at_most(
        self,
        *,
        cost: float | None = None,
        tokens: int | None = None,
        turns: int | None = None,
        calls: int | None = None,
    ) -> None:
        """The whole tree took no more than this: US dollars, tokens, answers of models, tools that ran.

        A cost that is not known, because a model has no price, is more than any.
        """
        check(int | None, tokens=tokens, turns=turns, calls=calls)
        used = self.usage
        ran = sum(call.ran for call in self.calls())
        turned = sum(run.turns for run in self.runs)
        if cost is not None and (used.cost is None or used.cost > cost):
            self._fail(f"it cost {words.money(used.cost)}, of {words.money(cost)} at most")
        for name, found, most in (
            ("tokens", used.total_tokens, tokens),
            ("turns", turned, turns),
            ("calls", ran, calls),
        ):
            if most is not None and found > most:
                self._fail(f"it took {found:,} {name}, of {most:,} at most")

    def _in_order(self) -> Iterator[CallTold]:
        """The calls of the tree, those of a child after the call that started it."""
        return self._below(self.root)

    def _below(self, run: RunTold) -> Iterator[CallTold]:
        started = {child.run_id: child for child in run.children}
        for index, call in enumerate(run.calls):
            yield call
            for child in self._by_call.get((run.run_id, index), ()):
                if child in started:
                    yield from self._below(started.pop(child))
        for child in started.values():
            yield from self._below(child)

    def _fail(self, why: str) -> None:
        raise AssertionError(f"{why}\n\n{self}")

    def __str__(self) -> str:
        return "\n".join(self._lines(self.root, ""))

    def _lines(self, run: RunTold, lead: str) -> Iterator[str]:
        facts = [
            words.count(run.turns, "turn"),
            f"{words.tokens(run.usage.total_tokens)} tokens",
            words.money(run.usage.cost),
        ]
        yield f"{lead}{run.agent}  {run.outcome}  {', '.join(facts)}"
        lead += "  "
        yield f"{lead}» {words.one_line(run.prompt, 160)}"
        started = {child.run_id: child for child in run.children}
        for index, call in enumerate(run.calls):
            below = [
                started.pop(child) for child in self._by_call.get((run.run_id, index), ()) if child in started
            ]
            yield f"{lead}{_call_line(call, delegated=bool(below))}"
            for child in below:
                yield from self._lines(child, f"{lead}  ")
        for child in started.values():
            yield from self._lines(child, f"{lead}  ")
        if run.report is not None:
            said = run.report.error or run.report.text
            yield f"{lead}« {words.one_line(said, 160)}"


async def story_of(retinue: Retinue[Any], run: str | Report[Any]) -> CheckedStory:
    """The story of a `run`, by its id or its report, as its log has it now. `retinue` has to be open."""
    run_id = run.run_id if isinstance(run, Report) else run
    row = await retinue.store.run(run_id)
    if row is None:
        raise RunError(f"there is no run {run_id!r} in this database", run_id=run_id)
    return CheckedStory(tree_told(await retinue.store.events(row.root_id), run_id))


def _shown(wanted: Wanted) -> str:
    parts = [
        f"{name} as {getattr(value, '__name__', 'a function')} wants it"
        if callable(value)
        else f"{name}={value!r}"
        for name, value in wanted.items()
    ]
    return ", ".join(parts)


def _often(number: int, verb: str) -> str:
    return f"never {verb}" if number == 0 else f"{verb} {words.count(number, 'time')}"


def _wanted(times: int | None) -> str:
    return "at least once" if times is None else words.count(times, "time")


def _decided(decision: Decision | None) -> str:
    return f" with the answer {decision}" if decision else ""


def _call_line(call: CallTold, *, delegated: bool) -> str:
    about = f"{call.name} {words.one_line(call.raw, 160)}"
    if call.not_run:
        return f"✗ {about}  did not run: {call.not_run}"
    if delegated:
        return f"▸ {about}"
    return f"{'✗' if call.is_error else '▸'} {about} → {words.one_line(call.result, 120)}"
