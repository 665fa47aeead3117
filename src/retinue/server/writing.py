"""Replies that are being written right now, so that whoever comes late sees them from their beginning.

Text as it arrives has no place in the log. `Writing` hears it in this process and keeps what belongs to open
model calls, and no longer than that. The hub sends it once to a watcher that has caught up, as a `writing`
event that replaces whatever text of that step the watcher has.
"""

from __future__ import annotations

import msgspec

from retinue.events import LiveEvent, ModelReplied, RunFinished, StepRetried, StepStarted, Streamed

MOST = 200_000
"""Characters of one reply that are kept."""


class _Reply:
    def __init__(self, first: Streamed) -> None:
        self.first = first
        self.size = 0
        self.pieces: list[str] = []

    def add(self, text: str) -> None:
        if self.size < MOST:
            self.pieces.append(text)
            self.size += len(text)


class Writing:
    def __init__(self) -> None:
        self._open: dict[str, dict[str, _Reply]] = {}

    def hear(self, event: LiveEvent) -> None:
        if isinstance(event, Streamed):
            if not event.thinking:
                runs = self._open.setdefault(event.root_id, {})
                reply = runs.get(event.run_id)
                if reply is None or reply.first.step != event.step:
                    reply = runs[event.run_id] = _Reply(event)
                reply.add(event.text)
        elif isinstance(event, StepStarted | StepRetried | ModelReplied | RunFinished):
            runs = self._open.get(event.root_id)
            if runs is not None:
                runs.pop(event.run_id, None)
                if not runs:
                    del self._open[event.root_id]

    def frames(self, root_id: str, only: str | None = None) -> bytes:
        """What is being written in a workflow, or by one of its runs, as events of a stream."""
        return b"".join(
            b"data: %b\n\n"
            % msgspec.json.encode(
                {
                    "type": "writing",
                    "run_id": run_id,
                    "root_id": root_id,
                    "depth": reply.first.depth,
                    "step": reply.first.step,
                    "text": "".join(reply.pieces),
                }
            )
            for run_id, reply in self._open.get(root_id, {}).items()
            if only in (None, run_id)
        )
