"""Why a source gave no answer: one error per cause, in words a model can act on.

Raised by the client and by each source's parser; the loop shows the text to the model. It never carries
a key: what a server sends is freed of keys before anyone reads it.
"""

from __future__ import annotations

from typing import Literal

from retinue.errors import ToolError
from retinue.tools.knowledge.clean import cut

Cause = Literal[
    "rate_limited",  # the source, or its limit as we keep it, says: later
    "down",  # no connection, a 5xx, or something that is not an answer
    "timeout",  # no answer in time, or the query was too much work
    "bad_query",  # the source says what is wrong with the query
    "no_result",  # it understood, and has nothing
    "needs_key",  # no key, or one it rejects
    "empty_page",  # nothing where there should be something: worth one more try
]


LONGEST_WAIT = 86_400.0
"""The longest ban there is. What a server asks for holds for every process that shares the store."""
SAID = 1500
"""How much of a source's own words, or of the model's, goes into an error."""


class SourceError(ToolError):
    """`wait` is how long the source asked us to stay away; `again` says that another try may help."""

    def __init__(self, message: str, *, cause: Cause, wait: float | None = None, again: bool = False) -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.wait = None if wait is None else min(wait, LONGEST_WAIT)
        self.again = again


def seconds(value: float) -> str:
    """A span as people say it."""
    if value < 90:
        return f"{max(1, round(value))} s"
    if value < 5400:
        return f"{round(value / 60)} min"
    return f"{value / 3600:.1f} h"


def rate_limited(
    label: str, wait: float | None, *, allowed: float | None = None, again: bool = True, hint: str = ""
) -> SourceError:
    when = "later" if wait is None else f"in {seconds(min(wait, LONGEST_WAIT))}"
    limit = "" if allowed is None else f", and this call may take {seconds(allowed)} more"
    return SourceError(
        f"{label} is rate limited: another request is allowed {when}{limit}. "
        f"Use another source, or ask again later.{' ' + hint if hint else ''}",
        cause="rate_limited",
        wait=wait,
        again=again,
    )


def down(label: str, detail: str, *, again: bool = True) -> SourceError:
    return SourceError(
        f"{label} is not working now ({detail}). Use another source, or try again later.",
        cause="down",
        again=again,
    )


def timeout(label: str, after: float, advice: str = "Use another source, or ask for less.") -> SourceError:
    return SourceError(f"{label} did not answer within {seconds(after)}. {advice}", cause="timeout")


def bad_query(label: str, message: str, advice: str = "Change the query and try again.") -> SourceError:
    said = cut(message, SAID).rstrip(" .")
    return SourceError(f"{label} rejected the query: {said}. {advice}", cause="bad_query")


def no_result(label: str, query: str, advice: str = "Try other words, or another source.") -> SourceError:
    return SourceError(f"{label} has nothing for {cut(query, SAID)!r}. {advice}", cause="no_result")


def needs_key(label: str, variable: str, where: str) -> SourceError:
    return SourceError(
        f"{label} needs a key: set {variable} in the environment ({where}). Use another tool until then.",
        cause="needs_key",
    )


def key_rejected(label: str, variable: str, where: str) -> SourceError:
    return SourceError(
        f"{label} rejected the key in {variable}: check it ({where}). Use another tool until then.",
        cause="needs_key",
    )
