"""Every error Retinue raises, in one tree.

    RetinueError
    ├── ToolError            the model reads it and acts on it; never ends a run
    │   ├── Refused          a limit, a rule or a person said no
    │   ├── NoHandles        nothing could be opened for it; waited for before it is said
    │   └── ForbiddenPath    a path left the workspace or the project; audited
    ├── ModelError           a provider failed; `kind` says how, the loop decides what to do
    ├── RunError             ends one run, knows its id
    │   ├── BudgetExhausted  the tree or the run has nothing left to spend
    │   ├── Fenced           another process owns this run now
    │   │   └── Withdrawn    this process leaves it to another one
    │   ├── AlreadyRunning   this process works on it
    │   ├── HasEnded         it was to go on by itself, and has its end
    │   └── Unwritable       an event that could not be read back from the log
    ├── ConfigError          a person's mistake: names the file, the line and the fix
    │   ├── RunIdTaken       there is a run of an id that was chosen for a new one
    │   ├── NothingLeft      a run that has ended has nothing to go on with
    │   └── NoKey            there is no key for a provider
    └── StoreError           the log cannot be written or read
        └── Gone             the run was deleted while this process worked on it

A message gives the value, the limit and what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from retinue.types import NotRun

ModelErrorKind = Literal[
    "auth",  # no key, a wrong key, no right to this model
    "not_found",  # no such model or endpoint
    "invalid",  # the provider rejected the request itself
    "too_long",  # the conversation does not fit the model's window
    "rate_limit",  # 429, or the account's quota
    "overloaded",  # 5xx
    "timeout",  # no answer in time
    "connection",  # could not connect, or the connection was lost
    "refused",  # the provider's safety system refused to answer
    "protocol",  # the provider's answer could not be understood
    "too_large",  # the provider's answer is longer than is kept
]


def told(error: BaseException) -> str:
    """An error of somebody else's code in a line, whatever its own text does."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}"


class RetinueError(Exception):
    """Base of everything that Retinue raises on purpose."""


def in_words(error: Exception) -> str:
    """An error for people and models: ours are worded for them, of others the kind is named too."""
    return str(error) if isinstance(error, RetinueError) else told(error)


class ToolError(RetinueError):
    """Something a tool could not do. Its text becomes the tool result that the model reads.

    `not_run` says why the tool did not run at all, where it did not; `children` is how many it was to start.
    """

    children: int = 1
    too_many: bool = False
    """Fewer of them could have started: whoever asks for these stands in for as many."""

    def __init__(self, message: str, *, not_run: NotRun = "") -> None:
        super().__init__(message)
        self.not_run: NotRun = not_run

    @property
    def not_started(self) -> int:
        """Children that a limit kept from starting, so many as there were to be."""
        return self.children if self.not_run in ("limit", "time") else 0


class NoHandles(ToolError):
    """Nothing could be opened for a tool: this process, or the machine, has no file handle left.

    `untouched`: it had done nothing by then, so that it can be done again.
    """

    def __init__(self, message: str, *, untouched: bool = False) -> None:
        super().__init__(message)
        self.untouched = untouched

    def given_up(self) -> ToolError:
        return ToolError(
            f"not run: {self}; no file could be opened for a while. Raise the limit (ulimit -n)",
            not_run="no_handles",
        )


class Refused(ToolError):
    """A limit, a rule or a person said no."""

    def __init__(self, message: str, *, not_run: NotRun = "forbidden") -> None:
        super().__init__(message, not_run=not_run)


class ForbiddenPath(ToolError):
    """A path outside what the run may touch. The attempt is logged for audit."""


class ModelError(RetinueError):
    """A provider failed. `retry_after` is in seconds where the provider said so."""

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def retryable(self) -> bool:
        """Whether the same call may well work a moment later."""
        return self.kind in ("rate_limit", "overloaded", "timeout", "connection")


class RunError(RetinueError):
    """Ends one run."""

    def __init__(self, message: str, *, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id


class BudgetExhausted(RunError):
    """Nothing left to spend."""


class Fenced(RunError):
    """Another process has taken this run over."""


class Withdrawn(Fenced):
    """This process has stopped working on a run that has not ended: it waits for whoever takes it up."""


class AlreadyRunning(RunError):
    """This process works on that run."""


class HasEnded(RunError):
    """A run that was to go on by itself has its end: only a person has it go on."""


class Unwritable(RunError):
    """An event that holds what the log could not give back: a model, a tool or a program put it there."""


class ConfigError(RetinueError):
    """A mistake in a file, a flag or a setting."""

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, fix: str | None = None
    ) -> None:
        self.message, self.file, self.line, self.fix = message, file, line, fix
        where = "" if file is None else file + (f":{line}" if line else "") + ": "
        super().__init__(where + message + (f" ({fix})" if fix else ""))


class RunIdTaken(ConfigError):
    """There is a run of the id that a program chose for a new one."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"the run_id {run_id!r} is taken: there is a run of that id",
            fix="leave it out to have one made, or go on with that run: resume(run_id, message=…)",
        )


class NothingLeft(ConfigError):
    """A run that has ended has nothing to go on with: neither a word, nor more of what it ran out of."""


class NoKey(ConfigError):
    """A model cannot be asked, since the environment has no key for its provider."""


class StoreError(RetinueError):
    """The event log cannot be written or read. `passing`: the same may well work later."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class Gone(StoreError):
    """The run was deleted while this process worked on it. Nothing of it can be written or resumed."""


def unwind(error: BaseException) -> None:
    """Take the frames off an error of which only the words are still needed, and off those behind it.

    An error holds every frame that it went through, with all that was read and built there. Whichever of
    them has a name for the error closes a circle, which stays in memory until the collector looks. Whoever
    turns an error into words, or tries again, calls this.
    """
    errors, seen = [error], set[int]()
    while errors:
        each = errors.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        errors += [other for other in (each.__cause__, each.__context__) if other is not None]
        if isinstance(each, BaseExceptionGroup):
            errors += each.exceptions  # pyright: ignore[reportUnknownMemberType] # of whatever errors
