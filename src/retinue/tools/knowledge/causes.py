"""Why a source gave no answer: one error per cause, in words a model can act on.

Raised by the client and by each source's parser; the loop shows the text to the model. It never carries
a key: what a server sends is freed of keys before anyone reads it. What it sends stands in a frame, in an
error as in an answer: anyone may have written it.
"""

from __future__ import annotations

from typing import Literal

from retinue.errors import ToolError
from retinue.tools.knowledge.clean import cut
from retinue.web.framing import frame

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
    """`wait` is how long the source asked us to stay away; `again` says that another try may help; `said` are
    words that come from the source, which `message` does not hold."""

    def __init__(
        self, message: str, *, cause: Cause, wait: float | None = None, again: bool = False, said: str = ""
    ) -> None:
        words = cut(said.strip(), SAID)
        super().__init__(f"{message}\n{frame(words, what='words of the source')}" if words else message)
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


def down(label: str, detail: str = "", *, said: str = "", again: bool = True) -> SourceError:
    """`detail` are our words for what is wrong, `said` are the source's."""
    why = f" ({detail})" if detail else ""
    return SourceError(
        f"{label} is not working now{why}. Use another source, or try again later.",
        cause="down",
        again=again,
        said=said,
    )


def no_answer(label: str, kind: str, said: str) -> SourceError:
    """What came is of another kind than an answer: a page for people, as a gateway or a login shows it."""
    return down(label, f"it sent {kind} instead of an answer", said=said, again=False)


def timeout(label: str, after: float, advice: str = "Use another source, or ask for less.") -> SourceError:
    return SourceError(f"{label} did not answer within {seconds(after)}. {advice}", cause="timeout")


def bad_query(
    label: str, said: str, advice: str = "Change the query and try again.", *, detail: str = ""
) -> SourceError:
    """`said` are the source's words, `detail` are ours."""
    why = f": {detail}" if detail else ""
    return SourceError(f"{label} rejected the query{why}. {advice}", cause="bad_query", said=said)


def no_result(
    label: str, query: str, advice: str = "Try other words, or another source.", *, said: str = ""
) -> SourceError:
    return SourceError(
        f"{label} has nothing for {cut(query, SAID)!r}. {advice}", cause="no_result", said=said
    )


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
