"""In which order code was told what it waited for, by the log: its answers, and that time had passed.

Code in a sandbox waits for calls and for timers. Answers reach it in the order of its calls until one that
was made later is there first, or a timer is: that is written down (`CodeWoken`), and from there on they reach
it in the order of the log. Code that is run again, after a restart or in a replay, is told the same in the
same order, so that a timeout that came once comes again, and one that did not, does not. `fold` keeps a
`Course` for each snippet; a sandbox goes through it with a `Telling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

CLOCK = 0
"""In the place of a call: its clock woke the code. Calls are numbered from 1."""

Wake = Callable[[int, bool], None]
"""Write down that the code was woken out of order as the nth time, and whether by its clock; once."""


@dataclass(slots=True, eq=False)
class Course:
    """What the log says of one snippet."""

    answered: list[int] = field(default_factory=list[int])
    """The calls that have an answer, and `CLOCK`, in the order of the log."""
    took: dict[int, float] = field(default_factory=dict[int, float])
    """Seconds that each call took."""
    raced: int | None = None
    """How often code had been told something when the order of the log began to count."""
    marks: set[tuple[int, bool]] = field(default_factory=set[tuple[int, bool]])

    @classmethod
    def told(cls, order: Iterable[int], calls: int) -> Course:
        """A course that is known from its first to its last word, of a snippet that made so many calls."""
        return cls(answered=list(order), took=dict.fromkeys(range(1, calls + 1), 0.0), raced=0)

    def answer(self, number: int, seconds: float) -> None:
        self.answered.append(number)
        self.took[number] = seconds

    def wake(self, nth: int, clock: bool) -> None:
        if (nth, clock) in self.marks:
            return
        self.marks.add((nth, clock))
        self.raced = nth if self.raced is None else self.raced
        if clock:
            self.answered.append(CLOCK)


@dataclass(slots=True, eq=False)
class Telling:
    """A snippet that goes through its course, and on where that ends, unless it is `played`."""

    course: Course
    wake: Wake
    played: bool = False
    told: list[int] = field(default_factory=list[int])
    _place: int = 0

    def next(self, pending: Sequence[int], done: Callable[[int], bool]) -> int | None:
        """The call whose answer is told now, or `CLOCK`; None: nothing yet. `pending` are not empty."""
        for number in pending:  # a call that could not be made at all stands in no log
            if done(number) and number not in self.course.took:
                return number
        found = self._due(pending)
        if found is None or (found != CLOCK and not done(found)):
            return None
        nth = len(self.told)
        if self.course.raced == nth and (nth, False) in self.course.marks:
            self.wake(nth, False)
        if found == CLOCK:
            self.wake(nth, True)
            self._place += 1
        self.told.append(found)
        return found

    def time_is_up(self, pending: Sequence[int]) -> None:
        """A timer is due, and nothing else has come before."""
        if not self.played and self._due(pending) is None:
            self.wake(len(self.told), True)

    def _due(self, pending: Sequence[int]) -> int | None:
        """What comes next by the log, done or not."""
        course, nth = self.course, len(self.told)
        waits = course.raced is None and not self.played and pending[0] not in course.took
        if waits and any(number in course.took for number in pending):
            self.wake(nth, False)
        if course.raced is None or nth < course.raced:
            return pending[0] if pending[0] in course.took else None
        while self._place < len(course.answered):
            found = course.answered[self._place]
            if found == CLOCK or found in pending:
                return found
            self._place += 1
        return None
