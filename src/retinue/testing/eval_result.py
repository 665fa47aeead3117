"""What came of an evaluation: every try with its verdicts, what it cost, and a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from retinue.testing.eval_cases import EvalCase, EvalVerdict
from retinue.testing.story import CheckedStory
from retinue.types import Report, Usage
from retinue.view import words
from retinue.view.paint import Line, Span, plain
from retinue.view.table import TableColumn, table


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalTry:
    """One try of a case, the `number`th: what was done (`story`) and what came of each check (`verdicts`).
    `error` is why there is no report: it could not be started. `from_before`: it had been done by an earlier
    start, and cost nothing now."""

    case: EvalCase
    number: int
    run_id: str
    report: Report | None = None
    story: CheckedStory | None = None
    verdicts: tuple[EvalVerdict, ...] = ()
    error: str = ""
    from_before: bool = False

    @property
    def passed(self) -> bool:
        """Whether it ran, and every check of it passed."""
        return self.report is not None and all(each.passed for each in self.verdicts)

    @property
    def failures(self) -> tuple[EvalVerdict, ...]:
        """The checks that did not pass."""
        return tuple(each for each in self.verdicts if not each.passed)

    @property
    def usage(self) -> Usage:
        """What the run and everything below it took; judging is not in it."""
        return self.report.usage if self.report is not None else Usage()

    @property
    def judging(self) -> Usage:
        """What judges took."""
        return sum((each.usage for each in self.verdicts), Usage())

    @property
    def why(self) -> str:
        """Why it did not pass, in a line."""
        return self.error or "; ".join(f"{each.check}: {each.why}" for each in self.failures)

    def to_dict(self) -> dict[str, Any]:
        """Its documented JSON form."""
        return {
            "case": self.case.name,
            "try": self.number,
            "run_id": self.run_id,
            "passed": self.passed,
            "outcome": self.report.outcome if self.report is not None else "error",
            "text": self.report.text if self.report is not None else "",
            "data": self.report.data if self.report is not None else None,
            "error": self.error or (self.report.error if self.report is not None else None),
            "checks": [
                {"check": each.check, "passed": each.passed, "why": each.why} for each in self.verdicts
            ],
            "usage": self.usage.to_dict(),
            "judging": self.judging.to_dict(),
            "from_before": self.from_before,
        }


_HEADS = (
    TableColumn(title="case"),
    TableColumn(title="passed", right=True),
    TableColumn(title="tokens", right=True, rank=2),
    TableColumn(title="cost", right=True, rank=1),
    TableColumn(title="judging", right=True, rank=3),
    TableColumn(title="why not", flexible=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalResult:
    """What came of an evaluation. `tries` are in the order of the cases."""

    agent: str
    model: str
    tries: tuple[EvalTry, ...]

    @property
    def passed(self) -> bool:
        """Whether every try of every case passed."""
        return all(each.passed for each in self.tries)

    @property
    def rate(self) -> float:
        """How many of the tries passed, from 0 to 1."""
        return sum(each.passed for each in self.tries) / len(self.tries) if self.tries else 0.0

    @property
    def usage(self) -> Usage:
        """What the tries took, also those that an earlier start had paid for; without judging."""
        return sum((each.usage for each in self.tries), Usage())

    @property
    def judging(self) -> Usage:
        """What judges took."""
        return sum((each.judging for each in self.tries), Usage())

    def of(self, case: str) -> tuple[EvalTry, ...]:
        """The tries of one case."""
        return tuple(each for each in self.tries if each.case.name == case)

    def table(self, width: int | None = None) -> str:
        """A row for each case, and the sum; in at most so many columns."""
        return "\n".join(plain(line).rstrip() for line in self.lines(width))

    def lines(self, width: int | None = None) -> list[Line]:
        """The same in lines for a terminal."""
        return [*table(_HEADS, list(self._rows()), width), [(self.summary, "")]]

    @property
    def summary(self) -> str:
        """The sum in one line."""
        judging = f", judging {words.money(self.judging.cost)}" if self.judging.total_tokens else ""
        before = sum(each.from_before for each in self.tries)
        return (
            f"{self.agent} on {self.model}: {sum(each.passed for each in self.tries)} of "
            f"{words.count(len(self.tries), 'try', 'tries')} passed ({self.rate:.0%}) · "
            f"{words.tokens(self.usage.total_tokens)} tokens · {words.money(self.usage.cost)}{judging}"
            + (f" · {before} from an earlier start" if before else "")
        )

    def assert_passed(self, rate: float = 1.0) -> None:
        """At least so many of the tries passed, from 0 to 1; else an `AssertionError` with the table."""
        if self.rate < rate:
            raise AssertionError(f"{self.rate:.0%} of the tries passed, of {rate:.0%}\n\n{self.table()}")

    def to_dict(self) -> dict[str, Any]:
        """Its documented JSON form."""
        return {
            "agent": self.agent,
            "model": self.model,
            "passed": self.passed,
            "rate": self.rate,
            "usage": self.usage.to_dict(),
            "judging": self.judging.to_dict(),
            "tries": [each.to_dict() for each in self.tries],
        }

    def _rows(self) -> Iterator[Sequence[Span]]:
        for name in dict.fromkeys(each.case.name for each in self.tries):
            tries = self.of(name)
            passed = sum(each.passed for each in tries)
            used = sum((each.usage for each in tries), Usage())
            judging = sum((each.judging for each in tries), Usage())
            why = next((each.why for each in tries if not each.passed), "")
            style = "green" if passed == len(tries) else "red"
            yield (
                (name, ""),
                (f"{passed}/{len(tries)}", style),
                (words.tokens(used.total_tokens), "dim"),
                (words.money(used.cost), "dim"),
                (words.money(judging.cost) if judging.total_tokens else "", "dim"),
                (words.one_line(why, 300), ""),
            )
