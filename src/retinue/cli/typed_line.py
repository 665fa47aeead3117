"""A line that a person types before anything is at work, as the answer to a question.

For commands that ask before they begin. It holds up the event loop, which has nothing to do then.
"""

from __future__ import annotations

import signal
import sys
import threading

from retinue.view.words import clean


def typed_line(question: str) -> str | None:
    """What is typed, without its end; None at the end of input. Ctrl-C ends the command at once: asyncio's
    own handler would wait for the line."""
    sys.stderr.write(clean(question))
    sys.stderr.flush()
    if threading.current_thread() is not threading.main_thread():
        return _line()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _line()
    finally:
        signal.signal(signal.SIGINT, before)


def agreed(question: str) -> bool:
    """Whether the person says yes. Anything but a clear yes is a no."""
    return (typed_line(f"{question} [y/N] ") or "").lower() in ("y", "yes")


def _line() -> str | None:
    line = sys.stdin.readline()
    return line.strip() if line else None
