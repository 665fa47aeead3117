"""What the fake provider plays: small stories with children, approvals, failures and long trees."""

from __future__ import annotations

import re
from typing import Any

from served import Gate, part

from retinue.testing import Script, SeenRequest, call
from retinue.types import UserMessage

ANSWER = """## Retries are decided in one place

`wait` in `src/retry.py` doubles the pause with every attempt, so **nothing else may sleep**:

1. a call fails and is counted;
2. `wait(attempt)` says how long to rest;
3. after five attempts the error goes up.

| attempt | pause |
|---|---:|
| 1 | 2 s |
| 2 | 4 s |
| 3 | 8 s |

```python
def wait(attempt):
    return 2 ** attempt
```

The note in notes.md:3 agrees. See also https://example.com/backoff for the idea behind it.
"""

QUESTION = "Where are retries decided, and how long do they wait? Write a note about it."


def retries(*, hold: Gate | None = None, asks: bool = True):
    """A root that has two specialists look and a scribe write; `hold` keeps the planner thinking."""

    def play(seen: SeenRequest) -> Script:
        who, turn = part(seen), seen.turn
        if who == "general":
            if turn == 0:
                return Script(
                    text="I will look at the code and at the notes side by side.",
                    calls=(
                        call("code-search", query="where are retries decided", scope="src"),
                        call("planner", task="describe how a failed call is tried again"),
                    ),
                )
            if turn == 1 and asks:
                return Script(
                    text="Both agree. I will have it written down.",
                    calls=(call("spawn_agent", **SCRIBE_CALL),),
                )
            return Script(text=ANSWER, pieces=40, delay=0.005)
        if who == "code-search":
            return _searching(turn)
        if who == "planner":
            return _planning(turn, hold)
        return _writing(turn)

    return play


SCRIBE_CALL: dict[str, Any] = {
    "operation": "spawn",
    "name": "note-writer",
    "prompt": "Write docs/retries.md: retries are decided by wait() in src/retry.py.",
    "tools": ["read", "write", "bash"],
}
NOTE = "# Retries\n\n`wait` in `src/retry.py` doubles the pause with every attempt.\n"


def _searching(turn: int) -> Script:
    if turn == 0:
        return Script(calls=(call("grep", pattern="retry|wait"), call("ls", path="src")))
    if turn == 1:
        return Script(calls=(call("read", path="src/retry.py"), call("read", path="src/missing.py")))
    return Script(text="- `src/retry.py:1` `wait` decides: `2 ** attempt` seconds.")


def _planning(turn: int, hold: Gate | None) -> Script:
    if turn == 0:
        return Script(calls=(call("read", path="notes.md"), call("glob", pattern="**/*.py")))
    return Script(
        text="1. A failed call is counted.\n2. `wait` says how long.", gate=hold.event if hold else None
    )


def _writing(turn: int) -> Script:
    if turn == 0:
        return Script(calls=(call("write", path="docs/retries.md", content=NOTE),))
    if turn == 1:
        return Script(calls=(call("bash", command="wc -l docs/retries.md && git status --short"),))
    return Script(text="Written: docs/retries.md, three lines.")


def writer(path: str = "out.txt", content: str = "hello\n", end: str = "Done."):
    """A root that writes one file itself and says how it went."""

    def play(seen: SeenRequest) -> Script:
        if seen.turn == 0:
            return Script(calls=(call("write", path=path, content=content),))
        last = seen.messages[-1]
        return Script(text=f"{end} The tool said: {getattr(last, 'text', '')[:200]}")

    return play


def one_command(command: str):
    """A root that runs one command."""
    return lambda seen: Script(text="Done.") if seen.turn else Script(calls=(call("bash", command=command),))


def says(text: str, **more: Any):
    return lambda seen: Script(text=text, **more)


def last_said(seen: SeenRequest) -> str:
    """The newest message of a person in the conversation."""
    return next((m.text for m in reversed(seen.messages) if isinstance(m, UserMessage)), "")


def number_in(text: str) -> int:
    found = re.search(r"\d+", text)
    return int(found[0]) if found else 0
